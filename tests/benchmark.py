#!/usr/bin/env python3
"""What eval_loop.py costs, as ratios, each measured in one run beside its floor.

    python3 tests/benchmark.py [PART ...] [--large] [--rounds N] [--directory DIRECTORY]

    calls    run and judge with a stand-in of about a millisecond, per call, beside a bare loop
             that starts the same process and makes the same durable writes
    scale    score, compare, verify and check over forged experiments of 10, 100 and 1,000 cases
             a plan (once 5,000 with --large), five judge tests each and 60 samples, beside
             reading, hashing and parsing each of the same files once; opens of each file
    start    cold start of every offline command beside `python -c pass`
    jobs     --jobs 1 to 16 with a stand-in that sleeps half a second

Without a PART all are measured. Every figure is the median of the rounds (at least five), floor
and program in turn, so that a busy machine troubles both alike. Processor time (user and
system) is given beside wall time, because it bears a busy machine better. A target that is
missed is marked. Nothing here calls a model: the experiments are forged in process with the
program's own functions, from outputs in the real CLI's format. Standard library only.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

TESTS = pathlib.Path(__file__).resolve().parent
COPY = "EVAL_LOOP_BENCHMARKED"      # names the copy that all processes of one benchmark measure
PROGRAM = pathlib.Path(os.environ.get(COPY, TESTS.parent / "eval_loop.py"))
sys.path[:0] = [str(TESTS), str(PROGRAM.parent)]

import builder  # noqa: E402
import eval_loop  # noqa: E402

CAPTURES = TESTS / "data" / "captures" / "2.1.332"
CAPTURED_MODEL, CAPTURED_SKILL = "claude-sonnet-4-5-20250929", "brief"
JUDGE_MODEL = "claude-haiku-4-5-20251001"
VERSION = "2.1.332 (Claude Code)"
SIZES, LARGE_SIZE, CRITERIA, SAMPLES_PER_LABEL = (10, 100, 1000), 5000, 5, 4
BIG_TAIL = 200_000_000      # bytes of nothing after the stand-in: is it hashed in a stream?
OUTPUT = "Shop {0} took 1234 euros. Checked against the till of shop {0}."

MISSED: list[str] = []


# ---- tables ----------------------------------------------------------------------------------


def heading(title: str, *columns: str) -> None:
    """Print the head of one table."""
    print(f"\n{title}\n{'':38}" + "".join(f"{column:>13}" for column in columns), flush=True)


def row(name: str, *values: str, missed: bool = False) -> None:
    """Print one row, marked when its target is missed."""
    print(f"{name:38}" + "".join(f"{value:>13}" for value in values)
          + ("  MISSED" if missed else ""), flush=True)
    if missed:
        MISSED.append(f"{name.strip()}: {' '.join(values)}")


def middle(values: list[float]) -> float:
    """The median."""
    return statistics.median(values)


def seconds(value: float) -> str:
    """A time for people."""
    return f"{value * 1000:.2f} ms" if value < 1 else f"{value:.2f} s"


def times(value: float) -> str:
    """A ratio for people."""
    return f"{value:.2f} x"


# ---- processes -------------------------------------------------------------------------------


def measured(words: list[str], directory: pathlib.Path) -> tuple[float, float, int]:
    """Run one process to its end: (wall seconds, processor seconds, exit status)."""
    began = time.perf_counter()
    process = subprocess.Popen(words, cwd=directory, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    return wall, used.ru_utime + used.ru_stime, process.returncode


def worker(name: str, *words: str, directory: pathlib.Path) -> dict:
    """Run a worker of this file in a process of its own; what it reports."""
    done = subprocess.run([sys.executable, str(pathlib.Path(__file__).resolve()), "--worker",
                           name, *map(str, words)], cwd=directory, stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(f"worker {name} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def quiet(words: list[str]) -> int:
    """Say one command in this process, its output thrown away; the exit status."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return eval_loop.main(words)


# Says one command in a process of its own and then how many bytes that had in memory at most. It
# is small itself: what the system tells of a process counts the one that started it, too.
ALONE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (
    1 if sys.platform == "darwin" else 1024))
