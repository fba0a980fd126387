"""What calibration samples prove about a judge, what qualifies it, and what cannot be prettied.

The first part gives counts to the pure `qualify` and labels to `label_of`; the second says the
public commands in small experiments.
"""
import itertools
import os
import time
from datetime import datetime, timedelta
from fractions import Fraction

import pytest

from builder import LABELS, POOR_MARK, PROGRAM, Experiment, now, sha256
from eval_loop import Judged, Refused, label_of, percent, qualify, upper_bound

LIMITS = {"minimumPerClass": 10, "maximumFalsePassBound": "0.3",
          "maximumFalseBlockBound": "0.3", "maximumUnsupportedPassBound": "0.3",
          "maximumAbstentionRate": "0.2",
          "requireTwoReviewers": False, "jointConfidence": False}
LOOSE = {"maximumFalsePassBound": "0.5", "maximumFalseBlockBound": "0.5",
         "maximumUnsupportedPassBound": "0.5", "maximumAbstentionRate": "0.5"}
HONEST = {label: {label: 30} for label in LABELS}
CLASSES = {"falsePass": ("fail", "maximumFalsePassBound"),
           "falseBlock": ("pass", "maximumFalseBlockBound"),
           "unsupportedPass": ("unknown", "maximumUnsupportedPassBound")}


def judged(counts, criterion="c1", part=None, own=True, counted=True):
    """Rows from {human label: {the judge's verdict: how many}}."""
    return [Judged(f"{label}-{verdict}-{number}", criterion, part, label, verdict, own, counted)
            for label, verdicts in counts.items() for verdict, times in verdicts.items()
            for number in range(times)]


def group_of(counts, **limits):
    """The one group that these counts make under the limits, with those replaced."""
    group, = qualify(judged(counts), {**LIMITS, **limits})["groups"]
    return group


def status_of(counts, **limits):
    """Whether these counts qualify under the limits, with those replaced."""
    return qualify(judged(counts), {**LIMITS, **limits})["status"]


def missed(group, limit):
    """The sentence on one limit that a group missed, or None; there is at most one."""
    found = [text for text in group["missed"] if text.startswith(limit + ":")]
    assert len(found) <= 1
    return found[0] if found else None


# ---- Bounds and limits -----------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("errors, n, reaches", [(0, 58, False), (0, 59, True), (1, 92, False),
                                                (1, 93, True), (0, 30, False)])
def test_five_percent_is_reached_by_none_of_59_and_by_one_of_93(name, errors, n, reaches):
    label, limit = CLASSES[name]
    wrong = "fail" if label == "pass" else "pass"
    group = group_of({**HONEST, label: {label: n - errors, wrong: errors}}, **{limit: "0.05"})
    assert (group[name]["errors"], group[name]["n"]) == (errors, n)
    assert Fraction(group[name]["upperBound"]) == upper_bound(errors, n)
    assert bool(missed(group, limit)) != reaches
    assert bool(group["missed"]) != reaches


@pytest.mark.parametrize("label, verdict, error", [
    ("fail", "pass", "falsePass"), ("fail", "fail", None), ("fail", "unknown", None),
    ("pass", "pass", None), ("pass", "fail", "falseBlock"), ("pass", "unknown", "falseBlock"),
    ("unknown", "pass", "unsupportedPass"), ("unknown", "fail", None),
    ("unknown", "unknown", None)])
def test_which_verdict_on_which_label_is_an_error(label, verdict, error):
    group = group_of({label: {verdict: 3}})
    assert {name: group[name]["errors"] for name in CLASSES} == {
        name: 3 * (name == error) for name in CLASSES}
    assert {name: group[name]["n"] for name in CLASSES} == {
        name: 3 * (label == CLASSES[name][0]) for name in CLASSES}
    assert group["counts"][label][verdict] == 3


def test_abstentions_are_counted_on_samples_labelled_pass_or_fail():
    group = group_of({"pass": {"pass": 9, "unknown": 1}, "fail": {"fail": 7, "unknown": 3},
                      "unknown": {"unknown": 10}})
    assert (group["abstention"]["errors"], group["abstention"]["n"]) == (4, 20)
    assert not missed(group, "maximumAbstentionRate"), "4 of 20 is exactly the limit"
    group = group_of({"pass": {"pass": 9, "unknown": 1}, "fail": {"fail": 6, "unknown": 4}})
    assert "5 of 20" in missed(group, "maximumAbstentionRate")


def test_nothing_learnt_on_samples_labelled_unknown_does_not_qualify():
    known = judged({"pass": {"pass": 30}, "fail": {"fail": 30}})
    broken = judged({"unknown": {"unknown": 30}}, own=False)
    assert qualify(known + broken, LIMITS)["status"] == "not-qualified"
    honest = judged({"unknown": {"unknown": 30}})
    assert qualify(known + honest, LIMITS)["status"] == "qualified"


def test_a_fault_of_the_machinery_is_an_abstention_and_a_false_block():
    rows = judged({"fail": {"fail": 10}}) + judged({"pass": {"unknown": 2}}, own=False)
    group, = qualify(rows, LIMITS)["groups"]
    assert (group["abstention"]["errors"], group["falseBlock"]["errors"]) == (2, 2)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_below_its_minimum_is_missed_however_good_it_is(name):
    label, _ = CLASSES[name]
    group = group_of({**HONEST, label: {label: 29}}, minimumPerClass=30, **LOOSE)
    assert group["missed"] == [missed(group, "minimumPerClass")]
    assert "29" in group["missed"][0] and label in group["missed"][0]
    assert not group_of(HONEST, minimumPerClass=30, **LOOSE)["missed"]


def test_a_class_below_its_minimum_says_how_many_more_samples_it_needs():
    group = group_of({**HONEST, "fail": {"fail": 27}}, minimumPerClass=30, **LOOSE)
    assert " 3 more " in missed(group, "minimumPerClass")


def test_a_class_without_samples_is_bounded_by_nothing():
    group = group_of({"pass": {"pass": 30}, "fail": {"fail": 30}}, **LOOSE)
    assert Fraction(group["unsupportedPass"]["upperBound"]) == 1
    assert missed(group, "maximumUnsupportedPassBound")


def test_every_missed_limit_is_named_not_only_the_first():
    group = group_of({"pass": {"pass": 4, "unknown": 5}, "fail": {"pass": 9},
                      "unknown": {"pass": 9}})
    assert [text.partition(":")[0] for text in group["missed"]].count("minimumPerClass") == 3
    for limit in ("maximumFalsePassBound", "maximumFalseBlockBound",
                  "maximumUnsupportedPassBound", "maximumAbstentionRate"):
        assert missed(group, limit), limit


@pytest.mark.parametrize("errors, n, limit, more", [
    (0, 30, "0.05", 29), (1, 30, "0.05", 63), (1, 59, "0.05", 34), (0, 58, "0.05", 1),
    (3, 59, "0.05", 94), (0, 10, "0.01", 289), (10, 40, "0.1", 127), (0, 0, "0.05", 59)])
def test_a_missed_limit_says_how_many_further_samples_would_reach_it(errors, n, limit, more):
    group = group_of({**HONEST, "fail": {"fail": n - errors, "pass": errors}},
                     maximumFalsePassBound=limit)
    assert f" {more} more" in missed(group, "maximumFalsePassBound")
    assert upper_bound(errors, n + more) <= Fraction(limit) < upper_bound(errors, n + more - 1)


