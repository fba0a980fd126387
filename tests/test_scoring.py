"""How outputs are checked: literal tests, quotes of the judge, rows that are never dropped."""
import signal
from types import SimpleNamespace

import pytest

import eval_loop
from builder import POOR_MARK, QUOTE, good, poor
from eval_loop import (Row, literal_verdict, normalise, quote_form, quote_occurs,
                       regex_verdict, totals)

PLAN = "baseline-development-plan.json"


def literal(kind, value, output):
    """(verdict, reason) of one literal test on an output."""
    return literal_verdict(SimpleNamespace(kind=kind, value=value), output, normalise(output))


def score(make, tests, answers, **options):
    """The rows of a score as (case, test) -> (verdict, reason), and the experiment.

    `tests` are those of every case, `answers` the baseline's outputs, one a case.
    """
    cases = [f"d{number:02}" for number in range(1, len(answers) + 1)]
    experiment = make(development=len(answers), heldout=1, judge=False,
                      tests=dict.fromkeys(cases, tests),
                      answers={("baseline", case): answer
                               for case, answer in zip(cases, answers, strict=True)}, **options)
    experiment.walk(until="policy")
    plan = experiment.write_plan("baseline", "development")
    experiment.command("run", plan, expect=(0, 4))
    experiment.command("score", plan, expect=(0, 4))
    return {key: (row["verdict"], row["reason"]) for key, row in experiment.checks(
        "baseline", "development").items()}, experiment


# ---- contains and not_contains ---------------------------------------------------------------


FOUND = [  # the value, an output that holds it
    ("1.234 km", "It is 1.234\u00a0km long."), ("1.234 km", "It is 1.234\n   km long."),
    ("1.234 km", "It is 1.234\tKM long."), ("  five  figures ", "all five figures"),
    ("five figures", "ﬁve ﬁgures"), ("ﬁve", "FIVE"), ("STRASSE", "in der Straße"),
    ("straße", "STRASSE"), ("10 km2", "１０ km²"), ("İstanbul", "i\u0307stanbul"),
    ("café", "cafe\u0301"), ("Å", "Å"), ("ΣΑΣ", "σας"), ("№ 5", "No 5"),
    ("42", "in 1420"),                             # a bare number is inside longer ones
]
NOT_FOUND = [
    ("1234 km", "It is 1.234 km long."), ("five figures", "five, figures"),
    ("cafe", "café"), ("a\u200bb", "ab"), ("-5", "5"), ("five", "4"), ("a.c", "abc"),
]


@pytest.mark.parametrize("value, output", FOUND)
def test_a_value_is_found_whatever_its_width_case_or_white_space(value, output):
    assert literal("contains", value, output) == ("pass", None)
    assert literal("not_contains", value, output) == ("fail", None)


@pytest.mark.parametrize("value, output", NOT_FOUND)
def test_a_value_that_differs_in_more_than_form_is_not_found(value, output):
    assert literal("contains", value, output) == ("fail", None)
    assert literal("not_contains", value, output) == ("pass", None)


# ---- regex -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern, output, verdict", [
    ("^Source: [A-Z]", "First.\nSource: NASA", "pass"),        # ^ at every line
    ("figures$", "all figures\nand more", "pass"),
    (r"\AFirst", "One.\nFirst", "fail"),
    ("^Source", "\tSource: NASA", "fail"),                    # raw: white space is not folded
    ("source", "Source", "fail"), ("(?i)source", "Source", "pass"),
    ("five", "ﬁve", "fail"), ("ﬁve", "ﬁve", "pass"),           # raw: no compatible characters
    ("a.c", "a\nc", "fail"), ("(?s)a.c", "a\nc", "pass"),
    (r"\b42\b", "in 1420", "fail"), (r"\b42\b", "it is 42.", "pass"),
    ("cat|dog", "a dog", "pass"), ("x*", "", "pass")])
def test_a_pattern_is_searched_in_the_raw_output_line_by_line(pattern, output, verdict):
    assert regex_verdict(pattern, output) == verdict
    assert literal("regex", pattern, output) == (verdict, None)


SLOW, LONG = "(a+)+$", "a" * 60 + "b"


