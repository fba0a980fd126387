"""The page that an owner decides from: what it says, what it hides, what it lets through.

Most of it is read with html.parser. What only a browser can tell (layout, rendered contrast,
focus, printing) is read in headless Chromium; those tests are skipped without one, unless
EVAL_LOOP_REQUIRE_BROWSER=1 makes its absence a failure.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import struct
import sys
from fractions import Fraction

import pytest

import browser
import builder

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))
import review_page  # noqa: E402  (the path above is where it lies)

MARKUP = ("\n</script></style></pre></details></main><script>document.title = 'taken'</script>"
          "<img src=x onerror=\"document.title='taken'\">"
          "<a href='http://example.com/'>x</a> &amp;")
RIGHT_TO_LEFT = "חנות קבלה כסף.\nمتجر: قبض المبلغ.\nFile \u202egnp.exe\u202c \U000e0041."
ONE_MEGABYTE = "word " * 200_000
LONG = "\n".join(f"{number}. Nothing was sold in hour {number}." for number in range(1, 99))
ANSWERS = {
    ("candidate", "h02"): builder.good("h02") + MARKUP,
    ("baseline", "h02"): builder.poor("h02") + "\n<b>bold</b> <!-- comment -->",
    ("candidate", "h03"): builder.poor("h03"), ("baseline", "h03"): builder.good("h03"),
    ("candidate", "h04"): RIGHT_TO_LEFT + "\n" + builder.good("h04"),
    ("candidate", "h05"): ONE_MEGABYTE + builder.good("h05"),
    ("candidate", "h06"): LONG + "\n" + builder.unsure("h06"),
    ("baseline", "h06"): LONG.replace("in hour 7.", "at seven.") + "\n" + builder.poor("h06"),
    ("baseline", "h08"): builder.good("h08")}
SCRIPT = [{"purpose": "run", "contains": "Task h07:", "skillContains": builder.CANDIDATE_MARK,
           "stdout": "no answer of this CLI"}]


# ---- Reading a page --------------------------------------------------------------------------


class Element:
    """One element of a page that was read: name, attributes, children (elements and texts)."""

    def __init__(self, name, attributes, parent):
        self.name, self.attributes, self.parent = name, dict(attributes), parent
        self.children = []

    def __getitem__(self, attribute):
        return self.attributes.get(attribute)

    @property
    def text(self) -> str:
        """All text inside."""
        return "".join(part if isinstance(part, str) else part.text for part in self.children)

    @property
    def classes(self) -> list[str]:
        """The words of its class attribute."""
        return (self["class"] or "").split()

    def all(self, name=None, class_=None, **attributes):
        """The elements below that fit, in document order."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if (name in (None, child.name) and (class_ is None or class_ in child.classes)
                        and all(child[key] == value for key, value in attributes.items())):
                    found.append(child)
                found += child.all(name, class_, **attributes)
        return found

    def one(self, name=None, class_=None, **attributes):
        """The first element below that fits."""
        found = self.all(name, class_, **attributes)
        assert found, (name, class_, attributes)
        return found[0]


class Reader(html.parser.HTMLParser):
    """Builds the elements of a page; refuses one whose tags are not closed in order."""

    def __init__(self):
        super().__init__()
        self.root = self.open = Element("", (), None)
        self.comments = []

    def handle_starttag(self, tag, attrs):
        element = Element(tag, attrs, self.open)
        self.open.children.append(element)
        if tag not in review_page.VOID_ELEMENTS:
            self.open = element

    def handle_endtag(self, tag):
        assert self.open.name == tag, f"</{tag}> closes <{self.open.name}>"
        self.open = self.open.parent

    def handle_data(self, data):
        self.open.children.append(data)

    def handle_comment(self, data):
        self.comments.append(data)


def read(page: str | bytes) -> Element:
    """Return the root of a page, whose tags must all be closed."""
    reader = Reader()
    reader.feed(page if isinstance(page, str) else page.decode("utf-8"))
    reader.close()
    assert reader.open is reader.root
    assert reader.comments == [" review page of eval_loop "]
    return reader.root


def asked_for(root: Element) -> Element:
    """Remove what a closed `details` hides and return the same root."""
    for details in root.all("details"):
        if "open" not in details.attributes:
            details.children = [child for child in details.children
                                if isinstance(child, Element) and child.name == "summary"]
    return root


def section(root: Element, anchor: str) -> Element:
    """The part of a page whose heading has this address."""
    return root.one("section", **{"aria-labelledby": anchor})


# ---- Pages -----------------------------------------------------------------------------------


def write_page(*words, expect=0) -> None:
    """Say one command line of review_page.py in this process."""
    assert review_page.main([str(word) for word in words]) == expect


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """An experiment with a hold: regressions, unknowns, and outputs that mean harm."""
    experiment = builder.Experiment(
        tmp_path_factory.mktemp("mixed"), development=2, heldout=8, answers=ANSWERS,
        script=SCRIPT, families={"h01": "street-1", "h02": "street-1"})
    experiment.walk(until="unlock")
    experiment.heldout(expect=(0, 4))
    experiment.compare(expect=4)
    return experiment