def test_a_limit_that_no_practical_number_of_samples_reaches_promises_none():
    text = missed(group_of(HONEST, maximumFalsePassBound="0.000001"), "maximumFalsePassBound")
    promised = [int(word) for word in text.replace(",", "").split() if word.isdigit()
                and int(word) > 30]
    assert all(upper_bound(0, 30 + more) <= Fraction("0.000001") or more == 100_000
               for more in promised if more <= 99_970), text


def test_a_missed_abstention_rate_says_how_many_further_samples_would_reach_it():
    group = group_of({"pass": {"pass": 10}, "fail": {"fail": 5, "unknown": 5}})
    assert "5 of 20" in missed(group, "maximumAbstentionRate")
    assert " 5 more" in missed(group, "maximumAbstentionRate"), "5 of 25 is the limit"


@pytest.mark.parametrize("groups, n, m", [(1, 79, 3), (1, 80, 3), (2, 93, 6), (2, 94, 6)])
def test_joint_confidence_divides_the_level_by_classes_criteria_and_slices(groups, n, m):
    counts = {label: {label: n} for label in LABELS}
    rows = [row for number in range(groups) for row in judged(counts, part=f"slice-{number}")]
    told = qualify(rows, {**LIMITS, "maximumFalsePassBound": "0.05", "jointConfidence": True})
    alpha = Fraction(1, 20 * m)
    for group in told["groups"]:
        for name in CLASSES:
            assert Fraction(group[name]["upperBound"]) == upper_bound(0, n, alpha)
    reached = upper_bound(0, n, alpha) <= Fraction(1, 20)
    assert told["status"] == ("qualified" if reached else "not-qualified")
    assert reached == (n in (80, 94)), "80 for 3 bounds, 94 for 6"
    if not reached:
        assert " 1 more" in missed(told["groups"][0], "maximumFalsePassBound")


def test_without_joint_confidence_the_level_does_not_depend_on_the_groups():
    one = qualify(judged(HONEST), LIMITS)["groups"][0]
    two = qualify(judged(HONEST) + judged(HONEST, "c2"), LIMITS)["groups"][0]
    assert one == two


def test_a_good_group_does_not_help_a_bad_one():
    bad = {**HONEST, "fail": {"pass": 15, "fail": 15}}
    for rows in (judged(HONEST, "c1") + judged(bad, "c2"),
                 judged(HONEST, part="en") + judged(bad, part="tr")):
        told = qualify(rows, LIMITS)
        assert told["status"] == "not-qualified"
        assert sorted(bool(group["missed"]) for group in told["groups"]) == [False, True]


def test_a_sample_that_does_not_count_is_in_no_denominator():
    group, = qualify(judged(HONEST) + judged(HONEST, counted=False), LIMITS)["groups"]
    assert group == qualify(judged(HONEST), LIMITS)["groups"][0]


@pytest.mark.parametrize("verdict", ["pass", "unknown", "fail"])
def test_a_judge_that_always_says_the_same_never_qualifies(verdict):
    for n in (10, 59, 500):
        counts = {label: {verdict: n} for label in LABELS}
        assert status_of(counts, **LOOSE) == "not-qualified", n


def test_an_honest_judge_qualifies_with_enough_samples():
    assert status_of(HONEST) == "qualified"


# ---- Exact agreement -------------------------------------------------------------------------


ONE_EACH = {label: {label: 1} for label in LABELS}


def test_exact_agreement_accepts_and_never_calls_it_qualified():
    told = qualify(judged(ONE_EACH), None)
    assert (told["status"], told["rule"]) == ("accepted", "exact-agreement")
    assert percent(Fraction(told["groups"][0]["falsePass"]["upperBound"])) == "95.0000 %"


@pytest.mark.parametrize("label, verdict", list(itertools.permutations(LABELS, 2)))
def test_exact_agreement_refuses_any_mismatch(label, verdict):
    rows = judged({**ONE_EACH, label: {label: 20, verdict: 1}})
    with pytest.raises(Refused) as refusal:
        qualify(rows, None)
    assert len(refusal.value.problems) == 1
    assert f"{label}-{verdict}-0" in refusal.value.problems[0]


def test_exact_agreement_refuses_a_mismatch_of_a_sample_that_does_not_count():
    uncounted = judged({"fail": {"pass": 1}}, counted=False)
    with pytest.raises(Refused) as refusal:
        qualify(judged(ONE_EACH) + uncounted, None)
    assert [problem for problem in refusal.value.problems if "labelled fail, judged pass"
            in problem] == refusal.value.problems


@pytest.mark.parametrize("label", LABELS)
def test_exact_agreement_refuses_a_label_without_a_sample(label):
    with pytest.raises(Refused) as refusal:
        qualify(judged({other: {other: 5} for other in LABELS if other != label}), None)
    assert len(refusal.value.problems) == 1 and label in refusal.value.problems[0]


def test_exact_agreement_refuses_a_machinery_unknown_on_an_unknown_sample():
    rows = judged({"pass": {"pass": 1}, "fail": {"fail": 1}})
    with pytest.raises(Refused):
        qualify(rows + judged({"unknown": {"unknown": 1}}, own=False), None)


def test_exact_agreement_is_asked_of_every_criterion_and_slice():
    rows = judged(ONE_EACH, part="en") + judged({"pass": {"pass": 1}}, part="tr")
    with pytest.raises(Refused) as refusal:
        qualify(rows, None)
    assert len(refusal.value.problems) == 2


def test_exact_agreement_tells_all_mismatches_at_once():
    with pytest.raises(Refused) as refusal:
        qualify(judged({**ONE_EACH, "fail": {"fail": 1, "pass": 4}}), None)
    assert len(refusal.value.problems) == 4


# ---- Labels ----------------------------------------------------------------------------------


REVIEWERS = ["Rita Reader", "Sam Second", "Tom Third"]


def sample(verdict="pass", second=None, third=None, by=REVIEWERS):
    """One sample of a plan, with a second review and an adjudication where they are given."""
    row = {"humanVerdict": verdict, "humanEvidence": "Read.", "reviewedBy": by[0]}
    if second:
        row["secondReview"] = {"reviewedBy": by[1], "humanVerdict": second,
                               "humanEvidence": "Read."}
    if third:
        row["adjudication"] = {"reviewedBy": by[2], "humanVerdict": third,
                               "reason": "The roll says so."}
    return row


@pytest.mark.parametrize("row, label", [
    (sample("pass"), "pass"), (sample("fail", "fail"), "fail"),
    (sample("fail", "pass", "fail"), "fail"), (sample("fail", "pass", "pass"), "pass"),
    (sample("fail", "pass", "unknown"), "unknown"),
    (sample("pass", by=(" rita  READER ", "", "")), "pass")])
def test_labels_that_stand(row, label):
    assert label_of(row, REVIEWERS, False) == (label, [])