def test_a_pattern_without_end_is_unknown_and_leaves_no_clock_running(monkeypatch):
    monkeypatch.setattr(eval_loop, "REGEX_SECONDS", 0.2)
    before = signal.getsignal(signal.SIGVTALRM)
    assert literal("regex", SLOW, LONG) == ("unknown", "regex-timeout")
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    assert signal.getsignal(signal.SIGVTALRM) == before


def test_a_saved_timeout_stands_when_the_score_is_replayed(make, monkeypatch, capsys):
    tests = [{"id": "slow", "kind": "regex", "critical": False, "value": SLOW},
             {"id": "word", "kind": "contains", "critical": False, "value": "aaa"}]
    rows, experiment = score(make, tests, [LONG])
    assert rows == {("d01", "slow"): ("unknown", "regex-timeout"),
                    ("d01", "word"): ("pass", None)}

    def once_is_enough(pattern, output, *_):
        assert output != LONG, "a pattern that ran out of time was tried again"
        return "fail"
    monkeypatch.setattr(eval_loop, "regex_verdict", once_is_enough)
    assert eval_loop.main(["verify", str(experiment.path(PLAN))]) == 0
    assert eval_loop.main(["score", str(experiment.path(PLAN))]) == 4
    assert "exists already" in capsys.readouterr().out


def test_a_pattern_in_time_gets_more_time_on_replay_where_a_machine_is_slower(
        make, monkeypatch):
    tests = [{"id": "quick", "kind": "regex", "critical": False, "value": "a+"}]
    _, experiment = score(make, tests, [LONG])
    given, search = [], eval_loop.regex_verdict

    def timed(pattern, output, seconds=2):
        given.append(seconds)
        return search(pattern, output, seconds)
    monkeypatch.setattr(eval_loop, "regex_verdict", timed)
    assert eval_loop.main(["verify", str(experiment.path(PLAN))]) == 0
    experiment.path(experiment.score_name("baseline", "development")).unlink()
    assert eval_loop.main(["score", str(experiment.path(PLAN))]) == 0
    assert given == [20, 2]


# ---- What is refused or warned of before paying ----------------------------------------------


def checked(make, *tests):
    """The finished `check` of a policy whose first held-out case has these tests."""
    tests = [{"id": f"t{number}", "critical": False, **test}
             for number, test in enumerate(tests)]
    experiment = make(judge=False, tests={"h01": tests})
    return experiment.command("check", experiment.write_policy())


@pytest.mark.parametrize("test, word", [
    ({"kind": "contains", "value": ""}, "value"),
    ({"kind": "not_contains", "value": " \n "}, "value"),
    ({"kind": "contains"}, "value"), ({"kind": "regex", "value": ""}, "value"),
    ({"kind": "regex", "value": "(unclosed"}, "regular expression"),
    ({"kind": "regex", "value": "a**"}, "regular expression"),
    ({"kind": "judge", "value": "good"}, "criterion"),
    ({"kind": "equals", "value": "x"}, "kind"),
    ({"kind": "contains", "value": "x", "critical": 1}, "critical"),
    ({"kind": "contains", "value": "x", "critical": None}, "critical")])
def test_a_test_that_cannot_be_decided_is_refused(make, test, word):
    done = checked(make, test)
    assert done.returncode == 3 and word in done.stderr
    assert "cases/h01/expected.json" in done.stderr


def test_two_equal_tests_of_one_case_are_refused(make):
    done = checked(make, {"kind": "contains", "value": "x"}, {"kind": "contains", "value": "x"})
    assert done.returncode == 3 and "equal" in done.stderr


@pytest.mark.parametrize("test, word", [
    ({"kind": "contains", "value": " 42 "}, "number"),
    ({"kind": "regex", "value": "x*"}, "empty")])
def test_a_test_that_passes_too_easily_is_warned_of(make, test, word):
    done = checked(make, test)
    line, = (line for line in done.stderr.splitlines() if "cases/h01/expected.json" in line)
    assert done.returncode == 0 and line.startswith("warning") and word in line and "t0" in line


@pytest.mark.parametrize("test", [
    {"kind": "contains", "value": "42 km"}, {"kind": "regex", "value": r"\b42\b"}])
def test_a_test_with_room_for_nothing_else_is_not_warned_of(make, test):
    assert "expected.json" not in checked(make, test).stderr


INPUT = "Task h01: what did shop h01 take?"


