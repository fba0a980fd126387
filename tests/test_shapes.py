"""The owner's documents: every field and rule, one defect at a time, and all of them at once.

FIELDS says what the contract says of each field, and MEANINGS what a meaning accepts and
refuses; both are written here anew, and not read from the program's own tables.
"""

from __future__ import annotations

import copy
import datetime
import json
import re
from decimal import Decimal

import pytest

import eval_loop
from builder import now, sha256

HASH, OTHER_HASH = "0123456789abcdef" * 4, "fedcba9876543210" * 4
NOT_TEXTS = [None, True, 5, [], {}]
BAD_DECIMALS = ["-1", -1, "-0", "1e3", "", " 1", "1\n", "1,5", "1_0", ".5", "5.", "NaN", "inf",
                "9" * 31, True, False, None, [], {}, Decimal("1E+40"), "x"]
BAD_WORDS = ["", True, None, 1, [], {}]

# Meaning of a field: (what it accepts, what it refuses, a word of the refusal).
MEANINGS = {
    "text": (["x", "Zoë Ångström", "<table>", "a\nb", " a ", "x" * 100_000, "0", "FILLED: yes"],
             [*NOT_TEXTS, "", " ", "\n\t", "a\0b", "\ud800", "x" * 100_001], "text"),
    "literal": (["", " ", "x", "a\nb"], [*NOT_TEXTS, "a\0b", "\udfff"], "text"),
    "id": (["a", "7-day-note", "A" * 64, "x_y-z", "console", "com", "lpt0", "nul-1", "0"],
           [*NOT_TEXTS, "", "-a", "_a", "a b", "ä", "a" * 65, "a.b", "a/b", "a\n", "a\\b",
            "con", "CON", "Aux", "nul", "PRN", "com1", "LPT9", "..", "٣"], "id of 1 to 64"),
    "sha": ([HASH, "0" * 64],
            [*NOT_TEXTS, HASH.upper(), HASH[1:], HASH + "0", f"sha256:{HASH}", f"{HASH}\r",
             f"{HASH}\n", f"{HASH}  input.txt", f" {HASH}", "<sha256>", "", "g" * 64],
            "64 lower-case hex digits"),
    "path": (["a", "a/b.txt", "ä/é.txt", "a b/c d", ".claude/x", "a..b/c", "x" * 249],
             [*NOT_TEXTS, "", "/etc/hostname", "..", "../x", "a/../b", "a//b", "a/", "./a",
              "a/.", "a\\b", "a ", "a /b", "a\0b", "a\nb", "\ud800", "x" * 250],
             "relative path"),
    "program": (["/usr/bin/claude", "/a b/c"],
                [*NOT_TEXTS, "", "claude", "./claude", "~/claude", "/a\0b", "/\ud800"],
                "absolute path"),
    "utc": (["2026-11-30T10:00:00Z", "2026-11-30T12:00:00+02:00"],
            [*NOT_TEXTS, "2026-11-30T10:00:00", "2026-11-30", "2026-W49-1",
             "2026-11-30T25:00:00Z", "", "yesterday", 1764500000], "offset"),
    "money": (["0", "0.25", "100", 3, Decimal("0.1"), "9" * 30], BAD_DECIMALS, "exact decimal"),
    "budget": (["0.25", 3, Decimal("0.1")], [*BAD_DECIMALS, "0", "0.000", 0], "above 0"),
    "rate": (["0", "1", "0.05", "1.000000", "0.123456", 0, 1, Decimal("0.1")],
             [*BAD_DECIMALS, "1.1", 2, "1.000001", "0.1234567"], "from 0 to 1"),
    "limit": (["0.5", "0.05", "0.000001", Decimal("0.5")],
              [*BAD_DECIMALS, "0", 0, "0.51", "1", "0.500001", "0.1234567"], "at most 0.5"),
    "boolean": ([True, False], [None, 0, 1, "true", "", [], {}], "true or false"),
    "verdict": (["pass", "fail", "unknown"], [*BAD_WORDS, "PASS", "pass ", "passed", "pаss"],
                "fail or pass or unknown"),
    "reference": ([{"file": "a/b.txt", "sha256": HASH}], [None, True, "a.txt", [], 5], ""),
}


def whole(low: int, high: int) -> tuple:
    """The meaning of a whole number in a range."""
    return ([low, high], [low - 1, high + 1, True, None, str(low), [], Decimal(f"{low}.0")],
            f"from {low} to {high}")


def words(*allowed: str) -> tuple:
    """The meaning of one of some words."""
    return (list(allowed), [*BAD_WORDS, allowed[0].upper() + "!", allowed[0] + " "], allowed[0])


