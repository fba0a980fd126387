"""Each way to a wrong accept that the rules close, tried; it ends in a refusal or a hold.

The owner of an experiment is the one who would be fooled, so nobody here forges bytes (that is
test_replay.py): these are the shortcuts of an honest person in a hurry. Every test says what
the shortcut is, takes it, and asks for the reason that the program gives.
"""

import json
import shutil

import eval_loop
import pytest

from builder import (CANDIDATE_MARK, CANDIDATE_SKILL, QUOTE, VARIANTS, Experiment, amount,
                     good, poor)
from mutations import Quick

BETTER = CANDIDATE_SKILL.replace("say that", "say clearly that")
SMALL = {"development": 1, "heldout": 1}


@pytest.fixture
def make(tmp_path):
    """As the fixture of that name, but each command is said in this process."""
    return lambda **options: Quick(tmp_path / "made", **options)


def refused(done, *words: str) -> None:
    """The command was refused, and one line of the refusal holds all of `words`."""
    assert done.returncode == 3, f"exit {done.returncode}: {done.stderr}{done.stdout}"
    assert any(all(word in line for word in words) for line in done.stderr.splitlines()), \
        done.stderr


def held(own: Experiment, *words: str, expect=4) -> dict:
    """The comparison holds, with a reason that has all of `words`; accepting is refused."""
    own.compare(expect=expect)
    told = own.read(own.named("comparison"))
    assert told["status"] == "hold"
    assert any(all(word in reason for word in words) for reason in told["reasons"]), \
        told["reasons"]
    own.write_decision("accept", acceptWithoutShownImprovement="It looks good to me.")
    done = own.command("decide", own.named("comparison"), own.named("decision"))
    refused(done, "accept is refused", *words)
    return told


# ---- exposure: a case that was seen is not held out -----------------------------------------


def second_round(own: Experiment) -> None:
    """The same stages again under a second policy, up to the unlock."""
    own.policy(expect=(0, 3, 4))
    own.baseline_development()
    own.diagnose()
    own.candidate_development()
    own.unlock()


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """An experiment that was decided once; tests take copies of it, which share its script."""
    rules = [rule for case in ("e01", "h02", "g01") for rule in (
        {"purpose": "run", "contains": f"Task {case}:", "skillContains": CANDIDATE_MARK,
         "answer": good(case)},
        {"purpose": "run", "contains": f"Task {case}:", "answer": poor(case)})]
    return Quick(tmp_path_factory.mktemp("opened"), **SMALL, script=rules).walk()


@pytest.fixture
def again(opened, tmp_path):
    """A copy of it in which a second policy begins, with a development case of its own."""
    own = opened.copied(tmp_path / "again")
    own.case_ids["development"] = ["e01"]
    own.write_case_files("e01")
    return own


def assert_exposed(own: Experiment, case: str) -> None:
    """With this held-out case a run is refused before it is paid."""
    second_round(own)
    plans = [own.write_plan(variant, "heldout") for variant in VARIANTS]
    calls = len(own.call_log())
    for arguments in (plans, plans[:1], plans[1:]):
        refused(own.command("run", *arguments), case, "exposed")
        refused(own.command("check", *arguments), case, "exposed")
    assert len(own.call_log()) == calls


def test_same_held_out_case_under_a_second_policy_is_exposed(again):
    again.second_policy()
    assert_exposed(again, "h01")


def test_held_out_case_with_another_id_is_exposed_by_its_family_and_source(again):
    again.case_ids["heldout"] = ["h02"]
    again.families["h02"] = "shop-h01"
    again.write_case_files("h02")
    again.second_policy()
    assert_exposed(again, "h02")


def edited_input(own: Experiment, **fields) -> None:
    """Begin the second policy with another input of h01, in a file of its own."""
    own.second_policy()
    own.write("cases/h01/input-2.txt", "Task h01: what came in there, all in all?\n")
    own.edit("heldout-cases-2.json", lambda cases: cases["cases"][0].update(
        input=own.ref("cases/h01/input-2.txt"), **fields))


def test_held_out_case_with_an_edited_input_is_exposed_by_its_family(again):
    edited_input(again, sourceId="another-till")
    assert_exposed(again, "h01")