"""


def peak_memory(words: list[str], directory: pathlib.Path) -> int:
    """Bytes that a process which says one command as an owner does had in memory at most."""
    done = subprocess.run([sys.executable, "-S", "-c", ALONE, sys.executable, str(PROGRAM),
                           *words], cwd=directory, capture_output=True, encoding="utf-8",
                          check=True)
    status, peak = map(int, done.stdout.split())
    if status not in (0, 4):
        raise SystemExit(f"{words[0]}: exit status {status}:\n{done.stderr[-4000:]}")
    return peak


def opens_worker(*words: str) -> dict:
    """Say one command with an audit hook: how often each file below this directory was opened,
    and each other regular file that it was told of by `--watch=PATH`."""
    watched = [word.removeprefix("--watch=") for word in words if word.startswith("--watch=")]
    words = [word for word in words if not word.startswith("--watch=")]
    root, counts = os.path.realpath("."), collections.Counter()

    def hook(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.path.normpath(os.path.join(root, os.fsdecode(arguments[0])))
            if path.startswith(f"{root}/") or path in watched:
                counts[path] += 1

    sys.addaudithook(hook)
    status = quiet(list(words))
    found = {path: count for path, count in counts.items()
             if os.path.isfile(path) and not path.endswith("/.lock")}
    repeated = {path: count for path, count in found.items() if count > 1}
    return {"status": status, "files": sorted(found), "opens": sum(found.values()),
            "repeated": len(repeated), "worst": sorted(
                repeated.items(), key=lambda item: -item[1])[:5]}


def profile_worker(*words: str) -> dict:
    """Say one command under cProfile; the functions that took longest, as text."""
    import cProfile
    import pstats
    profile = cProfile.Profile()
    profile.enable()
    quiet(list(words))
    profile.disable()
    told = io.StringIO()
    pstats.Stats(profile, stream=told).sort_stats("tottime").print_stats(28)
    return {"profile": told.getvalue()}


# Reads, hashes and parses each listed file exactly once, in a process that does nothing else.
FLOOR = """
import hashlib, json, sys
with open(sys.argv[1], encoding="utf-8") as listing:
    paths = listing.read().splitlines()
for path in paths:
    with open(path, "rb", buffering=0) as stream:
        raw = stream.read()
    hashlib.sha256(raw).hexdigest()
    if path.endswith((".json", ".stdout")):
        json.loads(raw)
    else:
        raw.decode("utf-8")