REFERENCE = {"file": "a.txt", "sha256": HASH}
REVIEW = {"reviewedBy": "text", "humanVerdict": "verdict"}

# Field -> meaning, with ? where it may be absent. A list holds at least one of what it shows,
# unless its second item is None.
FIELDS = {
    "environment": {
        "claudeExecutable": "program", "cliVersion": "text", "cliSha256": "sha",
        "modelId": "text", "judgeModelId": "text", "accountLabel": "text",
        "budgetUsd": "budget", "judgeBudgetUsd": "budget", "timeoutSeconds": whole(1, 86_400),
        "unservedAttempts": whole(1, 20), "evidenceKind": words("measured", "synthetic"),
        "judgeExecutable?": "program", "judgeCliVersion?": "text", "judgeCliSha256?": "sha"},
    "spending": {"spendLimitUsd": "money", "approvedBy": "text", "approvedAtUtc": "utc",
                 "callLimit?": whole(0, 10**9 - 1), "reason?": "text"},
    "cases": {"split": words("development", "heldout"), "testVersion": "text",
              "permittedBy": "text", "cases": [{
                  "id": "id", "caseGroup": "text", "sourceId": "text", "sourceRevision": "text",
                  "input": "reference", "expected": "reference", "truth": "reference",
                  "slice?": "text"}]},
    "expected": {"approvedBy": "text", "tests": [{
        "id": "id", "kind": words("contains", "not_contains", "regex"), "critical": "boolean",
        "value?": "text"}]},
    "calibration-plan": {
        "taskId": "id", "environment": "reference", "resultDir": "path",
        "calibrationOutputFile": "path", "permittedBy": "text",
        "labelKind": words("human_reviewed", "synthetic"), "reviewers": ["text"],
        "exclusions": ["reference", None], "samples": [{
            "id": "id", "caseGroup": "text", "sourceId": "text", "input": "reference",
            "truth": "reference", "output": "reference", "criterion": "reference", **REVIEW,
            "humanEvidence": "text", "slice?": "text", "attack?": "boolean",
            "secondReview?": {**REVIEW, "humanEvidence": "text"},
            "adjudication?": {**REVIEW, "reason": "text"}}],
        "qualification?": {
            "minimumPerClass": whole(10, 100_000), "maximumFalsePassBound": "limit",
            "maximumFalseBlockBound": "limit", "maximumUnsupportedPassBound": "limit",
            "maximumAbstentionRate": "limit", "requireTwoReviewers": "boolean",
            "jointConfidence": "boolean"},
        "validDays?": whole(1, 3650)},
    "calibration-approval": {"approvedBy": "text", "approvedAtUtc": "utc",
                             "calibrationPlanSha256": "sha"},
    "policy": {
        "taskId": "id", "testVersion": "text", "skillName": "id", "approvedBy": "text",
        "approvedAtUtc": "utc", "environment": "reference", "developmentCases": "reference",
        "heldoutCases": "reference", "minimumHeldoutScore": "rate",
        "minimumHeldoutGain": "rate", "maximumGainPValue": "rate",
        "maximumUnknownShare": "rate",
        "maximumWorseFamiliesShare": "rate", "repeatsPerCase": whole(1, 1),
        "maximumRegressedChecks?": whole(0, 10**6 - 1), "retiredCases?": ["reference", None]},
    "plan": {"schema": whole(3, 3), "variant": words("baseline", "candidate"),
             "split": words("development", "heldout"), "policy": "reference",
             "projectDir": "path", "skillSha256": "sha", "resultDir": "path",
             "diagnosis?": "reference", "heldoutUnlock?": "reference"},
    "diagnosis": {"status": words("approved"), "approvedBy": "text", "approvedAtUtc": "utc",
                  "baselinePlan": "reference", "baselineScoreSha256": "sha",
                  "candidateSkillSha256": "sha", "observedFailures": [{
                      "caseId": "id", "testId": "id", "diagnosis": "text"}]},
    "heldout-unlock": {"approvedBy": "text", "approvedAtUtc": "utc",
                       "candidateDevelopmentPlan": "reference",
                       "candidateDevelopmentScoreSha256": "sha", "candidateSkillSha256": "sha",
                       "override?": "text"},
    "decision": {"owner": "text", "decidedAtUtc": "utc",
                 "decision": words("accept", "hold", "revert"), "reason": "text",
                 "comparisonSha256": "sha", "candidateSkillSha256": "sha",
                 "acceptWithoutShownImprovement?": "text",
                 "humanReview?": [{"caseId": "id", "testId": "id", "verdict": "verdict"},
                                  None]},
    "revocations": {"revocations": [{"calibrationSha256": "sha", "revokedBy": "text",
                                     "revokedAtUtc": "utc", "reason": "text"}, None]},
}
ALSO = {  # fields with meanings of their own, tested further down
    "environment": {"setEnvironment": {"SOME_URL": "http://127.0.0.1:1"},
                    "passEnvironment": ["AWS_REGION"]},
    "calibration-approval": {"terminalHashes": {"s1.calibrate.1.terminal.json": HASH}},
    "policy": {"calibration": REFERENCE},
}


