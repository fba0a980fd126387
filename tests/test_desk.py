"""The owner's desk: a whole experiment with few commands, and where one stands at every moment.

`Owner` is a person at the desk: material in a directory, answers to what only a person can say,
and a counter of commands. Everything else here looks at one draft or at one kind of status.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple
from unittest import mock

import pytest

import builder
from builder import Experiment, amount, good, poor, unsure

DESK = pathlib.Path(__file__).resolve().parent.parent / "examples" / "desk.py"
sys.path.insert(0, str(DESK.parent))
import desk as desk_program  # noqa: E402  (the path above is where it lies)

CRITERIA = ("grounded", "plain")
LABELLED = {"pass": good, "fail": poor, "unknown": unsure}
HASH = re.compile(r"[0-9a-f]{64}")

# What only a person can say, by field; a function is told the name of the row it stands in.
ANSWERS = {
    "modelId": "synthetic-writer-1", "judgeModelId": "synthetic-judge-1",
    "accountLabel": "no account", "budgetUsd": "0.10", "judgeBudgetUsd": "0.05",
    "spendLimitUsd": "100", "approvedBy": "Olga Owner", "permittedBy": "Olga Owner",
    "sourceRevision": "1", "taskId": "daily-takings", "labelKind": "synthetic",
    "reviewedBy": "Rita Reader", "humanEvidence": "Read beside the till roll.",
    "humanVerdict": lambda row: row.split("/")[-1].split("-")[0],
    "caseGroup": lambda row: "shop-" + row.replace("/", "-"),
    "sourceId": lambda row: "till-" + row.replace("/", "-"),
    "id": "figure", "value": lambda row: f"{amount(row)} euros",
    "status": "approved", "diagnosis": "The Skill does not ask for the amount.",
    "owner": "Olga Owner", "decision": "accept", "reason": "I read every output.",
    "acceptWithoutShownImprovement": "The shops are few."}


class Said(NamedTuple):
    """What a desk command left: its exit status and its streams."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """Both streams on one line, as words wrapped by the desk would read."""
        return " ".join(f"{self.stdout} {self.stderr}".split())


def desk(directory, *words: str, expect: int | None = 0):
    """Say one desk command on a directory; return its exit status and what it printed."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with (contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]),
          mock.patch.object(sys, "argv", [str(DESK)])):
        try:
            code = desk_program.main([str(directory), *words])
        except SystemExit as ended:
            code = ended.code
    told = []
    for stream in streams:
        stream.flush()
        told.append(stream.buffer.getvalue().decode("utf-8"))
    done = Said(code, *told)
    assert expect is None or code == expect, f"{words}: {done}"
    return done


def status(directory, *words: str) -> dict:
    """Return what status tells as data."""
    return json.loads(desk(directory, "status", "--json", *words).stdout)


def next_words(directory, *words: str) -> list[str]:
    """Return the command that status tells to type next, the program by its name alone."""
    words = shlex.split(status(directory, *words)["next"]["command"])
    return [pathlib.Path(words[1]).name, *words[2:]]


def row_of(told: dict, stage: str) -> dict:
    """Return the row of a stage."""
    return next(row for row in told["stages"] if row["stage"] == stage)


def answered(value, row: str = "", field: str = ""):
    """Return a document with every placeholder replaced by the owner's answer, notes apart."""
    if isinstance(value, str) and value.startswith("FILL:"):
        answer = ANSWERS[field]
        answer = answer(row) if callable(answer) else answer
        assert not HASH.search(answer), "a person pastes no hash"
        return answer
    if isinstance(value, dict):
        return {name: item if name.startswith("_") else answered(
            item, name if isinstance(item, dict) else row, name)
            for name, item in value.items()}
    if isinstance(value, list):
        return [answered(item, row, field) for item in value]
    return value


class Owner:
    """A person with material and a desk; counts the commands that are typed."""

    def __init__(self, root, development: int = 5, heldout: int = 12):
        self.root = pathlib.Path(root)
        self.directory = self.root / "experiment"
        self.directory.mkdir(parents=True)
        self.world = Experiment(self.root / "world", development=development, heldout=heldout)
        self.world.directory = self.directory
        self.typed: list[list[str]] = []
        self.material()

    def write(self, name: str, text: str) -> None:
        """Write one file of material."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def material(self) -> None:
        """Write criteria, cases, samples and the two Skills: everything but documents."""
        for criterion in CRITERIA:
            self.write(f"criteria/{criterion}.txt", f"The sentence is {criterion}.\n")
            for label, output in LABELLED.items():
                name = f"{label}-{criterion}"
                for part, text in (("input", f"Task {name}: what did shop {name} take in?\n"),
                                   ("truth", f"Till roll {name}: EUR {amount(name)}\n"),
                                   ("output", output(name))):
                    self.write(f"samples/{criterion}/{name}/{part}.txt", text)
        for split, cases in self.world.case_ids.items():
            for case in cases:
                place = f"material/{split}/{case}"
                self.write(f"{place}/input.txt",
                           f"Task {case}: what did shop {case} take in?\n")
                self.write(f"{place}/truth.txt", f"Till roll {case}: EUR {amount(case)}\n")
        for variant, text in (("baseline", builder.BASELINE_SKILL),
                              ("candidate", builder.CANDIDATE_SKILL)):
            self.write(f"skills/{variant}/.claude/skills/{builder.SKILL_NAME}/SKILL.md", text)

    def fill(self) -> None:
        """Fill every placeholder of every document, touching nothing else."""
        for path in sorted(self.directory.rglob("*.json")):
            text = path.read_text("utf-8")
            if "FILL:" in text and "results" not in path.parts:
                document = answered(json.loads(text), path.parent.name)
                path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")

    def choose(self, name: str, **fields) -> None:
        """Set fields that are the owner's choice."""
        path = self.directory / name
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")

    def draft(self, *words: str) -> str:
        """Type one desk command."""
        self.typed.append(["desk.py", str(self.directory), "draft", *words])
        return desk(self.directory, "draft", *words).stdout

    def loop(self, word: str, *files: str):
        """Type one command of the program."""
        paths = [str(self.directory / file) for file in files]
        self.typed.append(["eval_loop.py", word, *paths])
        return self.world.command(word, *paths, expect=0)


