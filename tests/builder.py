"""A complete small experiment in a temporary directory, driven through the public commands.

The world of every experiment made here is a row of shops. A case asks for one sentence on the
takings of one shop; its source truth is a line of a till roll. The candidate Skill names the
amount and says that it looked at the till; the baseline Skill says `some money`. The stand-in
CLI answers by a script (`script.json`), so that nothing here depends on chance:

    experiment = Experiment(tmp_path)              2 development and 2 held-out cases, one judge
    experiment.walk()                              every stage, up to an accepted decision
    experiment.walk(until="policy")                only so far; `walk()` goes on from there

    experiment = Experiment(tmp_path, script=[{"purpose": "judge", "status": 429}])
    experiment.walk(until="policy")                rules put first win; later ones: `rules(...)`

Each stage is one method that writes the owner's document from the bytes that are present
(`write_policy`, `write_plan`, ...) and then says the commands. A test that wants something
else calls the two parts itself, changing a document between them with `edit`.

    ROOT/experiment/       the experiment: documents, cases, skills, results
    ROOT/claude            the stand-in CLI (a copy, so that a test may change it)
    ROOT/script.json       what the stand-in answers
    ROOT/calls.jsonl       one line for each call that the stand-in received
    ROOT/home, ROOT/tmp    HOME and TMPDIR of the program

Only `experiment/` is copied by `copied`, so paths in its environment document stay valid.

For a second policy or a second candidate in the same experiment say `second_policy()` or
`second_candidate(text)` and then the stages again: their documents and result directories get
names of their own.
"""

from __future__ import annotations

import atexit
import copy
import datetime
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parent
PROGRAM = TESTS.parent / "eval_loop.py"
STAND_IN = TESTS.parent / "examples" / "offline_claude.py"

SKILL_NAME = "figures"
VARIANTS = ("baseline", "candidate")
SPLITS = ("development", "heldout")
LABELS = ("pass", "fail", "unknown")
STAGES = ("calibrate", "policy", "baseline_development", "diagnose",
          "candidate_development", "unlock", "heldout", "compare", "decide")

CANDIDATE_MARK = "Name the exact amount"       # words that only the candidate's SKILL.md has
NOTHING = "0" * 64                             # stands where there is nothing to hash
QUOTE = "Checked against the till"             # words that only an output to be passed has
POOR_MARK = "took some money"                  # words that only an output to be failed has
UNSURE_MARK = "the till was illegible"         # words that only an unknowable output has

BASELINE_SKILL = f"""---
name: {SKILL_NAME}
description: Writes one sentence on what a shop took in.
---
Write one sentence on what the shop took in.
"""
CANDIDATE_SKILL = BASELINE_SKILL + f"""
{CANDIDATE_MARK} and say that you looked at the till.
"""


