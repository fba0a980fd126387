"""The store: bound files are read once and are what they seem; documents appear whole or not.

What happens when a step of the file system fails in a whole command is in test_storage.py; here
are the single functions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys

import pytest

import eval_loop
from eval_loop import (FILE_LIMIT, Refused, canonical, file_sha256, parse_json, publish,
                       publish_result, read_bound, receipt_directories, receipt_names,
                       same_bytes, unlocked)

DOCUMENT = canonical({"kind": "note", "text": "x" * 200})
SKIPPED_AS_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.fixture
def root(tmp_path) -> pathlib.Path:
    """Return an experiment directory with one file and one below a directory."""
    place = tmp_path.resolve() / "experiment"
    (place / "cases").mkdir(parents=True)
    (place / "plan.json").write_bytes(b'{"a":1}\n')
    (place / "cases" / "input.txt").write_bytes("Übung\r\n".encode())
    return place


def problem(function, *words, **options) -> str:
    """Return the one sentence of a refusal."""
    with pytest.raises(Refused) as refusal:
        function(*words, **options)
    assert len(refusal.value.problems) == 1
    return refusal.value.problems[0]


# ---- read_bound ------------------------------------------------------------------------------


def test_the_bytes_of_a_bound_file_come_as_they_are(root):
    assert read_bound(str(root), "plan.json") == b'{"a":1}\n'
    assert read_bound(str(root), "cases/input.txt") == "Übung\r\n".encode()
    (root / "empty").touch()
    assert read_bound(str(root), "empty") == b""


@pytest.mark.parametrize("file", ["other.json", "cases/other.txt", "nowhere/input.txt"])
def test_a_missing_file_is_told_from_an_unusable_one(root, file):
    with pytest.raises(FileNotFoundError):
        read_bound(str(root), file)


@pytest.mark.parametrize("target", ["plan.json", "../outside.txt", "nowhere"])
def test_a_link_is_refused_wherever_it_points(root, target):
    (root.parent / "outside.txt").write_text("secret")
    (root / "link.json").symlink_to(target)
    told = problem(read_bound, str(root), "link.json")
    assert told.startswith("link.json: ") and "link" in told and "secret" not in told


def test_a_link_among_the_directories_is_refused(root):
    (root / "linked").symlink_to("cases")
    told = problem(read_bound, str(root), "linked/input.txt")
    assert told.startswith("linked/input.txt: ") and "link" in told


def test_a_directory_is_no_bound_file(root):
    assert "cases: " in problem(read_bound, str(root), "cases")


def test_a_file_as_a_directory_is_refused_by_name(root):
    assert "plan.json/x" in problem(read_bound, str(root), "plan.json/x")


def test_a_pipe_is_refused_without_waiting_for_a_writer(root):
    os.mkfifo(root / "pipe")
    assert problem(read_bound, str(root), "pipe").startswith("pipe: ")


def test_a_socket_is_refused(root, monkeypatch):
    monkeypatch.chdir(root)             # a socket's path may be short only
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind("socket")
        assert problem(read_bound, str(root), "socket").startswith("socket: ")


def test_a_device_is_refused(tmp_path):
    assert "zero" in problem(read_bound, "/dev", "zero")
    assert "null" in problem(read_bound, "/dev", "null")


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_is_read_up_to_its_limit_and_not_beyond(root, more):
    size = FILE_LIMIT + more
    with open(root / "large", "wb") as large:
        large.truncate(size)
    if more:
        told = problem(read_bound, str(root), "large")
        assert str(FILE_LIMIT) in told and str(size) in told
    else:
        assert len(read_bound(str(root), "large")) == size


def test_another_limit_may_be_given(root):
    assert "8 bytes" in problem(read_bound, str(root), "plan.json", limit=7)
    assert len(read_bound(str(root), "plan.json", limit=8)) == 8


@SKIPPED_AS_ROOT
def test_a_file_without_permission_is_refused_by_name(root):
    (root / "plan.json").chmod(0)
    assert "plan.json: " in problem(read_bound, str(root), "plan.json")


def test_a_bound_file_is_opened_once_and_its_descriptor_closed(root, monkeypatch):
    opened, real = [], os.open
    monkeypatch.setattr(os, "open", lambda *given, **more: opened.append(given[0]) or real(
        *given, **more))
    before = sorted(os.listdir("/dev/fd"))
    read_bound(str(root), "plan.json")
    with contextlib.suppress(Refused):
        read_bound(str(root), "cases")
    assert opened == [str(root / "plan.json"), str(root / "cases")]
    assert sorted(os.listdir("/dev/fd")) == before


def test_short_reads_are_completed(root, monkeypatch):
    (root / "long.txt").write_bytes(bytes(range(256)) * 4)
    real = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, length: real(descriptor,
                                                                    min(length, 300)))
    assert read_bound(str(root), "long.txt") == bytes(range(256)) * 4


def test_a_file_replaced_after_it_was_opened_gives_the_bytes_of_the_opened_one(root,
                                                                               monkeypatch):
    real = os.fstat

    def replacing(descriptor):
        (root / "new").write_bytes(b"other")
        os.rename(root / "new", root / "plan.json")
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", replacing)
    assert read_bound(str(root), "plan.json") == b'{"a":1}\n'


# ---- publish ---------------------------------------------------------------------------------


STEPS = ("open", "write", "fsync", "link", "unlink", "flock")


class Steps:
    """What was asked of the file system, in order; `fail` maps a step's number to an error."""

    def __init__(self):
        self.done: list[tuple] = []
        self.fail: dict[int, int] = {}


