#!/usr/bin/env python3
"""The owner's desk: the next document with every mechanical field filled, and where you are.

    python3 examples/desk.py DIRECTORY status [--json]
    python3 examples/desk.py DIRECTORY draft [KIND ...] [options]

DIRECTORY is the experiment. `draft` writes a document that does not exist yet: references and
hashes are filled in, what only you can say is left as a text that begins with `FILL:`. An
existing file is never overwritten: `draft` shows what would change, `--update` makes that
change and keeps the old bytes below superseded/. Without KIND it drafts what comes next; of
several KINDs each is drafted by itself, and said to be written or refused.

KIND                what it writes
  start             environment spending meta expected: all that can be drafted at first
  environment       environment.json, from the executable itself (--cli PATH)
  spending          spending.json
  meta              meta.json in each directory of material: what only you know of each row
  expected          expected.json of each case that has none, with a judge test a criterion
  cases             development-cases.json and heldout-cases.json (--split, --from DIRECTORY)
  calibration-plan  calibration-plan.json, from labelled samples (--from DIRECTORY)
  approval          calibration-approval.json: lists every verdict that you approve
  policy            policy.json
  baseline-development, candidate-development, heldout-plans
                    the plans (--project DIRECTORY: the Skill project); `plan` before the name
                    may be said as well
  diagnosis         diagnosis.json: every check that the baseline did not pass
  unlock            heldout-unlock.json: what opening the held-out cases means
  decision          decision.json, with the whole comparison in words
  revocation        revocations.json, when a calibration must not be relied on any longer

Material lies inside DIRECTORY:
  criteria/NAME.txt                               what a judge test asks
  material/development/CASE/input.txt, truth.txt  a case; so also material/heldout/CASE/
      expected.json there, or one that all cases below a directory share
  samples/[CRITERION/]NAME/input.txt, truth.txt, output.txt   a sample for the judge
  skills/baseline/.claude/skills/SKILL/SKILL.md   the present Skill; skills/candidate/ likewise

Another candidate is another round with a directory of its own: copy skills/candidate to
skills/candidate-2, revise the copy, and `draft diagnosis --round 2` writes diagnosis-2.json;
what follows goes with it. Another policy is another round too: `draft policy --round 2`.

The desk calls no model and spends nothing. It imports eval_loop.py and believes its receipts.
Exit status: 0 done; 2 usage; 3 refused, or a document that is there differs from the draft,
and nothing was written in its place; 4 written, and it is wrong or contradicts another
document; 130 interrupted.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import decimal
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import types
from typing import Any, Callable, Iterable, Iterator, NamedTuple

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
PLACE = next((place for place in (HERE.parent, HERE) if (place / "eval_loop.py").is_file()),
             None)
if PLACE is None:
    sys.exit(f"desk.py: eval_loop.py is missing; put it into {HERE.parent}")
sys.path.insert(0, str(PLACE))
import eval_loop  # noqa: E402  (the path above is where it lies)
from eval_loop import Refused  # noqa: E402

# ---- Words ---------------------------------------------------------------------------------

WIDTH = 80
DONE, REFUSED, WRONG, INTERRUPTED = 0, 3, 4, 130
SPLITS = ("development", "heldout")
PLANS = ("baseline-development-plan", "candidate-development-plan", "baseline-heldout-plan",
         "candidate-heldout-plan")
HELDOUT = PLANS[2:]
VERSION_SECONDS = 60           # how long an executable may take to print its version

# The documents in the order in which they come to be; a role is also the file's usual name.
ROLES = ("environment", "spending", "development-cases", "heldout-cases", "calibration-plan",
         "calibration-approval", "calibration", "policy", PLANS[0], "diagnosis", PLANS[1],
         "heldout-unlock", *HELDOUT, "comparison", "decision", "decision-receipt")
ONCE = ("spending", "revocations")      # these have one name in every round
PROGRAM_MADE = ("calibration", "comparison", "decision-receipt")
NO_CASES = ("material: no cases yet; put each into material/development/NAME/ and "
            "material/heldout/NAME/ as input.txt and truth.txt")

# What to look at before a role is drafted: a document, and the word that shows it.
LOOKED_AT = {"calibration-approval": ("calibration", "calibration-plan"),
             PLANS[0]: ("check", "policy"), HELDOUT[0]: ("check", "heldout-unlock"),
             "decision": ("", "comparison")}

# What is typed after `draft` for a role.
DRAFTED_BY = {
    "development-cases": "cases", "heldout-cases": "cases", "calibration-approval": "approval",
    PLANS[0]: "baseline-development", PLANS[1]: "candidate-development",
    **dict.fromkeys(HELDOUT, "heldout-plans"), "heldout-unlock": "unlock",
    "revocations": "revocation"}

# The field that only one kind of document has (templates/README.md).
TELLING = {
    "claudeExecutable": "environment", "spendLimitUsd": "spending", "cases": "cases",
    "samples": "calibration-plan", "terminalHashes": "calibration-approval",
    "developmentCases": "policy", "variant": "plan", "observedFailures": "diagnosis",
    "candidateDevelopmentPlan": "heldout-unlock", "decision": "decision",
    "revocations": "revocations"}

CASE_META = {"caseGroup": "FILL: family: cases that could go right or wrong together share one",
             "sourceId": "FILL: id of the record that this was made from"}
META = {
    "cases": {
        "_": "What only you know of these cases. The inventory is drafted from it.",
        "permittedBy": "FILL: who allowed these inputs and truths to go to the two models",
        "testVersion": "1",
        "sourceRevision": "FILL: which revision of the records; a case may have its own",
        "_optional": "slice: the part of the population that a case stands for"},
    "samples": {
        "_": "What only you know of these samples. The calibration plan is drafted from it.",
        "taskId": "FILL: id of the task, in one word",
        "permittedBy": "FILL: who allowed these samples to go to the judge's model",
        "labelKind": "FILL: human_reviewed, or synthetic for made-up labels",
        "_optional": "qualification, validDays; for a sample: slice, attack, secondReview, "
                     "adjudication (templates/README.md)"}}
SAMPLE_META = {**CASE_META,
               "humanVerdict": "FILL: pass, fail or unknown, as you judge this output",
               "humanEvidence": "FILL: what in input, truth and output makes it so",
               "reviewedBy": "FILL: who labelled it"}


def now() -> str:
    """Return the present time as the owner's documents write it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def wrapped(text: str, first: str = "", rest: str = "") -> str:
    """Return `text` in lines of at most 80 columns, as far as its words allow; nothing in it
    steers the terminal."""
    return textwrap.fill(eval_loop.printable(text), WIDTH, initial_indent=first,
                         subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)


def tell(*lines: str, first: str = "", rest: str = "") -> None:
    """Print each line, wrapped; what follows a line break in it is a command to paste."""
    for line in lines:
        text, _, command = line.partition("\n")
        print(wrapped(text, first, rest))
        if command:
            print(command_lines(command))


def command_lines(command: str) -> str:
    """Return a command that can be pasted, continued on further lines when it is long."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(eval_loop.printable(command))):
        if lines[-1].strip() and len(lines[-1]) + len(word) > WIDTH - 3:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)


def amount(number: int, what: str) -> str:
    """Return a counted noun: 1 case, 2 cases."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def short(text: Any, limit: int = 160) -> str:
    """Return a text on one line, cut visibly."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else line[:limit - 1] + "…"


def some(lines: Iterable[str], limit: int = 12, what: str = "") -> list[str]:
    """Return the first lines of many, and how many more there are."""
    lines = list(lines)
    more = len(lines) - limit
    return lines[:limit] + ([f"… and {more} more{what}"] if more > 0 else [])


# ---- Documents as they lie there -------------------------------------------------------------


class Paper(NamedTuple):
    """One document at the top of the experiment, whatever its state."""

    file: str
    role: str
    number: int            # its round
    document: Any          # None when it cannot be read
    trouble: str           # why it cannot be read


def told_role(document: Any) -> str:
    """Return the role of a document by its content, or nothing."""
    if not isinstance(document, dict):
        return ""
    if document.get("kind") in PROGRAM_MADE:
        return document["kind"]
    kinds = [kind for field, kind in TELLING.items() if field in document]
    if len(kinds) != 1:
        return ""
    if kinds[0] == "cases":
        return f"{document.get('split')}-cases"
    if kinds[0] == "plan":
        return f"{document.get('variant')}-{document.get('split')}-plan"
    return kinds[0]


def split_name(file: str) -> tuple[str, int]:
    """Return the role and the round that a file's name tells: diagnosis-2.json, 2."""
    match = re.fullmatch(r"(.+?)(?:-(\d{1,4}))?(-receipt)?\.json", file)
    stem, number, receipt = match.groups(default="")
    return stem + receipt, int(number or 1)