def accepted_by(meaning) -> list:
    return (MEANINGS[meaning] if isinstance(meaning, str) else meaning)[0]


def example(shape, number: int = 0):
    """A value that fits: with every field, the first accepted value in each."""
    if isinstance(shape, dict):
        return {name.rstrip("?"): example(inner) for name, inner in shape.items()}
    if isinstance(shape, list):
        return [example(shape[0])]
    return copy.deepcopy(accepted_by(shape)[number])


def full(kind: str) -> dict:
    """A document with every field."""
    return {**example(FIELDS[kind]), **copy.deepcopy(ALSO.get(kind, {}))}


def leaves(shape, path: str = "$", keys: tuple = ()):
    """Yield (JSON path, keys, meaning, whether it may be absent) of every field of a shape."""
    for name, inner in shape.items():
        plain, where = name.rstrip("?"), (*keys, name.rstrip("?"))
        yield f"{path}.{plain}", where, inner, name.endswith("?")
        if isinstance(inner, list) and isinstance(inner[0], dict):
            yield from leaves(inner[0], f"{path}.{plain}[0]", (*where, 0))
        elif isinstance(inner, list):
            yield f"{path}.{plain}[0]", (*where, 0), inner[0], None
        elif isinstance(inner, dict):
            yield from leaves(inner, f"{path}.{plain}", where)


def changed(document, keys: tuple, value=None, remove: bool = False):
    """A copy with another value at one place, or without it."""
    document = copy.deepcopy(document)
    holder = document
    for key in keys[:-1]:
        holder = holder[key]
    if remove:
        del holder[keys[-1]]
    else:
        holder[keys[-1]] = value
    return document


def problems(kind: str, document) -> list[str]:
    """What the program's table says of a document."""
    return [f"{path}: {problem}" for path, _, _, _, problem
            in eval_loop.inspect(eval_loop.SHAPES[kind], document) if problem]


LEAVES = [(kind, *leaf) for kind, shape in FIELDS.items() for leaf in leaves(shape)]
VALUES = [leaf for leaf in LEAVES if isinstance(leaf[3], (str, tuple))]


def name_of(leaf) -> str:
    return f"{leaf[0]} {leaf[1]}"


# ---- one field at a time ---------------------------------------------------------------------


def test_every_kind_of_owner_document_is_tried_here():
    assert set(FIELDS) == set(eval_loop.SHAPES) == set(eval_loop.TELLING_FIELD.values())
    assert len(VALUES) > 120


@pytest.mark.parametrize("kind", FIELDS)
def test_a_document_with_every_field_has_no_problem(kind):
    assert problems(kind, full(kind)) == []


@pytest.mark.parametrize("kind", FIELDS)
def test_the_program_knows_no_field_beyond_those_of_the_contract(kind):
    known = {name.rstrip("?") for name in eval_loop.SHAPES[kind]}
    assert known == {name.rstrip("?") for name in FIELDS[kind]} | set(ALSO.get(kind, {}))


@pytest.mark.parametrize("leaf", VALUES, ids=name_of)
def test_a_field_accepts_what_it_means(leaf):
    kind, _, keys, meaning, _ = leaf
    for value in accepted_by(meaning):
        assert problems(kind, changed(full(kind), keys, value)) == [], value


@pytest.mark.parametrize("leaf", VALUES, ids=name_of)
def test_a_field_refuses_anything_else_naming_its_place_and_the_value(leaf):
    kind, path, keys, meaning, _ = leaf
    _, refused, word = MEANINGS[meaning] if isinstance(meaning, str) else meaning
    for value in refused:
        told = problems(kind, changed(full(kind), keys, value))
        assert len(told) == 1, (value, told)
        assert told[0].startswith(f"{path}: expected ") and word in told[0], (value, told)
        shown = json.dumps(value, default=str)
        assert f", got {shown[:50]}" in told[0], (value, told)
        assert len(told[0]) < 300 and "\n" not in told[0]


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf[4] is not None], ids=name_of)
def test_a_field_is_missed_when_it_is_needed_and_only_then(leaf):
    kind, path, keys, _, optional = leaf
    told = problems(kind, changed(full(kind), keys, remove=True))
    assert told == ([] if optional else [f"{path}: missing"])


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if leaf[3] == "reference"],
                         ids=name_of)