@pytest.fixture
def steps(monkeypatch):
    """Record the steps of the file system by name and file, and let chosen ones fail."""
    told, names = Steps(), {}

    def recorded(module, name):
        real = getattr(module, name)

        def step(*given, **more):
            what = given[0] if isinstance(given[0], str) else names.get(given[0], "?")
            told.done.append((name, *(os.path.basename(part) for part in (
                [what, given[1]] if name == "link" else [what]))))
            if number := told.fail.get(len(told.done)):
                raise OSError(number, os.strerror(number))
            result = real(*given, **more)
            if name == "open":
                names[result] = given[0]
            return result

        monkeypatch.setattr(module, name, step)

    for name in STEPS:
        recorded(fcntl if name == "flock" else os, name)
    return told


def test_a_document_is_published_whole_private_and_locked(root):
    descriptor = publish(str(root), "cases/new.json", DOCUMENT)
    try:
        path = root / "cases" / "new.json"
        assert path.read_bytes() == DOCUMENT
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_nlink == 1
        assert os.fstat(descriptor).st_ino == path.stat().st_ino
        assert not unlocked(str(root), "cases/new.json")
    finally:
        os.close(descriptor)
    assert unlocked(str(root), "cases/new.json")
    assert sorted(os.listdir(root / "cases")) == ["input.txt", "new.json"]


def test_a_document_is_durable_before_it_has_its_name_and_the_name_before_it_counts(root,
                                                                                    steps):
    os.close(publish(str(root), "cases/new.json", DOCUMENT))
    draft = steps.done[0][1]
    assert re.fullmatch(r"\.new\.json\.[0-9a-f]{16}\.tmp", draft)
    assert steps.done == [
        ("open", draft), ("flock", draft), ("write", draft), ("fsync", draft),
        ("link", draft, "new.json"), ("unlink", draft), ("open", "cases"), ("fsync", "cases")]