def placeholders(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """Return the path and the words of every placeholder that is left, notes apart."""
    if isinstance(value, str) and value.startswith("FILL:"):
        yield path, value.removeprefix("FILL:").strip()
    elif isinstance(value, dict):
        for name, item in value.items():
            if not name.startswith("_"):
                yield from placeholders(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from placeholders(item, f"{path}[{index}]")


def references(value: Any, path: str = "$") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the path and the object of every reference in a document, notes apart."""
    if isinstance(value, dict):
        if isinstance(value.get("file"), str) and "sha256" in value:
            yield path, value
            return
        for name, item in value.items():
            if not name.startswith("_"):
                yield from references(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references(item, f"{path}[{index}]")


def listed(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; nothing of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def held(value: Any, name: str) -> str:
    """Return the text that a field of an object holds, or nothing."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def file_hash(path: pathlib.Path) -> str:
    """Return the hash of a file's bytes, read in a stream, or nothing when it is not there."""
    with contextlib.suppress(OSError):
        if path.is_file():              # a pipe would never end
            with open(path, "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
    return ""


def read_json(path: pathlib.Path) -> tuple[Any, str]:
    """Return a document and nothing, or None and why it cannot be read."""
    if path.exists() and not path.is_file():
        return None, "is no regular file"
    try:
        return eval_loop.parse_json(path.read_bytes()), ""
    except ValueError as error:
        return None, str(error)
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"


class Desk:
    """One experiment directory, its documents by role and round, and the owner's options."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.typed = options.directory
        if not os.path.isdir(self.typed):
            raise Refused(f"{self.typed}: no directory; make it: "
                          f"mkdir -p {shlex.quote(self.typed)}")
        eval_loop.open_experiment(os.path.join(self.typed, "spending.json"))
        self.root = pathlib.Path(os.path.realpath(self.typed))
        self.start = len(ROLES)          # where the round begins that is being drafted
        self.look()
        latest = max((paper.number for paper in self.papers), default=1)
        self.round = options.round or latest

    def look(self) -> None:
        """Read the documents at the top of the directory."""
        self.papers = []
        for path in sorted(self.root.glob("*.json")):
            if path.name.startswith(".") or path.name.endswith(".template.json"):
                continue
            document, trouble = read_json(path)
            named, number = split_name(path.name)
            role = told_role(document)
            role = role if role in (*ROLES, *ONCE) else named
            if role in (*ROLES, *ONCE):
                number = 1 if role in ONCE else number
                self.papers.append(Paper(path.name, role, number, document, trouble))

    def _first(self, number: int) -> int:
        """Return where a round begins: the place of its earliest document."""
        places = [ROLES.index(paper.role) for paper in self.papers
                  if paper.number == number and paper.role in ROLES]
        places += [self.start] if number == self.round else []
        return min(places, default=len(ROLES))

    def paper(self, role: str) -> Paper | None:
        """Return the document that plays a role in this round; earlier rounds lend theirs."""
        place = ROLES.index(role) if role in ROLES else 0
        for number in range(self.round, 0, -1):
            here = [paper for paper in self.papers
                    if paper.role == role and (paper.number == number or role in ONCE)]
            if here:
                usual = [paper for paper in here if paper.file == self.name(role, number)]
                return (usual or here)[0]
            if role not in ONCE and place >= self._first(number):
                return None
        return None

    def name(self, role: str, number: int | None = None) -> str:
        """Return the usual file name of a role in a round."""
        tail = self.tail(number) if role not in ONCE else ""
        if role == "decision-receipt":
            return f"decision{tail}-receipt.json"
        return f"{role}{tail}.json"

    def tail(self, number: int | None = None) -> str:
        """Return what the names of a round end in: nothing for the first one."""
        number = number or self.round
        return f"-{number}" if number > 1 else ""

    def document(self, role: str) -> dict[str, Any]:
        """Return the document of a role, or an empty one."""
        paper = self.paper(role)
        return paper.document if paper and isinstance(paper.document, dict) else {}

    def path(self, file: str) -> pathlib.Path:
        """Return the path of a file of the experiment."""
        return self.root / file

    def shown(self, file: str) -> str:
        """Return a file of the experiment as the owner would type it."""
        return os.path.normpath(os.path.join(self.typed, file))

    def reference(self, file: str) -> dict[str, str]:
        """Return a reference to a file as it is now. Refuses one that is not there."""
        digest = file_hash(self.path(file))
        if not digest:
            raise Refused(f"{file}: missing or unreadable; put it there, then repeat")
        return {"file": file, "sha256": digest}

    def need(self, role: str) -> Paper:
        """Return the complete document of a role. Refuses what is missing or unfilled."""
        paper = self.paper(role)
        if paper is None:
            made = "" if role in PROGRAM_MADE else f":\n{self.command(drafting(role))}"
            raise Refused(f"{self.name(role)}: missing; it comes first{made}")
        self.complete(paper.file, paper.document, paper.trouble)
        shape = eval_loop.SHAPES.get(kind_of(role), {})
        if role not in PROGRAM_MADE and (
                problems := shape_problems(shape, paper.document)):
            raise Refused(*(f"{paper.file}: {problem}" for problem in problems))
        return paper

    def complete(self, file: str, document: Any, trouble: str = "") -> None:
        """Refuses a document that cannot be read or still has placeholders."""
        if not isinstance(document, dict):
            raise Refused(f"{file}: {trouble or 'is not a JSON object'}; correct it")
        if left := [path for path, _ in placeholders(document)]:
            raise Refused(f"{file}: still to fill in: {', '.join(some(left, 8))}; then repeat "
                          "this command")

    def command(self, words: Iterable[str]) -> str:
        """Return a desk command, ready to paste."""
        last = ["--round", str(self.round)] if self.options.round else []
        return shlex.join(["python3", sys.argv[0], self.typed, *words, *last])

    def loop(self, word: str, *files: str, more: Iterable[str] = (),
             program: pathlib.Path = PLACE / "eval_loop.py") -> str:
        """Return an eval_loop command on documents of the experiment, ready to paste."""
        near = os.path.relpath(program)
        near = str(program) if near.startswith("../..") else near
        return shlex.join(["python3", near, *filter(None, [word]), *map(self.shown, files),
                           *more])

    def look_at(self, role: str) -> str:
        """Return the command that shows what a role's draft will stand on, or nothing."""
        word, document = LOOKED_AT.get(role, ("", ""))
        page = {} if word == "check" else {"program": HERE / "review_page.py"}
        return self.loop(word, named(self, document), **page) if document else ""

    # ---- what documents lead to

    def skill_name(self) -> str:
        """Return the name of the Skill: the policy's, else that of the baseline's project."""
        name = held(self.document("policy"), "skillName")
        if name and not name.startswith("FILL:"):
            return name
        folders = sorted(self.path(self.project("baseline")).glob(".claude/skills/*/SKILL.md"))
        return folders[0].parent.name if len(folders) == 1 else ""

    def project(self, variant: str) -> str:
        """Return the Skill project of a variant: planned, said now, diagnosed, or the usual."""
        planned = held(self.document(f"{variant}-development-plan"), "projectDir")
        if self.options.project and (variant == "candidate" or not planned):
            return self.options.project.rstrip("/")
        if planned:
            return planned
        approved = held(self.document("diagnosis"), "candidateSkillSha256")
        own = f"skills/{variant}{self.tail()}"
        usual = own if self.path(own).is_dir() else f"skills/{variant}"
        return self.skills().get(approved, usual) if variant == "candidate" else usual

    def skills(self) -> dict[str, str]:
        """Return the projects below skills/ by the hash of their SKILL.md."""
        return {file_hash(path): path.relative_to(self.root).parents[3].as_posix()
                for path in sorted(self.root.glob("skills/*/.claude/skills/*/SKILL.md"))}

    def skill_file(self, variant: str) -> str:
        """Return where a variant's SKILL.md lies, or should."""
        return f"{self.project(variant)}/.claude/skills/{self.skill_name() or 'NAME'}/SKILL.md"

    def skill_hash(self, variant: str) -> str:
        """Return the hash of a variant's SKILL.md. Refuses one that is not there, that the
        program would refuse, or that is no revision."""
        file = self.skill_file(variant)
        digest = file_hash(self.path(file))
        if not digest:
            raise Refused(f"{file}: missing; put the {variant} Skill there, or name its "
                          "project with --project DIRECTORY")
        if variant == "candidate" and digest == file_hash(self.path(
                self.skill_file("baseline"))):
            raise Refused(f"{file}: is byte for byte the baseline; write the revision first")
        if problems := skill_problems(self, variant):
            raise Refused(*problems)
        return digest

    def score_file(self, role: str) -> str:
        """Return the name of the score of a plan."""
        return f"{held(self.document(role), 'resultDir')}/score.json"

    def score(self, role: str) -> dict[str, Any]:
        """Return the score of a plan as its receipts give it. Refuses a missing one."""
        plan, file = self.need(role).file, self.score_file(role)
        if not self.path(file).is_file():
            raise Refused(f"{file}: missing; it comes first:\n{self.loop('score', plan)}")
        _, problems = offline("score", str(self.path(plan)))
        if problems:
            raise Refused(*problems)
        return read_json(self.path(file))[0]

    def record(self) -> str:
        """Return the name of the calibration record, whether or not it is there."""
        return (held(self.document("calibration-plan"), "calibrationOutputFile")
                or self.name("calibration"))


def drafting(role: str) -> tuple[str, str]:
    """Return the words that draft a role."""
    return "draft", DRAFTED_BY.get(role, role)


def shape_problems(shape: Any, document: Any) -> list[str]:
    """Return everything in a document that its shape does not allow."""
    return [f"{path}: {problem}"
            for path, _, _, _, problem in eval_loop.inspect(shape, document) if problem]


def kind_of(role: str) -> str:
    """Return the kind of document that plays a role."""
    return "plan" if role in PLANS else "cases" if role.endswith("-cases") else role


# ---- The program ---------------------------------------------------------------------------
# Everything that the desk asks of eval_loop.py beyond bytes, hashes and strict JSON.


def offline(*words: str) -> tuple[list[str], list[str]]:
    """Say an offline command of the program; return its results and its refusals."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        eval_loop.main(list(words))
    told, noted = map(text_of, streams)
    return ([line for line in told if not line.startswith("next:")],
            [line.removeprefix("refused: ") for line in noted if line.startswith("refused: ")])


def text_of(stream: io.TextIOWrapper) -> list[str]:
    """Return the lines that were written to a stream."""
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8", "replace").splitlines()


def checked(desk: Desk, *files: str) -> tuple[list[str], list[str]]:
    """Return what `check` says of documents, and every problem that it finds."""
    return offline("check", *(str(desk.path(file)) for file in files))


def fresh(desk: Desk) -> eval_loop.Experiment:
    """Return the experiment as the program sees it now."""
    return eval_loop.Experiment(str(desk.root), eval_loop.utc_now())


def skill_problems(desk: Desk, variant: str) -> list[str]:
    """Return what the program would refuse in a variant's Skill project, once it is there."""
    file, experiment = desk.skill_file(variant), fresh(desk)
    if digest := file_hash(desk.path(file)):
        plan = eval_loop.Bound("", "plan", document={
            "projectDir": desk.project(variant), "skillSha256": digest})
        eval_loop.read_skill(experiment, plan, desk.skill_name())
    return experiment.problems


def sample_attempts(desk: Desk) -> list[tuple[dict[str, Any], str, list[Any], int]]:
    """Return for each sample its entry, its label, its attempts and how many are allowed."""
    experiment = fresh(desk)
    plan = experiment.load({"file": desk.need("calibration-plan").file}, "calibration-plan")
    experiment.settle()
    labels, problems = eval_loop.labels_of(plan)
    if problems:
        raise Refused(*problems)
    names = eval_loop.receipt_names(experiment.root, plan.document["resultDir"])
    rows = []
    for sample in plan.document["samples"]:
        label = labels[sample["id"]]
        call = eval_loop.sample_call(experiment, plan, sample, label)
        rows.append((sample, label, eval_loop.read_attempts(experiment.root, call, names),
                     call.environment["unservedAttempts"]))
    return rows


def open_state(desk: Desk, file: str) -> str:
    """Return what became of an attempt without a terminal receipt."""
    pending, _ = read_json(desk.path(f"{file}.pending.json"))
    left = types.SimpleNamespace(file=file, pending=pending or {"host": ""})
    return eval_loop.open_state(str(desk.root), left, False)


class Counts:
    """How many calls of one kind there are in each state, and why answers are unknown."""

    def __init__(self, total: int) -> None:
        self.total, self.todo = total, 0
        self.open: collections.Counter[str] = collections.Counter()
        self.unknown: collections.Counter[str] = collections.Counter()

    @property
    def done(self) -> int:
        """How many calls have ended."""
        return self.total - self.todo - sum(self.open.values())

    def text(self, what: str) -> str:
        """Return the counts in words."""
        parts = [f"{self.done} of {self.total} {what} done"]
        parts += [f"{self.todo} to do"] if self.todo else []
        parts += [f"{count} {state}" for state, count in sorted(self.open.items())]
        if self.unknown:
            reasons = ", ".join(f"{count} {why}" for why, count in sorted(self.unknown.items()))
            parts.append(f"{sum(self.unknown.values())} unknown ({reasons})")
        return ", ".join(parts)

    def json(self) -> dict[str, Any]:
        """Return the counts as data."""
        return {"total": self.total, "done": self.done, "todo": self.todo,
                **{state: self.open.get(state, 0) for state in
                   ("running", "waiting", "interrupted", "uncertain")},
                "unknown": dict(self.unknown)}


def sample_counts(desk: Desk) -> Counts:
    """Return the state of the calibration's calls."""
    rows = sample_attempts(desk)
    counts = Counts(len(rows))
    for _, _, attempts, allowed in rows:
        if eval_loop.next_number(attempts, allowed):
            counts.todo += 1
        elif attempts[-1].terminal is None:
            counts.open[open_state(desk, attempts[-1].file)] += 1
        elif attempts[-1].terminal["status"] != "ok":
            counts.unknown[attempts[-1].terminal["reason"]] += 1
    return counts


def plan_counts(desk: Desk, role: str) -> tuple[Counts, Counts]:
    """Return the state of a plan's Skill calls and of its judge calls, from a full replay."""
    experiment = fresh(desk)
    plan = experiment.load({"file": desk.need(role).file}, "plan")
    arm = eval_loop.arm_of(experiment, plan)
    tally = eval_loop.replay(experiment, arm)
    judged = [row for row in tally.rows if row.kind == "judge"]
    runs, judgments = Counts(len(arm.cases)), Counts(len(judged))
    runs.todo = sum(words[0] == "run" for words in tally.possible)
    for file in tally.open:
        (judgments if ".judge." in file else runs).open[open_state(desk, file)] += 1
    not_called = sum(row.reason == "not-called" for row in judged)
    judgments.todo = not_called - sum(judgments.open.values())
    unknown = [row for row in tally.rows
               if row.verdict == "unknown" and row.reason != "not-called"]
    of_runs = {(row.caseId, row.reason) for row in unknown if row.kind != "judge"}
    runs.unknown.update(reason for _, reason in of_runs)
    judgments.unknown.update(row.reason for row in unknown if row.kind == "judge"
                             and (row.caseId, row.reason) not in of_runs)
    return runs, judgments


def plain_counts(desk: Desk, directory: str) -> str:
    """Return what a directory's file names alone tell, for when a replay is refused."""
    names = eval_loop.receipt_names(str(desk.root), directory) if directory else {}
    pending = sum("pending.json" in parts for parts in names.values())
    ended = sum("terminal.json" in parts for parts in names.values())
    return f"{amount(pending, 'call')} begun, {ended} ended (by file names alone)"


def money_of(desk: Desk) -> dict[str, Any]:
    """Return the ledger: known, reserved for open calls, for unknown costs, and the limit."""
    spending = desk.document("spending")
    usable = not shape_problems(eval_loop.SHAPES["spending"], spending)
    ledger = eval_loop.Ledger(str(desk.root), spending if usable else {"spendLimitUsd": "0"})
    ledger.refresh()
    calls = [(reserved, cost, key in ledger.closed)
             for key, (_, reserved, cost) in ledger.entries.items()]
    unknown = [reserved for reserved, cost, closed in calls if closed and cost is None]
    still_open = [reserved for reserved, _, closed in calls if not closed]
    return {
        "calls": len(calls), "openCalls": len(still_open), "unknownCalls": len(unknown),
        "knownUsd": plain(cost for _, cost, _ in calls if cost is not None),
        "reservedUsd": plain(still_open), "unknownReservedUsd": plain(unknown),
        "committedUsd": plain([ledger.committed]),
        "limitUsd": str(spending["spendLimitUsd"]) if usable else None,
        "callLimit": ledger.call_limit}


def plain(amounts: Iterable[decimal.Decimal]) -> str:
    """Return the sum of amounts as a plain decimal."""
    return eval_loop.money(eval_loop.total(amounts))


def exposure_of(desk: Desk) -> dict[str, Any]:
    """Return how many held-out cases other Skill runs of this experiment have seen."""
    paper = desk.paper("heldout-cases")
    if paper is None:
        return {"cases": None, "exposed": [], "note": "the held-out inventory is not here"}
    experiment = fresh(desk)
    inventory = experiment.load({"file": paper.file}, "cases")
    experiment.settle()
    cases = eval_loop.cases_of(experiment, inventory)
    own = {held(desk.document(role), "resultDir") for role in HELDOUT}
    others = list(eval_loop.other_receipts(experiment, "run", own))
    seen = list(dict.fromkeys(eval_loop.exposures(
        experiment, cases, others, eval_loop.END_OF_TIME)))
    return {"cases": len(cases), "exposed": seen, "note": ""}


# ---- Filling a document --------------------------------------------------------------------


class Rows(NamedTuple):
    """A list whose rows are told by some of their fields; rows of the base keep their words."""

    rows: list[dict[str, Any]]
    template: dict[str, Any]
    identity: tuple[str, ...]
    keep: bool = False       # rows of the base that are not given stay

    def over(self, base: Any) -> list[dict[str, Any]]:
        """Return the given rows, each over the row of the base that it is about."""
        there = listed(base)
        known = {self.key(row): row for row in there}
        rows = [overlay(known[self.key(row)], row) if self.key(row) in known else
                {**row, **overlay(self.template, row)} for row in self.rows]
        given = {self.key(row) for row in self.rows}
        return [row for row in there if self.keep and self.key(row) not in given
                and not list(placeholders(row))] + rows

    def key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        """Return what tells a row."""
        return tuple(row.get(name) for name in self.identity)


def overlay(base: Any, given: Any) -> Any:
    """Return `base` with everything that is given; the rest keeps its words and its order."""
    if isinstance(given, Rows):
        return given.over(base)
    if isinstance(given, dict) and isinstance(base, dict) and "sha256" not in given:
        return {**base, **{name: overlay(base.get(name), item) for name, item in given.items()}}
    return given


def proposed(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with values where it has none or a placeholder."""
    free = {name: value for name, value in values.items() if value is not None
            and (name not in base or list(placeholders(base[name])))}
    return overlay(base, free)


class Draft(NamedTuple):
    """What the desk knows about one document."""

    file: str
    template: dict[str, Any]
    facts: dict[str, Any]              # mechanical: they replace what stands there
    proposals: dict[str, Any]          # usual: they give way to what the owner wrote
    words: tuple[str, ...] = ()        # what is approved, to be read before signing


def template(kind: str) -> dict[str, Any]:
    """Return a document's template, with its words for placeholders."""
    file = PLACE / "templates" / f"{kind}.template.json"
    document, trouble = read_json(file)
    if document is None:
        raise Refused(f"{file}: {trouble}; copy the templates directory beside eval_loop.py")
    return document


def row_template(kind: str, field: str) -> dict[str, Any]:
    """Return the template of one row, without its note."""
    return {name: value for name, value in template(kind)[field][0].items()
            if not name.startswith("_")}


def refreshed(desk: Desk, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose references hold the present hashes of files that are there."""
    copy = json.loads(dumped(document))
    for _, reference in references(copy):
        reference["sha256"] = file_hash(desk.path(reference["file"])) or reference["sha256"]
    return copy


def dumped(document: Any) -> str:
    """Return a document as the owner's files have it; exact decimals become texts."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n"


def filled(desk: Desk, draft: Draft) -> tuple[dict[str, Any], Any]:
    """Return the document that the draft gives, and the one that is there (None: none)."""
    there, trouble = None, ""
    if os.path.lexists(desk.path(draft.file)):
        there, trouble = read_json(desk.path(draft.file))
        if not isinstance(there, dict):
            raise Refused(f"{draft.file}: {trouble or 'is not a JSON object'}; correct it, or "
                          "move it away and draft again")
    base = refreshed(desk, there) if there is not None else draft.template
    document = overlay(proposed(base, draft.proposals), draft.facts)
    first = {"_": document["_"]} if "_" in document else {}
    notes = {"_read": list(draft.words)} if draft.words else {}
    return {**first, **notes, **document, **notes}, there


def leaves(value: Any, path: str = "$") -> dict[str, Any]:
    """Return every leaf of a document by its path."""
    items = (value.items() if isinstance(value, dict) else
             enumerate(value) if isinstance(value, list) else ())
    found, step = {}, "[{}]" if isinstance(value, list) else ".{}"
    for name, item in items:
        found |= leaves(item, path + step.format(name))
    return found if isinstance(value, (dict, list)) and value else {path: value}


def changes(there: Any, document: Any) -> list[str]:
    """Return in words how a draft differs from the document that is there."""
    old, new = (leaves(json.loads(dumped(each))) for each in (there, document))
    return [f"{path}: {short(json.dumps(old[path]), 70) if path in old else 'nothing'} -> "
            f"{short(json.dumps(new[path]), 70) if path in new else 'nothing'}"
            for path in dict.fromkeys([*old, *new])
            if old.get(path, Ellipsis) != new.get(path, Ellipsis)]


# ---- Material ------------------------------------------------------------------------------


def inside(desk: Desk, directory: str) -> str:
    """Return a directory relative to the experiment. Refuses one that is not inside it."""
    for path in (pathlib.Path(directory), desk.path(directory)):
        resolved = path.resolve()
        if path.is_dir() and resolved.is_relative_to(desk.root):
            return resolved.relative_to(desk.root).as_posix()
    if pathlib.Path(directory).is_dir():
        raise Refused(f"--from {directory}: lies outside the experiment, and documents refer "
                      f"only to files inside it; copy it:\n"
                      + shlex.join(["cp", "-R", directory, desk.shown("material")]))
    raise Refused(f"--from {directory}: no directory; expected one below {desk.typed}")


def part(desk: Desk, directory: str, name: str) -> str:
    """Return the one file NAME.* of a directory. Refuses none and several."""
    found = sorted(path.name for path in desk.path(directory).glob(f"{name}.*")
                   if path.name != f"{name}.json" and not path.name.endswith("~"))
    if len(found) != 1:
        raise Refused(f"{directory}: expected one file {name}.txt, got "
                      f"{', '.join(found) or 'none'}")
    return f"{directory}/{found[0]}"


def rows_of(desk: Desk, directory: str) -> list[str]:
    """Return the directories below one that hold an input, relative to it, in name order."""
    top = desk.path(directory)
    found = {path.parent.relative_to(top).as_posix() for path in top.glob("**/input.*")
             if path.is_file()}
    return sorted(found - {"."})


def material(desk: Desk, split: str) -> str:
    """Return the directory of a split's cases, or nothing when there is none."""
    source = desk.options.source
    if not source:
        usual = f"material/{split}"
        return usual if desk.path(usual).is_dir() else ""
    directory = inside(desk, source)
    below = f"{directory}/{split}"
    return below if not desk.options.split and desk.path(below).is_dir() else directory


def samples_directory(desk: Desk) -> str:
    """Return the directory of the samples, or nothing when there is none."""
    if desk.options.source:
        return inside(desk, desk.options.source)
    return "samples" if desk.path("samples").is_dir() else ""


def splits(desk: Desk) -> tuple[str, ...]:
    """Return the splits that a command is about."""
    return (desk.options.split,) if desk.options.split else SPLITS


def criteria(desk: Desk) -> list[str]:
    """Return the files of the criteria."""
    return [f"criteria/{path.name}" for path in sorted(desk.path("criteria").glob("*.*"))
            if path.is_file() and not path.name.startswith(".")]


def meta_of(desk: Desk, directory: str, kind: str) -> tuple[dict, Callable[[str], dict]]:
    """Return what the owner said of a directory, and a function that tells it of a row.

    A row's own meta.json comes before the directory's, the directory's values for all rows
    come last. Refuses a file that still has placeholders.
    """
    def read(file: str) -> dict[str, Any]:
        if not os.path.lexists(desk.path(file)):
            return {}
        document, trouble = read_json(desk.path(file))
        desk.complete(file, document, trouble)
        return document

    whole = read(f"{directory}/meta.json")

    def tell_row(name: str) -> dict[str, Any]:
        entry = (whole.get(kind) or {}).get(name, {})
        return {**entry, **read(f"{directory}/{name}/meta.json")}

    return whole, tell_row


def expected_file(desk: Desk, directory: str, name: str) -> str:
    """Return the tests of a case: its own, or the nearest that it shares; or nothing."""
    for place in (f"{directory}/{name}", directory, os.path.dirname(directory)):
        file = os.path.join(place, "expected.json")
        if desk.path(file).is_file():
            return file
    return ""


def row_id(name: str, names: list[str]) -> str:
    """Return the id of a row: its directory's name, with what stands above when that is not
    unique."""
    last = name.split("/")[-1]
    return last if [each.split("/")[-1] for each in names].count(last) == 1 else (
        name.replace("/", "-"))


# ---- Drafts: before the first call -----------------------------------------------------------


def draft_environment(desk: Desk) -> list[Draft]:
    """Return the environment, from the executable itself."""
    there = desk.document("environment")
    options = desk.options
    cli = options.cli or held(there, "claudeExecutable") or shutil.which("claude")
    if not cli:
        raise Refused("environment.json: $.claudeExecutable: no `claude` on PATH; say where it "
                      "is:\n" + desk.command(("draft", "environment", "--cli", "/path/claude")))
    path, version, digest = executable(cli)
    facts = {"claudeExecutable": path, "cliVersion": version, "cliSha256": digest}
    if judge := options.judge_cli or held(there, "judgeExecutable"):
        names = ("judgeExecutable", "judgeCliVersion", "judgeCliSha256")
        facts |= dict(zip(names, executable(judge), strict=True))
    base = template("environment")
    if "synthetic" in version:
        base["evidenceKind"] = "synthetic"
    tell(f"{path} prints the version {version}.")
    if path != os.path.abspath(cli):
        tell(f"{cli} is a link to it. An updater may replace that file: keep a copy of your "
             "own and name it instead.")
    return [Draft(named(desk, "environment"), base, facts, {})]


def executable(cli: str) -> tuple[str, str, str]:
    """Return the real path, the version and the hash of an executable. Starts it once."""
    path = os.path.realpath(os.path.expanduser(cli))
    digest = file_hash(pathlib.Path(path))
    if not digest or not os.access(path, os.X_OK):
        raise Refused(f"{cli}: no executable file; name the CLI: --cli /path/claude "
                      "(`command -v claude` tells where it is)")
    with tempfile.TemporaryDirectory() as home:
        variables = {"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": home, "LANG": "C.UTF-8"}
        try:
            done = subprocess.run([path, "--version"], env=variables, cwd=home, check=False,
                                  stdin=subprocess.DEVNULL, capture_output=True,
                                  encoding="utf-8", errors="replace", timeout=VERSION_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refused(f"{path} --version: {short(error)}; it must start "
                          "by itself") from None
    version = done.stdout.strip()
    if done.returncode or not version or "\n" in version:
        raise Refused(f"{path} --version: expected one line, got exit {done.returncode}: "
                      f"{short(done.stdout or done.stderr) or 'nothing'}")
    return path, version, digest


def draft_spending(desk: Desk) -> list[Draft]:
    """Return the purse."""
    return [Draft("spending.json", template("spending"), {}, {"approvedAtUtc": now()})]


def draft_meta(desk: Desk) -> list[Draft]:
    """Return the file for the owner's words on each directory of cases and samples."""
    drafts = []
    for split in splits(desk):
        if directory := material(desk, split):
            drafts.append(meta_draft(desk, directory, "cases", CASE_META))
    if not drafts:
        raise Refused(NO_CASES)
    if (directory := samples_directory(desk)) and not desk.options.source:
        drafts.append(meta_draft(desk, directory, "samples", SAMPLE_META))
    return [draft for draft in drafts if draft]


def meta_draft(desk: Desk, directory: str, kind: str, row: dict[str, str]) -> Draft | None:
    """Return the meta.json of a directory, or None when each row has its own."""
    names = [name for name in rows_of(desk, directory)
             if not desk.path(f"{directory}/{name}/meta.json").exists()]
    file = f"{directory}/meta.json"
    there, _ = read_json(desk.path(file))
    said = there.get(kind) if isinstance(there, dict) else None
    rows = {name: (said or {}).get(name, row) for name in names}
    return Draft(file, {**META[kind], kind: {}}, {kind: rows} if names else {}, {})


def draft_expected(desk: Desk) -> list[Draft]:
    """Return the tests of every case that has none: a text, and a judge test a criterion."""
    kinds = {row["kind"]: row for row in template("expected")["tests"]}
    base = {name: value for name, value in template("expected").items() if name != "_"}
    asked = [{**kinds["judge"], "id": pathlib.Path(file).stem,
              "criterion": desk.reference(file)} for file in criteria(desk)]
    base["tests"] = [kinds["contains"], *asked]
    drafts = {}
    for directory in filter(None, (material(desk, split) for split in splits(desk))):
        for name in rows_of(desk, directory):
            shared = f"{directory}/expected.json"
            own = shared if desk.options.shared else f"{directory}/{name}/expected.json"
            file = expected_file(desk, directory, name) or own
            drafts[file] = Draft(file, base, {}, {})
    if not drafts:
        raise Refused(NO_CASES)
    return list(drafts.values())


def draft_cases(desk: Desk) -> list[Draft]:
    """Return the inventories, from directories of inputs, truths and expected files."""
    drafts = [inventory(desk, split) for split in splits(desk)]
    if not any(drafts):
        raise Refused(NO_CASES + ", then:\n" + desk.command(("draft", "meta", "expected")))
    return [draft for draft in drafts if draft]


def inventory(desk: Desk, split: str) -> Draft | None:
    """Return the inventory of a split, or None when it has no directory and no document."""
    role = f"{split}-cases"
    directory, file = material(desk, split), named(desk, role)
    if not directory:
        return Draft(file, {}, {}, {}) if desk.paper(role) else None
    whole, tell_row = meta_of(desk, directory, "cases")
    names = rows_of(desk, directory)
    rows = [case_row(desk, directory, name, row_id(name, names), {
        **said_of(whole, "sourceRevision", "slice"), **tell_row(name)}) for name in names]
    facts = {"split": split, "cases": Rows(rows, row_template(role, "cases"), ("id",))}
    return Draft(file, template(role), facts | said_of(whole, "permittedBy", "testVersion"), {})


def said_of(whole: dict[str, Any], *fields: str) -> dict[str, Any]:
    """Return those of the fields that a meta.json says."""
    return {field: whole[field] for field in fields if field in whole}


def case_row(desk: Desk, directory: str, name: str, case: str, said: dict) -> dict[str, Any]:
    """Return the row of one case. Refuses tests that are missing or still to fill in."""
    expected = expected_file(desk, directory, name)
    if not expected:
        raise Refused(f"{directory}/{name}/expected.json: missing; draft it:\n"
                      + desk.command(("draft", "expected")))
    desk.complete(expected, *read_json(desk.path(expected)))
    return {"id": case, **allowed(said, "cases"),
            "input": desk.reference(part(desk, f"{directory}/{name}", "input")),
            "truth": desk.reference(part(desk, f"{directory}/{name}", "truth")),
            "expected": desk.reference(expected)}


def allowed(said: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the owner's words without notes; the criterion's name is read elsewhere."""
    return {name: value for name, value in said.items()
            if not name.startswith("_") and not (kind == "samples" and name == "criterion")}


def draft_calibration_plan(desk: Desk) -> list[Draft]:
    """Return the calibration plan, from a directory of labelled samples."""
    directory = samples_directory(desk)
    if not directory and not desk.paper("calibration-plan"):
        if desk.paper("development-cases") and not judged(desk):
            raise Refused("samples: none, and none are needed: no test is decided by a judge")
        raise Refused("samples: none yet; put each into samples/CRITERION/NAME/ as input.txt, "
                      "truth.txt and output.txt, then:\n" + desk.command(("draft", "meta")))
    facts: dict[str, Any] = {"environment": desk.reference(desk.need("environment").file)}
    proposals: dict[str, Any] = {}
    inventories = [desk.need(f"{split}-cases").file for split in SPLITS
                   if split == "development" or desk.paper(f"{split}-cases")]
    facts["exclusions"] = [desk.reference(file) for file in inventories]
    if directory:
        whole, tell_row = meta_of(desk, directory, "samples")
        names = rows_of(desk, directory)
        rows = [sample_row(desk, directory, name, row_id(name, names), tell_row(name))
                for name in names]
        facts["samples"] = Rows(rows, row_template("calibration-plan", "samples"), ("id",))
        facts |= said_of(whole, "taskId", "permittedBy", "labelKind", "reviewers",
                         "qualification", "validDays")
        proposals["reviewers"] = reviewers(rows) or None
    tail = desk.tail()
    base = {**template("calibration-plan"), "resultDir": f"results/calibration{tail}",
            "calibrationOutputFile": f"calibration{tail}.json"}
    return [Draft(named(desk, "calibration-plan"), base, facts, proposals)]


def sample_row(desk: Desk, directory: str, name: str, sample: str,
               said: dict[str, Any]) -> dict[str, Any]:
    """Return the row of one sample."""
    place = f"{directory}/{name}"
    return {"id": sample, **allowed(said, "samples"),
            **{each: desk.reference(part(desk, place, each))
               for each in ("input", "truth", "output")},
            "criterion": desk.reference(criterion_of(desk, name, said))}


def criterion_of(desk: Desk, name: str, said: dict[str, Any]) -> str:
    """Return the criterion of a sample: said, told by its directory, or the only one."""
    files = criteria(desk)
    if isinstance(said.get("criterion"), str):
        return said["criterion"]
    named = [file for file in files if pathlib.Path(file).stem in name.split("/")[:-1]]
    if len(named or files) != 1:
        raise Refused(f"samples/{name}: its criterion is not told; put it into a directory "
                      "named like one of " + (", ".join(files) or "criteria/NAME.txt"))
    return (named or files)[0]


def reviewers(rows: list[dict[str, Any]]) -> list[str]:
    """Return everybody who labelled, in the order of the samples."""
    people = [entry.get("reviewedBy") for row in rows for entry in
              (row, row.get("secondReview") or {}, row.get("adjudication") or {})]
    return list(dict.fromkeys(name for name in people if isinstance(name, str)))


def draft_approval(desk: Desk) -> list[Draft]:
    """Return the calibration's approval, with every verdict in words."""
    plan = desk.need("calibration-plan")
    rows = sample_attempts(desk)
    if not any(attempts for _, _, attempts, _ in rows):
        raise Refused(f"{plan.file}: no sample is judged yet; first:\n"
                      + desk.loop("calibrate-run", plan.file))
    hashes = {f"{attempt.file.split('/')[-1]}.terminal.json": attempt.terminal_sha256
              for _, _, attempts, _ in rows for attempt in attempts if attempt.terminal}
    words = [sample_words(sample, label, attempts) for sample, label, attempts, _ in rows]
    other = sum("DIFFERS" in line for line in words)
    words.insert(0, f"You approve these {len(words)} verdicts of the judge as truly its own, "
                    f"read beside their sources; {other} of them differ from the label.")
    facts = {"calibrationPlanSha256": file_hash(desk.path(plan.file)),
             "terminalHashes": hashes}
    base = {**template("calibration-approval"), "terminalHashes": {}}
    return [Draft(named(desk, "calibration-approval"), base, facts, {"approvedAtUtc": now()},
                  tuple(words))]


def sample_words(sample: dict[str, Any], label: str, attempts: list[Any]) -> str:
    """Return what a person said of a sample and what the judge said."""
    terminal = attempts[-1].terminal if attempts else None
    if terminal is None:
        return f"{sample['id']}: people say {label}; the judge has not answered yet"
    said = terminal.get("verdict", "unknown")
    reason = f" ({terminal['reason']})" if terminal["reason"] else ""
    mark = "" if said == label else "  DIFFERS"
    return (f"{sample['id']}: people say {label}, the judge says {said}{reason}{mark}; "
            + judge_words(terminal))


def judge_words(terminal: dict[str, Any]) -> str:
    """Return the quote and the evidence of a judgment, shortened."""
    return (f"quote: {short(terminal.get('quote') or '-', 100)}; "
            f"evidence: {short(terminal.get('evidence') or '-', 200)}")


def named(desk: Desk, role: str) -> str:
    """Return the file of a role: the one that is there, else the usual name."""
    paper = desk.paper(role)
    return paper.file if paper else desk.name(role)


def judged(desk: Desk) -> bool:
    """Return whether a test of either inventory is decided by the judge."""
    tests = [test for split in SPLITS for test in inventory_tests(desk, split)]
    return any(test.get("kind") == "judge" for test in tests)


def inventory_tests(desk: Desk, split: str) -> list[dict[str, Any]]:
    """Return the tests of all cases of an inventory, as far as they can be read."""
    found = []
    for case in listed(desk.document(f"{split}-cases").get("cases")):
        document, _ = read_json(desk.path(held(case.get("expected"), "file")))
        found += listed(document.get("tests")) if isinstance(document, dict) else []
    return found


def draft_policy(desk: Desk) -> list[Draft]:
    """Return the policy, with what it seals in words."""
    fields = {"environment": "environment", "developmentCases": "development-cases",
              "heldoutCases": "heldout-cases"}
    facts: dict[str, Any] = {field: desk.reference(desk.need(role).file)
                             for field, role in fields.items()}
    facts["calibration"] = None
    if judged(desk):
        if not desk.path(desk.record()).is_file():
            raise Refused(f"{desk.record()}: missing; judge tests need a calibrated judge "
                          "first:\n" + desk.command(("draft", "calibration-plan")))
        facts["calibration"] = desk.reference(desk.record())
    facts |= said_of(desk.document("development-cases"), "testVersion")
    facts |= said_of(desk.document("calibration-plan"), "taskId") if judged(desk) else {}
    proposals = {"skillName": desk.skill_name() or None, "approvedAtUtc": now()}
    if problems := skill_problems(desk, "baseline"):
        raise Refused(*problems)
    return [Draft(named(desk, "policy"), template("policy"), facts, proposals,
                  policy_words(desk))]


def policy_words(desk: Desk) -> tuple[str, ...]:
    """Return what a policy seals."""
    environment = desk.document("environment")
    judge = f", {environment.get('judgeModelId')} judges" if judged(desk) else ""
    words = [f"{environment.get('modelId')} runs the Skill{judge}; the CLI is "
             f"{environment.get('cliVersion')}."]
    words += [f"{split}: {inventory_words(desk, split)}." for split in SPLITS]
    record, _ = read_json(desk.path(desk.record()))
    if judged(desk) and isinstance(record, dict):
        words.append(f"The judge is {record.get('status')} by {record.get('rule')} until "
                     f"{record.get('expiresAtUtc')}.")
    return (*words, "You approve the gates below as you leave them, before the first Skill "
                    "call. Changing one afterwards means a new policy and new held-out cases.")


def inventory_words(desk: Desk, split: str) -> str:
    """Return how large an inventory is."""
    cases = listed(desk.document(f"{split}-cases").get("cases"))
    tests = inventory_tests(desk, split)
    families = {str(case.get("caseGroup")).casefold() for case in cases}
    return (f"{amount(len(cases), 'case')} of {len(families)} "
            f"{'family' if len(families) == 1 else 'families'}, {amount(len(tests), 'check')}, "
            f"{sum(test.get('kind') == 'judge' for test in tests)} by the judge, "
            f"{sum(test.get('critical') is True for test in tests)} critical")


# ---- Drafts: from the first call on ----------------------------------------------------------


def draft_plan(desk: Desk, role: str) -> Draft:
    """Return one of the four plans, once what it stands on is checked."""
    variant, split, _ = role.split("-")
    facts = {"policy": desk.reference(desk.need("policy").file),
             "projectDir": desk.project(variant), "skillSha256": desk.skill_hash(variant)}
    for field, before in (("diagnosis", "diagnosis"), ("heldoutUnlock", "heldout-unlock")):
        if field in template(role):
            facts[field] = desk.reference(desk.need(before).file)
    base = {**template(role), "resultDir": f"results/{variant}-{split}{desk.tail()}"}
    return Draft(named(desk, role), base, facts, {})


def plans_after(before: str, *roles: str) -> Callable[[Desk], list[Draft]]:
    """Return what drafts plans once the document that they stand on has no problem, and
    prints what `check` says of it: what it costs and can show."""
    def draft(desk: Desk) -> list[Draft]:
        told, problems = checked(desk, desk.need(before).file)
        if problems:
            raise Refused(*problems)
        tell(*told, rest="  ")
        return [draft_plan(desk, role) for role in roles]
    return draft


def draft_diagnosis(desk: Desk) -> list[Draft]:
    """Return the diagnosis: a row for each check that the baseline did not pass."""
    plan = desk.need(PLANS[0])
    score = desk.score(PLANS[0])
    other_candidate(desk)
    failed = [row for row in score["rows"] if row["verdict"] != "pass"]
    if not failed:
        raise Refused(f"{desk.score_file(PLANS[0])}: the baseline passed every check, so there "
                      "is nothing to repair; add harder development cases")
    rows = [failure_row(desk, row) for row in failed]
    tell(*(f"{row['caseId']}.{row['testId']}: {row['_asked']}; answer: {row['_answer']}"
           + (f"; {row['_judge']}" if "_judge" in row else "") for row in rows),
         first="  | ", rest="  |   ")     # also when there is no candidate yet
    facts = {"baselinePlan": desk.reference(plan.file),
             "baselineScoreSha256": file_hash(desk.path(desk.score_file(PLANS[0]))),
             "candidateSkillSha256": desk.skill_hash("candidate"),
             "observedFailures": Rows(rows, row_template("diagnosis", "observedFailures"),
                                      ("caseId", "testId"))}
    words = (f"The baseline passed {score['totals']['passed']} of {score['totals']['total']} "
             f"development checks. You approve that the candidate in "
             f"{desk.project('candidate')} follows from the {len(failed)} failures; remove a "
             "row that says nothing, at least one stays.",)
    return [Draft(named(desk, "diagnosis"), template("diagnosis"), facts,
                  {"approvedAtUtc": now()}, words)]


def other_candidate(desk: Desk) -> None:
    """Refuses a Skill project that another round's candidate was run from."""
    project, policy = desk.project("candidate"), desk.document(PLANS[0]).get("policy")
    for paper in desk.papers:
        if paper.role == PLANS[1] and paper.number != desk.round and isinstance(
                paper.document, dict) and policy == paper.document.get("policy") and (
                project == held(paper.document, "projectDir")):
            own = f"skills/candidate-{desk.round}"
            raise Refused(f"{project}: stays as {paper.file} ran it; revise a copy of it:\n"
                          + shlex.join(["cp", "-R", desk.shown(project), desk.shown(own)]))


def failure_row(desk: Desk, row: dict[str, Any]) -> dict[str, Any]:
    """Return a failed check with what was asked, what the Skill answered and why it failed."""
    case = next((case for case in listed(desk.document("development-cases").get("cases"))
                 if case.get("id") == row["caseId"]), {})
    document, _ = read_json(desk.path(held(case.get("expected"), "file")))
    test = next((test for test in listed((document or {}).get("tests"))
                 if test.get("id") == row["testId"]), {})
    wanted = test.get("value") or held(test.get("criterion"), "file")
    reason = f" ({row['reason']})" if row["reason"] else ""
    run = last_terminal(desk, f"{row['caseId']}.run")
    judgment = last_terminal(desk, f"{row['caseId']}.{row['testId']}.judge")
    answer = run.get("output") or f"no answer ({run.get('reason', 'never called')})"
    return {"caseId": row["caseId"], "testId": row["testId"],
            "_asked": f"{row['kind']} {short(wanted)}: {row['verdict']}{reason}",
            "_answer": short(answer, 300),
            **({"_judge": judge_words(judgment)} if judgment else {})}


def last_terminal(desk: Desk, call: str) -> dict[str, Any]:
    """Return the last terminal receipt of a call of the baseline in development, if any."""
    directory = held(desk.document(PLANS[0]), "resultDir")
    paths = sorted(desk.path(directory).glob(f"{call}.*.terminal.json"),
                   key=lambda path: int(path.name.split(".")[-3]))
    return (read_json(paths[-1])[0] if paths else None) or {}


def draft_unlock(desk: Desk) -> list[Draft]:
    """Return the unlock, with what development shows and what is opened."""
    plan = desk.need(PLANS[1])
    scores = {role: desk.score(role) for role in PLANS[:2]}
    facts = {"candidateDevelopmentPlan": desk.reference(plan.file),
             "candidateDevelopmentScoreSha256": file_hash(desk.path(desk.score_file(PLANS[1]))),
             "candidateSkillSha256": desk.skill_hash("candidate")}
    words = [score_words(role, score) for role, score in scores.items()]
    lost = [f"{row['caseId']}.{row['testId']}" for row in scores[PLANS[1]]["rows"]
            if row["critical"] and row["verdict"] != "pass"]
    if lost:
        words.append(f"Critical checks not passed: {', '.join(lost)}. This candidate can never "
                     "become eligible: revise it, or say in `override` why you go on.")
    words.append(f"You open the held-out cases for both Skills, once: "
                 f"{inventory_words(desk, 'heldout')}. Whatever comes out, a later candidate "
                 "needs new held-out cases.")
    return [Draft(named(desk, "heldout-unlock"), template("heldout-unlock"), facts,
                  {"approvedAtUtc": now()}, tuple(words))]


def score_words(role: str, score: dict[str, Any]) -> str:
    """Return a score in one sentence."""
    told = score["totals"]
    return (f"{' '.join(role.split('-')[:2])}: {told.get('passed')} of {told.get('total')} "
            f"checks passed, {told.get('failed')} failed, {told.get('unknown')} unknown")


def draft_decision(desk: Desk) -> list[Draft]:
    """Return the decision, with the comparison as the program tells it."""
    comparison = desk.need("comparison")
    told, problems = offline("compare", *(str(desk.path(desk.need(role).file))
                                          for role in PLANS), "--output", comparison.file)
    if problems:
        raise Refused(*problems)
    facts = {"comparisonSha256": file_hash(desk.path(comparison.file)),
             "candidateSkillSha256": comparison.document.get("candidateSkillSha256")}
    proposals: dict[str, Any] = {"decidedAtUtc": now()}
    base = template("decision")
    if comparison.document.get("status") == "hold":
        base["decision"] = "FILL: hold or revert; the comparison holds, so accept is refused"
    elif comparison.document.get("finding") != "better":     # first, so that it can be removed
        base = {"acceptWithoutShownImprovement": (
            "FILL: only to accept: why, although no improvement is shown; else remove "
            "this line"), **base}
    return [Draft(named(desk, "decision"), base, facts, proposals,
                  tuple(filter(None, map(str.strip, told))))]


def draft_revocation(desk: Desk) -> list[Draft]:
    """Return the revocation of the present calibration."""
    digest = desk.reference(desk.record())["sha256"]
    row = {**row_template("revocations", "revocations"), "revokedAtUtc": now()}
    facts = {"revocations": Rows([{"calibrationSha256": digest}], row,
                                 ("calibrationSha256",), keep=True)}
    return [Draft("revocations.json", template("revocations"), facts, {}, (
        f"From that time on no judge call may rely on {desk.record()}; a comparison that "
        "stands on it becomes a hold.",))]


KINDS: dict[str, Callable[[Desk], list[Draft]]] = {
    "environment": draft_environment, "spending": draft_spending, "meta": draft_meta,
    "expected": draft_expected, "cases": draft_cases,
    "calibration-plan": draft_calibration_plan, "approval": draft_approval,
    "policy": draft_policy, "baseline-development": plans_after("policy", PLANS[0]),
    "diagnosis": draft_diagnosis, "candidate-development": plans_after("diagnosis", PLANS[1]),
    "unlock": draft_unlock, "heldout-plans": plans_after("heldout-unlock", *HELDOUT),
    "decision": draft_decision, "revocation": draft_revocation}
START = ("environment", "spending", "meta", "expected")
SYNONYMS = {**DRAFTED_BY, "heldout": "heldout-plans", "calibration": "calibration-plan",
            "baseline-heldout": "heldout-plans", "candidate-heldout": "heldout-plans"}
ROLE_OF = {kind: role for role, kind in reversed(DRAFTED_BY.items())}


# ---- Writing -------------------------------------------------------------------------------


def bound_hashes(desk: Desk) -> set[str]:
    """Return the hash of everything that receipts and records stand on, through documents."""
    found: set[str] = set()
    for path in desk.root.rglob("*.pending.json"):
        document, _ = read_json(path)
        bound = document.get("bound") if isinstance(document, dict) else None
        found |= {value for value in (bound or {}).values() if isinstance(value, str)}
    hashes = {file_hash(desk.path(paper.file)): paper for paper in desk.papers}
    made = [paper.document for paper in desk.papers if paper.role in PROGRAM_MADE]
    found |= {value for document in (*made, read_json(desk.path(desk.record()))[0])
              for value in leaves(document).values() if isinstance(value, str)}
    waiting = [digest for digest in found if digest in hashes]
    while waiting:
        for value in leaves(hashes[waiting.pop()].document).values():
            if isinstance(value, str) and value in hashes and value not in found:
                found.add(value)
                waiting.append(value)
    return found


def write_new(path: pathlib.Path, text: str) -> None:
    """Write a file that must be new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)


def replace_kept(desk: Desk, file: str, text: str) -> str:
    """Replace a document; return where its old bytes are kept."""
    path = desk.path(file)
    kept = f"superseded/{file.replace('/', '__')}.{file_hash(path)[:12]}"
    desk.path("superseded").mkdir(exist_ok=True)
    shutil.copy2(path, desk.path(kept))
    draft = path.with_name(f".{path.name}.desk")
    draft.write_text(text, encoding="utf-8", newline="\n")
    os.replace(draft, path)
    return kept


def unsigned(document: dict[str, Any]) -> dict[str, Any]:
    """Return a changed document that must be approved again."""
    again = {name: "FILL: your name again: what you approved has changed"
             for name in ("approvedBy", "owner") if name in document}
    return {**document, **again, **{name: now() for name in ("approvedAtUtc", "decidedAtUtc")
                                    if name in document}}


def place(desk: Desk, kind: str, draft: Draft) -> int:
    """Write a new document, show what would change in one that is there, or update it;
    return the exit status."""
    document, there = filled(desk, draft)
    if there is None:
        write_new(desk.path(draft.file), dumped(document))
        print(f"{draft.file}: written")
        report_document(document, draft.words)
        return DONE
    differing = changes(*({name: value for name, value in each.items() if name[:1] != "_"}
                          for each in (there, document)))
    if not differing:
        print(f"{draft.file}: is there, and nothing mechanical would change")
        report_document(there)
        return DONE
    show_changes(draft.file, differing)
    if file_hash(desk.path(draft.file)) in bound_hashes(desk):
        raise Refused(f"{draft.file}: receipts stand on its present bytes, so it stays; "
                      "restore the files that changed, or begin another round:\n"
                      + desk.command(("draft", kind, "--round", str(desk.round + 1))))
    if not desk.options.update:
        tell("Nothing was written. To make these changes and keep the old bytes below "
             "superseded/, say the command again with --update.")
        return REFUSED
    kept = replace_kept(desk, draft.file, dumped(unsigned(document)))
    print(f"{draft.file}: updated; the old bytes are in {kept}")
    report_document(unsigned(document), draft.words)
    return DONE


def show_changes(file: str, differing: list[str]) -> None:
    """Print how a draft differs from the document that is there."""
    print(f"{file}: is there; a draft would change {amount(len(differing), 'field')}:")
    tell(*some(differing, 20), first="  ", rest="    ")


def report_document(document: Any, words: tuple[str, ...] = ()) -> None:
    """Print what is approved, and every placeholder that is left, the same words once."""
    tell(*filter(None, words), first="  | ", rest="  |   ")
    paths: dict[str, list[str]] = {}
    for path, told in placeholders(document):
        paths.setdefault(told, []).append(path)
    for told, places in paths.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        tell(f"fill {places[0]}{more}: {told}", first="  ", rest="      ")


# ---- Where the owner is ----------------------------------------------------------------------


class Row(NamedTuple):
    """One stage: its state in a word, its facts, what is to fill in and wrong, what next."""

    stage: str
    state: str
    text: str = ""
    fill: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    command: str = ""
    counts: dict[str, Any] = {}
    look: str = ""           # a command that shows what is best seen before


class Stale(NamedTuple):
    """A document that holds another hash than the present one of a file."""

    document: str
    path: str
    file: str
    why: str


def bare_hashes(desk: Desk, paper: Paper) -> dict[str, tuple[str, str]]:
    """Return what the bare hashes of a document are of: their path -> (hash, file)."""
    document, receipts = paper.document, paper.document.get("terminalHashes")
    project = (held(document, "projectDir") if paper.role in PLANS
               else desk.project("candidate"))
    skill = f"{project}/.claude/skills/{desk.skill_name()}/SKILL.md"
    known = {
        "cliSha256": held(document, "claudeExecutable"),
        "judgeCliSha256": held(document, "judgeExecutable"),
        "calibrationPlanSha256": named(desk, "calibration-plan"), "skillSha256": skill,
        "candidateSkillSha256": skill, "comparisonSha256": named(desk, "comparison"),
        "baselineScoreSha256": desk.score_file(PLANS[0]),
        "candidateDevelopmentScoreSha256": desk.score_file(PLANS[1])}
    found = {f"$.{field}": (held(document, field), file) for field, file in known.items()}
    directory = held(desk.document("calibration-plan"), "resultDir")
    if isinstance(receipts, dict):
        found |= {f"$.terminalHashes.{name}": (digest, f"{directory}/{name}")
                  for name, digest in receipts.items()}
    return {path: (digest, file) for path, (digest, file) in found.items()
            if file and digest and not str(digest).startswith("FILL:")}


def stale_in(desk: Desk, paper: Paper) -> list[Stale]:
    """Return every hash of a document that is not its file's present one, and why."""
    found = []
    for path, reference in references(paper.document):
        digest = file_hash(desk.path(reference["file"]))
        if digest and digest != reference["sha256"] and not list(placeholders(reference)):
            found.append(Stale(paper.file, path, reference["file"],
                               difference(desk, reference)))
    for path, (given, file) in bare_hashes(desk, paper).items():
        digest = file_hash(desk.path(file))
        moved = path == "$.candidateSkillSha256" and given in desk.skills()
        if digest and digest != given and not moved:
            found.append(Stale(paper.file, path, file, ""))
    return found


def difference(desk: Desk, reference: dict[str, Any]) -> str:
    """Return what the program says of how a file's bytes differ, as far as it can tell."""
    experiment = fresh(desk)
    with contextlib.suppress(Refused):
        experiment.load(reference, "text")
    told = next((problem for problem in experiment.problems if "only" in problem), "")
    match = re.search(r"only [^;]*?differs?", told)
    return match[0] if match else ""


def stale_papers(desk: Desk) -> dict[str, list[Stale]]:
    """Return the stale documents of this round with their causes, in the order of the loop."""
    found = {}
    for role in ROLES:
        paper = desk.paper(role)
        if paper and isinstance(paper.document, dict):
            if stale := stale_in(desk, paper):
                found[role] = stale
    return found


class Look:
    """The state of an experiment at one moment: stages, stale documents, money, exposure."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.stale = stale_papers(desk)
        self.rows = [row for stage in STAGES for row in stage(self)]
        self.money = asked(lambda: money_of(desk))
        self.exposure = asked(lambda: exposure_of(desk))

    def next(self) -> tuple[list[str], str, str]:
        """Return what to do by hand first, what to look at, and the command that comes then."""
        first: list[str] = []
        for row in self.rows:
            first += row.fill
            if row.command:
                return first, row.look, row.command
        return first, "", self.desk.loop("verify", named(self.desk, "decision-receipt"))

    def paper_row(self, role: str, text: str = "") -> Row:
        """Return the state of one document by itself."""
        desk, paper = self.desk, self.desk.paper(role)
        if paper is None:
            revision = asked(lambda: {"hash": desk.skill_hash("candidate")}) if (
                role == "diagnosis") else {}
            return Row(role, "missing", fill=tuple(revision.get("refused", ())),
                       command=desk.command(drafting(role)), look=desk.look_at(role))
        if not isinstance(paper.document, dict):
            return Row(role, "broken", paper.file, command=desk.loop("check", paper.file),
                       wrong=(f"{paper.file}: {paper.trouble or 'is not a JSON object'}",))
        left = list(placeholders(paper.document))
        if role in self.stale:
            return self.stale_row(role, paper)
        if left:
            return Row(role, "to fill in", f"{paper.file}: {amount(len(left), 'field')}",
                       to_fill(paper.file, paper.document))
        replayed = role in PROGRAM_MADE or role in PLANS
        _, problems = ([], []) if replayed else checked(desk, paper.file)
        if problems:
            return Row(role, "wrong", paper.file, wrong=tuple(problems),
                       command=desk.loop("check", paper.file))
        return Row(role, "done", text or paper.file)

    def stale_row(self, role: str, paper: Paper) -> Row:
        """Return the state of a document that holds hashes of other bytes."""
        desk, causes = self.desk, self.stale[role]
        if file_hash(desk.path(paper.file)) in bound_hashes(desk) or role in PROGRAM_MADE:
            files = ", ".join(dict.fromkeys(cause.file for cause in causes))
            remedy = (f"{paper.file}: receipts stand on it; restore the approved bytes of "
                      f"{files}, or begin round {desk.round + 1}")
            return Row(role, "stale", paper.file, wrong=(remedy,),
                       command=desk.loop("check", paper.file))
        kinds = dict.fromkeys(drafting(each)[1] for each in self.following(role))
        return Row(role, "stale", paper.file,
                   command=desk.command(("draft", *kinds, "--update")))

    def following(self, role: str) -> list[str]:
        """Return a stale document and those that hold its hash, directly or through others."""
        affected: dict[str, str] = {}
        for each in ROLES:
            paper = self.desk.paper(each)
            if paper and isinstance(paper.document, dict) and each not in PROGRAM_MADE:
                names = {held(item, "file") for _, item in references(paper.document)}
                if each == role or each in self.stale or names & set(affected.values()):
                    affected[each] = paper.file
        return list(affected)


def to_fill(file: str, document: Any) -> tuple[str, ...]:
    """Return every placeholder of a document as something to do."""
    return tuple(f"{file}: {path}: {words}" for path, words in placeholders(document))


def asked(question: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return an answer, or why the program refuses it."""
    try:
        return question()
    except Refused as refusal:
        return {"refused": refusal.problems}


def instrument_rows(look: Look) -> Iterator[Row]:
    """Return environment and spending; when both are missing they are drafted together, and
    material that is missing too comes first."""
    desk, rows = look.desk, [look.paper_row("environment"), look.paper_row("spending")]
    if all(row.state == "missing" for row in rows):
        fill = [put_cases(split) for split in SPLITS if not rows_of(desk, f"material/{split}")]
        if not desk.skills():
            fill.append(f"put the Skill at {desk.skill_file('baseline')}")
        rows = [row._replace(fill=tuple(fill), command=desk.command(("draft", "start")))
                for row in rows]
    yield from rows


def put_cases(split: str) -> str:
    """Return where the cases of a split belong."""
    return f"put each case into material/{split}/NAME/ as input.txt and truth.txt"


def skill_rows(look: Look) -> Iterator[Row]:
    """Return the Skills that the program would refuse, as soon as they are there."""
    for variant in ("baseline", "candidate"):
        if problems := skill_problems(look.desk, variant):
            yield Row(f"{variant} Skill", "wrong", look.desk.skill_file(variant),
                      wrong=tuple(problems))


def material_rows(look: Look) -> Iterator[Row]:
    """Return the material of the cases and samples, until the inventories are drafted."""
    desk = look.desk
    if all(desk.paper(f"{split}-cases") or sealed(desk, split) for split in SPLITS):
        return
    directories = [*((f"material/{split}", "cases") for split in SPLITS),
                   ("samples", "samples")]
    for directory, kind in directories:
        names = rows_of(desk, directory)
        if not names and kind == "cases":
            yield Row(directory, "missing", fill=(put_cases(directory.split("/")[1]),),
                      command=desk.command(("draft", "meta", "expected")))
        elif names:
            yield material_row(desk, directory, kind, names)


def material_row(desk: Desk, directory: str, kind: str, names: list[str]) -> Row:
    """Return what is missing or to fill in for the cases or samples of a directory."""
    expected = {""}
    if kind == "cases":
        expected = {expected_file(desk, directory, name) for name in names}
    metas = [f"{directory}/meta.json", *(f"{directory}/{name}/meta.json" for name in names)]
    files = [file for file in (*metas, *sorted(expected)) if file and desk.path(file).is_file()]
    command = ""
    if not any(file in metas for file in files) or (kind == "cases" and "" in expected):
        command = desk.command(("draft", "meta", "expected"))
    fill, wrong = [], []
    for file in files:
        document, trouble = read_json(desk.path(file))
        wrong += [f"{file}: {trouble}"] if document is None else []
        fill += to_fill(file, document)
    state = "broken" if wrong else "to fill in" if fill else "missing" if command else "done"
    text = amount(len(names), kind[:-1])
    return Row(directory, state, text + (f", {amount(len(fill), 'field')}" if fill else ""),
               tuple(fill), tuple(wrong), command)


def inventory_rows(look: Look) -> Iterator[Row]:
    """Return the two inventories."""
    desk = look.desk
    both = ("cases", "calibration-plan") if rows_of(desk, "samples") else ("cases",)
    for split in SPLITS:
        role = f"{split}-cases"
        row = look.paper_row(role, inventory_words(desk, split))
        if row.state == "missing" and (file := sealed(desk, split)):
            yield Row(role, "sealed", f"{file} is not here: with its custodian until the "
                                      "held-out plans are run")
            continue
        yield row._replace(command=desk.command(("draft", *both))) if (
            row.state == "missing" and not desk.paper("calibration-plan")) else row


def sealed(desk: Desk, split: str) -> str:
    """Return the held-out inventory that the policy has sealed and somebody else keeps."""
    return held(desk.document("policy").get("heldoutCases"), "file") if (
        split == "heldout") else ""


def calibration_rows(look: Look) -> Iterator[Row]:
    """Return the calibration: its plan, its calls, its approval, its record."""
    desk = look.desk
    wanted = judged(desk) or desk.paper("calibration-plan") or rows_of(desk, "samples")
    if not wanted:
        if desk.paper("development-cases"):
            yield Row("calibration", "none", "no test is decided by a judge")
        return
    plan = look.paper_row("calibration-plan")
    yield plan
    if plan.state not in ("done", "to fill in"):
        return
    file = desk.paper("calibration-plan").file
    run = desk.loop("calibrate-run", file)
    if plan.fill:
        yield Row("calibration calls", "waiting", command=run)
        return
    yield from calibration_progress(look, file, run)


def calibration_progress(look: Look, file: str, run: str) -> Iterator[Row]:
    """Return the calls, the approval and the record of a complete calibration plan."""
    desk = look.desk
    try:
        counts = sample_counts(desk)
    except Refused as refusal:
        directory = held(desk.document("calibration-plan"), "resultDir")
        yield Row("calibration calls", "broken", plain_counts(desk, directory),
                  wrong=tuple(refusal.problems), command=run)
        return
    left = counts.todo + sum(counts.open.values())
    yield Row("calibration calls", "to do" if left else "done", counts.text("samples"),
              command=run if left else "", wrong=uncertain(counts), counts=counts.json())
    if left:
        return
    approval = look.paper_row("calibration-approval")
    yield approval
    if approval.state in ("done", "to fill in"):
        yield record_row(desk, file, desk.paper("calibration-approval").file)


def record_row(desk: Desk, plan: str, approval: str) -> Row:
    """Return the calibration record: what it is worth and how long."""
    finalize = desk.loop("calibrate-finalize", plan, approval)
    document, trouble = read_json(desk.path(desk.record()))
    if not isinstance(document, dict):
        missing = not os.path.lexists(desk.path(desk.record()))
        return Row("calibration", "missing" if missing else "broken", command=finalize,
                   wrong=() if missing else (
                       f"{desk.record()}: {trouble or 'is not a JSON object'}",))
    usable = document.get("status") in ("accepted", "qualified")
    wrong = [] if usable else [f"{desk.record()}: the judge is {document.get('status')}; "
                               "no judge call may rely on it: calibrate in another round"]
    if str(document.get("expiresAtUtc")) < eval_loop.utc_text(eval_loop.utc_now()):
        wrong.append(f"{desk.record()}: expired at {document.get('expiresAtUtc')}")
    return Row("calibration", "wrong" if wrong else "done",
               f"{document.get('status')} ({document.get('rule')}) until "
               f"{document.get('expiresAtUtc')}", wrong=tuple(wrong))


def uncertain(counts: Counts) -> tuple[str, ...]:
    """Return what to do about calls that were made on another machine."""
    return (f"{counts.open['uncertain']} begun on another machine: when they have ended there, "
            "say the command with --elsewhere-ended",) if counts.open["uncertain"] else ()


def single(role: str) -> Callable[[Look], Iterator[Row]]:
    """Return a stage that is one document."""
    def rows(look: Look) -> Iterator[Row]:
        yield look.paper_row(role)
    return rows


def plan_rows(*roles: str) -> Callable[[Look], Iterator[Row]]:
    """Return a stage that is one plan, or two that run side by side: calls and scores."""
    def rows(look: Look) -> Iterator[Row]:
        plans = [look.paper_row(role) for role in roles]
        yield from plans
        if all(row.state == "done" for row in plans):
            yield from progress_rows(look.desk, roles)
    return rows


def progress_rows(desk: Desk, roles: tuple[str, ...]) -> Iterator[Row]:
    """Return the calls and the scores of complete plans."""
    files = [desk.paper(role).file for role in roles]
    counted, wrong = {}, []
    for role in roles:
        try:
            counted[role] = plan_counts(desk, role)
        except Refused as refusal:
            wrong += refusal.problems
            directory = held(desk.document(role), "resultDir")
            yield Row(f"{role.removesuffix('-plan')} calls", "broken",
                      plain_counts(desk, directory), wrong=tuple(refusal.problems),
                      command=desk.loop("check", desk.paper(role).file))
    for index, (what, word) in enumerate((("Skill calls", "run"), ("judge calls", "judge"))):
        for role, both in counted.items():
            counts = both[index]
            left = counts.todo + sum(counts.open.values())
            if counts.total:
                yield Row(f"{role.removesuffix('-plan')} {word}", "to do" if left else "done",
                          counts.text(what), wrong=uncertain(counts), counts=counts.json(),
                          command=desk.loop(word, *files) if left else "")
    if not wrong:
        yield from (score_row(desk, role) for role in roles)


def score_row(desk: Desk, role: str) -> Row:
    """Return the score of a plan."""
    stage, file = f"{role.removesuffix('-plan')} score", desk.score_file(role)
    if not desk.path(file).is_file():
        return Row(stage, "missing", command=desk.loop("score", desk.paper(role).file))
    document, trouble = read_json(desk.path(file))
    if not isinstance(document, dict) or not isinstance(document.get("totals"), dict):
        return Row(stage, "broken", wrong=(f"{file}: {trouble or 'is no score'}; restore it",),
                   command=desk.loop("score", desk.paper(role).file))
    return Row(stage, "done", score_words(role, document).split(": ", 1)[1])


def ending_rows(look: Look) -> Iterator[Row]:
    """Return comparison, decision and receipt."""
    desk = look.desk
    comparison = look.paper_row("comparison")
    if comparison.state == "missing":
        plans = [named(desk, role) for role in PLANS]
        output = desk.name("comparison")
        more = () if output == "comparison.json" else ("--output", output)
        yield comparison._replace(command=desk.loop("compare", *plans, more=more))
        return
    told = desk.document("comparison")
    reasons = told.get("reasons")
    reasons = amount(len(reasons) if isinstance(reasons, list) else 0, "reason")
    yield comparison._replace(
        text=f"{told.get('status')}; {told.get('finding')}; {reasons} to hold")
    decision = look.paper_row("decision")
    yield decision
    if decision.state not in ("done", "to fill in"):
        return
    files = desk.paper("comparison").file, desk.paper("decision").file
    receipt = look.paper_row("decision-receipt")
    yield receipt if receipt.state == "done" else receipt._replace(
        command=desk.loop("decide", *files))


STAGES: tuple[Callable[[Look], Iterator[Row]], ...] = (
    instrument_rows, skill_rows, material_rows, inventory_rows, calibration_rows,
    single("policy"), plan_rows(PLANS[0]), single("diagnosis"), plan_rows(PLANS[1]),
    single("heldout-unlock"), plan_rows(*HELDOUT), ending_rows)


# ---- Telling it ------------------------------------------------------------------------------


def print_next(look: Look) -> None:
    """Print what to fill in, what to look at, and the command that comes then."""
    first, seen, command = look.next()
    print()
    if first:
        print("first:")
        tell(*gathered(first), first="  - ", rest="    ")
    if not any(row.command for row in look.rows):
        tell("All stages are done. To replay everything offline:")
    print("next:", *map(command_lines, filter(None, (seen, command))), sep="\n")


def gathered(first: list[str]) -> list[str]:
    """Return what is to do, the fields of one file in one line, the first files only."""
    fields: dict[str, list[str]] = {}
    for line in first:
        file, path, _ = [*line.split(": ", 2), "", ""][:3]
        file, path = (file, path) if path.startswith("$") else (line, "")
        fields.setdefault(file, []).append(path)
    return some((f"fill in {file}: {', '.join(some(paths, 6))}" if paths[0] else file
                 for file, paths in fields.items()), what=" files")


def status_data(look: Look) -> dict[str, Any]:
    """Return everything that status tells, as data."""
    first, seen, command = look.next()
    desk = look.desk
    return {"directory": str(desk.root), "round": desk.round,
            "evidenceKind": held(desk.document("environment"), "evidenceKind"),
            "stages": [row._asdict() for row in look.rows],
            "stale": [stale._asdict() for causes in look.stale.values() for stale in causes],
            "money": look.money, "exposure": look.exposure,
            "next": {"first": first, "look": seen, "command": command}}


def print_status(look: Look) -> None:
    """Print everything that status tells."""
    desk = look.desk
    kind = held(desk.document("environment"), "evidenceKind")
    print(("SYNTHETIC evidence. " if kind == "synthetic" else "") + desk.typed
          + (f", round {desk.round}" if desk.round > 1 else ""))
    for row in reached(look.rows):
        tell(f"{row.stage:28} {row.state:11}{row.text}".rstrip(), first="  ", rest=" " * 42)
    print_money(look.money)
    print_exposure(look.exposure)
    stale = [cause for causes in look.stale.values() for cause in causes]
    if stale:
        print("Stale: documents that hold the hash of other bytes")
        tell(*some(f"{cause.document} {cause.path}: {cause.file} has changed since"
                   + (f" ({cause.why})" if cause.why else "") for cause in stale),
             first="  - ", rest="    ")
    print_wrong(look)


def print_wrong(look: Look) -> None:
    """Print everything that is wrong, each once."""
    wrong = [problem for row in look.rows for problem in row.wrong]
    if wrong:
        print("Wrong:")
        tell(*dict.fromkeys(wrong), first="  - ", rest="    ")


def reached(rows: list[Row]) -> list[Row]:
    """Return the stages up to the first that is not begun, and later ones that are."""
    shown, missing = [], False
    for row in rows:
        if row.state != "missing" or not missing:
            shown.append(row)
        missing = missing or row.state == "missing"
    return shown


def print_money(money: dict[str, Any]) -> None:
    """Print the ledger in words."""
    if "refused" in money:
        tell("Money: cannot be added up; " + " ".join(money["refused"]), rest="  ")
        return
    limit = f"limit {money['limitUsd']} USD" if money["limitUsd"] else "no limit yet"
    calls = f" and {money['callLimit']} calls" if money["callLimit"] is not None else ""
    tell(f"Money: {amount(money['calls'], 'call')}, known {money['knownUsd']} USD; reserved "
         f"{money['reservedUsd']} USD for {money['openCalls']} open; {money['unknownCalls']} "
         f"of unknown cost ({money['unknownReservedUsd']} USD reserved); {limit}{calls}. "
         "Amounts are the CLI's estimates, not an invoice.", rest="  ")


def print_exposure(exposure: dict[str, Any]) -> None:
    """Print which held-out cases other runs have seen."""
    if "refused" in exposure:
        tell("Held-out: cannot be told; " + " ".join(exposure["refused"]), rest="  ")
    elif exposure["note"]:
        tell(f"Held-out: {exposure['note']}")
    else:
        seen = exposure["exposed"]
        tell(f"Held-out: {amount(exposure['cases'], 'case')}, {len(seen) or 'none'} exposed by "
             "other plans; once this round's plans ran on them, another candidate needs fresh "
             "ones", rest="  ")
        tell(*some(seen), first="  - ", rest="    ")


# ---- Commands --------------------------------------------------------------------------------


def cmd_status(desk: Desk) -> int:
    """Show where the experiment is, what is wrong, and what to type next. Writes nothing."""
    look = Look(desk)
    if desk.options.json:
        print(json.dumps(status_data(look), indent=2, default=str))
    else:
        print_status(look)
        print_next(look)
    return DONE


def kinds_asked(desk: Desk) -> list[str]:
    """Return the kinds to draft: those said, or what comes next."""
    words = [word for word in desk.options.kinds if word not in ("plan", "plans")]
    if not words:
        *_, command = Look(desk).next()
        after = shlex.split(command.partition(" draft ")[2])
        words = list(itertools.takewhile(lambda word: not word.startswith("--"), after))
        if not words:
            raise Refused("nothing is to be drafted now; next:\n" + command)
    kinds = [kind for word in words for kind in (START if word == "start" else (word,))]
    kinds = [SYNONYMS.get(kind, kind) for kind in kinds]
    for kind in kinds:
        if kind not in KINDS:
            raise Refused(f"draft {kind}: no such document; expected one of start, "
                          + ", ".join(KINDS))
    return list(dict.fromkeys(kinds))


def cmd_draft(desk: Desk) -> int:
    """Write the documents that do not exist yet; show what would change in those that do."""
    status, files = DONE, set()
    for kind in kinds_asked(desk):
        role = ROLE_OF.get(kind, kind)
        if role in ROLES:
            desk.start = min(desk.start, ROLES.index(role))
        try:
            for draft in KINDS[kind](desk):
                files.add(draft.file)
                status = max(status, place(desk, kind, draft))
        except Refused as refusal:
            tell(*(f"refused: {problem}" for problem in refusal.problems), rest="  ")
            status = REFUSED
        desk.look()
    look = Look(desk)
    print_wrong(look)
    print_next(look)
    wrong = any(row.state == "wrong" and row.text in files for row in look.rows)
    return status or (WRONG if wrong else DONE)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    top = argparse.ArgumentParser(prog="desk.py", description=__doc__,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("directory", metavar="DIRECTORY", help="the experiment")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    number = {"type": int, "metavar": "N", "help": "which round (the latest)"}
    status = commands.add_parser("status", help="where you are, what is wrong, what comes next")
    status.add_argument("--json", action="store_true", help="the same as data")
    status.add_argument("--round", **number)
    status.set_defaults(function=cmd_status, project=None)
    draft = commands.add_parser("draft", help="write a document, mechanical fields filled")
    draft.set_defaults(function=cmd_draft)
    draft.add_argument("kinds", nargs="*", metavar="KIND", help="see above; none: what is next")
    draft.add_argument("--cli", metavar="PATH", help="the CLI's executable (environment)")
    draft.add_argument("--judge-cli", metavar="PATH", help="another one for the judge")
    draft.add_argument("--from", dest="source", metavar="DIRECTORY", help="where material lies")
    draft.add_argument("--split", choices=SPLITS, help="one inventory only (cases)")
    draft.add_argument("--shared", action="store_true",
                       help="one expected.json for all cases of a directory (expected)")
    draft.add_argument("--project", metavar="DIRECTORY", help="the Skill project (plans)")
    draft.add_argument("--round", **number)
    draft.add_argument("--update", action="store_true",
                       help="change mechanical fields of a document that is there")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    options = parser().parse_args(argv)
    if getattr(options, "round", None) is not None and not 1 <= options.round <= 9999:
        parser().error("--round: expected a number from 1 to 9999")
    options.source = getattr(options, "source", None)
    try:
        status = options.function(Desk(options))
        sys.stdout.flush()
        return status
    except Refused as refusal:
        with contextlib.redirect_stdout(sys.stderr):
            tell(*(f"refused: {problem}" for problem in refusal.problems), rest="  ")
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:                # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except OSError as error:
        print(f"refused: {error.filename or 'a file'}: {error.strerror}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