def plan(variant: str, split: str) -> str:
    """Return the usual name of a plan."""
    return f"{variant}-{split}-plan.json"


ALL_PLANS = [plan(variant, split) for split in builder.SPLITS for variant in builder.VARIANTS]


def walk(owner: Owner):
    """Do a whole experiment; yields after each command, before the placeholders are filled."""
    for command in commands(owner):
        command()
        yield
        owner.fill()


def commands(owner: Owner):
    """Yield the commands of a whole experiment in their order."""
    def draft(*words: str):
        return functools.partial(owner.draft, *words)

    def loop(*words: str):
        return functools.partial(owner.loop, *words)

    yield draft("start", "--cli", str(owner.world.cli))
    owner.choose("environment.json", setEnvironment={
        "OFFLINE_SCRIPT": str(owner.world.script_path)})
    yield draft("cases", "calibration-plan")
    yield loop("calibrate-run", "calibration-plan.json")
    yield draft("approval")
    yield loop("calibrate-finalize", "calibration-plan.json", "calibration-approval.json")
    yield draft("policy")
    for variant, before, after in (("baseline", "baseline-development", "diagnosis"),
                                   ("candidate", "candidate-development", "unlock")):
        yield draft(before)
        yield from (loop(word, plan(variant, "development"))
                    for word in ("run", "judge", "score"))
        yield draft(after)
    yield draft("heldout-plans")
    yield from (loop(word, *ALL_PLANS[2:]) for word in ("run", "judge"))
    yield from (loop("score", name) for name in ALL_PLANS[2:])
    yield loop("compare", *ALL_PLANS)
    yield draft("decision")
    yield loop("decide", "comparison.json", "decision.json")


def test_a_whole_experiment_takes_at_most_24_commands_and_status_tells_each_of_them(tmp_path):
    owner = Owner(tmp_path)
    foretold = [next_words(owner.directory)]
    for _ in walk(owner):
        foretold.append(next_words(owner.directory))
    assert len(owner.typed) <= 24
    assert foretold[0] == owner.typed[0][:4]          # the path of the CLI is the owner's
    assert foretold[1:-1] == owner.typed[1:]
    assert foretold[-1] == ["eval_loop.py", "verify",
                            str(owner.directory / "decision-receipt.json")]
    receipt = json.loads((owner.directory / "decision-receipt.json").read_bytes())
    assert receipt["decision"] == "accept"
    owner.world.command("verify", str(owner.directory / "decision-receipt.json"), expect=0)


def test_the_readme_tells_how_many_commands_do_the_work_with_a_judge_and_without():
    text = (DESK.parent.parent / "README.md").read_text("utf-8")
    steps = text.split("## From zero")[1].split("\n## ")[0].replace("\\\n", "")
    typed = [line for block in re.findall(r"(?ms)^```sh\n(.*?)^```$", steps)
             for line in block.splitlines() if line.startswith("python3 ")]
    work = [line for line in typed if not re.search(r" (check|verify) |review_page", line)]
    plain = [line for line in work if not re.search(r"\.py judge |calibrate-|approval", line)]
    assert f"{len(work)} of them do the work, {len(plain)} without a judge" in text
    assert len(work) <= 24


# ---- drafts ----------------------------------------------------------------------------------


@pytest.fixture
def owner(tmp_path) -> Owner:
    """Return a person with material for two cases of each split, and no document yet."""
    return Owner(tmp_path, development=2, heldout=2)


def until(owner: Owner, count: int) -> Owner:
    """Let the owner type the first `count` commands of the walk and fill what they leave."""
    for _, _ in zip(range(count), walk(owner), strict=False):
        pass
    owner.fill()
    return owner


def load(owner, name: str):
    """Return a document of an owner or of an experiment."""
    return json.loads((owner.directory / name).read_bytes())


