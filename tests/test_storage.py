"""Storage that fails at any step: a clear refusal, receipts intact, whole again afterwards.

Run directly by `unshare` (see the test of the small disk) this module is that test's inside.
"""

from __future__ import annotations

import errno
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import builder
import faults

ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT)
NAMED_STEPS = ("write", "fsync", "link")        # each is refused with each error, both ways
OFFLINE = ["calibrate-finalize", "score-baseline", "compare", "decide"]
SURVIVED: dict[str, int] = {}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return two walked benches, which work beside each other."""
    with faults.benches(tmp_path_factory.mktemp("storage")) as made:
        yield made


def refusals(steps: list[str], thorough: bool):
    """Yield (number of the step, error, whether every later step is refused as well)."""
    for number, step in enumerate(steps, 1):
        kind = step.split()[0]
        if kind in NAMED_STEPS and thorough:
            yield from ((number, error, onwards) for error in ERRORS
                        for onwards in (False, True))
        elif kind in faults.FILE_SYSTEM_STEPS:
            yield number, ERRORS[number % len(ERRORS)], number % 2 == 0


def sweep(pair, stage: str, words, thorough: bool) -> int:
    """Refuse steps of a command in turn; check each time what is left and that it recovers."""
    first = pair[0]
    first.restore(stage)
    steps = first.well(*words).steps
    undisturbed = first.summary()

    def one(bench, fault):
        number, error, onwards = fault
        about = (stage, number, steps[number - 1], os.strerror(error), onwards)
        bench.restore(stage)
        before = bench.experiment.files()
        done = bench.say(*words, failAt=number, failErrno=error, onwards=onwards)
        check_refusal(bench, before, done, os.strerror(error), about)
        lost = recover(bench, words, about)
        assert onwards or not lost or "fsync" in steps[number - 1], (about, lost)
        if not lost and not retried(bench.experiment):
            assert bench.summary() == undisturbed, about
        assert not faults.private_directories(bench.experiment), about

    found = list(refusals(steps, thorough))
    faults.side_by_side(pair, one, found)
    SURVIVED[f"{stage} {' '.join(words[-1:])}"] = len(found)
    return len(found)


def check_refusal(bench, before: dict[str, str], done: faults.Done, meaning: str, about):
    """Check how a command with a refused step ended, and that what was there is untouched."""
    assert done.status in (0, 3, 4, 6), (about, done)
    assert "Traceback" not in done.stderr, (about, done.stderr)
    assert not faults.unreadable(bench.experiment), about
    after = bench.experiment.files()
    assert before.items() <= after.items(), about
    new = [name for name in after if name not in before]
    if done.status == 3:
        assert not bench.experiment.call_log(), (about, "exit 3, but a call was made")
        assert not [name for name in new if name.endswith(".pending.json")], (
            about, "exit 3, but a receipt was written", new)
    if done.status in (3, 6):
        said = done.stdout + done.stderr
        assert meaning in said or "could-not-start" in said, (about, done)


def recover(bench, words, about) -> list[str]:
    """Say the command again, without faults, until it is done; return the calls lost."""
    for _ in range(3):
        again = bench.say(*words)
        if again.status in (0, 4):
            break
    lost = faults.killed_calls(bench.experiment)
    assert again.status == (4 if lost else 0), (about, again)
    assert not bench.problems(), (about, bench.problems())
    return lost


def retried(experiment: builder.Experiment) -> bool:
    """Return whether a call that could not be started was made at a second attempt."""
    return any(".2.pending" in name for name in experiment.receipts())


def test_a_run_survives_every_error_at_every_step(pair):
    plan = pair[0].experiment.plan_name("baseline", "development")
    assert sweep(pair, "run-baseline", ["run", plan, "--case", "d01"], True) >= 100


def test_a_judge_survives_an_error_at_every_step(pair):
    plan = pair[0].experiment.plan_name("baseline", "development")
    assert sweep(pair, "judge-baseline", ["judge", plan, "--case", "d01"], False) >= 20


def test_a_calibration_survives_an_error_at_every_step(pair):
    assert sweep(pair, "calibrate-run", ["calibrate-run", "calibration-plan.json"], False) >= 60


@pytest.mark.parametrize("stage", OFFLINE)
def test_an_offline_command_survives_every_error_at_every_step(pair, stage):
    assert sweep(pair, stage, pair[0].stages[stage].words, True) >= 25


@pytest.mark.parametrize("lacking", ["link", "locks"])
@pytest.mark.parametrize("stage", ["calibrate-run", "run-heldout", "judge-heldout"])
def test_nothing_is_paid_where_files_have_no_hard_links_or_no_locks(pair, stage, lacking):
    bench = pair[0]
    bench.restore(stage)
    before = bench.experiment.files()
    done = bench.say(missing=[lacking], allowed=(3,))
    assert done.status == 3 and "Traceback" not in done.stderr, done
    assert ("hard links" if lacking == "link" else "lock") in done.stderr, done.stderr
    assert not bench.experiment.call_log()
    assert bench.experiment.files() == before


@pytest.mark.parametrize("stage", OFFLINE)
def test_no_result_is_written_where_files_have_no_hard_links(pair, stage):
    bench = pair[0]
    bench.restore(stage)
    before = bench.experiment.files()
    done = bench.say(missing=["link"])
    assert done.status == 3 and "hard links" in done.stderr, done
    assert bench.experiment.files() == before


# ---- torn files --------------------------------------------------------------------------


def written_files(experiment: builder.Experiment) -> list[str]:
    """Return every file that the program wrote and that holds bytes, by name."""
    return [name for name in experiment.files()
            if (name.startswith("results/") or re.fullmatch(
                r"(calibration|comparison|decision-receipt)\.json", name))
            and experiment.path(name).stat().st_size]


def torn_forms(raw: bytes):
    """Yield the bytes that a torn write may leave in place of `raw`."""
    yield from (b"", raw[:1], raw[:len(raw) // 2], raw[:-1], b"\0" * len(raw))


def reader_of(name: str, experiment: builder.Experiment) -> list[str]:
    """Return the words of the command that goes on from the file `name`."""
    if name == "calibration.json":
        return ["calibrate-finalize", "calibration-plan.json", "calibration-approval.json"]
    if name == "comparison.json":
        return ["compare", *experiment.plan_names()]
    if name == "decision-receipt.json":
        return ["decide", "comparison.json", "decision.json"]
    if name.startswith("results/calibration/"):
        return ["calibrate-run", "calibration-plan.json"]
    plan = name.split("/")[1] + "-plan.json"
    if name.endswith("score.json"):
        return ["score", plan]
    return ["judge" if ".judge." in name else "run", plan]


def test_a_torn_file_under_any_name_is_refused_by_name_and_never_called_again(pair):
    for bench in pair:
        bench.restore("decide")
        bench.well()
        if not (bench.snapshots / "decided").exists():
            bench.keep("decided")
    kept = pair[0].experiment
    names = written_files(kept)
    kinds = {re.sub(r".*\.(run|judge|calibrate)\.1\.", r"\1 ", name.split("/")[-1])
             for name in names}
    assert kinds == {*(f"{purpose} {part}" for purpose in ("run", "judge", "calibrate")
                       for part in ("pending.json", "terminal.json", "stdout")),
                     "score.json", "calibration.json", "comparison.json",
                     "decision-receipt.json"}
    one_of_each = [next(name for name in names if name.endswith(kind.replace(" ", ".1.")))
                   for kind in sorted(kinds)]

    def tear(bench, task):
        name, form = task
        bench.restore("decided")
        path = bench.experiment.path(name)
        whole = path.read_bytes()
        torn = list(torn_forms(whole))[form]
        path.write_bytes(torn)
        for words in (["verify", "decision-receipt.json"], reader_of(name, bench.experiment)):
            done = bench.say(*words)
            assert done.status == 3, (name, form, words, done)
            assert name in done.stderr, (name, form, words, done.stderr)
            assert path.read_bytes() == torn, (name, form, words)
        assert not bench.experiment.call_log(), (name, form)
        path.write_bytes(whole)
        bench.well("verify", "decision-receipt.json")

    tasks = [(name, form) for name in one_of_each for form in range(5)]
    faults.side_by_side(pair, tear, tasks)
    SURVIVED["torn files"] = len(tasks)
    assert len(tasks) >= 60


@pytest.mark.parametrize("form", range(6))
def test_a_torn_lock_file_is_no_obstacle(pair, form):
    bench = pair[0]
    bench.restore("run-heldout")
    path = bench.experiment.path(".lock")
    whole = path.read_bytes()
    path.write_bytes([*torn_forms(whole), whole[:10]][form])
    assert bench.well().status == 0
    assert not bench.problems()
    assert bench.summary() == bench.after["run-heldout"]


@pytest.mark.parametrize("name", ["pending.json", "terminal.json"])
def test_a_draft_that_a_crash_left_behind_is_no_receipt(pair, name):
    bench = pair[0]
    bench.restore("run-baseline")
    folder = bench.experiment.path("results/baseline-development")
    folder.mkdir(parents=True)
    (folder / f".d01.run.1.{name}.0123456789abcdef.tmp").write_bytes(b'{"kind":')
    assert bench.well().status == 0
    assert not bench.problems()
    assert bench.summary() == bench.after["run-baseline"]


def interrupted(bench: faults.Bench) -> pathlib.Path:
    """Leave one call open, its answer complete in stdout; return the path of its stdout."""
    bench.restore("run-baseline")
    words = [*bench.stages["run-baseline"].words, "--case", "d01"]
    steps = bench.well(*words).steps
    bench.restore("run-baseline")
    bench.say(*words, killAt=1 + next(
        number for number, step in enumerate(steps, 1) if step.startswith("spawn")))
    faults.when(bench.experiment.call_log)
    faults.when(lambda: not faults.left_running(bench.experiment))
    return bench.experiment.path("results/baseline-development/d01.run.1.stdout")


def test_an_interrupted_call_counts_only_with_a_complete_answer(pair):
    bench = pair[0]
    path = interrupted(bench)
    whole = path.read_bytes()
    bench.keep("interrupted")
    cuts = [0, 1, *range(100, len(whole) - 1, len(whole) // 12), len(whole) - 2,
            len(whole) - 1, len(whole)]
    words = [*bench.stages["run-baseline"].words, "--case", "d01"]
    for cut in cuts:
        bench.restore("interrupted")
        path.write_bytes(whole[:cut])
        complete = cut >= len(whole) - 1            # the last byte is a line feed
        done = bench.say(*words)
        assert done.status == (0 if complete else 4), (cut, done)
        terminal = bench.experiment.receipts("d01.run.1.terminal")
        (document,) = terminal.values()
        assert document["status"] == ("ok" if complete else "error"), (cut, document)
        assert complete or document["reason"] == "killed", (cut, document)
        assert complete or document["costUsd"] == "unknown", (cut, document)
        assert not bench.experiment.call_log(), cut
        assert path.read_bytes() == whole[:cut], cut
    SURVIVED["cut answers"] = len(cuts)


@pytest.mark.parametrize("part", ["stdout", "stderr"])
def test_an_open_call_whose_stream_vanished_is_closed_without_a_traceback(pair, part):
    bench = pair[0]
    path = interrupted(bench)
    path.with_name(f"d01.run.1.{part}").unlink(missing_ok=True)
    done = bench.say()
    assert "Traceback" not in done.stderr and done.status in (0, 3, 4), done
    assert sum("Task d01" in row["stdin"] for row in bench.experiment.call_log()) == 1


@pytest.mark.parametrize("torn", [b"", b'{"kind":"pending","purp'])
def test_a_torn_pending_of_an_open_call_is_refused_and_not_taken_for_absent(pair, torn):
    bench = pair[0]
    path = interrupted(bench).with_name("d01.run.1.pending.json")
    whole = path.read_bytes()
    path.write_bytes(torn)
    done = bench.say()
    assert done.status == 3 and "d01.run.1.pending.json" in done.stderr, done
    assert len(bench.experiment.call_log()) == 1
    path.write_bytes(whole)
    bench.well()
    assert not bench.problems()


# ---- real disks --------------------------------------------------------------------------


def may_mount() -> bool:
    """Return whether this machine lets us mount a tmpfs of our own."""
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
                          capture_output=True, check=False).returncode == 0


def test_a_full_small_disk_loses_no_answer_that_fitted_on_it(tmp_path):
    if not may_mount():
        pytest.skip("this machine does not let a user mount a tmpfs")
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, *builder.program_flags(), __file__, str(tmp_path)],
        capture_output=True, encoding="utf-8", check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    SURVIVED["full disks"] = int(done.stdout.split()[-1])
    assert SURVIVED["full disks"] >= 12


def small_disk(root: pathlib.Path) -> int:
    """Fill a tmpfs of our own up to a few pages, run, make space, run again; how often.

    Only the experiment lies on it, not the stand-in's log.
    """
    disk = root / "world" / "experiment"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    page = os.sysconf("SC_PAGE_SIZE")
    with faults.Bench(root) as bench:
        bench.walk(until="run-baseline")
        ballast = disk / "ballast"
        fates = set()
        for pages in range(14):
            bench.restore("run-baseline")
            fill(ballast, pages * page)
            done = bench.say()
            ballast.unlink()
            received = len(bench.experiment.call_log())
            fates.add((done.status, received))
            assert "Traceback" not in done.stderr, (pages, done.stderr)
            assert done.status in (0, 3, 4, 6), (pages, done)
            assert done.status != 3 or not received, (pages, done)
            again = bench.say()
            again = bench.say() if again.status == 6 else again
            assert again.status in (0, 4), (pages, again)
            assert not faults.problems(bench.experiment, torn=True), (
                pages, faults.problems(bench.experiment, torn=True))
        assert {status for status, _ in fates} >= {0, 3} and len(fates) >= 4, fates
    return 14


def fill(ballast: pathlib.Path, left: int) -> None:
    """Fill the disk but for `left` bytes."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
        file.truncate(file.tell() - left)