@pytest.mark.parametrize("family", ["SHOP-H01", " shop-h01 ", "\uff33hop-h01"])
def test_family_spelt_in_another_way_is_the_same_family(again, family):
    edited_input(again, sourceId="another-till", caseGroup=family)
    assert_exposed(again, "h01")


def test_input_edited_in_its_own_file_breaks_what_binds_it(again):
    again.write("cases/h01/input.txt", "Task h01: what came in there, all in all?\n")
    again.second_policy()
    refused(again.command("check", again.write_policy()), "cases/h01/input.txt", "sha256")


def test_held_out_case_split_off_into_a_new_family_is_exposed_by_its_input(again):
    again.case_ids["heldout"] = ["h02"]
    again.write_case_files("h02")
    again.write("cases/h02/input.txt", "  TASK h01:\twhat did shop H01 take in?\n\n")
    again.second_policy()
    assert_exposed(again, "h02")


def test_held_out_case_with_a_new_family_and_input_is_exposed_by_its_source(again):
    again.case_ids["heldout"] = ["h02"]
    again.write_case_files("h02")
    again.second_policy()
    again.edit("heldout-cases-2.json", lambda cases: cases["cases"][0].update(
        sourceId="Till-shop-H01"))
    assert_exposed(again, "h02")


def test_development_case_moved_to_held_out_is_exposed(again):
    again.case_ids["heldout"] = ["d01"]
    again.second_policy()
    assert_exposed(again, "d01")


def test_held_out_case_moved_to_development_shows_in_the_policy_that_names_it_retired(again):
    """The honest way to go on: the seen case goes to development, and a new one is held out."""
    again.case_ids["development"], again.case_ids["heldout"] = ["h01"], ["g01"]
    again.write_case_files("g01")
    again.second_policy()
    second_round(again)
    again.heldout()
    again.compare(expect=0)
    assert again.read("comparison-2.json")["status"] == "eligible-for-manual-review"


def test_retired_inventory_is_checked_before_anything_is_paid(again):
    retired = again.ref("heldout-cases.json")
    again.second_policy()
    policy = again.write_policy(retiredCases=[retired])
    refused(again.command("check", policy), "retired", "h01")


def test_runs_of_the_first_policy_deleted_to_hide_exposure_break_what_stands_on_them(again):
    shutil.rmtree(again.path("results/baseline-heldout"))
    refused(again.command("verify", "decision-receipt.json"), "baseline-heldout")


def test_second_look_at_held_out_cases_by_a_revised_candidate_is_exposed(opened, tmp_path):
    own = opened.copied(tmp_path / "own")
    own.second_candidate(BETTER)
    own.diagnose()
    own.candidate_development()
    own.unlock()
    refused(own.command("run", *[own.write_plan(variant, "heldout") for variant in VARIANTS]),
            "h01", "exposed")


def test_second_pair_of_plans_under_one_unlock_is_exposed(opened, tmp_path):
    """Run the same arm once more in another directory, and keep the better one."""
    own = opened.copied(tmp_path / "own")
    name = own.write("again.json", {**own.read("candidate-heldout-plan.json"),
                                    "resultDir": "results/again"})
    calls = len(own.call_log())
    refused(own.command("run", name), "h01", "exposed")
    assert len(own.call_log()) == calls


def test_an_arm_that_could_not_be_started_has_seen_nothing(opened, tmp_path, monkeypatch):
    """Correct the plan of a held-out arm of which no CLI was ever started."""
    own = opened.copied(tmp_path / "own")
    shutil.rmtree(own.path(own.result_directory("candidate", "heldout")))
    plan = own.read("candidate-heldout-plan.json")
    monkeypatch.setattr(eval_loop, "PRIVATE_ROOT", str(tmp_path / "not there"))
    assert eval_loop.main(["run", str(own.path("candidate-heldout-plan.json"))]) == 6
    assert {told["reason"] for name, told in own.receipts("h01.run.1.terminal").items()
            if "candidate" in name} == {"could-not-start"}
    monkeypatch.undo()
    again = own.write("again.json", {**plan, "resultDir": "results/again"})
    own.command("run", again, expect=0)


