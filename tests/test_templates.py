"""The templates: one for each owner document, refused only for what is still to be filled in.

templates/README.md is held to the program: every field of every document is named there.
"""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from builder import PROGRAM

TEMPLATES = PROGRAM.parent / "templates"
NAMES = sorted(path.name for path in TEMPLATES.glob("*.template.json"))

sys.path.insert(0, str(PROGRAM.parent))
import eval_loop  # noqa: E402  (the shape tables of the program under test)

SECTIONS = {  # kind of document: (its section in the README, its templates)
    "environment": ("environment", ["environment"]),
    "spending": ("spending", ["spending"]),
    "cases": ("development-cases and heldout-cases", ["development-cases", "heldout-cases"]),
    "expected": ("expected", ["expected"]),
    "calibration-plan": ("calibration-plan", ["calibration-plan"]),
    "calibration-approval": ("calibration-approval", ["calibration-approval"]),
    "policy": ("policy", ["policy"]),
    "plan": ("The four plans", [f"{variant}-{split}-plan" for variant in
                                ("baseline", "candidate") for split in
                                ("development", "heldout")]),
    "diagnosis": ("diagnosis", ["diagnosis"]),
    "heldout-unlock": ("heldout-unlock", ["heldout-unlock"]),
    "decision": ("decision", ["decision"]),
    "revocations": ("revocations", ["revocations"]),
}

# Objects whose names are file names, hashed things or the like, not fields.
MAPS = {"terminalHashes", "earlierReceipts", "bound", "unknownReasons", "otherReceipts",
        "plans", "scoreSha256", "unknowns", "calls", "counts", "usage", "registeredLimits"}


def template(name: str) -> dict:
    """Return a template as it stands."""
    return json.loads((TEMPLATES / name).read_bytes())


def placeholders(value) -> int:
    """Return how many texts in `value` begin with FILL:, owner's notes left out."""
    if isinstance(value, dict):
        return sum(placeholders(inner) for name, inner in value.items()
                   if not name.startswith("_"))
    if isinstance(value, list):
        return sum(map(placeholders, value))
    return isinstance(value, str) and value.startswith("FILL:")


def readme_text(section: str | None = None) -> str:
    """Return one section, or all, of templates/README.md."""
    text = (TEMPLATES / "README.md").read_text("utf-8")
    if section:
        text, = re.findall(rf"(?ms)^## {re.escape(section)}\n(.*?)(?=^#|\Z)", text)
    return text


def readme_words(section: str | None = None) -> set[str]:
    """Return the words in code marks in one section, or all, of templates/README.md."""
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`",
                                                      readme_text(section)))))


def table_words(section: str) -> set[str]:
    """Return the words in code marks in the first column of a section's tables."""
    rows = re.findall(r"(?m)^\| (`.*?) \|", readme_text(section))
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", " ".join(rows)))))


def shape_fields(shape) -> set[str]:
    """Return every field name of a shape, but for the inside of references."""
    if shape is eval_loop.REFERENCE:
        return set()
    if isinstance(shape, dict):
        return {name.rstrip("?") for name in shape}.union(*map(shape_fields, shape.values()))
    if isinstance(shape, eval_loop.Many):
        return shape_fields(shape.shape)
    if isinstance(shape, tuple) and shape[-1] is None:
        return shape_fields(shape[0])
    return set()


def document_fields(value) -> set[str]:
    """Return every field name of a document of the program, but for maps and references."""
    if isinstance(value, list):
        return set().union(*map(document_fields, value))
    if not isinstance(value, dict) or set(value) == {"file", "sha256"}:
        return set()
    return set(value).union(*(document_fields(inner) for name, inner in value.items()
                              if name not in MAPS))


def test_there_is_a_template_for_every_owner_document_and_no_other():
    assert set(eval_loop.SHAPES) == set(SECTIONS)
    assert NAMES == sorted(f"{stem}.template.json" for _, stems in SECTIONS.values()
                           for stem in stems)


