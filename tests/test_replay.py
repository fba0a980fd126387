"""A finished experiment, changed in every possible place: verify refuses and names the file.

First by somebody who changes one thing: every JSON leaf of every document in five ways, 200
byte positions of every stream, every file missing, swapped, linked or replaced. Then by
somebody who recomputes every hash that depends on the change. What remains is said here as
well: a forgery of everything that the program wrote is consistent, and only a hash that was
published before tells it.
"""

import copy
import hashlib
import json
import os
import random
import shutil
import unicodedata

import pytest

import mutations
from builder import CANDIDATE_MARK, QUOTE, VARIANTS, Experiment, good, sha256
from mutations import KINDS, Quick, say

RECEIPT = "decision-receipt.json"
UNBOUND = {
    "spending.json": "the purse may be replaced at any time; each pending records its limit",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One finished experiment, small enough to be verified thousands of times."""
    root = tmp_path_factory.mktemp("done")
    return Quick(root, development=1, heldout=1).walk()


@pytest.fixture
def own(done, tmp_path):
    """A copy of it for one test."""
    return done.copied(tmp_path / "own")


def named(file: str, said: mutations.Said) -> bool:
    """Whether a refusal names the file, by its path or, in a list of receipts, its name."""
    return any(file in line or os.path.basename(file) in line for line in said.refusals)


def complaints(file: str, what: str, said: mutations.Said) -> list[str]:
    """Empty when verify refused and named the file; else what it did instead."""
    if said.status == 3 and named(file, said):
        return []
    shown = (said.err.strip().splitlines() or [said.out.strip()])[-1]
    return [f"{file}: {what}: exit {said.status}: {shown[:200]}"]


def all_files(experiment: Experiment) -> list[str]:
    return [name for name in experiment.files() if name not in UNBOUND]


def documents(experiment: Experiment) -> list[str]:
    return [name for name in all_files(experiment) if name.endswith(".json")]


def fail_on(wrong: list[str]) -> None:
    assert not wrong, f"{len(wrong)} of them:\n" + "\n".join(wrong[:25])


# ---- one change, nothing recomputed --------------------------------------------------------


def test_untouched_experiment_is_self_consistent(done):
    said = say(done.directory, "verify", RECEIPT)
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith(f"SYNTHETIC evidence. self-consistent: {RECEIPT}")


def leaves_tampered(own: Experiment, places: list, kind: str) -> list[str]:
    """Tamper with each of the places in one way; what verify then did wrong."""
    wrong, read = [], {}
    for file, where in places:
        if file not in read:
            read = {file: mutations.read(own.path(file).read_bytes())}
        changed = mutations.write(mutations.tampered(read[file], where, kind)) + "\n"
        with mutations.replaced(own.path(file), changed.encode()):
            said = say(own.directory, "verify", RECEIPT)
        path = mutations.json_path(read[file], where)
        wrong += complaints(file, f"{kind} of {path}", said)
    return wrong


@pytest.mark.parametrize("kind", KINDS)
def test_no_leaf_of_any_document_may_change(done, tmp_path, kind):
    places = [(file, where) for file in documents(done) for where, _ in mutations.leaves(
        mutations.read(done.path(file).read_bytes()))]
    wrong = mutations.in_two(leaves_tampered, done, tmp_path, places, kind)
    mutations.report(f"leaves-tampered-{kind}", len(places))
    assert len(places) > 1500
    fail_on(wrong)


def test_no_document_may_be_spelt_in_another_way(done):
    wrong = []
    for file in documents(done):
        raw = done.path(file).read_bytes()
        spelt = {"one space more": raw + b" ", "CRLF": raw.replace(b"\n", b"\r\n"),
                 "indented": json.dumps(json.loads(raw), indent=3).encode(),
                 "keys in another order": json.dumps(json.loads(raw), sort_keys=True).encode(),
                 "an escape": raw.replace(b'a', b"\\u0061", 1)}
        for what, changed in spelt.items():
            if changed != raw:
                with mutations.replaced(done.path(file), changed):
                    said = say(done.directory, "verify", RECEIPT)
                wrong += complaints(file, what, said)
    fail_on(wrong)


def test_every_leaf_of_the_purse_may_change_because_nothing_binds_it(done):
    document = mutations.read(done.path("spending.json").read_bytes())
    for where, _ in mutations.leaves(document):
        for kind in KINDS:
            changed = mutations.write(mutations.tampered(document, where, kind)).encode()
            with mutations.replaced(done.path("spending.json"), changed):
                assert say(done.directory, "verify", RECEIPT).status == 0


def test_a_revocation_later_does_not_change_history(own):
    own.write_revocation()
    assert say(own.directory, "verify", RECEIPT).status == 0
    own.path("revocations.json").write_bytes(b"not even JSON")
    assert say(own.directory, "verify", RECEIPT).status == 0


def bytes_tampered(own: Experiment, files: list[str]) -> list[str]:
    """Change each of 200 bytes of each stream, and add some; what verify then did wrong."""
    wrong = []
    for file in files:
        dice, raw = random.Random(file), own.path(file).read_bytes()
        changes = [raw + b"x", raw + b"\n", b" " + raw]
        for position in dice.sample(range(len(raw)), min(200, len(raw))):
            byte = bytes([raw[position] ^ 1 << dice.randrange(8)])
            changes.append(raw[:position] + byte + raw[position + 1:])
        for changed in changes:
            with mutations.replaced(own.path(file), changed):
                wrong += complaints(file, "a byte", say(own.directory, "verify", RECEIPT))
    return wrong


def test_no_byte_of_any_stream_may_change(done, tmp_path):
    files = [name for name in all_files(done) if name.endswith((".stdout", ".stderr"))]
    wrong = mutations.in_two(bytes_tampered, done, tmp_path, files)
    count = sum(min(200, done.path(file).stat().st_size) for file in files)
    mutations.report("stream-bytes-tampered", count)
    assert count >= 2_000
    fail_on(wrong)


def test_no_byte_of_any_text_may_change(done):
    wrong, count = [], 0
    for file in (name for name in all_files(done) if name.endswith((".txt", ".md"))):
        raw = done.path(file).read_bytes()
        for changed in (raw[:-1], raw + b"\n", b"\xef\xbb\xbf" + raw, raw[1:], b"",
                        raw.replace(b"\n", b"\r\n"), raw.replace(b" ", b"\xc2\xa0", 1),
                        *(raw[:n] + bytes([raw[n] ^ 1]) + raw[n + 1:]
                          for n in range(0, len(raw), 3))):
            if changed != raw:
                with mutations.replaced(done.path(file), changed):
                    wrong += complaints(file, "a byte", say(done.directory, "verify", RECEIPT))
                count += 1
    assert count > 300
    fail_on(wrong)


@pytest.mark.parametrize("what", ["missing", "empty", "a link to its copy outside",
                                  "a link to its copy inside", "a directory", "a pipe"])
def test_no_file_may_be(own, tmp_path, what):
    wrong = []
    for number, file in enumerate(all_files(own)):
        path, kept = own.path(file), tmp_path / "kept"
        shutil.copyfile(path, kept)
        path.unlink()
        if what == "empty" and kept.stat().st_size:
            path.write_bytes(b"")
        elif what == "a link to its copy outside":
            path.symlink_to(kept)
        elif what == "a link to its copy inside":
            shutil.copyfile(kept, own.path("copy"))
            path.symlink_to(own.path("copy"))
        elif what == "a directory":
            path.mkdir()
        elif what == "a pipe":
            os.mkfifo(path)
        wrong += complaints(file, what, say(own.directory, "verify", RECEIPT))
        path.rmdir() if what == "a directory" else path.unlink(missing_ok=True)
        shutil.copyfile(kept, path)
    assert number > 70
    fail_on(wrong)


def test_no_two_files_may_be_swapped(own):
    wrong, count, files = [], 0, all_files(own)
    for index, first in enumerate(files):
        raw = own.path(first).read_bytes()
        partners = [name for name in files[index + 1:]
                    if name.split(".")[-2:] == first.split(".")[-2:]
                    and own.path(name).read_bytes() != raw]
        for second in partners[:3]:
            other = own.path(second).read_bytes()
            with mutations.replaced(own.path(first), other), \
                    mutations.replaced(own.path(second), raw):
                said = say(own.directory, "verify", RECEIPT)
            if complaints(first, "", said):
                wrong += complaints(second, f"swapped with {first}", said)
            count += 1
    mutations.report("files-swapped", count)
    assert count > 80
    fail_on(wrong)


def test_no_directory_may_be_a_link(done, tmp_path):
    wrong = []
    directories = sorted({os.path.dirname(file) for file in all_files(done)} - {""})
    parents = sorted({part for name in directories
                      for part in (name, *map(str, done.path(name).relative_to(
                          done.directory).parents)) if part != "."})
    for number, name in enumerate(parents):
        own = done.copied(tmp_path / str(number))       # a new place: nothing remembered of it
        shutil.move(own.path(name), own.root / "elsewhere")
        own.path(name).symlink_to(own.root / "elsewhere")
        wrong += complaints(name, "a link", say(own.directory, "verify", RECEIPT))
    assert len(parents) > 10
    fail_on(wrong)


@pytest.mark.parametrize("end", ["pending.json", "terminal.json"])
def test_no_receipt_may_be_added(own, end):
    wrong, count = [], 0
    for file in (name for name in all_files(own) if name.endswith(".1.pending.json")):
        stem = own.path(file).name.removesuffix(".1.pending.json")
        case, _, rest = stem.partition(".")
        for added in (f"{stem}.2", f"{stem}.3", f"extra.{rest}.1", f"{case}.other.judge.1",
                      f"{case}.run.2"):
            path = own.path(file).with_name(f"{added}.{end}")
            shutil.copyfile(own.path(file.replace("pending.json", end)), path)
            said = say(own.directory, "verify", RECEIPT)
            wrong += complaints(str(path.relative_to(own.directory)).rsplit(".", 2)[0],
                                "added", said)
            path.unlink()
            count += 1
    assert count > 50
    fail_on(wrong)


@pytest.mark.parametrize("part", ["stdout", "stderr"])
def test_a_stream_with_other_bytes_is_told_by_its_name(ready, part):
    experiment = ready("policy", judge=False)
    plan = experiment.write_plan("baseline", "development")
    experiment.command("run", plan, expect=0)
    stream = f"{experiment.result_directory('baseline', 'development')}/d01.run.1.{part}"
    experiment.write(stream, experiment.path(stream).read_bytes() + b" ")
    assert f"{stream}: " in experiment.command("score", plan, expect=3).stderr


@pytest.mark.parametrize("name", ["notes.md", "reference.txt", "scripts/tool.py"])
def test_no_second_file_may_lie_in_a_skill_project(own, name):
    for variant in VARIANTS:
        path = own.path(own.skill_file(variant)).parent / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("more", "utf-8")
        said = say(own.directory, "verify", RECEIPT)
        assert said.status == 3 and named(name, said), said
        path.unlink()
        path.parent.rmdir() if "/" in name else None


# What only the last receipts of a plan say, and nothing binds before the plan is scored.
UNSCORED = {"completedAtUtc", "elapsedMilliseconds"}


def unscored_tampered(own: Experiment, places: list, kind: str) -> list[str]:
    """Tamper with a plan that is judged but not scored: what verify accepted, or crashed on."""
    plan, accepted = own.plan_name("baseline", "development"), []
    for file, where in places:
        document = mutations.read(own.path(file).read_bytes())
        changed = mutations.write(mutations.tampered(document, where, kind)) + "\n"
        with mutations.replaced(own.path(file), changed.encode()):
            said = say(own.directory, "verify", plan)
        path = mutations.json_path(document, where)
        if said.status != 3 and not (file.endswith(".judge.1.terminal.json") and kind == "value"
                                     and path[2:] in UNSCORED and said.status == 0):
            accepted += complaints(file, f"{kind} of {path}", said)
    return accepted


@pytest.mark.parametrize("kind", KINDS)
def test_only_moments_of_the_last_receipts_of_an_unscored_plan_may_change(
        unscored, tmp_path, kind):
    names = [name for name in documents(unscored) if name.startswith("results/baseline-")]
    places = [(file, where) for file in names for where, _ in mutations.leaves(
        mutations.read(unscored.path(file).read_bytes()))]
    assert len(names) == 4 and len(places) > 150
    fail_on(mutations.in_two(unscored_tampered, unscored, tmp_path, places, kind))


@pytest.fixture(scope="module")
def unscored(tmp_path_factory):
    """An experiment whose baseline was run and judged in development, and no more."""
    own = Quick(tmp_path_factory.mktemp("unscored"), development=1, heldout=1).walk("policy")
    plan = own.write_plan("baseline", "development")
    own.command("run", plan, expect=0)
    own.command("judge", plan, expect=0)
    return own


# ---- every dependent hash recomputed -------------------------------------------------------


class Attacker:
    """Somebody who changes files and then recomputes every hash that stands on them.

    `rehash` goes on until nothing changes: the new hash of a file stands wherever its old one
    stood, and so do the derived hashes that the program keeps (pairs, normalised inputs).
    """

    def __init__(self, experiment: Experiment):
        self.own = experiment
        self.hashes = experiment.files()
        self.derived = {}

    def put(self, file: str, raw: bytes | str) -> None:
        self.own.write(file, raw)

    def edit(self, file: str, change) -> None:
        """Change a program document and write it in the program's own form."""
        document = self.own.read(file)
        change(document)
        self.own.write(file, compact(document))

    def swap(self, old: str, new: str) -> None:
        """Let one derived hash take the place of another everywhere."""
        self.derived[old] = new

    def rehash(self) -> None:
        for _ in range(60):
            new = self.own.files()
            moved = {self.hashes[file]: value for file, value in new.items()
                     if self.hashes.get(file, value) != value} | self.derived
            self.hashes, self.derived = new, {}
            if not moved:
                return
            for file in new:
                if file.endswith(".json"):
                    text = self.own.path(file).read_text("utf-8")
                    fresh = text
                    for old, value in moved.items():
                        fresh = fresh.replace(old, value)
                    if fresh != text:
                        self.own.write(file, fresh)
        raise AssertionError("the hashes go round in a circle")


def compact(document) -> str:
    return json.dumps(document, separators=(",", ":")) + "\n"


def normalised_input(text: str) -> str:
    """The hash of an input as the contract compares inputs."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return sha256(" ".join(folded.split()).encode())


def pair(task: str, output: str) -> str:
    return sha256(compact([task, output]).encode())


@pytest.fixture
def attacker(own):
    return Attacker(own)


def assert_refused(attacker: Attacker, *names: str, document=RECEIPT) -> mutations.Said:
    """The forged experiment is refused, and one line names all of `names`."""
    attacker.rehash()
    said = say(attacker.own.directory, "verify", document)
    assert said.status == 3, said
    assert any(all(name in line for name in names) for line in said.refusals), said.err
    return said


def test_attacker_who_changes_nothing_leaves_the_experiment_as_it_was(attacker):
    attacker.rehash()
    assert say(attacker.own.directory, "verify", RECEIPT).status == 0


def test_recomputed_criterion_is_told_by_the_rebuilt_prompt(attacker):
    attacker.put("criteria/criterion-1.txt", "Criterion 1: any amount will do.\n")
    assert_refused(attacker, ".calibrate.1.pending.json", "prompt")


@pytest.mark.parametrize("case, split", [("d01", "development"), ("h01", "heldout")])
def test_recomputed_case_input_is_told_by_the_rebuilt_prompt(attacker, case, split):
    new = f"Task {case}: what did shop {case} take in, about?\n"
    old = attacker.own.path(f"cases/{case}/input.txt").read_text("utf-8")
    attacker.put(f"cases/{case}/input.txt", new)
    attacker.swap(normalised_input(old), normalised_input(new))
    assert_refused(attacker, f"-{split}/{case}.run.1.pending.json", "prompt")


@pytest.mark.parametrize("case, split", [("d01", "development"), ("h01", "heldout")])
def test_recomputed_truth_is_told_by_the_rebuilt_prompt(attacker, case, split):
    attacker.put(f"cases/{case}/truth.txt", f"Till roll {case}: EUR 1\n")
    assert_refused(attacker, f"-{split}/{case}.grounded-1.judge.1.pending.json", "prompt")


@pytest.mark.parametrize("part", ["input", "truth", "output"])
def test_recomputed_sample_is_told_by_the_rebuilt_prompt(attacker, part):
    row = attacker.own.read("calibration-plan.json")["samples"][0]
    file = row[part]["file"]
    attacker.put(file, "Something else.\n")
    if part != "truth":
        new = {**{name: row[name]["sha256"] for name in ("input", "output")},
               part: attacker.own.sha(file)}
        attacker.swap(pair(row["input"]["sha256"], row["output"]["sha256"]),
                      pair(new["input"], new["output"]))
    assert_refused(attacker, f"{row['id']}.calibrate.1.pending.json", "prompt")


def test_relabelled_sample_is_told_by_its_receipt(attacker):
    def relabel(plan):
        first, second = plan["samples"][:2]
        assert (first["humanVerdict"], second["humanVerdict"]) == ("pass", "fail")
        first["humanVerdict"], second["humanVerdict"] = "fail", "pass"

    attacker.own.edit("calibration-plan.json", relabel)
    assert_refused(attacker, "s10-pass-1.calibrate.1.pending.json", "label")


@pytest.mark.parametrize("field, value", [
    ("status", "qualified"), ("issuedAtUtc", "2031-01-01T00:00:00.000000Z"),
    ("expiresAtUtc", "2099-01-01T00:00:00.000000Z"), ("attemptNumber", 0),
    ("labelKind", "human_reviewed"), ("authority", "all")])
def test_recomputed_calibration_is_told_by_its_receipts(attacker, field, value):
    attacker.edit("calibration.json", lambda record: record.update({field: value}))
    assert_refused(attacker, "calibration.json", field)


def test_recomputed_calibration_counts_are_told_by_its_receipts(attacker):
    def flatter(record):
        record["samples"].append(copy.deepcopy(record["samples"][0]))

    attacker.edit("calibration.json", flatter)
    assert_refused(attacker, "calibration.json", "samples")


@pytest.mark.parametrize("file", [
    "results/baseline-heldout/h01.grounded-1.judge.1.terminal.json",
    "results/candidate-development/d01.grounded-1.judge.1.terminal.json",
    "results/calibration/s10-fail-1.calibrate.1.terminal.json"])
def test_recomputed_verdict_is_told_by_the_stream_read_again(attacker, file):
    attacker.edit(file, lambda terminal: terminal.update(
        verdict="fail" if terminal["verdict"] == "pass" else "pass"))
    assert_refused(attacker, file, "verdict")


@pytest.mark.parametrize("field, value", [
    ("output", good("h01") + " And more."), ("costUsd", "0"), ("status", "ok"),
    ("reason", "refusal"), ("models", ["another-model"]), ("messageIds", []), ("usage", {})])
def test_recomputed_outcome_is_told_by_the_stream_read_again(attacker, field, value):
    file = "results/baseline-heldout/h01.run.1.terminal.json"
    if attacker.own.read(file)[field] == value:
        value = "error"
    attacker.edit(file, lambda terminal: terminal.update({field: value}))
    assert_refused(attacker, file, field)


@pytest.mark.parametrize("variant", VARIANTS)
def test_answer_changed_in_stream_and_receipt_is_told_by_the_judges_prompt(attacker, variant):
    stem = f"results/{variant}-heldout/h01.run.1"
    old = attacker.own.read(f"{stem}.terminal.json")["output"]
    new = f"Shop h01 took 1 euros. {QUOTE}."
    for name in ("stdout", "terminal.json"):
        text = attacker.own.path(f"{stem}.{name}").read_text("utf-8")
        assert json.dumps(old) in text
        attacker.put(f"{stem}.{name}", text.replace(json.dumps(old), json.dumps(new)))
    assert_refused(attacker, f"{variant}-heldout/h01.grounded-1.judge.1.pending.json", "prompt")


def test_verdict_changed_in_the_stream_alone_is_told_by_the_terminal(attacker):
    stem = "results/baseline-heldout/h01.grounded-1.judge.1"
    text = attacker.own.path(f"{stem}.stdout").read_text("utf-8")
    assert '"fail"' in text
    attacker.put(f"{stem}.stdout", text.replace('"fail"', '"pass"'))
    assert_refused(attacker, f"{stem}.terminal.json")


@pytest.mark.parametrize("parts", [("stdout",), ("stdout", "stderr", "terminal.json"),
                                   ("stdout", "stderr", "pending.json", "terminal.json")])
@pytest.mark.parametrize("stem", ["h01.run.1", "h01.grounded-1.judge.1"])
def test_evidence_of_the_other_arm_is_told_by_call_id_or_binding(attacker, parts, stem):
    for part in parts:
        attacker.put(f"results/baseline-heldout/{stem}.{part}",
                     attacker.own.path(f"results/candidate-heldout/{stem}.{part}").read_bytes())
    assert_refused(attacker, f"results/baseline-heldout/{stem}.")


def test_one_call_that_counts_for_both_arms_is_told_by_its_id(tmp_path):
    """Both arms gave the same answer: only the call id tells the two judgments apart."""
    same = {(variant, "h01"): good("h01") for variant in VARIANTS}
    own = Quick(tmp_path, development=1, heldout=1, answers=same).walk("unlock")
    plans = [own.write_plan(variant, "heldout") for variant in VARIANTS]
    own.command("run", *plans, expect=0)
    own.command("judge", *plans, expect=0)
    attacker = Attacker(own)
    first, second = (f"results/{variant}-heldout/h01.grounded-1.judge.1"
                     for variant in VARIANTS)
    ids = [own.read(f"{stem}.pending.json")["callId"] for stem in (first, second)]
    for part in ("stdout", "stderr", "terminal.json"):
        attacker.put(f"{second}.{part}", own.path(f"{first}.{part}").read_bytes())
    text = own.path(f"{second}.pending.json").read_text("utf-8")
    attacker.put(f"{second}.pending.json", text.replace(ids[1], ids[0]))
    attacker.edit(f"{second}.terminal.json", lambda terminal: terminal.update(
        pendingSha256=own.sha(f"{second}.pending.json")))
    for plan in plans:
        assert say(own.directory, "score", plan).status == 0     # each arm alone looks right
    said = say(own.directory, "compare", *own.plan_names())
    assert said.status == 3 and f"call id {ids[0]}" in said.err, said
    assert not own.path("comparison.json").exists()


@pytest.mark.parametrize("change", [
    lambda row: row.update(verdict="pass", reason=None),
    lambda row: row.update(critical=not row["critical"]),
    lambda row: row.update(runTerminals=[])], ids=["verdict", "critical", "terminals"])
def test_recomputed_score_row_is_told_by_the_receipts(attacker, change):
    file = "results/baseline-heldout/score.json"
    attacker.edit(file, lambda score: change(score["rows"][0]))
    assert_refused(attacker, file, "rows")


@pytest.mark.parametrize("field", ["status", "finding", "reasons", "candidatesTried", "judge",
                                   "accounting", "otherReceipts", "heldout", "gates"])
def test_recomputed_comparison_is_told_by_the_receipts(attacker, field):
    attacker.edit("comparison.json", lambda told: told.update({field: "other"}))
    assert_refused(attacker, "comparison.json", field)


@pytest.mark.parametrize("field", ["decision", "owner", "finding", "humanReview", "authority",
                                   "statusAfterReview"])
def test_recomputed_decision_receipt_is_told_by_the_comparison(attacker, field):
    attacker.edit(RECEIPT, lambda told: told.update({field: "other"}))
    assert_refused(attacker, RECEIPT, field)


def test_gate_lowered_afterwards_is_told_by_the_comparison(attacker):
    attacker.own.edit("policy.json", lambda policy: policy.update(minimumHeldoutScore="0.1"))
    assert_refused(attacker, "comparison.json", "gates")


def test_test_dropped_afterwards_is_told_by_the_scores(attacker):
    attacker.own.edit("cases/h01/expected.json", lambda expected: expected.update(
        tests=expected["tests"][:1] + expected["tests"][2:]))
    assert_refused(attacker, "-heldout/score.json", "rows")


def test_literal_value_changed_afterwards_is_told_by_the_scores(attacker):
    def easier(expected):
        expected["tests"][0]["value"] = "took"

    attacker.own.edit("cases/h01/expected.json", easier)
    assert_refused(attacker, "-heldout/score.json", "rows")


@pytest.mark.parametrize("field, value", [
    ("budgetUsd", "9"), ("modelId", "other-model"), ("timeoutSeconds", 61),
    ("setEnvironment", {"X": "1"})])
def test_recomputed_instrument_is_told_by_the_receipts(attacker, field, value):
    attacker.own.edit("environment.json", lambda given: given.update({field: value}))
    said = assert_refused(attacker, ".json")
    assert "pending.json" in said.err or "terminal.json" in said.err


@pytest.mark.parametrize("field, value", [
    ("callId", "00000000-0000-4000-8000-000000000000"), ("host", "another-host"),
    ("createdAtUtc", "2030-01-01T00:00:00.000000Z"), ("programSha256", "0" * 64)])
def test_recomputed_moment_is_told_where_something_stands_on_it(attacker, field, value):
    """Host and program stand in the pending alone: rewritten with every hash, they are history
    that nobody contradicts, like a forgery of everything (below)."""
    file = "results/baseline-heldout/h01.run.1.pending.json"
    attacker.edit(file, lambda pending: pending.update({field: value}))
    attacker.rehash()
    said = say(attacker.own.directory, "verify", RECEIPT)
    if field == "host":
        assert said.status == 0
    else:
        assert said.status == 3, said


# ---- what only a hash from outside tells ---------------------------------------------------


def published(experiment: Experiment) -> tuple[str, ...]:
    """The hashes that an owner would publish in time: the policy's and the receipt's."""
    return experiment.sha("policy.json"), experiment.sha(RECEIPT)


def assert_only_trust_tells(attacker: Attacker, before: tuple[str, ...]) -> None:
    attacker.rehash()
    said = say(attacker.own.directory, "verify", RECEIPT)
    assert said.status == 0 and "self-consistent" in said.out, said
    said = say(attacker.own.directory, "verify", RECEIPT, options=("--trust", before[1]))
    assert said.status == 3 and before[1] in said.err
    now = published(attacker.own)
    said = say(attacker.own.directory, "verify", RECEIPT, options=("--trust", now[0], "--trust",
                                                                   now[1]))
    assert said.status == 0 and "consistent with what you trust" in said.out


def test_skill_replaced_with_every_hash_recomputed_is_told_by_a_published_hash(attacker):
    """No stream holds a Skill's text: nothing inside the experiment can contradict it."""
    before = published(attacker.own)
    file = attacker.own.skill_file("candidate")
    attacker.put(file, attacker.own.path(file).read_text("utf-8").replace(
        CANDIDATE_MARK, "Do as you like"))
    assert_only_trust_tells(attacker, before)


def test_judgment_forged_in_stream_receipts_and_all_above_is_told_by_a_published_hash(attacker):
    """Stream, terminal, score, comparison and receipt are rewritten to agree."""
    before, own = published(attacker.own), attacker.own
    stem = "results/baseline-heldout/h01.grounded-1.judge.1"
    for name in ("stdout", "terminal.json"):
        text = own.path(f"{stem}.{name}").read_text("utf-8")
        assert "The output says so: fail." in text
        attacker.put(f"{stem}.{name}", text.replace("The output says so: fail.", "Well."))
    assert_only_trust_tells(attacker, before)


def test_trusted_hash_of_no_document_is_refused(done):
    for wrong in ("0" * 64, hashlib.sha256(b"").hexdigest(), done.sha("spending.json")):
        said = say(done.directory, "verify", RECEIPT, options=("--trust", wrong))
        assert said.status == 3 and wrong in said.err


@pytest.mark.parametrize("file", ["policy.json", RECEIPT, "comparison.json", "environment.json",
                                  "calibration.json", "results/baseline-heldout/score.json",
                                  "heldout-cases.json", "cases/h01/truth.txt"])
def test_every_bound_document_may_be_trusted(done, file):
    said = say(done.directory, "verify", RECEIPT, options=("--trust", done.sha(file)))
    assert said.status == 0 and "consistent with what you trust" in said.out
