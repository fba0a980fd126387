"""What an owner's document could hold by mistake or on purpose: thousands of seeded mutations.

Every one is refused in one pass, with a line that names file and path, exit 3 and nothing
written; or accepted, and then it has the shape of the document it was made from. And no input
makes a command run for more than ten seconds of processor time or use more than 500 MB, but
for the two seconds that each regular expression has.
"""

import json
import os
import random
import re
import subprocess
import sys

import pytest

import mutations
from builder import CANDIDATE_SKILL, PROGRAM, Experiment, now, sha256
from mutations import BYTE_MUTATORS, STRUCTURE_MUTATORS, Pairs, Quick, say

# Fields that a document may leave out, as templates/README.md has them.
OPTIONAL = {"judgeExecutable", "judgeCliVersion", "judgeCliSha256", "setEnvironment",
            "passEnvironment", "callLimit", "reason", "slice", "attack", "secondReview",
            "adjudication", "qualification", "validDays", "maximumRegressedChecks",
            "retiredCases", "override", "acceptWithoutShownImprovement", "humanReview"}
PER_DOCUMENT = 330


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """An experiment that was unlocked, with one document of every kind that checks well.

    Plans that begin with "fresh" have result directories of their own, without receipts that
    bind their bytes.
    """
    own = Quick(tmp_path_factory.mktemp("desk"), development=2, heldout=2,
                     slices=("one",), environment={"passEnvironment": []},
                     spending={"callLimit": 1000, "reason": "enough"},
                     policy={"maximumRegressedChecks": 3, "retiredCases": []},
                     calibration={"validDays": 30}).walk("unlock")
    for name in own.plan_names():
        variant, split, _ = name.split("-")
        if name == "candidate-development-plan.json":      # the first one ran already
            continue
        kept = own.path(name).read_bytes() if own.path(name).exists() else None
        own.write_plan(variant, split, resultDir=f"fresh/{variant}-{split}")
        own.path(name).rename(own.path(f"fresh-{name}"))
        if kept:
            own.write(name, kept)
    own.second_candidate(CANDIDATE_SKILL + "Be brief.\n")
    own.write_diagnosis()
    plan = own.write_plan("candidate", "development", resultDir="fresh/candidate-development")
    own.path(plan).rename(own.path("fresh-candidate-development-plan.json"))
    own.write("fresh-calibration-plan.json", {
        **own.read("calibration-plan.json"), "resultDir": "fresh/calibration",
        "calibrationOutputFile": "fresh.json"})
    own.write("expected.json", own.read("cases/d01/expected.json"))
    own.write_revocation()
    own.write("decision.json", {
        "owner": "Olga Owner", "decidedAtUtc": now(), "decision": "hold", "reason": "Later.",
        "comparisonSha256": "0" * 64, "candidateSkillSha256": "0" * 64,
        "humanReview": [{"caseId": "h01", "testId": "grounded-1", "verdict": "pass"}]})
    return own


NAMES = ["environment", "spending", "development-cases", "heldout-cases", "expected",
         "fresh-calibration-plan", "calibration-approval", "policy", "diagnosis", "heldout-unlock",
         "fresh-baseline-development-plan", "fresh-candidate-development-plan",
         "fresh-baseline-heldout-plan", "fresh-candidate-heldout-plan", "decision",
         "revocations"]
NAMED_BY_OWNER = {"setEnvironment", "terminalHashes"}     # objects whose names are free


def document(desk: Experiment, name: str):
    return mutations.read(desk.path(f"{name}.json").read_bytes())


def check(desk: Experiment, raw: bytes) -> mutations.Said:
    """`check x.json` with these bytes; a crash, or anything written, is an AssertionError."""
    said = checked(desk, raw)
    assert said.status in (0, 3), f"exit {said.status}: {said.err[-600:]}"
    return said


def checked(desk: Experiment, raw: bytes) -> mutations.Said:
    """As `check`, whatever the exit status is."""
    desk.write("x.json", raw)
    before = mutations.traces(desk.directory)
    said = say(desk.directory, "check", "x.json")
    assert mutations.traces(desk.directory) == before, "something was written"
    return said


def unshaped(value, original, name: str = "", where: str = "$"):
    """Where an accepted document has another shape than the one it was made from."""
    if name.startswith("_"):
        return
    if isinstance(original, dict):
        if not isinstance(value, dict):
            yield f"{where}: {value!r:.60}"
            return
        for key in value.keys() - original.keys():
            if not key.startswith("_") and name not in NAMED_BY_OWNER:
                yield f"{where}.{key}: accepted, but no such field"
        for key, inner in original.items():
            if key in value:
                yield from unshaped(value[key], inner, key, f"{where}.{key}")
            elif key not in OPTIONAL and name not in NAMED_BY_OWNER:
                yield f"{where}.{key}: accepted without it"
    elif isinstance(original, list):
        if not isinstance(value, list):
            yield f"{where}: {value!r:.60}"
            return
        for index, item in enumerate(value):
            found = [list(unshaped(item, one, name, f"{where}[{index}]")) for one in original]
            yield from min(found, key=len, default=[])
    elif isinstance(original, str) and re.fullmatch(r"\d+(\.\d+)?", original):
        if type(value) not in (str, int, float):
            yield f"{where}: {value!r:.60} in place of {original!r}"
    elif type(value) is not type(original):
        yield f"{where}: {value!r:.60} in place of {original!r:.60}"


