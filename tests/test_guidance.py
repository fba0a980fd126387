"""What the owner is told before paying for nothing, and the next step that is printed."""

from __future__ import annotations

import shlex
import shutil

import pytest

import eval_loop
from builder import VARIANTS, good
from test_loop import (BASELINE_DEVELOPMENT, BASELINE_HELDOUT, CANDIDATE_DEVELOPMENT,
                       CANDIDATE_HELDOUT, refused)

PLAN, SECOND = "calibration-plan.json", "second-plan.json"


def next_command(done) -> list[str]:
    """The words of the command that is printed as the next step."""
    words, = (line for line in done.stdout.splitlines() if line.startswith("next: "))
    return shlex.split(words.partition("python3 ")[2])[1:]


def second_calibration(experiment, **change) -> str:
    """Write a second calibration plan on the same samples; return its name."""
    plan = experiment.read(PLAN)
    return experiment.write(SECOND, {**plan, "resultDir": "results/second",
                                     "calibrationOutputFile": "second.json", **change})


# ---- calibrating -----------------------------------------------------------------------------


def test_a_sample_that_was_judged_before_is_told_before_it_is_paid_again(ready):
    experiment = ready("calibrate")
    done = experiment.command("check", second_calibration(experiment), expect=0)
    assert done.stderr.count("that verdict stands; a new one is paid for nothing") == 3
    assert "results/calibration/s10-fail-1.calibrate.1" in done.stderr


def test_a_pair_that_cannot_count_is_told_and_promises_no_bound(ready):
    experiment = ready("calibrate")
    experiment.write("criteria/reworded.txt", "The amount is the till roll's.\n")
    reworded = [{**row, "criterion": experiment.ref("criteria/reworded.txt")}
                for row in experiment.read(PLAN)["samples"]]
    new = experiment.sample_row("fresh", 1, "fail")
    new["criterion"] = experiment.ref("criteria/reworded.txt")
    done = experiment.command("check", second_calibration(
        experiment, samples=[*reworded, new], qualification={
            "minimumPerClass": 10, "maximumFalsePassBound": "0.5",
            "maximumFalseBlockBound": "0.5", "maximumUnsupportedPassBound": "0.5",
            "maximumAbstentionRate": "0.5", "requireTwoReviewers": False,
            "jointConfidence": True}), expect=0)
    assert done.stderr.count("cannot count") == 3
    told = [line for line in done.stdout.splitlines() if "without an error" in line]
    assert len(told) == 1 and "1 samples labelled fail" in told[0]


def test_a_first_calibration_is_told_nothing_of_that_kind(make):
    done = make().command("check", PLAN, expect=0)
    assert "paid for nothing" not in done.stderr and "cannot count" not in done.stderr


def test_repeating_a_finished_calibration_warns_of_nothing(ready):
    experiment = ready("calibrate")
    second_calibration(experiment)
    done = experiment.command("calibrate-run", PLAN, expect=0)
    assert "paid for nothing" not in done.stderr


@pytest.mark.parametrize("command", ["check", "calibrate-run"])
def test_an_output_that_another_plan_wrote_is_refused_before_any_call(ready, command):
    experiment = ready("calibrate")
    second_calibration(experiment, calibrationOutputFile="calibration.json")
    refused(experiment, command, SECOND, saying=("$.calibrationOutputFile", "calibration.json"))


def test_a_plan_of_which_nothing_was_served_is_no_earlier_attempt(make):
    experiment = make()
    experiment.rules({"purpose": "judge", "status": 401})
    experiment.command("calibrate-run", second_calibration(experiment), expect=6)
    experiment.rules()
    experiment.calibrate()
    record = experiment.read("calibration.json")
    assert record["attemptNumber"] == 1 and record["earlierReceipts"]


def test_a_calibration_of_another_criterion_is_no_earlier_attempt_of_this_one(ready):
    experiment = ready("calibrate")
    experiment.write("criteria/other.txt", "The shop is named.\n")
    rows = [{**row, "criterion": experiment.ref("criteria/other.txt")}
            for row in experiment.read(PLAN)["samples"]]
    fresh = [experiment.sample_row(f"new-{label}", 1, label)
             for label in ("pass", "fail", "unknown")]
    for row in fresh:
        row["criterion"] = experiment.ref("criteria/other.txt")
    experiment.command("calibrate-run", second_calibration(experiment, samples=rows + fresh),
                       expect=0)
    terminals = {path.name: experiment.sha(f"results/second/{path.name}") for path in
                 experiment.path("results/second").glob("*.terminal.json")}
    approval = experiment.read("calibration-approval.json")
    experiment.write("second-approval.json", {
        **approval, "calibrationPlanSha256": experiment.sha(SECOND),
        "terminalHashes": terminals})
    told = experiment.command("calibrate-finalize", SECOND, "second-approval.json",
                              expect=0).stdout
    assert "attempt 1 of this criterion" in told