@pytest.mark.parametrize("row, word", [
    (sample("fail", "pass"), "disagree"),
    (sample("fail", "pass", "pass", ("Rita Reader", "Sam Second", "Sam Second")), "different"),
    (sample("fail", "pass", "pass", ("Rita Reader", "Sam Second", "rita reader")), "different"),
    (sample("pass", "pass", None, ("Rita Reader", "RITA READER", "")), "different"),
    (sample("pass", "pass", None, ("Rita Reader", "Rita  Reader ", "")), "different"),
    (sample("pass", by=("Nobody Known", "", "")), "reviewers"),
    (sample("pass", "pass", None, ("Rita Reader", "Nobody Known", "")), "reviewers"),
    (sample("fail", "pass", "pass", ("Rita Reader", "Sam Second", "No One")), "reviewers"),
    (sample("pass", "pass", "fail"), "agree"), (sample("pass", None, "fail"), "agree")])
def test_labels_that_are_refused(row, word):
    _, problems = label_of(row, REVIEWERS, False)
    assert len(problems) == 1 and word in problems[0], problems


def test_two_reviewers_are_required_when_the_plan_says_so():
    assert label_of(sample("pass"), REVIEWERS, False)[1] == []
    _, problems = label_of(sample("pass"), REVIEWERS, True)
    assert len(problems) == 1 and "requireTwoReviewers" in problems[0]
    assert label_of(sample("pass", "pass"), REVIEWERS, True) == ("pass", [])


# ==== Through the public commands =============================================================


PLAN, APPROVAL = "calibration-plan.json", "calibration-approval.json"
RECORD = "calibration.json"


def refused(experiment, *words, saying=()):
    """Say a command that is refused with nothing written or called; return its complaints."""
    before, calls = experiment.files(), len(experiment.call_log())
    told = experiment.command(*words, expect=3).stderr
    assert experiment.files() == before and len(experiment.call_log()) == calls
    for text in saying:
        assert text in told, f"expected {text!r} in:\n{told}"
    return told


def rejudge(experiment, name, change, expect=(0, 4)):
    """Calibrate again under a changed plan of a name of its own; return the printed text."""
    plan = experiment.read(PLAN)
    plan |= {"resultDir": f"results/{name}", "calibrationOutputFile": f"{name}.json"}
    plan = change(plan) or plan
    experiment.write(f"{name}-plan.json", plan)
    experiment.command("calibrate-run", f"{name}-plan.json", "--jobs", "2", expect=expect)
    ids = {row["id"] for row in plan["samples"]}
    paths = sorted(experiment.path(plan["resultDir"]).glob("*.terminal.json"))
    experiment.write(f"{name}-approval.json", {
        "approvedBy": "Olga Owner", "approvedAtUtc": now(),
        "calibrationPlanSha256": experiment.sha(f"{name}-plan.json"),
        "terminalHashes": {path.name: sha256(path.read_bytes()) for path in paths
                           if path.name.partition(".")[0] in ids}})
    return experiment.command("calibrate-finalize", f"{name}-plan.json",
                              f"{name}-approval.json", expect=expect).stdout


def bound_of(experiment, record, name="falsePass", criterion=1):
    """The bound of one class in one record, for criterion 1."""
    wanted = experiment.sha(f"criteria/criterion-{criterion}.txt")
    return max(Fraction(group[name]["upperBound"])
               for group in experiment.read(record)["groups"]
               if group["criterionSha256"] == wanted)


def judge_says(name, verdict):
    """A rule of the stand-in: what the judge says about one sample or case."""
    return {"purpose": "judge", "contains": f"Task {name}:", "verdict": verdict,
            "evidence": "Scripted.", "quote": "Shop" if verdict == "pass" else ""}


def four_samples(make, **other):
    """Calibrate on two samples to pass and two to fail with a judge that errs on three.

    Returns the record, its group, and what was printed.
    """
    verdicts = {"s10-pass-1": "pass", "s10-pass-2": "fail", "s10-fail-1": "pass",
                "s10-fail-2": "unknown"} | other
    limits = {**LIMITS, "maximumFalsePassBound": "0.05", "maximumFalseBlockBound": "0.05",
              "maximumAbstentionRate": "0.2"}
    experiment = make(qualification=limits, per_label=2, script=[
        judge_says(name, verdict) for name, verdict in verdicts.items()])
    experiment.edit(PLAN, lambda plan: {**plan, "samples": [
        row for row in plan["samples"] if row["humanVerdict"] != "unknown"]})
    experiment.command("calibrate-run", PLAN, expect=(0, 4))
    experiment.write_approval()
    told = experiment.command("calibrate-finalize", PLAN, APPROVAL, expect=4).stdout
    group, = experiment.read(RECORD)["groups"]
    return experiment.read(RECORD), group, told


def test_four_samples_are_counted_recorded_and_do_not_qualify(make):
    record, group, told = four_samples(make)
    assert record["status"] == "not-qualified" and record["authority"] == "none"
    assert (group["falsePass"]["errors"], group["falsePass"]["n"]) == (1, 2)
    assert (group["falseBlock"]["errors"], group["falseBlock"]["n"]) == (1, 2)
    assert (group["abstention"]["errors"], group["abstention"]["n"]) == (1, 4)
    for text in ("minimumPerClass", "maximumFalsePassBound", "maximumFalseBlockBound",
                 "maximumAbstentionRate"):
        assert any(line.startswith(text) for line in group["missed"]), text
        assert text in told
    assert told.count("5.0000 %") >= 2 and "20.0000 %" in told
    first = told.splitlines()[0]
    assert "SYNTHETIC" in first and "not-qualified" in first


def test_a_single_sample_is_recorded_and_does_not_qualify(make):
    experiment = make(qualification=LIMITS, per_label=1)
    experiment.edit(PLAN, lambda plan: {**plan, "samples": plan["samples"][:1]})
    experiment.command("calibrate-run", PLAN, expect=0)
    experiment.write_approval()
    experiment.command("calibrate-finalize", PLAN, APPROVAL, expect=4)
    record = experiment.read(RECORD)
    assert (record["status"], len(record["samples"])) == ("not-qualified", 1)


def test_a_pass_sample_answered_unknown_is_still_a_false_block_and_an_abstention_too(make):
    _, group, _ = four_samples(make, **{"s10-pass-2": "unknown"})
    assert (group["falseBlock"]["errors"], group["falseBlock"]["n"]) == (1, 2)
    assert (group["abstention"]["errors"], group["abstention"]["n"]) == (2, 4)


def test_none_of_30_meets_the_minimum_misses_five_percent_and_starts_no_judge(make):
    limits = {**LIMITS, "minimumPerClass": 30, "maximumFalsePassBound": "0.05"}
    experiment = make(qualification=limits, development=1)
    experiment.command("calibrate-run", PLAN, "--jobs", "2", expect=0)
    experiment.write_approval()
    told = experiment.command("calibrate-finalize", PLAN, APPROVAL, expect=4).stdout
    printed, = (line for line in told.splitlines() if line.strip().startswith("false pass"))
    assert "9.5034 %" in printed and "0 of 30" in printed and "29 more" in told
    group, = experiment.read(RECORD)["groups"]
    assert [text.partition(":")[0] for text in group["missed"]] == ["maximumFalsePassBound"]
    experiment.command("check", experiment.write_policy(), expect=0)
    plan = experiment.write_plan("baseline", "development")
    experiment.command("run", plan, expect=0)
    refused(experiment, "judge", plan, saying=("not-qualified", "maximumFalsePassBound"))
    assert not experiment.receipts(".judge.")
    experiment.command("score", plan, expect=4)
    row = experiment.checks("baseline", "development")["d01", "grounded-1"]
    assert (row["verdict"], row["reason"]) == ("unknown", "not-qualified")