def verdict(desk: Experiment, name: str, raw: bytes) -> tuple[mutations.Said, list[str]]:
    """What check says of a mutation, and why that is wrong (empty when it is right)."""
    try:
        said = check(desk, raw)
    except AssertionError as error:
        return mutations.Said(1, "", ""), [str(error)[-700:]]
    if said.status == 0:
        try:
            return said, list(unshaped(mutations.strict(raw), json.loads(
                desk.path(f"{name}.json").read_bytes())))
        except (ValueError, RecursionError) as error:
            return said, [f"accepted, though it is no strict JSON ({error})"]
    wrong = [] if any("x.json" in line for line in said.refusals) else [
        f"no line names the file: {said.err[:300]}"]
    if said.out:
        wrong.append(f"a refusal has results: {said.out[:100]}")
    return said, wrong


def fail_on(wrong: list[str]) -> None:
    assert not wrong, f"{len(wrong)} of them:\n" + "\n".join(wrong[:25])


COUNTED = {}


@pytest.mark.parametrize("name", NAMES)
def test_document_is_accepted_as_it_was_written(desk, name):
    said, wrong = verdict(desk, name, desk.path(f"{name}.json").read_bytes())
    assert said.status == 0 and not wrong, said.err


def mutations_checked(own: Experiment, numbers: list[int], name: str) -> list[tuple]:
    """(refused, what was wrong) of each of these mutations of a document."""
    raw, parsed = own.path(f"{name}.json").read_bytes(), document(own, name)
    results = []
    for number in numbers:
        dice = random.Random(f"{name} {number}")
        if number % 4 == 0:
            what = dice.choice(list(BYTE_MUTATORS))
            changed, where = BYTE_MUTATORS[what](raw, dice), ""
        else:
            what = dice.choice(list(STRUCTURE_MUTATORS))
            changed, where = mutations.mutated(parsed, what, dice)
        said, found = verdict(own, name, changed)
        results.append((said.status == 3, [f"{what} {where}: {text}" for text in found]))
    return results


@pytest.mark.parametrize("name", NAMES)
def test_mutated_document_is_refused_with_its_name_or_has_its_shape(desk, tmp_path, name):
    numbers = list(range(PER_DOCUMENT))
    results = mutations.in_two(mutations_checked, desk, tmp_path, numbers, name)
    COUNTED[name] = len(results)
    mutations.report(f"documents-mutated-{name}", len(results))
    assert sum(refused for refused, _ in results) > PER_DOCUMENT / 2
    fail_on([text for _, found in results for text in found])


def test_at_least_five_thousand_documents_were_mutated():
    if len(COUNTED) == len(NAMES):          # not when a single document was selected
        assert sum(COUNTED.values()) >= 5_000


STRANGERS = (17.5, [], {}, True, None, "FILL: here", ["x"])


def types_checked(own: Experiment, wheres: list[tuple], name: str) -> list[str]:
    """Put values of three other types at each place; what check then did wrong."""
    parsed, wrong, places = document(own, name), [], dict(mutations.places(document(own, name)))
    for number, where in enumerate(wheres):
        path, value = mutations.json_path(parsed, where), places[where]
        same = {Pairs: dict}.get(type(value), type(value))
        others = [one for one in STRANGERS if type(one) is not same or one == "FILL: here"]
        for strange in (others * 2)[number % len(others):][:3]:
            changed = mutations.write(mutations.edited(parsed, where, lambda item: [
                (item[0], strange) if isinstance(item, tuple) else strange])).encode()
            said, found = verdict(own, name, changed)
            wrong += [f"{path} = {strange!r}: {text}" for text in found]
            if said.status == 3 and not any(line.startswith(f"x.json: {path}:")
                                            for line in said.refusals):
                wrong.append(f"{path} = {strange!r}: not named: {said.err[:200]}")
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_another_type_is_refused_at_its_path(desk, tmp_path, name):
    wheres = [where for where, _ in mutations.places(document(desk, name))]
    assert wheres
    fail_on(mutations.in_two(types_checked, desk, tmp_path, wheres, name))


@pytest.mark.parametrize("name", NAMES)
def test_every_missing_field_and_every_unknown_one_is_refused_at_its_path(desk, name):
    parsed, wrong, count = document(desk, name), [], 0
    objects = [((), parsed), *mutations.places(parsed)]
    for where, value in objects:
        if not isinstance(value, Pairs) or where and _named(parsed, where) in NAMED_BY_OWNER:
            continue
        path = mutations.json_path(parsed, where)
        for index, (key, inner) in enumerate(value):
            fewer = Pairs(value[:index] + value[index + 1:])
            misspelt = Pairs([*value[:index], (key + "x", inner), *value[index + 1:]])
            noted = Pairs([*value, ("_" + key, [inner])])
            for what, changed in (("missing", fewer), ("unknown", misspelt), ("note", noted)):
                raw = mutations.write(mutations.edited(parsed, where, lambda item: [
                    (item[0], changed) if isinstance(item, tuple) else changed])
                    if where else changed).encode()
                said, found = verdict(desk, name, raw)
                wrong += [f"{path}.{key} {what}: {text}" for text in found]
                wanted = {"missing": f"{path}.{key}", "unknown": key + "x", "note": ""}[what]
                if what == "note" and said.status != 0:
                    wrong.append(f"{path}._{key}: a note is refused: {said.err[:200]}")
                telling = "exactly one of the fields" in said.err
                if said.status == 3 and not any(wanted in line for line in said.refusals) \
                        and not telling and key not in OPTIONAL:
                    wrong.append(f"{path}.{key} {what}: not named: {said.err[:200]}")
                count += said.status == 3
    assert count > 4
    fail_on(wrong)