@pytest.fixture(scope="module")
def review(mixed):
    """The same, as the page's program reads it."""
    return review_page.read_review(str(mixed.path("comparison.json")))


@pytest.fixture(scope="module")
def pages(mixed, tmp_path_factory):
    """Its three pages as files: decision, blind, calibration."""
    directory = tmp_path_factory.mktemp("pages")
    told = {name: directory / f"{name}.html" for name in ("decision", "blind", "calibration")}
    comparison = mixed.path("comparison.json")
    write_page(comparison, "--output", told["decision"])
    write_page(comparison, "--output", told["blind"], "--blind", "--key",
               directory / "key.json")
    write_page("calibration", mixed.path("calibration-plan.json"), "--output",
               told["calibration"])
    return told


@pytest.fixture
def decision(pages):
    """The decision page, read anew."""
    return read(pages["decision"].read_bytes())


# ---- The answer ------------------------------------------------------------------------------


def test_the_page_opens_with_the_outcome_in_words(decision):
    assert decision.one("h1").text == "Threshold not met: hold. Improvement not shown."
    answers = [part.text for part in decision.one("dl", "answers").all("strong")]
    assert answers[:2] == ["No: hold", "No"]


def test_synthetic_evidence_is_said_before_anything_else(decision):
    assert decision.one("header").children[0].text.startswith("Synthetic evidence.")


def test_a_met_threshold_without_a_shown_improvement_is_said_as_two_things(walked):
    review = review_page.read_review(str(walked("compare").path("comparison.json")))
    page = read(review_page.decision_page(review))
    assert page.one("h1").text == "Threshold met. Improvement not shown."
    assert page.one(id="reasons").text == "No reason for a hold"


def test_every_reason_for_a_hold_stands_on_the_page(mixed, decision):
    reasons = mixed.read("comparison.json")["reasons"]
    assert len(reasons) > 2
    assert [item.text for item in section(decision, "reasons").all("li")] == reasons


def test_every_gate_is_shown_with_its_limit_and_result(mixed, decision):
    rows = section(decision, "gates").one("tbody").all("tr")
    gates = mixed.read("comparison.json")["gates"]
    assert [row.one("small").text for row in rows] == [gate["gate"] for gate in gates]
    assert ["met" in row.all("td")[-1].text for row in rows] == [gate["met"] for gate in gates]
    assert rows[0].all("td")[2].text == "at least 70\N{NO-BREAK SPACE}%"


def test_the_paired_table_names_the_fixed_and_regressed_checks_of_the_comparison(
        mixed, decision):
    told = mixed.read("comparison.json")["heldout"]["checks"]
    found = {"fixed": [], "regressed": []}
    for row in section(decision, "heldout").one("table", "paired").one("tbody").all("tr"):
        for change in row.all("td")[-1].all("div"):
            word = change.one("span", "chip").text.split()[-1]
            tests = change.children[-1].split(", ")
            found[word] += [f"{row.one('a').text}.{test.strip()}" for test in tests]
    assert {word: sorted(names) for word, names in found.items()} == {
        word: sorted(told[word]) for word in found}


def test_cases_that_speak_against_the_candidate_come_first_and_are_unfolded(decision):
    cases = section(decision, "heldout").all("details", "case")
    assert [case["id"] for case in cases] == [
        "heldout-h03", "heldout-h07", "heldout-h01", "heldout-h02", "heldout-h04",
        "heldout-h05", "heldout-h06", "heldout-h08"]
    assert ["open" in case.attributes for case in cases] == [True, True] + 6 * [False]


def test_no_more_than_eight_cases_are_unfolded_from_the_start(review):
    against = [pair for pair in review.pairs["heldout"] if pair.urgency() < 2] * 10
    page = review_page.cases(review._replace(pairs={"heldout": against}), "heldout",
                             review_page.Steps())
    assert len(against) == 20 and page.count('class="case"') == 20
    assert len(re.findall('<details class="case" id="[^"]*" open>', page)) == 8


def test_a_case_shows_outputs_truth_input_criterion_evidence_and_quote(decision):
    case = decision.one(id="heldout-h03")
    texts = [block.text for block in case.all("pre")]
    for text in (builder.good("h03"), builder.poor("h03"),
                 "Task h03: what did shop h03 take in?",
                 f"Till roll h03: EUR {builder.amount('h03')}", "The output says so: fail.",
                 builder.QUOTE):
        assert text in [found.strip() for found in texts]
    assert any(text.startswith("Criterion 1: the amount") for text in texts)


def test_the_quote_of_the_judge_is_marked_in_the_output(decision):
    baseline, candidate = decision.one(id="heldout-h03").one("div", "pair").all("pre")
    assert "".join(mark.text for mark in baseline.all("mark", "quote")) == builder.QUOTE
    assert "".join(mark.text for mark in candidate.all("mark", "quote")) == builder.POOR_MARK


