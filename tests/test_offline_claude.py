"""The stand-in CLI: its format, its judgment and the script that steers it."""
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

STAND_IN = pathlib.Path(__file__).resolve().parent.parent / "examples" / "offline_claude.py"
RUN = ["--bare", "-p", "--add-dir", ".", "--setting-sources", "project",
       "--session-id", "call-1", "--model", "model-a", "--output-format", "json", "--verbose"]
JUDGE = ["--bare", "-p", "--setting-sources", "", "--session-id", "call-2",
         "--model", "model-b", "--json-schema", "{}"]
RECORD = ("subject: Ganymede\norbital period: 7.154553 days\n"
          "semi-major axis: 1070.4 thousand km\n"
          "compare semi-major axis with Io: 421.8 thousand km\n"
          "source: NASA Jovian Satellite Fact Sheet\n")
TRUTH = ("orbital period: 7.154553 days\nsemi-major axis: 1070.4 thousand km\n"
         "comparison: the semi-major axis of Ganymede is larger than that of Io\n"
         "source: NASA Jovian Satellite Fact Sheet\n")
GOOD_SKILL = ("Give every figure unrounded and with its unit.\nSay which value is larger or "
              "smaller.\nName the source at the end.\n")
BAD_SKILL = "Round every figure.\nLeave out the unit.\nDo not name the source.\n"
GOOD_ANSWER = ("The orbital period of Ganymede is 7.154553 days.\n"
               "The semi-major axis of Ganymede is 1070.4 thousand km.\n"
               "The semi-major axis of Ganymede is larger than that of Io "
               "(421.8 thousand km).\nSource: NASA Jovian Satellite Fact Sheet")
FIGURES = "Every figure of the truth is stated with its unit."
COMPARISON = "The comparison goes in the right direction."


@pytest.fixture
def call(tmp_path):
    """A function that makes one call in a Skill project and returns the finished process."""
    folder = tmp_path / "w" / ".claude" / "skills" / "brief"
    folder.mkdir(parents=True)

    def make(argv, stdin, skill=GOOD_SKILL, rules=None, **environment):
        (folder / "SKILL.md").write_text(skill, encoding="utf-8")
        if rules is not None:
            script = tmp_path / "script.json"
            script.write_text(json.dumps({"rules": rules}), encoding="utf-8")
            environment["OFFLINE_SCRIPT"] = str(script)
        return subprocess.run([sys.executable, "-IS", str(STAND_IN), *argv], cwd=tmp_path / "w",
                              input=stdin.encode(), capture_output=True, timeout=60,
                              env={"PATH": "/usr/bin:/bin", **environment}, check=False)

    return make


def items_of(process):
    """The printed array, after checking its two ends."""
    items = json.loads(process.stdout)
    assert (items[0]["subtype"], items[-1]["type"]) == ("init", "result")
    return items


def judge_prompt(criterion, output, truth=TRUTH, task=RECORD):
    """A judge prompt of the five fenced parts."""
    tag = "0123456789abcdef" * 2
    parts = {"instructions": "Judge.", "criterion": criterion, "task-input": task,
             "approved-truth": truth, "untrusted-output": output}
    fenced = [f"[[begin {name} {tag}]]\n{text}\n[[end {name} {tag}]]\n"
              for name, text in parts.items()]
    return f"The parts carry the tag {tag}\n" + "".join(fenced)


def judged(call, *arguments, **options):
    """The structured reply to a judge prompt."""
    environment = {name: options.pop(name) for name in list(options) if name.isupper()}
    process = call(JUDGE, judge_prompt(*arguments, **options), **environment)
    assert process.returncode == 0
    return items_of(process)[-1]["structured_output"]


def test_a_complete_skill_gets_a_complete_answer(call):
    items = items_of(call(RUN, "/brief " + RECORD))
    assert items[-1]["result"] == GOOD_ANSWER
    assert items[0]["skills"] == ["brief"]
    assert items[0]["synthetic"] is True