def test_check_says_before_paying_what_the_samples_could_prove(make):
    experiment = make(qualification={**LIMITS, "minimumPerClass": 100})
    told = experiment.command("check", PLAN, expect=0).stdout
    for label in LABELS:
        line, = (line for line in told.splitlines() if f"100 samples labelled {label}" in line)
        assert "2.9514 %" in line


@pytest.mark.parametrize("mode", ["always-pass", "always-unknown"])
def test_a_judge_that_does_not_look_is_not_qualified(make, mode):
    experiment = make(qualification=LIMITS, settings={"OFFLINE_JUDGE": mode})
    experiment.script_path.write_text('{"rules": []}')
    experiment.command("calibrate-run", PLAN, "--jobs", "2", expect=(0, 4))
    experiment.write_approval()
    experiment.command("calibrate-finalize", PLAN, APPROVAL, expect=4)
    assert experiment.read(RECORD)["status"] == "not-qualified"


# ---- The record ------------------------------------------------------------------------------


def test_the_record_tells_what_it_rests_on(ready):
    experiment = ready("calibrate", calibration={"validDays": 7})
    record = experiment.read(RECORD)
    ends = [terminal["completedAtUtc"] for name, terminal in
            experiment.receipts(".calibrate.").items() if name.endswith("terminal.json")]
    assert record["issuedAtUtc"] == max(ends)
    assert datetime.fromisoformat(record["expiresAtUtc"]) - datetime.fromisoformat(
        max(ends)) == timedelta(days=7)
    assert record["taskId"] == "daily-takings" and record["labelKind"] == "synthetic"
    assert record["reviewers"] == ["Rita Reader", "Sam Second"]
    assert record["attemptNumber"] == 1 and record["attackSamples"] == 0
    assert record["calibrationPlan"] == experiment.ref(PLAN)
    assert record["exclusions"] == experiment.read(PLAN)["exclusions"]
    assert record["kind"] == "calibration" and record["authority"] == "none"


def test_samples_that_try_to_talk_the_judge_round_are_counted(make):
    experiment = make()
    experiment.edit(PLAN, lambda plan: plan["samples"][1].update(attack=True))
    experiment.calibrate()
    assert experiment.read(RECORD)["attackSamples"] == 1


def test_an_accepted_judge_is_told_what_its_samples_exclude(ready):
    experiment = ready("calibrate")
    told = experiment.command("calibrate-finalize", PLAN, APPROVAL, expect=0).stdout
    assert "accepted" in told and "95 %" in told and "exists already" in told
    assert " qualified (" not in told


def test_ninety_days_are_the_rule(ready):
    record = ready("calibrate").read(RECORD)
    assert datetime.fromisoformat(record["expiresAtUtc"]) - datetime.fromisoformat(
        record["issuedAtUtc"]) == timedelta(days=90)


@pytest.mark.parametrize("field, value", [
    ("minimumPerClass", 9), ("minimumPerClass", True), ("minimumPerClass", "30"),
    ("maximumFalsePassBound", "0"), ("maximumFalsePassBound", "0.500001"),
    ("maximumFalseBlockBound", "0"), ("maximumFalseBlockBound", "1"),
    ("maximumUnsupportedPassBound", "-0.1"), ("maximumUnsupportedPassBound", "5 %"),
    ("maximumAbstentionRate", "0.6"), ("maximumAbstentionRate", "1e-1"),
    ("requireTwoReviewers", 1), ("jointConfidence", "no"), ("validDays", 0)])
def test_a_limit_out_of_its_range_is_refused(ready, field, value):
    experiment = ready("calibrate")

    def change(plan):
        if field == "validDays":
            plan[field] = value
        else:
            plan["qualification"] = {**LIMITS, field: value}
    experiment.edit(PLAN, change)
    told = refused(experiment, "check", PLAN, saying=(field,))
    assert len(told.splitlines()) == 1


# ---- Labels in a plan ------------------------------------------------------------------------


def disagreeing(plan, adjudication=None, second="Sam Second"):
    """Let a second reviewer disagree on the first sample, and a third decide if given."""
    row = plan["samples"][0]
    row["secondReview"] = {"reviewedBy": second, "humanVerdict": "fail",
                           "humanEvidence": "Read."}
    if adjudication:
        row["adjudication"] = adjudication
    plan["reviewers"] = REVIEWERS


def decided(**fields):
    """An adjudication by a third person, with some fields replaced or (None) left out."""
    row = {"reviewedBy": "Tom Third", "humanVerdict": "pass", "reason": "The roll says so.",
           **fields}
    return {name: value for name, value in row.items() if value is not None}


FIVE_REFUSALS = {
    "no-adjudication": (lambda plan: disagreeing(plan), "disagree"),
    "adjudicated-by-one-of-the-two": (
        lambda plan: disagreeing(plan, decided(reviewedBy="Sam Second")), "different people"),
    "without-a-reason": (
        lambda plan: disagreeing(plan, decided(reason=None)), "reason: missing"),
    "reviewer-not-on-the-list": (
        lambda plan: disagreeing(plan, decided(), "Nobody Known"), "reviewers"),
    "the-same-name-in-other-case": (
        lambda plan: disagreeing(plan, decided(), "RITA READER"), "different people"),
}


@pytest.mark.parametrize("change, word", FIVE_REFUSALS.values(), ids=FIVE_REFUSALS)
def test_a_disagreement_that_nobody_settled_is_refused_before_paying(ready, change, word):
    experiment = ready("calibrate")
    experiment.edit(PLAN, lambda plan: change(plan))
    experiment.edit(PLAN, lambda plan: plan.update(resultDir="results/again"))
    refused(experiment, "calibrate-run", PLAN, saying=(word,))


def test_a_sample_that_only_one_person_read_is_refused_where_two_are_required(make):
    experiment = make(qualification={**LIMITS, "requireTwoReviewers": True}, per_label=2)
    experiment.command("check", PLAN, expect=0)
    experiment.edit(PLAN, lambda plan: plan["samples"][3].pop("secondReview") and None)
    told = refused(experiment, "calibrate-run", PLAN, saying=("s10-fail-2", "secondReview"))
    assert len(told.splitlines()) == 1


def test_an_adjudicated_label_counts_and_both_reviews_stay(make):
    experiment = make(script=[judge_says("s10-pass-1", "fail")])
    experiment.edit(PLAN, lambda plan: disagreeing(plan, decided(humanVerdict="fail")))
    experiment.edit(PLAN, lambda plan: plan["samples"].append(experiment.sample_row(
        "s10-pass-2", 1, "pass")))
    experiment.calibrate()
    first = experiment.read(RECORD)["samples"][0]
    assert (first["id"], first["label"]) == ("s10-pass-1", "fail")
    kept = experiment.read(PLAN)["samples"][0]
    assert (kept["humanVerdict"], kept["secondReview"]["humanVerdict"]) == ("pass", "fail")


