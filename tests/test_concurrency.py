"""Many processes on one experiment, clocks that jump, machines that sleep: each call once."""

from __future__ import annotations

import os
import signal
import time
from decimal import Decimal

import pytest

import builder
import faults

HOUR, DAY = 3600.0, 86400.0
PROCESSES = 8
COUNTED = {"processes": 0, "clock jumps": 0}


@pytest.fixture(scope="module")
def walked_bench(tmp_path_factory):
    """Return a walked bench with four development and two held-out cases."""
    with faults.Bench(tmp_path_factory.mktemp("crowd"), development=4) as made:
        yield made.walk()


@pytest.fixture
def bench(walked_bench):
    """Return the walked bench; what a test does to its script ends with the test."""
    walked_bench.experiment.rules()
    yield walked_bench
    walked_bench.experiment.rules()


def crowd(bench: faults.Bench, *commands: list[str], allowed=(0, 6)) -> list[int]:
    """Say commands at the same time; return their exit statuses, which must be `allowed`."""
    running = [bench.experiment.start(*words) for words in commands]
    texts = [process.communicate(timeout=120) for process in running]
    statuses = [process.returncode for process in running]
    COUNTED["processes"] += len(running)
    for status, text in zip(statuses, texts):
        assert status in allowed and "Traceback" not in text[1], (statuses, *text)
    return statuses


def committed(experiment: builder.Experiment) -> tuple[Decimal, Decimal]:
    """Return what is committed at the end and the most that ever was, from the receipts.

    An answer counts as soon as it says that it ended, which is before the program knew: the
    most that is found is not more than there was.
    """
    receipts, events = experiment.receipts(), []
    for name, document in receipts.items():
        if document["kind"] != "pending":
            continue
        reserved = Decimal(document["reservedUsd"])
        events.append((document["createdAtUtc"], reserved))
        terminal = receipts.get(name.replace(".pending.", ".terminal."))
        if terminal and terminal["costUsd"] != "unknown":
            events.append((terminal["completedAtUtc"],
                           Decimal(terminal["costUsd"]) - reserved))
    now = most = Decimal(0)
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return now, most


# ---- crowds ------------------------------------------------------------------------------


def test_eight_processes_on_one_plan_make_each_call_once(bench):
    bench.restore("run-baseline")
    words = [*bench.stages["run-baseline"].words, "--jobs", "4"]
    crowd(bench, *[words] * PROCESSES)
    bench.well()
    assert len(bench.experiment.call_log()) == 4
    assert not bench.problems()
    assert bench.summary() == bench.after["run-baseline"]


def test_judges_beside_judges_make_each_call_once(bench):
    bench.restore("judge-heldout")
    words = [*bench.stages["judge-heldout"].words, "--jobs", "4"]
    crowd(bench, *[words] * 4)
    bench.well()
    assert len(bench.experiment.call_log()) == 4
    assert not bench.problems()
    assert bench.summary() == bench.after["judge-heldout"]


def test_calibrations_beside_calibrations_make_each_call_once(bench):
    bench.restore("calibrate-run")
    crowd(bench, *[[*bench.stages["calibrate-run"].words, "--jobs", "2"]] * 3)
    bench.well()
    assert len(bench.experiment.call_log()) == 3
    assert not bench.problems()
    assert bench.summary() == bench.after["calibrate-run"]


def test_the_two_arms_run_by_two_processes_give_the_result_of_one(bench):
    bench.restore("run-heldout")
    plans = bench.experiment.plan_names("heldout")
    crowd(bench, *[["run", plan] for plan in plans], *[["run", *reversed(plans)]] * 2)
    bench.well()
    assert not bench.problems()
    assert bench.summary() == bench.after["run-heldout"]


def test_cases_spread_over_processes_give_the_result_of_one(bench):
    bench.restore("run-baseline")
    words = bench.stages["run-baseline"].words
    statuses = crowd(bench, *[[*words, "--case", f"d0{number}"] for number in (1, 2, 3, 4)])
    assert statuses == [0] * 4
    assert not bench.problems()
    assert bench.summary() == bench.after["run-baseline"]


def test_a_judge_beside_a_run_of_the_same_plan_takes_what_is_there(bench):
    bench.restore("run-baseline")
    plan = bench.experiment.plan_name("baseline", "development")
    crowd(bench, ["run", plan], *[["judge", plan]] * 3, allowed=(0, 3, 6))
    bench.well("run", plan)
    bench.well("judge", plan)
    assert not bench.problems()
    assert bench.summary() == bench.after["judge-baseline"]