def test_a_call_of_another_plan_said_not_to_have_started_is_believed_only_without_output(
        opened, tmp_path):
    """Say of an answered call of another plan that its CLI was never started."""
    own = opened.copied(tmp_path / "own")
    directory = own.path(own.result_directory("candidate", "heldout"))
    for path in directory.glob("*.terminal.json"):
        told = json.loads(path.read_bytes())
        path.write_bytes(eval_loop.canonical({**told, "status": "unserved", "reason": "could-not-start",
                                    "ended": "not-started"}))
    name = own.write("again.json", {**own.read("candidate-heldout-plan.json"),
                                    "resultDir": "results/again"})
    refused(own.command("run", name), "h01", "exposed")


def test_held_out_case_developed_on_between_its_runs_and_their_judging_holds(tmp_path):
    own = Quick(tmp_path, **SMALL).walk("unlock")
    plans = [own.write_plan(variant, "heldout") for variant in VARIANTS]
    own.command("run", *plans, expect=0)
    other = own.copied(tmp_path / "view")          # the same directory, seen as a second policy
    other.directory = own.directory
    other.case_ids["development"], other.case_ids["heldout"] = ["h01"], ["g01"]
    other.write_case_files("g01")
    other.second_policy()
    other.policy()
    other.command("run", other.write_plan("baseline", "development"), expect=0)
    own.command("judge", *plans, expect=0)
    for plan in plans:
        own.command("score", plan, expect=0)
    held(own, "h01", "exposed")


# ---- another baseline, another candidate, another rule -------------------------------------


@pytest.fixture(scope="module")
def unlocked_once(tmp_path_factory):
    """An experiment that was unlocked: both arms developed, nothing held out was run."""
    return Quick(tmp_path_factory.mktemp("unlocked"), **SMALL).walk("unlock")


@pytest.fixture
def unlocked(unlocked_once, tmp_path):
    """A copy of it."""
    return unlocked_once.copied(tmp_path / "unlocked")


def test_weaker_baseline_in_the_held_out_plan_is_not_the_one_that_was_diagnosed(unlocked):
    unlocked.write("skills/weak/.claude/skills/figures/SKILL.md", "Say nothing of use.\n")
    unlocked.projects["baseline"] = "skills/weak"
    refused(unlocked.command("run", unlocked.write_plan("baseline", "heldout")), "skillSha256")


def test_weaker_baseline_written_over_the_first_one_breaks_its_hash(unlocked):
    plan = unlocked.write_plan("baseline", "heldout")
    unlocked.write(unlocked.skill_file("baseline"), "Say nothing of use.\n")
    refused(unlocked.command("run", plan), "SKILL.md", "sha256")


def test_candidate_polished_after_its_unlock_starts_a_new_candidate(unlocked):
    unlocked.write(unlocked.skill_file("candidate"), BETTER)
    refused(unlocked.command("run", unlocked.write_plan("candidate", "heldout")), "skillSha256")


def test_unlock_for_one_candidate_does_not_open_the_cases_for_another(unlocked):
    name = unlocked.write("skills/other/.claude/skills/figures/SKILL.md", BETTER)
    refused(unlocked.command("check", unlocked.write_unlock(
        candidateSkillSha256=unlocked.sha(name))), "candidateSkillSha256")


def test_plans_of_two_chains_are_not_compared(opened, tmp_path):
    """The baseline of one policy beside the candidate of another."""
    own = opened.copied(tmp_path / "own")
    plans = own.plan_names()
    weaker = own.write("weak-plan.json", {**own.read(plans[0]), "resultDir": "results/weak"})
    own.command("run", weaker, expect=0)
    own.command("judge", weaker, expect=0)
    own.command("score", weaker, expect=0)
    refused(own.command("compare", weaker, *plans[1:], "--output", "other.json"),
            "weak-plan.json", plans[0])


def test_one_plan_named_twice_is_no_comparison(opened):
    plans = opened.plan_names()
    for position, other in ((1, 0), (2, 3)):
        named = [*plans[:position], plans[other], *plans[position + 1:]]
        refused(opened.command("compare", *named, "--output", "other.json"),
                "one plan for each")


def test_one_result_directory_for_two_plans_is_refused(unlocked):
    for variant in VARIANTS:
        unlocked.write_plan(variant, "heldout", resultDir="results/shared")
    done = unlocked.command("run", *unlocked.plan_names("heldout"))
    refused(done, "resultDir") if done.returncode == 3 else None
    assert done.returncode == 3 and not unlocked.path("results/shared").exists()