def test_two_samples_of_one_criterion_label_and_family_are_refused(make):
    experiment = make(per_label=2)
    experiment.edit(PLAN, lambda plan: plan["samples"][1].update(
        caseGroup=" SHOP-S10-pass-1 "))
    told = refused(experiment, "calibrate-run", PLAN, saying=("s10-pass-1", "s10-pass-2"))
    assert "family" in told


def test_one_family_may_give_a_sample_for_each_label(make):
    experiment = make()
    experiment.edit(PLAN, lambda plan: [row.update(caseGroup="one shop")
                                        for row in plan["samples"]] and None)
    experiment.command("check", PLAN, expect=0)


def test_one_input_under_two_family_names_is_refused(make):
    experiment = make(per_label=2)

    def same_input(plan):
        plan["samples"][1]["input"] = plan["samples"][0]["input"]
    experiment.edit(PLAN, same_input)
    refused(experiment, "calibrate-run", PLAN, saying=("s10-pass-1", "s10-pass-2", "input"))


def test_the_same_input_and_output_twice_under_one_criterion_is_refused(make):
    experiment = make()

    def twice(plan):
        plan["samples"].append({**plan["samples"][0], "id": "again", "humanVerdict": "fail"})
    experiment.edit(PLAN, twice)
    refused(experiment, "calibrate-run", PLAN, saying=("s10-pass-1", "$.samples[3]"))


# ---- No tuning on the test -------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """An experiment whose judge passed one of three samples that a person failed."""
    experiment = Experiment(tmp_path_factory.mktemp("seen"), qualification=LIMITS, per_label=3,
                            script=[judge_says("s10-fail-1", "pass")])
    experiment.calibrate(expect=(0, 4))
    return experiment


@pytest.fixture
def again(seen, tmp_path):
    """A copy of it, to calibrate again."""
    return seen.copied(tmp_path)


def keep(wanted):
    """A change of the plan that keeps the samples which `wanted` takes."""
    return lambda plan: {**plan, "samples": [row for row in plan["samples"] if wanted(row)]}


def bad(row):
    """Whether a row is the sample that the judge got wrong."""
    return row["input"]["file"].startswith("samples/s10-fail-1/")


def relabelled(plan):
    next(row for row in plan["samples"] if bad(row))["humanVerdict"] = "pass"


def reviewed_once_more(plan):
    row = next(row for row in plan["samples"] if bad(row))
    row["humanVerdict"] = "pass"
    row["secondReview"] = {"reviewedBy": "Sam Second", "humanVerdict": "pass",
                           "humanEvidence": "Read again."}


def dropped_under_new_ids(plan):
    return {**plan, "samples": [{**row, "id": row["id"] + "-b"} for row in plan["samples"]
                                if not bad(row)]}


def dropped_and_slice_renamed(plan):
    return {**plan, "samples": [{**row, "slice": "new"} for row in plan["samples"]
                                if not bad(row)]}


def repeated_under_new_ids(plan):
    return {**plan, "samples": [{**row, "id": row["id"] + "-b"} for row in plan["samples"]]}


SECOND_TRIES = [keep(lambda row: not bad(row)), relabelled, reviewed_once_more,
                dropped_under_new_ids, dropped_and_slice_renamed, repeated_under_new_ids]


@pytest.mark.parametrize("change", SECOND_TRIES, ids=[
    "dropped", "relabelled", "reviewed-once-more", "dropped-under-new-ids",
    "dropped-and-slice-renamed", "repeated-under-new-ids"])
def test_a_second_try_on_seen_samples_does_not_improve_the_bound(again, change):
    again.rules()                                    # the judge would now get everything right
    told = rejudge(again, "second", change)
    assert bound_of(again, "second.json") >= bound_of(again, RECORD)
    assert again.read("second.json")["attemptNumber"] == 2 and "attempt 2" in told
    assert again.read("second.json")["earlierReceipts"]
    assert percent(bound_of(again, RECORD)) in told


def test_dropping_a_sample_in_the_same_result_directory_does_not_improve_the_bound(again):
    plan = again.read(PLAN)
    plan = {**dropped_under_new_ids(plan), "calibrationOutputFile": "second.json"}
    again.write("second-plan.json", plan)
    done = again.command("calibrate-run", "second-plan.json", expect=(0, 3, 4))
    if done.returncode == 3:
        assert plan["resultDir"] in done.stderr
        return
    rejudge(again, "second", lambda _: plan)
    assert bound_of(again, "second.json") >= bound_of(again, RECORD)


def reword(experiment, plan):
    """Let every sample of a plan ask a criterion that says the same in other words."""
    experiment.write("criteria/criterion-2.txt", "Reworded: the amount is the till roll's.\n")
    return {**plan, "samples": [{**row, "criterion": experiment.ref("criteria/criterion-2.txt")}
                                for row in plan["samples"]]}


def test_samples_seen_under_other_words_prove_nothing_about_the_new_ones(again):
    again.rules()
    rejudge(again, "second", lambda plan: reword(again, plan))
    assert bound_of(again, "second.json", criterion=2) == 1
    group, = again.read("second.json")["groups"]
    assert group["falsePass"]["n"] == 0


def test_new_samples_count_under_reworded_criteria_beside_seen_ones_that_do_not(again):
    def with_new(plan):
        plan = reword(again, plan)
        row = again.sample_row("fresh", 2, "fail")
        return {**plan, "samples": [*plan["samples"], row]}
    rejudge(again, "second", with_new)
    group, = again.read("second.json")["groups"]
    assert (group["falsePass"]["errors"], group["falsePass"]["n"]) == (0, 1)


def test_rewording_and_back_again_does_not_improve_the_bound(again):
    again.rules()
    rejudge(again, "second", lambda plan: reword(again, keep(bad)(plan)))
    rejudge(again, "third", lambda plan: plan)
    assert bound_of(again, "third.json") >= bound_of(again, RECORD)


def test_an_adjudicated_relabelling_counts_with_the_new_label(again):
    def adjudicated(plan):
        plan["reviewers"] = REVIEWERS
        row = next(row for row in plan["samples"] if bad(row))
        row["secondReview"] = {"reviewedBy": "Sam Second", "humanVerdict": "pass",
                               "humanEvidence": "Read."}
        row["adjudication"] = decided(humanVerdict="pass")
    rejudge(again, "second", adjudicated)
    group, = again.read("second.json")["groups"]
    assert (group["falsePass"]["errors"], group["falsePass"]["n"]) == (0, 2)


def test_new_samples_add_to_what_was_seen(again):
    rejudge(again, "second", lambda plan: plan["samples"].extend(
        again.sample_row(f"fresh-{number}", 1, "fail") for number in range(4)))
    group, = again.read("second.json")["groups"]
    assert (group["falsePass"]["errors"], group["falsePass"]["n"]) == (1, 7)


def test_other_samples_of_the_same_families_do_not_make_more_families(again):
    def others(plan):
        kept = [row for row in plan["samples"] if row["humanVerdict"] != "fail"]
        taken = [row["caseGroup"] for row in plan["samples"] if row["humanVerdict"] == "fail"]
        return {**plan, "samples": kept + [
            {**again.sample_row(f"fresh-{number}", 1, "fail"), "caseGroup": family}
            for number, family in enumerate(taken)]}
    again.rules()
    rejudge(again, "second", others)
    assert bound_of(again, "second.json") >= bound_of(again, RECORD)