@pytest.mark.parametrize("full", ["stdout", "stderr"])
@pytest.mark.parametrize("stage", ["run-baseline", "judge-baseline", "score-baseline"])
def test_a_full_disk_under_the_log_of_a_command_loses_no_call(pair, stage, full):
    if not os.path.exists("/dev/full"):
        pytest.skip("this machine has no /dev/full")
    bench = pair[0]
    bench.restore(stage)
    with open("/dev/full", "wb") as sink:
        process = bench.experiment.start(*bench.stages[stage].words, **{
            "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, full: sink})
        status = process.wait(60)
    assert status != 1 and status >= 0
    assert bench.well(allowed=(0,)).status == 0
    assert not bench.problems()
    assert bench.summary() == bench.after[stage]


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_reader_that_goes_away_loses_no_call(pair, closed):
    bench = pair[0]
    bench.restore("run-heldout")
    reading, writing = os.pipe()
    os.close(reading)
    process = bench.experiment.start(*bench.stages["run-heldout"].words, "--jobs", "2", **{
        "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, closed: writing})
    os.close(writing)
    assert process.wait(60) not in (1, 3, 5)
    assert bench.well().status == 0
    assert not bench.problems()


def test_the_storage_faults_survived_are_many(request):
    total = sum(SURVIVED.values())
    print()
    print(f"RELIABILITY storage-faults-survived {total}")
    if faults.all_asked_for(request):
        assert total >= 450


if __name__ == "__main__":
    print(small_disk(pathlib.Path(sys.argv[1])))