def _named(parsed, where):
    value = parsed
    for index in where[:-1]:
        value = mutations.children(value)[index]
    return value[where[-1]][0] if isinstance(value, Pairs) else ""


@pytest.mark.parametrize("name", NAMES)
def test_same_document_in_another_spelling_is_accepted(desk, name):
    raw = desk.path(f"{name}.json").read_bytes()
    parsed = json.loads(raw)
    escaped = re.sub(rb"(?<=[a-z ])e(?=[a-z])", b"\\\\u0065", raw)
    spellings = {
        "compact": json.dumps(parsed, separators=(",", ":")).encode(),
        "tabs": json.dumps(parsed, indent="\t").encode(),
        "sorted": json.dumps(parsed, sort_keys=True).encode(),
        "backwards": json.dumps(dict(reversed(parsed.items()))).encode(),
        "CRLF": raw.replace(b"\n", b"\r\n"),
        "space around": b" \n\t" + raw + b"\n \n",
        "a note": json.dumps({"_note": {"any": [1.5, None, "FILL: not a field"]}, **parsed}
                             ).encode(),
        "escapes": escaped}
    for what, changed in spellings.items():
        assert mutations.strict(changed).items() >= parsed.items()
        said = check(desk, changed)
        assert said.status == 0, f"{what}: {said.err}"


@pytest.mark.parametrize("number", ["0.10", "0.1000", 0.1, "0.1"])
def test_decimal_is_accepted_as_text_and_as_number(desk, number):
    policy = json.loads(desk.path("policy.json").read_bytes())
    said = check(desk, json.dumps({**policy, "minimumHeldoutGain": number}).encode())
    assert said.status == 0


@pytest.mark.parametrize("number", [
    "-0.1", "+0.1", "1e-1", ".1", "0.", "0,1", "1/10", "0.1 ", " 0.1", "0x1", "1_0",
    "\u0660.\u0661", "\uff10.\uff11", "", "NaN", "0.1000000000000000000000000000000000000001",
    "1.1", "0.1234567", True, None, [], 2])
def test_anything_else_is_no_rate(desk, number):
    policy = json.loads(desk.path("policy.json").read_bytes())
    said = check(desk, json.dumps({**policy, "minimumHeldoutGain": number}).encode())
    assert said.status == 3
    assert any(line.startswith("x.json: $.minimumHeldoutGain:") for line in said.refusals)


@pytest.mark.parametrize("moment", [
    "2026-11-30", "2026-11-30T10:00:00", "2026-02-30T10:00:00Z", "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59", "2026-11-30T10:00:00+99:00", "2026-11-30 10:00:00Z",
    "2026-W48-1T10:00:00Z", "99999-01-01T00:00:00Z", "\uff12\uff1026-11-30T10:00:00Z",
    "2999-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59", "2026-11-30T10:00:00.1234567Z", 5, None, ""])
def test_anything_else_is_no_time(desk, moment):
    policy = json.loads(desk.path("policy.json").read_bytes())
    said = check(desk, json.dumps({**policy, "approvedAtUtc": moment}).encode())
    assert said.status == 3
    assert any(line.startswith("x.json: $.approvedAtUtc:") for line in said.refusals)


@pytest.mark.parametrize("file", [
    "/etc/passwd", "../outside.txt", "cases/../../outside.txt", "./cases/d01/input.txt",
    "cases//d01/input.txt",
    "cases\\d01\\input.txt", "", ".", "..", "cases/d01/input.txt/", "cases/d01", "a\0b", "~/x",
    "a" * 300, "/".join(["a" * 200] * 30), "\ud800", "file:///etc/passwd",
    "cases/d01/INPUT.txt"])
def test_reference_leads_to_a_file_of_the_experiment_or_nowhere(desk, file):
    cases = json.loads(desk.path("development-cases.json").read_bytes())
    cases["cases"][0]["input"]["file"] = file
    (desk.root / "outside.txt").write_bytes(desk.path("cases/d01/input.txt").read_bytes())
    said = check(desk, json.dumps(cases).encode())
    assert said.status == 3
    assert any("x.json" in line and "$.cases[0].input" in line for line in said.refusals)


@pytest.mark.parametrize("word", ["con", "NUL", "Com1", "lpt9", "a" * 65, "-a", "_a", "a.b",
                                  "a b", "\u00e4", "", "a/b", "a\n", "\u0430"])
def test_id_that_a_file_system_may_not_bear_is_refused(desk, word):
    cases = json.loads(desk.path("development-cases.json").read_bytes())
    cases["cases"][0]["id"] = word
    said = check(desk, json.dumps(cases).encode())
    assert any(line.startswith("x.json: $.cases[0].id:") for line in said.refusals)


# ---- nothing runs long or grows large ------------------------------------------------------

SECONDS, MEGABYTES = 10, 500