def test_a_call_that_was_never_served_is_no_earlier_judgment(make):
    experiment = make(script=[{"purpose": "judge", "status": 401}])
    experiment.command("calibrate-run", PLAN, expect=(3, 4, 6))
    assert len(experiment.receipts(".calibrate.")) == 2, "one call, refused by the server"
    experiment.rules()

    def relabelled_first(plan):
        plan["samples"][0]["humanVerdict"] = "fail"
        plan["samples"].append(experiment.sample_row("s10-pass-2", 1, "pass"))
    experiment.rules(judge_says("s10-pass-1", "fail"))
    rejudge(experiment, "second", relabelled_first, expect=0)
    assert experiment.read("second.json")["status"] == "accepted"


def test_a_later_calibration_does_not_change_an_earlier_record(again):
    before = again.path(RECORD).read_bytes()
    rejudge(again, "second", lambda plan: plan)
    told = again.command("calibrate-finalize", PLAN, APPROVAL, expect=4).stdout
    assert "exists already" in told and again.path(RECORD).read_bytes() == before


def class_in(experiment, record, name="falsePass"):
    """(errors, n) of one class of the only group of a record."""
    group, = experiment.read(record)["groups"]
    return group[name]["errors"], group[name]["n"]


def test_a_later_plan_does_not_replace_the_first_verdict_of_this_one(make):
    experiment = make(qualification=LIMITS, per_label=3, spending={"callLimit": 4},
                      script=[judge_says("s10-fail-1", "pass")])
    experiment.command("calibrate-run", PLAN, expect=6)
    experiment.rules()
    experiment.write_spending(callLimit=1000)
    plan = experiment.read(PLAN)
    experiment.write("y-plan.json", {
        **plan, "resultDir": "results/y", "calibrationOutputFile": "y.json",
        "samples": [{**row, "humanVerdict": "pass"} for row in plan["samples"]
                    if row["id"] == "s10-fail-1"]})
    experiment.command("calibrate-run", "y-plan.json", expect=0)
    experiment.command("calibrate-run", PLAN, expect=0)
    experiment.write_approval()
    experiment.command("calibrate-finalize", PLAN, APPROVAL, expect=4)
    assert class_in(experiment, RECORD) == (1, 3)


def test_families_seen_again_and_again_do_not_make_n_grow(again):
    taken = [row["caseGroup"] for row in again.read(PLAN)["samples"]
             if row["humanVerdict"] == "fail"]
    again.rules()
    for turn in ("second", "third", "fourth"):
        def others(plan, turn=turn):
            kept = [row for row in plan["samples"] if row["humanVerdict"] != "fail"]
            return {**plan, "samples": kept + [
                {**again.sample_row(f"{turn}-{number}", 1, "fail"), "caseGroup": family}
                for number, family in enumerate(taken)]}
        rejudge(again, turn, others)
        assert class_in(again, f"{turn}.json") == (1, 3)


def test_pairs_that_the_criterion_was_tuned_on_never_count_again(again):
    again.rules()
    again.write("criteria/reworded.txt", "The amount is that of the till roll.\n")

    def reworded(plan):
        for row in plan["samples"]:
            row["criterion"] = again.ref("criteria/reworded.txt")

    def fresh(plan):
        row = {**again.sample_row("fresh", 1, "fail"),
               "criterion": again.ref("criteria/reworded.txt")}
        return {**plan, "samples": [row]}
    rejudge(again, "second", reworded)
    assert class_in(again, "second.json") == (0, 0)
    rejudge(again, "third", fresh)
    assert class_in(again, "third.json") == (0, 1)


def test_a_judges_own_failure_is_not_tried_again_in_another_plan(make):
    experiment = make(qualification=LIMITS, per_label=3, script=[
        {**judge_says("s10-pass-1", "pass"), "quote": "words that nobody wrote"}])
    experiment.calibrate(expect=(0, 4))
    assert class_in(experiment, RECORD, "abstention")[0] == 1
    experiment.rules()
    rejudge(experiment, "second", lambda plan: plan)
    assert class_in(experiment, "second.json", "abstention")[0] == 1


def test_another_judge_is_measured_on_families_that_an_earlier_one_saw(make):
    experiment = make()
    experiment.calibrate()
    environment = experiment.read("environment.json")
    experiment.write("environment-2.json", {**environment, "judgeModelId": "synthetic-other"})

    def fresh(plan):
        return {**plan, "environment": experiment.ref("environment-2.json"), "samples": [
            {**experiment.sample_row(f"new-{label}", 1, label),
             "caseGroup": f"shop-s10-{label}-1"} for label in LABELS]}
    rejudge(experiment, "second", fresh, expect=0)
    assert experiment.read("second.json")["status"] == "accepted"


def test_one_source_in_two_families_of_samples_is_refused(make):
    experiment = make(per_label=2)
    experiment.edit(PLAN, lambda plan: plan["samples"][1].update(
        sourceId=plan["samples"][0]["sourceId"]))
    refused(experiment, "calibrate-run", PLAN, saying=("$.samples[1].caseGroup", "one source"))


def test_a_call_that_ended_after_the_record_is_unknown_to_it_for_ever(again):
    again.rules()                                    # the judge would now get everything right
    rejudge(again, "second", lambda plan: plan)
    record = again.path("second.json").read_bytes()
    first = again.path("results/calibration/s10-fail-1.calibrate.1.terminal.json")
    told = first.read_bytes()
    again.path("second.json").unlink()
    first.unlink()                                   # as if that call were still running
    again.command("calibrate-finalize", "second-plan.json", "second-approval.json",
                  expect=(0, 4))
    open_then = again.path("second.json").read_bytes()
    first.write_bytes(told.replace(b'"completedAtUtc":"2', b'"completedAtUtc":"3'))
    told = again.command("calibrate-finalize", "second-plan.json", "second-approval.json",
                         expect=(0, 4)).stdout
    assert "exists already" in told and again.path("second.json").read_bytes() == open_then
    assert open_then != record


def test_an_earlier_verdict_that_its_output_does_not_hold_is_refused(again):
    rejudge(again, "second", lambda plan: plan)
    first = again.path("results/calibration/s10-fail-1.calibrate.1.terminal.json")
    raw = first.read_bytes()
    assert b'"verdict":"pass"' in raw
    first.write_bytes(raw.replace(b'"verdict":"pass"', b'"verdict":"fail"'))
    told = again.command("calibrate-finalize", "second-plan.json", "second-approval.json",
                         expect=3).stderr
    assert "s10-fail-1.calibrate.1.terminal.json" in told and "restore" in told


# ---- What a calibration covers ---------------------------------------------------------------


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory):
    """An experiment calibrated without exclusions."""
    root = tmp_path_factory.mktemp("unguarded")
    experiment = Experiment(root, calibration={"exclusions": []})
    return experiment.walk(until="calibrate")


def test_a_calibration_of_one_slice_is_refused_for_a_case_of_another(ready):
    experiment = ready("calibrate", slices=("en",), calibration={"exclusions": []})
    experiment.command("check", experiment.write_policy(), expect=0)
    experiment.edit("heldout-cases.json", lambda cases: cases["cases"][1].update(slice="tr"))
    refused(experiment, "check", experiment.write_policy(),
            saying=("h02.grounded-1", "slice", "tr"))