def test_a_reference_is_a_file_and_a_hash_and_nothing_else(leaf):
    kind, path, keys, _, _ = leaf
    for reference, told in [
            ({"file": "a.txt"}, [f"{path}.sha256: missing"]),
            ({"sha256": HASH}, [f"{path}.file: missing"]),
            ({}, [f"{path}.file: missing", f"{path}.sha256: missing"])]:
        assert problems(kind, changed(full(kind), keys, reference)) == told
    for reference, place in [({**REFERENCE, "file": "../a.txt"}, "file"),
                             ({**REFERENCE, "sha256": HASH.upper()}, "sha256"),
                             ({**REFERENCE, "size": 3}, "size")]:
        told, = problems(kind, changed(full(kind), keys, reference))
        assert told.startswith(path) and place in told


@pytest.mark.parametrize("leaf", [leaf for leaf in LEAVES if isinstance(leaf[3], list)],
                         ids=name_of)
def test_a_list_is_a_list_and_is_empty_only_where_nothing_may_be_said(leaf):
    kind, path, keys, meaning, _ = leaf
    told = problems(kind, changed(full(kind), keys, []))
    if len(meaning) == 2:
        assert told == []
    else:
        assert len(told) == 1 and told[0].startswith(f"{path}: expected a list of at least one")
    for value in (None, {}, "x", 1, True):
        told, = problems(kind, changed(full(kind), keys, value))
        assert told.startswith(f"{path}: expected a list")


@pytest.mark.parametrize("value", [None, True, 5, "x", [], [[]], Decimal("0.5")])
@pytest.mark.parametrize("kind", FIELDS)
def test_a_document_is_an_object(kind, value):
    told, = problems(kind, value)
    assert told.startswith("$: expected an object, got ")


# ---- fields with meanings of their own -------------------------------------------------------


@pytest.mark.parametrize("name", [
    "ANTHROPIC_BASE_URL", "MAX_THINKING", "HTTPS_PROXY", "a", "OFFLINE_SEED"])
def test_a_variable_may_be_set_by_name_and_literal(name):
    document = changed(full("environment"), ("setEnvironment",), {name: "x y=z"})
    assert problems("environment", document) == []


@pytest.mark.parametrize("name", [
    "PATH", "HOME", "TMPDIR", "TZ", "LANG", "CLAUDE_CODE_MAX_RETRIES", "DISABLE_TELEMETRY",
    "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_ATTACHMENTS", "ANTHROPIC_API_KEY", "MY_TOKEN",
    "token", "X_Secret_Y", "DB_PASSWORD", "AUTHOR", "Credentials", "MONKEY", "", "1A", "A-B",
    "A B", "A=B", "É", "A\n", "A\0"])
def test_a_variable_that_is_fixed_or_sounds_secret_is_refused_by_name(name):
    document = changed(full("environment"), ("setEnvironment",), {name: "x"})
    told, = problems("environment", document)
    assert told.startswith("$.setEnvironment.") and json.dumps(name)[1:-1] in told


@pytest.mark.parametrize("value", [None, True, 1, Decimal("0.5"), [], {}, "a\0b", "\ud800"])
def test_a_variable_is_set_to_text_that_a_process_can_be_given(value):
    document = changed(full("environment"), ("setEnvironment",), {"A": value})
    told, = problems("environment", document)
    assert told.startswith("$.setEnvironment.A: expected text")


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AWS_REGION",
                                  "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS",
                                  "MY_SECRET"])
def test_a_credential_may_be_passed(name):
    document = changed(full("environment"), ("passEnvironment",), [name])
    assert problems("environment", document) == []


@pytest.mark.parametrize("name", ["HOME", "PATH", "HTTPS_PROXY", "MY_PASSWORD", "aws_region",
                                  "KEY", "_KEY", "A_KEY ", "A_KEYS", "LD_PRELOAD", "", 5, None])
def test_what_is_no_credential_may_not_be_passed(name):
    document = changed(full("environment"), ("passEnvironment",), ["AWS_REGION", name])
    told, = problems("environment", document)
    assert told.startswith("$.passEnvironment[1]: expected a credential's name")


def test_no_credential_needs_to_be_passed():
    document = changed(full("environment"), ("passEnvironment",), [])
    assert problems("environment", document) == []


@pytest.mark.parametrize("name", ["s1.calibrate.1.terminal.json",
                                  "S-1_x.calibrate.12.terminal.json"])
def test_an_approval_names_terminal_receipts(name):
    document = changed(full("calibration-approval"), ("terminalHashes",), {name: HASH})
    assert problems("calibration-approval", document) == []