def test_the_draft_is_new_even_beside_a_link_of_its_name(root, monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    (root / ".new.json.0000000000000000.tmp").symlink_to(root / "plan.json")
    with pytest.raises((Refused, FileExistsError)):
        publish(str(root), "new.json", DOCUMENT)
    assert (root / "plan.json").read_bytes() == b'{"a":1}\n'


def test_short_writes_are_completed(root, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, raw: real(descriptor, raw[:7]))
    os.close(publish(str(root), "new.json", DOCUMENT))
    assert (root / "new.json").read_bytes() == DOCUMENT


@pytest.mark.parametrize("taken", ["file", "link", "dangling link", "directory"])
def test_a_name_that_is_taken_stays_as_it_is(root, taken):
    path = root / "new.json"
    {"file": lambda: path.write_bytes(b"first"), "link": lambda: path.symlink_to("plan.json"),
     "dangling link": lambda: path.symlink_to("nowhere"), "directory": path.mkdir}[taken]()
    before = (path.is_symlink(), path.is_dir() or path.exists() and path.read_bytes())
    with pytest.raises(FileExistsError):
        publish(str(root), "new.json", DOCUMENT)
    assert (path.is_symlink(), path.is_dir() or path.exists() and path.read_bytes()) == before
    assert not [name for name in os.listdir(root) if name.endswith(".tmp")]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EPERM,
                                   errno.EOPNOTSUPP])
@pytest.mark.parametrize("number", range(1, 9))
def test_a_step_that_fails_leaves_nothing_and_is_told(root, steps, number, error):
    steps.fail[number] = error
    before = sorted(os.listdir("/dev/fd"))
    if number == 6:                     # the draft's own name: only a second name, told later
        os.close(publish(str(root), "cases/new.json", DOCUMENT))
        assert (root / "cases" / "new.json").read_bytes() == DOCUMENT
        return
    told = problem(publish, str(root), "cases/new.json", DOCUMENT)
    assert told.startswith("cases/new.json: ") and os.strerror(error) in told
    assert os.listdir(root / "cases") == ["input.txt"]
    assert sorted(os.listdir("/dev/fd")) == before


def test_where_locks_do_not_work_nothing_is_published(root, steps):
    steps.fail[2] = errno.ENOLCK
    assert "locks" in problem(publish, str(root), "new.json", DOCUMENT)
    assert not (root / "new.json").exists()


@pytest.mark.parametrize("raw", [b'{"rate":0.5}\n', b'[1e3]\n', b'{"a":[{"b":-0.0}]}\n',
                                 b'{"a":NaN}\n'])
def test_a_document_with_a_float_is_never_written(root, raw):
    with pytest.raises(ValueError):
        publish(str(root), "new.json", raw)
    assert sorted(os.listdir(root)) == ["cases", "plan.json"]


def publish_at_once(root: str, start, results) -> None:
    """Publish under one name when all are ready; report whether it was this process."""
    start.wait()
    try:
        descriptor = publish(root, "one.json", canonical({"by": os.getpid()}))
        os.close(descriptor)
        results.put(os.getpid())
    except FileExistsError:
        results.put(0)


def test_of_many_writers_of_one_name_exactly_one_succeeds(root):
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    for _ in range(3):
        start, results = context.Barrier(6), context.Queue()
        writers = [context.Process(target=publish_at_once, args=(str(root), start, results))
                   for _ in range(6)]
        for writer in writers:
            writer.start()
        told = [results.get(timeout=60) for _ in writers]
        for writer in writers:
            writer.join()
        assert len([number for number in told if number]) == 1
        assert parse_json((root / "one.json").read_bytes()) == {"by": sum(told)}
        (root / "one.json").unlink()


# ---- results ---------------------------------------------------------------------------------


def test_a_result_is_written_once_and_found_again(root):
    document = {"kind": "score", "passed": 9}
    assert publish_result(str(root), "results/deep/score.json", document) is True
    raw = (root / "results/deep/score.json").read_bytes()
    assert raw == canonical(document)
    assert stat.S_IMODE((root / "results").stat().st_mode) == 0o700
    assert publish_result(str(root), "results/deep/score.json", document) is False
    assert (root / "results/deep/score.json").read_bytes() == raw


def test_a_different_result_is_refused_naming_the_fields_that_changed(root):
    publish_result(str(root), "score.json", {"kind": "score", "passed": 9, "total": 10})
    told = problem(publish_result, str(root), "score.json",
                   {"kind": "score", "passed": 8, "total": 10, "unknown": 1})
    assert told.startswith("score.json: ") and "passed" in told and "unknown" in told
    assert "total" not in told
    assert parse_json((root / "score.json").read_bytes())["passed"] == 9