def test_a_right_unknown_on_a_sample_is_shown_as_its_verdict(make):
    told = make().command("calibrate-run", PLAN, expect=0).stderr
    line, = (line for line in told.splitlines() if "s10-unknown-1" in line)
    assert " unknown, " in line and "abstained" not in line


# ---- a judge that may not judge --------------------------------------------------------------


@pytest.mark.parametrize("words", [("check", "policy.json"), ("check", BASELINE_DEVELOPMENT),
                                   ("run", BASELINE_DEVELOPMENT)])
def test_a_revoked_calibration_is_told_before_runs_are_paid(ready, words):
    experiment = ready("policy")
    experiment.write_plan("baseline", "development")
    experiment.write_revocation()
    told = experiment.command(*words, expect=0).stderr
    assert "warning: policy.json: $.calibration: revoked" in told
    assert "--accept-unknown" in told


def test_a_call_left_open_is_closed_although_the_calibration_was_revoked(ready):
    experiment = ready("baseline_development")
    results = experiment.path("results/baseline-development")
    (results / "score.json").unlink()
    (results / "d01.grounded-1.judge.1.terminal.json").unlink()
    for path in results.glob("d02.grounded-1.judge.*"):
        path.unlink()
    experiment.write_revocation()
    calls = len(experiment.call_log())
    done = experiment.command("judge", BASELINE_DEVELOPMENT, expect=6)
    assert "revoked" in done.stdout and len(experiment.call_log()) == calls
    closed = experiment.read("results/baseline-development/d01.grounded-1.judge.1.terminal.json")
    assert (closed["status"], closed["reason"]) == ("unqualified", "revoked")
    refused(experiment, "judge", BASELINE_DEVELOPMENT, saying=("--accept-unknown",))
    experiment.command("score", BASELINE_DEVELOPMENT, "--accept-unknown", "1", expect=4)


def test_a_comparison_whose_calibration_was_revoked_since_says_so_when_it_is_shown(ready):
    experiment = ready("compare")
    assert "revoked since" not in experiment.compare().stderr
    experiment.write_revocation()
    done = experiment.compare()
    assert "comparison.json: the calibration was revoked since" in done.stderr


# ---- plans -----------------------------------------------------------------------------------


def test_a_scored_plan_is_said_to_be_scored_and_leads_on(ready):
    experiment = ready("baseline_development")
    done = experiment.command("check", BASELINE_DEVELOPMENT, expect=0)
    assert f"{BASELINE_DEVELOPMENT}: is scored" in done.stdout
    assert next_command(done) == ["check", CANDIDATE_DEVELOPMENT]


def test_a_plan_whose_runs_are_paid_may_be_judged_whatever_ran_since(ready, tmp_path):
    experiment = ready("diagnose")
    plan = experiment.write_plan("candidate", "development")
    elsewhere = experiment.copied(tmp_path / "elsewhere")
    experiment.command("run", plan, expect=0)
    elsewhere.write("again-plan.json", {**elsewhere.read(plan), "resultDir": "results/again"})
    elsewhere.command("run", "again-plan.json", expect=0)
    shutil.copytree(elsewhere.path("results/again"), experiment.path("results/again"))
    experiment.command("check", plan, expect=0)
    experiment.command("judge", plan, expect=0)


def test_both_held_out_plans_are_checked_together_and_run_together(ready):
    experiment = ready("unlock")
    plans = [experiment.write_plan(variant, "heldout") for variant in VARIANTS]
    done = experiment.command("check", *plans, expect=0)
    assert next_command(done) == ["run", *plans]
    alone = experiment.command("check", "policy.json", plans[0], expect=0)
    assert next_command(alone) == ["run", plans[0]]


def test_an_owners_note_in_one_unlock_reference_parts_no_pair(ready):
    experiment = ready("unlock", judge=False)
    plans = [experiment.write_plan(variant, "heldout") for variant in VARIANTS]
    experiment.edit(plans[0], lambda plan: plan["heldoutUnlock"].update(_note="opened once"))
    experiment.command("run", *plans, expect=0)