@pytest.mark.parametrize("name", [
    "s1.calibrate.1.pending.json", "s1.run.1.terminal.json", "s1.calibrate.0.terminal.json",
    "results/s1.calibrate.1.terminal.json", "s1.calibrate.1.terminal.json ", "", "s1"])
def test_an_approval_of_anything_else_is_refused_by_name(name):
    document = changed(full("calibration-approval"), ("terminalHashes",), {name: HASH})
    told, = problems("calibration-approval", document)
    assert "calibration receipt's name" in told and json.dumps(name)[1:-1] in told


def test_an_approval_gives_hashes_in_one_spelling():
    document = changed(full("calibration-approval"), ("terminalHashes",),
                       {"s1.calibrate.1.terminal.json": HASH.upper()})
    told, = problems("calibration-approval", document)
    assert "64 lower-case hex digits" in told


def test_a_policy_without_judge_tests_names_no_calibration():
    assert problems("policy", changed(full("policy"), ("calibration",), None)) == []
    told, = problems("policy", changed(full("policy"), ("calibration",), "none"))
    assert told.startswith("$.calibration: expected")
    assert problems("policy", changed(full("policy"), ("calibration",), remove=True)) == [
        "$.calibration: missing"]


# ---- unknown fields, notes, placeholders -----------------------------------------------------


@pytest.mark.parametrize("kind, keys, wrong, near", [
    ("policy", (), "minimumHeldoutscore", "minimumHeldoutScore"),
    ("policy", (), "approvedAtUTC", "approvedAtUtc"), ("plan", (), "maxTurns", ""),
    ("environment", (), "timeout", "timeoutSeconds"), ("spending", (), "limit", ""),
    ("cases", ("cases", 0), "casegroup", "caseGroup"),
    ("calibration-plan", ("samples", 0, "secondReview"), "reviewdBy", "reviewedBy"),
    ("calibration-plan", ("qualification",), "minimumPerclass", "minimumPerClass"),
    ("decision", ("humanReview", 0), "verdikt", "verdict"), ("expected", (), "Tests", "tests"),
])
def test_an_unknown_field_is_refused_naming_the_nearest_known_one(kind, keys, wrong, near):
    told, = problems(kind, changed(full(kind), (*keys, wrong), "x"))
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    assert re.match(rf"\${re.escape(place)}[.:]", told) and "unknown field" in told
    assert wrong in told and near in told and "nearest known" in told


@pytest.mark.parametrize("note", ["words", 5, None, {"a": ["FILL: b"]}, "FILL: later", [True]])
@pytest.mark.parametrize("kind", FIELDS)
def test_a_field_that_begins_with_an_underscore_is_the_owners_note(kind, note):
    assert problems(kind, changed(full(kind), ("_note",), note)) == []


def test_a_note_may_stand_in_any_object_but_a_table_of_names():
    for kind, keys in [("cases", ("cases", 0, "_")), ("cases", ("cases", 0, "input", "_why")),
                       ("calibration-plan", ("samples", 0, "adjudication", "_x"))]:
        assert problems(kind, changed(full(kind), keys, 1)) == []


@pytest.mark.parametrize("leaf", LEAVES, ids=name_of)
def test_a_placeholder_is_called_so_wherever_it_stands(leaf):
    kind, path, keys, _, _ = leaf
    told, = problems(kind, changed(full(kind), keys, "FILL: who approved this, and why"))
    assert told.startswith(f"{path}: placeholder not filled in") and "who approved" in told


@pytest.mark.parametrize("text", ["fill: x", "FILL x", " FILL: x", "<fill>", "TODO", "{{name}}",
                                  "<sha256>", "REFILL: 3"])
def test_nothing_else_is_a_placeholder(text):
    assert problems("spending", changed(full("spending"), ("reason",), text)) == []


def test_a_placeholder_in_place_of_a_name_is_called_so():
    document = changed(full("calibration-approval"), ("terminalHashes",),
                       {"FILL: sample.calibrate.1.terminal.json": HASH})
    assert "placeholder" in problems("calibration-approval", document)[0]


# ---- all problems at once, through check -----------------------------------------------------


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Return a function: files, as name -> document or bytes -> (status, problem lines).

    The files are written into one directory and all of them checked, unless `say` names some.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"content\n")

    def run(files: dict, *say: str) -> tuple[int, list[str]]:
        for name, document in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(document if isinstance(document, bytes) else json.dumps(
                document, default=str).encode())
        status = eval_loop.main(["check", *(say or files)])
        told = capsys.readouterr().err.splitlines()
        return status, [line.removeprefix("refused: ") for line in told
                        if line.startswith("refused: ")]

    return run


