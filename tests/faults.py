"""Run a command of the program in a child whose file operations are counted, refused or fatal.

The program has no hooks for this. A server process imports it once; for each request it forks
a child, which wraps the functions of `os` that leave something behind, then calls the program's
`main`. Each operation that another process could notice later is one step:

    open (to create or to write)  write  fsync  truncate  link  rename  unlink  mkdir  rmdir
    spawn (of the CLI)  wait (for its end)

An open for reading, a lock and a message on the terminal leave nothing, so that to die there is
to die at the step before. A child can be told to kill itself in place of step N, to be refused
step N (or every step from N on) with an error of the file system, to live by a clock that
jumps, or to find no hard links or locks.

    with Bench(directory) as bench:         an experiment, its server, its snapshots
        bench.walk()                        every stage once; a snapshot before each command
        bench.restore("run-heldout")        the experiment as it was before that command
        done = bench.say(killAt=7)          the command, killed in place of its seventh step
        bench.say()                         the same command to its end
        assert not bench.problems()         no call twice, no answer lost, every file parses
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import builder

CHILD_SECONDS = 120         # a child that takes longer is ended: it hangs
PRIVATE_ROOT = pathlib.Path("/tmp")      # where the program puts private directories (BRIEF)

FILE_SYSTEM_STEPS = frozenset({"open", "write", "fsync", "truncate", "link", "mkdir"})
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


# ---- in the child ------------------------------------------------------------------------


class Steps:
    """Counts the steps of this process; kills it or refuses one when its turn comes."""

    def __init__(self, request: dict[str, Any]):
        self.kill_at = request.get("killAt")
        self.fail_at = request.get("failAt")
        self.fail_errno = request.get("failErrno", errno.EIO)
        self.onwards = request.get("onwards", False)
        self.missing = frozenset(request.get("missing", ()))
        self.names: list[str] = []
        self.files: dict[int, str] = {}
        self.lock = threading.Lock()

    def step(self, kind: str, name: str) -> OSError | None:
        """Count one step; return the error to raise in its place, or None to carry it out."""
        with self.lock:
            self.names.append(f"{kind} {plain_name(name)}")
            number = len(self.names)
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()        # until the signal arrives
        refused = self.fail_at is not None and kind in FILE_SYSTEM_STEPS and (
            number == self.fail_at or self.onwards and number > self.fail_at)
        if refused:
            return OSError(self.fail_errno, os.strerror(self.fail_errno))
        if kind in self.missing:
            return OSError(errno.EPERM, os.strerror(errno.EPERM))
        return None

    def name_of(self, file: Any) -> str:
        """Return the name of a path or of an open descriptor."""
        if isinstance(file, int):
            return self.files.get(file, "a descriptor")
        return os.path.basename(os.fsdecode(file).rstrip("/")) or "/"


def plain_name(name: str) -> str:
    """Return `name` without what chance put into it."""
    name = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "CALL", name)
    return re.sub(r"\.[0-9a-f]{16}\.tmp$", ".tmp", name)


class CountedFile:
    """A file object opened for writing whose writes are steps."""

    def __init__(self, steps: Steps, file: Any, name: str):
        self._steps, self._file, self._name = steps, file, name

    def write(self, data):
        """Write as the file does, unless this step is refused."""
        if refusal := self._steps.step("write", self._name):
            raise refusal
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *details):
        return self._file.__exit__(*details)


def wrap_operations(steps: Steps) -> None:
    """Replace the functions of `os`, `open` and `subprocess` by ones that count."""
    real_open, real_file, real_write = os.open, builtins.open, os.write

    def counted_open(path, flags, mode=0o777, *, dir_fd=None):
        name = steps.name_of(path)
        if flags & WRITE_FLAGS and (refusal := steps.step("open", name)):
            raise refusal
        descriptor = real_open(path, flags, mode, dir_fd=dir_fd)
        steps.files[descriptor] = name
        return descriptor

    def counted_write(descriptor, data):
        name = steps.name_of(descriptor)
        if refusal := steps.step("write", name):
            real_write(descriptor, bytes(data)[:len(data) // 2])     # torn, as on a full disk
            raise refusal
        return real_write(descriptor, data)

    def counted_file(file, mode="r", *rest, **settings):
        writes = any(letter in mode for letter in "wax+")
        name = "a descriptor" if isinstance(file, int) else steps.name_of(file)
        if writes and not isinstance(file, int) and (refusal := steps.step("open", name)):
            raise refusal
        opened = real_file(file, mode, *rest, **settings)
        return CountedFile(steps, opened, name) if writes else opened

    def counted(kind: str, real):
        def operation(*arguments, **settings):
            if refusal := steps.step(kind, steps.name_of(arguments[0])):
                raise refusal
            return real(*arguments, **settings)
        return operation

    os.open, os.write, builtins.open, io.open = (counted_open, counted_write, counted_file,
                                                 counted_file)
    for kind, names in (("write", ("pwrite", "writev", "pwritev", "sendfile")),
                        ("fsync", ("fsync", "fdatasync")),
                        ("truncate", ("ftruncate", "truncate")),
                        ("link", ("link",)), ("rename", ("rename", "replace")),
                        ("unlink", ("unlink", "remove")), ("mkdir", ("mkdir",)),
                        ("rmdir", ("rmdir",))):
        for name in names:
            if hasattr(os, name):
                setattr(os, name, counted(kind, getattr(os, name)))
    wrap_processes(steps)


def wrap_processes(steps: Steps) -> None:
    """Count the start of the CLI and the wait for its end."""
    real_execute, real_waitid = subprocess.Popen._execute_child, getattr(os, "waitid", None)
    real_wait = subprocess.Popen.wait

    def execute(self, *arguments, **settings):
        steps.step("spawn", "the CLI")
        return real_execute(self, *arguments, **settings)

    def wait(self, *arguments, **settings):
        steps.step("wait", "the CLI")
        return real_wait(self, *arguments, **settings)

    def waitid(*arguments):
        steps.step("wait", "the CLI")
        return real_waitid(*arguments)

    subprocess.Popen._execute_child, subprocess.Popen.wait = execute, wait
    if real_waitid:
        os.waitid = waitid


def move_clock(program: Any, seconds: list[float]) -> None:
    """Let the program's clock show another time: shift N from its Nth look on.

    The last shift stays. Only the wall clock moves; elapsed time goes on as it does.
    """
    from datetime import datetime, timedelta
    looks = iter(seconds)
    shift = [0.0]

    class Moved(datetime):
        """The class `datetime` by the other clock."""

        @classmethod
        def now(cls, tz=None):
            shift[0] = next(looks, shift[0])
            return datetime.now(tz) + timedelta(seconds=shift[0])

    program.datetime = Moved


def without_locks() -> None:
    """Let every file lock fail as on a file system that has none."""
    import fcntl

    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = flock


def be_child(program: Any, request: dict[str, Any]) -> int:
    """Carry out one request in this process; return the exit status of the command."""
    signal.alarm(request.get("alarm", CHILD_SECONDS))
    for descriptor, name, flags in ((0, os.devnull, os.O_RDONLY),
                                    (1, request["stdout"], os.O_WRONLY | os.O_CREAT),
                                    (2, request["stderr"], os.O_WRONLY | os.O_CREAT)):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [program.__file__, *request["words"]]
    if request.get("clock"):
        move_clock(program, request["clock"])
    if "locks" in request.get("missing", ()):
        without_locks()
    steps = Steps(request)
    report = os.open(request["report"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    really_write = os.write
    wrap_operations(steps)
    try:
        status = program.main(request["words"])
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        import traceback
        traceback.print_exc()
        status = 1
    really_write(report, json.dumps(steps.names).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def serve(file: str) -> None:
    """Answer one request a line until standard input ends. Each runs in a child of its own.

    `file` is the program; it is imported once.
    """
    import concurrent.futures.thread
    import tempfile
    import uuid
    assert tempfile and uuid and concurrent.futures.thread      # imported once, for all
    specification = importlib.util.spec_from_file_location("eval_loop", file)
    program = importlib.util.module_from_spec(specification)
    sys.modules["eval_loop"] = program
    specification.loader.exec_module(program)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = be_child(program, json.loads(line))
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


# ---- in the test -------------------------------------------------------------------------


class Done(NamedTuple):
    """How a command ended: its exit status (negative: by a signal), its texts, its steps."""

    status: int
    stdout: str
    stderr: str
    steps: list[str]


class Server:
    """The server process as the tests use it."""

    def __init__(self, directory: pathlib.Path, program: pathlib.Path):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, *builder.program_flags(), __file__, program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii",
            env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"})

    def run(self, experiment: builder.Experiment, words, env=None, **request) -> Done:
        """Run one command of the program in a child; `request` as `Steps` reads it."""
        paths = {name: self.directory / name for name in ("stdout", "stderr", "report")}
        for path in paths.values():
            path.unlink(missing_ok=True)
        line = {"directory": str(experiment.directory), "words": list(map(str, words)),
                "environment": experiment.child_environment(env),
                **{name: str(path) for name, path in paths.items()}, **request}
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the server of children ended"
        report = paths["report"].read_bytes() if paths["report"].exists() else b""
        texts = [paths[name].read_text("utf-8", "backslashreplace") if paths[name].exists()
                 else "" for name in ("stdout", "stderr")]
        return Done(int(answer), *texts, json.loads(report or b"[]"))

    def close(self) -> None:
        """End the server."""
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Stage(NamedTuple):
    """One command of a walk: its name, what the owner writes before it, its words."""

    name: str
    prepare: list[Callable[[], Any]]
    words: list[str]


def stages(one: builder.Experiment) -> Iterator[Stage]:
    """Yield every command of an experiment in its order."""
    yield Stage("calibrate-run", [], ["calibrate-run", "calibration-plan.json"])
    yield Stage("calibrate-finalize", [one.write_approval],
                ["calibrate-finalize", "calibration-plan.json", "calibration-approval.json"])
    for variant, writes in zip(builder.VARIANTS, (one.write_policy, one.write_diagnosis)):
        plan = one.plan_name(variant, "development")
        yield Stage(f"run-{variant}", [
            writes, lambda each=variant: one.write_plan(each, "development")], ["run", plan])
        yield Stage(f"judge-{variant}", [], ["judge", plan])
        yield Stage(f"score-{variant}", [], ["score", plan])
    plans = one.plan_names("heldout")
    yield Stage("run-heldout", [one.write_unlock, *(
        lambda each=variant: one.write_plan(each, "heldout")
        for variant in builder.VARIANTS)], ["run", *plans])
    yield Stage("judge-heldout", [], ["judge", *plans])
    for variant, plan in zip(builder.VARIANTS, plans):
        yield Stage(f"score-heldout-{variant}", [], ["score", plan])
    yield Stage("compare", [], ["compare", *one.plan_names()])
    yield Stage("decide", [one.write_decision], ["decide", "comparison.json", "decision.json"])


class Bench:
    """One small experiment with its server of children, and a snapshot before each stage.

    A bench has a stand-in log of its own, so that after each command one can tell which calls
    were received, and a copy of the program, so that its processes and children are of one
    version. Benches share nothing and may work beside each other.
    """

    def __init__(self, root: pathlib.Path, **options):
        self.experiment = builder.Experiment(root / "world", **options)
        self.experiment.program = pathlib.Path(shutil.copy(builder.PROGRAM, root / "world"))
        self.snapshots = root / "snapshots"
        self.server = Server(root / "server", self.experiment.program)
        self.stages = {stage.name: stage for stage in stages(self.experiment)}
        self.after: dict[str, dict[str, Any]] = {}
        self.stage = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()

    def walk(self, until: str = "decide") -> Bench:
        """Carry out every stage; keep a snapshot before it and a summary after it."""
        for stage in self.stages.values():
            for prepare in stage.prepare:
                prepare()
            self.keep(stage.name)
            self.well()
            self.after[stage.name] = self.summary()
            if stage.name == until:
                break
        return self

    def go_on(self, until: str = "compare", allowed=(0, 4)) -> None:
        """Say the command of the present stage again and carry out what follows it."""
        names = list(self.stages)
        for name in names[names.index(self.stage):names.index(until) + 1]:
            for prepare in self.stages[name].prepare if name != self.stage else ():
                prepare()
            self.well(*self.stages[name].words, allowed=allowed)

    def keep(self, name: str) -> None:
        """Keep the experiment as it is, under a name that need not be a stage."""
        self.stage = name
        shutil.copytree(self.experiment.directory, self.snapshots / name, symlinks=True)

    def restore(self, name: str) -> None:
        """Put the experiment back as it was kept; empty the stand-in's log."""
        self.stage = name
        make_equal(self.snapshots / name, self.experiment.directory)
        self.experiment.log_path.unlink(missing_ok=True)
        pathlib.Path(f"{self.experiment.script_path}.counts").unlink(missing_ok=True)

    def say(self, *words: str, **request) -> Done:
        """Say a command (the one of the present stage) in a child; return how it ended."""
        return self.server.run(self.experiment, words or self.stages[self.stage].words,
                               **request)

    def well(self, *words: str, allowed=(0,), **request) -> Done:
        """Say a command that must end with one of the exit statuses `allowed`."""
        done = self.say(*words, **request)
        assert done.status in allowed, (words or self.stage, done)
        return done

    def problems(self) -> list[str]:
        """Return what is wrong after a command was repeated to its end (see `problems`)."""
        return problems(self.experiment)

    def summary(self) -> dict[str, Any]:
        """Return all that the program wrote, without times and identifiers."""
        return summary(self.experiment)