"""


# ---- forged experiments ----------------------------------------------------------------------


class Forged(builder.Experiment):
    """An experiment whose calls were never made: receipts forged with the program's functions.

    Environment and outputs are those of the real CLI, but for its bytes: `cli` is a stand-in.
    """

    def __init__(self, root, cli: pathlib.Path, **options):
        environment = {"cliVersion": VERSION, "modelId": CAPTURED_MODEL,
                       "judgeModelId": JUDGE_MODEL, "budgetUsd": "1", "judgeBudgetUsd": "0.2",
                       "setEnvironment": {}, **options.pop("environment", {})}
        super().__init__(root, cli=cli, environment=environment, **options)
        self.outputs = Outputs()

    def command(self, *words, **_):
        """Say one command of the program, in this process."""
        before = os.getcwd()
        os.chdir(self.directory)
        try:
            status = quiet(list(map(str, words)))
        finally:
            os.chdir(before)
        assert status in (0, 4), f"{' '.join(map(str, words))}: exit {status}"
        return status

    def opened(self, name: str, kind: str):
        """The program's view of one document, from the bytes that are present."""
        experiment = eval_loop.Experiment(str(self.directory), eval_loop.utc_now())
        return experiment, eval_loop.named(experiment, name, kind)

    def calibrate(self, expect=0):
        """Forge every sample's receipts, approve them, write calibration.json."""
        if not self.judged:
            return None
        experiment, plan = self.opened("calibration-plan.json", "calibration-plan")
        calls, _ = eval_loop.sample_calls(experiment, plan)
        for call in calls:
            self.forge(call, self.outputs.judged(call.subject["label"], builder.QUOTE))
        self.write_approval()
        return self.command("calibrate-finalize", "calibration-plan.json",
                            "calibration-approval.json")

    def evidence(self, *plans: str, expect=0):
        """Forge the receipts of plans and score them."""
        for name in plans:
            experiment, plan = self.opened(name, "plan")
            arm = eval_loop.arm_of(experiment, plan)
            for case in arm.cases:
                self.forge_case(arm, case)
            self.command("score", name)

    def forge_case(self, arm, case) -> None:
        """Forge the Skill run of a case and all its judgments."""
        good = arm.plan["variant"] == "candidate"
        text = builder.good(case.id) if good else builder.poor(case.id)
        run = self.forge(eval_loop.run_call(arm, case), self.outputs.answer(text))
        for test in case.tests:
            if test.kind == "judge":
                self.forge(eval_loop.judge_call(arm, case, test, run), self.outputs.judged(
                    *(("pass", builder.QUOTE) if good else ("fail", builder.POOR_MARK))))

    def forge(self, call, stdout: bytes):
        """Write both receipts and both streams of one call; the attempt that they tell of."""
        call_id, moment = str(uuid.uuid4()), eval_loop.utc_text(eval_loop.utc_now())
        key_set = bool(os.environ.get("ANTHROPIC_API_KEY"))
        pending = eval_loop.pending_document(call, {
            "callId": call_id, "attempt": 1, "createdAtUtc": moment, "host": "forge",
            "bootId": "forge", "programSha256": self.outputs.program,
            "spendLimitUsd": "100", "callLimit": None,
            "environmentNames": eval_loop.environment_names(call.environment, key_set)})
        raw, stdout = eval_loop.canonical(pending), stdout.replace(b"CALL-ID", call_id.encode())
        facts = {"completedAtUtc": moment, "elapsedMilliseconds": 450, "exitStatus": 0,
                 "ended": None, "cliUnchanged": True, "lapsed": None}
        terminal = eval_loop.terminal_document(call, call_id, eval_loop.sha256(raw), facts,
                                               stdout, b"")
        assert terminal["status"] == "ok", terminal["reason"]
        told = eval_loop.canonical(terminal)
        stem = f"{call.directory}/{call.stem}.1"
        path = self.directory / call.directory
        path.mkdir(parents=True, exist_ok=True)
        for end, data in (("pending.json", raw), ("stdout", stdout), ("stderr", b""),
                          ("terminal.json", told)):
            (self.directory / f"{stem}.{end}").write_bytes(data)
        return eval_loop.Attempt(stem, pending, eval_loop.sha256(raw), terminal,
                                 eval_loop.sha256(told))


class Outputs:
    """Standard outputs in the real CLI's format: captures with other words in them."""

    def __init__(self):
        self.run = self.of_capture("skill-success")
        self.run[0]["slash_commands"][0] = self.run[0]["skills"][0] = builder.SKILL_NAME
        self.judge = self.of_capture("judge-pass")
        self.program = eval_loop.file_sha256(str(PROGRAM))

    @staticmethod
    def of_capture(name: str) -> list:
        """The items of one capture; a judge's are those of the judge model."""
        raw = (CAPTURES / f"{name}.stdout").read_bytes()
        if name.startswith("judge"):
            raw = raw.replace(CAPTURED_MODEL.encode(), JUDGE_MODEL.encode())
        return json.loads(raw)

    def answer(self, text: str) -> bytes:
        """A Skill's answer."""
        for item in self.run:
            if item["type"] == "assistant":
                item["message"]["content"][0]["text"] = text
        self.run[-1]["result"] = text
        return json.dumps(self.run, separators=(",", ":")).encode() + b"\n"

    def judged(self, verdict: str, quote: str) -> bytes:
        """A judge's verdict."""
        reply = {"evidence": f"The output says so: {verdict}.",
                 "quote": quote if verdict == "pass" or quote != builder.QUOTE else "",
                 "verdict": verdict}
        for item in self.judge:
            if item["type"] == "assistant":
                item["message"]["content"][-1]["input"] = reply
        self.judge[-1]["structured_output"] = reply
        self.judge[-1]["result"] = json.dumps(reply)
        return json.dumps(self.judge, separators=(",", ":")).encode() + b"\n"