@pytest.mark.parametrize("task", [f"{INPUT}\n\n", f" {INPUT}", f"{INPUT} See ${{CLAUDE_X}}.",
                                  f"{INPUT} It says !`date`."])
def test_an_input_that_the_cli_changes_is_warned_of(make, task):
    experiment = make(judge=False, inputs={"h01": task})
    told = experiment.command("check", experiment.write_policy(), expect=0).stderr
    line, = (line for line in told.splitlines() if "cases/h01/input.txt" in line)
    assert line.startswith("warning")


@pytest.mark.parametrize("task", [INPUT, f"{INPUT}\n", f"{INPUT} See $CLAUDE or `date`!"])
def test_an_input_that_the_cli_leaves_alone_is_not_warned_of(make, task):
    experiment = make(judge=False, inputs={"h01": task})
    told = experiment.command("check", experiment.write_policy(), expect=0).stderr
    assert "input.txt" not in told


# ---- Rows ------------------------------------------------------------------------------------


def test_a_check_on_a_missing_output_never_passes(make):
    tests = [{"id": "holds", "kind": "contains", "critical": False, "value": "euros"},
             {"id": "lacks", "kind": "not_contains", "critical": False, "value": "euros"},
             {"id": "any", "kind": "regex", "critical": False, "value": "x*"}]
    rules = [{"contains": "Task d01:", "answer": ""},
             {"contains": "Task d02:", "answer": "I will not.",
              "patch": {"stop_reason": "refusal"}},
             {"contains": "Task d03:", "stdout": "no JSON at all"}]
    rows, experiment = score(make, tests, ["", "", "", "Five euros."], script=rules)
    for test in ("holds", "lacks", "any"):
        assert rows["d01", test] == ("fail", "empty-output")
        assert rows["d02", test] == ("fail", "refusal")
        assert rows["d03", test] == ("unknown", "malformed-output")
    assert [rows["d04", test][0] for test in ("holds", "lacks", "any")] == [
        "pass", "fail", "pass"]
    told = experiment.read(experiment.score_name("baseline", "development"))["totals"]
    assert told == {"passed": 2, "failed": 7, "unknown": 3, "total": 12,
                    "unknownReasons": {"malformed-output": 3}}
    printed = experiment.command("score", PLAN, expect=4).stdout
    assert "2 of 12" in printed and "3 malformed-output" in printed


def limited(make, purpose):
    """A policy under which the first call of a purpose is never served, and its plan."""
    experiment = make(development=1, heldout=1, answers={("baseline", "d01"): good("d01")},
                      script=[{"purpose": purpose, "contains": "Task d01:", "status": 429,
                               "times": 1}])
    return experiment.walk(until="policy"), experiment.write_plan("baseline", "development")


@pytest.mark.parametrize("purpose", ["run", "judge"])
def test_of_several_attempts_at_a_call_the_last_one_counts(make, purpose):
    experiment, plan = limited(make, purpose)
    for command in ("run", "run", "judge", "judge"):
        experiment.command(command, plan, expect=(0, 3, 6))
    experiment.command("score", plan, expect=0)
    row = experiment.checks("baseline", "development")["d01", "grounded-1"]
    assert (row["verdict"], row["reason"]) == ("pass", None)
    assert [len(row[f"{each}Terminals"]) for each in ("run", "judge")] == [
        1 + (purpose == "run"), 1 + (purpose == "judge")]


@pytest.mark.parametrize("purpose, unknown", [("run", 3), ("judge", 1)])
def test_a_call_that_was_not_served_and_may_be_repeated_is_not_called(make, purpose, unknown):
    experiment, plan = limited(make, purpose)
    for command in ("run", "judge")[:1 + (purpose == "judge")]:
        experiment.command(command, plan, expect=(0, 6))
    experiment.command("score", plan, "--accept-unknown", str(unknown), expect=4)
    row = experiment.checks("baseline", "development")["d01", "grounded-1"]
    assert (row["verdict"], row["reason"]) == ("unknown", "not-called")


def test_every_row_is_in_the_denominator():
    rows = [Row("d01", "t", "judge", False, verdict, reason, [], []) for verdict, reason in (
        ("pass", None), ("fail", None), ("fail", "refusal"), ("unknown", "timeout"),
        ("unknown", "timeout"), ("unknown", "abstained"))]
    assert totals(rows) == {"passed": 1, "failed": 2, "unknown": 3, "total": 6,
                            "unknownReasons": {"abstained": 1, "timeout": 2}}