@pytest.mark.parametrize("document", ["decision.json", "comparison.json", "calibration.json",
                                      "calibration-approval.json", "decision-receipt.json"])
def test_a_document_checked_by_its_shape_alone_is_said_to_be(finished, document):
    done = finished.command("check", document, expect=0)
    assert f"{document}: only its form and its references" in done.stdout


def test_a_baseline_without_a_failure_asks_for_harder_cases(make):
    answers = {("baseline", case): good(case) for case in ("d01", "d02")}
    experiment = make(judge=False, answers=answers)
    experiment.walk("policy")
    plan = experiment.write_plan("baseline", "development")
    experiment.command("run", plan, expect=0)
    done = experiment.command("score", plan, expect=0)
    assert "4 of 4 checks passed" in done.stdout and "harder cases" in done.stdout
    assert "diagnosis.json" not in done.stdout


def test_the_next_calls_take_the_same_cli_and_jobs(ready):
    experiment = ready("policy")
    cli = str(shutil.copy(experiment.cli, experiment.root / "a copy"))
    plan = experiment.write_plan("baseline", "development")
    done = experiment.command("run", plan, "--cli", cli, "--jobs", "2", expect=0)
    assert next_command(done) == ["judge", plan, "--cli", cli, "--jobs", "2"]


def test_what_is_not_finished_is_said_as_commands_that_can_be_typed(ready):
    experiment = ready("policy", judge=False)
    plan = experiment.read(experiment.write_plan("baseline", "development"))
    experiment.write("my plan.json", plan)
    told = refused(experiment, "score", "my plan.json")
    assert "not finished: run 'my plan.json' --case d01" in told
    assert "score 'my plan.json' --accept-unknown 4" in told


def test_a_long_list_of_what_is_not_finished_is_cut(make):
    experiment = make(development=25, judge=False)
    experiment.walk("policy")
    told = refused(experiment, "score", experiment.write_plan("baseline", "development"))
    assert told.count("not finished: ") == 20 and "and 5 more" in told


# ---- results ---------------------------------------------------------------------------------


def test_a_gain_over_unknown_answers_is_told_by_its_worst_case_first(make):
    experiment = make(development=1, heldout=6, judge=False)
    experiment.walk("unlock")
    baseline, candidate = (experiment.write_plan(variant, "heldout") for variant in VARIANTS)
    experiment.command("run", candidate, expect=0)
    experiment.command("score", candidate, expect=0)
    experiment.command("score", baseline, "--accept-unknown", "12", expect=4)
    told = experiment.compare(expect=4).stdout
    assert "improvement not shown" in told.partition("\n")[0]
    worst = "With all 12 unknown held-out checks against the candidate: 0 families improved"
    assert worst in told and told.index(worst) < told.index("6 families improved")


def test_synthetic_evidence_says_so_when_it_is_verified(finished):
    for document in ("decision-receipt.json", "comparison.json", "calibration.json",
                     BASELINE_HELDOUT, CANDIDATE_HELDOUT):
        told = finished.command("verify", document, expect=0).stdout
        assert told.startswith("SYNTHETIC evidence. self-consistent"), told


def test_the_hash_of_a_skill_may_be_trusted(finished):
    for variant in VARIANTS:
        digest = finished.sha(finished.skill_file(variant))
        finished.command("verify", "decision-receipt.json", "--trust", digest, expect=0)


# ---- found by changing the program -----------------------------------------------------------


def test_held_out_text_that_only_the_baseline_holds_is_no_leak_of_the_candidate(ready):
    experiment = ready("policy", judge=False)
    case = first_heldout_case(experiment)
    case = case._replace(task=eval_loop.Bound("input.txt", "text", "", "What " * 9 + "now?"))
    old, new = f"Know this: {case.task.document}".encode(), b"Know nothing."
    assert eval_loop.candidate_leaks(new, old, [case]) == ([], [])
    assert eval_loop.candidate_leaks(old, new, [case])[0]


def first_heldout_case(experiment):
    """That case, held-out case, as the program loads it."""
    loaded = eval_loop.Experiment(str(experiment.directory), eval_loop.utc_now())
    inventory = loaded.load({"file": "heldout-cases.json"}, "cases")
    return eval_loop.cases_of(loaded, inventory)[0]


def test_a_damaged_score_that_speaks_of_a_timeout_is_refused_and_no_crash(ready):
    experiment = ready("baseline_development")
    experiment.path("results/baseline-development/score.json").write_bytes(b'{"regex-timeout"')
    refused(experiment, "verify", BASELINE_DEVELOPMENT, saying=("score.json",))
