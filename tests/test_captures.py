"""What the CLI really printed, read by the program's own pure interpretation.

tests/data/captures/VERSION holds the exact output of two CLI versions for every outcome of
real_cli.OUTCOMES and EXTRA_OUTCOMES. What each has to mean stands there too, worked out from
the contract.
"""

import json
import sys
import uuid

import pytest

from builder import PROGRAM
from real_cli import (CAPTURED_SKILL, CAPTURES, EXTRA_OUTCOMES, FLOOR, FUTURE_MODEL,
                      JUDGED_OUTPUT, MODEL, OTHER_MODEL, OUTCOMES, PINNED, captured)

sys.path.insert(0, str(PROGRAM.parent))
import eval_loop  # noqa: E402  (the program is no installed module)

ALL = {**OUTCOMES, **EXTRA_OUTCOMES}
CALL_ID = str(uuid.UUID(int=0x2b3b6f7c_5d1e_4f10_9a35_0c5d8f1e7a42))
VERSIONS = (FLOOR, PINNED)
FACTS = {"elapsedMilliseconds": 400, "exitStatus": 0, "ended": None, "cliUnchanged": True,
         "lapsed": None}


def environment(version: str, model: str, judge_model: str) -> dict:
    return {"claudeExecutable": "/opt/claude", "cliVersion": f"{version} (Claude Code)",
            "cliSha256": "0" * 64, "modelId": model, "judgeModelId": judge_model,
            "accountLabel": "none", "budgetUsd": "1", "judgeBudgetUsd": "0.2",
            "timeoutSeconds": 60, "unservedAttempts": 1, "evidenceKind": "synthetic"}


def call_of(name: str, version: str) -> eval_loop.Call:
    """The call whose output a capture is."""
    if name.startswith("judge-"):
        judge = eval_loop.instrument_of(environment(version, OTHER_MODEL, MODEL), True)
        return eval_loop.Call("judge", "results", "c.t.judge", {}, {}, "", judge, None,
                              JUDGED_OUTPUT)
    model = FUTURE_MODEL if ALL[name].situation == "future-model" else MODEL
    skill = "nosuch" if ALL[name].situation == "other-skill" else CAPTURED_SKILL
    use = eval_loop.instrument_of(environment(version, model, OTHER_MODEL), False)
    return eval_loop.Call("run", "results", "c.run", {}, {}, "", use, (skill, b""), None)


def interpreted(name: str, version: str, stdout: bytes | None = None, **facts) -> dict:
    """What the program makes of a capture, or of other bytes in its place."""
    stored, stored_facts = captured(version, name)
    stdout = stored.replace(b"CALL-ID", CALL_ID.encode()) if stdout is None else stdout
    return eval_loop.interpret(
        call_of(name, version), CALL_ID,
        {**FACTS, "exitStatus": stored_facts["exitCode"], **facts},
        stdout, stored_facts["stderr"].encode())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_outcome_has_a_capture_and_every_capture_an_outcome(version):
    stored = {path.stem for path in (CAPTURES / version).glob("*.stdout")}
    facts = json.loads((CAPTURES / version / "facts.json").read_text("utf-8"))
    assert len(OUTCOMES) == 53
    assert stored == set(facts) == set(ALL)
    for name, outcome in ALL.items():
        assert facts[name]["apiRequests"] == outcome.requests_of(version), name


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL)
def test_capture_means_what_the_contract_says(name, version):
    outcome, said = ALL[name], interpreted(name, version)
    assert (said["status"], said["reason"]) == (outcome.status, outcome.reason)
    assert said["costUsd"] == outcome.cost
    if name.startswith("judge-"):
        assert said["verdict"] == (outcome.verdict or "unknown")
        assert bool(said["evidence"]) == bool(outcome.verdict)
    else:
        assert said["output"] == outcome.output


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["skill-success", "judge-pass"])
def test_same_bytes_of_another_call_are_not_this_calls_answer(name, version):
    stdout = captured(version, name)[0].replace(b"CALL-ID", str(uuid.UUID(int=1)).encode())
    said = interpreted(name, version, stdout)
    assert (said["status"], said["reason"]) == ("error", "malformed-output")
    assert said["costUsd"] == "unknown"