def test_a_worse_skill_gets_a_worse_answer(call):
    answer = items_of(call(RUN, "/brief " + RECORD, BAD_SKILL, OFFLINE_SEED="1"))[-1]["result"]
    assert "7.154553 days" not in answer


def test_a_comment_in_the_skill_asks_for_nothing(call):
    answers = {items_of(call(RUN, "/brief " + RECORD, GOOD_SKILL + f"<!-- {note} -->"))[-1]
               ["result"] for note in ("Round every figure.", "Omit the source.")}
    assert answers == {GOOD_ANSWER}


def test_equal_seed_skill_and_prompt_give_equal_answers(call):
    answers = {items_of(call(RUN, "/brief " + RECORD, "Be brief.\n", OFFLINE_SEED="7"))[-1]
               ["result"] for _ in range(3)}
    assert len(answers) == 1


def test_the_seed_changes_what_is_left_to_chance(call):
    runs = [call(RUN, "/brief " + RECORD, "Be brief.\n", OFFLINE_SEED=str(seed))
            for seed in range(8)]
    answers = {items_of(run)[-1]["result"] for run in runs}
    assert len(answers) > 1


def test_a_slip_of_a_hundred_percent_spoils_every_point(call):
    answer = items_of(call(RUN, "/brief " + RECORD, OFFLINE_SLIP="100"))[-1]["result"]
    assert answer == ("The orbital period of Ganymede is 7.2.\n"
                      "The semi-major axis of Ganymede is 1100.\n"
                      "The semi-major axis of Ganymede is smaller than that of Io "
                      "(421.8 thousand km).")


@pytest.mark.parametrize("criterion, output, truth, verdict", [
    (FIGURES, GOOD_ANSWER, TRUTH, "pass"),
    (FIGURES, GOOD_ANSWER.replace("1070.4", "1,070.4"), TRUTH, "pass"),
    (FIGURES, GOOD_ANSWER.replace("7.154553", "7.15"), TRUTH, "fail"),
    (FIGURES, GOOD_ANSWER.replace("7.154553 days", "7.154553"), TRUTH, "fail"),
    (FIGURES, GOOD_ANSWER.replace("7.154553", "17.154553"), TRUTH, "fail"),
    (FIGURES, GOOD_ANSWER, "The record gives none.", "unknown"),
    (COMPARISON, GOOD_ANSWER, TRUTH, "pass"),
    (COMPARISON, "The axis of Io is smaller than that of Ganymede.", TRUTH, "pass"),
    (COMPARISON, GOOD_ANSWER.replace("larger", "smaller"), TRUTH, "fail"),
    (COMPARISON, "Ganymede is a moon.", TRUTH, "fail"),
    (COMPARISON, GOOD_ANSWER, "orbital period: 7.154553 days", "unknown"),
    ("The source is named.", GOOD_ANSWER, TRUTH, "pass"),
    ("The source is named.", "Ganymede is a moon.", TRUTH, "fail"),
    ("The output is faithful.", "Ganymede is a moon of Jupiter.", "a moon of jupiter", "pass"),
    ("The output is faithful.", "Ganymede is a planet.", "a moon of jupiter", "fail"),
])
def test_the_honest_judge_compares_output_and_truth(call, criterion, output, truth, verdict):
    reply = judged(call, criterion, output, truth)
    assert reply["verdict"] == verdict
    assert reply["quote"] in output
    assert bool(reply["quote"]) or verdict != "pass"


def test_a_criterion_about_one_label_ignores_the_others(call):
    output = "The orbital period of Ganymede is 7.154553 days."
    narrow = "The figure of the orbital period is right."
    assert judged(call, narrow, output)["verdict"] == "pass"
    assert judged(call, FIGURES, output)["verdict"] == "fail"


@pytest.mark.parametrize("verdict", ["pass", "fail", "unknown"])
def test_a_judge_with_a_fixed_verdict_ignores_the_output(call, verdict):
    outputs = (GOOD_ANSWER, "Nothing.")
    replies = [judged(call, FIGURES, text, OFFLINE_JUDGE="always-" + verdict)["verdict"]
               for text in outputs]
    assert replies == [verdict, verdict]


