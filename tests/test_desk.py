"""The owner's desk: a whole experiment with few commands, and where one stands at every moment.

`Owner` is a person at the desk: material in a directory, answers to what only a person can say,
and a counter of commands. Everything else here looks at one draft or at one kind of status.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
import shlex
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


def next_words(directory) -> list[str]:
    """Return the command that status tells to type next, without interpreter and program."""
    words = shlex.split(status(directory)["next"]["command"])
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
                self.write(f"{place}/input.txt", f"Task {case}: what did shop {case} take in?\n")
                self.write(f"{place}/truth.txt", f"Till roll {case}: EUR {amount(case)}\n")
        for variant, text in (("baseline", builder.BASELINE_SKILL),
                              ("candidate", builder.CANDIDATE_SKILL)):
            self.write(f"skills/{variant}/.claude/skills/{builder.SKILL_NAME}/SKILL.md", text)

    def fill(self, *patterns: str) -> None:
        """Fill the placeholders of documents, touching nothing else."""
        for pattern in patterns:
            for path in self.directory.glob(pattern):
                row = path.parent.name
                document = answered(json.loads(path.read_text("utf-8")), row)
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
    """Do a whole experiment; yields after each command, documents filled."""
    yield owner.draft("start", "--cli", str(owner.world.cli))
    owner.fill("environment.json", "spending.json", "material/*/meta.json", "samples/meta.json",
               "material/*/*/expected.json")
    owner.choose("environment.json", evidenceKind="synthetic", setEnvironment={
        "OFFLINE_SCRIPT": str(owner.world.script_path)})
    yield owner.draft("cases", "calibration-plan")
    yield owner.loop("calibrate-run", "calibration-plan.json")
    yield owner.draft("approval")
    owner.fill("calibration-approval.json")
    yield owner.loop("calibrate-finalize", "calibration-plan.json", "calibration-approval.json")
    yield owner.draft("policy")
    owner.fill("policy.json")
    yield owner.draft("baseline-development")
    for word in ("run", "judge", "score"):
        yield owner.loop(word, plan("baseline", "development"))
    yield owner.draft("diagnosis")
    owner.fill("diagnosis.json")
    yield owner.draft("candidate-development")
    for word in ("run", "judge", "score"):
        yield owner.loop(word, plan("candidate", "development"))
    yield owner.draft("unlock")
    owner.fill("heldout-unlock.json")
    yield owner.draft("heldout-plans")
    for word in ("run", "judge"):
        yield owner.loop(word, *ALL_PLANS[2:])
    for name in ALL_PLANS[2:]:
        yield owner.loop("score", name)
    yield owner.loop("compare", *ALL_PLANS)
    yield owner.draft("decision")
    owner.fill("decision.json")
    yield owner.loop("decide", "comparison.json", "decision.json")


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