def bounded(own: Experiment, *words: str, expect=(0, 3, 4), seconds: int = SECONDS):
    """One command that is ended by the system when it uses more than it may.

    The limit on time is one on processor time, so that a busy machine changes nothing; a
    command that waits for ever fails by `timeout`.
    """
    limits = f'ulimit -t {seconds}; ulimit -d {MEGABYTES * 1000}; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", limits, "sh", sys.executable, str(PROGRAM), *words],
        cwd=own.directory, env=own.child_environment(), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=120, check=False)
    told = done.stderr[-600:].decode("utf-8", "replace")
    assert b"Traceback" not in done.stderr and b"MemoryError" not in done.stderr, told
    assert done.returncode in expect, f"exit {done.returncode}: {told}"
    return done


REFERENCE = {"file": "cases/d01/input.txt", "sha256": "0" * 64}
LARGE = {
    "a key twice among many": lambda: b'{"cases":[],' + b",".join(
        b'"a%d":0' % n for n in range(150_000)) + b',"a149999":1}',
    "unknown fields": lambda: json.dumps({"cases": [], **{f"a{n}": 0 for n in range(300_000)}}),
    "notes": lambda: json.dumps({"cases": [], **{f"_{n}": 0 for n in range(300_000)}}),
    "empty cases": lambda: '{"cases":[' + "{}," * 3_300_000 + "{}]}",
    "nulls for cases": lambda: '{"cases":[' + "0," * 4_900_000 + "0]}",
    "lists in lists": lambda: '{"cases":[' + "[]," * 3_300_000 + "[]]}",
    "references that lead nowhere": lambda: json.dumps({"developmentCases": 1, "retiredCases": [
        {"file": f"n{n}", "sha256": "0" * 64} for n in range(30_000)]}),
    "one reference many times": lambda: json.dumps({"developmentCases": 1, "retiredCases": [
        REFERENCE] * 40_000}),
    "many cases": lambda: json.dumps({
        "split": "development", "testVersion": "1", "permittedBy": "x", "cases": [
            {"id": f"c{n}", "caseGroup": "g", "sourceId": f"s{n}", "sourceRevision": "1",
             **{part: REFERENCE for part in ("input", "truth", "expected")}}
            for n in range(12_000)]}),
    "many samples": lambda: json.dumps({
        "taskId": "t", "environment": REFERENCE, "resultDir": "r", "permittedBy": "x",
        "calibrationOutputFile": "c", "labelKind": "synthetic", "reviewers": ["x"],
        "exclusions": [], "samples": [
            {"id": f"c{n}", "caseGroup": f"g{n}", "sourceId": f"s{n}", "humanVerdict": "pass",
             "humanEvidence": "x", "reviewedBy": "x", "criterion": REFERENCE,
             "truth": REFERENCE, "output": REFERENCE,
             "input": {"file": "cases/d01/input.txt", "sha256": f"{n:064}"}}
            for n in range(10_000)]}),
    "many tests": lambda: json.dumps({"approvedBy": "x", "tests": [
        {"id": f"t{n}", "kind": "contains", "critical": False, "value": f"v{n}"}
        for n in range(40_000)]}),
    "many equal tests": lambda: json.dumps({"approvedBy": "x", "tests": [
        {"id": "t", "kind": "contains", "critical": False, "value": "v"}] * 60_000}),
    "many patterns": lambda: json.dumps({"approvedBy": "x", "tests": [
        {"id": f"t{n}", "kind": "regex", "critical": False, "value": f"^v{n}$"}
        for n in range(10_000)]}),
    "many variables": lambda: json.dumps({"claudeExecutable": "/x", "setEnvironment": {
        f"A{n}": "" for n in range(200_000)}}),
    "many revocations": lambda: json.dumps({"revocations": [
        {"calibrationSha256": "x"}] * 300_000}),
    "many failures": lambda: json.dumps({"observedFailures": [
        {"caseId": "x", "testId": "y", "diagnosis": ""}] * 150_000}),
    "many receipts": lambda: json.dumps({"terminalHashes": {
        f"s{n}.calibrate.1.terminal.json": "x" for n in range(150_000)}}),
    "a long text": lambda: json.dumps({"cases": "x" * 9_900_000}),
    "a long id": lambda: json.dumps({"cases": [{"id": "x" * 9_900_000}]}),
    "a text that grows when normalised": lambda: json.dumps({
        "split": "development", "testVersion": "x", "permittedBy": "x", "cases": [
            {"id": "x", "caseGroup": "\ufdfa" * 1_600_000, "sourceId": "\ufdfa" * 1_600_000,
             "sourceRevision": "1", "input": REFERENCE, "truth": REFERENCE,
             "expected": REFERENCE}]}, ensure_ascii=False),
    "a long integer": lambda: '{"cases":' + "9" * 9_900_000 + "}",
    "a long fraction": lambda: '{"cases":[],"split":0.' + "9" * 9_900_000 + "}",
    "a large exponent": lambda: '{"cases":[],"split":1e' + "9" * 1_000_000 + "}",
    "an integer of 4,000 digits as money": lambda: json.dumps({"spendLimitUsd": 10 ** 4000,
                                                               "callLimit": 10 ** 4200}),
    "opened lists": lambda: "[" * 9_900_000,
    "opened objects": lambda: '{"cases":' * 1_000_000,
    "nested lists": lambda: '{"cases":' + "[" * 4_000_000 + "]" * 4_000_000 + "}",
    "white space": lambda: " " * 9_900_000 + "{}",
    "eleven megabytes": lambda: '{"cases":"' + "x" * 11_000_000 + '"}',
    "backslashes": lambda: '{"cases":"' + "\\\\" * 4_900_000 + '"}',
}