# ---- Quotes ----------------------------------------------------------------------------------


OUTPUT = """# Shop one

The **Straße** shop took “1 234 euros” — that’s `five` figures.
* It is in the _old_ town; the till was read twice.
> Checked: −5 °C, ten\u00adths, cafe\u0301, １０ km², no\u200bspace.
"""

IN_ORDER = [
    # case and white space
    "The Straße shop took", "THE STRASSE SHOP", "the  straße\nshop",
    # quotation marks, apostrophes, dashes
    '"1 234 euros"', "“1 234 euros”", "«1 234 euros»", "„1 234 euros‟",
    "euros\" - that's five", "that’s five", "that's five",
    "euros” – that", "euros” ― that", "-5 °C", "−5 °C", "‑5 °C",
    # Markdown marks, on either side
    "The Straße shop", "The **Straße** shop", "__Straße__", "# Shop one", "Shop one",
    "five figures. It is in the old town", "`five` figures", "old town", "> Checked",
    # characters that nobody sees, and compatible ones
    "tenths", "ten\u00adths", "nospace", "no\u200bspace", "no\u200cspace", "\ufeffShop one",
    "café", "10 km2", "10 km²", "ﬁve ﬁgures",
    # pieces in order, with an ellipsis as people write it
    "The Straße shop … five figures", "The Straße ... figures ... twice",
    "…five figures…", "Shop one… Checked", "... read twice.",
    "Shop one [...] figures", "Shop one […] figures", "figures.… twice",
]
NOT_THERE = [
    "The Straße shop took 1 235 euros", "The shop took", "six figures", "5 °C below",
    "twice … five figures", "five figures … five figures", "Shop one … nothing of the kind",
    "…", "...", "", "   ", "**", "\u200b", "“”euros", "old towns",
]


@pytest.mark.parametrize("quote", IN_ORDER)
def test_a_quote_occurs_whatever_its_form(quote):
    assert quote_occurs(quote_form(quote), quote_form(OUTPUT))


@pytest.mark.parametrize("quote", NOT_THERE)
def test_a_quote_that_says_something_else_or_nothing_does_not_occur(quote):
    assert not quote_occurs(quote_form(quote), quote_form(OUTPUT))


@pytest.mark.parametrize("text", IN_ORDER + NOT_THERE)
def test_the_form_of_a_quote_is_final(text):
    assert quote_form(quote_form(text)) == quote_form(text)


REPLIES = {  # case: (the judge's verdict, its quote, the output, what the row says)
    "d01": ("pass", "shop **D01** took … till of shop d01", good("d01"), ("pass", None)),
    "d02": ("pass", f"{QUOTE} of shop d01", good("d02"), ("unknown", "quote-not-found")),
    "d03": ("pass", "", good("d03"), ("unknown", "quote-not-found")),
    "d04": ("fail", "", poor("d04"), ("fail", None)),
    "d05": ("fail", "Shop d04", poor("d05"), ("unknown", "quote-not-found")),
    "d06": ("fail", POOR_MARK.upper(), poor("d06"), ("fail", None)),
    "d07": ("unknown", "", poor("d07"), ("unknown", "abstained")),
    "d08": ("pass", "Shop d08", poor("d08"), ("pass", None)),
}


def test_a_pass_needs_a_quote_and_a_given_quote_must_occur(make):
    experiment = make(development=len(REPLIES), heldout=1, script=[
        {"purpose": "judge", "contains": f"Task {case}:", "verdict": verdict, "quote": quote,
         "evidence": "Scripted."} for case, (verdict, quote, *_) in REPLIES.items()], answers={
        ("baseline", case): output for case, (_, _, output, _) in REPLIES.items()})
    experiment.walk(until="policy")
    plan = experiment.write_plan("baseline", "development")
    experiment.command("run", plan, "--jobs", "2", expect=0)
    experiment.command("judge", plan, "--jobs", "2", expect=4)
    experiment.command("score", plan, expect=4)
    rows = experiment.checks("baseline", "development")
    told = {case: (rows[case, "grounded-1"]["verdict"], rows[case, "grounded-1"]["reason"])
            for case in REPLIES}
    assert told == {case: expected for case, (*_, expected) in REPLIES.items()}