def files(directory: pathlib.Path) -> dict[str, bytes]:
    """Return every file below a directory with its bytes."""
    return {str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*")) if path.is_file()}


def test_environment_names_the_resolved_executable_with_its_version_and_hash(owner):
    link = owner.root / "link-to-cli"
    link.symlink_to(owner.world.cli)
    told = desk(owner.directory, "draft", "environment", "--cli", str(link)).text
    document = load(owner, "environment.json")
    assert document["claudeExecutable"] == str(owner.world.cli)
    assert document["cliVersion"] == "1.0.0 (synthetic stand-in)"
    assert document["cliSha256"] == builder.sha256(owner.world.cli.read_bytes())
    assert document["modelId"].startswith("FILL:")
    assert "is a link" in told


def test_a_cli_that_is_not_there_is_named_with_the_option_that_names_another(owner):
    said = desk(owner.directory, "draft", "environment", "--cli", "/nowhere/claude", expect=3)
    assert "/nowhere/claude: no executable file" in said.text
    assert "--cli /path/claude" in said.text
    assert not (owner.directory / "environment.json").exists()


def test_a_cli_that_prints_no_version_is_refused_with_what_it_printed(owner):
    broken = owner.root / "broken"
    broken.write_text("#!/bin/sh\necho no such thing >&2\nexit 7\n")
    broken.chmod(0o755)
    said = desk(owner.directory, "draft", "environment", "--cli", str(broken), expect=3)
    assert "exit 7: no such thing" in said.text


def test_expected_has_a_judge_test_with_its_hash_for_each_criterion(owner):
    desk(owner.directory, "draft", "expected")
    tests = load(owner, "material/heldout/h02/expected.json")["tests"]
    assert [test["id"] for test in tests[1:]] == list(CRITERIA)
    for test in tests[1:]:
        file = owner.directory / test["criterion"]["file"]
        assert test["criterion"]["sha256"] == builder.sha256(file.read_bytes())


def test_cases_may_share_the_expected_file_of_their_directory(owner):
    desk(owner.directory, "draft", "expected", "meta", "--shared")
    assert not (owner.directory / "material/heldout/h01/expected.json").exists()
    owner.fill()
    desk(owner.directory, "draft", "cases")
    cases = load(owner, "heldout-cases.json")["cases"]
    assert {case["expected"]["file"] for case in cases} == {"material/heldout/expected.json"}


def test_a_case_directory_may_have_its_own_meta_file(owner):
    for case in ("d01", "d02"):
        owner.write(f"material/development/{case}/meta.json", json.dumps(
            {"caseGroup": f"family-{case}", "sourceId": f"source-{case}", "slice": "small"}))
    desk(owner.directory, "draft", "meta", "expected", "--split", "development")
    assert not load(owner, "material/development/meta.json")["cases"]
    owner.fill()
    desk(owner.directory, "draft", "cases", "--split", "development")
    row = load(owner, "development-cases.json")["cases"][1]
    assert (row["caseGroup"], row["slice"]) == ("family-d02", "small")
    assert row["sourceRevision"] == "1"


def test_without_any_meta_file_the_inventory_itself_is_to_be_filled_in(owner):
    desk(owner.directory, "draft", "expected")
    owner.fill()
    desk(owner.directory, "draft", "cases")
    row = load(owner, "development-cases.json")["cases"][0]
    assert row["caseGroup"].startswith("FILL:") and HASH.fullmatch(row["truth"]["sha256"])


def test_cases_outside_the_experiment_are_refused_with_the_copy_that_helps(owner):
    outside = owner.root / "outside"
    (outside / "d01").mkdir(parents=True)
    (outside / "d01" / "input.txt").write_text("x")
    said = desk(owner.directory, "draft", "cases", "--split", "development", "--from",
                str(outside), expect=3)
    assert "lies outside the experiment" in said.text
    assert f"cp -R {outside}" in said.text.replace("\\ ", "")


@pytest.mark.parametrize("part", ["input.txt", "truth.txt"])
def test_a_case_that_lacks_a_part_is_named(owner, part):
    desk(owner.directory, "draft", "expected", "meta")
    owner.fill()
    (owner.directory / "material/development/d02" / part).rename(
        owner.directory / "material/development/d02" / f"other-{part}")
    said = desk(owner.directory, "draft", "cases", expect=None if part == "input.txt" else 3)
    if part == "truth.txt":
        assert "material/development/d02: expected one file truth.txt, got none" in said.text
    else:      # a directory without input is no case
        assert len(load(owner, "development-cases.json")["cases"]) == 1


def test_an_inventory_waits_for_expected_files_that_are_to_be_filled_in(owner):
    desk(owner.directory, "draft", "meta")
    owner.fill()
    desk(owner.directory, "draft", "expected")
    said = desk(owner.directory, "draft", "cases", expect=3)
    assert "d01/expected.json: still to fill in: $.approvedBy, $.tests[0].id" in said.text
    assert not (owner.directory / "development-cases.json").exists()


def test_samples_need_a_criterion_that_their_directory_or_meta_file_names(owner):
    until(owner, 1)
    (owner.directory / "samples/grounded").rename(owner.directory / "samples/other")
    meta = load(owner, "samples/meta.json")
    meta["samples"] = {name.replace("grounded/", "other/"): {
        **row, **({"criterion": "criteria/grounded.txt"} if name == "grounded/pass-grounded"
                  else {})} for name, row in meta["samples"].items()}
    owner.choose("samples/meta.json", samples=meta["samples"])
    said = desk(owner.directory, "draft", "cases", "calibration-plan", expect=3)
    assert "samples/other/fail-grounded: its criterion is not told" in said.text


def test_the_calibration_plan_has_labels_reviewers_and_what_the_meta_file_registers(owner):
    until(owner, 1)
    owner.choose("samples/meta.json", validDays=30, qualification={"minimumPerClass": 10})
    said = desk(owner.directory, "draft", "cases", "calibration-plan", expect=4)
    assert "Wrong: - calibration-plan.json: $.qualification.maximumFalsePassBound" in said.text
    document = load(owner, "calibration-plan.json")
    assert (document["validDays"], document["reviewers"]) == (30, ["Rita Reader"])
    assert document["qualification"] == {"minimumPerClass": 10}
    labels = {row["id"]: row["humanVerdict"] for row in document["samples"]}
    assert labels["unknown-plain"] == "unknown" and len(labels) == 6
    assert [row["file"] for row in document["exclusions"]] == [
        "development-cases.json", "heldout-cases.json"]


def test_a_second_draft_changes_no_byte_of_any_document(owner):
    until(owner, 2)
    before = files(owner.directory)
    said = desk(owner.directory, "draft", "start", "cases", "calibration-plan")
    assert said.stdout.count("nothing mechanical would change") >= 9
    assert files(owner.directory) == before


def test_a_draft_over_a_changed_input_shows_what_would_change_and_writes_nothing(owner):
    until(owner, 2)
    owner.write("material/development/d01/input.txt", "Task d01: anew\n")
    before = files(owner.directory)
    said = desk(owner.directory, "draft", "cases", expect=3)
    assert "development-cases.json: is there; a draft would change 1 field" in said.text
    assert "$.cases[0].input.sha256" in said.text and "--update" in said.text
    assert files(owner.directory) == before


def test_a_draft_that_contradicts_another_document_says_what_and_exits_4(owner):
    until(owner, 1)
    meta = load(owner, "samples/meta.json")
    meta["samples"]["grounded/pass-grounded"]["sourceId"] = "till-h01"
    owner.choose("samples/meta.json", **meta)
    desk(owner.directory, "draft", "cases")
    said = desk(owner.directory, "draft", "calibration-plan", expect=4)
    assert "calibration-plan.json: written" in said.text
    assert ("Wrong: - leakage: calibration-plan.json pass-grounded and heldout-cases.json h01"
            in said.text)


def test_a_document_that_contradicts_another_one_is_not_this_drafts_fault(ready):
    experiment = ready("policy")
    experiment.edit("policy.json", lambda document: document.update(taskId="another"))
    said = desk(experiment.directory, "draft", "spending")
    assert "Wrong: - policy.json: $.taskId" in said.text


def test_an_approval_that_a_record_stands_on_is_not_updated(ready):
    experiment = ready("calibrate")
    experiment.edit("calibration-approval.json", lambda document: document.update(
        calibrationPlanSha256="0" * 64))
    record = experiment.read("calibration.json")
    record["calibrationApproval"]["sha256"] = experiment.sha("calibration-approval.json")
    experiment.write("calibration.json", record)
    said = desk(experiment.directory, "draft", "approval", "--update", expect=3)
    assert "receipts stand on its present bytes" in said.text


def test_update_keeps_the_old_bytes_and_the_owners_words_and_asks_for_the_name_again(owner):
    until(owner, 6)                        # up to the policy, which no receipt binds yet
    owner.choose("policy.json", minimumHeldoutGain="0.3", _why="as agreed")
    old = (owner.directory / "policy.json").read_bytes()
    calibration = (owner.directory / "calibration.json")
    calibration.write_bytes(calibration.read_bytes() + b" ")
    desk(owner.directory, "draft", "policy", "--update")
    document = load(owner, "policy.json")
    assert (document["minimumHeldoutGain"], document["_why"]) == ("0.3", "as agreed")
    assert document["calibration"]["sha256"] == builder.sha256(calibration.read_bytes())
    assert document["approvedBy"].startswith("FILL:")
    kept, = (owner.directory / "superseded").iterdir()
    assert kept.read_bytes() == old


def test_a_document_that_receipts_stand_on_is_not_updated(finished):
    finished.write("cases/d01/input.txt", "another task\n")
    before = finished.files()
    said = desk(finished.directory, "draft", "cases", "--update", expect=3)
    assert "development-cases.json: receipts stand on its present bytes" in said.text
    assert finished.files() == before


def test_a_document_that_cannot_be_read_is_never_replaced(owner):
    owner.write("spending.json", "{")
    said = desk(owner.directory, "draft", "spending", "--update", expect=3)
    assert "spending.json: is not JSON" in said.text
    assert (owner.directory / "spending.json").read_text() == "{"


def test_the_approval_lists_every_verdict_and_marks_those_that_differ(make):
    experiment = make(script=[{"purpose": "judge", "contains": "Till roll s10-pass-1",
                               "verdict": "fail", "evidence": "Not so.", "quote": ""}])
    experiment.command("calibrate-run", "calibration-plan.json")
    desk(experiment.directory, "draft", "approval")
    told = experiment.read("calibration-approval.json")["_read"]
    assert "3 verdicts" in told[0] and "1 of them differ" in told[0]
    assert told[1].startswith("s10-pass-1: people say pass, the judge says fail  DIFFERS")
    assert "Not so." in told[1]
    assert "DIFFERS" not in "".join(told[2:])
    approved = experiment.read("calibration-approval.json")["terminalHashes"]
    assert len(approved) == 3 and all(map(HASH.fullmatch, approved.values()))


def test_the_diagnosis_has_a_row_with_the_answer_for_each_check_that_failed(ready):
    experiment = ready("baseline_development")
    desk(experiment.directory, "draft", "diagnosis")
    rows = experiment.read("diagnosis.json")["observedFailures"]
    failed = {key for key, row in experiment.checks("baseline", "development").items()
              if row["verdict"] != "pass"}
    assert {(row["caseId"], row["testId"]) for row in rows} == failed and failed
    judged, = (row for row in rows if row["caseId"] == "d01" and "_judge" in row)
    assert judged["testId"] == "grounded-1" and judged["_asked"].startswith("judge criteria/")
    assert judged["_judge"] == (
        f"quote: {builder.POOR_MARK}; evidence: The output says so: fail.")
    assert rows[0]["_answer"] == poor("d01") and rows[0]["_asked"].startswith("contains ")
    assert rows[0]["diagnosis"].startswith("FILL:")


def test_no_answer_steers_the_terminal(ready):
    experiment = ready("baseline_development", answers={
        ("baseline", "d01"): f"{poor('d01')} \x1b]0;owned\x07"})
    said = desk(experiment.directory, "draft", "diagnosis")
    assert "owned" in said.stdout
    assert not re.search("[\x1b\x07]", said.stdout)


def test_the_unlock_says_what_development_shows_and_what_is_opened(ready):
    experiment = ready("candidate_development")
    desk(experiment.directory, "draft", "unlock")
    told = " ".join(experiment.read("heldout-unlock.json")["_read"])
    assert "baseline development: 2 of 6 checks passed" in told
    assert "candidate development: 6 of 6 checks passed" in told
    assert "2 cases of 2 families, 6 checks" in told


def test_the_unlock_says_that_a_candidate_with_a_critical_failure_can_never_be_eligible(ready):
    experiment = ready("candidate_development", answers={("candidate", "d01"): poor("d01")})
    desk(experiment.directory, "draft", "unlock")
    told = " ".join(experiment.read("heldout-unlock.json")["_read"])
    assert "Critical checks not passed: d01.figure" in told and "override" in told


def test_the_decision_holds_the_comparison_in_words_and_asks_why_without_improvement(ready):
    experiment = ready("compare")
    desk(experiment.directory, "draft", "decision")
    document = experiment.read("decision.json")
    assert "improvement not shown" in document["_read"][0]
    assert document["acceptWithoutShownImprovement"].startswith("FILL:")
    assert document["comparisonSha256"] == experiment.sha("comparison.json")


def test_what_only_an_accept_needs_can_be_removed_as_a_line(ready):
    experiment = ready("compare")
    desk(experiment.directory, "draft", "decision")
    path = experiment.path("decision.json")
    lines = path.read_text("utf-8").splitlines()
    left = [line for line in lines if "acceptWithoutShownImprovement\"" not in line]
    assert len(left) == len(lines) - 1 and json.loads("\n".join(left))


def test_a_comparison_that_holds_is_offered_no_accept(ready):
    experiment = ready("heldout", policy={"maximumGainPValue": "0.05"})
    experiment.compare(expect=4)
    desk(experiment.directory, "draft", "decision")
    document = experiment.read("decision.json")
    assert document["decision"].startswith("FILL: hold or revert; ")
    assert "acceptWithoutShownImprovement" not in document


def test_a_revocation_names_the_present_calibration_and_keeps_earlier_ones(ready):
    experiment = ready("calibrate")
    earlier = {"calibrationSha256": "0" * 64, "revokedBy": "Olga Owner",
               "revokedAtUtc": builder.now(), "reason": "Old."}
    experiment.write("revocations.json", {"revocations": [earlier]})
    desk(experiment.directory, "draft", "revocation", "--update")
    rows = experiment.read("revocations.json")["revocations"]
    assert [row["calibrationSha256"] for row in rows] == [
        "0" * 64, experiment.sha("calibration.json")]


def test_a_plan_is_drafted_only_on_a_policy_that_the_program_accepts(ready):
    experiment = ready("policy")
    experiment.edit("policy.json", lambda document: document.update(taskId="another"))
    said = desk(experiment.directory, "draft", "baseline-development", expect=3)
    assert "policy.json: $.taskId" in said.text
    assert not experiment.path("baseline-development-plan.json").exists()


def test_a_plan_draft_shows_what_the_policy_costs_and_the_hash_to_publish(ready):
    experiment = ready("policy")
    said = desk(experiment.directory, "draft", "plan", "baseline-development")
    assert experiment.sha("policy.json") in said.text and "worst case" in said.text


def test_a_missing_skill_is_named_with_the_option_that_names_another_project(ready):
    experiment = ready("policy")
    experiment.path(experiment.skill_file("baseline")).unlink()
    said = desk(experiment.directory, "draft", "baseline-development", expect=3)
    assert f"{experiment.skill_file('baseline')}: missing" in said.text
    assert "--project" in said.text


def test_a_candidate_with_the_baselines_bytes_is_no_revision(ready):
    experiment = ready("baseline_development")
    experiment.write(experiment.skill_file("candidate"), builder.BASELINE_SKILL)
    said = desk(experiment.directory, "draft", "diagnosis", expect=3)
    assert f"{experiment.skill_file('candidate')}: is byte for byte the baseline" in said.text
    assert not experiment.path("diagnosis.json").exists()
    assert (f"d01.grounded-1: judge criteria/criterion-1.txt: fail; answer: {poor('d01')}; "
            f"quote: {builder.POOR_MARK}; evidence:" in said.text.replace(" | ", " "))
    first, = status(experiment.directory)["next"]["first"]
    assert first.endswith("is byte for byte the baseline; write the revision first")


def test_a_skill_that_the_program_refuses_is_told_before_any_document_is_there(owner):
    file = f"skills/baseline/.claude/skills/{builder.SKILL_NAME}/SKILL.md"
    owner.write(file, "---\nmodel: another\n---\nAnswer.\n")
    row = row_of(status(owner.directory), "baseline Skill")
    assert row["state"] == "wrong" and row["wrong"][0].startswith(f"{file}: line 2: model: ")
    said = desk(owner.directory, "draft", "spending")
    assert f"{file}: line 2: model: changes or executes something" in said.text


def test_a_policy_is_not_drafted_for_a_skill_that_the_program_refuses(ready):
    experiment = ready("calibrate")
    experiment.write("skills/baseline/notes.txt", "Not a part of the Skill.\n")
    said = desk(experiment.directory, "draft", "policy", expect=3)
    assert "skills/baseline: expected only" in said.text and "notes.txt" in said.text
    assert not experiment.path("policy.json").exists()


def test_draft_without_a_kind_writes_what_comes_next(ready):
    experiment = ready("policy")
    desk(experiment.directory, "draft")
    assert experiment.path("baseline-development-plan.json").exists()


def test_draft_without_a_kind_says_so_when_a_call_comes_next(ready):
    experiment = ready("policy")
    experiment.write_plan("baseline", "development")
    said = desk(experiment.directory, "draft", expect=3)
    assert "nothing is to be drafted now" in said.text and " run " in said.text


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do(owner):
    said = desk(owner.directory, "draft", "polcy", expect=3)
    assert "draft polcy: no such document" in said.text and "policy" in said.text


def test_a_second_candidate_is_a_second_round_on_the_same_policy_and_baseline(ready):
    experiment = ready("candidate_development")
    said = desk(experiment.directory, "draft", "diagnosis", "--round", "2", expect=3)
    assert "skills/candidate: stays as candidate-development-plan.json ran it" in said.text
    shutil.copytree(*re.search(r"cp -R (\S+) (\S+)", said.text.replace(" \\ ", " ")).groups())
    experiment.write("skills/candidate-2/.claude/skills/figures/SKILL.md",
                     builder.CANDIDATE_SKILL + "Be brief.\n")
    desk(experiment.directory, "draft", "diagnosis", "--round", "2")
    path = experiment.path("diagnosis-2.json")
    path.write_text(json.dumps(answered(json.loads(path.read_text()))))
    desk(experiment.directory, "draft", "candidate-development")
    document = experiment.read("candidate-development-plan-2.json")
    assert document["projectDir"] == "skills/candidate-2"
    assert document["resultDir"] == "results/candidate-development-2"
    assert document["policy"] == experiment.ref("policy.json")
    assert next_words(experiment.directory)[1:] == [
        "run", str(experiment.path("candidate-development-plan-2.json"))]
    assert next_words(experiment.directory, "--round", "1")[2:] == [
        "draft", "unlock", "--round", "1"]
    experiment.command("run", "candidate-development-plan-2.json", expect=0)


# ---- status ----------------------------------------------------------------------------------


def test_a_start_without_material_writes_nothing_for_its_samples(finished):
    (finished.directory / "samples" / "meta.json").unlink(missing_ok=True)
    before = finished.files()
    said = desk(finished.directory, "draft", "start", expect=3)
    assert "no cases yet" in said.text and finished.files() == before


def test_an_empty_directory_is_told_what_to_put_there_and_to_start(tmp_path):
    assert next_words(tmp_path) == ["desk.py", str(tmp_path), "draft", "start"]
    told = desk(tmp_path, "status").stdout
    assert "\n".join([
        "first:",
        "  - put each case into material/development/NAME/ as input.txt and truth.txt",
        "  - put each case into material/heldout/NAME/ as input.txt and truth.txt",
        "  - put the Skill at skills/baseline/.claude/skills/NAME/SKILL.md", "next:"]) in told
    assert "calibration" not in told


def test_a_directory_with_documents_and_skills_alone_is_told_where_its_cases_belong(owner):
    shutil.rmtree(owner.directory / "material")
    desk(owner.directory, "draft", "spending", "environment", "--cli", str(owner.world.cli))
    owner.fill()
    told = desk(owner.directory, "status").stdout
    assert ("first:\n  - put each case into material/development/NAME/ as input.txt and "
            "truth.txt\nnext:\n") in told


@pytest.mark.parametrize("stage, without, words", [
    ("calibrate", "calibration-approval calibration",
     ["review_page.py", "calibration", "calibration-plan.json"]),
    ("policy", "", ["eval_loop.py", "check", "policy.json"]),
    ("unlock", "", ["eval_loop.py", "check", "heldout-unlock.json"]),
    ("compare", "", ["review_page.py", "comparison.json"])])
def test_what_is_best_seen_before_the_next_document_is_told_with_it(ready, stage, without,
                                                                    words):
    experiment = ready(stage)
    for name in without.split():
        experiment.path(f"{name}.json").unlink()
    seen = shlex.split(status(experiment.directory)["next"]["look"])
    assert [pathlib.Path(word).name for word in seen[1:]] == words
    shown = desk(experiment.directory, "status").stdout.replace(" \\\n   ", "")
    after = shown.split("next:\n")[1].splitlines()
    assert after[0] == shlex.join(seen) and " draft " in after[1]


def test_a_directory_that_is_not_there_is_refused_with_the_command_that_makes_it(tmp_path):
    said = desk(tmp_path / "none", "status", expect=3)
    assert "mkdir -p" in said.text


def test_a_directory_inside_an_experiment_is_refused(finished):
    said = desk(finished.path("results"), "status", expect=3)
    assert "lies inside" in said.text


def test_half_filled_documents_are_listed_field_by_field_with_what_belongs_there(owner):
    desk(owner.directory, "draft", "start", "--cli", str(owner.world.cli))
    told = status(owner.directory)
    assert row_of(told, "environment")["state"] == "to fill in"
    first = told["next"]["first"]
    assert "spending.json: $.approvedBy: your name" in first
    assert any(line.startswith("material/heldout/meta.json: $.cases.h02.sourceId")
               for line in first)
    assert next_words(owner.directory)[2:] == ["draft", "cases", "calibration-plan"]


@pytest.mark.parametrize("role", ["environment", "spending", "development-cases",
                                  "calibration-plan", "policy", "baseline-development-plan",
                                  "diagnosis", "heldout-unlock", "comparison", "decision"])
def test_a_torn_document_is_named_and_everything_else_is_still_told(finished, role):
    path = finished.path(f"{role}.json")
    path.write_bytes(path.read_bytes()[:-20])
    told = status(finished.directory)
    assert row_of(told, role)["state"] == "broken"
    assert f"{role}.json: is not JSON" in row_of(told, role)["wrong"][0]
    assert told["money"].get("calls") == 19


def test_a_torn_receipt_is_named_and_its_plan_counted_by_names_alone(finished):
    name = "results/baseline-development/d01.run.1.terminal.json"
    finished.path(name).write_bytes(b"{")
    told = status(finished.directory)
    row = row_of(told, "baseline-development calls")
    assert row["state"] == "broken" and "4 calls begun, 4 ended" in row["text"]
    assert name in row["wrong"][0] and "refused" in told["money"]


def test_the_judges_unknowns_are_counted_with_their_reasons(ready):
    experiment = ready("policy", answers={("baseline", "d02"): unsure("d02")})
    experiment.baseline_development(expect=(0, 4))
    told = row_of(status(experiment.directory), "baseline-development judge")
    assert told["counts"] == {"total": 2, "done": 2, "todo": 0, "running": 0, "waiting": 0,
                              "interrupted": 0, "uncertain": 0, "unknown": {"abstained": 1}}
    assert "1 unknown (1 abstained)" in told["text"]


def opened(experiment, name: str = "results/baseline-development/d02.run.1") -> pathlib.Path:
    """Take away the terminal receipt of a call, as if it were open; return its pending."""
    experiment.path(f"{name}.terminal.json").unlink()
    return experiment.path(f"{name}.pending.json")


@pytest.fixture
def running(ready):
    """Return an experiment whose baseline has run but is not judged."""
    experiment = ready("policy")
    experiment.command("run", experiment.write_plan("baseline", "development"), expect=0)
    return experiment


def test_a_judge_call_that_is_open_is_not_counted_as_to_do(ready):
    experiment = ready("policy")
    experiment.baseline_development()
    experiment.path("results/baseline-development/score.json").unlink()
    opened(experiment, "results/baseline-development/d01.grounded-1.judge.1")
    counts = row_of(status(experiment.directory), "baseline-development judge")["counts"]
    assert (counts["done"], counts["todo"], counts["interrupted"]) == (1, 0, 1)


def test_a_call_that_ended_by_machinery_is_counted_once_whatever_its_number_of_checks(ready):
    experiment = ready("policy")
    experiment.rules({"purpose": "run", "times": 1, "stdout": "no json", "exit": 1})
    experiment.write_plan("baseline", "development")
    experiment.command("run", "baseline-development-plan.json")
    told = row_of(status(experiment.directory), "baseline-development run")
    assert sum(told["counts"]["unknown"].values()) == 1


def run_row(experiment) -> dict:
    """Return the counts of the baseline's Skill calls in development."""
    return row_of(status(experiment.directory), "baseline-development run")["counts"]


def test_a_call_whose_program_is_gone_is_interrupted_and_running_it_again_comes_next(running):
    opened(running)
    assert run_row(running)["interrupted"] == 1
    assert next_words(running.directory)[1:] == [
        "run", str(running.path("baseline-development-plan.json"))]


def test_a_call_that_is_locked_is_running(running):
    pending = opened(running)
    with open(pending, "rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert run_row(running)["running"] == 1


def test_a_call_of_another_machine_is_uncertain_with_the_option_that_ends_it(running):
    pending = opened(running)
    document = json.loads(pending.read_bytes())
    pending.write_bytes(as_written({**document, "host": "elsewhere"}))
    told = row_of(status(running.directory), "baseline-development run")
    assert told["counts"]["uncertain"] == 1 and "--elsewhere-ended" in told["wrong"][0]


def as_written(document) -> bytes:
    """Return a document as the program writes it."""
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def test_money_tells_known_reserved_unknown_and_the_limit(running):
    opened(running)
    told = status(running.directory)["money"]
    assert (told["calls"], told["openCalls"], told["reservedUsd"]) == (5, 1, "0.1")
    assert (told["knownUsd"], told["unknownCalls"], told["limitUsd"]) == ("0.016", 0, "100")


def test_money_apart_for_calls_whose_cost_is_unknown(make):
    experiment = make(script=[{"purpose": "judge", "cost": None, "times": 1}])
    experiment.command("calibrate-run", "calibration-plan.json")
    told = status(experiment.directory)["money"]
    assert (told["unknownCalls"], told["unknownReservedUsd"]) == (1, "0.05")


def test_a_held_out_case_that_another_run_has_seen_is_told(finished):
    shutil.copytree(finished.path("results/candidate-heldout"), finished.path("results/other"))
    told = status(finished.directory)["exposure"]
    assert told["cases"] == 2 and len(told["exposed"]) == 2
    assert "held-out case h01 is exposed: results/other/h01.run.1" in told["exposed"][0]


def test_a_stale_document_is_named_with_the_change_and_the_update_that_helps(make):
    experiment = make()
    experiment.edit("environment.json", lambda document: document.update(timeoutSeconds=90))
    told = status(experiment.directory)
    assert told["stale"] == [{"document": "calibration-plan.json", "path": "$.environment",
                              "file": "environment.json", "why": ""}]
    assert next_words(experiment.directory)[2:] == ["draft", "calibration-plan", "--update"]


def test_what_follows_a_stale_document_is_updated_with_it(owner):
    until(owner, 2)
    name = "material/development/d01/input.txt"
    owner.write(name, (owner.directory / name).read_text() + "\n")
    told = status(owner.directory)
    assert told["stale"][0]["why"] == "only the final newline differs"
    words = next_words(owner.directory)
    assert words[2:] == ["draft", "cases", "calibration-plan", "--update"]
    desk(owner.directory, *words[2:])
    assert not status(owner.directory)["stale"]


def test_a_stale_document_that_receipts_stand_on_is_told_to_restore(finished):
    finished.write("cases/d01/truth.txt", "another truth\n")
    told = status(finished.directory)
    row = row_of(told, "development-cases")
    assert row["state"] == "stale"
    assert "restore the approved bytes of cases/d01/truth.txt" in row["wrong"][0]


def test_an_approval_of_other_receipts_is_stale(ready):
    experiment = ready("calibrate")
    name = "s10-pass-1.calibrate.1.terminal.json"
    experiment.edit("calibration-approval.json", lambda document: document.update(
        terminalHashes={**document["terminalHashes"], name: "0" * 64}))
    told = status(experiment.directory)["stale"]
    assert {"document": "calibration-approval.json", "path": f"$.terminalHashes.{name}",
            "file": f"results/calibration/{name}", "why": ""} in told


def test_a_pipe_in_place_of_a_document_does_not_stop_status(owner):
    until(owner, 2)
    (owner.directory / "policy.json").unlink(missing_ok=True)
    os.mkfifo(owner.directory / "policy.json")
    (owner.directory / "material/development/d01/truth.txt").unlink()
    os.mkfifo(owner.directory / "material/development/d01/truth.txt")
    told = row_of(status(owner.directory), "policy")
    assert told["wrong"] == ["policy.json: is no regular file"]


def test_a_changed_cli_makes_the_environment_stale(make):
    experiment = make()
    experiment.cli.write_text(experiment.cli.read_text() + "\n# newer\n")
    told = status(experiment.directory)["stale"][0]
    assert (told["path"], told["file"]) == ("$.cliSha256", str(experiment.cli))


def test_an_experiment_without_judge_tests_needs_no_calibration(make):
    experiment = make(judge=False)
    assert row_of(status(experiment.directory), "calibration")["state"] == "none"
    said = desk(experiment.directory, "draft", "calibration-plan", expect=3)
    assert "samples: none, and none are needed: no test is decided by a judge" in said.text
    desk(experiment.directory, "draft", "policy")
    assert experiment.read("policy.json")["calibration"] is None
    assert "judge" not in experiment.read("policy.json")["_read"][0]


def test_a_judge_that_is_not_qualified_is_told_with_what_to_do(make):
    limits = {"minimumPerClass": 10, "maximumFalsePassBound": "0.1",
              "maximumFalseBlockBound": "0.1", "maximumUnsupportedPassBound": "0.1",
              "maximumAbstentionRate": "0.1", "requireTwoReviewers": False,
              "jointConfidence": False}
    experiment = make(qualification=limits)
    experiment.calibrate(expect=(0, 4))
    row = row_of(status(experiment.directory), "calibration")
    assert row["state"] == "wrong" and "not-qualified" in row["wrong"][0]


def test_documents_with_names_of_the_owners_choice_are_found_by_their_content(ready):
    experiment = ready("policy")
    experiment.path("policy.json").rename(experiment.path("rules.json"))
    assert row_of(status(experiment.directory), "policy")["text"] == "rules.json"


def test_a_sealed_held_out_inventory_may_be_elsewhere_until_it_is_used(ready):
    experiment = ready("policy", judge=False)
    experiment.path("heldout-cases.json").rename(experiment.root / "with-the-custodian.json")
    told = status(experiment.directory)
    assert row_of(told, "heldout-cases")["state"] == "sealed"
    assert next_words(experiment.directory)[2:] == ["draft", "baseline-development"]


def test_synthetic_evidence_is_said_first(finished):
    assert desk(finished.directory, "status").stdout.startswith("SYNTHETIC evidence. ")


def test_status_stays_within_80_columns_but_for_commands_and_hashes(finished):
    said = desk(finished.directory, "status").stdout
    prose = said.split("next:\n")[0].splitlines()[1:]
    assert prose and max(map(len, prose)) <= 80
    assert "\x1b" not in said


def test_a_reader_that_stops_reading_gets_no_complaint(finished):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, *builder.program_flags(), DESK, finished.directory,
                           "status"], stdout=writing, stderr=subprocess.PIPE, timeout=60,
                          check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (130, b"")


def test_status_writes_nothing(finished):
    before = finished.files()
    desk(finished.directory, "status")
    assert finished.files() == before