@pytest.mark.parametrize("what", LARGE)
def test_large_document_is_checked_or_refused_soon_and_in_little_memory(desk, what):
    raw = LARGE[what]()
    desk.write("large.json", raw)
    done = bounded(desk, "check", "large.json", expect=(0, 3))
    assert len(done.stderr) < 20_000_000
    desk.path("large.json").unlink()


PATTERNS = {
    "letters": lambda: "a" * 9_000_000,
    "alternatives": lambda: "|".join(f"a{n}" for n in range(800_000)),
    "classes": lambda: "[a-z]" * 1_500_000,
    "all characters in any case": lambda: "(?i)" + "[\x01-\U0010fffe]" * 2_000,
    "opened groups": lambda: "(" * 1_000_000,
    "closed groups": lambda: "(" * 20_000 + ")" * 20_000,
    "repeats of repeats": lambda: "(?:" * 90 + "a" + "{1,60000})" * 90,
    "named groups": lambda: "".join(f"(?P<n{n}>a)" for n in range(500_000)),
    "conditions": lambda: "(a)?" + "(?(1)b|c)" * 500_000,
    "look behind": lambda: "(?<=a)" * 500_000,
}


@pytest.mark.parametrize("what", PATTERNS)
def test_large_pattern_is_compiled_or_refused_soon(desk, what):
    desk.write("large.json", {"approvedBy": "x", "tests": [
        {"id": "t", "kind": "regex", "critical": False, "value": PATTERNS[what]()}]})
    bounded(desk, "check", "large.json", expect=(0, 3))
    desk.path("large.json").unlink()


@pytest.mark.parametrize("depth", [90, 960, *range(980, 992), 100_000])
@pytest.mark.parametrize("name", ["permittedBy", "cases", "_note"])
def test_nesting_of_any_depth_is_refused(desk, depth, name):
    fields = {"split": '"development"', "permittedBy": "5", "cases": "[]",
              name: "[" * depth + "]" * depth}
    desk.write("deep.json", "{" + ",".join(f'"{key}":{value}' for key, value in fields.items())
               + "}")
    done = bounded(desk, "check", "deep.json", expect=(3,))
    assert done.stderr.startswith(b"refused: deep.json: ")
    desk.path("deep.json").unlink()


# ---- texts, Skills and outputs -------------------------------------------------------------

EMPTY = {"judge": False, "development": 1, "heldout": 1}


@pytest.fixture(scope="module")
def envelope(tmp_path_factory):
    """A function: text -> what the stand-in prints around that answer, as raw UTF-8."""
    own = Experiment(tmp_path_factory.mktemp("envelope"), **EMPTY,
                     answers={("baseline", "d01"): "THE ANSWER"})
    own.write_policy()
    own.command("run", own.write_plan("baseline", "development"), expect=0)
    folder = own.path("results/baseline-development")
    call_id = json.loads((folder / "d01.run.1.pending.json").read_bytes())["callId"]
    raw = (folder / "d01.run.1.stdout").read_text("utf-8").replace(call_id, "CALL-ID")
    start, end, rest = raw.split('"THE ANSWER"')

    def around(text: str) -> bytes:
        return f'{start}{json.dumps(text, ensure_ascii=False)}{end}"See above."{rest}'.encode()

    return around
TEXTS = {
    "ten megabytes": lambda: "word " * 1_990_000,
    "one line": lambda: "x" * 9_900_000,
    "lines": lambda: "\n" * 9_900_000,
    "white space": lambda: " \t" * 4_900_000,
    "characters that grow when normalised": lambda: "\ufdfa" * 3_300_000,
    "combining marks": lambda: "a" + "\u0301\u0323" * 2_400_000,
    "one wide character": lambda: "x" * 9_900_000 + "\U0001f600",
}


@pytest.mark.parametrize("what", TEXTS)
@pytest.mark.parametrize("part", ["input", "truth"])
def test_large_input_or_truth_is_checked_or_refused_soon(make, what, part):
    own = make(**EMPTY)
    own.write(f"cases/h01/{part}.txt", TEXTS[what]())
    own.write_inventory("heldout")
    bounded(own, "check", own.write_policy())


SKILLS = {
    "arguments": lambda: "$1\n" * 2_000_000,
    "variables": lambda: "${CLAUDE_X}\n" * 500_000,
    "commands": lambda: "!`x`\n" * 1_000_000,
    "opened commands": lambda: "!`" * 2_500_000,
    "fences": lambda: "```!\n" * 1_000_000,
    "backticks": lambda: "`" * 5_000_000,
    "backticks, nearly at the limit": lambda: "`" * 499_000,
    "lines in an open frontmatter": lambda: "---\n" + "\n" * 499_000,
    "blanks in a key": lambda: "---\nk" + " " * 498_000 + "\n---\n",
    "keys": lambda: "---\n" + "".join(f"k{n}: v\n" for n in range(500_000)) + "---\n",
    "one key many times": lambda: "---\n" + "name: v\n" * 900_000 + "---\n",
    "a long key": lambda: "---\n" + "k" * 5_000_000 + "\n---\n",
    "a long value": lambda: "---\nname: " + "k: " * 1_500_000 + "\n---\n",
    "quotes": lambda: "---\n" + "\"'" * 2_000_000 + ": x\n---\n",
    "grader words": lambda: "the judge\n" * 500_000,
    "rules": lambda: "---\n" * 1_000_000,
}