def test_gate_lowered_after_the_results_are_seen_breaks_the_chain(opened, tmp_path):
    own = opened.copied(tmp_path / "own")
    own.edit("policy.json", lambda policy: policy.update(minimumHeldoutScore="0"))
    refused(own.command("verify", "decision-receipt.json"), "policy.json", "sha256")


def test_lower_gates_in_a_new_policy_meet_exposed_cases(again):
    again.overrides["policy"] = {"minimumHeldoutScore": "0", "minimumHeldoutGain": "0"}
    again.second_policy()
    assert_exposed(again, "h01")


# ---- calibrations retried ------------------------------------------------------------------


@pytest.fixture(scope="module")
def misjudged_once(tmp_path_factory):
    """An experiment whose judge passed the sample that was to be failed, once."""
    own = Quick(tmp_path_factory.mktemp("misjudged"), development=1, heldout=1, script=[
        {"purpose": "judge", "contains": "Task s10-fail-1:", "times": 1, "verdict": "pass",
         "evidence": "It is right.", "quote": "took some money"}])
    own.command("calibrate-run", "calibration-plan.json", expect=0)
    own.write_approval()
    refused(own.command("calibrate-finalize", "calibration-plan.json",
                        "calibration-approval.json"), "s10-fail-1")
    return own


@pytest.fixture
def misjudged(misjudged_once, tmp_path):
    """A copy of it, whose judge is right from now on."""
    return misjudged_once.copied(tmp_path / "misjudged")


def second_calibration(own: Experiment, change=lambda plan: None, expect=0):
    """Calibrate once more by a plan of its own; return the finished calibrate-finalize."""
    plan = own.read("calibration-plan.json")
    plan.update(resultDir="results/calibration-2", calibrationOutputFile="calibration-2.json")
    change(plan)
    own.write("calibration-plan.json", plan)
    own.command("calibrate-run", "calibration-plan.json", expect=expect)
    own.write_approval()
    return own.command("calibrate-finalize", "calibration-plan.json",
                       "calibration-approval.json")


def row_of(own: Experiment, sample: str, label: str, text: str | None = None) -> dict:
    """A new sample of criterion 1 with its files."""
    row = own.sample_row(sample, 1, label)
    if text is not None:
        own.write(f"samples/{sample}/output.txt", text)
        row["output"] = own.ref(f"samples/{sample}/output.txt")
    return row


def test_calibration_repeated_until_the_judge_agrees_counts_its_first_verdicts(misjudged):
    refused(second_calibration(misjudged), "s10-fail-1")
    assert not misjudged.path("calibration-2.json").exists()


def test_sample_dropped_after_it_was_misjudged_still_counts(misjudged):
    def replace(plan):
        plan["samples"][1] = row_of(misjudged, "new-fail", "fail")

    refused(second_calibration(misjudged, replace), "s10-fail-1")


def test_sample_renamed_after_it_was_misjudged_still_counts(misjudged):
    def rename(plan):
        plan["samples"][1].update(id="other-fail", caseGroup="other", sourceId="other")

    assert second_calibration(misjudged, rename).returncode == 3


def test_sample_relabelled_after_it_was_misjudged_keeps_its_first_label(misjudged):
    def relabel(plan):
        plan["samples"][1]["humanVerdict"] = "pass"
        plan["samples"].append(row_of(misjudged, "new-fail", "fail"))

    done = second_calibration(misjudged, relabel, expect=(0, 3))
    assert done.returncode == 3, done.stdout


def test_criterion_reworded_for_the_same_samples_does_not_make_them_new(misjudged):
    def reword(plan):
        misjudged.write("criteria/reworded.txt", "The amount is the till roll's.\n")
        for row in plan["samples"]:
            row["criterion"] = misjudged.ref("criteria/reworded.txt")

    refused(second_calibration(misjudged, reword), "criterion")


def test_receipts_of_the_failed_calibration_deleted_are_missed_by_the_record_that_lists_them(
        make):
    own = make(**SMALL)
    own.calibrate()
    done = second_calibration(own, lambda plan: plan.update(samples=[
        row_of(own, f"n-{label}", label) for label in ("pass", "fail", "unknown")]))
    assert done.returncode == 0 and own.read("calibration-2.json")["attemptNumber"] == 2
    policy = own.write_policy(calibration=own.ref("calibration-2.json"))
    own.command("check", policy, expect=0)
    shutil.rmtree(own.path("results/calibration"))
    refused(own.command("check", policy), "calibration-2.json")