@pytest.mark.parametrize("name", NAMES)
def test_check_refuses_a_template_for_its_placeholders_and_nothing_else(make, name):
    experiment = make(judge=False)
    experiment.write("copied.json", (TEMPLATES / name).read_bytes())
    problems = experiment.command("check", "copied.json", expect=3).stderr.splitlines()
    assert all("placeholder not filled in" in problem for problem in problems), problems
    assert len(problems) == placeholders(template(name)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_placeholder_says_what_belongs_there(name):
    text = (TEMPLATES / name).read_text("utf-8")
    assert re.findall(r'"FILL:(?! \w)', text) == []


@pytest.mark.parametrize("kind", SECTIONS)
def test_every_field_of_an_owner_document_is_explained(kind):
    section, _ = SECTIONS[kind]
    assert shape_fields(eval_loop.SHAPES[kind]) - readme_words(section) == set()


@pytest.mark.parametrize("kind", SECTIONS)
def test_no_field_is_explained_that_an_owner_document_does_not_have(kind):
    assert table_words(SECTIONS[kind][0]) - shape_fields(eval_loop.SHAPES[kind]) == set()


@pytest.mark.parametrize("kind", SECTIONS)
def test_a_template_shows_or_mentions_every_field(kind):
    for stem in SECTIONS[kind][1]:
        text = (TEMPLATES / f"{stem}.template.json").read_text("utf-8")
        missing = {field for field in shape_fields(eval_loop.SHAPES[kind])
                   if not re.search(rf"\b_?{field}\b", text)}
        wanted = {"plan": {"diagnosis", "heldoutUnlock"}}.get(kind, set())
        assert missing <= wanted, f"{stem}: {missing}"


PROGRAM_DOCUMENTS = {
    "pending": ["results/calibration/s10-pass-1.calibrate.1.pending.json",
                "results/baseline-heldout/h01.run.1.pending.json",
                "results/baseline-heldout/h01.grounded-1.judge.1.pending.json"],
    "terminal": ["results/baseline-heldout/h01.run.1.terminal.json",
                 "results/baseline-heldout/h01.grounded-1.judge.1.terminal.json"],
    "calibration": ["calibration.json"],
    "score": ["results/baseline-heldout/score.json"],
    "comparison": ["comparison.json"],
    "decision-receipt": ["decision-receipt.json"],
}


@pytest.mark.parametrize("kind", PROGRAM_DOCUMENTS)
def test_the_fields_of_a_document_of_the_program_are_those_explained(walked, kind):
    documents = [walked("decide").read(file) for file in PROGRAM_DOCUMENTS[kind]]
    assert all(list(document.items())[0] == ("kind", kind) for document in documents)
    fields = set().union(*documents) - {"kind"}
    assert fields - table_words(kind) == set()
    assert table_words(kind) - fields <= {"families"}
    assert document_fields(documents) - readme_words() == set()


def test_the_defaults_of_the_templates_are_the_usual_ones():
    policy = template("policy.template.json")
    assert [policy[name] for name in (
        "minimumHeldoutScore", "minimumHeldoutGain", "maximumGainPValue",
        "maximumUnknownShare", "maximumWorseFamiliesShare", "repeatsPerCase")] == [
            "0.7", "0.1", "0.05", "0.1", "0.15", 1]
    environment = template("environment.template.json")
    assert [environment[name] for name in (
        "timeoutSeconds", "unservedAttempts", "evidenceKind")] == [600, 3, "measured"]


# ---- filled in -----------------------------------------------------------------------------


def filled(value, source):
    """Return a template with every placeholder replaced from a finished document."""
    if isinstance(value, dict):
        return {name: filled(inner, (source or {}).get(name)) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [filled(value[0], item) for item in source]
    return source if source is not None else value


@pytest.mark.parametrize("stem", sorted(name.removesuffix(".template.json") for name in NAMES
                                        if name.split(".")[0] not in ("expected",
                                                                      "revocations")))
def test_a_template_that_is_filled_in_passes_check(finished, stem):
    source = finished.read(f"{stem}.json")
    document = filled(template(f"{stem}.template.json"), source)
    if "terminalHashes" in document:
        document["terminalHashes"] = source["terminalHashes"]
    if "resultDir" in document:  # the old one is of the document that was there before
        shutil.rmtree(finished.path(source["resultDir"]))
    if "calibrationOutputFile" in document:
        finished.path("calibration.json").unlink()
    assert placeholders(document) == 0
    before = finished.files()
    finished.write("filled-in.json", document)
    finished.command("check", "filled-in.json", expect=0)
    assert set(finished.files()) - set(before) == {"filled-in.json"}


def test_the_qualification_shown_in_the_template_is_accepted_when_it_is_renamed(make):
    experiment = make()
    shown = template("calibration-plan.template.json")["_qualification"]
    experiment.edit("calibration-plan.json", lambda plan: {
        **plan, "samples": [{**sample, "secondReview": {
            "reviewedBy": "Sam Second", "humanVerdict": sample["humanVerdict"],
            "humanEvidence": "Read again."}} for sample in plan["samples"]],
        "qualification": shown})
    experiment.command("check", "calibration-plan.json", expect=0)