@pytest.mark.parametrize("what", SKILLS)
def test_large_skill_is_checked_or_refused_soon(make, what):
    own = make(**EMPTY)
    text = SKILLS[what]()
    own.write(own.skill_file("baseline"), text if text.startswith("---")
              else CANDIDATE_SKILL + text)
    own.write_policy()
    bounded(own, "check", own.write_plan("baseline", "development"))


def test_candidate_that_repeats_a_held_out_text_thousands_of_times_is_checked_soon(make):
    """The search for copied held-out text meets the same ten letters at every position."""
    own = make(**EMPTY)
    own.write("cases/h01/truth.txt", "ab" * 100_000 + "\n")
    own.write_inventory("heldout")
    own.write(own.skill_file("candidate"), CANDIDATE_SKILL + "ab" * 90_000 + "\n")
    own.walk("diagnose")
    done = bounded(own, "run", own.write_plan("candidate", "development"), expect=(3,))
    assert b"cases/h01/truth.txt" in done.stderr


OUTPUTS = {                            # near the size above which an output is no answer
    "letters": lambda: "a" * 15_000_000,
    "one wide character": lambda: "a" * 15_000_000 + "\U0001f600",
    "characters that grow when normalised": lambda: "\ufdfa" * 5_000_000,
    "combining marks": lambda: "a" + "\u0301\u0323" * 3_000_000,
    "two-byte characters": lambda: "\u00e9" * 7_500_000,
    "escaped characters": lambda: "\x01" * 2_500_000,
    "lines": lambda: "a\n" * 5_000_000,
    "Markdown": lambda: "**_#" * 3_500_000,
}
CONTAINS = [{"id": "word", "kind": "contains", "critical": False, "value": "euros"}]


@pytest.mark.parametrize("what", OUTPUTS)
def test_large_answer_is_scored_and_verified_soon_and_in_little_memory(make, envelope, what):
    own = make(**EMPTY, tests={"d01": CONTAINS})
    (own.root / "raw").write_bytes(envelope(OUTPUTS[what]()))
    own.rules({"purpose": "run", "capture": str(own.root / "raw")})
    own.write_policy()
    plan = own.write_plan("baseline", "development")
    bounded(own, "run", plan, expect=(0, 4))
    # a long text that grows under NFKC is no answer of this CLI; its bytes are kept
    grows = what == "characters that grow when normalised"
    terminal = own.read("results/baseline-development/d01.run.1.terminal.json")
    assert terminal["status"] == ("error" if grows else "ok")
    bounded(own, "score", plan, expect=(4,) if grows else (0,))
    bounded(own, "verify", plan)
    assert len(own.call_log()) == 1


WIDE = "\U0001f600" * 1_300_000          # four bytes each: 5,200,000


def test_judge_prompt_too_large_for_the_cli_is_not_sent_and_its_check_is_unknown(make):
    own = make(development=1, heldout=1, inputs={"d01": f"Task d01: {WIDE}"})
    own.write("cases/d01/truth.txt", WIDE)
    own.write_inventory("development")
    own.write_calibration_plan()
    own.walk("policy")
    plan, told = own.write_plan("baseline", "development"), len(own.call_log())
    own.command("run", plan, expect=0)
    own.command("judge", plan, expect=0)
    assert [call["purpose"] for call in own.call_log()[told:]] == ["run"]
    own.command("score", plan, expect=4)
    score = own.read("results/baseline-development/score.json")
    assert score["totals"]["unknownReasons"] == {"prompt-too-large": 1}


@pytest.mark.parametrize("more", [0, 1])
def test_skill_prompt_too_large_for_the_cli_is_refused_by_name_before_any_call(make, more):
    start = "Task d01: "
    room = 10_000_000 - len(f"/figures {start}")
    own = make(**EMPTY, inputs={"d01": start + "x" * (room + more)})
    own.write_policy()
    done = own.command("run", own.write_plan("baseline", "development"), expect=3 * more)
    assert ("d01.run: expected a prompt of at most 10000000 bytes" in done.stderr) == more
    assert len(own.call_log()) == 1 - more


@pytest.mark.parametrize("what", ["objects", "lists", "a key twice among many", "numbers"])
def test_answer_of_many_values_is_run_and_scored_soon_and_in_little_memory(make, what):
    many = {"objects": '[{"a":1}' + ',{"a":1}' * 1_900_000 + "]",
            "lists": "[[]" + ",[]" * 5_000_000 + "]", "numbers": "[1" + ",1" * 7_000_000 + "]",
            "a key twice among many": "{" + ",".join(f'"a{n}":0' for n in range(300_000))
            + ',"a299999":0}'}[what]
    own = make(**EMPTY, tests={"d01": CONTAINS})
    (own.root / "raw").write_text('[{"type":"system"},{"type":"result","session_id":"CALL-ID",'
                                  f'"more":{many}}}]', "utf-8")
    own.rules({"purpose": "run", "capture": str(own.root / "raw")})
    own.write_policy()
    plan = own.write_plan("baseline", "development")
    bounded(own, "run", plan, expect=(0, 4), seconds=20)
    bounded(own, "score", plan)