GOOD = {"file": "a.txt", "sha256": sha256(b"content\n")}


def spending(**fields) -> dict:
    return {"spendLimitUsd": "5", "approvedBy": "Olga Owner", "approvedAtUtc": now(), **fields}


def environment(**fields) -> dict:
    return {"claudeExecutable": "/opt/claude", "cliVersion": "2.1.332 (Claude Code)",
            "cliSha256": HASH, "modelId": "model-a", "judgeModelId": "model-b",
            "accountLabel": "mine", "budgetUsd": "1", "judgeBudgetUsd": "0.2",
            "timeoutSeconds": 60, "unservedAttempts": 3, "evidenceKind": "measured", **fields}


def expected(*tests: dict) -> dict:
    return {"approvedBy": "Olga Owner", "tests": [
        {"id": f"t{number}", "kind": "contains", "critical": False, **test}
        for number, test in enumerate(tests, 1)]}


def case(number: int, **fields) -> dict:
    return {"id": f"c{number}", "caseGroup": f"group {number}", "sourceId": f"source {number}",
            "sourceRevision": "1", "input": GOOD, "truth": GOOD,
            "expected": {"file": "expected.json", "sha256": OTHER_HASH}, **fields}


def test_good_documents_are_found_good(check):
    assert check({"environment.json": environment(), "spending.json": spending()}) == (0, [])


def test_all_problems_of_a_document_are_told_at_once_one_line_each(check):
    document = spending(spendLimitUsd=-5, approvedBy=" ", approvedAtUtc="today", callLimit=True,
                        reasom="x")
    status, told = check({"spending.json": document})
    assert status == 3
    assert len(told) == 5 and all(line.startswith("spending.json: $") for line in told)
    for line, field in zip(told, ("spendLimitUsd", "approvedBy", "approvedAtUtc", "callLimit",
                                  "reasom"), strict=True):
        assert field in line


def test_all_problems_of_all_documents_are_told_at_once(check):
    status, told = check({
        "environment.json": environment(timeoutSeconds=0, budgetUsd="0"),
        "spending.json": b"{,", "expected.json": expected({"value": ""}, {"value": 5})})
    assert status == 3
    assert sorted(line.split(": ")[:2] for line in told) == [
        ["environment.json", "$.budgetUsd"], ["environment.json", "$.timeoutSeconds"],
        ["expected.json", "$.tests[0].value"], ["expected.json", "$.tests[1].value"],
        ["spending.json", told[2].split(": ")[1]]]
    assert "is not JSON" in told[2]


def test_problems_of_referenced_documents_are_told_with_those_of_the_referring_one(check):
    bad = json.dumps(expected({"value": ""})).encode()
    status, told = check({
        "expected.json": bad,
        "cases.json": {"split": "development", "testVersion": "", "permittedBy": "Olga",
                       "cases": [case(1, expected={"file": "expected.json",
                                                   "sha256": sha256(bad)}),
                                 case(2, input={"file": "gone.txt", "sha256": HASH})]}},
        "cases.json")
    assert status == 3
    assert any(line.startswith("expected.json: $.tests[0].value: ") for line in told)
    assert any(line.startswith("cases.json: $.testVersion: ") for line in told)
    assert any(line.startswith("gone.txt: missing") and "$.cases[1].input" in line
               for line in told)


def test_a_flood_of_problems_is_cut_and_says_so(check):
    status, told = check({"cases.json": {"split": "development", "testVersion": "1",
                                         "permittedBy": "x", "cases": [{}] * 2_000}})
    assert status == 3 and len(told) < 1_100 and "and more" in told[-1]


def test_a_document_is_known_by_the_one_field_that_only_its_kind_has(check):
    status, told = check({"x.json": {"approvedBy": "x"}})
    assert status == 3 and all(field in told[0] for field in eval_loop.TELLING_FIELD)
    status, told = check({"x.json": {**environment(), **spending()}})
    assert status == 3 and "claudeExecutable" in told[0] and "spendLimitUsd" in told[0]


# ---- time ------------------------------------------------------------------------------------


def at(minutes: int) -> str:
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes)
    return moment.isoformat(timespec="seconds")


@pytest.mark.parametrize("minutes", [-10**6, -1, 0, 4])
def test_a_time_may_be_five_minutes_ahead(check, minutes):
    assert check({"spending.json": spending(approvedAtUtc=at(minutes))}) == (0, [])