def test_calibration_on_held_out_cases_is_leakage(make):
    own = make(**SMALL)
    own.edit("calibration-plan.json", lambda plan: plan["samples"][0].update(
        caseGroup="Shop-H01"))
    refused(own.command("calibrate-run", "calibration-plan.json"), "leakage", "family")


def test_judge_that_always_passes_is_not_accepted(make):
    own = make(**SMALL, script=[{"purpose": "judge", "verdict": "pass", "evidence": "Fine.",
                                 "quote": "Shop"}])
    own.command("calibrate-run", "calibration-plan.json", expect=0)
    own.write_approval()
    refused(own.command("calibrate-finalize", "calibration-plan.json",
                        "calibration-approval.json"), "s10-fail-1")


# ---- receipts deleted, attempts picked -----------------------------------------------------


@pytest.fixture(scope="module")
def retried_once(tmp_path_factory):
    """A development run whose first two attempts at one case were not served."""
    own = Quick(tmp_path_factory.mktemp("retried"), development=2, heldout=1, script=[
        {"purpose": "run", "contains": "Task d01:", "times": 2, "status": 429}])
    own.walk("policy")
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=(4, 6))
    own.command("run", plan, expect=(4, 6))
    own.command("run", plan, expect=0)
    assert len(own.receipts("d01.run.")) == 6
    return own


@pytest.fixture
def retried(retried_once, tmp_path):
    """A copy of it."""
    return retried_once.copied(tmp_path / "retried")


@pytest.mark.parametrize("number", [1, 2])
def test_attempt_deleted_from_the_middle_is_a_gap(retried, number):
    for path in retried.path("results/baseline-development").glob(f"d01.run.{number}.*"):
        path.unlink()
    plan = retried.plan_name("baseline", "development")
    calls = len(retried.call_log())
    for command in ("verify", "judge", "run", "score"):
        refused(retried.command(command, plan), "d01.run.")
    assert len(retried.call_log()) == calls


def test_later_attempts_moved_up_over_a_deleted_one_do_not_rebuild(retried):
    folder = retried.path("results/baseline-development")
    for part in ("pending.json", "terminal.json", "stdout", "stderr"):
        (folder / f"d01.run.2.{part}").rename(folder / f"d01.run.1.{part}")
        (folder / f"d01.run.3.{part}").rename(folder / f"d01.run.2.{part}")
    plan = retried.plan_name("baseline", "development")
    refused(retried.command("verify", plan), "d01.run.1.pending.json", "attempt")


def test_answered_call_is_not_made_again(retried):
    plan = retried.plan_name("baseline", "development")
    calls = len(retried.call_log())
    for arguments in ((), ("--case", "d01"), ("--jobs", "2")):
        retried.command("run", plan, *arguments, expect=0)
    assert len(retried.call_log()) == calls


def test_run_deleted_to_roll_it_again_leaves_judgments_of_no_run(retried):
    plan = retried.plan_name("baseline", "development")
    retried.command("judge", plan, expect=0)
    for path in retried.path("results/baseline-development").glob("d02.run.1.*"):
        path.unlink()
    calls = len(retried.call_log())
    refused(retried.command("run", plan), "d02")
    refused(retried.command("judge", plan), "d02")
    assert len(retried.call_log()) == calls


def test_candidate_that_was_tried_and_hidden_is_missed_by_the_comparison_that_counted_it(make):
    own = make(**SMALL).walk("diagnose")
    own.write("skills/first/.claude/skills/figures/SKILL.md", BETTER)
    first = own.write("first-plan.json", {
        **own.read(own.write_plan("candidate", "development")), "projectDir": "skills/first",
        "skillSha256": own.sha("skills/first/.claude/skills/figures/SKILL.md"),
        "resultDir": "results/first"})
    own.edit("diagnosis.json", lambda given: given.update(
        candidateSkillSha256=own.read(first)["skillSha256"]))
    own.edit(first, lambda plan: plan.update(diagnosis=own.ref("diagnosis.json")))
    own.command("run", first, expect=0)
    own.write_diagnosis()
    own.walk()
    assert own.read("comparison.json")["candidatesTried"] == 2
    shutil.rmtree(own.path("results/first"))
    refused(own.command("verify", "comparison.json"), "results/first/", "comparison.json lists")