ENDLESS = {
    "nested repeats": (r"(a+)+$", "a" * 40 + "!"),
    "alternatives that overlap": (r"^(a|a)*$", "a" * 40 + "!"),
    "three stars": (r"a*a*a*a*a*a*b", "a" * 20_000),
    "back reference": (r"(a*)*\1b", "a" * 5_000),
    "lines": (r"(.|\n)*?x\Z", "ab\n" * 1_000_000),
    "a group for each letter": (r"(?:(a)|(b))*c", "ab" * 1_500_000),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_pattern_without_end_stops_and_its_timeout_stands_on_replay(make, what):
    pattern, text = ENDLESS[what]
    own = make(**EMPTY, tests={"d01": [{"id": "p", "kind": "regex", "critical": False,
                                        "value": pattern}]},
               answers={("baseline", "d01"): text})
    own.write_policy()
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=0)
    bounded(own, "score", plan, seconds=SECONDS + 2)
    row, = own.read("results/baseline-development/score.json")["rows"]
    assert (row["verdict"], row["reason"]) in (("unknown", "regex-timeout"), ("fail", None))
    bounded(own, "verify", plan, seconds=5)      # not tried again


def test_registered_limit_that_no_sample_size_reaches_soon_is_finalised_soon(make):
    """The number of further samples for a bound of one in a million is three million."""
    limits = {"minimumPerClass": 10, "maximumFalsePassBound": "0.000001",
              "maximumFalseBlockBound": "0.000001", "maximumUnsupportedPassBound": "0.000001",
              "maximumAbstentionRate": "0.000001", "requireTwoReviewers": False,
              "jointConfidence": True}
    own = make(development=1, heldout=1, qualification=limits)
    own.command("calibrate-run", "calibration-plan.json", "--jobs", "2", expect=0)
    own.write_approval()
    done = bounded(own, "calibrate-finalize", "calibration-plan.json",
                   "calibration-approval.json", expect=(4,))
    assert b"not-qualified" in done.stdout


# ---- what is shown, and the lock -----------------------------------------------------------

HOSTILE = "Eve\x1b[2J\x07\x9b31m\nrefused: all is well\r"


def assert_plain(said: mutations.Said, most_lines: int) -> None:
    """Nothing that steers a terminal was printed, and no line was forged."""
    for text in (said.out, said.err):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), repr(text)
        assert not any(line.startswith("refused: all is well") for line in text.split("\n"))
        assert text.count("\n") <= most_lines


@pytest.mark.parametrize("text", [
    "---\nname: figures\n\x1b[2Jkey: v\n---\n", "---\n'a\x1b[2J': 1\n---\n",
    "---\ndescription: x\x1b[31m: y\n---\n", "---\nallowed-tools\x07\n---\n",
    "---\nname: other\x1b[2J\n---\n", "a\n${CLAUDE_\x1b[2J}\n", "!`\x1b[2J`\n"])
def test_skill_does_not_steer_the_terminal(desk, text):
    own = desk.copied(desk.root / f"terminal-{sha256(text.encode())[:8]}")
    own.write(own.skill_file("baseline"), text)
    name = own.write_plan("baseline", "development", resultDir="fresh/terminal")
    assert_plain(say(own.directory, "check", name), 20)


@pytest.mark.parametrize("name", ["environment", "spending", "development-cases", "policy",
                                  "calibration-plan", "decision", "diagnosis", "revocations"])
def test_document_does_not_steer_the_terminal(desk, name):
    parsed = document(desk, name)
    for where, value in mutations.leaves(parsed):
        if type(value) is str:
            changed = mutations.edited(parsed, where, lambda item: [
                (item[0], HOSTILE) if isinstance(item, tuple) else HOSTILE])
            assert_plain(check(desk, mutations.write(changed).encode()), 20)
            changed = mutations.edited(parsed, where, lambda item: [item, (HOSTILE, 1)]
                                       if isinstance(item, tuple) else [item])
            assert_plain(check(desk, mutations.write(changed).encode()), 20)


def test_names_of_owner_and_files_do_not_steer_the_terminal(make, tmp_path):
    own = Quick(tmp_path / "own", **EMPTY).walk("compare")
    own.write_decision("hold", owner=HOSTILE, reason=HOSTILE)
    assert_plain(own.command("decide", "comparison.json", "decision.json", expect=0), 10)
    own.path("skills/baseline/\x1b[2J\nx").write_text("x", "utf-8")
    assert_plain(own.command("verify", "decision-receipt.json", expect=3), 3)


@pytest.mark.parametrize("raw", [b"garbage", b"\xff" * 64, b"-5", b"x" * 100_000])
def test_lock_file_that_is_not_the_programs_is_left_alone(tmp_path, raw):
    own = Quick(tmp_path, **EMPTY).walk("policy")
    own.path(".lock").write_bytes(raw)
    done = own.command("run", own.write_plan("baseline", "development"), expect=3)
    assert ".lock" in done.stderr and "move it away" in done.stderr
    assert own.calls("run") == 0 and own.path(".lock").read_bytes() == raw


@pytest.mark.parametrize("raw", [b"", b"\0" * 64, b"eval_loop " + b"9" * 70,
                                 b"eval_loop " + b"9" * 20 + b"\n"])
