"""A command that dies at any step is completed by saying it again: nothing paid is lost.

Each command is killed (SIGKILL) in place of each of its durable steps in turn, then said again
to its end. The stand-in CLI keeps its own log of the calls that it received.
"""

from __future__ import annotations

import signal
import threading

import pytest

import faults

WHOLE = ["calibrate-run", "calibrate-finalize", "run-baseline", "judge-baseline",
         "score-baseline", "compare", "decide"]
CALLING = ("calibrate-run", "run-baseline", "judge-baseline", "run-heldout", "judge-heldout")
MINIMUM_STEPS = {"calibrate-run": 90, "run-baseline": 70, "judge-baseline": 55,
                 "run-heldout": 70, "judge-heldout": 55}      # of the others: 4 each
STEPS_CRASHED: dict[str, int] = {}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Return two walked benches, which work beside each other."""
    with faults.benches(tmp_path_factory.mktemp("crash")) as made:
        yield made


class Sweep:
    """One command killed at every step, its outcomes checked; each kind is walked on once."""

    def __init__(self, pair, stage: str, *words: str):
        self.stage, self.words = stage, words
        self.seen: set[tuple[str, ...]] = set()
        self.private_directories_left: list[str] = []
        self.lock = threading.Lock()
        first = pair[0]
        first.restore(stage)
        self.steps = first.well(*words).steps
        self.undisturbed = first.summary()
        for bench in pair:
            assert bench.experiment.case_ids == first.experiment.case_ids
        faults.side_by_side(pair, self.crash, range(1, len(self.steps) + 1))
        STEPS_CRASHED[stage] = len(self.steps)

    def crash(self, bench: faults.Bench, number: int) -> None:
        """Kill the command at one step, say it again, check what is there then."""
        step = f"{self.stage} killed at step {number}, {self.steps[number - 1]}"
        bench.restore(self.stage)
        killed = bench.say(*self.words, killAt=number)
        assert killed.status == -signal.SIGKILL, (step, killed)
        assert not faults.unreadable(bench.experiment), step
        again = bench.say(*self.words)
        lost = faults.killed_calls(bench.experiment)
        assert again.status == (4 if lost else 0), (step, again)
        assert not bench.problems(), (step, bench.problems())
        if faults.private_directories(bench.experiment):
            self.private_directories_left.append(step)
        if not lost:
            assert bench.summary() == self.undisturbed, step
        with self.lock:
            new = tuple(lost) not in self.seen
            self.seen.add(tuple(lost))
        if new:
            self.walk_on(bench, lost, step)

    def walk_on(self, bench: faults.Bench, lost: list[str], step: str) -> None:
        """Carry the experiment on to its comparison, which equals that of an undisturbed one.

        Or it holds for, or lists, exactly the unknowns that the crash explains. (A sample that
        was never judged is refused when the calibration is finalised.)
        """
        if self.stage == "calibrate-run" and lost:
            bench.experiment.write_approval()
            refused = bench.say(*bench.stages["calibrate-finalize"].words)
            assert refused.status == 3, (step, refused)
            sample = lost[0].rpartition("/")[2].partition(".")[0]
            assert sample in refused.stderr, (step, refused.stderr)
            return
        if self.stage == "decide":
            return
        bench.go_on()
        comparison = bench.summary()["comparison.json"]
        expected = bench.after["compare"]["comparison.json"]
        if not lost:
            assert comparison == expected, step
            return
        reasons = {row["reason"] for name, document in bench.summary().items()
                   if name.endswith("/score.json") for row in document["rows"]
                   if row["verdict"] == "unknown"}
        assert reasons == {"killed"}, (step, reasons)
        assert comparison["accounting"]["status"] == "hold", step
        assert comparison["accounting"]["unknownCalls"] == len(lost), step
        if "heldout" in lost[0]:
            assert comparison["status"] == "hold", step
        else:
            assert comparison["heldout"] == expected["heldout"], step


@pytest.mark.parametrize("stage", WHOLE)
def test_a_command_killed_at_any_step_is_completed_by_saying_it_again(pair, stage):
    sweep = Sweep(pair, stage)
    calls = stage in CALLING
    assert len(sweep.steps) >= MINIMUM_STEPS.get(stage, 4)
    assert len(sweep.seen) == (1 + sum(step.startswith("spawn") for step in sweep.steps)
                               if calls else 1)
    assert not sweep.private_directories_left


@pytest.mark.parametrize("command", ["run", "judge"])
def test_both_arms_killed_at_any_step_are_completed_by_saying_it_again(pair, command):
    stage = f"{command}-heldout"
    sweep = Sweep(pair, stage, *pair[0].stages[stage].words, "--case", "h01")
    assert len(sweep.steps) >= MINIMUM_STEPS[stage]
    assert len(sweep.seen) == 3             # nothing lost, or the call of either arm
    assert not sweep.private_directories_left


@pytest.mark.parametrize("received", [True, False])
def test_closing_an_interrupted_call_may_itself_be_killed_at_any_step(pair, received):
    stage, name = "run-baseline", f"interrupted-{received}"
    for bench in pair:
        bench.restore(stage)
        steps = bench.well("run", bench.experiment.plan_name("baseline", "development"),
                           "--case", "d01").steps
        spawn = next(number for number, step in enumerate(steps, 1) if "spawn" in step)
        bench.restore(stage)
        bench.say(killAt=spawn + received)
        if received:
            faults.when(bench.experiment.call_log)
            faults.when(lambda one=bench.experiment: not faults.left_running(one))
        bench.keep(name)
    words = pair[0].stages[stage].words
    restore_with_private_directory(pair[0], name)
    closing = pair[0].well(*words, allowed=(0, 4)).steps
    closing = closing[:next(at for at, step in enumerate(closing) if "d02" in step)]
    assert len(closing) >= 8

    def crash(bench, number):
        restore_with_private_directory(bench, name)
        assert bench.say(*words, killAt=number).status == -signal.SIGKILL
        again = bench.say(*words)
        assert again.status == (0 if received else 4), again
        assert not bench.problems(), (closing[number - 1], bench.problems())
        answers = [document["status"] for name, document in bench.experiment.receipts(
            "d01.run").items() if document["kind"] == "terminal"]
        assert answers == ["ok" if received else "error"]
        assert len(bench.experiment.call_log()) == 1          # of d02
        return faults.private_directories(bench.experiment)

    left = faults.side_by_side(pair, crash, range(1, len(closing) + 1))
    STEPS_CRASHED[name] = len(closing)
    assert not any(left)


def restore_with_private_directory(bench: faults.Bench, name: str) -> None:
    """Restore a snapshot that holds an open call, and the private directory of that call."""
    bench.restore(name)
    faults.private_directories(bench.experiment)
    receipts = bench.experiment.receipts()
    for name, document in receipts.items():
        if name.replace(".pending.", ".terminal.") not in receipts:
            (faults.PRIVATE_ROOT / document["callId"] / "home").mkdir(parents=True)


def test_four_calls_at_a_time_killed_at_any_moment_are_each_made_once(pair):
    words = [*pair[0].stages["run-heldout"].words, "--jobs", "4"]
    pair[0].restore("run-heldout")
    total = len(pair[0].well(*words).steps)

    def crash(bench, number):
        bench.restore("run-heldout")
        assert bench.say(*words, killAt=number).status == -signal.SIGKILL
        again = bench.say(*words)
        lost = faults.killed_calls(bench.experiment)
        assert again.status == (4 if lost else 0), (number, again)
        assert not bench.problems(), (number, bench.problems())

    moments = range(5, total - 4, 9)
    faults.side_by_side(pair, crash, moments)
    STEPS_CRASHED["four at a time"] = len(moments)


@pytest.mark.parametrize("stage", WHOLE)
def test_a_name_appears_only_when_its_bytes_are_durable(pair, stage):
    """No kill shows this, only the order of the steps does: a machine may lose its power."""
    pair[0].restore(stage)
    steps = pair[0].well().steps
    links = [number for number, step in enumerate(steps) if step.startswith("link ")]
    calls = sum(step.startswith("spawn") for step in steps)
    assert len(links) == (2 * calls if stage in CALLING else 1)
    for number in links:
        draft = steps[number].split()[1]
        assert max(at for at, step in enumerate(steps[:number]) if step == f"write {draft}") < (
            at_fsync := steps.index(f"fsync {draft}")) < number
        folder = next(at for at, step in enumerate(steps) if at > number
                      and step.startswith("fsync "))
        assert steps[folder].split()[1] in ("calibration", "baseline-development", "experiment")
        assert not any(step.startswith("spawn") for step in steps[at_fsync:folder])
        if draft.endswith(".terminal.json.tmp"):
            stem = draft.removeprefix(".").removesuffix(".terminal.json.tmp")
            for part in ("stdout", "stderr"):
                assert steps.index(f"fsync {stem}.{part}") < steps.index(f"write {draft}")


def test_the_steps_crashed_are_many(request):
    total = sum(STEPS_CRASHED.values())
    print()
    print(f"RELIABILITY steps-crashed {total}")
    if faults.all_asked_for(request):
        assert total >= 450