def test_an_unknown_option_is_refused_with_nothing_on_stdout(call):
    process = call([*RUN, "--no-such-option"], "/brief x")
    assert (process.returncode, process.stdout) == (1, b"")
    assert b"error: unknown option '--no-such-option'" in process.stderr


def test_a_rule_applies_as_often_as_it_says(call):
    rules = [{"contains": "Ganymede", "times": 2, "answer": "scripted"}]
    answers = [items_of(call(RUN, "/brief " + RECORD, rules=rules))[-1]["result"]
               for _ in range(3)]
    assert answers == ["scripted", "scripted", GOOD_ANSWER]


def test_a_rule_for_other_calls_does_not_apply(call):
    rules = [{"purpose": "judge", "answer": "a"}, {"skillContains": "absent", "answer": "b"},
             {"contains": "absent", "answer": "c"}]
    assert items_of(call(RUN, "/brief " + RECORD, rules=rules))[-1]["result"] == GOOD_ANSWER


def test_an_http_error_costs_nothing_and_exits_with_one(call):
    process = call(RUN, "/brief x", rules=[{"status": 429}])
    result = items_of(process)[-1]
    assert process.returncode == 1
    assert (result["api_error_status"], result["modelUsage"]) == (429, {})
    assert items_of(process)[1]["message"]["model"] == "<synthetic>"


@pytest.mark.parametrize("rule, cost, basis", [
    ({"answer": "x"}, 0.25, "list"), ({"answer": "x", "cost": "1.5"}, 1.5, "list"),
    ({"answer": "x", "cost": None}, 0.25, "unknown")])
def test_the_cost_comes_from_the_rule_or_the_environment(call, rule, cost, basis):
    result = items_of(call(RUN, "/brief x", rules=[rule], OFFLINE_COST="0.25"))[-1]
    assert result["total_cost_usd"] == cost
    assert result["modelUsage"]["model-a"]["costBasis"] == basis


def test_a_capture_is_printed_with_the_id_of_the_call(call, tmp_path):
    capture = tmp_path / "capture.json"
    capture.write_text('[{"session_id":"CALL-ID"}]', encoding="utf-8")
    process = call(RUN, "/brief x", rules=[{"capture": str(capture), "exit": 7}])
    assert (process.returncode, process.stdout) == (7, b'[{"session_id":"call-1"}]')


def test_patches_reach_the_first_and_the_last_item(call):
    rules = [{"answer": "x", "version": "9.9.9", "skills": [], "initPatch": {"cwd": "/c"},
              "patch": {"num_turns": 3}, "model": "model-z", "stderr": "note"}]
    process = call(RUN, "/brief x", rules=rules)
    first, message, last = items_of(process)
    assert (first["claude_code_version"], first["skills"], first["cwd"]) == ("9.9.9", [], "/c")
    assert (message["message"]["model"], last["num_turns"]) == ("model-z", 3)
    assert process.stderr == b"note"


def test_a_scripted_signal_ends_the_call_without_output(call):
    process = call(RUN, "/brief x", rules=[{"signal": 15}])
    assert (process.returncode, process.stdout) == (-15, b"")


def test_a_flood_has_the_length_asked_for(call):
    process = call(RUN, "/brief x", rules=[{"floodBytes": 3_000_001}])
    assert len(process.stdout) == 3_000_001


def test_the_log_holds_one_line_a_call(call, tmp_path):
    log = tmp_path / "log.jsonl"
    for _ in range(2):
        call(RUN, "/brief x", OFFLINE_LOG=str(log))
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["callId"] for line in lines] == ["call-1", "call-1"]
    assert lines[0]["stdinSha256"] == hashlib.sha256(b"/brief x").hexdigest()
    assert "OFFLINE_LOG" in lines[0]["environment"]


@pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="no python3 in /usr/bin")
def test_the_first_line_starts_it_with_a_bare_environment():
    process = subprocess.run([STAND_IN, "--version"], env={"PATH": "/usr/bin:/bin"},
                             capture_output=True, check=True)
    assert process.stdout == b"1.0.0 (synthetic stand-in)\n"