def test_a_calibration_without_slices_is_refused_for_a_case_that_has_one(unguarded, tmp_path):
    experiment = unguarded.copied(tmp_path)
    experiment.edit("heldout-cases.json", lambda cases: cases["cases"][0].update(slice="tr"))
    refused(experiment, "check", experiment.write_policy(),
            saying=("h01.grounded-1", "slice", "tr"))


def test_a_calibration_for_another_task_is_refused(ready):
    experiment = ready("calibrate")
    told = refused(experiment, "check", experiment.write_policy(taskId="weekly-takings"))
    assert "daily-takings" in told and "weekly-takings" in told


def test_a_calibration_of_another_criterion_is_refused(unguarded, tmp_path):
    experiment = unguarded.copied(tmp_path)
    experiment.write("criteria/criterion-2.txt", "Criterion 1, reworded.\n")
    experiment.tests = {"h01": [{"id": "grounded-1", "kind": "judge", "critical": False,
                                 "criterion": experiment.ref("criteria/criterion-2.txt")}]}
    experiment.write_case_files("h01")
    experiment.write_inventory("heldout")
    refused(experiment, "check", experiment.write_policy(), saying=("h01.grounded-1",))


@pytest.mark.parametrize("field, value", [
    ("judgeModelId", "another-judge"), ("judgeBudgetUsd", "0.06"), ("timeoutSeconds", 61)])
def test_a_calibration_of_another_judge_is_refused(ready, field, value):
    experiment = ready("calibrate")
    other = {**experiment.read("environment.json"), field: value}
    experiment.write("other-environment.json", other)
    policy = experiment.write_policy(environment=experiment.ref("other-environment.json"))
    refused(experiment, "check", policy, saying=("judge identity", "differ"))


# ---- Leakage ---------------------------------------------------------------------------------


def share(row, other, what):
    """Let an inventory row or sample share family, source or input with another."""
    if what == "input":
        row["input"] = other["input"]
    else:
        row[what] = other[what].upper() + " "


WHATS = {"caseGroup": "family", "sourceId": "source", "input": "input"}


@pytest.mark.parametrize("what", WHATS)
@pytest.mark.parametrize("split, case", [("development", "d01"), ("heldout", "h01")])
def test_a_sample_that_shares_with_an_exclusion_is_refused_before_paying(
        make, what, split, case):
    experiment = make()
    inventory = experiment.read(f"{split}-cases.json")
    experiment.edit(PLAN, lambda plan: share(plan["samples"][0], inventory["cases"][0], what))
    refused(experiment, "calibrate-run", PLAN, saying=(
        f"{PLAN} s10-pass-1", f"{split}-cases.json {case}", WHATS[what]))


def test_empty_exclusions_are_said_to_verify_nothing(make):
    experiment = make(calibration={"exclusions": []})
    told = experiment.command("calibrate-run", PLAN, expect=0)
    assert "absence of leakage not verified" in told.stdout + told.stderr


@pytest.mark.parametrize("what", WHATS)
def test_a_heldout_case_that_shares_with_a_sample_is_refused(unguarded, tmp_path, what):
    experiment = unguarded.copied(tmp_path)
    row = experiment.read(PLAN)["samples"][1]
    experiment.edit("heldout-cases.json", lambda cases: share(cases["cases"][0], row, what))
    refused(experiment, "check", experiment.write_policy(), saying=(
        "heldout-cases.json h01", f"{PLAN} {row['id']}", WHATS[what]))


@pytest.mark.parametrize("what", WHATS)
def test_a_development_case_that_shares_with_a_sample_is_warned_of(unguarded, tmp_path, what):
    experiment = unguarded.copied(tmp_path)
    row = experiment.read(PLAN)["samples"][1]
    experiment.edit("development-cases.json", lambda cases: share(cases["cases"][0], row, what))
    told = experiment.command("check", experiment.write_policy(), expect=0).stderr
    line, = (line for line in told.splitlines() if f"{PLAN} {row['id']}" in line)
    assert line.startswith("warning") and "development-cases.json d01" in line
    assert WHATS[what] in line


@pytest.mark.parametrize("what", WHATS)
def test_a_sample_that_shares_with_a_retired_case_is_refused(unguarded, tmp_path, what):
    experiment = unguarded.copied(tmp_path)
    row = experiment.read(PLAN)["samples"][1]
    experiment.case_ids["heldout"] = ["r01"]
    experiment.write_case_files("r01")
    retired = {"split": "heldout", "testVersion": "1", "permittedBy": "Olga Owner",
               "cases": [experiment.case_row("r01")]}
    share(retired["cases"][0], row, what)
    experiment.write("retired-cases.json", retired)
    policy = experiment.write_policy(retiredCases=[experiment.ref("retired-cases.json")])
    refused(experiment, "check", policy, saying=(
        "retired-cases.json r01", f"{PLAN} {row['id']}", WHATS[what]))


@pytest.mark.parametrize("what", WHATS)
def test_a_heldout_case_that_was_retired_is_refused(make, what):
    experiment = make(judge=False)
    experiment.write_case_files("r01")
    retired = {"split": "heldout", "testVersion": "1", "permittedBy": "Olga Owner",
               "cases": [experiment.case_row("r01")]}
    share(retired["cases"][0], experiment.case_row("h01"), what)
    experiment.write("retired-cases.json", retired)
    policy = experiment.write_policy(retiredCases=[experiment.ref("retired-cases.json")])
    refused(experiment, "check", policy, saying=(
        "heldout-cases.json h01", "retired-cases.json r01", WHATS[what]))


@pytest.mark.parametrize("what", WHATS)
def test_a_development_case_that_shares_with_a_heldout_one_is_refused(make, what):
    experiment = make(judge=False)
    row = experiment.read("heldout-cases.json")["cases"][1]
    experiment.edit("development-cases.json", lambda cases: share(cases["cases"][0], row, what))
    refused(experiment, "check", experiment.write_policy(), saying=(
        "development-cases.json d01", "heldout-cases.json h02", WHATS[what]))


@pytest.mark.parametrize("first, second", [
    ("Task: what did the shop take?", "  TASK:\twhat did\n the shop take? "),
    ("ﬁve ﬁgures", "five figures")])
def test_equal_normalised_inputs_in_two_families_are_refused(make, first, second):
    experiment = make(judge=False, inputs={"h01": first, "h02": second})
    refused(experiment, "check", experiment.write_policy(), saying=(
        "heldout-cases.json h01", "heldout-cases.json h02", "input"))


def test_equal_inputs_in_one_family_are_accepted(make):
    experiment = make(judge=False, inputs={"h01": "One task.", "h02": "One task."},
                      families={"h01": "shop", "h02": "Shop"})
    experiment.command("check", experiment.write_policy(), expect=0)


SECRET = "the till was counted thrice by 11:30, Sir"[:40]


def leaking(make, text, **options):
    """An experiment whose candidate holds a text and whose held-out input holds SECRET."""
    assert len(SECRET) == 40
    experiment = make(development=1, judge=False, inputs={"h01": f"Task h01: <{SECRET}>"},
                      **options)
    path = experiment.path(experiment.skill_file("candidate"))
    path.write_text(f"{path.read_text()}\nAlways say ({text}).\n")
    return experiment