@contextlib.contextmanager
def benches(root: pathlib.Path, until: str = "decide", number: int = 2, **options):
    """Yield some benches that were walked beside each other."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(Bench(root / f"bench-{count}", **options))
                for count in range(number)]
        with ThreadPoolExecutor(number) as pool:
            list(pool.map(lambda bench: bench.walk(until), made))
        yield made


def make_equal(wanted: pathlib.Path, directory: pathlib.Path) -> None:
    """Make `directory` what `wanted` is; files of equal size and time are left alone.

    Nothing is written through: a changed file is replaced, never rewritten, so that a process
    which still holds the old one cannot disturb the new one.
    """
    there = {entry.name: entry for entry in os.scandir(directory)}
    for entry in os.scandir(wanted):
        target, old = directory / entry.name, there.pop(entry.name, None)
        if entry.is_dir():
            target.mkdir(exist_ok=True)
            make_equal(pathlib.Path(entry.path), target)
            continue
        if old is not None and same_file(entry.stat(), old.stat()):
            continue
        if old is not None:
            target.unlink()
        shutil.copy2(entry.path, target)
    for old in there.values():
        if old.is_dir():
            shutil.rmtree(old.path)
        else:
            os.unlink(old.path)


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Return whether two files have the same size and were written at the same time."""
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def problems(experiment: builder.Experiment, torn: bool = False) -> list[str]:
    """Return a sentence for each call made twice or left open, answer lost, and torn file.

    The stand-in's log says which calls were received. It always completes its answer, so each
    call of the log must have a terminal receipt that holds an answer; with `torn`, each whose
    answer found room on the disk.
    """
    found = [*unreadable(experiment)]
    receipts = experiment.receipts()
    pendings = {document["callId"]: name for name, document in receipts.items()
                if document.get("kind") == "pending"}
    received: dict[str, int] = {}
    for row in experiment.call_log():
        name = pendings.get(row["callId"])
        if name is None:
            found.append(f"a call without pending receipt: {row['callId']}")
            continue
        stem = name.removesuffix(".pending.json").rpartition(".")[0]
        received[stem] = received.get(stem, 0) + 1
        terminal = receipts.get(name.replace(".pending.", ".terminal."))
        if torn and not whole(experiment.path(name.replace(".pending.json", ".stdout"))):
            continue
        if terminal is None or terminal["status"] != "ok":
            found.append(f"{name}: its answer is lost: {terminal and terminal['reason']}")
    found += [f"{stem}: received {times} times" for stem, times in received.items()
              if times > 1]
    found += [f"{name}: never closed" for call, name in pendings.items()
              if name.replace(".pending.", ".terminal.") not in receipts]
    return found