@pytest.mark.parametrize("minutes", [6, 10**6])
def test_a_time_further_ahead_is_refused_telling_the_present_one(check, minutes):
    text = at(minutes)
    status, told = check({"spending.json": spending(approvedAtUtc=text)})
    assert status == 3 and told[0].startswith("spending.json: $.approvedAtUtc: ")
    assert text in told[0]
    present = re.search(r"now it is (\S+Z)", told[0])[1]
    assert eval_loop.parse_utc(present) is not None
    assert check({"spending.json": spending(approvedAtUtc=present)}) == (0, [])


def test_a_time_in_any_offset_is_the_same_instant(check):
    west = datetime.datetime.now(datetime.timezone(datetime.timedelta(hours=-9)))
    text = west.isoformat(timespec="seconds")
    assert check({"spending.json": spending(approvedAtUtc=text)}) == (0, [])


# ---- rules between fields --------------------------------------------------------------------


@pytest.mark.parametrize("model, judge", [("model-a", "model-a"), ("Model-A", "model-a"),
                                          (" model-a", "model-a ")])
def test_a_model_may_not_judge_itself(check, model, judge):
    status, told = check({"e.json": environment(modelId=model, judgeModelId=judge)})
    assert status == 3 and told[0].startswith("e.json: $.judgeModelId: ")


@pytest.mark.parametrize("version", ["2.1.286 (Claude Code)", "2.1.332 (Claude Code)",
                                     "2.2.0 (Claude Code)", "2.10.0 (Claude Code)",
                                     "3.0.0 (Claude Code)", "1.0.0 (synthetic stand-in)",
                                     "anything"])
def test_a_measured_or_foreign_cli_version_is_accepted(check, version):
    assert check({"e.json": environment(cliVersion=version)}) == (0, [])


@pytest.mark.parametrize("version", ["2.1.285 (Claude Code)", "2.0.999 (Claude Code)",
                                     "1.9.400 (Claude Code)", "unknown (Claude Code)",
                                     "2.1 (Claude Code)"])
def test_a_claude_code_older_than_the_floor_is_refused(check, version):
    status, told = check({"e.json": environment(cliVersion=version)})
    assert status == 3 and told[0].startswith("e.json: $.cliVersion: ")
    assert "2.1.286" in told[0] and version in told[0]


JUDGE = {"judgeExecutable": "/opt/judge", "judgeCliVersion": "1 (judge)",
         "judgeCliSha256": HASH}


def test_a_judge_has_a_cli_of_its_own_whole_or_not_at_all(check):
    assert check({"e.json": environment(**JUDGE)}) == (0, [])
    for name in JUDGE:
        part = {other: value for other, value in JUDGE.items() if other != name}
        status, told = check({"e.json": environment(**part)})
        assert status == 3 and len(told) == 1 and name in told[0]


@pytest.mark.parametrize("first, second", [("a", "a"), ("Case-1", "case-1")])
def test_ids_are_unique_without_regard_to_case(check, first, second):
    document = expected({"id": first, "value": "x"}, {"id": second, "value": "y"})
    status, told = check({"expected.json": document})
    assert status == 3 and "$.tests: " in told[0] and second.lower() in told[0]


@pytest.mark.parametrize("test, place, word", [
    ({"kind": "contains"}, "value", "missing"), ({"kind": "regex"}, "value", "missing"),
    ({"kind": "judge"}, "criterion", "missing"),
    ({"kind": "judge", "value": "x", "criterion": GOOD}, "value", "remove"),
    ({"kind": "regex", "value": "x", "criterion": GOOD}, "criterion", "remove"),
    ({"kind": "regex", "value": "("}, "value", "regular expression"),
    ({"kind": "regex", "value": "a{2,1}"}, "value", "regular expression"),
    ({"kind": "regex", "value": "x" * 20_000}, "value", "characters"),
    ({"kind": "regex", "value": "(?P<a>x)(?P<a>y)"}, "value", "regular expression"),
    ({"kind": "contains", "value": ""}, "value", "not blank"),
    ({"kind": "not_contains", "value": " \n"}, "value", "not blank"),
    ({"kind": "regex", "value": ""}, "value", "not blank"),
    ({"kind": "contains", "value": "x", "critical": "yes"}, "critical", "true or false"),
])
def test_a_test_has_what_its_kind_needs(check, test, place, word):
    status, told = check({"expected.json": expected(test)})
    assert status == 3 and len(told) == 1
    assert told[0].startswith(f"expected.json: $.tests[0].{place}: ") and word in told[0]


def test_two_equal_tests_of_one_case_are_refused(check):
    status, told = check({"expected.json": expected({"value": "x"}, {"value": "x"})})
    assert status == 3 and "equal" in told[0]
    assert check({"expected.json": expected({"value": "x"}, {"kind": "not_contains",
                                                             "value": "x"})}) == (0, [])


