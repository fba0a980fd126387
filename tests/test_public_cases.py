"""Failures that people who do this job have reported in public, each under its number.

    E  the headless CLI: envelope, process, cost        S  SKILL.md files
    J  judge, scoring, qualification                    R  receipts, hashes, files

Each was restated with small inputs of our own (data/cases). A fault of the CLI's output is
carried into the array that the program asks for: a captured good output with that one fault.
Where a report asks for another treatment than this program's contract, the test says which
stands.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import resource
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import pytest

import eval_loop
from builder import SKILL_NAME, good, now, sha256
from real_cli import (CAPTURED_SKILL, JUDGED_OUTPUT, MODEL, OTHER_MODEL, PINNED, captured)

CASES = pathlib.Path(__file__).resolve().parent / "data" / "cases"
NUMBERS = """
    E01 E02 E04 E05 E07 E08 E10 E11 E13 E14 E16 E17 E19 E20 E22 E23 E25 E26 E28 E29 E31
    S01 S03 S04 S06 S07 S09 S10 S12 S13 S15 S16 S18 S19
    J02 J03 J05 J06 J08 J09 J11 J12 J14 J15 J17 J18 J20 J21
    R02 R03 R05 R06 R08 R09 R11 R12 R14 R15 R17
""".split()
CALL_ID = "2b3b6f7c-5d1e-4f10-9a35-0c5d8f1e7a42"
MALFORMED = ("error", "malformed-output", "unknown")


def data(name: str):
    """The parsed JSON of one input."""
    return json.loads((CASES / name).read_bytes())


def test_every_case_has_a_test_under_its_number():
    tried = {found[1] for name in globals() if (found := re.match(r"test_([ESJR]\d\d)_", name))}
    assert len(NUMBERS) == 59 and tried == set(NUMBERS)


# ---- outputs with one fault ------------------------------------------------------------------


def call_of(judge: bool) -> eval_loop.Call:
    """The call whose good output was captured."""
    environment = {
        "claudeExecutable": "/opt/claude", "cliVersion": f"{PINNED} (Claude Code)",
        "cliSha256": "0" * 64, "modelId": OTHER_MODEL if judge else MODEL,
        "judgeModelId": MODEL if judge else OTHER_MODEL, "accountLabel": "none",
        "budgetUsd": "1", "judgeBudgetUsd": "0.2", "timeoutSeconds": 60, "unservedAttempts": 1,
        "evidenceKind": "synthetic"}
    return eval_loop.Call("judge" if judge else "run", "results", "c", {}, {}, "",
                          eval_loop.instrument_of(environment, judge),
                          None if judge else (CAPTURED_SKILL, b""),
                          JUDGED_OUTPUT if judge else None)


def interpreted(judge: bool, stdout: bytes, exit_status: int = 0, stderr: bytes = b"") -> dict:
    """What the program makes of the output of one call."""
    facts = {"elapsedMilliseconds": 400, "exitStatus": exit_status, "ended": None,
             "cliUnchanged": True, "lapsed": None}
    return eval_loop.interpret(call_of(judge), CALL_ID, facts, stdout, stderr)


def items_of(judge: bool) -> list[dict]:
    """The items of the captured good output."""
    raw, _ = captured(PINNED, "judge-pass" if judge else "skill-success")
    return json.loads(raw.replace(b"CALL-ID", CALL_ID.encode()))


def raw_of(items: list[dict]) -> bytes:
    return json.dumps(items, ensure_ascii=False).encode() + b"\n"


def says(judge: bool = False, exit_status: int = 0, text: str | None = None, **result) -> dict:
    """What the program makes of a good output whose result item has other values.

    A value of None removes the field; `text` replaces the model's text.
    """
    items = items_of(judge)
    for item in items if text is not None else ():
        if item["type"] == "assistant":
            item["message"]["content"] = [{"type": "text", "text": text}] if text else []
    items[-1].update(result)
    return interpreted(judge, raw_of(items), exit_status)


def told(said: dict) -> tuple:
    return said["status"], said["reason"], said["costUsd"]


def judged(reply, **result) -> dict:
    """What the program makes of a judge that replied `reply` in the one call of its tool."""
    items = items_of(judge=True)
    for item in items:
        if item["type"] == "assistant" and item["message"]["content"][-1]["type"] == "tool_use":
            item["message"]["content"][-1]["input"] = reply
    items[-1].update({"structured_output": reply, **result})
    return interpreted(True, raw_of(items))


def test_the_outputs_that_faults_are_put_into_are_good():
    assert told(says())[:2] == told(says(judge=True))[:2] == ("ok", None)
    assert judged({"evidence": "e", "quote": "q", "verdict": "fail"})["verdict"] == "fail"


@pytest.fixture
def one(make):
    """Return a function: an experiment with one case a split and a baseline plan, not run."""
    def build(**options):
        options = {"development": 1, "heldout": 1, "judge": False, **options}
        experiment = make(**options)
        if options["judge"]:
            experiment.walk(until="policy")
        else:
            experiment.write_policy()
        experiment.plan = experiment.write_plan("baseline", "development")
        return experiment

    return build


def terminals(experiment, part: str) -> list[dict]:
    """The terminal receipts whose file name holds a word."""
    return [receipt for name, receipt in experiment.receipts(part).items()
            if name.endswith(".terminal.json") and "calibrate" not in name]


def rows(experiment) -> dict[str, tuple]:
    """Test id -> (verdict, reason) in the score of the baseline's one case."""
    return {test: (row["verdict"], row["reason"]) for (_, test), row in
            experiment.checks("baseline", "development").items()}


# ---- E: the headless CLI ---------------------------------------------------------------------


def test_E01_a_success_with_an_empty_result_is_no_answer_and_its_price_counts(one):
    usage = {"input_tokens": 900, "output_tokens": 13}
    said = says(text="", result="", total_cost_usd=0.079, usage=usage)
    assert told(said) == ("error", "empty-output", "0.079") and said["output"] is None
    experiment = one()
    experiment.rules({"purpose": "run", "answer": ""})
    for _ in range(2):
        experiment.command("run", experiment.plan)
    assert len(experiment.call_log()) == 1
    experiment.command("score", experiment.plan, expect=0)
    # The contract: an empty answer is the model's own and fails, it is no unknown.
    assert set(rows(experiment).values()) == {("fail", "empty-output")}