def whole(path: pathlib.Path) -> bool:
    """Return whether a file holds one complete JSON document."""
    try:
        return bool(json.loads(path.read_bytes()))
    except ValueError:
        return False


def private_directories(experiment: builder.Experiment) -> list[str]:
    """Return the receipts whose private directory is still there, and remove it."""
    left = []
    for name, document in experiment.receipts("pending").items():
        if (PRIVATE_ROOT / document["callId"]).exists():
            shutil.rmtree(PRIVATE_ROOT / document["callId"])
            left.append(name)
    return left


def unreadable(experiment: builder.Experiment) -> list[str]:
    """Return a sentence for each document of the program that is not whole.

    A draft that never got its name (`.NAME.….tmp`) is no document.
    """
    found = []
    for path in experiment.directory.rglob("*.json"):
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            found.append(f"{path.name}: {error}")
    return found


UNREPEATABLE = [(re.compile(rb'"[0-9a-f]{64}"'), b'"HASH"'),
                (re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), b"CALL"),
                (re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d[0-9:.]*(Z|[+-]\d\d:\d\d)"), b"TIME"),
                (re.compile(rb"(msg|req|toolu)_synthetic_[0-9a-f]+"), b"ID"),
                (re.compile(rb'"(elapsedMilliseconds|milliseconds|largestGapSeconds)":'
                            rb"(\d+|null)"), b'"\\1":0')]