@pytest.mark.parametrize("where", ["", "deeper/", "results/"])
def test_subdirectory_is_no_fresh_ledger(opened, tmp_path, where):
    """With a purse of its own a subdirectory would spend a second limit and hide exposure."""
    own = opened.copied(tmp_path / "own")
    inner = own.path(f"{where}inner")
    inner.mkdir(parents=True)
    for path in own.directory.iterdir():
        if path.name not in ("results", ".lock", "inner", "deeper"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, inner / path.name)
    calls = len(own.call_log())
    for command, name in (("calibrate-run", "calibration-plan.json"),
                          ("run", own.plan_name("baseline", "development")),
                          ("check", "policy.json")):
        refused(own.command(command, f"{inner}/{name}"), "inner", "inside")
        refused(own.command(command, name, cwd=inner), "inner", "inside")
    assert len(own.call_log()) == calls


# ---- scores, overrides, sources, tests -----------------------------------------------------


def test_score_frozen_early_accepts_no_call_afterwards(make):
    own = make(**SMALL).walk("policy")
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=0)
    refused(own.command("score", plan), "--accept-unknown")
    refused(own.command("score", plan, "--accept-unknown", "2"), "--accept-unknown")
    own.command("score", plan, "--accept-unknown", "1", expect=4)
    calls = len(own.call_log())
    refused(own.command("judge", plan), "score exists")
    assert len(own.call_log()) == calls
    row = own.checks("baseline", "development")["d01", "grounded-1"]
    assert (row["verdict"], row["reason"]) == ("unknown", "not-called")


def test_score_thrown_away_for_a_better_one_breaks_what_stands_on_it(make):
    """Freeze the baseline's judge test as unknown, diagnose it, and judge it afterwards."""
    own = make(**SMALL).walk("policy")
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=0)
    own.command("score", plan, "--accept-unknown", "1", expect=4)
    own.diagnose()
    own.path(own.score_name("baseline", "development")).unlink()
    own.command("judge", plan, expect=0)
    own.command("score", plan, expect=0)
    refused(own.command("run", own.write_plan("candidate", "development")),
            "diagnosis.json", "baselineScoreSha256")


@pytest.mark.parametrize("left_out", VARIANTS)
def test_held_out_judgments_left_out_of_one_arm_count_against_the_candidate(unlocked, left_out):
    """Unknowns are resolved for the baseline and against the candidate."""
    plans = {variant: unlocked.write_plan(variant, "heldout") for variant in VARIANTS}
    unlocked.command("run", *plans.values(), expect=0)
    left = plans.pop(left_out)
    unlocked.command("judge", *plans.values(), expect=0)
    unlocked.command("score", *plans.values(), expect=0)
    unlocked.command("score", left, "--accept-unknown", "1", expect=4)
    held(unlocked, "maximumUnknownShare")


def critical_failure(make) -> Experiment:
    """A candidate that fails a critical check in development and is good held out."""
    return make(**SMALL, answers={("candidate", "d01"): f"Shop d01 took 1 euros. {QUOTE}."}
                ).walk("candidate_development")


def test_override_opens_the_cases_and_changes_nothing_about_a_critical_failure(make):
    own = critical_failure(make)
    refused(own.command("check", own.write_unlock()), "heldout-unlock.json", "override",
            "d01.figure")
    refused(own.command("run", own.write_plan("candidate", "heldout")), "override")
    done = own.unlock(override="I want to see it all the same.")
    assert "never become eligible" in done.stdout + done.stderr
    own.heldout()
    told = held(own, "critical", "d01.figure")
    assert not [gate for gate in told["gates"] if not gate["met"]]


@pytest.mark.parametrize("source", ["till-shop-d01", "Till-Shop-D01", "  till-shop-d01 ",
                                    "\uff34ill-shop-d01"])