def test_words_of_one_output_only_are_marked_on_its_side(decision):
    baseline, candidate = decision.one(id="heldout-h03").one("div", "pair").all("pre")
    assert "euros" in "".join(mark.text for mark in baseline.all("del", "gone"))
    assert "".join(mark.text for mark in candidate.all("ins", "new")) == "some money"
    assert baseline.all("ins") == candidate.all("del") == []


def test_a_call_without_an_answer_says_why(decision):
    case = decision.one(id="heldout-h07")
    assert "No output: malformed-output." in case.text
    assert "The judge said nothing about it." in case.text


def test_equal_outputs_are_said_to_be_the_same(decision):
    assert "the same, character for character" in decision.one(id="heldout-h08").text


def test_a_long_output_folds_and_says_how_many_marks_are_folded(decision):
    rest = decision.one(id="heldout-h06").all("details", "rest")
    assert re.search(r"Show the rest: [\d,]+ more characters, \d+ marks? in it", rest[0].text)
    assert "98. Nothing was sold" in rest[0].one("pre").text


def test_one_megabyte_of_text_is_cut_and_says_so(pages, decision):
    case = decision.one(id="heldout-h05")
    total = len(ANSWERS["candidate", "h05"])
    assert f"The first 200,000 of {total:,} characters." in case.text
    assert "h05.run.1.terminal.json holds all of them." in case.text
    assert len(pages["decision"].read_bytes()) < 1_500_000


def test_what_needs_a_word_before_deciding_is_listed(decision):
    told = section(decision, "before").text
    assert "No person has checked the judge on these outputs yet." in told
    assert "accepted on exact agreement" in told
    assert "One attempt a case" in told


def test_the_hashes_to_decide_on_are_those_of_the_files(mixed, decision):
    told = section(decision, "decide").one("table").text
    assert mixed.sha("comparison.json") in told
    assert mixed.sha(mixed.skill_file("candidate")) in told


def test_a_calibration_that_was_revoked_since_is_told(ready):
    experiment = ready("compare")
    experiment.write_revocation()
    review = review_page.read_review(str(experiment.path("comparison.json")))
    page = read(review_page.decision_page(review))
    assert "calibration is revoked now: an accept would be refused" in section(
        page, "before").text


def test_cases_without_a_judge_make_a_page_too(walked):
    experiment = walked("compare", judge=False)
    page = read(review_page.decision_page(review_page.read_review(
        str(experiment.path("comparison.json")))))
    assert "No test of these cases is judged by a model." in section(page, "judge").text
    assert "checked the judge" not in section(page, "before").text


# ---- Pictures --------------------------------------------------------------------------------


def test_families_are_drawn_from_baseline_to_candidate(decision):
    rows = section(decision, "families").one("table", "families").one("tbody").all("tr")
    drawn = {row.one("th").text: row for row in rows}
    assert len(drawn) == 7
    street = drawn["street-1"]
    assert street.one("svg")["aria-label"] == "from 2 to 6 of 6 passed"
    assert [street.one("circle", kind)["cx"] for kind in ("baseline", "candidate")] == [
        "33.33%", "100.00%"]
    assert street.all("line", "won") and drawn["shop-h03"].all("line", "lost")


def test_unknown_checks_are_drawn_as_what_they_could_add(decision):
    rows = section(decision, "families").one("table", "families").one("tbody").all("tr")
    row = next(row for row in rows if row.one("th").text == "shop-h07")
    assert [mark["x2"] for mark in row.all("line", "doubt")] == ["100.00%"]
    assert "3 of the candidate's unknown" in row.text


def test_a_missed_limit_of_the_judge_is_drawn_and_told():
    told = {"errors": 3, "n": 30, "upperBound": "0.239"}
    row = review_page.bound_row(("False pass", ""), told, Fraction(1, 10), Fraction(1, 2))
    reader = Reader()
    reader.feed(review_page.joined(row))
    page = reader.root
    assert page.one("rect", "missed")["width"] == "47.80%"
    assert page.one("line", "limit")["x1"] == "20.00%"
    assert page.one("circle", "seen")["cx"] == "20.00%"
    assert "3 of 30; at most 23.9\N{NO-BREAK SPACE}%" in page.text
    assert "above the limit" in page.text


def test_registered_limits_reach_the_picture(review):
    limits = {name: "0.2" for _, _, name in review_page.eval_loop.CLASSES.values()}
    groups = review.document["judge"]["groups"]
    told = review_page.judge_picture(groups, {**limits, "jointConfidence": True}, {})
    assert told.count("limit 20\N{NO-BREAK SPACE}%") == 2 * 3 * len(groups)
    assert "for all together" in told