def masked(raw: bytes) -> Any:
    """Return the document `raw` with hashes, identifiers and times masked."""
    for pattern, word in UNREPEATABLE:
        raw = pattern.sub(word, raw)
    return json.loads(raw)


def summary(experiment: builder.Experiment) -> dict[str, Any]:
    """Return path -> masked document of all that the program wrote.

    How a call was seen to end (exit status, `ended`) is left out: a call whose program was
    killed is closed by another one, which did not see it.
    """
    documents = {}
    for path in sorted(experiment.directory.rglob("*.json")):
        raw = path.read_bytes()
        if raw.startswith(b'{"kind":'):
            document = masked(raw)
            if document["kind"] == "terminal":
                document.pop("exitStatus"), document.pop("ended")
            documents[str(path.relative_to(experiment.directory))] = document
    return documents


def killed_calls(experiment: builder.Experiment) -> list[str]:
    """Return the stems of the calls that were never received and were closed as killed."""
    return sorted(name.removesuffix(".terminal.json")
                  for name, document in experiment.receipts().items()
                  if document.get("reason") == "killed")


def side_by_side(benches: list[Bench], work, items) -> list:
    """Return [work(bench, item), ...] in the order of `items`, one thread a bench.

    A bench does one item at a time. The first failure ends the rest.
    """
    idle = list(benches)

    def one(item):
        bench = idle.pop()
        try:
            return work(bench, item)
        finally:
            idle.append(bench)

    with ThreadPoolExecutor(len(benches)) as pool:
        futures = [pool.submit(one, item) for item in items]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def all_asked_for(request) -> bool:
    """Return whether every test function of this test's file was selected."""
    selected = {item.originalname for item in request.session.items
                if item.module is request.module}
    return selected == {name for name in vars(request.module) if name.startswith("test_")}