REBUILT = {"kind": "score", "passed": 9, "rows": [1, 2]}
CHANGED = {
    "another value": (b'{"kind":"score","passed":8,"rows":[1,2]}\n', "passed"),
    "a field more": (b'{"kind":"score","passed":9,"rows":[1,2],"x":1}\n', "x"),
    "a field less": (b'{"kind":"score","passed":9}\n', "rows"),
    "another order": (b'{"passed":9,"kind":"score","rows":[1,2]}\n', "same value"),
    "blanks": (b'{"kind": "score", "passed": 9, "rows": [1, 2]}\n', "same value"),
    "no final newline": (b'{"kind":"score","passed":9,"rows":[1,2]}', "same value"),
    "CRLF": (b'{"kind":"score","passed":9,"rows":[1,2]}\r\n', "same value"),
    "an escape": (b'{"k\\u0069nd":"score","passed":9,"rows":[1,2]}\n', "same value"),
    "a fraction": (b'{"kind":"score","passed":9.0,"rows":[1,2]}\n', ""),
    "a key twice": (b'{"kind":"score","passed":8,"passed":9,"rows":[1,2]}\n', "twice"),
    "another kind of value": (b"[]\n", ""), "a text": (b'"score"\n', ""),
    "nothing": (b"", "JSON"), "zeros": (b"\0" * 44, "JSON"), "a cut": (b'{"kind":"sc', "JSON"),
    "no UTF-8": (b'{"kind":"\xff"}\n', "UTF-8"), "depth": (b"[" * 100_000, "deep"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_bytes_that_are_not_the_rebuilt_ones_are_refused_saying_what_differs(change):
    raw, words = CHANGED[change]
    told = problem(same_bytes, "results/score.json", raw, REBUILT)
    assert told.startswith("results/score.json: ") and words in told and "restore" in told
    assert len(told) < 400


def test_the_rebuilt_bytes_are_accepted():
    assert same_bytes("score.json", canonical(REBUILT), REBUILT) is None


# ---- hashes of any file ----------------------------------------------------------------------


def test_a_large_file_is_hashed_in_a_stream(root):
    with open(root / "cli", "wb") as large:
        large.write(b"head")
        large.truncate(300_000_000)
    code = ("import resource, sys; sys.path.insert(0, sys.argv[1]); import eval_loop; "
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
            "print(eval_loop.file_sha256(sys.argv[2])); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)")
    done = subprocess.run([sys.executable, "-c", code, os.path.dirname(eval_loop.__file__),
                           str(root / "cli")], capture_output=True, check=True, text=True)
    digest, grown = done.stdout.split()
    expected = hashlib.sha256(b"head")
    for _ in range(74):
        expected.update(bytes(4_000_000))
    expected.update(bytes(300_000_000 - 4 - 74 * 4_000_000))
    assert digest == expected.hexdigest()
    assert int(grown) < 30_000 * (1024 if sys.platform == "darwin" else 1)


def test_a_link_may_be_hashed_but_a_pipe_or_directory_may_not(root):
    (root / "link").symlink_to("plan.json")
    assert file_sha256(str(root / "link")) == hashlib.sha256(b'{"a":1}\n').hexdigest()
    os.mkfifo(root / "pipe")
    for name in ("pipe", "cases", "nowhere"):
        with pytest.raises(OSError):
            file_sha256(str(root / name))


# ---- locks -----------------------------------------------------------------------------------


@contextlib.contextmanager
def held(path, kind=fcntl.LOCK_EX):
    """Hold a file's lock, as another process would (a descriptor of its own)."""
    with open(path, "rb+") as stream:
        fcntl.flock(stream, kind | fcntl.LOCK_NB)
        yield stream


def test_a_held_lock_is_seen_and_a_free_one_too(root):
    assert unlocked(str(root), "plan.json")
    with held(root / "plan.json"):
        assert not unlocked(str(root), "plan.json")
    assert unlocked(str(root), "plan.json")


def test_two_who_test_a_lock_do_not_see_each_other(root):
    with held(root / "plan.json", fcntl.LOCK_SH):
        assert unlocked(str(root), "plan.json")


def test_a_lock_lives_as_long_as_a_child_that_inherited_it(root):
    with open(root / "plan.json", "rb+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdout=stream,
                                 stdin=subprocess.PIPE)
    try:
        assert not unlocked(str(root), "plan.json")
    finally:
        child.communicate(b"\n")
    assert unlocked(str(root), "plan.json")


def test_what_is_not_there_is_held_by_nobody(root):
    assert unlocked(str(root), "results/never.stdout")
    assert not (root / "results").exists()


@pytest.mark.parametrize("make", ["link", "pipe"])
def test_a_lock_is_tested_on_plain_files_only_and_without_waiting(root, make):
    if make == "link":
        (root / "odd").symlink_to("plan.json")
        assert "odd" in problem(unlocked, str(root), "odd")
    else:
        os.mkfifo(root / "odd")
        with contextlib.suppress(Refused):
            assert unlocked(str(root), "odd") in (True, False)


# ---- names of receipts -----------------------------------------------------------------------


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_receipts_are_known_by_their_names(root):
    touch(root, *(f"r/d01.run.1.{part}" for part in
                  ("pending.json", "terminal.json", "stdout", "stderr")),
          "r/d01.grounded-1.judge.12.pending.json", "r/s-1_X.calibrate.2.stdout")
    assert receipt_names(str(root), "r") == {
        "d01.run.1": {"pending.json", "terminal.json", "stdout", "stderr"},
        "d01.grounded-1.judge.12": {"pending.json"}, "s-1_X.calibrate.2": {"stdout"}}


@pytest.mark.parametrize("name", [
    "score.json", ".d01.run.1.pending.json.0123456789abcdef.tmp", "d01.run.pending.json",
    "d01.run.0.pending.json", "d01.run.01.pending.json", "d01.run.1.pending.json~",
    "d01.run.1.pending.JSON", "d01.walk.1.pending.json", "d01.run.1.stdout.bak",
    "d01.run.1x.pending.json", "d01.run.-1.pending.json", "d é.run.1.stdout",
    "d01.run.1.terminal.json\n", "d01.run.٣.stdout", "run.1.pending.json",
])
def test_other_names_are_no_receipts(root, name):
    touch(root, f"r/{name}")
    assert receipt_names(str(root), "r") == {}


def test_a_directory_that_is_not_there_holds_no_receipts(root):
    assert receipt_names(str(root), "results/none") == {}
    assert sorted(os.listdir(root)) == ["cases", "plan.json"]


def test_a_result_directory_that_is_a_file_or_behind_a_link_is_refused_by_name(root):
    assert "plan.json" in problem(receipt_names, str(root), "plan.json")
    (root / "linked").symlink_to("cases")
    assert "linked" in problem(receipt_names, str(root), "linked")
    assert "linked/r" in problem(receipt_names, str(root), "linked/r")


def test_every_directory_with_a_pending_receipt_is_found_in_order(root):
    touch(root, "b/x.run.1.pending.json", "a/deep/y.run.1.pending.json",
          "top.run.1.pending.json", "c/z.run.1.stdout", "a/note.txt")
    assert list(receipt_directories(str(root))) == [".", "a/deep", "b"]


def test_a_link_to_receipts_at_any_depth_is_refused_and_another_link_is_not_walked(root):
    touch(root.parent, "outside/deep/note.txt")
    (root / "linked").symlink_to(root.parent / "outside")
    assert list(receipt_directories(str(root))) == []
    touch(root.parent, "outside/deep/x.run.1.pending.json")
    assert "linked" in problem(lambda: list(receipt_directories(str(root))))


def test_json_of_the_store_is_json_of_everybody(root):
    os.close(publish(str(root), "new.json", canonical({"text": "é\ud83d"})))
    assert json.loads((root / "new.json").read_bytes()) == {"text": "é\ud83d"}