def forge_worker(root: str, cli: str, size: str, criteria: str, per_label: str) -> dict:
    """Forge a complete experiment with this many cases a plan; where it is."""
    made = Forged(root, pathlib.Path(cli), development=int(size), heldout=int(size),
                  criteria=int(criteria), per_label=int(per_label))
    made.walk()
    return {"directory": str(made.directory)}


# ---- the stand-in ----------------------------------------------------------------------------

STAND_IN_C = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static const char run[] = %s, judge[] = %s;
int main(int count, char **words) {
    const char *id = "", *text = run, *place;
    char buffer[65536];
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "--session-id")) id = words[i + 1];
        if (!strcmp(words[i], "--json-schema")) text = judge;
    }
    while (read(0, buffer, sizeof buffer) > 0) ;
    usleep(%d);
    for (; (place = strstr(text, "CALL-ID")); text = place + 7) {
        fwrite(text, 1, place - text, stdout);
        fputs(id, stdout);
    }
    fputs(text, stdout);
    return 0;
}
"""
STAND_IN_SH = """#!/bin/sh
kind=run
while [ $# -gt 0 ]; do
  [ "$1" = --session-id ] && id=$2
  [ "$1" = --json-schema ] && kind=judge
  shift
done
cat >/dev/null
sleep %f
sed "s/CALL-ID/$id/g" %s.$kind
"""


def stand_in(path: pathlib.Path, microseconds: int) -> str:
    """Make a stand-in that answers every call alike; how it was made, in words."""
    outputs = Outputs()
    texts = [outputs.answer(OUTPUT.format("d01")).decode(),
             outputs.judged("pass", builder.QUOTE).decode()]
    compiler = shutil.which("cc")
    if compiler:
        source = path.with_suffix(".c")
        source.write_text(STAND_IN_C % (*map(json.dumps, texts), microseconds), "utf-8")
        if not subprocess.run([compiler, "-O1", "-o", str(path), str(source)], check=False,
                              capture_output=True).returncode:
            return "compiled"
    for kind, text in zip(("run", "judge"), texts, strict=True):
        path.with_name(f"{path.name}.{kind}").write_text(text, "utf-8")
    path.write_text(STAND_IN_SH % (microseconds / 1e6, path), "utf-8")
    path.chmod(0o755)
    return "a shell script, since there is no cc"


# ---- calls -----------------------------------------------------------------------------------


class Timed:
    """Times what make_calls takes, without start-up, loading and checking."""

    def __init__(self):
        self.inner, self.seconds = eval_loop.make_calls, 0.0

    def __call__(self, *arguments, **options):
        began = time.perf_counter()
        try:
            return self.inner(*arguments, **options)
        finally:
            self.seconds = time.perf_counter() - began

    def of(self, experiment: Forged, *words: str) -> float:
        """Seconds of one calling command inside make_calls."""
        eval_loop.make_calls = self
        try:
            experiment.command(*words)
        finally:
            eval_loop.make_calls = self.inner
        return self.seconds


def publish_by_hand(directory: str, name: str, raw: bytes) -> None:
    """The durable write of one new file, as short as it can be written."""
    draft = f"{directory}/.{name}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, raw)
    os.fsync(descriptor)
    os.link(draft, f"{directory}/{name}")
    os.unlink(draft)
    sync_by_hand(directory)
    os.close(descriptor)


def sync_by_hand(path: str) -> None:
    """Make a file or a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def bare_calls(source: pathlib.Path, target: str, cli: str, skill: bytes | None) -> float:
    """Make the calls of a result directory again by hand; the seconds that it takes.

    Same process, prompt, argument vector, private directory, and durable writes; no thought.
    """
    todo = []
    for path in sorted(source.glob("*.pending.json")):
        if (".run." in path.name) == (skill is not None):
            stem = path.name.removesuffix(".pending.json")
            pending = path.read_bytes()
            told = json.loads(pending)
            todo.append((stem, pending, (source / f"{stem}.terminal.json").read_bytes(),
                         told["arguments"], told["prompt"].encode()))
    environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    began = time.perf_counter()
    for stem, pending, terminal, words, prompt in todo:
        publish_by_hand(target, f"{stem}.pending.json", pending)
        private = f"/tmp/{uuid.uuid4()}"
        for part in ("home", "tmp", "w"):
            os.makedirs(f"{private}/{part}", mode=0o700)
        if skill is not None:
            os.makedirs(f"{private}/w/.claude/skills/{builder.SKILL_NAME}")
            place = f"{private}/w/.claude/skills/{builder.SKILL_NAME}"
            with open(f"{place}/SKILL.md", "xb") as made:
                made.write(skill)
        with (tempfile.TemporaryFile(dir=private) as unnamed,
              open(f"{target}/{stem}.stdout", "xb") as stdout,
              open(f"{target}/{stem}.stderr", "xb") as stderr):
            unnamed.write(prompt)
            unnamed.seek(0)
            subprocess.Popen([cli, *words], stdin=unnamed, stdout=stdout, stderr=stderr,
                             cwd=f"{private}/w", env=environment,
                             start_new_session=True).wait()
        for part in ("stdout", "stderr"):
            sync_by_hand(f"{target}/{stem}.{part}")
        shutil.rmtree(private)
        publish_by_hand(target, f"{stem}.terminal.json", terminal)
    return (time.perf_counter() - began) / len(todo)


def calls_worker(root: str, cases: str, rounds: str) -> dict:
    """Overhead of run and judge: for each round (program, floor) seconds a call."""
    cli = pathlib.Path(root) / "claude-fast"
    how = stand_in(cli, 1000)
    master = Forged(pathlib.Path(root) / "master", cli, development=int(cases), heldout=2,
                    criteria=1)
    master.walk("policy")
    plan = master.write_plan("baseline", "development")
    skill = master.path(master.skill_file("baseline")).read_bytes()
    told: dict[str, list] = {"run": [], "judge": []}
    for number in range(int(rounds)):
        experiment = master.copied(pathlib.Path(root) / f"round-{number}")
        results = experiment.path(experiment.result_directory("baseline", "development"))
        for command in told:
            spent = Timed().of(experiment, command, plan) / int(cases)
            with tempfile.TemporaryDirectory(dir=root) as target:
                bare = bare_calls(results, target, str(cli),
                                  skill if command == "run" else None)
            told[command].append((spent, bare))
        shutil.rmtree(experiment.root)
    return {"how": how, **told}


def measure_calls(scratch: pathlib.Path, rounds: int, cases: int = 40) -> None:
    """Print the overhead of one call."""
    told = worker("calls", scratch, cases, rounds, directory=scratch)
    heading(f"One call, {cases} calls a round, stand-in {told.pop('how')}",
            "program", "floor", "ratio", "target")
    for command, pairs in told.items():
        ratio = middle([program / floor for program, floor in pairs])
        row(command, seconds(middle([program for program, _ in pairs])),
            seconds(middle([floor for _, floor in pairs])), times(ratio), "1.25 x",
            missed=ratio > 1.25)
    measure_hashing(scratch)


def measure_hashing(scratch: pathlib.Path) -> None:
    """Print how often and in what memory a large CLI is read by one command."""
    cli = scratch / "claude-large"
    stand_in(cli, 1000)
    os.truncate(cli, os.stat(cli).st_size + BIG_TAIL) if shutil.which("cc") else None
    experiment = Forged(scratch / "hashing", cli, development=4, heldout=2, criteria=1)
    experiment.walk("policy")
    plan = experiment.write_plan("baseline", "development")
    told = worker("opens", "run", plan, f"--watch={cli}", directory=experiment.directory)
    opened = dict(told["worst"]).get(str(cli), int(str(cli) in told["files"]))
    peak = peak_memory(["judge", plan], experiment.directory)
    heading(f"A CLI of {os.stat(cli).st_size // 1_000_000} MB", "measured", "target")
    row("opens of the CLI by run, 4 calls", str(opened), "1", missed=opened != 1)
    row("peak memory of judge", f"{peak / 1e6:.1f} MB", "60 MB", missed=peak > 60e6)


# ---- scale -----------------------------------------------------------------------------------


def offline_commands() -> dict[str, list[str]]:
    """The offline commands over a complete experiment."""
    plans = [f"{variant}-{split}-plan.json" for split in builder.SPLITS
             for variant in builder.VARIANTS]
    return {"score": ["score", plans[3]], "compare": ["compare", *plans],
            "verify": ["verify", "decision-receipt.json"],
            "check": ["check", plans[3]]}


def measure_scale(scratch: pathlib.Path, rounds: int, large: bool) -> None:
    """Print time, opens and memory of the offline commands over experiments of each size."""
    cli = scratch / "claude-never-called"
    stand_in(cli, 1000)
    cold = middle([measured([sys.executable, str(PROGRAM), "hash", str(cli)], scratch)[1]
                   for _ in range(5)])
    spent: dict[tuple[str, int], float] = {}
    for size in (*SIZES, LARGE_SIZE) if large else SIZES:
        began = time.perf_counter()
        directory = pathlib.Path(worker(
            "forge", scratch / f"size-{size}", cli, size, CRITERIA, SAMPLES_PER_LABEL,
            directory=scratch)["directory"])
        heading(f"4 x {size} cases, forged in {time.perf_counter() - began:.0f} s", "wall",
                "processor", "floor", "ratio wall", "ratio proc.", "growth", "opens/file")
        for name, words in offline_commands().items():
            scale_row(name, words, size, directory, rounds if size < LARGE_SIZE else 1, spent,
                      cold)
        peak = peak_memory(offline_commands()["compare"], directory)
        row("  peak memory of compare", f"{peak / 1e6:.1f} MB", "60 MB",
            missed=size == 1000 and peak > 60e6)
        shutil.rmtree(directory.parent)


def scale_row(name: str, words: list[str], size: int, directory: pathlib.Path, rounds: int,
              spent: dict, cold: float) -> None:
    """Measure and print one command at one size.

    Growth compares the time beyond a cold start with that of a tenth of the cases.
    """
    told = worker("opens", *words, directory=directory)
    assert told["status"] in (0, 4), told
    listing = directory.parent / "files.txt"
    listing.write_text("\n".join(told["files"]), "utf-8")
    command = [sys.executable, str(PROGRAM), *words]
    floor = [sys.executable, "-c", FLOOR, str(listing)]
    program, bare = [], []
    for _ in range(rounds):
        program.append(measured(command, directory))
        bare.append(measured(floor, directory))
    wall, processor = (middle([one[part] for one in program]) for part in (0, 1))
    ratios = [middle([mine[part] / other[part] for mine, other in
                      zip(program, bare, strict=True)]) for part in (0, 1)]
    spent[name, size] = processor - cold
    growth = spent[name, size] / spent[name, size // 10] if (name, size // 10) in spent else 0
    wanted = size == 1000 and name in ("score", "compare")
    row(name, seconds(wall), seconds(processor), seconds(middle([one[1] for one in bare])),
        times(ratios[0]), times(ratios[1]), times(growth) if growth else "",
        f"{told['opens'] / len(told['files']):.3f}",
        missed=bool(told["repeated"]) or (wanted and ratios[1] > 3)
        or (size >= 1000 and growth > 11))
    for path, count in told["worst"]:
        print(f"    opened {count} times: {os.path.relpath(path, directory)}")


# ---- cold start ------------------------------------------------------------------------------


def measure_start(scratch: pathlib.Path, rounds: int) -> None:
    """Print the cold start of every offline command on a small experiment."""
    cli = scratch / "claude-start"
    stand_in(cli, 1000)
    directory = pathlib.Path(worker("forge", scratch / "start", cli, 1, 1, 1,
                                    directory=scratch)["directory"])
    commands = {"--help": ["--help"], "hash": ["hash", "policy.json"], **offline_commands(),
                "check policy": ["check", "policy.json"],
                "calibrate-finalize": ["calibrate-finalize", "calibration-plan.json",
                                       "calibration-approval.json"],
                "decide": ["decide", "comparison.json", "decision.json"]}
    bare = [sys.executable, "-c", "pass"]
    heading("Cold start, 1 case a plan and 3 samples", "wall", "processor", "python -c pass",
            "ratio wall", "ratio proc.", "target")
    for name, words in commands.items():
        pairs = [(measured([sys.executable, str(PROGRAM), *words], directory),
                  measured(bare, directory)) for _ in range(max(rounds, 9))]
        assert all(one[2] in (0, 4) for one, _ in pairs), name
        ratios = [middle([one[part] / other[part] for one, other in pairs]) for part in (0, 1)]
        row(name, *(seconds(middle([one[part] for one, _ in pairs])) for part in (0, 1)),
            seconds(middle([other[1] for _, other in pairs])), *map(times, ratios), "2.5 x",
            missed=ratios[1] > 2.5)
    began = time.process_time()
    compile(PROGRAM.read_bytes(), "eval_loop.py", "exec")
    row("  of it: compiling eval_loop.py", "", seconds(time.process_time() - began))
    shutil.rmtree(directory.parent)


# ---- jobs ------------------------------------------------------------------------------------


def jobs_worker(root: str, cases: str, rounds: str) -> dict:
    """Seconds that the calls of one run take with each number of jobs, for each round."""
    cli = pathlib.Path(root) / "claude-slow"
    stand_in(cli, 500_000)
    master = Forged(pathlib.Path(root) / "jobs", cli, development=int(cases), heldout=2,
                    judge=False)
    master.walk("policy")
    plan = master.write_plan("baseline", "development")
    told: dict[int, list[float]] = {jobs: [] for jobs in (1, 2, 4, 8, 16)}
    for number in range(int(rounds)):
        for jobs, spent in told.items():
            experiment = master.copied(pathlib.Path(root) / f"jobs-{number}-{jobs}")
            spent.append(Timed().of(experiment, "run", plan, "--jobs", str(jobs)))
            shutil.rmtree(experiment.root)
    return told


def measure_jobs(scratch: pathlib.Path, rounds: int, cases: int = 16) -> None:
    """Print what several calls at a time bring."""
    told = {int(jobs): spent for jobs, spent in
            worker("jobs", scratch, cases, rounds, directory=scratch).items()}
    heading(f"{cases} calls of half a second", "wall", "N-th part", "ratio", "target")
    for jobs, spent in told.items():
        ratio = middle([mine * jobs / one for mine, one in zip(spent, told[1], strict=True)])
        row(f"--jobs {jobs}", seconds(middle(spent)), seconds(middle(told[1]) / jobs),
            times(ratio), "1.05 x", missed=ratio > 1.05)


WORKERS = {"opens": opens_worker, "profile": profile_worker, "forge": forge_worker,
           "calls": calls_worker, "jobs": jobs_worker}
PARTS = ("calls", "scale", "start", "jobs")


def main(argv: list[str]) -> int:
    """Measure the parts that are asked for; 1 when a target is missed."""
    if argv[:1] == ["--worker"]:
        print(json.dumps(WORKERS[argv[1]](*argv[2:])))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--large", action="store_true", help="5,000 cases a plan as well, once")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the experiments are made (removed after)")
    options = parser.parse_args(argv)
    if wrong := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {' '.join(sorted(wrong))}")
    parts = options.parts or PARTS
    if COPY not in os.environ:
        with tempfile.TemporaryDirectory() as place:
            os.environ[COPY] = shutil.copy(PROGRAM, place)
            return subprocess.run([sys.executable, __file__, *argv], check=False).returncode
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, load "
          f"{os.getloadavg()[0]:.1f}, {options.rounds} rounds")
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        scratch = pathlib.Path(name).resolve()
        if "calls" in parts:
            measure_calls(scratch, options.rounds)
        if "start" in parts:
            measure_start(scratch, options.rounds)
        if "scale" in parts:
            measure_scale(scratch, options.rounds, options.large)
        if "jobs" in parts:
            measure_jobs(scratch, options.rounds)
    print(f"\n{len(MISSED)} targets missed" + "".join(f"\n  {line}" for line in MISSED))
    return 1 if MISSED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