def test_one_source_belongs_to_one_family(check):
    good = json.dumps(expected({"value": "x"})).encode()
    binding = {"file": "expected.json", "sha256": sha256(good)}
    document = {"split": "heldout", "testVersion": "1", "permittedBy": "Olga", "cases": [
        case(1, sourceId="Roll  7", caseGroup="A", expected=binding),
        case(2, sourceId="roll 7", caseGroup="B", expected=binding)]}
    status, told = check({"expected.json": good, "cases.json": document}, "cases.json")
    assert status == 3 and told[0].startswith("cases.json: $.cases[1].caseGroup: ")
    document["cases"][1]["caseGroup"] = " a "
    assert check({"cases.json": document})[0] == 0


@pytest.mark.parametrize("variant, split, needs", [
    ("baseline", "development", None), ("candidate", "development", "diagnosis"),
    ("baseline", "heldout", "heldoutUnlock"), ("candidate", "heldout", "heldoutUnlock")])
def test_a_plan_stands_on_what_its_stage_needs_and_on_nothing_else(check, variant, split,
                                                                   needs):
    plan = {"schema": 3, "variant": variant, "split": split, "projectDir": "skills/x",
            "policy": {"file": "policy.json", "sha256": HASH}, "skillSha256": HASH,
            "resultDir": "results/x"}
    for name in ("diagnosis", "heldoutUnlock"):
        more = {name: {"file": f"{name}.json", "sha256": HASH}}
        _, told = check({"plan.json": {**plan, **more}})
        about = [line for line in told if line.startswith(f"plan.json: $.{name}: ")]
        assert (about == []) == (name == needs), told
    _, told = check({"plan.json": plan})
    about = [line for line in told if line.startswith("plan.json: $.")]
    assert [line.split(": ")[1] for line in about] == ([f"$.{needs}"] if needs else [])


# ---- bytes that are not those approved -------------------------------------------------------


def bind(check, approved: bytes, present: bytes) -> str:
    """Check an inventory that binds `approved` while `present` lies there; the sentence."""
    good = json.dumps(expected({"value": "x"})).encode()
    status, told = check({
        "expected.json": good, "input.txt": present,
        "cases.json": {"split": "development", "testVersion": "1", "permittedBy": "Olga",
                       "cases": [case(1, input={"file": "input.txt",
                                                "sha256": sha256(approved)},
                                      expected={"file": "expected.json",
                                                "sha256": sha256(good)})]}}, "cases.json")
    assert status == (3 if approved != present else 0)
    assert len(told) == (approved != present)
    return told[0] if told else ""


HINTS = [
    (b"two\nlines\n", b"two\nlines", "final newline"), (b"two\nlines", b"two\nlines\n",
                                                        "final newline"),
    (b"two\nlines\n", b"two\r\nlines\r\n", "line endings"),
    (b"two\r\nlines\r\n", b"two\nlines\n", "line endings"),
    (b"mixed\r\nlines\n", b"mixed\nlines\n", ""),
    (b"plain\n", b"\xef\xbb\xbfplain\n", "byte-order mark"),
    (b"\xef\xbb\xbfplain\n", b"plain\n", "byte-order mark"),
    (b"end\n", b"end\n\n\n", "final newline"), (b"one\n", b"two\n", ""),
    (b"a b\n", b"a  b\n", ""),
    (b"", b"\n", "final newline"),
]


@pytest.mark.parametrize("approved, present, hint", HINTS, ids=range(len(HINTS)))
def test_bytes_that_differ_by_an_editors_habit_are_told_so_exactly(check, approved, present,
                                                                    hint):
    told = bind(check, approved, present)
    assert told.startswith("input.txt: expected sha256 " + sha256(approved))
    assert sha256(present) in told and "cases.json $.cases[0].input" in told
    known = [words for words in ("final newline", "line endings", "byte-order mark")
             if words in told]
    assert known == ([hint] if hint else [])


def test_the_approved_bytes_are_accepted_whatever_their_line_ends(check):
    assert bind(check, b"two\r\nlines", b"two\r\nlines") == ""


def test_a_text_that_is_no_utf8_is_refused_by_name(check):
    raw = "Müller".encode("latin-1")
    good = json.dumps(expected({"value": "x"})).encode()
    status, told = check({
        "expected.json": good, "input.txt": raw,
        "cases.json": {"split": "development", "testVersion": "1", "permittedBy": "Olga",
                       "cases": [case(1, input={"file": "input.txt", "sha256": sha256(raw)},
                                      expected={"file": "expected.json",
                                                "sha256": sha256(good)})]}}, "cases.json")
    assert status == 3 and told == [
        f"input.txt: is not UTF-8 (byte {raw.index(0xfc)}); save it as UTF-8"]