@pytest.mark.parametrize("stage", ["calibrate-finalize", "score-baseline", "compare", "decide"])
def test_a_result_written_by_many_at_once_is_written_once(bench, stage):
    bench.restore(stage)
    statuses = crowd(bench, *[bench.stages[stage].words] * 4)
    assert statuses == [0] * 4
    assert bench.summary() == bench.after[stage]


def test_a_call_that_runs_elsewhere_is_reported_and_the_rest_is_done(bench):
    bench.restore("run-baseline")
    bench.experiment.rules({"contains": "Task d01", "sleep": 1, "times": 1,
                            "answer": builder.poor("d01")})
    with faults.started(bench.experiment, *bench.stages["run-baseline"].words) as first:
        paused = faults.pause_calls(bench.experiment, 1)
        done = bench.well(allowed=(6,))
        assert "d01.run.1" in done.stdout
        faults.resume_calls(paused)
        assert first.wait(60) in (0, 6)
    bench.well()
    assert len(bench.experiment.call_log()) == 4
    assert not bench.problems()
    assert bench.summary() == bench.after["run-baseline"]


# ---- the purse ---------------------------------------------------------------------------


def test_many_processes_never_commit_more_than_the_limit_when_costs_are_unknown(bench):
    bench.restore("run-baseline")
    bench.experiment.rules({"purpose": "run", "cost": None, "answer": "Some text."})
    spent, _ = committed(bench.experiment)
    bench.experiment.write_spending(spendLimitUsd=str(spent + Decimal("0.35")))
    words = [*bench.stages["run-baseline"].words, "--jobs", "4"]
    crowd(bench, *[words] * PROCESSES, allowed=(3, 4, 6))
    assert len(bench.experiment.call_log()) == 3
    assert committed(bench.experiment)[0] == spent + Decimal("0.30")


def test_many_processes_never_commit_more_than_the_limit_when_costs_are_known(bench):
    bench.restore("run-baseline")
    spent, _ = committed(bench.experiment)
    limit = spent + Decimal("0.25")
    bench.experiment.write_spending(spendLimitUsd=str(limit))
    words = [*bench.stages["run-baseline"].words, "--jobs", "4"]
    crowd(bench, *[words] * PROCESSES, allowed=(0, 3, 6))
    bench.well()
    assert committed(bench.experiment)[1] <= limit
    assert not bench.problems()
    assert bench.summary() != bench.after["run-baseline"]      # the limit is on the receipts
    assert len(bench.experiment.call_log()) == 4


def test_many_processes_never_make_more_calls_than_the_limit(bench):
    bench.restore("run-baseline")
    made = len(bench.experiment.receipts("pending"))
    bench.experiment.write_spending(callLimit=made + 2)
    words = [*bench.stages["run-baseline"].words, "--jobs", "4"]
    crowd(bench, *[words] * PROCESSES, allowed=(3, 6))
    assert len(bench.experiment.call_log()) == 2
    assert len(bench.experiment.receipts("pending")) == made + 2


# ---- beside a killed run -----------------------------------------------------------------


def sleeping(bench: faults.Bench, seconds: float) -> None:
    """Let each Skill call of the baseline's development take a while."""
    bench.experiment.rules(*({"contains": f"Task {case}", "sleep": seconds,
                              "answer": builder.poor(case)}
                             for case in bench.experiment.case_ids["development"]))


def test_the_answers_of_a_killed_run_are_waited_for_and_used(bench):
    bench.restore("run-baseline")
    sleeping(bench, 1.5)
    words = [*bench.stages["run-baseline"].words, "--jobs", "4"]
    with faults.started(bench.experiment, *words) as killed:
        paused = faults.pause_calls(bench.experiment, 4)
        killed.kill()
        killed.wait()
        assert len(faults.left_running(bench.experiment)) == 4
        assert not bench.experiment.receipts("d01.run.1.terminal")
        faults.resume_calls(paused)
        statuses = crowd(bench, *[words] * 3)
    assert 0 in statuses or bench.well().status == 0
    assert len(bench.experiment.call_log()) == 4
    assert not bench.problems()
    assert bench.summary() == bench.after["run-baseline"]


def test_a_run_beside_a_killed_run_leaves_no_call_unmade(bench):
    bench.restore("run-baseline")
    sleeping(bench, 0.5)
    words = bench.stages["run-baseline"].words
    with faults.started(bench.experiment, *words) as killed:
        faults.when(bench.experiment.call_log)
        with faults.started(bench.experiment, *words, "--jobs", "2") as other:
            faults.when(lambda: len(bench.experiment.call_log()) >= 2)
            killed.kill()
            killed.wait()
            assert other.wait(60) in (0, 6)
    bench.well()
    assert len(bench.experiment.call_log()) == 4
    assert not bench.problems()
    assert bench.summary() == bench.after["run-baseline"]


