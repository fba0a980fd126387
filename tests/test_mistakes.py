"""The mistakes that owners make most: each is told by file, field and remedy, and is then over.

A row of the table is one mistake: how far the experiment was, the slip, the command that meets
it, and what one line of the answer has to hold: the file, the field (a JSON path, a line of the
file, an option, a variable), and the remedy. `follow` does what that line says, and nothing
else; then the same command succeeds. A refused command has written nothing.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest

import builder

PLAN = "baseline-development-plan.json"
ALL = [f"{variant}-{split}-plan.json" for split in builder.SPLITS
       for variant in builder.VARIANTS]
WITHOUT_LINKS = """import os
def refuse(*paths, **options):
    raise OSError(1, "Operation not permitted")
os.link = refuse
"""


class Mistake(NamedTuple):
    """One row of the table."""

    name: str
    stage: str                              # how far: a stage of the builder, or "documents"
    slip: Callable                          # (experiment): does it
    command: tuple[str, ...]                # meets it
    file: str                               # what one line of the answer must name,
    field: str                              # whole
    remedy: str                             # a pattern in the same line
    follow: Callable                        # (experiment, match): does what the line says
    env: dict | None = None                 # of the first attempt only
    refused: tuple[int, ...] = (3,)         # exit status of the first attempt
    done: tuple[int, ...] = (0,)            # exit status of the second one
    options: dict = {}                      # of the experiment


def change(file: str, **fields) -> Callable:
    """Return a slip or remedy that sets fields of a document."""
    return lambda experiment, *_: experiment.edit(
        file, lambda document: document.update(fields))


def item(file: str, path: str, value) -> Callable:
    """Return a slip or remedy that sets one leaf, such as cases.1.id; None removes it."""
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))

    def act(experiment, *_):
        document = experiment.read(file)
        place = document
        for step in steps:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
        experiment.write(file, document)
    return act


def again(method: str, *words: str) -> Callable:
    """Return a remedy that writes a document anew from the bytes that are present."""
    return lambda experiment, *_: getattr(experiment, method)(*words)


def both(*acts: Callable) -> Callable:
    """Return several slips or remedies as one."""
    def act(experiment, *told):
        for each in acts:
            each(experiment, *told)
    return act


def remember(name: str, act: Callable) -> Callable:
    """Return a slip after which the former bytes of a file are kept beside the experiment."""
    def slip(experiment, *_):
        shutil.copy2(experiment.path(name), experiment.root / "approved")
        act(experiment)
    return slip


def restore(name: str) -> Callable:
    """Return the remedy `restore the approved bytes`."""
    return lambda experiment, *_: experiment.write(
        name, (experiment.root / "approved").read_bytes())


def rewrite(name: str, how: Callable[[bytes], bytes]) -> Callable:
    """Return a slip that changes the bytes of a file and remembers the former ones."""
    return remember(name, lambda experiment: experiment.write(
        name, how(experiment.path(name).read_bytes())))


def remove(name: str) -> Callable:
    """Return a slip or remedy that removes a file and remembers it."""
    return remember(name, lambda experiment: experiment.path(name).unlink())


def said(experiment, match) -> None:
    """Follow a remedy that is itself a command of the program."""
    experiment.command(*shlex.split(match["command"]), expect=(0, 4))


def plan(variant: str, split: str, **fields) -> Callable:
    """Return a slip or remedy that writes one of the four plans."""
    return lambda experiment, *_: experiment.write_plan(variant, split, **fields)


def heldout_plans(**fields) -> Callable:
    """Return a slip or remedy that writes both held-out plans."""
    return both(*(plan(variant, "heldout", **fields) for variant in builder.VARIANTS))


def nothing(*_) -> None:
    """The slip is in the command or the shell; so is the remedy."""


def rename_field(file: str) -> Callable:
    """Return the remedy for an unknown field: give it the name that the message tells."""
    def act(experiment, match):
        document = experiment.read(file)
        document[match["known"]] = document.pop(match["wrong"])
        experiment.write(file, document)
    return act


def skill_text(variant: str, text: str) -> Callable:
    """Return a slip or remedy that writes a SKILL.md."""
    return lambda experiment, *_: experiment.write(experiment.skill_file(variant), text)


def without_links(experiment, *_) -> None:
    """Put a module beside the experiment that makes hard links fail, as FAT does."""
    (experiment.root / "lib").mkdir()
    (experiment.root / "lib" / "sitecustomize.py").write_text(WITHOUT_LINKS)


def linked(experiment, *_) -> None:
    """Move a file out of the experiment and put a link in its place."""
    experiment.path(FIRST).rename(experiment.root / "approved")
    experiment.path(FIRST).symlink_to(experiment.root / "approved")


def approved_without_reading(experiment, *_) -> None:
    """Approve a calibration before it was run."""
    experiment.write_approval()


def another_cli(experiment, *_) -> None:
    """Update the CLI in place; the bytes of before are kept."""
    shutil.copy2(experiment.cli, experiment.root / "kept")
    experiment.cli.write_text(experiment.cli.read_text() + "\n# newer\n")


def kept_cli(experiment, *_) -> None:
    """Put the kept copy back."""
    shutil.copy2(experiment.root / "kept", experiment.cli)


def new_environment(**fields) -> Callable:
    """Return a remedy: correct the environment, and bind it in the calibration plan."""
    return both(change("environment.json", **fields), again("write_calibration_plan"))


FIRST = "cases/d01/input.txt"
CHECK_ENVIRONMENT = ("check", "environment.json")
CHECK_CASES = ("check", "development-cases.json")
CALIBRATE = ("calibrate-run", "calibration-plan.json")
RUN = ("run", PLAN)
STALE = r"restore the approved bytes, or bind the new ones"
TIME = r"(now it is|present time,) (?P<now>[^\s,]+)"
BASELINE = plan("baseline", "development")
DECIDE = ("decide", "comparison.json", "decision.json")

MISTAKES = [
    # ---- how documents are written
    Mistake("a typo in the name of a field", "documents",
            lambda experiment: experiment.edit("environment.json", lambda document: {
                ("modelID" if name == "modelId" else name): value
                for name, value in document.items()}),
            CHECK_ENVIRONMENT, "environment.json", "$",
            r'unknown field "(?P<wrong>\w+)"; the nearest known one is (?P<known>\w+)',
            rename_field("environment.json")),
    Mistake("a placeholder is left", "documents",
            change("spending.json", approvedBy="FILL: your name"), ("check", "spending.json"),
            "spending.json", "$.approvedBy", "not filled in.*(replace|fill|your name)",
            change("spending.json", approvedBy="Olga Owner")),
    Mistake("a comma after the last field", "documents",
            lambda experiment: experiment.write("spending.json", re.sub(
                rb"\n}\n$", b",\n}\n", experiment.path("spending.json").read_bytes())),
            ("check", "spending.json"), "spending.json",
            "line 4|line 5",    # that of the comma from Python 3.13 on, before that of the brace
            "comma", again("write_spending")),
    Mistake("typographic quotes", "documents",
            rewrite("spending.json", lambda raw: raw.replace(b'"', "“".encode())),
            ("check", "spending.json"), "spending.json", "line 2", "quotes",
            restore("spending.json")),
    Mistake("the editor saved with a byte-order mark", "documents",
            rewrite("spending.json", lambda raw: b"\xef\xbb\xbf" + raw),
            ("check", "spending.json"), "spending.json", "byte-order mark",
            "save it as UTF-8 without BOM", restore("spending.json")),
    Mistake("a time without offset", "documents",
            change("spending.json", approvedAtUtc="2026-11-30 14:05"),
            ("check", "spending.json"), "spending.json", "$.approvedAtUtc",
            r"such as (?P<now>\S+?Z?)(,|;| |$)",
            lambda experiment, match: change(
                "spending.json", approvedAtUtc=match["now"])(experiment)),
    Mistake("local time written as UTC", "documents",
            change("spending.json", approvedAtUtc="2999-01-01T00:00:00Z"),
            ("check", "spending.json"), "spending.json", "$.approvedAtUtc", TIME,
            lambda experiment, match: change(
                "spending.json", approvedAtUtc=match["now"])(experiment)),
    Mistake("money with a currency sign", "documents",
            change("environment.json", budgetUsd="$0.25"), CHECK_ENVIRONMENT,
            "environment.json", "$.budgetUsd", r'such as "(?P<value>[\d.]+)"',
            lambda experiment, match: change(
                "environment.json", budgetUsd=match["value"])(experiment)),
    Mistake("a rate in per cent", "calibrate",
            lambda experiment: experiment.write_policy(minimumHeldoutGain="10%"),
            ("check", "policy.json"), "policy.json", "$.minimumHeldoutGain",
            r'such as "(?P<value>[\d.]+)"', again("write_policy")),
    Mistake("a number as text", "documents", change("environment.json", timeoutSeconds="60"),
            CHECK_ENVIRONMENT, "environment.json", "$.timeoutSeconds",
            "expected a whole number from 1 to", change("environment.json", timeoutSeconds=60)),
    Mistake("model ids equal", "documents",
            change("environment.json", judgeModelId="Synthetic-Writer-1"), CHECK_ENVIRONMENT,
            "environment.json", "$.judgeModelId", "expected another model than modelId",
            change("environment.json", judgeModelId="synthetic-judge-1")),
    Mistake("a secret in the environment", "documents",
            change("environment.json", setEnvironment={"ANTHROPIC_API_KEY": "synthetic-key"}),
            CHECK_ENVIRONMENT, "environment.json", "$.setEnvironment",
            "with no KEY, TOKEN, SECRET", change("environment.json", setEnvironment={})),
    Mistake("a path with a backslash", "documents",
            item("development-cases.json", "cases.0.input.file", "cases\\d01\\input.txt"),
            CHECK_CASES, "development-cases.json", "$.cases[0].input.file", "with /",
            item("development-cases.json", "cases.0.input.file", FIRST)),
    Mistake("a path in place of a reference", "documents",
            item("development-cases.json", "cases.0.input", FIRST), CHECK_CASES,
            "development-cases.json", "$.cases[0].input", "file.*sha256",
            again("write_inventory", "development")),
    Mistake("two cases with the same id", "documents",
            item("development-cases.json", "cases.1.id", "D01"), CHECK_CASES,
            "development-cases.json", "$.cases", "d01 occurs twice.*rename one",
            item("development-cases.json", "cases.1.id", "d02")),
    Mistake("one source in two families", "documents",
            item("development-cases.json", "cases.1.sourceId", "till-shop-d01"), CHECK_CASES,
            "development-cases.json", "$.cases[1].caseGroup",
            'expected "(?P<family>[^"]+)".*one source belongs to one family',
            lambda experiment, match: item(
                "development-cases.json", "cases.1.caseGroup", match["family"])(experiment)),
    Mistake("a pattern that does not compile", "documents",
            both(item("cases/d01/expected.json", "tests.1",
                      {"id": "pattern", "kind": "regex", "critical": False, "value": "(a"}),
                 again("write_inventory", "development")),
            CHECK_CASES, "cases/d01/expected.json", "$.tests[1].value",
            "is not a regular expression",
            both(item("cases/d01/expected.json", "tests.1.value", "(a)"),
                 again("write_inventory", "development"))),
    # ---- files and hashes
    Mistake("a file is missing", "documents", remove("cases/d01/truth.txt"), CHECK_CASES,
            "cases/d01/truth.txt", "$.cases[0].truth", "restore it",
            restore("cases/d01/truth.txt")),
    Mistake("a file is edited after its hash was taken", "documents",
            rewrite(FIRST, lambda raw: raw.replace(b"Task", b"TASK")), CHECK_CASES,
            FIRST, "$.cases[0].input", STALE, again("write_inventory", "development")),
    Mistake("the editor added a final newline", "documents",
            rewrite(FIRST, lambda raw: raw + b"\n"), CHECK_CASES, FIRST, "$.cases[0].input",
            "only the final newline differs; " + STALE, restore(FIRST)),
    Mistake("the editor wrote CRLF", "documents",
            rewrite(FIRST, lambda raw: raw.replace(b"\n", b"\r\n")), CHECK_CASES, FIRST,
            "$.cases[0].input", "only line endings.*differ.*" + STALE, restore(FIRST)),
    Mistake("a file in another encoding", "documents",
            both(rewrite(FIRST, lambda raw: b"caf\xe9\n"),
                 again("write_inventory", "development")),
            CHECK_CASES, FIRST, "byte 3", "save it as UTF-8",
            both(lambda experiment, _: experiment.write(FIRST, "café\n"),
                 again("write_inventory", "development"))),
    Mistake("a link in place of a file", "documents",
            linked,
            CHECK_CASES, FIRST, "$.cases[0].input", "a plain file is expected, no link",
            lambda experiment, _: (experiment.path(FIRST).unlink(),
                                   restore(FIRST)(experiment))),
    Mistake("the environment is edited after the calibration plan", "documents",
            change("environment.json", timeoutSeconds=90), CALIBRATE, "environment.json",
            "calibration-plan.json $.environment", STALE, again("write_calibration_plan")),
    Mistake("the policy is edited after the plan", "policy",
            both(BASELINE, remember("policy.json", change(
                "policy.json", minimumHeldoutGain="0.2"))),
            RUN, "policy.json", f"{PLAN} $.policy", STALE, restore("policy.json")),
    Mistake("the Skill is edited after the plan", "policy",
            both(BASELINE, skill_text("baseline", builder.BASELINE_SKILL + "Be brief.\n")),
            RUN, "SKILL.md", f"{PLAN} $.skillSha256", STALE, BASELINE),
    Mistake("a second file in the Skill project", "policy",
            both(BASELINE, lambda experiment: experiment.write(
                "skills/baseline/notes.md", "x")),
            RUN, "skills/baseline", "notes.md", "move these out",
            lambda experiment, _: experiment.path("skills/baseline/notes.md").unlink()),
    Mistake("the Skill chooses its own model", "policy",
            both(skill_text("baseline", builder.BASELINE_SKILL.replace(
                "---\nWrite", "model: opus\n---\nWrite")), BASELINE),
            RUN, "SKILL.md", "line 4: model", "remove it",
            both(skill_text("baseline", builder.BASELINE_SKILL), BASELINE)),
    # ---- calibration and policy
    Mistake("a class without a labelled sample", "documents",
            item("calibration-plan.json", "samples.2", None), CALIBRATE,
            "calibration-plan.json", "$.samples", "no sample labelled unknown.*add",
            again("write_calibration_plan")),
    Mistake("a sample without a label", "documents",
            item("calibration-plan.json", "samples.0.humanVerdict", None), CALIBRATE,
            "calibration-plan.json", "$.samples[0].humanVerdict", "missing",
            item("calibration-plan.json", "samples.0.humanVerdict", "pass")),
    Mistake("a reviewer who is not listed", "documents",
            item("calibration-plan.json", "samples.0.reviewedBy", "Ruth Other"), CALIBRATE,
            "calibration-plan.json", "$.samples[0]", "reviewers",
            change("calibration-plan.json",
                   reviewers=["Rita Reader", "Sam Second", "Ruth Other"])),
    Mistake("a sample of a held-out family", "documents",
            both(item("heldout-cases.json", "cases.0.caseGroup", "shop-s10-pass-1"),
                 again("write_calibration_plan")),
            CALIBRATE, "heldout-cases.json h01", "calibration-plan.json s10-pass-1",
            "the same family",
            both(again("write_inventory", "heldout"), again("write_calibration_plan"))),
    Mistake("the calibration is approved before it was run", "documents",
            approved_without_reading,
            ("calibrate-finalize", "calibration-plan.json", "calibration-approval.json"),
            "results/calibration/s10-pass-1.calibrate", "not judged",
            "(repeat|first:?) (?P<command>calibrate-run calibration-plan.json)",
            both(said, again("write_approval"))),
    Mistake("the calibration is for another task", "calibrate",
            lambda experiment: experiment.write_policy(taskId="another-task"),
            ("check", "policy.json"), "policy.json", "$.taskId",
            "expected \"?(?P<value>[a-z-]+)\"?",
            lambda experiment, match: experiment.write_policy(taskId=match["value"])),
    Mistake("judge tests without a calibration", "calibrate",
            lambda experiment: experiment.write_policy(calibration=None),
            ("check", "policy.json"), "policy.json", "$.calibration", "expected a reference",
            again("write_policy")),
    Mistake("two versions of the tests", "calibrate",
            lambda experiment: experiment.write_policy(testVersion="2"),
            ("check", "policy.json"), "policy.json", "$.testVersion", "expected",
            again("write_policy")),
    # ---- order
    Mistake("the judge before the Skill", "policy", BASELINE, ("judge", PLAN), PLAN, "run",
            r"(?P<command>run baseline-development-plan.json) makes them", said),
    Mistake("the score before the judge", "policy",
            both(BASELINE, lambda experiment: experiment.command(*RUN, expect=0)),
            ("score", PLAN), PLAN, "--case d01",
            r"not finished: (?P<command>judge \S+ --case d01) --test grounded-1",
            lambda experiment, match: experiment.command("judge", PLAN, expect=0)),
    Mistake("the candidate before the diagnosis", "baseline_development",
            lambda experiment: experiment.write("candidate-development-plan.json", {
                **experiment.read(PLAN), "variant": "candidate",
                "projectDir": "skills/candidate",
                "skillSha256": experiment.sha(experiment.skill_file("candidate")),
                "resultDir": "results/candidate-development"}),
            ("run", "candidate-development-plan.json"), "candidate-development-plan.json",
            "$.diagnosis", "a candidate development plan needs it; add it",
            both(again("write_diagnosis"), plan("candidate", "development"))),
    Mistake("a diagnosis of a check that passed", "baseline_development",
            both(lambda experiment: experiment.write_diagnosis(observedFailures=[
                {"caseId": "d01", "testId": "exact", "diagnosis": "Guessed."}]),
                plan("candidate", "development")),
            ("run", "candidate-development-plan.json"), "diagnosis.json",
            "$.observedFailures[0]", "expected a check that the baseline did not pass",
            both(again("write_diagnosis"), plan("candidate", "development"))),
    Mistake("the Skill is revised after the diagnosis", "diagnose",
            both(skill_text("candidate", builder.CANDIDATE_SKILL + "Be brief.\n"),
                 plan("candidate", "development")),
            ("run", "candidate-development-plan.json"), "candidate-development-plan.json",
            "$.skillSha256", "diagnosis.json",
            both(again("write_diagnosis"), plan("candidate", "development"))),
    Mistake("an approval with a time before its evidence", "baseline_development",
            both(lambda experiment: experiment.write_diagnosis(
                approvedAtUtc="2020-01-01T00:00:00Z"), plan("candidate", "development")),
            ("run", "candidate-development-plan.json"), "diagnosis.json", "$.approvedAtUtc",
            TIME,
            lambda experiment, match: (experiment.write_diagnosis(approvedAtUtc=match["now"]),
                                       experiment.write_plan("candidate", "development"))),
    Mistake("held-out is opened in spite of a critical failure", "candidate_development",
            again("write_unlock"), ("check", "heldout-unlock.json"), "heldout-unlock.json",
            "$.override", "say why",
            lambda experiment, _: experiment.write_unlock(override="Shop one is to be closed."),
            options={"answers": {("candidate", "d01"): builder.poor("d01")}}),
    Mistake("both held-out plans write to one directory", "unlock",
            heldout_plans(resultDir="results/heldout"), ("run", *ALL[2:]), ALL[3],
            "$.resultDir", "directory of its own|directory belongs to one plan",
            heldout_plans()),
    Mistake("the comparison before the scores", "unlock",
            both(heldout_plans(),
                 lambda experiment: experiment.command("run", *ALL[2:], expect=0),
                 lambda experiment: experiment.command("judge", *ALL[2:], expect=0),
                 lambda experiment: experiment.command("score", ALL[3], expect=0)),
            ("compare", *ALL), "results/baseline-heldout/score.json", "score",
            r"(?P<command>score baseline-heldout-plan.json) writes it", said),
    Mistake("the decision before the comparison", "compare",
            both(again("write_decision"), remove("comparison.json")), DECIDE,
            "comparison.json", "missing", "compare", lambda experiment, _: experiment.command(
                "compare", *ALL, expect=0)),
    Mistake("an accept without a shown improvement", "compare",
            both(again("write_decision"),
                 item("decision.json", "acceptWithoutShownImprovement", None)),
            DECIDE, "decision.json", "$.acceptWithoutShownImprovement", "say why",
            change("decision.json", acceptWithoutShownImprovement="The shops are few.")),
    Mistake("a decision on another comparison", "compare",
            lambda experiment: experiment.write_decision(comparisonSha256="0" * 64), DECIDE,
            "decision.json", "$.comparisonSha256", r"expected (?P<value>[0-9a-f]{64})",
            lambda experiment, match: change(
                "decision.json", comparisonSha256=match["value"])(experiment)),
    # ---- money, keys, the CLI, the disk
    Mistake("no purse", "documents", remove("spending.json"), CALIBRATE, "spending.json",
            "missing", "write it from its template", again("write_spending")),
    Mistake("the purse is too small", "documents",
            lambda experiment: experiment.write_spending(spendLimitUsd="0.01"), CALIBRATE,
            "spending.json", "$.spendLimitUsd", "raise it to go on", again("write_spending")),
    Mistake("too few calls are allowed", "documents",
            lambda experiment: experiment.write_spending(callLimit=0), CALIBRATE,
            "spending.json", "$.callLimit", "raise it to go on",
            lambda experiment, _: experiment.write_spending(callLimit=3)),
    Mistake("the key is missing", "documents", new_environment(evidenceKind="measured"),
            CALIBRATE, "ANTHROPIC_API_KEY", "environment variable", "set it in this shell",
            nothing, env={"ANTHROPIC_API_KEY": None}),
    Mistake("the key is wrong", "documents",
            lambda experiment: experiment.rules({"purpose": "judge", "status": 401}), CALIBRATE,
            "s10-pass-1.calibrate.1", "bad-credential", "Set a valid key",
            lambda experiment, _: experiment.rules(), refused=(6,)),
    Mistake("the CLI is not found", "documents",
            new_environment(claudeExecutable="/nowhere/claude"), CALIBRATE, "/nowhere/claude",
            "claudeExecutable|the CLI cannot be read", "name its real path",
            lambda experiment, _: new_environment(
                claudeExecutable=str(experiment.cli))(experiment)),
    Mistake("the CLI was updated", "documents", another_cli, CALIBRATE, "claude", "sha256",
            "--cli PATH with a kept copy", kept_cli),
    Mistake("a CLI that is too old", "documents",
            change("environment.json", cliVersion="2.1.100 (Claude Code)"), CHECK_ENVIRONMENT,
            "environment.json", "$.cliVersion", "or newer",
            change("environment.json", cliVersion="2.1.332 (Claude Code)")),
    Mistake("a disk without links", "documents", without_links, CALIBRATE,
            "s10-pass-1.calibrate.1.pending.json", "Operation not permitted",
            "needs a file system with locks, hard links", nothing, env={"PYTHONPATH": "lib"}),
    # ---- the command line
    Mistake("a document whose name is mistyped", "documents",
            lambda experiment: experiment.path("spending.json").rename(
                experiment.path("spendings.json")),
            ("check", "spending.json"), "spending.json", "missing", "correct the name",
            lambda experiment, _: experiment.path("spendings.json").rename(
                experiment.path("spending.json"))),
    Mistake("a document of another kind", "policy",
            lambda experiment: experiment.write(PLAN, experiment.read("policy.json")), RUN,
            PLAN, "kind plan", "expected a document of kind plan, got policy", BASELINE),
    Mistake("a document that says nothing of its kind", "policy",
            lambda experiment: experiment.write(PLAN, {}), RUN, PLAN, "variant",
            "expected exactly one of the fields", BASELINE),
]


def prepared(mistake: Mistake, make, ready):
    """Return a fresh experiment as far as the mistake needs it."""
    if mistake.stage == "documents":
        return make(**mistake.options)
    experiment = ready(mistake.stage, **mistake.options)
    experiment.rules()
    return experiment


def line_with(text: str, mistake: Mistake) -> re.Match | None:
    """Return the remedy as it matches in a line that names file and field."""
    for line in text.splitlines():
        named = mistake.file in line and any(
            part in line for part in mistake.field.split("|"))
        if named and (match := re.search(mistake.remedy, line)):
            return match
    return None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_told_by_file_field_and_remedy_and_the_remedy_ends_it(
        mistake, make, ready):
    experiment = prepared(mistake, make, ready)
    mistake.slip(experiment)
    before = experiment.files()
    env = {name: f"{experiment.root / value}:{builder.PROGRAM.parent}"
           if name == "PYTHONPATH" else value for name, value in (mistake.env or {}).items()}
    first = experiment.command(*mistake.command, env=env)
    told = first.stdout + first.stderr
    assert "Traceback" not in told, told
    assert first.returncode in mistake.refused, told
    assert first.returncode != 3 or experiment.files() == before, told
    match = line_with(told, mistake)
    assert match, f"no line names {mistake.file}, {mistake.field}, {mistake.remedy}:\n{told}"
    mistake.follow(experiment, match)
    experiment.command(*mistake.command, expect=mistake.done)


def test_the_table_holds_every_mistake_once_and_at_least_25():
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names)) >= 25


@pytest.mark.parametrize("command", [
    (), ("chek", "policy.json"), ("run",), ("run", "policy.json", "--jobs", "0"),
    ("run", "policy.json", "--jobs", "two"), ("score", "a.json", "--accept-unknown", "x")])
def test_wrong_usage_is_told_with_the_usage_and_exit_2(make, command):
    said_back = make().command(*command, expect=2)
    assert "usage:" in said_back.stderr and "Traceback" not in said_back.stderr


@pytest.mark.parametrize("command", [
    ("check", "."), ("check", "cases"), ("check", ""), ("check", "policy.json/"),
    ("check", "cases/d01/expected.json"), ("check", "environment.json", "/nowhere/x.json"),
    ("hash", "."), ("hash", "nowhere"), ("verify", "policy.json"), ("decide", "a", "b"),
    ("compare", *["environment.json"] * 4), ("run", "spending.json"),
    ("run", "environment.json", "--case", "none")])
def test_a_wrong_document_on_the_command_line_is_refused_by_its_name(make, command):
    experiment = make()
    before = experiment.files()
    said_back = experiment.command(*command, expect=3)
    assert said_back.stderr.startswith("refused: ") and experiment.files() == before


@pytest.mark.parametrize("option, value", [("--case", "d09"), ("--test", "nope")])
def test_a_case_or_test_that_is_not_there_is_refused_by_its_option(ready, option, value):
    experiment = ready("policy")
    experiment.write_plan("baseline", "development")
    experiment.command(*RUN, expect=0)
    said_back = experiment.command("judge", PLAN, option, value, expect=3)
    assert f"{option} {value}" in said_back.stderr and PLAN in said_back.stderr


def test_a_call_that_was_rate_limited_is_repeated_by_the_command_that_is_named_next(ready):
    experiment = ready("policy")
    experiment.write_plan("baseline", "development")
    experiment.rules({"purpose": "run", "status": 429, "times": 1})
    first = experiment.command(*RUN)
    assert first.returncode in (4, 6)
    assert re.search(rf"next: .*run {PLAN}", first.stdout)
    experiment.rules()
    experiment.command(*RUN, expect=0)
    experiment.command("judge", PLAN, expect=0)
    experiment.command("score", PLAN, expect=0)