def now() -> str:
    """Return the present time as the owner's documents write it."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def good(case: str) -> str:
    """Return an output that passes every test of `case`."""
    return f"Shop {case} took {amount(case)} euros. {QUOTE} of shop {case}."


def poor(case: str) -> str:
    """Return an output of `case` that misses the amount and that the judge fails."""
    return f"Shop {case} {POOR_MARK}."


def unsure(case: str) -> str:
    """Return an output of `case` on which the scripted judge says unknown."""
    return f"Shop {case} took {amount(case)} euros, but {UNSURE_MARK}."


def amount(case: str) -> int:
    """Return the amount that the truth of `case` gives: four digits, the same every time."""
    return 1000 + int(sha256(case.encode())[:8], 16) % 9000


def program_flags() -> list[str]:
    """Return the interpreter options of this test run that the program must bear as well."""
    return ["-X", "dev", "-W", "error"] if sys.flags.dev_mode else []


@functools.cache
def bytecode() -> dict[str, str]:
    """Return variables under which the program is compiled once a test run, not once a command.

    A command of a test differs by them, and by `-P -m eval_loop` in place of the path, from
    what an owner types; what README says is tried as it is typed (test_docs, test_loop).
    """
    directory = tempfile.mkdtemp(prefix="bytecode-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return {"PYTHONPATH": str(PROGRAM.parent), "PYTHONPYCACHEPREFIX": directory,
            "PYTHONMALLOC": "default"}      # -X dev would debug an allocator that is not ours


def receipts(directory: pathlib.Path, part: str = "") -> dict[str, dict]:
    """Return every pending and terminal receipt under `directory` whose name holds `part`.

    The key is the path relative to `directory`, the value the parsed document.
    """
    return {str(path.relative_to(directory)): json.loads(path.read_bytes())
            for end in ("pending", "terminal")
            for path in sorted(pathlib.Path(directory).rglob(f"*.{end}.json"))
            if part in path.name}


class Experiment:
    """One experiment below `root`, with every owner's document up to the policy's needs.

    development, heldout   how many cases; their ids are d01, d02, ... and h01, h02, ...
    judge                  False: no judge test, no calibration, policy's calibration null
    criteria               how many judge tests a case has, each with its own criterion
    qualification          None: exact agreement, else the plan's `qualification` object
    per_label              samples for each criterion, slice and label (default 1, or as
                           many as the qualification's `minimumPerClass`)
    slices                 names that the cases take in turn; samples are made for each
    families               case id -> family, where it is not a family of its own
    tests                  case id -> the case's tests, in place of `default_tests`
    critical               ids of the default tests that are critical
    inputs                 case id -> text or bytes of its input, in place of the usual one
    answers                (variant, case id) -> text of the Skill's output
    environment, policy, spending, calibration
                           fields that replace the default ones of these documents
    settings               names put into the environment's `setEnvironment`
    script                 rules put before the default ones of the stand-in
    cli                    executable to use instead of a copy of the stand-in
    """

    def __init__(self, root, *, development=2, heldout=2, judge=True, criteria=1,
                 qualification=None, per_label=None, slices=(), families=None, tests=None,
                 critical=("figure",), inputs=None, answers=None, environment=None,
                 policy=None, spending=None, calibration=None, settings=None, script=(),
                 cli=None):
        self.root = pathlib.Path(root).resolve()
        self.directory = self.root / "experiment"
        self.home, self.tmp = self.root / "home", self.root / "tmp"
        for directory in (self.directory, self.home, self.tmp):
            directory.mkdir(parents=True, exist_ok=True)
        self.case_ids = {"development": [f"d{n:02}" for n in range(1, development + 1)],
                         "heldout": [f"h{n:02}" for n in range(1, heldout + 1)]}
        self.judged = bool(judge) and criteria > 0
        self.criteria = criteria if self.judged else 0
        self.qualification = qualification
        self.per_label = per_label or (qualification or {}).get("minimumPerClass", 1)
        self.slices, self.families = tuple(slices), dict(families or {})
        self.tests, self.answers = dict(tests or {}), dict(answers or {})
        self.critical, self.inputs = tuple(critical), dict(inputs or {})
        self.overrides = {"environment": environment, "policy": policy,
                          "spending": spending, "calibration": calibration}
        self.settings = dict(settings or {})
        self.script_path = self.root / "script.json"
        self.log_path = self.root / "calls.jsonl"
        self.cli = pathlib.Path(cli) if cli else self._copy_stand_in()
        self.program, self.variables = PROGRAM, {}
        self.script, self._log_part = list(script), slice(0, None)
        self.chain, self.shared = "", frozenset()
        self.projects = {variant: f"skills/{variant}" for variant in VARIANTS}
        self._reached = 0
        self.rules(*script)
        self._write_material()
        self._write_documents()

    # ---- files -----------------------------------------------------------------------

    def path(self, name: str) -> pathlib.Path:
        """Return the path of `name`, which is relative to the experiment."""
        return self.directory / name

    def write(self, name: str, document) -> str:
        """Write text or bytes as they are, anything else as JSON; return `name`."""
        if isinstance(document, str):
            document = document.encode("utf-8")
        if not isinstance(document, bytes):
            document = (json.dumps(document, indent=2) + "\n").encode("utf-8")
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(document)
        return name

    def read(self, name: str):
        """Return the JSON document `name`."""
        return json.loads(self.path(name).read_bytes())

    def edit(self, name: str, change) -> str:
        """Rewrite `name` after `change(document)`, which changes it or returns another."""
        document = self.read(name)
        changed = change(document)
        return self.write(name, document if changed is None else changed)

    def sha(self, name: str) -> str:
        """Return the hash of the bytes of `name`, or 64 zeros when it is not there."""
        path = self.path(name)
        return sha256(path.read_bytes()) if path.exists() else NOTHING

    def ref(self, name: str) -> dict:
        """Return a reference to `name` as it is now."""
        return {"file": name, "sha256": self.sha(name)}

    def named(self, stem: str) -> str:
        """Return the file name of a document, in the present chain if it is not shared."""
        return f"{stem}{self._chain_of(stem)}.json"

    def _chain_of(self, stem: str) -> str:
        return "" if stem in self.shared else self.chain

    def second_policy(self, chain: str = "-2") -> None:
        """From now on write everything after the calibration anew, the inventories included."""
        self.chain, self.shared = chain, frozenset()
        for split in SPLITS:
            self.write_inventory(split)

    def second_candidate(self, text: str, chain: str = "-2") -> None:
        """From now on revise: another candidate under the same policy and baseline."""
        self.chain = chain
        self.shared = frozenset({"policy", "development-cases", "heldout-cases",
                                 "baseline-development-plan"})
        self.projects["candidate"] = f"skills/candidate{chain}"
        self.write(self.skill_file("candidate"), text)

    def files(self) -> dict[str, str]:
        """Return path -> hash of every file in the experiment, but for the lock.

        Two of these are equal exactly if nothing was written, changed or removed.
        """
        return {str(path.relative_to(self.directory)): sha256(path.read_bytes())
                for path in sorted(self.directory.rglob("*"))
                if path.is_file() and path.name != ".lock"}

    def receipts(self, part: str = "") -> dict[str, dict]:
        """Return the receipts of this experiment whose file name holds `part`."""
        return receipts(self.directory, part)

    def call_log(self) -> list[dict]:
        """Return what the stand-in wrote about each call it received, in order.

        A copy begins with an empty log; a snapshot has the log up to its moment. A line that
        the stand-in is still writing is not there yet.
        """
        return [json.loads(line)
                for line in self._log()[self._log_part].splitlines(keepends=True)
                if line.endswith(b"\n")]

    def _log(self) -> bytes:
        return self.log_path.read_bytes() if self.log_path.exists() else b""

    def copied(self, root) -> Experiment:
        """Return the same experiment as a copy below `root`.

        Stand-in, script and log stay where they are: whoever changes the script of a copy
        puts it back with `rules(*experiment.script)`.
        """
        other = copy.copy(self)
        other.root = pathlib.Path(root).resolve()
        other.directory = other.root / "experiment"
        other.home, other.tmp = other.root / "home", other.root / "tmp"
        other.projects, other.variables = dict(self.projects), dict(self.variables)
        other._log_part = slice(len(self._log()), None)
        other.case_ids = {split: list(cases) for split, cases in self.case_ids.items()}
        shutil.copytree(self.directory, other.directory, symlinks=True)
        other.home.mkdir(exist_ok=True)
        other.tmp.mkdir(exist_ok=True)
        return other

    def snapshot(self, root) -> Experiment:
        """Return a copy below `root` that is only to be read, with the calls made so far."""
        other = self.copied(root)
        other._log_part = slice(0, len(self._log()))
        return other

    # ---- the stand-in ----------------------------------------------------------------

    def rules(self, *rules: dict) -> None:
        """Put `rules` before the default ones (none given: the default ones alone).

        The counts of rules that say `times` begin anew.
        """
        pathlib.Path(f"{self.script_path}.counts").unlink(missing_ok=True)
        self.script_path.write_text(
            json.dumps({"rules": [*rules, *self._default_rules()]}), "utf-8")

    def _default_rules(self) -> list[dict]:
        """Return one answer a case and variant, and the judge's three verdicts."""
        rules = []
        for case in self.case_ids["development"] + self.case_ids["heldout"]:
            for variant, usual in (("candidate", good(case)), ("baseline", poor(case))):
                rule = {"purpose": "run", "contains": f"Task {case}:",
                        "answer": self.answers.get((variant, case), usual)}
                if variant == "candidate":
                    rule["skillContains"] = CANDIDATE_MARK
                rules.append(rule)
        for mark, verdict, quote in ((UNSURE_MARK, "unknown", ""),
                                     (QUOTE, "pass", QUOTE),
                                     (POOR_MARK, "fail", POOR_MARK)):
            rules.append({"purpose": "judge", "contains": mark, "verdict": verdict,
                          "evidence": f"The output says so: {verdict}.", "quote": quote})
        return rules

    def _copy_stand_in(self) -> pathlib.Path:
        """Return a copy of the stand-in that runs in this interpreter, without `site`."""
        target = self.root / "claude"
        text = STAND_IN.read_text("utf-8")
        first = f"#!{sys.executable} -IS"
        if len(first) < 120 and " " not in sys.executable:
            text = first + "\n" + text.split("\n", 1)[1]
        target.write_text(text, "utf-8")
        target.chmod(0o755)
        return target

    # ---- the owner's material and first documents --------------------------------------

    def default_tests(self, case: str) -> list[dict]:
        """Return two literal tests and one judge test for each criterion."""
        tests = [{"id": "figure", "kind": "contains", "value": f"{amount(case)} euros"},
                 {"id": "exact", "kind": "not_contains", "value": "approximately"}]
        tests += [{"id": f"grounded-{number}", "kind": "judge",
                   "criterion": self.ref(f"criteria/criterion-{number}.txt")}
                  for number in range(1, self.criteria + 1)]
        return [{**test, "critical": test["id"] in self.critical} for test in tests]

    def family(self, case: str) -> str:
        """Return the family (`caseGroup`) of a case."""
        return self.families.get(case, f"shop-{case}")

    def slice_of(self, position: int) -> dict:
        """Return the `slice` field of the case at `position`, or nothing without slices."""
        return {"slice": self.slices[position % len(self.slices)]} if self.slices else {}

    def _write_material(self) -> None:
        """Write criteria, inputs, truths, expected tests and the two Skill projects."""
        for number in range(1, self.criteria + 1):
            self.write(f"criteria/criterion-{number}.txt",
                       f"Criterion {number}: the amount in the output is the till roll's.\n")
        for case in self.case_ids["development"] + self.case_ids["heldout"]:
            self.write_case_files(case)
        for variant, text in zip(VARIANTS, (BASELINE_SKILL, CANDIDATE_SKILL)):
            self.write(self.skill_file(variant), text)

    def write_case_files(self, case: str) -> None:
        """Write input, truth and expected tests of `case`, whose id may be new."""
        self.write(f"cases/{case}/input.txt",
                   self.inputs.get(case, f"Task {case}: what did shop {case} take in?\n"))
        self.write(f"cases/{case}/truth.txt", f"Till roll {case}: EUR {amount(case)}\n")
        tests = self.tests.get(case) or self.default_tests(case)
        self.write(f"cases/{case}/expected.json", {"approvedBy": "Olga Owner",
                                                   "tests": tests})

    def case_row(self, case: str, position: int = 0) -> dict:
        """Return the inventory row of `case` from the bytes that are present."""
        return {"id": case, "caseGroup": self.family(case),
                "sourceId": f"till-{self.family(case)}", "sourceRevision": "1",
                **{part: self.ref(f"cases/{case}/{part}.{end}") for part, end in
                   (("input", "txt"), ("truth", "txt"), ("expected", "json"))},
                **self.slice_of(position)}

    def skill_file(self, variant: str) -> str:
        """Return the name of the SKILL.md of a variant."""
        return f"{self.projects[variant]}/.claude/skills/{SKILL_NAME}/SKILL.md"

    def _write_documents(self) -> None:
        """Write every document that the owner has before the first call."""
        self.write_environment()
        self.write_spending()
        for split in SPLITS:
            self.write_inventory(split)
        if self.judged:
            self.write_calibration_plan()

    def write_environment(self) -> str:
        """Write environment.json for the stand-in as it is now."""
        version = "1.0.0 (synthetic stand-in)"
        return self.write("environment.json", {
            "claudeExecutable": str(self.cli), "cliVersion": version,
            "cliSha256": sha256(self.cli.read_bytes()),
            "modelId": "synthetic-writer-1", "judgeModelId": "synthetic-judge-1",
            "accountLabel": "no account", "budgetUsd": "0.10", "judgeBudgetUsd": "0.05",
            "timeoutSeconds": 60, "unservedAttempts": 3, "evidenceKind": "synthetic",
            "setEnvironment": {"OFFLINE_SCRIPT": str(self.script_path),
                               "OFFLINE_LOG": str(self.log_path), **self.settings},
            **(self.overrides["environment"] or {})})

    def write_spending(self, **fields) -> str:
        """Write spending.json; it may be replaced at any time."""
        return self.write("spending.json", {
            "spendLimitUsd": "100", "approvedBy": "Olga Owner", "approvedAtUtc": now(),
            **(self.overrides["spending"] or {}), **fields})

    def write_inventory(self, split: str) -> str:
        """Write the inventory of a split from `case_ids[split]`."""
        return self.write(self.named(f"{split}-cases"), {
            "split": split, "testVersion": "1", "permittedBy": "Olga Owner",
            "cases": [self.case_row(case, position)
                      for position, case in enumerate(self.case_ids[split])]})

    def write_calibration_plan(self) -> str:
        """Write the samples and calibration-plan.json."""
        plan = {"taskId": "daily-takings", "environment": self.ref("environment.json"),
                "resultDir": "results/calibration",
                "calibrationOutputFile": "calibration.json", "permittedBy": "Olga Owner",
                "labelKind": "synthetic", "reviewers": ["Rita Reader", "Sam Second"],
                "exclusions": [self.ref(f"{split}-cases.json") for split in SPLITS],
                "samples": [self.sample_row(f"s{number}{where}-{label}-{copy_number}",
                                            number, label, name)
                            for number in range(1, self.criteria + 1)
                            for where, name in enumerate(self.slices or (None,))
                            for label in LABELS
                            for copy_number in range(1, self.per_label + 1)]}
        if self.qualification:
            plan["qualification"] = self.qualification
        return self.write("calibration-plan.json",
                          {**plan, **(self.overrides["calibration"] or {})})

    def sample_row(self, sample: str, criterion: int, label: str, slice_name=None) -> dict:
        """Write the files of one labelled sample; return its row in the plan."""
        output = {"pass": good, "fail": poor, "unknown": unsure}[label](sample)
        for part, text in (("input", f"Task {sample}: what did shop {sample} take in?\n"),
                           ("truth", f"Till roll {sample}: EUR {amount(sample)}\n"),
                           ("output", output)):
            self.write(f"samples/{sample}/{part}.txt", text)
        row = {"id": sample, "caseGroup": f"shop-{sample}", "sourceId": f"till-{sample}",
               **{part: self.ref(f"samples/{sample}/{part}.txt")
                  for part in ("input", "truth", "output")},
               "criterion": self.ref(f"criteria/criterion-{criterion}.txt"),
               "humanVerdict": label, "humanEvidence": "Read beside the till roll.",
               "reviewedBy": "Rita Reader"}
        if slice_name is not None:
            row["slice"] = slice_name
        if (self.qualification or {}).get("requireTwoReviewers"):
            row["secondReview"] = {"reviewedBy": "Sam Second", "humanVerdict": label,
                                   "humanEvidence": "Read beside the till roll as well."}
        return row

    # ---- commands --------------------------------------------------------------------

    def child_environment(self, env: dict | None = None) -> dict[str, str]:
        """Return the program's environment: built from nothing, then `variables` and `env`.

        A value of None removes the name.
        """
        values = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "TMPDIR": str(self.tmp),
                  "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": "synthetic-key",
                  **bytecode(), **self.variables, **(env or {})}
        return {name: value for name, value in values.items() if value is not None}

    def arguments(self, *words: str) -> list[str]:
        """Return the argument vector of one command of the program."""
        which = ["-P", "-m", PROGRAM.stem] if self.program == PROGRAM else [str(self.program)]
        return [sys.executable, *program_flags(), *which, *map(str, words)]

    def command(self, *words: str, env=None, expect=None, timeout=300,
                cwd=None) -> subprocess.CompletedProcess:
        """Say one command in the experiment's directory; return the finished process.

        `expect` is an exit status or a tuple of them; another one is an AssertionError that
        shows all that the command printed.
        """
        done = subprocess.run(
            self.arguments(*words), cwd=cwd or self.directory,
            env=self.child_environment(env), stdin=subprocess.DEVNULL, capture_output=True,
            encoding="utf-8", errors="surrogateescape", timeout=timeout, check=False)
        wanted = (expect,) if isinstance(expect, int) else expect
        assert wanted is None or done.returncode in wanted, (
            f"{' '.join(map(str, words))}: exit {done.returncode}, expected {expect}\n"
            f"--- stdout\n{done.stdout}--- stderr\n{done.stderr}")
        return done

    def start(self, *words: str, env=None, **options) -> subprocess.Popen:
        """Start one command and return it running; the caller ends it and closes its pipes."""
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                    "stderr": subprocess.PIPE, "encoding": "utf-8", **options}
        return subprocess.Popen(self.arguments(*words), cwd=self.directory,
                                env=self.child_environment(env), **settings)

    # ---- the owner's documents of each stage -------------------------------------------

    def plan_name(self, variant: str, split: str) -> str:
        """Return the file name of one of the four plans."""
        return self.named(f"{variant}-{split}-plan")

    def plan_names(self, split: str | None = None) -> list[str]:
        """Return the names of the two plans of a split, or of all four."""
        return [self.plan_name(variant, each) for each in SPLITS if split in (None, each)
                for variant in VARIANTS]

    def result_directory(self, variant: str, split: str) -> str:
        """Return the `resultDir` of one of the four plans."""
        return f"results/{variant}-{split}{self._chain_of(f'{variant}-{split}-plan')}"

    def score_name(self, variant: str, split: str) -> str:
        """Return the name of the score of one of the four plans."""
        return f"{self.result_directory(variant, split)}/score.json"

    def write_approval(self, **fields) -> str:
        """Approve every terminal receipt of the calibration by its present hash."""
        plan = self.read("calibration-plan.json")
        folder = self.path(plan["resultDir"])
        return self.write("calibration-approval.json", {
            "approvedBy": "Olga Owner", "approvedAtUtc": now(),
            "calibrationPlanSha256": self.sha("calibration-plan.json"),
            "terminalHashes": {path.name: sha256(path.read_bytes())
                               for path in sorted(folder.glob("*.terminal.json"))},
            **fields})

    def write_policy(self, **fields) -> str:
        """Seal both inventories, the calibration and the gates.

        With fewer than five held-out families no outcome reaches p 0.05, so that such an
        experiment registers the p gate as 1 (no gate).
        """
        families = {self.family(case) for case in self.case_ids["heldout"]}
        return self.write(self.named("policy"), {
            "taskId": "daily-takings", "testVersion": "1", "skillName": SKILL_NAME,
            "approvedBy": "Olga Owner", "approvedAtUtc": now(),
            "environment": self.ref("environment.json"),
            "developmentCases": self.ref(self.named("development-cases")),
            "heldoutCases": self.ref(self.named("heldout-cases")),
            "calibration": self.ref("calibration.json") if self.judged else None,
            "minimumHeldoutScore": "0.7", "minimumHeldoutGain": "0.1",
            "maximumGainPValue": "0.05" if len(families) >= 5 else "1",
            "maximumUnknownShare": "0.1", "maximumWorseFamiliesShare": "0.15",
            "repeatsPerCase": 1, **(self.overrides["policy"] or {}), **fields})

    def write_plan(self, variant: str, split: str, **fields) -> str:
        """Write one of the four plans; it binds the Skill's bytes as they are now."""
        plan = {"schema": 3, "variant": variant, "split": split,
                "policy": self.ref(self.named("policy")),
                "projectDir": self.projects[variant],
                "skillSha256": self.sha(self.skill_file(variant)),
                "resultDir": self.result_directory(variant, split)}
        if split == "heldout":
            plan["heldoutUnlock"] = self.ref(self.named("heldout-unlock"))
        elif variant == "candidate":
            plan["diagnosis"] = self.ref(self.named("diagnosis"))
        return self.write(self.plan_name(variant, split), {**plan, **fields})

    def checks(self, variant: str, split: str) -> dict[tuple[str, str], dict]:
        """Return (case id, test id) -> row of one score."""
        score = self.read(self.score_name(variant, split))
        return {(row["caseId"], row["testId"]): row for row in score["rows"]}

    def write_diagnosis(self, **fields) -> str:
        """Name every check that the baseline did not pass in development."""
        if "observedFailures" not in fields:
            rows = self.checks("baseline", "development").items()
            fields["observedFailures"] = [
                {"caseId": case, "testId": test,
                 "diagnosis": "The Skill does not ask for the amount."}
                for (case, test), row in rows if row["verdict"] != "pass"]
        return self.write(self.named("diagnosis"), {
            "status": "approved", "approvedBy": "Olga Owner", "approvedAtUtc": now(),
            "baselinePlan": self.ref(self.plan_name("baseline", "development")),
            "baselineScoreSha256": self.sha(self.score_name("baseline", "development")),
            "candidateSkillSha256": self.sha(self.skill_file("candidate")), **fields})

    def write_unlock(self, **fields) -> str:
        """Permit the held-out cases to be opened."""
        return self.write(self.named("heldout-unlock"), {
            "approvedBy": "Olga Owner", "approvedAtUtc": now(),
            "candidateDevelopmentPlan": self.ref(self.plan_name("candidate", "development")),
            "candidateDevelopmentScoreSha256":
                self.sha(self.score_name("candidate", "development")),
            "candidateSkillSha256": self.sha(self.skill_file("candidate")), **fields})

    def write_decision(self, decision: str = "accept", **fields) -> str:
        """Write the owner's decision on the comparison.

        An accept states that it goes without a shown improvement when the comparison does
        not find the candidate better, so that the defaults of a tiny experiment hold.
        """
        comparison = self.named("comparison")
        document = {"owner": "Olga Owner", "decidedAtUtc": now(), "decision": decision,
                    "reason": "I read every output beside its till roll.",
                    "comparisonSha256": self.sha(comparison),
                    "candidateSkillSha256": self.sha(self.skill_file("candidate"))}
        if decision == "accept" and self.read(comparison)["finding"] != "better":
            document["acceptWithoutShownImprovement"] = "Too few shops to show more."
        return self.write(self.named("decision"), {**document, **fields})

    def write_revocation(self, name: str = "calibration.json", **fields) -> str:
        """Revoke a calibration from now on."""
        return self.write("revocations.json", {"revocations": [
            {"calibrationSha256": self.sha(name), "revokedBy": "Olga Owner",
             "revokedAtUtc": now(), "reason": "The till roll was misread.", **fields}]})

    # ---- stages ----------------------------------------------------------------------

    def calibrate(self, expect=0):
        """Judge every sample, approve the verdicts, write calibration.json."""
        if not self.judged:
            return None
        self.command("calibrate-run", "calibration-plan.json", expect=expect)
        self.write_approval()
        return self.command("calibrate-finalize", "calibration-plan.json",
                            "calibration-approval.json", expect=expect)

    def policy(self, expect=0, **fields):
        """Write the policy and check it."""
        return self.command("check", self.write_policy(**fields), expect=expect)

    def evidence(self, *plans: str, expect=0):
        """Run, judge and score the plans (both held-out plans are run side by side)."""
        self.command("run", *plans, expect=expect)
        if self.judged:
            self.command("judge", *plans, expect=expect)
        return [self.command("score", plan, expect=expect) for plan in plans][-1]

    def baseline_development(self, expect=0):
        """Write the plan of the baseline's development run and carry it out."""
        return self.evidence(self.write_plan("baseline", "development"), expect=expect)

    def diagnose(self, **fields):
        """Write the diagnosis; no command belongs to it."""
        return self.write_diagnosis(**fields)

    def candidate_development(self, expect=0):
        """Write the plan of the candidate's development run and carry it out."""
        return self.evidence(self.write_plan("candidate", "development"), expect=expect)

    def unlock(self, expect=0, **fields):
        """Write the unlock and check it."""
        return self.command("check", self.write_unlock(**fields), expect=expect)

    def heldout(self, expect=0):
        """Write both held-out plans and carry them out side by side."""
        plans = [self.write_plan(variant, "heldout") for variant in VARIANTS]
        return self.evidence(*plans, expect=expect)

    def compare(self, expect=0):
        """Compare the four plans of the present chain."""
        more = ("--output", self.named("comparison")) if self.chain else ()
        return self.command("compare", *self.plan_names(), *more, expect=expect)

    def decide(self, decision: str = "accept", expect=0, **fields):
        """Write the decision and bind it to the comparison."""
        self.write_decision(decision, **fields)
        return self.command("decide", self.named("comparison"), self.named("decision"),
                            expect=expect)

    def walk(self, until: str = "decide", after=lambda stage: None) -> Experiment:
        """Carry out every stage that is still to do, up to and with `until`; return self.

        `after` is called with the name of each stage when it is done.
        """
        last = STAGES.index(until)
        while self._reached <= last:
            stage = STAGES[self._reached]
            getattr(self, stage)()
            self._reached += 1
            after(stage)
        return self
