"""SKILL.md files of every shape: what is accepted, warned of, or refused, and at which line.

The texts lie in data/skills, one shape a file, named for it. What the real CLI makes of each is
asked of it where it is named (see test_real_cli.py); what it has to be called here was measured
there first.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import uuid
from unittest import mock

import pytest

import eval_loop
from builder import SKILL_NAME, sha256
from mock_api import MockApi, prompt_of, session_of
from real_cli import MODEL, OTHER_MODEL, PINNED, cli_named_by

FOLDER = pathlib.Path(__file__).resolve().parent / "data" / "skills"
NAME = "note-tidier"                    # of every Skill there
BODY = "Rewrite the note in plain words."

# Accepted without a word.
QUIET = """
    plain double-quoted single-quoted name-double-quoted name-single-quoted
    name-quoted-with-comment name-with-comment no-frontmatter no-name name-only
    empty-frontmatter description-empty block-literal block-folded
    block-folded-stripped block-literal-kept block-with-indent-figure
    block-text-that-looks-like-keys block-without-description plain-over-two-lines
    quoted-over-two-lines non-ascii curly-quotes long-description nested-metadata
    deeply-nested-metadata metadata-in-braces comments model-in-a-comment blank-lines
    blanks-after-the-fences tab-after-the-colon blank-before-the-colon
    tab-before-a-continuation no-final-newline empty-body blank-body rules-in-the-body
    yaml-in-the-body table-and-html-in-the-body address-as-value
    argument-hint-in-brackets model-invocation-disabled model-invocation-quoted-false
    user-invocable user-invocable-quoted known-keys quoted-keys figures-as-values
    indented-alike arguments-placeholder escaped-position-in-the-body
    bangs-in-the-body frontmatter-after-a-blank-line frontmatter-after-a-title
    zero-width-and-nul-in-the-body