@pytest.mark.parametrize("usage", [{}, {"model": "left"}], ids=["no usage", "usage"])
def test_E02_an_error_sentence_in_the_place_of_the_answer_is_never_the_answer(usage):
    sentence = "API Error: request limit reached, retry on friday (429)"
    items = [item for item in items_of(False) if item["type"] != "assistant"]
    items[-1].update(is_error=True, api_error_status=429, result=sentence, total_cost_usd=0,
                     usage={"input_tokens": 0, "output_tokens": 0})
    if not usage:
        items[-1]["modelUsage"] = {}
    said = interpreted(False, raw_of(items))
    assert said["status"] == ("error" if usage else "unserved") and said["output"] is None
    assert "friday" not in json.dumps(said)


def test_E02_a_test_on_a_word_of_the_error_sentence_is_unknown(one):
    tests = [{"id": "day", "kind": "contains", "value": "friday", "critical": False}]
    experiment = one(tests={"d01": tests}, environment={"unservedAttempts": 1})
    experiment.rules({"purpose": "run", "status": 429, "answer": "retry on friday"})
    experiment.command("run", experiment.plan, expect=4)
    experiment.command("score", experiment.plan, "--accept-unknown", "0", expect=(0, 4))
    assert rows(experiment)["day"][0] == "unknown"


def test_E04_a_line_before_the_json_is_not_scraped_away(one):
    raw = b"Notice: a newer build is available.\n" + raw_of(items_of(False))
    assert told(interpreted(False, raw)) == MALFORMED
    experiment = one()
    experiment.rules({"purpose": "run", "stdout": raw.decode()})
    experiment.command("run", experiment.plan, expect=4)
    terminal, = terminals(experiment, ".run.")
    stdout = next(experiment.directory.rglob("*.stdout")).read_bytes()
    assert stdout == raw and terminal["stdoutSha256"] == sha256(raw)
    assert (terminal["reason"], terminal["costUsd"]) == ("malformed-output", "unknown")


@pytest.mark.parametrize("result", [
    'Here is my view.\n```json\n{"verdict": "pass", "evidence": "e", "quote": "q"}\n```', "",
    '{"verdict":"pass","evidence":"e","quote":"q"}'])
def test_E05_a_verdict_in_the_text_is_not_parsed_out_of_it(result):
    items = items_of(True)
    for item in items:
        if item["type"] == "assistant":
            item["message"]["content"] = [{"type": "text", "text": result}]
    items[-1].update(result=result, structured_output=None)
    for missing in (False, True):
        if missing:
            del items[-1]["structured_output"]
        said = interpreted(True, raw_of(items))
        assert told(said) == ("error", "invalid-verdict", "0.0006000000000000001")
        assert said["verdict"] == "unknown"


def test_E07_giving_up_on_the_schema_is_unknown_paid_and_not_repeated(one):
    gave_up = {"subtype": "error_max_structured_output_retries", "is_error": True,
               "total_cost_usd": 0.031, "structured_output": None, "num_turns": 6}
    said = says(judge=True, exit_status=1, **gave_up)
    assert told(said) == ("error", "invalid-verdict", "0.031") and said["verdict"] == "unknown"
    experiment = one(judge=True)
    experiment.command("run", experiment.plan, expect=0)
    experiment.rules({"purpose": "judge", "verdict": "pass", "quote": "x", "evidence": "x",
                      "patch": gave_up, "exit": 1})
    for _ in range(2):
        experiment.command("judge", experiment.plan, expect=4)
    terminal, = terminals(experiment, ".judge.")
    assert (terminal["reason"], terminal["costUsd"]) == ("invalid-verdict", "0.031")


@pytest.mark.parametrize("patch", [
    {"subtype": "error_max_budget_usd", "is_error": True, "structured_output": None}, {}],
    ids=["error", "success"])
def test_E08_a_price_above_the_cap_counts_in_full_and_stops_what_follows(one, patch):
    experiment = one(judge=True, development=3, environment={"judgeBudgetUsd": "0.2"},
                     spending={"spendLimitUsd": "0.72"})
    experiment.command("run", experiment.plan, expect=0)
    experiment.rules({"purpose": "judge", "verdict": "fail", "quote": "", "evidence": "x",
                      "cost": "0.31", "patch": patch, **({"exit": 1} if patch else {})})
    first = experiment.command("judge", experiment.plan, expect=6)
    assert "0.31" in first.stdout and "0.2" in first.stdout and "block" in first.stdout
    assert [one["costUsd"] for one in terminals(experiment, ".judge.")] == ["0.31"]
    # 0.03 for runs, 0.006 for samples, twice 0.31: of 0.72 less than the next 0.2 is left.
    experiment.command("judge", experiment.plan, expect=6)
    refused = experiment.command("judge", experiment.plan, expect=3)
    assert "spendLimitUsd" in refused.stderr and "0.656" in refused.stderr
    assert len(terminals(experiment, ".judge.")) == 2


def test_E10_a_child_that_keeps_stdout_open_neither_delays_nor_loses_the_answer(one):
    experiment = one(environment={"timeoutSeconds": 30})
    experiment.rules({"purpose": "run", "answer": good("d01"), "orphanSeconds": 300})
    experiment.command("run", experiment.plan, expect=0, timeout=120)
    terminal, = terminals(experiment, ".run.")
    assert (terminal["status"], terminal["output"]) == ("ok", good("d01"))
    assert eval_loop.unlocked(str(experiment.directory),     # nobody holds it: all are gone
                              "results/baseline-development/d01.run.1.stdout")


def test_E11_a_cli_that_reads_to_the_end_of_its_input_is_given_an_end(one):
    experiment = one()
    reading, writing = os.pipe()            # the program's own input never ends
    try:
        process = experiment.start("run", experiment.plan, stdin=reading)
        process.communicate(timeout=120)
    finally:
        os.close(reading)
        os.close(writing)
    assert process.returncode == 0
    call, = experiment.call_log()
    assert call["stdin"] == f"/{SKILL_NAME} Task d01: what did shop d01 take in?\n"


def test_E13_nothing_that_has_lines_or_is_the_owners_travels_in_the_argument_vector(one):
    experiment = one(judge=True)
    experiment.command("run", experiment.plan, expect=0)
    experiment.command("judge", experiment.plan, expect=0)
    calls = experiment.call_log()
    assert {call["purpose"] for call in calls} == {"run", "judge"}
    for call in calls:
        words = " ".join(call["argv"])
        assert "\n" not in words and "shop d01" not in words
        assert call["stdin"] and call["stdin"] not in words
    for pending in experiment.receipts("pending").values():     # what was meant to be in force
        assert {"--tools", "--max-budget-usd", "--output-format"} <= set(pending["arguments"])
    assert told(interpreted(True, b'{"verdict": "pass"}')) == MALFORMED