def test_money_is_drawn_in_proportion(decision):
    rows = section(decision, "money").one("table", "money").one("tbody").all("tr")
    assert [row.one("th").text for row in rows] == [
        "Candidate, held-out", "Baseline, held-out", "Candidate, development",
        "Baseline, development"]
    longest = rows[1].all("rect")
    assert float(longest[1]["x"][:-1]) + float(longest[1]["width"][:-1]) == pytest.approx(100)
    assert "1 of unknown cost" in rows[0].text


def test_every_picture_says_in_words_what_it_shows(decision):
    pictures = [svg for svg in decision.all("svg") if svg["aria-hidden"] != "true"]
    assert len(pictures) > 15
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in pictures)


# ---- No harm ---------------------------------------------------------------------------------

ELEMENTS = set("""html head meta link title style body a header p strong h1 h2 h3 h4 h5 h6 span
    dl div dt dd nav ol ul li main section table caption thead tbody tr th td svg text line
    circle rect small bdi details summary pre code ins del mark blockquote""".split())


@pytest.mark.parametrize("name", ("decision", "blind", "calibration"))
def test_outputs_become_text_and_never_markup(pages, name):
    root = read(pages[name].read_bytes())
    assert {element.name for element in root.all()} <= ELEMENTS
    attributes = {key for element in root.all() for key in element.attributes}
    assert not [key for key in attributes if key.startswith("on") or key in ("src", "style")]


def test_hostile_markup_is_shown_as_it_was_written(decision):
    candidate = decision.one(id="heldout-h02").one("div", "pair").all("pre")[1]
    assert candidate.text == ANSWERS["candidate", "h02"]


@pytest.mark.parametrize("name", ("decision", "blind", "calibration"))
def test_nothing_is_loaded_and_every_link_stays_on_the_page(pages, name):
    text = pages[name].read_text("utf-8")
    root = read(text)
    ids = [element["id"] for element in root.all() if element["id"]]
    assert len(ids) == len(set(ids))
    for link in root.all("a"):
        assert link["href"].startswith("#") and link["href"][1:] in ids
    assert [link["href"] for link in root.all("link")] == ["data:,"]
    style = root.one("style").text
    assert "url(" not in style and "@import" not in style
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"})["content"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_right_to_left_text_keeps_its_direction_to_itself(pages, decision):
    block = decision.one(id="heldout-h04").one("div", "pair").all("pre")[1]
    assert block["dir"] == "auto"
    assert "חנות" in block.text
    assert [mark.text for mark in block.all("span", "code-point")] == [
        "U+202E", "U+202C", "U+E0041"]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\U000e0041]",
                         pages["decision"].read_text("utf-8"))


@pytest.mark.parametrize("text, shown", (
    ("a\0b", "aU+0000b"), ("\x1b[31m", "U+001B[31m"), ("\ud800", "U+D800"),
    ("\ufeffx", "U+FEFFx"), ("a\r\nb", "a\nb"), ("a\rb", "aU+000Db"),
    ("x\u200dy", "x\u200dy"), ("\u200f", "\u200f")))
def test_unseen_characters_are_shown_by_number(text, shown):
    told = review_page.escape(text)
    assert told.encode("utf-8")
    assert re.sub("<[^>]*>", "", told) == shown


def test_a_million_unseen_characters_are_told_in_short():
    assert len(review_page.escape("\0" * 1_000_000)) < 200


def test_a_name_of_one_megabyte_is_cut():
    told = review_page.said("x" * 1_000_000)
    assert len(told) < 500 and "(1,000,000 characters)" in told


# ---- The word diff ---------------------------------------------------------------------------


def differing(left: str, right: str) -> tuple[list[str], list[str]]:
    """The marked words of both texts."""
    found = review_page.word_diff(left, right, review_page.Steps())
    return tuple([text[start:end] for start, end, _ in spans]
                 for text, spans in zip((left, right), found))


@pytest.mark.parametrize("left, right, gone, new", (
    ("It took 4,879 km.", "It took 4,900 km.", ["4,879"], ["4,900"]),
    ("One two three", "One three", ["two"], []),
    ("One\n\n two", "One two", [], []),
    ("same", "same", [], []),
    ("", "all new", [], ["all new"]),
    ("The cat sat on a mat.", "A dog ran in the fog.", ["The cat sat on a mat"],
     ["A dog ran in the fog"]),
    ("a b c d e f g", "a x c d e f y", ["b", "g"], ["x", "y"])))
def test_the_word_diff_marks_what_only_one_text_has(left, right, gone, new):
    assert differing(left, right) == (gone, new)


def test_a_small_change_in_a_megabyte_of_equal_words_is_found():
    half = ONE_MEGABYTE[:500_000]
    assert differing(f"{half}one {half}", f"{half}two {half}") == (["one"], ["two"])


def test_a_diff_that_would_take_too_long_is_left_out_and_says_so():
    steps = review_page.Steps()
    texts = ["x " + "a b " * 50_000 + "y", "z " + "b a a " * 40_000 + "w"]
    spans, note = review_page.diff_marks(texts, review_page.OPEN, steps)
    assert spans == [[], []]
    assert "No word diff" in note and "Nothing is marked as different" in note