@pytest.mark.parametrize("command", ["run", "judge"])
def test_an_interrupted_call_is_closed_by_one_of_many(bench, command):
    stage = f"{command}-baseline"
    words = [*bench.stages[stage].words, "--case", "d01"]
    bench.restore(stage)
    steps = bench.well(*words).steps
    bench.restore(stage)
    bench.say(*words, killAt=1 + next(
        number for number, step in enumerate(steps, 1) if step.startswith("spawn")))
    faults.when(bench.experiment.call_log)
    faults.when(lambda: not faults.left_running(bench.experiment))
    crowd(bench, *[[*bench.stages[stage].words, "--jobs", "4"]] * PROCESSES)
    bench.well()
    assert len(bench.experiment.call_log()) == 4
    assert not bench.problems()
    assert bench.summary() == bench.after[stage]


def test_a_judge_closes_an_interrupted_run_and_judges_it_when_repeated(bench):
    bench.restore("run-baseline")
    steps = bench.well().steps
    last = max(number for number, step in enumerate(steps, 1) if step.startswith("spawn"))
    bench.restore("run-baseline")
    assert bench.say(killAt=last + 1).status == -signal.SIGKILL
    faults.when(lambda: len(bench.experiment.call_log()) == 4)
    faults.when(lambda: not faults.left_running(bench.experiment))
    first = bench.well(*bench.stages["judge-baseline"].words, allowed=(6,))
    assert "next: " in first.stdout and "judge baseline-development-plan" in first.stdout
    bench.well(*bench.stages["judge-baseline"].words)
    assert not bench.problems()
    assert bench.summary() == bench.after["judge-baseline"]


def test_a_judge_that_may_not_judge_leaves_an_interrupted_run_open(bench):
    bench.restore("run-baseline")
    steps = bench.well().steps
    last = max(number for number, step in enumerate(steps, 1) if step.startswith("spawn"))
    bench.restore("run-baseline")
    bench.say(killAt=last + 1)
    faults.when(lambda: len(bench.experiment.call_log()) == 4)
    faults.when(lambda: not faults.left_running(bench.experiment))
    bench.experiment.write_revocation()
    before = bench.experiment.files()
    bench.well(*bench.stages["judge-baseline"].words, allowed=(3,))
    assert bench.experiment.files() == before


def test_offline_commands_close_nothing_and_name_the_command_that_does(bench):
    bench.restore("run-baseline")
    steps = bench.well().steps
    last = max(number for number, step in enumerate(steps, 1) if step.startswith("spawn"))
    bench.restore("run-baseline")
    bench.say(killAt=last)
    before = bench.experiment.files()
    done = bench.well(*bench.stages["score-baseline"].words, allowed=(3,))
    assert "d04.run.1.pending.json" in done.stderr and "run " in done.stderr
    bench.well("verify", bench.experiment.plan_name("baseline", "development"),
               allowed=(0, 3))
    assert bench.experiment.files() == before


# ---- clocks ------------------------------------------------------------------------------


def times(experiment: builder.Experiment, part: str) -> list[str]:
    """Return the times of the receipts whose names hold `part`."""
    return [document.get("completedAtUtc") or document["createdAtUtc"]
            for document in experiment.receipts(part).values()]


@pytest.mark.parametrize("jump", [-HOUR, DAY])
@pytest.mark.parametrize("command", ["run", "judge"])
def test_a_clock_that_jumps_during_a_call_changes_no_result(bench, command, jump):
    stage = f"{command}-heldout"
    bench.restore(stage)
    bench.well(*bench.stages[stage].words, clock=[0, 0, 0, jump, jump, 0])
    assert not bench.problems()
    assert bench.summary() == bench.after[stage]
    seen = sorted(times(bench.experiment, f".{command}.1"))
    assert (seen[0] < builder.now()[:16] if jump < 0 else seen[-1] > builder.now())
    bench.go_on(allowed=(0,))
    comparison = bench.summary()["comparison.json"]
    expected = dict(bench.after["compare"]["comparison.json"])
    comparison.pop("contradictoryTimes"), expected.pop("contradictoryTimes")
    assert comparison == expected
    COUNTED["clock jumps"] += 1


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_a_clock_that_was_wrong_during_the_last_calls_does_not_forbid_a_decision(bench, jump):
    bench.restore("judge-heldout")
    bench.well(clock=[0, 0, 0, jump])
    bench.go_on(allowed=(0,))
    bench.experiment.write_decision()
    bench.well("decide", "comparison.json", "decision.json")
    bench.well("verify", "decision-receipt.json")
    COUNTED["clock jumps"] += 1