# ---- processes ---------------------------------------------------------------------------


def members(group: int) -> list[int]:
    """Return the living processes of a process group; the dead but unburied do not count."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True,
                            encoding="utf-8", check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, of_group, state in rows
            if int(of_group) == group and not state.startswith("Z")]


def pause_calls(experiment: builder.Experiment, number: int) -> list[int]:
    """Stop each of the next `number` calls as it is received; return their processes.

    Their rule must let them sleep a little after they are received, or hang.
    """
    paused: list[int] = []

    def all_stopped() -> bool:
        for row in experiment.call_log():
            if row["pid"] not in paused:
                os.kill(row["pid"], signal.SIGSTOP)
                paused.append(row["pid"])
        return len(paused) >= number

    when(all_stopped)
    return paused


def resume_calls(paused: list[int]) -> None:
    """Let paused calls go on."""
    for pid in paused:
        os.kill(pid, signal.SIGCONT)


def end_left_running(experiment: builder.Experiment) -> None:
    """End the living processes of every call that the stand-in's log names."""
    for pid in left_running(experiment):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    when(lambda: not left_running(experiment))


def left_running(experiment: builder.Experiment) -> list[int]:
    """Return the living processes of every call that the stand-in's log names."""
    return [pid for row in experiment.call_log() for pid in members(row["pid"])]


@contextlib.contextmanager
def started(experiment: builder.Experiment, *words: str, **options):
    """Yield a command that was started; it is ended, but not its calls, with the block."""
    process = experiment.start(*words, **{"stdout": subprocess.DEVNULL,
                                          "stderr": subprocess.DEVNULL, **options})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def when(condition, seconds: float = 60):
    """Return the first true value of `condition()`; an AssertionError if it never comes."""
    import time
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "what the test waits for did not happen"
        time.sleep(0.01)
    return value


if __name__ == "__main__":
    serve(sys.argv[1])