def test_the_diffs_of_one_page_share_a_budget():
    steps = review_page.Steps(total=80)
    review_page.word_diff("a b c d e f g h", "h g f e d c b a", steps)
    with pytest.raises(review_page.TooLong):
        review_page.word_diff("a b c d e f g h", "h g f e d c b a", steps)


# ---- Quotes ----------------------------------------------------------------------------------

QUOTES = (
    ("The till says “EUR 12” today.", 'says "eur 12"', ["says “EUR 12”"]),
    ("It **took  12** euros.", "took 12 euros", ["took  12** euros"]),
    ("The ﬁrst ﬁgure", "first figure", ["ﬁrst ﬁgure"]),
    ("one two three four", "one … four", ["one", "four"]),
    ("cafe\u0301 open", "café open", ["cafe\u0301 open"]),
    ("Straße 5", "STRASSE 5", ["Straße 5"]),
    ("zero\u200bwidth", "zerowidth", ["zero\u200bwidth"]),
    ("nothing of it", "something else", []),
    ("four one", "one … four", []))


@pytest.mark.parametrize("output, quote, marked", QUOTES)
def test_a_quote_is_found_where_the_program_finds_it(output, quote, marked):
    spans = review_page.quote_spans(output, quote)
    assert [output[start:end] for start, end, _ in spans] == marked
    form = review_page.eval_loop.quote_form
    assert bool(marked) == review_page.eval_loop.quote_occurs(form(quote), form(output))


def test_marks_may_overlap():
    told = review_page.marked("abcdef", [(0, 4, "gone"), (2, 6, "quote")], 0, 6)
    assert told == ('<del class="gone">ab</del><mark class="quote"><del class="gone">cd</del>'
                    '</mark><mark class="quote">ef</mark>')


# ---- Nothing is believed ---------------------------------------------------------------------


def refused(capsys, *words) -> str:
    """Say a command line that must be refused; return what it said."""
    write_page(*words, expect=3)
    return capsys.readouterr().err


def test_a_changed_comparison_is_refused_and_nothing_is_written(ready, tmp_path, capsys):
    experiment = ready("compare")
    raw = experiment.path("comparison.json").read_bytes()
    experiment.write("comparison.json", raw.replace(b'"cannot-tell"', b'"better"'))
    told = refused(capsys, experiment.path("comparison.json"), "--output", tmp_path / "x.html")
    assert "comparison.json" in told
    assert not (tmp_path / "x.html").exists()


def test_a_changed_output_is_refused_and_named(ready, tmp_path, capsys):
    experiment = ready("compare")
    [stream] = experiment.directory.rglob("candidate-heldout/h01.run.1.stdout")
    stream.write_bytes(stream.read_bytes().replace(b"euros", b"crown"))
    told = refused(capsys, experiment.path("comparison.json"), "--output", tmp_path / "x.html")
    assert "h01.run.1" in told


def test_a_document_of_another_kind_is_refused(walked, capsys):
    assert "comparison" in refused(capsys, walked("compare").path("policy.json"))


# ---- Files -----------------------------------------------------------------------------------


def test_a_page_is_private_and_lies_beside_its_document(ready, capsys):
    experiment = ready("compare")
    write_page(experiment.path("comparison.json"))
    page = experiment.path("comparison-page.html")
    assert page.stat().st_mode & 0o777 == 0o600
    assert "comparison-page.html written" in capsys.readouterr().out


def test_an_existing_file_is_refused_before_anything_is_read(tmp_path, capsys):
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert "exists" in refused(capsys, tmp_path / "absent.json", "--output", page)
    assert page.read_text() == "mine"