@pytest.mark.parametrize("name", [name for name in ALL
                                  if captured(PINNED, name)[0].strip()])
def test_no_cut_of_a_capture_is_taken_for_an_answer(name):
    stdout = captured(PINNED, name)[0].replace(b"CALL-ID", CALL_ID.encode())
    for part in (stdout[:-2], stdout[:len(stdout) // 2], stdout[1:], stdout + stdout, b"[]"):
        said = interpreted(name, PINNED, part)
        assert said["status"] == "error"
        assert said["reason"] in ("malformed-output", "killed")
        assert said["costUsd"] == "unknown"


@pytest.mark.parametrize("ended", ["timeout", "suspended", "killed", "too-much-output"])
@pytest.mark.parametrize("name", ["skill-success", "judge-pass", "skill-http-401"])
def test_how_the_call_was_ended_comes_before_what_it_said(name, ended):
    said = interpreted(name, PINNED, ended=ended)
    assert (said["status"], said["reason"]) == ("error", ended)
    assert said["costUsd"] == "unknown"


@pytest.mark.parametrize("name", [name for name, outcome in ALL.items()
                                  if outcome.status == "ok"])
def test_complete_answer_of_an_interrupted_call_is_kept(name):
    outcome = ALL[name]
    said = interpreted(name, PINNED, exitStatus=None, ended="interrupted")
    assert (said["status"], said["reason"]) == (outcome.status, outcome.reason)
    assert said["costUsd"] == outcome.cost


def test_interrupted_call_without_complete_bytes_is_killed():
    said = interpreted("skill-success", PINNED, b"", exitStatus=None, ended="interrupted")
    assert (said["status"], said["reason"]) == ("error", "killed")
    assert said["costUsd"] == "unknown"


@pytest.mark.parametrize("exit_status", [129, 130, 143, -1, -2, -15, None])
@pytest.mark.parametrize("name", ["skill-success", "judge-pass"])
def test_call_that_a_signal_ended_is_killed_at_unknown_cost(name, exit_status):
    said = interpreted(name, PINNED, exitStatus=exit_status)
    assert (said["status"], said["reason"]) == ("error", "killed")
    assert said["costUsd"] == "unknown"


@pytest.mark.parametrize("lapsed", ["expired", "revoked"])
def test_judgment_under_a_lapsed_calibration_is_kept_and_unqualified(lapsed):
    said, whole = interpreted("judge-pass", PINNED, lapsed=lapsed), interpreted(
        "judge-pass", PINNED)
    assert (said["status"], said["reason"]) == ("unqualified", lapsed)
    assert (whole["status"], whole["verdict"]) == ("ok", "pass")
    assert {**said, "status": "ok", "reason": None} == whole


@pytest.mark.parametrize("lapsed", ["expired", "revoked"])
def test_no_judgment_under_a_lapsed_calibration_is_what_it_was(lapsed):
    said = interpreted("judge-pass", PINNED, b"", lapsed=lapsed)
    assert (said["status"], said["reason"]) == ("error", "malformed-output")


# Each change makes one sign of a good answer bad; what it then has to be called.
SKILL_SIGNS = {
    "another model in modelUsage": ("model-mismatch", lambda items: items[-1].update(
        modelUsage={OTHER_MODEL: items[-1]["modelUsage"][MODEL]})),
    "another model served": ("model-mismatch", lambda items: items[1]["message"].update(
        model=OTHER_MODEL)),
    "the Skill not among the commands": ("skill-not-loaded", lambda items: items[0].update(
        skills=["doctor"], slash_commands=["doctor", "init"])),
    "another version": ("version-changed", lambda items: items[0].update(
        claude_code_version="2.1.333")),
    "a retry": ("hidden-retry", lambda items: items.insert(1, {
        "type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10,
        "error_status": 529})),
    "two messages": ("hidden-retry", lambda items: items.insert(1, {
        **items[1], "message": {**items[1]["message"], "id": "msg_00000000000000000000"}})),
    "a second turn": ("hidden-retry", lambda items: items[-1].update(num_turns=2)),
    "an error": ("cli-error", lambda items: items[-1].update(is_error=True)),
    "another subtype": ("cli-error", lambda items: items[-1].update(
        subtype="error_during_execution")),
    "not completed": ("cli-error", lambda items: items[-1].update(terminal_reason="other")),
    "another stop": ("cli-error", lambda items: items[-1].update(stop_reason="tool_use")),
    "a tool offered": ("cli-error", lambda items: items[0].update(tools=["Bash"])),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sign", SKILL_SIGNS)
def test_one_bad_sign_is_enough_against_a_good_answer(sign, version):
    reason, change = SKILL_SIGNS[sign]
    items = json.loads(captured(version, "skill-success")[0].replace(
        b"CALL-ID", CALL_ID.encode()))
    change(items)
    said = interpreted("skill-success", version, json.dumps(items).encode())
    assert (said["status"], said["reason"]) == ("error", reason)
    assert said["output"] is None


def test_exit_status_alone_is_enough_against_a_good_answer():
    assert interpreted("skill-success", PINNED, exitStatus=1)["status"] == "error"
    assert interpreted("judge-pass", PINNED, exitStatus=1)["status"] == "error"


def test_program_file_that_changed_during_the_call_is_named():
    said = interpreted("skill-success", PINNED, cliUnchanged=False)
    assert (said["status"], said["reason"]) == ("error", "version-changed")


@pytest.mark.parametrize("first, second", [
    (name, other) for position, name in enumerate(
        ("another model served", "the Skill not among the commands", "another version",
         "a second turn", "an error")) for other in (
        "another model served", "the Skill not among the commands", "another version",
        "a second turn", "an error")[position + 1:]])
def test_of_two_signs_the_earlier_one_in_the_contract_is_the_reason(first, second):
    items = json.loads(captured(PINNED, "skill-success")[0].replace(
        b"CALL-ID", CALL_ID.encode()))
    for sign in (first, second):
        SKILL_SIGNS[sign][1](items)
    said = interpreted("skill-success", PINNED, json.dumps(items).encode())
    wanted = SKILL_SIGNS[first][0]
    if (first, second) == ("a second turn", "an error"):
        wanted = "cli-error"      # no answer at the end: not a retry that was hidden
    assert said["reason"] == wanted


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("text, served", [
    ("API Error: Overloaded", True), ("Overloaded (request_id: req_01CSHo529qs5C35K)", True),
    ("API Error: 529 Overloaded", False)])
def test_an_error_without_its_number_may_have_been_served(version, text, served):
    stored, _ = captured(version, "skill-http-529")
    items = json.loads(stored.replace(b"CALL-ID", CALL_ID.encode()))
    items[-1]["result"] = text
    said = interpreted("skill-http-529", version, json.dumps(items).encode())
    assert (said["status"] == "unserved") is not served


@pytest.mark.parametrize("version", VERSIONS)
def test_a_quote_that_grows_without_end_is_no_verdict(version):
    stored, _ = captured(version, "judge-pass")
    items = json.loads(stored.replace(b"CALL-ID", CALL_ID.encode()))
    quote = "\ufdfa" * 400_000
    items[-1]["structured_output"]["quote"] = quote
    for item in items:
        for block in item.get("message", {}).get("content", ()):
            if isinstance(block, dict) and block.get("type") == "tool_use":
                block["input"]["quote"] = quote
    said = interpreted("judge-pass", version, json.dumps(items).encode())
    assert (said["status"], said["reason"]) == ("error", "invalid-verdict")