def test_one_source_in_many_families_is_refused(make, source):
    """Ten families of one source would look like ten independent observations."""
    own = make(judge=False, development=3, heldout=1)
    own.edit("development-cases.json", lambda cases: cases["cases"][2].update(sourceId=source))
    refused(own.command("check", "development-cases.json"), "$.cases[2].caseGroup", "family")


def test_one_input_in_many_families_is_refused(make):
    own = make(judge=False, development=1, heldout=3)
    own.write("cases/h03/input.txt", "TASK H01:  what did shop h01 take in?\n\n")
    own.write_inventory("heldout")
    refused(own.command("check", own.write_policy()), "h01", "h03", "input")


def test_one_case_in_both_splits_is_leakage(make):
    own = make(judge=False, development=2, heldout=2)
    own.families["h02"] = "shop-d02"
    own.write_inventory("heldout")
    refused(own.command("check", own.write_policy()), "leakage", "d02", "h02", "family")


def repeated(own: Experiment, tests: list[dict]):
    own.write("cases/d01/expected.json", {"approvedBy": "Olga Owner", "tests": tests})
    own.write_inventory("development")
    return own.command("check", "development-cases.json")


def contains(number: int, value: str) -> dict:
    return {"id": f"t{number}", "kind": "contains", "critical": number > 5, "value": value}


def test_one_test_repeated_ten_times_is_refused(make):
    own = make(**SMALL)
    value = f"{amount('d01')} euros"
    refused(repeated(own, [contains(n, value) for n in range(10)]), "expected.json", "equal")


@pytest.mark.parametrize("other", ["{} EUROS", " {} euros", "{}\u00a0euros", "{}  \n euros "])
def test_one_test_repeated_in_another_spelling_is_refused(make, other):
    """`contains` compares without case and space, so these ask the same."""
    own = make(**SMALL)
    value = amount("d01")
    refused(repeated(own, [contains(1, f"{value} euros"), contains(2, other.format(value))]),
            "expected.json", "equal")


def test_one_criterion_repeated_in_a_copy_of_its_file_is_refused(make):
    own = make(**SMALL)
    own.write("criteria/copy.txt", own.path("criteria/criterion-1.txt").read_bytes())
    judge = own.default_tests("d01")[-1]
    assert judge["kind"] == "judge"
    judge["critical"] = False
    refused(repeated(own, [judge, {**judge, "id": "again",
                                   "criterion": own.ref("criteria/copy.txt")}]),
            "expected.json", "equal")


# ---- the decision --------------------------------------------------------------------------


def test_better_by_luck_is_not_accepted_without_saying_so(opened, tmp_path):
    own = opened.copied(tmp_path / "own")
    own.path("decision-receipt.json").unlink()
    decision = own.read("decision.json")
    assert decision.pop("acceptWithoutShownImprovement")
    own.write("decision.json", decision)
    refused(own.command("decide", "comparison.json", "decision.json"),
            "acceptWithoutShownImprovement")


def test_persons_verdict_against_a_fixed_check_turns_it_against_the_candidate(make):
    own = make(**SMALL, policy={"minimumHeldoutScore": "1"}).walk("compare")
    own.write_decision("accept", humanReview=[
        {"caseId": "h01", "testId": "grounded-1", "verdict": "fail"}])
    refused(own.command("decide", "comparison.json", "decision.json"), "minimumHeldoutScore")


def test_accept_of_another_skill_than_the_one_compared_is_refused(opened, tmp_path):
    own = opened.copied(tmp_path / "own")
    own.path("decision-receipt.json").unlink()
    own.write_decision("accept", candidateSkillSha256=own.sha(own.skill_file("baseline")))
    refused(own.command("decide", "comparison.json", "decision.json"), "candidateSkillSha256")


def test_candidate_that_holds_a_held_out_text_is_leakage(make):
    """Tuning on the test, in the plainest way: the answers stand in the Skill."""
    own = make(**SMALL)
    secret = "Till roll h01: EUR 4711, of which EUR 17 in coins, counted twice.\n"
    own.write("cases/h01/truth.txt", secret)
    own.write_inventory("heldout")
    own.write_calibration_plan()
    own.write(own.skill_file("candidate"), CANDIDATE_SKILL + secret.upper())
    own.walk("diagnose")
    calls = len(own.call_log())
    refused(own.command("run", own.write_plan("candidate", "development")), "h01", "candidate")
    assert len(own.call_log()) == calls