def test_force_replaces_an_older_page(walked, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(review_page.MARKER + "old")
    write_page(walked("compare").path("comparison.json"), "--output", page, "--force")
    assert b"Threshold met" in page.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_force_never_replaces_a_file_that_is_no_page(ready, capsys):
    experiment = ready("compare")
    before = experiment.files()
    comparison = experiment.path("comparison.json")
    told = refused(capsys, comparison, "--output", comparison, "--force")
    assert "was not written by review_page.py" in told
    assert experiment.files() == before


def test_force_never_follows_a_link(tmp_path, capsys):
    target = tmp_path / "old.html"
    target.write_text(review_page.MARKER)
    (tmp_path / "link.html").symlink_to(target)
    assert "no plain file" in refused(capsys, tmp_path / "absent.json", "--output",
                                      tmp_path / "link.html", "--force")


def test_a_directory_that_is_not_there_is_refused(walked, tmp_path, capsys):
    told = refused(capsys, walked("compare").path("comparison.json"), "--output",
                   tmp_path / "absent" / "page.html")
    assert "cannot be written" in told


@pytest.mark.parametrize("words", (
    ["calibration"], ["a.json", "b.json"], ["a.json", "--key", "k.json"],
    ["calibration", "p.json", "--blind"],
    ["a.json", "--blind", "--output", "one.html", "--key", "./one.html"]))
def test_a_wrong_command_line_is_a_matter_of_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        review_page.main(words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


# ---- Blind -----------------------------------------------------------------------------------


def exchanged(baseline, candidate):
    """Two sides that did what the other one did, under their own names and files."""
    return tuple(other._replace(variant=own.variant, run=other.run._replace(file=own.run.file))
                 for own, other in ((baseline, candidate), (candidate, baseline)))


def test_a_blind_page_tells_nothing_of_which_side_is_which(review):
    turned = {split: [pair._replace(sides=exchanged(*pair.sides)) for pair in pairs]
              for split, pairs in review.pairs.items()}
    straight = {pair.case.id: (0, 1) for pair in review.pairs["heldout"]}
    reversed_ = {case: (1, 0) for case in straight}
    assert review_page.blind_page(review, straight) == review_page.blind_page(
        review._replace(pairs=turned), reversed_)


def test_a_blind_page_names_no_arm_outside_its_introduction(pages):
    root = read(pages["blind"].read_bytes())
    told = root.one("main").text
    assert "baseline" not in told.casefold() and "candidate" not in told.casefold()
    assert "Threshold" not in root.one("body").text


def test_a_blind_page_hides_verdicts_until_asked(pages):
    case = section(asked_for(read(pages["blind"].read_bytes())), "heldout-h03")
    assert case.all(class_="verdict") == case.all("mark", "quote") == []
    assert "The output says so" not in case.text
    assert builder.good("h03") in case.text and builder.poor("h03") in case.text


def test_the_key_tells_which_output_is_which(pages, mixed):
    key = json.loads((pages["blind"].parent / "key.json").read_bytes())
    assert key["kind"] == "review-key"
    assert key["pageSha256"] == builder.sha256(pages["blind"].read_bytes())
    assert key["comparisonSha256"] == mixed.sha("comparison.json")
    outputs = {"baseline": builder.good("h03"), "candidate": builder.poor("h03")}
    case = section(read(pages["blind"].read_bytes()), "heldout-h03")
    shown = {panel.one("h5").children[0]: panel.one("pre").text
             for panel in case.one("div", "pair").all("div", "panel")}
    assert shown == {side: outputs[arm] for side, arm in key["sides"]["h03"].items()}


def test_the_sides_are_drawn_for_each_case(review, monkeypatch):
    draws = iter([0, 1] * 4)
    monkeypatch.setattr(review_page.secrets, "randbelow", lambda most: next(draws))
    drawn = review_page.drawn_sides(review.pairs["heldout"])
    assert list(drawn.values()) == [(0, 1), (1, 0)] * 4


def test_a_blind_page_keeps_the_order_of_the_inventory(pages):
    headings = read(pages["blind"].read_bytes()).all("h3")
    assert [heading.text for heading in headings] == [f"Case h{n:02}" for n in range(1, 9)]


# ---- Calibration -----------------------------------------------------------------------------


def test_labels_and_verdicts_are_hidden_until_asked(pages, mixed):
    plan = mixed.read("calibration-plan.json")
    full = read(pages["calibration"].read_bytes()).text
    root = asked_for(read(pages["calibration"].read_bytes())).one("body")
    hidden = ["Read beside the till roll.", "The output says so", "Rita Reader",
              *(f"id {sample['id']}" for sample in plan["samples"])]
    assert [text for text in hidden if text not in full] == []
    assert [text for text in hidden if text in root.text] == []
    for block in root.all("pre"):
        block.children = []
    assert not re.search(r"pass|fail|unknown|s1", root.text)


def test_the_order_of_samples_follows_the_plan_s_bytes_and_not_its_order(mixed):
    document = str(mixed.path("calibration-plan.json"))
    orders = [[sample.entry["id"] for sample in review_page.read_labelling(document).samples]
              for _ in range(2)]
    assert orders[0] == orders[1]
    digest = mixed.sha("calibration-plan.json")
    assert orders[0] == sorted(orders[0], key=lambda name: builder.sha256(
        f"{digest} {name}".encode()))


def test_the_counts_and_the_record_are_there_for_the_asking(pages):
    counts = section(read(pages["calibration"].read_bytes()), "counts")
    rows = {row.one("th").text: [cell.text for cell in row.all("td")]
            for row in counts.one("table", "numbers").one("tbody").all("tr")}
    assert rows == {"pass": ["1", "0", "0", "0"], "fail": ["0", "1", "0", "0"],
                    "unknown": ["0", "0", "1", "0"]}
    assert "Record: accepted" in counts.text


def test_samples_are_reviewed_before_the_judge_has_seen_them(make):
    experiment = make()
    page = read(review_page.calibration_page(review_page.read_labelling(
        str(experiment.path("calibration-plan.json")))))
    assert "0 of 3 have been judged" in page.text
    assert "Show the judge's verdict" not in page.text


def disagree(plan: dict) -> None:
    """Let a second reviewer see the first sample otherwise."""
    label = "fail" if plan["samples"][0]["humanVerdict"] == "pass" else "pass"
    plan["samples"][0]["secondReview"] = {
        "reviewedBy": "Sam Second", "humanVerdict": label, "humanEvidence": "I read it anew."}


def test_labels_that_disagree_are_shown_as_a_problem_for_the_asking(make):
    experiment = make()
    experiment.edit("calibration-plan.json", disagree)
    text = review_page.calibration_page(review_page.read_labelling(
        str(experiment.path("calibration-plan.json"))))
    assert "the reviewers disagree" in read(text).text
    assert "the reviewers disagree" not in asked_for(read(text)).text
    assert "I read it anew." in read(text).text


def test_a_verdict_that_differs_from_its_label_is_listed(make):
    experiment = make(script=[{"purpose": "judge", "verdict": "pass", "quote": "Shop",
                               "evidence": "Looks right."}])
    experiment.command("calibrate-run", "calibration-plan.json", expect=(0, 4))
    labelling = review_page.read_labelling(str(experiment.path("calibration-plan.json")))
    counts = section(read(review_page.calibration_page(labelling)), "counts")
    assert len(counts.one("ul").all("li")) == 2


def test_a_changed_calibration_record_is_refused(ready, capsys):
    experiment = ready("policy")
    raw = experiment.path("calibration.json").read_bytes()
    experiment.write("calibration.json", raw.replace(b'"accepted"', b'"qualified"'))
    told = refused(capsys, "calibration", experiment.path("calibration-plan.json"))
    assert "calibration.json" in told


# ---- Structure and colour --------------------------------------------------------------------


@pytest.mark.parametrize("name", ("decision", "blind", "calibration"))
def test_headings_make_an_outline_without_gaps(pages, name):
    levels = [int(element.name[1]) for element in read(pages[name].read_bytes()).all()
              if re.fullmatch("h[1-6]", element.name)]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:]))