""".split()

# Accepted with a warning: its line (0: of the whole file) and a word that it must hold.
WARNED = {
    "non-ascii-key": ["4 作者"],
    "tools-in-brackets": ["4 allowed-tools"], "tools-on-a-line": ["4 allowed-tools"],
    "tools-as-list": ["4 allowed-tools"], "tools-as-list-at-the-margin": ["4 allowed-tools"],
    "tools-in-brackets-over-lines": ["4 allowed-tools"],
    "tools-in-brackets-closed-at-the-margin": ["4 allowed-tools"],
    "tools-empty": ["4 allowed-tools"], "crlf": ["0 CRLF"],
    "crlf-frontmatter-lf-body": ["0 CRLF"], "byte-order-mark": ["0 byte-order mark"],
    "byte-order-mark-and-crlf": ["0 byte-order mark"], "unquoted-colon": ["3 description"],
    "unquoted-colon-in-another-key": ["4 when_to_use"],
    "unknown-keys": ["4 tags", "6 category"],
    "tools-misspelt": ["4 allowed_tools", "5 Allowed-Tools"], "capital-model": ["4 Model"],
    "key-with-a-blank": ["4 my key"], "dashes-in-a-value": ["3 ---"],
    "positions-and-variables-in-the-body": ["7 $5", "7 $1", "8 ${CLAUDE_SKILL_DIR}"],
    "unclosed": ["1 not closed"], "closed-by-dots": ["1 not closed"],
    "carriage-returns-only": ["1 not closed", "0 CRLF"],
}

# Refused: the line of each problem (*: any) and a word that it must hold.
REFUSED = {
    "model": ["4 model"],
    "model-inherit": ["4 model"], "effort": ["4 effort"], "hooks": ["4 hooks"],
    "context-and-agent": ["4 context", "5 agent"], "arguments": ["4 arguments"],
    "shell": ["4 shell"], "not-user-invocable": ["4 user-invocable"],
    "not-user-invocable-quoted": ["4 user-invocable"],
    "not-user-invocable-no": ["4 user-invocable"],
    "not-user-invocable-empty": ["4 user-invocable"], "quoted-model-key": ["4 model"],
    "single-quoted-model-key": ["4 model"], "model-with-blank-before-the-colon": ["4 model"],
    "model-with-tab": ["4 model"], "model-between-crlf": ["6 model"],
    "model-after-blanks-behind-the-fence": ["3 model"], "model-indented-alike": ["3 model"],
    "model-indented-after-a-comment": ["4 model"],
    "model-behind-a-carriage-return": ["* model"], "model-by-escape": ["4 "],
    "model-closed-by-four-dashes": ["4 model"],
    "model-closed-by-indented-dashes": ["4 model"], "model-closed-on-its-line": ["4 model"],
    "model-closed-with-words": ["4 model"], "model-behind-a-mark": ["2 model"],
    "frontmatter-as-json": ["2 "], "key-with-a-question-mark": ["3 ", "4 "],
    "key-with-a-tag": ["3 "], "key-with-an-anchor": ["3 "], "anchor": ["3 description"],
    "alias": ["3 description"], "tag": ["3 description"], "merge": ["4 <<"],
    "key-twice": ["4 description"], "key-twice-quoted": ["4 description"],
    "name-differs": ["2 note-tidier"], "name-with-blank": ["2 note-tidier"],
    "name-in-capitals": ["2 note-tidier"], "name-yes": ["2 note-tidier"],
    "name-quoted-differs": ["2 note-tidier"], "no-key": ["4 just words"],
    "command": ["7 command"], "command-in-a-sentence": ["8 command"],
    "command-in-a-list": ["7 command", "8 command"], "command-in-a-fence": ["8 command"],
    "command-over-two-lines": ["7 command"], "command-in-the-description": ["3 command"],
    "code-that-ends-in-a-bang": ["7 ends in !"], "command-block": ["7 command"],
    "command-block-of-four": ["7 command"], "command-block-indented": ["8 command"],
    "command-block-with-language": ["7 command"], "command-block-of-tildes": ["7 command"],
    "command-block-behind-words": ["7 command"],
    "command-block-in-a-quotation": ["7 command"],
    "command-without-frontmatter": ["3 command"],
}
NOT_UTF8 = {"utf-16-little-endian", "utf-16-big-endian", "latin-1", "cut-letter"}

# Of the refused shapes that name a model, a command or who may invoke: those with which the
# measured CLI does nothing. They are refused since other loaders, or a newer CLI, may.
WITHOUT_EFFECT_TODAY = {"model-inherit", "command-in-the-description",
                        "command-block-of-tildes"}
WITH_EFFECT = [name for name in REFUSED if name not in WITHOUT_EFFECT_TODAY and re.search(
    "model|command|user-invocable|json|question|key-with-a", name)]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.md").read_bytes().decode("utf-8")


def scanned(name: str) -> tuple[list[str], list[str]]:
    """What the program says of one shape: (problems, warnings)."""
    return eval_loop.scan_skill("SKILL.md", NAME, text_of(name))


def agree(told: list[str], wanted: list[str]) -> bool:
    """Whether each sentence has the line and the word that are wanted, and none is left."""
    left = list(told)
    for item in wanted:
        line, _, word = item.partition(" ")
        place = {"0": r"(?!line)", "*": r"line \d+: "}.get(line, rf"line {line}: ")
        for sentence in left:
            if re.match(rf"SKILL\.md: {place}", sentence) and word in sentence:
                left.remove(sentence)
                break
        else:
            return False
    return not left


def test_every_file_of_the_folder_is_expected_to_be_something():
    names = {path.stem for path in FOLDER.glob("*.md")}
    tables = [*QUIET, *WARNED, *REFUSED, *NOT_UTF8]
    assert len(tables) == len(set(tables)) and set(tables) == names
    assert len(names) >= 130 and len(QUIET) + len(WARNED) >= 60


@pytest.mark.parametrize("name", QUIET)
def test_a_usual_shape_is_accepted_without_a_word(name):
    assert scanned(name) == ([], [])


@pytest.mark.parametrize("name", WARNED)
def test_what_the_owner_should_know_is_told_by_line_and_does_not_stop(name):
    problems, warnings = scanned(name)
    assert problems == []
    assert agree(warnings, WARNED[name]), warnings


@pytest.mark.parametrize("name", REFUSED)
def test_what_changes_or_executes_something_is_refused_by_line(name):
    problems, _ = scanned(name)
    assert agree(problems, REFUSED[name]), problems


@pytest.mark.parametrize("name", [*WARNED, *REFUSED])
def test_a_sentence_about_a_skill_is_short_and_in_one_line(name):
    for sentence in sum(scanned(name), []):
        assert len(sentence) < 300 and sentence.isprintable()


@pytest.mark.parametrize("name", [*QUIET, *WARNED])
def test_line_ends_of_an_editor_change_a_warning_and_nothing_else(name):
    text = text_of(name)
    if "\r" in text:
        return
    lf, crlf = (eval_loop.scan_skill("SKILL.md", NAME, form)
                for form in (text, text.replace("\n", "\r\n")))
    assert crlf[0] == lf[0]
    without = [[one for one in told if "CRLF" not in one] for _, told in (lf, crlf)]
    assert without[0] == without[1]
    assert len(crlf[1]) == len(without[1]) + 1


def test_words_behind_the_dashes_that_close_the_frontmatter_are_warned_of():
    text = f"---\nname: {NAME}\n--- in short\n{BODY}\n"
    problems, warnings = eval_loop.scan_skill("SKILL.md", NAME, text)
    assert problems == [] and agree(warnings, ["3 ---"])


@pytest.mark.parametrize("name", ["7-day-note", "n" * 64, "a", "A_b"])
def test_any_legal_name_is_accepted_when_it_is_the_policys(name):
    text = text_of("plain").replace(NAME, name)
    assert eval_loop.scan_skill("SKILL.md", name, text) == ([], [])
    assert eval_loop.scan_skill("SKILL.md", NAME, text)[0] != []


def test_no_text_makes_the_scan_raise():
    for text in ("", "---", "---\n", "---\n---", "---\n:\n---\n", "---\n'\n---\n", "\ufeff",
                 "---\n\n\n---\n", "`" * 5000, "!`" * 5000, "---\n" + "a: b\n" * 5000,
                 "---\n\"\": x\n---\n", "\0", "---\r\n---\r\n"):
        problems, warnings = eval_loop.scan_skill("SKILL.md", NAME, text)
        assert all(isinstance(sentence, str) for sentence in problems + warnings)


# ---- the project that a plan names -----------------------------------------------------------


SKILL = f"---\nname: {SKILL_NAME}\ndescription: d\n---\n\n{BODY}\n".encode()
PLACE = f".claude/skills/{SKILL_NAME}"


@pytest.fixture
def project(walked, tmp_path, monkeypatch, capsys):
    """Return a function: change(the project's directory) -> (status, problems, warnings).

    The project holds one good Skill before the change, and the baseline's plan binds it.
    """
    experiment = walked("policy", judge=False, heldout=1, development=1).copied(tmp_path)
    skill = experiment.skill_file("baseline")
    experiment.write(skill, SKILL)
    monkeypatch.chdir(experiment.directory)

    def run(change, raw: bytes | None = SKILL) -> tuple[int, list[str], list[str]]:
        plan = experiment.write_plan("baseline", "development", skillSha256=sha256(raw))
        change(experiment.path("skills/baseline"))
        before = experiment.files()
        status = eval_loop.main(["check", plan])
        assert experiment.files() == before
        told = capsys.readouterr().err.splitlines()
        return (status, *([line.partition(": ")[2] for line in told if line.startswith(kind)]
                          for kind in ("refused", "warning")))

    return run


def test_a_project_with_one_good_skill_is_accepted(project):
    status, problems, _ = project(lambda top: None)
    assert (status, problems) == (0, [])


@pytest.mark.parametrize("junk", [".DS_Store", f"{PLACE}/.DS_Store", f"{PLACE}/._SKILL.md",
                                  ".claude/Thumbs.db", "._x"])
def test_files_of_a_file_manager_are_ignored(project, junk):
    status, problems, _ = project(lambda top: (top / junk).write_bytes(b"\0\1Bud1"))
    assert (status, problems) == (0, [])


@pytest.mark.parametrize("extra", [
    "README.md", ".claude/settings.json", ".claude/settings.local.json", "CLAUDE.md",
    ".claude/commands/x.md", ".claude/skills/other/SKILL.md", f"{PLACE}/references/a.md",
    f"{PLACE}/scripts/run.sh", f"{PLACE}/SKILL.md.bak", ".mcp.json", f"{PLACE}/.DS_Store.md",
    ".claude/agents/a.md"])
def test_any_other_file_is_refused_by_name(project, extra):
    def add(top):
        (top / extra).parent.mkdir(parents=True, exist_ok=True)
        (top / extra).write_text("x")

    status, problems, _ = project(add)
    assert status == 3 and len(problems) == 1
    assert problems[0].startswith("skills/baseline: ") and extra in problems[0]
    assert f"{PLACE}/SKILL.md" in problems[0]


def test_many_other_files_are_named_up_to_ten_of_them(project):
    def add(top):
        for number in range(50):
            (top / f"extra-{number:02}").touch()

    status, problems, _ = project(add)
    assert status == 3 and len(problems) == 1
    assert problems[0].count("extra-") == 10


@pytest.mark.parametrize("target", ["{top}/real.md", "/etc/hostname", "nowhere"])
def test_a_link_in_place_of_the_file_is_refused(project, target):
    def link(top):
        place = top / PLACE / "SKILL.md"
        place.rename(top.parent / "real.md")
        place.symlink_to(target.format(top=top.parent))

    status, problems, _ = project(link)
    assert status == 3 and any("link" in problem for problem in problems)


@pytest.mark.parametrize("part", ["", ".claude", ".claude/skills", PLACE])
def test_a_link_in_place_of_a_directory_is_refused(project, part):
    def link(top):
        place = top / part
        shutil.move(place, top.parent / "moved")
        place.symlink_to(top.parent / "moved")

    status, problems, _ = project(link)
    assert status == 3 and any("link" in problem for problem in problems)


def test_a_link_beside_the_file_is_refused_by_name(project):
    status, problems, _ = project(lambda top: (top / "docs").symlink_to("/etc"))
    assert status == 3 and any("docs" in problem for problem in problems)


@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD", "SKILL.txt"])
def test_a_file_of_another_spelling_is_not_the_skill(project, name):
    status, problems, _ = project(
        lambda top: (top / PLACE / "SKILL.md").rename(top / PLACE / name))
    assert status == 3
    assert any(f"{PLACE}/SKILL.md: missing" in problem for problem in problems)


def test_a_missing_project_is_refused(project):
    status, problems, _ = project(shutil.rmtree)
    assert status == 3 and any("SKILL.md: missing" in problem for problem in problems)


def test_a_directory_in_place_of_the_file_is_refused(project):
    def turn_into_directory(top):
        (top / PLACE / "SKILL.md").unlink()
        (top / PLACE / "SKILL.md").mkdir()

    status, problems, _ = project(turn_into_directory)
    assert status == 3 and any("SKILL.md: " in problem for problem in problems)


@pytest.mark.parametrize("name", sorted(NOT_UTF8))
def test_a_skill_that_is_no_utf8_is_refused_with_its_cure(project, name):
    raw = (FOLDER / f"{name}.md").read_bytes()
    status, problems, _ = project(
        lambda top: (top / PLACE / "SKILL.md").write_bytes(raw), raw)
    assert status == 3 and len(problems) == 1
    assert "SKILL.md: is not UTF-8" in problems[0] and "save it as UTF-8" in problems[0]


@pytest.mark.parametrize("change, hint", [
    (lambda raw: raw.replace(b"\n", b"\r\n"), "line endings"),
    (lambda raw: b"\xef\xbb\xbf" + raw, "byte-order mark"),
    (lambda raw: raw.rstrip(b"\n"), "final newline"),
    (lambda raw: raw.replace(b"plain", b"fancy"), ""),
])
def test_a_skill_that_is_not_the_approved_one_is_refused_saying_what_differs(project, change,
                                                                             hint):
    status, problems, _ = project(
        lambda top: (top / PLACE / "SKILL.md").write_bytes(change(SKILL)))
    assert status == 3 and len(problems) == 1
    assert sha256(SKILL) in problems[0] and sha256(change(SKILL)) in problems[0]
    assert "skillSha256" in problems[0] and hint in problems[0]
    assert ("only " in problems[0]) == bool(hint)


def test_a_skill_above_half_a_megabyte_is_refused_and_one_below_is_not(project):
    for size, status in ((500_000, 0), (500_001, 3)):
        raw = SKILL + b"x" * (size - len(SKILL))
        told = project(lambda top, raw=raw: (top / PLACE / "SKILL.md").write_bytes(raw), raw)
        assert told[0] == status, told[1]


def test_problems_and_warnings_of_a_skill_are_those_of_its_scan(project):
    raw = SKILL.replace(b"description: d", b"model: opus\ntags: x")
    status, problems, warnings = project(
        lambda top: (top / PLACE / "SKILL.md").write_bytes(raw), raw)
    file = f"skills/baseline/{PLACE}/SKILL.md"
    wanted = eval_loop.scan_skill(file, SKILL_NAME, raw.decode())
    assert (status, problems) == (3, wanted[0])
    assert set(wanted[1]) <= set(warnings)


# ---- what the real CLI makes of each ---------------------------------------------------------


def ask(cli: pathlib.Path, url: str, root: pathlib.Path, name: str) -> dict:
    """Start one call as the program does, with the Skill of one file; what comes of it."""
    call_id, private = str(uuid.uuid4()), root / name
    for part in ("home", "tmp", f"w/.claude/skills/{NAME}"):
        (private / part).mkdir(parents=True)
    shutil.copy(FOLDER / f"{name}.md", private / f"w/.claude/skills/{NAME}/SKILL.md")
    environment = {
        "claudeExecutable": str(cli), "cliVersion": f"{PINNED} (Claude Code)",
        "cliSha256": "0" * 64, "modelId": MODEL, "judgeModelId": OTHER_MODEL,
        "accountLabel": "none", "budgetUsd": "1", "judgeBudgetUsd": "1", "timeoutSeconds": 60,
        "unservedAttempts": 1, "evidenceKind": "synthetic",
        "setEnvironment": {"ANTHROPIC_BASE_URL": url}}
    call = eval_loop.Call("run", "results", "c.run", {}, {},
                          eval_loop.skill_prompt(NAME, "a note"),
                          eval_loop.instrument_of(environment, False), (NAME, b""), None)
    done = subprocess.run([cli, *eval_loop.arguments(call, call_id)], capture_output=True,
                          input=call.prompt.encode(), cwd=private / "w", timeout=120,
                          env=eval_loop.call_environment(environment, str(private)))
    facts = {"elapsedMilliseconds": 1, "exitStatus": done.returncode, "ended": None,
             "cliUnchanged": True, "lapsed": None}
    return {"id": call_id, "says": eval_loop.interpret(call, call_id, facts, done.stdout,
                                                       done.stderr)}


@pytest.fixture(scope="module", params=[("EVAL_LOOP_REAL_CLI", PINNED)])
def asked(request, tmp_path_factory):
    """Return name of a shape -> what the real CLI made of it: {says, requests}."""
    cli = cli_named_by(*request.param)
    names = [*QUIET, *WARNED, *WITH_EFFECT]
    root = tmp_path_factory.mktemp("skills")
    with mock.patch.dict(os.environ, {"ANTHROPIC_API_KEY": "synthetic-key"}), \
            MockApi(default={"text": "A tidy note."}) as api, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        made = dict(zip(names, pool.map(lambda name: ask(cli, api.url, root, name), names),
                        strict=True))
        posts = api.posts()
    for one in made.values():
        one["requests"] = [record for record in posts if session_of(record) == one["id"]]
    return made


@pytest.mark.parametrize("name", [*QUIET, *WARNED])
def test_real_cli_runs_an_accepted_skill_and_sends_its_body(asked, name):
    one = asked[name]
    assert (one["says"]["status"], one["says"]["reason"]) == ("ok", None)
    assert one["says"]["output"] == "A tidy note."
    request, = one["requests"]
    assert request["body"]["model"] == MODEL
    prompt = prompt_of(request["body"])
    assert f"<command-name>/{NAME}</command-name>" in prompt
    if not name.endswith("-body") or BODY in text_of(name):
        assert BODY in prompt


@pytest.mark.parametrize("name", WITH_EFFECT)
def test_real_cli_does_something_else_with_a_refused_skill(asked, name):
    one = asked[name]
    assert [record["body"]["model"] for record in one["requests"]] != [MODEL]
    assert one["says"]["status"] != "ok"


def test_a_key_that_executes_is_found_behind_any_number_of_others():
    keys = "".join(f"key-{number}: v\n" for number in range(300))
    problems, warnings = eval_loop.scan_skill(
        "SKILL.md", NAME, f"---\n{keys}hooks: x\nmodel: y\n---\nText.\n")
    assert [problem.split(": ")[2] for problem in problems] == ["hooks", "model"]
    assert len(warnings) == 100