def test_a_clock_an_hour_behind_refuses_before_anything_is_paid(bench):
    bench.restore("run-baseline")
    before = bench.experiment.files()
    done = bench.well(clock=[-HOUR], allowed=(3,))
    assert "policy.json" in done.stderr and "approvedAtUtc" in done.stderr
    assert not bench.experiment.call_log() and bench.experiment.files() == before
    bench.well()
    assert bench.summary() == bench.after["run-baseline"]


def test_a_clock_a_day_ahead_ends_no_call_before_its_time(bench):
    bench.restore("run-heldout")
    bench.well(clock=[DAY])
    assert not bench.problems()
    assert bench.summary() == bench.after["run-heldout"]


def killed_with_hanging_calls(bench: faults.Bench, timeout: int, rule: dict) -> None:
    """Kill a run whose calls follow `rule`, in an experiment with another timeout."""
    bench.restore("calibrate-run")
    one = bench.experiment
    one.rules({"purpose": "judge", **rule})
    one.edit("environment.json", lambda document: {**document, "timeoutSeconds": timeout})
    one.write_calibration_plan()
    one.write_spending(approvedAtUtc="2026-01-01T00:00:00Z")
    with open(os.devnull, "wb") as sink:
        process = one.start("calibrate-run", "calibration-plan.json", stdout=sink, stderr=sink)
        faults.when(one.call_log)
        process.kill()
        process.wait()


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_a_jump_of_the_clock_does_not_prolong_the_wait_for_a_hanging_call(bench, jump):
    killed_with_hanging_calls(bench, 4, {"hang": True, "contains": "s10-pass-1"})
    try:
        done = bench.say("calibrate-run", "calibration-plan.json", clock=[jump], alarm=30)
        assert done.status == 6, done
        assert "s10-pass-1.calibrate.1.stdout" in done.stdout
        assert len(bench.experiment.call_log()) == 3
    finally:
        faults.end_left_running(bench.experiment)
    done = bench.well("calibrate-run", "calibration-plan.json", allowed=(4,))
    assert len(bench.experiment.call_log()) == 3
    assert faults.killed_calls(bench.experiment) == [
        "results/calibration/s10-pass-1.calibrate.1"]
    COUNTED["clock jumps"] += 1


def test_a_clock_a_day_ahead_loses_no_answer_of_a_killed_run(bench):
    killed_with_hanging_calls(bench, 60, {"contains": "s10-pass-1", "sleep": 1,
                                          "verdict": "pass", "quote": builder.QUOTE})
    bench.well("calibrate-run", "calibration-plan.json", clock=[DAY], allowed=(0, 6))
    faults.when(lambda: not faults.left_running(bench.experiment))
    bench.well("calibrate-run", "calibration-plan.json")
    assert len(bench.experiment.call_log()) == 3
    assert not bench.problems()


def test_a_call_on_a_machine_that_slept_past_its_time_is_suspended(tmp_path):
    one = builder.Experiment(tmp_path, environment={"timeoutSeconds": 5}, script=[
        {"purpose": "judge", "contains": "s10-pass-1", "hang": True},
        {"purpose": "judge", "contains": "s10-fail-1", "sleep": 1, "verdict": "fail",
         "quote": builder.POOR_MARK}])
    with faults.started(one, "calibrate-run", "calibration-plan.json", "--jobs", "2") as run:
        faults.when(lambda: len(one.call_log()) == 2)
        os.kill(run.pid, signal.SIGSTOP)
        time.sleep(6)                   # the machine sleeps: there is no quicker way
        os.kill(run.pid, signal.SIGCONT)
        assert run.wait(60) == 4
    reasons = {name.split("/")[-1].split(".")[0]: document["reason"]
               for name, document in one.receipts("terminal").items()}
    assert reasons == {"s10-pass-1": "suspended", "s10-fail-1": None,
                       "s10-unknown-1": "abstained"}
    assert not faults.left_running(one)
    assert len(one.call_log()) == 3


def test_the_processes_beside_each_other_are_many(request):
    total = COUNTED["processes"]
    print()
    print(f"RELIABILITY processes {total}")
    if faults.all_asked_for(request):
        assert total >= 80


def test_the_jumps_of_the_clock_are_some(request):
    total = COUNTED["clock jumps"]
    print()
    print(f"RELIABILITY clock-jumps {total}")
    if faults.all_asked_for(request):
        assert total >= 8