def test_lock_file_that_lost_its_count_counts_no_call_twice(tmp_path, raw):
    own = Quick(tmp_path, **EMPTY, spending={"spendLimitUsd": "0.25"}).walk("policy")
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=0)
    own.path(".lock").write_bytes(raw)
    own.command("run", own.write_plan("baseline", "development"), expect=0)
    assert own.calls("run") == 1


# ---- pipes, devices, links -----------------------------------------------------------------


def put(path, what: str, target) -> None:
    """Put something that is no plain file at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to({"endless device": "/dev/zero", "link": target,
                         "dangling link": "/nowhere", "link to itself": path}[what])


NO_FILES = ["pipe", "directory", "endless device", "link", "dangling link", "link to itself"]


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("name", ["x.json", "environment.json", "cases/d01/input.txt",
                                  "cases/d01/expected.json", "criteria/criterion-1.txt",
                                  "development-cases.json"])
def test_document_that_is_no_plain_file_is_refused(ready, what, name):
    own = ready("calibrate", development=1, heldout=1)
    own.write_policy()
    own.write("x.json", own.read("policy.json"))
    kept = own.root / "kept"
    kept.write_bytes(own.path(name).read_bytes())
    put(own.path(name), what, kept)
    done = bounded(own, "check", "x.json", expect=(3,))
    assert name.encode() in done.stderr


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("name", ["spending.json", ".lock", "revocations.json",
                                  "skills/baseline/.claude/skills/figures/SKILL.md"])
def test_run_and_judge_refuse_what_is_no_plain_file(ready, what, name):
    own = ready("policy", development=1, heldout=1)
    plan = own.write_plan("baseline", "development")
    if name == "revocations.json":
        own.command("run", plan, expect=0)
    calls = len(own.call_log())
    kept = own.root / "kept"
    kept.write_bytes(own.path(name).read_bytes() if own.path(name).exists() else b"{}")
    put(own.path(name), what, kept)
    command = "judge" if name == "revocations.json" else "run"
    done = bounded(own, command, plan, expect=(3,))
    assert name.encode() in done.stderr and len(own.call_log()) == calls


@pytest.mark.parametrize("what", ["pipe", "directory", "endless device", "dangling link"])
def test_cli_that_is_no_plain_file_is_refused(make, what):
    own = make(development=1, heldout=1)
    target = own.root / "cli"
    put(target, what, None)
    for words in (("calibrate-run", "calibration-plan.json", "--cli", str(target)),
                  ("hash", str(target))):
        done = bounded(own, *words, expect=(3,))
        assert str(target).encode() in done.stderr
    assert not own.receipts()


@pytest.mark.parametrize("depth", ["results", "results/calibration"])
def test_result_directory_behind_a_link_is_refused_before_anything_is_paid(make, depth):
    own = make(development=1, heldout=1)
    outside = own.root / "outside"
    outside.mkdir()
    own.path(depth).parent.mkdir(exist_ok=True)
    own.path(depth).symlink_to(outside)
    bounded(own, "calibrate-run", "calibration-plan.json", expect=(3,))
    assert not own.call_log() and not list(outside.rglob("*"))


@pytest.mark.parametrize("what", ["missing", *NO_FILES])
@pytest.mark.parametrize("end", ["stdout", "stderr"])
def test_open_attempt_whose_stream_is_no_plain_file_is_not_called_again(ready, what, end):
    own = ready("policy", development=1, heldout=1)
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=0)
    stem = own.path("results/baseline-development/d01.run.1")
    stem.with_name("d01.run.1.terminal.json").unlink()
    stream = stem.with_name(f"d01.run.1.{end}")
    kept = own.root / "kept"
    kept.write_bytes(stream.read_bytes())
    stream.unlink()
    if what != "missing":
        put(stream, what, kept)
    for command in ("run", "judge", "score", "verify", "check"):
        bounded(own, command, plan, expect=(0, 3, 4, 5, 6))
    assert len([path for path in own.path("results").rglob("d01.run.*.pending.json")]) == 1


@pytest.mark.parametrize("field, value", [
    ("judgeModelId", "a\0b"), ("judgeModelId", "a\ud800"), ("modelId", "a\0b"),
    ("claudeExecutable", "/a\ud800"), ("claudeExecutable", "/a\0"),
    ("claudeExecutable", "/" + "a" * 5000),
    ("setEnvironment", {"A": "\ud800"}), ("setEnvironment", {"A": "a\0b"}),
    ("setEnvironment", {"A=B": "x"}), ("setEnvironment", {"": "x"}),
    ("setEnvironment", {"A\0": "x"}),
    ("setEnvironment", {"PATH": "/x"}), ("setEnvironment", {"MY_TOKEN": "x"}),
    ("cliVersion", "\ud800"), ("passEnvironment", ["HOME"]), ("passEnvironment", ["A\0_KEY"])])
def test_environment_that_no_process_can_be_given_is_refused_before_anything_is_paid(
        make, field, value):
    own = make(development=1, heldout=1)
    own.edit("environment.json", lambda given: given.update({field: value}))
    own.write_calibration_plan()
    done = bounded(own, "calibrate-run", "calibration-plan.json", expect=(3, 6))
    if done.returncode == 6:        # the judge's own model and CLI were good enough to start
        assert field in ("modelId", "cliVersion")
    assert not own.receipts() or done.returncode == 6