@pytest.mark.parametrize("form", [str, str.upper, lambda text: text.replace(" ", "\n  ")])
def test_40_characters_of_a_heldout_text_are_refused_before_the_first_call(make, form):
    experiment = leaking(make, form(SECRET)).walk(until="diagnose")
    plan = experiment.write_plan("candidate", "development")
    refused(experiment, "run", plan, saying=("cases/h01/input.txt",))


def test_39_characters_and_a_literal_tests_value_are_listed_and_hold_nothing(make):
    tests = {"h01": [{"id": "word", "kind": "contains", "critical": False,
                      "value": "ALWAYS say"}]}
    experiment = leaking(make, SECRET[:39], tests=tests, answers={
        ("candidate", "h01"): "Always say nothing."}).walk(until="compare")
    told = experiment.read("comparison.json")
    assert told["status"] == "eligible-for-manual-review"
    for file, text in (("input.txt", SECRET[:20].lower()), ("expected.json", "always say")):
        assert any(f"cases/h01/{file}" in note and text in note
                   for note in told["candidateNotes"]), file


def test_the_end_of_a_heldout_text_is_listed_but_no_value_that_is_to_be_absent(make):
    tests = {"h01": [{"id": "word", "kind": "not_contains", "critical": False,
                      "value": "ALWAYS say"}]}
    experiment = leaking(make, f"{SECRET[-19:]}>", tests=tests).walk(until="compare")
    note, = experiment.read("comparison.json")["candidateNotes"]
    assert "cases/h01/input.txt" in note and SECRET[-19:].lower() in note


def test_a_candidate_may_hold_what_the_baseline_holds_already(make):
    experiment = make(development=1, judge=False, inputs={"h01": f"Task h01: <{SECRET}>"})
    for variant in ("baseline", "candidate"):
        path = experiment.path(experiment.skill_file(variant))
        path.write_text(path.read_text() + SECRET + "\n")
    experiment.walk(until="compare")
    assert experiment.read("comparison.json")["status"] == "eligible-for-manual-review"


# ---- Expiry and revocation -------------------------------------------------------------------


def give_clock(experiment):
    """Let the program's clock run ahead by some days; return a function that sets how many."""
    days = experiment.root / "days"
    days.write_text("0")
    line = "    return datetime.now(timezone.utc)\n"
    source = PROGRAM.read_text("utf-8")
    assert source.count(line) == 1
    ahead = f"datetime.now(timezone.utc) + timedelta(days=int(open({str(days)!r}).read()))"
    experiment.program = experiment.root / "ahead.py"
    experiment.program.write_text(source.replace(line, f"    return {ahead}\n"), "utf-8")
    return lambda number: days.write_text(str(number))


def baseline_run(ready):
    """An experiment whose baseline ran on its development cases and was not judged yet."""
    experiment = ready("policy")
    experiment.command("run", experiment.write_plan("baseline", "development"), expect=0)
    return experiment, "baseline-development-plan.json"


def test_an_expired_calibration_lets_no_judge_be_called(ready):
    experiment, plan = baseline_run(ready)
    give_clock(experiment)(91)
    refused(experiment, "judge", plan, saying=("expired",))
    give_clock(experiment)(89)
    experiment.command("judge", plan, expect=0)


def test_a_revoked_calibration_lets_no_judge_be_called(ready):
    experiment, plan = baseline_run(ready)
    experiment.write_revocation()
    refused(experiment, "judge", plan, saying=("revoked",))


def test_a_revocation_of_another_calibration_changes_nothing(ready):
    experiment, plan = baseline_run(ready)
    experiment.write_revocation(calibrationSha256="0" * 64)
    experiment.command("judge", plan, expect=0)


def judge_and_meanwhile(experiment, plan, happen):
    """Say `judge` and let something happen during its first call; return what it printed."""
    pipe = experiment.root / "pipe"
    os.mkfifo(pipe)
    pending, = (receipt for name, receipt in experiment.receipts("s10-fail-1").items()
                if name.endswith("pending.json"))
    said = experiment.path("results/calibration/s10-fail-1.calibrate.1.stdout").read_bytes()
    experiment.rules({"purpose": "judge", "contains": "Task d01:", "capture": str(pipe)})
    judging = experiment.start("judge", plan)
    writer, limit = None, time.monotonic() + 60
    while writer is None and time.monotonic() < limit and judging.poll() is None:
        try:
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
    assert writer is not None, judging.communicate()
    happen()
    os.set_blocking(writer, True)
    with open(writer, "wb") as stream:
        stream.write(said.replace(pending["callId"].encode(), b"CALL-ID"))
    told = judging.communicate(timeout=60)
    assert judging.returncode in (3, 4, 6), told
    return "".join(told)


@pytest.mark.parametrize("reason", ["revoked", "expired"])
def test_a_calibration_that_lapses_while_judging_stops_it_and_the_judgment_is_kept(
        ready, reason):
    experiment, plan = baseline_run(ready)
    set_days = give_clock(experiment)
    happen = experiment.write_revocation if reason == "revoked" else lambda: set_days(91)
    told = judge_and_meanwhile(experiment, plan, happen)
    made = experiment.receipts("d01.grounded-1.judge")
    terminal, = (made[name] for name in made if name.endswith("terminal.json"))
    assert (terminal["status"], terminal["reason"]) == ("unqualified", reason)
    assert (terminal["verdict"], terminal["quote"]) == ("fail", POOR_MARK)
    assert not experiment.receipts("d02.grounded-1.judge"), "a lapsed judge was called"
    assert reason in told
    experiment.command("score", plan, "--accept-unknown", "1", expect=4)
    rows = experiment.checks("baseline", "development")
    assert (rows["d01", "grounded-1"]["verdict"], rows["d01", "grounded-1"]["reason"]) == (
        "unknown", reason)


def test_a_calibration_revoked_before_the_comparison_holds_it(ready):
    experiment = ready("heldout")
    experiment.write_revocation()
    experiment.compare(expect=4)
    told = experiment.read("comparison.json")
    assert told["status"] == "hold"
    assert any("revoked" in reason and "misread" in reason for reason in told["reasons"])


@pytest.mark.parametrize("lapse", ["revoked", "expired"])
def test_a_lapsed_calibration_lets_nothing_be_accepted_but_held(ready, lapse):
    experiment = ready("compare")
    set_days = give_clock(experiment)
    if lapse == "revoked":
        experiment.write_revocation()
    else:
        set_days(91)
    experiment.write_decision("accept")
    refused(experiment, "decide", "comparison.json", "decision.json", saying=(lapse,))
    experiment.write_decision("hold")
    experiment.command("decide", "comparison.json", "decision.json", expect=0)
    experiment.command("verify", "decision-receipt.json", expect=0)


def test_a_decision_made_in_time_stands_when_its_calibration_lapses_later(finished):
    give_clock(finished)(91)
    finished.write_revocation()
    assert "exists already" in finished.command(
        "decide", "comparison.json", "decision.json", expect=0).stdout
    finished.command("verify", "decision-receipt.json", expect=0)