def answers_with(experiment, text, result):
    """Let the stand-in answer each run in the real CLI's format with this text and result."""
    items = items_of(False)
    items[0].update(slash_commands=[SKILL_NAME], claude_code_version="1.0.0")
    for item in items:
        if item["type"] == "assistant":
            item["message"].update(content=[{"type": "text", "text": text}],
                                   model="synthetic-writer-1")
    items[-1].update(result=result, modelUsage={"synthetic-writer-1": {"costBasis": "list"}})
    (experiment.root / "answer.json").write_bytes(
        raw_of(items).replace(CALL_ID.encode(), b"CALL-ID"))
    experiment.rules({"purpose": "run", "capture": str(experiment.root / "answer.json")})


def test_E14_text_is_utf8_whatever_the_locale_and_bad_bytes_are_no_text(one):
    answer = "Café opens at 7 — fee 5 €, ±2 % 例"
    experiment = one(tests={"d01": [{"id": "fee", "kind": "contains", "critical": False,
                                     "value": "5 €, ±2 %"}]})
    answers_with(experiment, answer, answer)
    plain = {"LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for words in ("run", "score"):
        experiment.command(words, experiment.plan, env=plain, expect=0)
    terminal, = terminals(experiment, ".run.")
    assert terminal["output"] == answer and rows(experiment)["fee"] == ("pass", None)
    raw = raw_of(items_of(False)).replace(b"Mercury", b"half \xff\xfe price")
    assert told(interpreted(False, raw)) == MALFORMED


def test_E16_an_output_cut_at_a_pipes_size_is_no_answer_and_a_long_one_is_whole(one):
    text = "line of text\n" * 9_000
    items = items_of(False)
    for item in items:
        if item["type"] == "assistant":
            item["message"]["content"][0]["text"] = text
    items[-1]["result"] = text
    raw = raw_of(items)
    assert len(raw) > 3 * 65_536
    assert told(interpreted(False, raw[:65_536])) == MALFORMED
    assert interpreted(False, raw)["output"] == text
    experiment = one()
    experiment.rules({"purpose": "run", "answer": text})
    experiment.command("run", experiment.plan, expect=0)
    terminal, = terminals(experiment, ".run.")
    assert terminal["output"] == text


def test_E17_a_complete_answer_with_a_bad_exit_is_kept_paid_and_not_counted(one):
    said = says(exit_status=1)
    assert told(said) == ("error", "cli-error", "0.0006000000000000001")
    assert said["output"] is None
    experiment = one()
    experiment.rules({"purpose": "run", "answer": good("d01"), "exit": 1})
    for _ in range(2):
        experiment.command("run", experiment.plan, expect=4)
    assert len(experiment.call_log()) == 1
    stdout = next(experiment.directory.rglob("*.stdout")).read_bytes()
    assert good("d01").encode() in stdout


def test_E19_an_execution_error_without_the_error_mark_is_an_error_and_paid():
    said = says(subtype="error_during_execution", is_error=False, num_turns=0,
                result="partial note", total_cost_usd=0.6571631500000001)
    assert told(said) == ("error", "cli-error", "0.6571631500000001")
    assert said["output"] is None


@pytest.mark.parametrize("price", ["null", '"0.01"', "-1", "0", "0.0", "-0.0", "[]", "true"])
def test_E20_a_price_that_is_none_is_unknown_and_the_answer_stands(price):
    raw = raw_of(items_of(False)).replace(b'"total_cost_usd": 0.0006000000000000001',
                                          b'"total_cost_usd": ' + price.encode())
    assert told(interpreted(False, raw)) == ("ok", None, "unknown")


def test_E20_a_missing_price_is_unknown_and_an_infinite_one_is_no_json():
    items = items_of(False)
    del items[-1]["total_cost_usd"]
    assert told(interpreted(False, raw_of(items))) == ("ok", None, "unknown")
    raw = raw_of(items_of(False)).replace(b"0.0006000000000000001", b"1e999")
    assert told(interpreted(False, raw)) == MALFORMED


def test_E20_an_unknown_price_keeps_its_whole_reservation_and_is_never_summed_as_zero(one):
    experiment = one(development=2)
    experiment.rules({"purpose": "run", "contains": "Task d01", "cost": None,
                      "answer": good("d01")})
    done = experiment.command("run", experiment.plan, expect=0)
    assert "accounting: hold; known 0.01 USD" in done.stdout
    assert "1 of unknown cost (0.1 USD reserved)" in done.stdout


@pytest.mark.parametrize("init", [{"slash_commands": ["help"], "skills": []},
                                  {"slash_commands": ["doctor", CAPTURED_SKILL + "s"],
                                   "skills": ["doctor"]},
                                  {"slash_commands": None, "skills": None}])
def test_E22_an_answer_without_proof_that_the_skill_was_loaded_is_unknown(init):
    chatty = "I do not have a skill with that name, but here is a tidy note: Friday."
    items = items_of(False)
    items[0].update(init)
    items[-1]["result"] = chatty
    said = interpreted(False, raw_of(items))
    assert said["reason"] == "skill-not-loaded" and said["output"] is None


def test_E22_a_skill_that_was_not_loaded_is_neither_pass_nor_fail(one):
    experiment = one()
    experiment.rules({"purpose": "run", "answer": good("d01"), "skills": ["doctor"]})
    experiment.command("run", experiment.plan, expect=4)
    experiment.command("score", experiment.plan, expect=4)
    assert set(rows(experiment).values()) == {("unknown", "skill-not-loaded")}


def test_E23_a_memory_file_in_the_owners_home_is_out_of_the_clis_reach(one, monkeypatch):
    experiment = one()
    memory = experiment.home / ".claude" / "CLAUDE.md"
    memory.parent.mkdir()
    memory.write_text("Always end answers with the word MARKER-ORCHID.\n")
    experiment.command("run", experiment.plan, expect=0)
    call, = experiment.call_log()
    assert "HOME" in call["environment"]
    assert call["cwd"] == f"/tmp/{call['callId']}/w"
    monkeypatch.setenv("HOME", str(experiment.home))
    given = eval_loop.call_environment(experiment.read("environment.json"), "/tmp/private")
    assert given["HOME"] == "/tmp/private/home"
    assert str(experiment.home) not in json.dumps(given)


@pytest.mark.parametrize("stop, reason", [("max_tokens", "cli-error"), ("refusal", "refusal"),
                                          (None, "cli-error"),
                                          ("model_context_window_exceeded", "cli-error"),
                                          ("pause_turn", "cli-error"),
                                          ("something_new", "cli-error")])
def test_E25_only_an_end_that_is_known_to_be_whole_is_a_whole_answer(stop, reason):
    said = says(stop_reason=stop)
    assert (said["status"], said["reason"]) == ("error", reason)
    assert said["output"] is None


def test_E26_a_denied_use_of_a_tool_is_no_clean_answer():
    said = says(permission_denials=[{"tool_name": "Write", "tool_use_id": "t-1"}])
    assert (said["status"], said["reason"]) == ("error", "cli-error")


@pytest.mark.parametrize("old, new", [
    (b'"total_cost_usd": 0.0006000000000000001', b'"total_cost_usd": NaN'),
    (b'"costUSD": 0.0006000000000000001', b'"costUSD": Infinity'),
    (b'"num_turns": 1', b'"num_turns": -Infinity')])
def test_E28_a_number_that_is_none_makes_the_output_no_json(old, new):
    raw = raw_of(items_of(False))
    assert old in raw
    assert told(interpreted(False, raw.replace(old, new))) == MALFORMED


@pytest.mark.parametrize("turns", [9, 2, 0, -1, "1", None, True])
def test_E29_more_turns_than_were_allowed_are_not_plain_ok(turns):
    assert says(num_turns=turns)["status"] == "error"


def test_E31_a_call_that_timed_out_is_never_made_again_and_stays_reserved(one):
    experiment = one(environment={"timeoutSeconds": 1})
    experiment.rules({"purpose": "run", "hang": True})
    experiment.command("run", experiment.plan, expect=4)
    again = experiment.command("run", experiment.plan, expect=4)
    assert len(experiment.call_log()) == 1
    terminal, = terminals(experiment, ".run.")
    assert (terminal["reason"], terminal["costUsd"]) == ("timeout", "unknown")
    assert "1 of unknown cost (0.1 USD reserved)" in again.stdout


# ---- S: SKILL.md files -----------------------------------------------------------------------


def scanned(file: str, name: str = "note-tidier") -> tuple[list[str], list[str]]:
    """What the program says of one file: (problems, warnings)."""
    return eval_loop.scan_skill("SKILL.md", name, (CASES / file).read_bytes().decode("utf-8"))


def accepted(file: str, *words: str, name: str = "note-tidier") -> None:
    """Assert that a file is accepted, with a warning for each word and no other."""
    problems, warnings = scanned(file, name)
    assert problems == [] and len(warnings) == len(words), (problems, warnings)
    assert all(word in warning for word, warning in zip(words, warnings, strict=True))


def refused(file: str, *words: str) -> None:
    """Assert that a file is refused, with a problem for each word and no other."""
    problems, _ = scanned(file)
    assert len(problems) == len(words), problems
    assert all(word in problem for word, problem in zip(words, problems, strict=True))


def test_S01_an_unquoted_colon_is_warned_of_with_line_and_cure():
    accepted("S01/SKILL.md", "line 3: description")
    assert "quote it" in scanned("S01/SKILL.md")[1][0]


@pytest.mark.parametrize("file", ["double.md", "single.md", "name-quoted.md", "name-single.md"])
def test_S03_quoted_values_and_names_are_accepted(file):
    accepted(f"S03/{file}")


@pytest.mark.parametrize("file", ["list.md", "inline.md", "empty.md"])
def test_S04_allowed_tools_are_accepted_and_said_to_be_denied(file):
    # The contract: the key changed nothing in the measured request, so the text is measurable.
    accepted(f"S04/{file}", "line 4: allowed-tools: tools are denied here")


@pytest.mark.parametrize("file", ["SKILL.md", "mixed.md"])
def test_S06_line_ends_of_windows_are_recognised_warned_of_and_hashed_as_they_are(file):
    raw = (CASES / "S06" / file).read_bytes()
    assert b"\r\n" in raw
    accepted(f"S06/{file}", "CRLF")
    text = raw.decode().replace("description: Tidies", "model: Tidies")
    assert "line 3: model" in eval_loop.scan_skill("S", "note-tidier", text)[0][0]


def test_S07_a_byte_order_mark_is_warned_of_and_utf16_is_no_utf8(one):
    accepted("S07/bom.md", "byte-order mark")
    raw = (CASES / "S07/utf16.md").read_bytes()
    experiment = one()
    skill = experiment.skill_file("baseline")
    experiment.write(skill, raw)
    plan = experiment.write_plan("baseline", "development")
    refusal = experiment.command("check", plan, expect=3).stderr
    assert f"{skill}: is not UTF-8" in refusal and "save it as UTF-8" in refusal


@pytest.mark.parametrize("file", ["differs.md", "spaced.md", "yes.md"])
def test_S09_a_name_that_is_not_the_policys_is_refused_by_both(file):
    given = re.search(r"name: (.*)", (CASES / "S09" / file).read_text())[1]
    refused(f"S09/{file}", "expected note-tidier")
    assert given in scanned(f"S09/{file}")[0][0]


@pytest.mark.parametrize("file, name", [("digits.md", "7-day-note"), ("long.md", "n" * 64),
                                        ("missing.md", "note-tidier")])
def test_S09_a_legal_or_missing_name_is_accepted(file, name):
    accepted(f"S09/{file}", name=name)


@pytest.mark.parametrize("file", ["true.md", "False.md", "quoted-false.md"])
def test_S10_invocation_by_the_model_makes_no_odds_in_a_named_call(file):
    accepted(f"S10/{file}")     # measured: the request of /NAME is identical


def test_S10_a_skill_that_users_may_not_invoke_is_refused_however_it_is_spelt():
    refused("S10/ui-false.md", "line 4: user-invocable")
    accepted("S10/ui-quoted.md")
    text = (CASES / "S10/ui-false.md").read_text()
    for spelling in ("False", "FALSE", '"false"', "'false'", "no", "off", "0", "~"):
        again = text.replace("invocable: false", f"invocable: {spelling}")
        assert eval_loop.scan_skill("S", "note-tidier", again)[0], spelling


@pytest.mark.parametrize("file, word", [
    ("live.md", "line 7: a command"), ("fenced.md", "line 8: a command"),
    ("front.md", "line 3: a command"), ("prose.md", "line 7: inline code that ends in !")])
def test_S12_a_bang_before_a_backtick_is_refused_with_its_line(file, word):
    refused(f"S12/{file}", word)
    assert "reword" in scanned(f"S12/{file}")[0][0]


@pytest.mark.parametrize("file, line", [("block.md", 7), ("indented.md", 8), ("tilde.md", 7)])
def test_S13_the_block_form_of_a_command_is_refused_with_its_line(file, line):
    refused(f"S13/{file}", f"line {line}: a command block")


def test_S15_yaml_that_loaders_read_differently_is_refused_and_the_common_forms_are_not():
    accepted("S15/bracket-hint.md")
    accepted("S15/comment-in-value.md")
    refused("S15/anchor.md", "line 3: description")
    refused("S15/duplicate.md", "line 4:")
    refused("S15/merge.md", "line 4: <<")


@pytest.mark.parametrize("file, keys", [
    ("model.md", ["model"]), ("context.md", ["context", "agent"]), ("hooks.md", ["hooks"]),
    ("effort.md", ["effort"]), ("arguments.md", ["arguments"])])
def test_S16_a_key_that_changes_what_runs_is_refused_by_name(file, keys):
    refused(f"S16/{file}", *(f": {key}: changes or executes" for key in keys))


@pytest.mark.parametrize("file, key", [("case.md", "Allowed-Tools"),
                                       ("under.md", "allowed_tools")])
def test_S16_a_key_in_another_spelling_is_warned_of_as_unknown(file, key):
    # The contract: measured keys are case-sensitive and such a one does nothing today.
    accepted(f"S16/{file}", f"{key}: unknown to this program")


def test_S18_files_of_a_file_manager_that_appear_later_change_nothing(one):
    experiment = one()
    experiment.command("run", experiment.plan, expect=0)
    top = experiment.path("skills/baseline")
    (top / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (top / f".claude/skills/{SKILL_NAME}/._SKILL.md").write_bytes(b"\0\5\x16\7")
    experiment.command("score", experiment.plan, expect=0)
    notes = top / f".claude/skills/{SKILL_NAME}/references/notes.md"
    notes.parent.mkdir()
    notes.write_text("x")
    refusal = experiment.command("score", experiment.plan, expect=3).stderr
    assert "references/notes.md" in refusal and "self-contained" in refusal
    assert "Bud1" not in refusal and "._SKILL.md" not in refusal


@pytest.mark.parametrize("file", ["slash.txt", "at.txt", "plain.txt"])
def test_S19_an_input_is_never_the_start_of_the_prompt(one, file):
    raw = (CASES / "S19" / file).read_bytes()
    experiment = one(inputs={"d01": raw})
    experiment.rules({"purpose": "run", "answer": good("d01")})
    experiment.command("run", experiment.plan, expect=0)
    call, = experiment.call_log()
    assert call["stdin"] == f"/{SKILL_NAME} {raw.decode()}"
    pending, = [receipt for name, receipt in experiment.receipts("d01.run").items()
                if "pending" in name]
    assert pending["prompt"] == call["stdin"]


# ---- J: judge, scoring, qualification --------------------------------------------------------


REPLY = {"evidence": "The source states 2439.7 km.", "quote": "2439.7 km", "verdict": "pass"}


def assert_no_verdict(said: dict) -> None:
    assert (said["status"], said["reason"]) == ("error", "invalid-verdict")
    assert (said["verdict"], said["evidence"], said["quote"]) == ("unknown", None, None)
    assert said["costUsd"] == "0.0006000000000000001"


@pytest.mark.parametrize("word", ["pass\u200b", "\ufeffpass", "p\u0430ss", "pass ", "pass\n",
                                  "PASS", "ｐａｓｓ", "pa\u00adss", ""])
def test_J02_a_verdict_with_an_invisible_or_foreign_letter_is_none(word):
    assert_no_verdict(judged({**REPLY, "verdict": word}))


@pytest.mark.parametrize("value", [True, False, "false", "true", None, ["pass"], {"pass": 1}, 1,
                                   0])
def test_J03_a_verdict_of_another_type_is_none(value):
    assert_no_verdict(judged({**REPLY, "verdict": value}))


@pytest.mark.parametrize("missing", REPLY)
def test_J03_a_reply_without_one_of_its_parts_is_none(missing):
    assert_no_verdict(judged({name: value for name, value in REPLY.items() if name != missing}))


@pytest.mark.parametrize("reply", [
    json.dumps(REPLY), [REPLY], {"result": REPLY}, '{"verdict":"pass","evidence":"says "ok""}',
    None, [], "pass", 5], ids=range(8))
def test_J05_a_reply_that_is_wrapped_or_text_is_not_parsed_again(reply):
    assert_no_verdict(judged(reply))


@pytest.mark.parametrize("change", [{"confidence": 0.2}, {"evidence": ""},
                                    {"evidence": "  \n"}, {"Verdict": "pass"}])
def test_J06_a_reply_with_another_key_or_without_evidence_is_none(change):
    assert_no_verdict(judged({**REPLY, **change}))


def test_J06_a_huge_evidence_is_kept_whole_and_not_printed(one):
    evidence = "e" * 200_000
    said = judged({**REPLY, "evidence": evidence})
    assert told(said)[:2] == ("ok", None) and said["evidence"] == evidence
    experiment = one(judge=True)
    experiment.command("run", experiment.plan, expect=0)
    experiment.rules({"purpose": "judge", "verdict": "fail", "quote": "", "evidence": evidence})
    done = experiment.command("judge", experiment.plan, expect=0)
    assert max(map(len, (done.stdout + done.stderr).splitlines())) < 400


def test_J08_a_grader_that_failed_is_unknown_and_no_failed_answer(one):
    experiment = one(judge=True, development=2)
    experiment.command("run", experiment.plan, expect=0)
    experiment.rules({"purpose": "judge", "contains": "d02", "stdout": "", "exit": 1})
    experiment.command("judge", experiment.plan, expect=4)
    done = experiment.command("score", experiment.plan, expect=4)
    found = experiment.checks("baseline", "development")
    assert found["d01", "grounded-1"]["verdict"] == "fail"
    second = found["d02", "grounded-1"]
    assert (second["verdict"], second["reason"]) == ("unknown", "malformed-output")
    counts = experiment.read("results/baseline-development/score.json")["totals"]
    assert (counts["unknown"], counts["total"]) == (1, 6)
    assert counts["unknownReasons"] == {"malformed-output": 1}
    assert "malformed-output" in done.stdout


def arm_rows(verdicts, kind: str = "judge") -> list[eval_loop.Row]:
    """Rows of one arm: one check a case."""
    return [eval_loop.Row(f"c{number}", "t", kind, False, verdict,
                          "killed" if verdict == "unknown" else None, [], [])
            for number, verdict in enumerate(verdicts)]


def weighed(before, after, **gates) -> dict:
    """What the gates make of two arms with one check a case, in both splits."""
    policy = {"minimumHeldoutScore": "0", "minimumHeldoutGain": "0", "maximumGainPValue": "1",
              "maximumUnknownShare": "1", "maximumWorseFamiliesShare": "1", **gates}
    arms = {"baseline": arm_rows(before), "candidate": arm_rows(after)}
    parts = {f"{arm}{split}": one for arm, one in arms.items()
             for split in ("Development", "Heldout")}
    return eval_loop.weigh(policy, parts, {f"c{number}": f"f{number}"
                                           for number in range(len(before))})


def test_J09_unknown_rows_stay_in_the_denominator_and_hold():
    told_of = data("J09/rows.json")
    for arm in ("armA", "armB"):
        counts = eval_loop.totals(arm_rows(told_of[arm]))
        assert [counts["passed"], counts["total"]] == told_of["expected"][arm]
        assert counts["unknown"] == told_of[arm].count("unknown")
    held = weighed(told_of["armA"], told_of["armB"], maximumUnknownShare="0.1")
    assert any(reason.startswith("maximumUnknownShare: 0.5") for reason in held["reasons"])


@pytest.mark.parametrize("change", [
    lambda raw: raw.replace(b'"verdict":"fail"', b'"verdict":"pass"', 1),
    lambda raw: re.sub(rb'"planSha256":"\w+"', b'"planSha256":"' + b"0" * 64 + b'"', raw),
    lambda raw: re.sub(rb'"total":(\d+)', rb'"total":\1.0', raw),
    lambda raw: raw.replace(b'":', b'": ', 1)],
    ids=["edited", "foreign", "another spelling", "a blank"])
def test_J11_a_score_that_its_receipts_do_not_give_is_refused(ready, change):
    experiment = ready("heldout")
    file = experiment.score_name("baseline", "development")
    raw = experiment.path(file).read_bytes()
    assert change(raw) != raw
    experiment.write(file, change(raw))
    refusal = experiment.command("compare", *experiment.plan_names(), expect=3).stderr
    assert file in refusal
    assert not experiment.path("comparison.json").exists()


def test_J12_a_pattern_that_never_ends_is_unknown_and_the_others_are_scored():
    output = (CASES / "J12/output.txt").read_text()
    verdicts = {test["id"]: eval_loop.literal_verdict(
        SimpleNamespace(**test), output, eval_loop.normalise(output))
        for test in data("J12/expected.json")["tests"]}
    assert verdicts == {"t1": ("unknown", "regex-timeout"), "t2": ("pass", None)}


def test_J14_letters_in_another_form_are_the_same_letters_for_and_against():
    output = (CASES / "J14/output-nfc.txt").read_text("utf-8")
    assert "\u00e9" in output and "\u00a0" in output
    verdicts = [eval_loop.literal_verdict(SimpleNamespace(**test), output,
                                          eval_loop.normalise(output))[0]
                for test in data("J14/expected.json")["tests"]]
    assert verdicts == ["pass", "fail", "pass"]
    assert eval_loop.normalise("12 km") != eval_loop.normalise("13 km")


def test_J15_blank_values_are_refused_and_a_pattern_of_nothing_is_warned_of(make):
    tests = data("J15/expected.json")["tests"]
    experiment = make(judge=False, development=1, heldout=1, tests={"d01": tests})
    refusal = experiment.command("check", "development-cases.json", expect=3).stderr
    for number, test in enumerate(tests):
        place = f"cases/d01/expected.json: $.tests[{number}].value"
        assert (place in refusal) == (not test["value"].strip())
    lax = [test for test in tests if test["value"].strip()]
    experiment = make(judge=False, development=1, heldout=1, tests={"d01": lax})
    told_of = experiment.command("check", experiment.write_policy(), expect=0).stderr
    assert "test t4" in told_of and "empty text" in told_of


@pytest.mark.parametrize("pair", data("J17/pairs.json"), ids=str)
def test_J17_a_gain_is_compared_as_the_exact_fraction_that_its_text_says(pair):
    arms = [["pass"] * pair[arm] + ["fail"] * (pair["n"] - pair[arm])
            for arm in ("base", "cand")]
    gate = next(gate for gate in weighed(*arms, minimumHeldoutGain=pair["gain"])["gates"]
                if gate["gate"] == "minimumHeldoutGain")
    assert gate["met"] is pair["meets"]
    shown = [Fraction(gate[name]) for name in ("got", "limit")]
    assert (shown[0] >= shown[1]) is pair["meets"]


@pytest.mark.parametrize("errors, n, bound", data("J18/bounds.json"))
def test_J18_an_error_bound_is_exact_at_the_edges(errors, n, bound):
    assert abs(eval_loop.upper_bound(errors, n) - Fraction(str(bound))) < Fraction(1, 10**6)


def test_J18_no_evidence_bounds_nothing_and_impossible_counts_are_refused():
    assert eval_loop.upper_bound(0, 0) == eval_loop.upper_bound(7, 7) == 1
    bounds = [eval_loop.upper_bound(errors, 30) for errors in range(31)]
    assert bounds == sorted(set(bounds))
    for errors, n in ((4, 3), (-1, 3), (True, 3), (0, -1), (0.5, 3), (1, 3.0), ("1", 3)):
        with pytest.raises(ValueError):
            eval_loop.upper_bound(errors, n)


@pytest.mark.parametrize("unknown", [5, 20])
def test_J20_abstentions_stay_in_the_denominator_and_have_a_limit_of_their_own(unknown):
    verdicts = ["fail"] * (20 - unknown) + ["unknown"] * unknown
    judged_rows = [eval_loop.Judged(f"s{number}", "c", None, "fail", verdict, True, True)
                   for number, verdict in enumerate(verdicts)]
    limits = {"minimumPerClass": 10, "maximumFalsePassBound": "0.15",
              "maximumFalseBlockBound": "0.5", "maximumUnsupportedPassBound": "0.5",
              "maximumAbstentionRate": "0.1", "requireTwoReviewers": False,
              "jointConfidence": False}
    record = eval_loop.qualify(judged_rows, limits)
    group, = record["groups"]
    assert (group["falsePass"]["errors"], group["falsePass"]["n"]) == (0, 20)
    assert abs(Fraction(group["falsePass"]["upperBound"]) - Fraction("0.139108")) < Fraction(
        1, 10**5)
    assert (group["abstention"]["errors"], group["abstention"]["n"]) == (unknown, 20)
    assert record["status"] == "not-qualified"
    assert any(f"maximumAbstentionRate: {unknown} of 20" in text for text in group["missed"])


def review(name: str, verdict: str = "pass") -> dict:
    return {"reviewedBy": name, "humanVerdict": verdict}


@pytest.mark.parametrize("sample, words", [
    ({**review("A. Reviewer"), "secondReview": review("a.  reviewer ")}, ["one person"]),
    ({**review("A. Reviewer"), "secondReview": review("model-judge-9")},
     ["model-judge-9", "reviewers"]),
    ({**review("A. Reviewer"), "secondReview": review("B. Reviewer", "fail")},
     ["disagree", "adjudication"]),
    ({**review("A. Reviewer"), "secondReview": review("B. Reviewer", "fail"),
      "adjudication": review("B. Reviewer", "fail")}, ["one person"])])
def test_J21_labels_that_are_not_two_independent_peoples_are_refused_for_their_reason(sample,
                                                                                      words):
    _, problems = eval_loop.label_of(sample, ["A. Reviewer", "B. Reviewer", "C. Third"], True)
    assert any(all(word in problem for word in words) for problem in problems), problems


# ---- R: receipts, hashes, files --------------------------------------------------------------


def test_R02_what_the_program_writes_ends_in_a_newline_that_hooks_leave_alone(walked):
    experiment = walked("decide")
    written = [name for name in experiment.files() if re.search(
        r"\.(pending|terminal)\.json$|(score|calibration|comparison|-receipt)\.json$", name)]
    assert len(written) > 40
    for name in written:
        raw = experiment.path(name).read_bytes()
        assert raw.endswith(b"}\n") and raw.count(b"\n") == 1, name


def test_R02_a_final_newline_more_or_less_is_refused_and_called_so(ready):
    experiment = ready("policy")
    plan = experiment.write_plan("baseline", "development")
    policy = experiment.path("policy.json")
    policy.write_bytes(policy.read_bytes().rstrip(b"\n"))
    refusal = experiment.command("check", plan, expect=3).stderr
    assert "policy.json: expected sha256" in refusal and "final newline" in refusal


@pytest.mark.parametrize("file, word", [
    ("plan-bom.json", "byte-order mark"), ("plan-utf16.json", "not UTF-8"),
    ("approval-latin1.json", "not UTF-8")])
def test_R03_a_document_in_another_encoding_is_refused_in_one_line(tmp_path, monkeypatch,
                                                                   capsys, file, word):
    (tmp_path / file).write_bytes((CASES / "R03" / file).read_bytes())
    monkeypatch.chdir(tmp_path)
    assert eval_loop.main(["check", file]) == 3
    line, = capsys.readouterr().err.splitlines()
    assert line.startswith(f"refused: {file}: ") and word in line


@pytest.mark.parametrize("document, old, new, field", [
    ("policy.json", '"minimumHeldoutScore": "0.7"', '"minimumHeldoutScore": true',
     "minimumHeldoutScore"),
    ("policy.json", '"minimumHeldoutScore": "0.7"', '"minimumHeldoutScore": NaN', "NaN"),
    ("policy.json", '"minimumHeldoutGain": "0.1"', '"minimumHeldoutGain": 1e999', "1e999"),
    ("policy.json", '"repeatsPerCase": 1', '"repeatsPerCase": 1.0', "repeatsPerCase"),
    ("policy.json", '"repeatsPerCase": 1', '"repeatsPerCase": true', "repeatsPerCase"),
    ("policy.json", '"repeatsPerCase": 1', '"maxTurns": true, "repeatsPerCase": 1', "maxTurns"),
    ("environment.json", '"timeoutSeconds": 60', '"timeoutSeconds": 0', "timeoutSeconds"),
    ("environment.json", '"timeoutSeconds": 60', '"timeoutSeconds": -5', "timeoutSeconds"),
    ("environment.json", '"budgetUsd": "0.10"', '"budgetUsd": "1e0"', "budgetUsd"),
])
def test_R05_a_number_that_is_not_the_number_it_looks_like_is_refused_by_field(
        ready, document, old, new, field):
    experiment = ready("policy", judge=False, development=1, heldout=1)
    text = experiment.path(document).read_text()
    assert old in text
    experiment.write(document, text.replace(old, new))
    refusal = experiment.command("check", document, expect=3).stderr
    assert f"refused: {document}: " in refusal and field in refusal


@pytest.mark.parametrize("number", ["1.0", "0.10", 1, Decimal("1.0")])
def test_R05_money_may_be_text_or_number_and_is_exact(number):
    # The contract: decimal text is recommended, so "1.0" is no defect.
    assert eval_loop.decimal_of(number) == Decimal(str(number))
    assert eval_loop.decimal_of(True) is None


def test_R06_the_same_value_in_other_bytes_is_refused_and_called_so(ready):
    experiment = ready("compare")
    experiment.write_decision()
    for name in ("comparison.json", experiment.score_name("candidate", "heldout")):
        raw = experiment.path(name).read_bytes()
        experiment.write(name, json.dumps(json.loads(raw), indent=2, sort_keys=True))
        refusal = experiment.command("decide", "comparison.json", "decision.json",
                                     expect=3).stderr
        assert f"{name}: differs" in refusal and "same value, other bytes" in refusal
        experiment.write(name, raw)
    experiment.command("decide", "comparison.json", "decision.json", expect=0)


def test_R08_a_skill_changed_during_a_run_is_not_the_one_that_ran(one, monkeypatch, capsys):
    experiment = one(development=2)
    skill = experiment.path(experiment.skill_file("baseline"))
    hashed, seen, real = skill.read_bytes(), [], eval_loop.spawn

    def spawn(program, flight):
        with open(skill, "ab") as stream:
            stream.write(b"\nAlso praise the reader.\n")
        placed = pathlib.Path(flight.private, "w/.claude/skills", SKILL_NAME, "SKILL.md")
        seen.append(placed.read_bytes())
        return real(program, flight)

    monkeypatch.chdir(experiment.directory)
    monkeypatch.setattr(eval_loop, "spawn", spawn)
    assert eval_loop.main(["run", experiment.plan]) == 0
    assert seen == [hashed, hashed]         # both calls got the bytes that were hashed
    assert eval_loop.main(["score", experiment.plan]) == 3
    told_of = capsys.readouterr().err
    assert "SKILL.md: expected sha256" in told_of
    skill.write_bytes(hashed)
    assert eval_loop.main(["score", experiment.plan]) == 0


@pytest.mark.parametrize("path", data("R09/refs.json"))
def test_R09_a_path_that_leaves_the_experiment_or_is_no_plain_one_is_refused(
        tmp_path, monkeypatch, capsys, path):
    inside = tmp_path / "experiment"
    inside.mkdir()
    (inside / "in.txt").write_bytes(b"x")
    (inside / "link.txt").symlink_to("/etc/hostname")
    (inside / "cases.json").write_text(json.dumps({
        "split": "development", "testVersion": "1", "permittedBy": "Olga", "cases": [{
            "id": "c1", "caseGroup": "g", "sourceId": "s", "sourceRevision": "1",
            **{name: {"file": path, "sha256": sha256(b"x")}
               for name in ("input", "truth", "expected")}}]}))
    monkeypatch.chdir(inside)
    assert eval_loop.main(["check", "cases.json"]) == 3
    told_of = capsys.readouterr().err
    where = "link.txt: " if path == "link.txt" else "$.cases[0].input.file: expected a relative"
    assert where in told_of
    assert pathlib.Path("/etc/hostname").read_text().strip() not in told_of


@pytest.mark.parametrize("torn", [b"\0" * 300, b"", b'{"kind":"terminal","purp', b"[]\n"],
                         ids=["zeros", "empty", "cut", "list"])
def test_R11_a_torn_receipt_is_never_taken_for_absent(ready, torn):
    experiment = ready("policy", judge=False, development=1, heldout=1)
    plan = experiment.write_plan("baseline", "development")
    experiment.command("run", plan, expect=0)
    terminal = experiment.path("results/baseline-development/d01.run.1.terminal.json")
    whole = terminal.read_bytes()
    terminal.write_bytes(torn)
    for words in ("run", "score"):
        assert terminal.name in experiment.command(words, plan, expect=3).stderr
    assert len(experiment.call_log()) == 1 and terminal.read_bytes() == torn
    terminal.write_bytes(whole)
    experiment.command("score", plan, expect=0)


def test_R12_a_receipt_that_does_not_fit_loses_no_answer_and_leaves_no_half_file(one):
    answer = "é" * 4_000        # as UTF-8 a fraction of what the ASCII of a receipt needs
    experiment = one()
    answers_with(experiment, answer, "")

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    process = experiment.start("run", experiment.plan, preexec_fn=limited)
    printed, refusal = process.communicate(timeout=120)
    assert process.returncode == 6, printed + refusal
    assert "d01.run.1.stdout" in printed + refusal
    results = experiment.path("results/baseline-development")
    assert sorted(path.name for path in results.iterdir()) == [
        "d01.run.1.pending.json", "d01.run.1.stderr", "d01.run.1.stdout"]
    done = experiment.command("run", experiment.plan, expect=0)
    assert "0.0006" in done.stdout and len(experiment.call_log()) == 1
    terminal, = terminals(experiment, ".run.")
    assert (terminal["status"], terminal["output"]) == ("ok", answer)


@pytest.mark.parametrize("text", data("R14/times.json"))
def test_R14_a_time_is_accepted_only_as_one_instant_that_has_been(tmp_path, monkeypatch, capsys,
                                                                  text):
    spending = {"spendLimitUsd": "5", "approvedBy": "Olga", "approvedAtUtc": text}
    (tmp_path / "spending.json").write_text(json.dumps(spending))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eval_loop, "utc_now", lambda: eval_loop.parse_utc(
        "2026-12-01T00:00:00Z"))
    status = eval_loop.main(["check", "spending.json"])
    if text in ("2026-11-30T10:00:00Z", "2026-11-30T12:00:00+02:00"):
        assert status == 0
        assert eval_loop.parse_utc(text) == eval_loop.parse_utc("2026-11-30T10:00:00Z")
    else:
        assert status == 3
        assert "refused: spending.json: $.approvedAtUtc: " in capsys.readouterr().err


def test_R14_a_time_equal_to_the_last_receipts_is_allowed(ready):
    experiment = ready("compare")
    score = experiment.read(experiment.score_name("candidate", "heldout"))
    experiment.write_decision(decidedAtUtc=max(score["lastAtUtc"], now()))
    experiment.command("decide", "comparison.json", "decision.json", expect=0)


def test_R15_the_longest_names_that_a_document_allows_fit_a_file_system(one):
    # Windows itself is not supported; on the others one name may have 255 bytes.
    fragment = data("R15/plan-fragment.json")
    case, test, folder = fragment["id"], fragment["testId"], fragment["resultDir"]
    longest = f".{case}.{test}.judge.9999.terminal.json.{'0' * 16}.tmp"
    assert len(longest) <= 255
    experiment = one()
    experiment.case_ids["development"] = [case]
    experiment.tests[case] = [{"id": test, "kind": "contains", "value": "money",
                               "critical": False}]
    experiment.write_case_files(case)
    experiment.write_inventory("development")
    experiment.rules()
    experiment.write_policy()
    plan = experiment.write_plan("baseline", "development", resultDir=folder)
    experiment.command("run", plan, expect=0)
    experiment.command("score", plan, expect=0)
    row, = experiment.read(f"{folder}/score.json")["rows"]
    assert (row["caseId"], row["testId"], row["verdict"]) == (case, test, "pass")


@pytest.mark.parametrize("text", data("R17/hashes.json"))
def test_R17_a_hash_in_another_spelling_is_called_that_and_no_mismatch(tmp_path, monkeypatch,
                                                                       capsys, text):
    (tmp_path / "decision.json").write_text(json.dumps({
        "owner": "Olga", "decidedAtUtc": now(), "decision": "hold", "reason": "r",
        "comparisonSha256": text, "candidateSkillSha256": "FILL: hash of the SKILL.md"}))
    monkeypatch.chdir(tmp_path)
    assert eval_loop.main(["check", "decision.json"]) == 3
    first, second = capsys.readouterr().err.splitlines()
    assert "$.comparisonSha256: expected 64 lower-case hex digits, got " in first
    assert "$.candidateSkillSha256: placeholder not filled in" in second


def test_the_inputs_are_there():
    counts = collections.Counter(path.parent.name for path in CASES.rglob("*")
                                 if path.is_file())
    assert set(counts) <= set(NUMBERS) and sum(counts.values()) >= 55