@pytest.mark.parametrize("name", ("decision", "blind", "calibration"))
def test_every_fold_and_table_has_its_label(pages, name):
    root = read(pages[name].read_bytes())
    assert all(fold.children[0].name == "summary" and fold.children[0].text
               for fold in root.all("details"))
    assert all(found.children[0].name == "caption" and found.one("th", scope="col")
               for found in root.all("table"))
    assert root.one("html")["lang"] == "en"
    assert root.one("body").children[0]["href"] == "#content"


PAIRS = [  # text colour, ground
    ("ink", "page"), ("ink", "card"), ("soft", "page"), ("soft", "card"), ("link", "page"),
    ("link", "card"), ("good", "page"), ("bad", "page"), ("unsure", "page"),
    ("ink", "bad-back"), ("good", "good-back"), ("bad", "bad-back"), ("unsure", "unsure-back"),
    ("gone-ink", "gone-back"), ("new-ink", "new-back"), ("differs-ink", "differs-back"),
    ("quote-ink", "quote-back"), ("banner-ink", "banner-back")]
GRAPHIC = [(name, "page") for name in ("baseline", "candidate", "won", "lost", "unsure",
                                       "judging")] + [("quote-line", "card")]


def luminance(colour: str) -> float:
    """The relative luminance of #rrggbb, as WCAG 2 defines it."""
    parts = [int(colour[place:place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
              for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ("LIGHT", "DARK"))
def test_contrast_reaches_wcag_aa(scheme):
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", getattr(review_page, scheme)))
    low = [(*pair, round(contrast(*(colours[name] for name in pair)), 2), least)
           for pairs, least in ((PAIRS, 4.5), (GRAPHIC, 3)) for pair in pairs
           if contrast(*(colours[name] for name in pair)) < least]
    assert low == []


def test_both_schemes_have_the_same_colours_and_no_rule_has_its_own():
    names = [re.findall(r"--([a-z-]+):", text)
             for text in (review_page.LIGHT, review_page.DARK)]
    assert names[0] == names[1]
    rules = review_page.STYLE.replace(review_page.LIGHT, "").replace(review_page.DARK, "")
    assert re.findall(r"#[0-9a-f]{3,8}\b|\brgb", rules) == []
    assert set(re.findall(r"var\(--([a-z-]+)\)", rules)) <= set(names[0])


# ---- In a browser ----------------------------------------------------------------------------

OPEN_ALL = "for (const fold of document.querySelectorAll('details')) fold.open = true;"
OVERFLOW = OPEN_ALL + """
const wide = document.documentElement.clientWidth;
const beyond = [...document.querySelectorAll('body *')].filter(element => {
  if (element.closest('.unseen, .skip, thead') || !element.checkVisibility()) return false;
  const box = element.getBoundingClientRect();
  return box.width && (box.right > wide + 1 || box.left < -1);
});
return {scroll: document.documentElement.scrollWidth, wide,
        beyond: beyond.slice(0, 5).map(element => element.outerHTML.slice(0, 120))};
"""
RENDERED = OPEN_ALL + """
const parse = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
const light = ([r, g, b]) => [r, g, b].map(part => part / 255).map(
  part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4).reduce(
  (sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
const ground = element => {
  for (let up = element; up; up = up.parentElement) {
    const colour = parse(getComputedStyle(up).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const found = {low: [], seen: 0, ground: getComputedStyle(document.body).backgroundColor};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  if (!walk.currentNode.data.trim() || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const text = light(parse(element.closest('svg') ? style.fill : style.color));
  const behind = light(ground(element));
  const ratio = (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
  found.seen += 1;
  if (ratio < 4.5) found.low.push([ratio, walk.currentNode.data.slice(0, 60)]);
}
return found;
"""
FOCUS = """
const stops = [...document.querySelectorAll('a[href], summary')].filter(
  element => element.checkVisibility());
const bare = stops.filter(element => {
  element.focus({focusVisible: true});
  const style = getComputedStyle(element);
  return document.activeElement !== element || style.outlineStyle === 'none'
      || parseFloat(style.outlineWidth) < 2;
});
stops[0].focus({focusVisible: true});
const skip = stops[0].getBoundingClientRect();
return {stops: stops.length, bare: bare.map(element => element.outerHTML.slice(0, 120)),
        first: stops[0].textContent, shown: skip.left >= 0};
"""
FOLDED = """
const seen = id => [...document.getElementById(id).querySelectorAll('pre')].filter(
  block => block.checkVisibility()).length;
return {against: seen('heldout-h03'), fixed: seen('heldout-h01')};
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    """Headless Chromium; without one the test is skipped, or fails where one is required."""
    return browser.needed(tmp_path_factory.mktemp("browser"))


def test_a_missing_browser_is_a_failure_only_where_it_is_required(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EVAL_LOOP_CHROMIUM", raising=False)
    monkeypatch.delenv("EVAL_LOOP_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="EVAL_LOOP_CHROMIUM"):
        browser.needed(tmp_path)
    monkeypatch.setenv("EVAL_LOOP_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="EVAL_LOOP_CHROMIUM"):
        browser.needed(tmp_path)


@pytest.mark.parametrize("width", (400, 1400))
@pytest.mark.parametrize("name", ("decision", "blind", "calibration"))
def test_nothing_is_wider_than_the_window(chromium, pages, name, width):
    found = chromium.measured(pages[name], OVERFLOW, width)
    assert found == {"scroll": width, "wide": width, "beyond": []}


@pytest.mark.parametrize("dark", (False, True), ids=("light", "dark"))
@pytest.mark.parametrize("name", ("decision", "blind", "calibration"))
def test_rendered_text_has_contrast_in_both_schemes(chromium, pages, name, dark):
    found = chromium.measured(pages[name], RENDERED, dark=dark)
    assert found["seen"] > 50 and found["low"] == []
    colours = review_page.DARK if dark else review_page.LIGHT
    page = re.search("--page: #(..)(..)(..)", colours).groups()
    assert found["ground"] == "rgb({}, {}, {})".format(*(int(part, 16) for part in page))


def test_every_stop_of_the_keyboard_shows_its_focus(chromium, pages):
    found = chromium.measured(pages["decision"], FOCUS)
    assert found["stops"] > 20 and found["bare"] == []
    assert found["first"] == "Skip to the content" and found["shown"]


def test_the_browser_reads_outputs_as_text(chromium, pages):
    told = chromium.dom(pages["decision"])
    root = Reader()
    root.feed(told)
    assert root.root.one("title").text == "Threshold not met: comparison.json"
    assert root.root.all("script") == root.root.all("img") == root.root.all("b") == []
    candidate = root.root.one(id="heldout-h02").one("div", "pair").all("pre")[1]
    assert candidate.text == ANSWERS["candidate", "h02"]


def test_the_browser_loads_nothing(chromium, pages):
    found = chromium.measured(pages["decision"], OPEN_ALL + """
        return performance.getEntriesByType('resource').map(entry => entry.name);""")
    assert found == []


def test_cases_against_the_candidate_are_seen_and_others_folded(chromium, pages):
    found = chromium.measured(pages["decision"], FOLDED)
    assert found["against"] > 5 and found["fixed"] == 0


@pytest.mark.parametrize("dark", (False, True), ids=("light", "dark"))
@pytest.mark.parametrize("width", (400, 1400))
def test_screenshots_are_made(chromium, pages, tmp_path, width, dark):
    picture = chromium.screenshot(pages["decision"], tmp_path / "page.png", width, 900, dark)
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture[16:24]) == (max(width, 500), 900)
    assert len(picture) > 10_000


def test_the_page_is_printed(chromium, pages, tmp_path):
    printed = chromium.pdf(pages["decision"], tmp_path / "page.pdf")
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 2
