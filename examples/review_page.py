#!/usr/bin/env python3
"""One HTML page to decide from: everything that a finished comparison rests on, to be read.

    python3 examples/review_page.py EXPERIMENT/comparison.json [--output PAGE] [--force]
    python3 examples/review_page.py EXPERIMENT/comparison.json --blind [--key KEY]
    python3 examples/review_page.py calibration EXPERIMENT/calibration-plan.json

The page opens with the answer, then gives the reasons for a hold, the gates, pictures of
families, judge and money, and each case with both outputs side by side: regressed ones first,
then fixed ones. It is one file without script, form or address, so that nothing is loaded and
nothing is sent; all that a model or an owner wrote is escaped.

`--blind` writes another page: held-out outputs only, as A and B, drawn anew for each case,
verdicts folded away. Which is which stands in the key file alone. Read, note your verdicts,
then open the key. `calibration` writes the page for labelling review: samples in a drawn order,
each with its labels and the judge's verdict hidden until asked.

The comparison is not believed: it is rebuilt from the receipts by eval_loop.py, which refuses
what does not fit. Nothing is spent. A page is written to a new file (default: beside the
document); `--force` replaces an older page, never anything else.
Exit status: 0 written; 2 usage; 3 refused, nothing written.
"""
from __future__ import annotations

import argparse
import base64
import collections
import difflib
import functools
import hashlib
import html
import json
import os
import pathlib
import re
import secrets
import stat
import sys
import unicodedata
from decimal import Decimal
from fractions import Fraction
from typing import Any, Iterable, Iterator, NamedTuple

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
PLACE = next((place for place in (HERE.parent, HERE) if (place / "eval_loop.py").is_file()),
             HERE.parent)
sys.path.insert(0, str(PLACE))
import eval_loop  # noqa: E402  (the path above is where it lies)
from eval_loop import ARMS, VERDICTS, Refused  # noqa: E402

DONE, REFUSED = 0, 3
VARIANTS = ("baseline", "candidate")
SHOWN_LIMIT = 200_000      # characters of one text that are put on the page
HEAD_CHARACTERS = 1_600    # of a longer text that are seen before it is unfolded
HEAD_LINES = 24
DIFF_STEPS = 2_000_000     # comparisons that one word diff may take, and
PAGE_STEPS = 100_000_000   # characters and comparisons of a whole page: about a minute
DIFF_LIMIT = 2_000_000     # characters of a text that is compared, or searched for a quote
INLINE_LIMIT = 400         # characters of a name or reason within a line
ROWS_SHOWN = 40            # rows of a picture before the rest is folded
CASES_UNFOLDED = 8         # cases that speak against the candidate, unfolded from the start
LINKS_SHOWN = 16           # links in the list of parts before it is folded

# ---- Words ---------------------------------------------------------------------------------

ARM_WORDS = {"baselineDevelopment": "Baseline, development",
             "candidateDevelopment": "Candidate, development",
             "baselineHeldout": "Baseline, held-out", "candidateHeldout": "Candidate, held-out"}
SPLIT_WORDS = {"heldout": "Held-out", "development": "Development"}
FINDINGS = {
    "better": ("Improvement shown", "Yes", "good",
               "Chance alone would rarely show as much: the candidate is better on families "
               "like these."),
    "worse": ("The candidate is worse", "No: it is worse", "bad",
              "Chance alone would rarely show as much in the other direction."),
    "cannot-tell": ("Improvement not shown", "No", "unsure",
                    "That is no proof that the two are equal: a result that is not "
                    "significant says almost nothing about whether the revision is better.")}
GATES = {  # gate: (what it limits, whether its values are shares)
    "minimumHeldoutScore": ("held-out checks that the candidate passes", True),
    "minimumHeldoutGain": ("held-out checks gained over the baseline", True),
    "maximumGainPValue": ("how often chance alone would gain as much (p)", False),
    "maximumUnknownShare": ("held-out checks without a verdict, the larger arm", True),
    "maximumWorseFamiliesShare": ("held-out families that got worse", True),
    "maximumRegressedChecks": ("checks that regressed, in both splits", False)}
ERROR_CLASSES = {
    "falsePass": ("False pass", "a person said fail, the judge pass"),
    "falseBlock": ("False block", "a person said pass, the judge did not"),
    "unsupportedPass": ("Unsupported pass", "a person said unknown, the judge pass")}
ACCOUNTING = {
    "clear": "Every call has a known cost within its reservation.",
    "hold": "Some calls have an unknown cost, or were never made; this is not a bill.",
    "block": "At least one call cost more than was reserved for it."}
GLYPHS = {"pass": "✓", "fail": "✗", "unknown": "?"}
CHANGES = {1: ("fixed", "▲", "good"), -1: ("regressed", "▼", "bad"), 0: ("", "", "")}

# ---- Markup --------------------------------------------------------------------------------


class Html(str):
    """Markup that may stand on the page as it is; every other text is escaped first."""


# What a reader must not be shown as it is: control characters, changes of writing direction,
# invisible spaces and tags, and what UTF-8 cannot carry. Joiners and marks of right-to-left
# writing stay: they belong to texts.
UNSEEN = re.compile("[\0-\b\v-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2060-\u2069\ufeff"
                    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]+")
VOID_ELEMENTS = ("meta", "link")


def code_points(match: re.Match) -> str:
    """A run of unseen characters as something seen; a long run in short."""
    found = match[0]
    told = " ".join(f"U+{ord(char):04X}" for char in found[:6])
    more = f" and {len(found) - 6:,} more" if len(found) > 6 else ""
    return f'<span class="code-point">{told}{more}</span>'


def escape(text: Any) -> Html:
    """A text as markup that shows exactly this text, unseen characters by their numbers."""
    if isinstance(text, Html):
        return text
    plain = html.escape(str(text).replace("\r\n", "\n"))
    return Html(UNSEEN.sub(code_points, plain))


def tag(name: str, /, *parts: Any, **attributes: Any) -> Html:
    """One element. Parts may be nested lists; None is left out, and all but Html is escaped.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    told = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items() if value not in (None, False))
    if name in VOID_ELEMENTS:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(*parts)}</{name}>")


def joined(*parts: Any) -> Html:
    """Parts one after the other."""
    return Html("".join(joined(*part) if isinstance(part, (list, tuple)) else escape(part)
                        for part in parts if part is not None))


def said(text: Any, most: int = INLINE_LIMIT) -> Html:
    """Someone's own words within a line: cut when long, their direction kept to themselves."""
    text = str(text)
    more = f"… ({len(text):,} characters)" if len(text) > most else ""
    return tag("bdi", text[:most] + more)


def folded(summary: Any, *parts: Any, **attributes: Any) -> Html:
    """Parts that are hidden until asked for."""
    return tag("details", tag("summary", summary), *parts, **attributes)


def section(title: str, anchor: str, *parts: Any) -> Html:
    """A part of the page with its heading; `anchor` is its address on the page."""
    return tag("section", tag("h2", title, id=anchor), *parts, aria_labelledby=anchor)


def table(head: Iterable[Any], rows: Iterable[Iterable[Any]], caption: str,
          kind: str = "") -> Html:
    """A table whose first column names the rows; its caption is read, not seen.

    One of the kind `stack` gives each row several lines on a narrow screen: its roles are said
    again, since a browser forgets them with the layout, and each cell holds its column's name.
    """
    head = list(head)
    stack = "stack" in kind.split()

    def role(name: str) -> dict[str, str]:
        return {"role": name} if stack else {}

    def cell(title: Any, content: Any) -> Html:
        label = title if stack and not isinstance(title, Html) else None
        return tag("td", content, data_label=label, **role("cell"))

    lines = [tag("tr", tag("th", first, scope="row", **role("rowheader")),
                 *map(cell, head[1:], rest), **role("row")) for first, *rest in rows]
    titles = [tag("th", title, scope="col", **role("columnheader")) for title in head]
    return tag("table", tag("caption", caption, class_="unseen"),
               tag("thead", tag("tr", *titles, **role("row")), **role("rowgroup")),
               tag("tbody", *lines, **role("rowgroup")), class_=kind or None, **role("table"))


def listed(items: Iterable[Any], most: int = 20) -> Html:
    """A list; what exceeds `most` is folded."""
    entries = [tag("li", item) for item in items]
    rest = entries[most:]
    return joined(tag("ul", *entries[:most]),
                  folded(f"{len(rest):,} more", tag("ul", *rest)) if rest else None)


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def rate(value: Any, up: bool = True) -> str:
    """A share for people, as eval_loop rounds it, without trailing zeros."""
    return re.sub(r"\.?0+(?= %)", "", eval_loop.percent(Fraction(value), up)).replace(
        " ", "\N{NO-BREAK SPACE}")


def verdict_word(verdict: str, reason: str | None = None) -> Html:
    """A verdict as a sign and a word; the reason, when there is one."""
    return tag("span", tag("span", GLYPHS[verdict], aria_hidden="true"), f" {verdict}",
               tag("small", f" {reason}") if reason else None, class_=f"verdict {verdict}")


def chip(kind: str, *words: Any) -> Html:
    """A few words that stand out."""
    return tag("span", *words, class_=f"chip {kind}")


# ---- Texts with marks ----------------------------------------------------------------------

Span = tuple[int, int, str]      # start, end, kind of mark
TOKEN = re.compile(r"\d[\d.,]*\d|\w+|[^\w\s]")
MARKS = {"gone": "del", "new": "ins", "differs": "mark", "quote": "mark"}


class TooLong(Exception):
    """A word diff that would take more steps than it may."""


class Steps:
    """How many characters and comparisons the word diffs of one page may still take."""

    def __init__(self, total: int = PAGE_STEPS, each: int = DIFF_STEPS) -> None:
        self.left, self.each = total, each


class Matcher(difflib.SequenceMatcher):
    """difflib's matcher with a count of its steps: its time is quadratic on repeated words."""

    def __init__(self, left: list[str], right: list[str], steps: Steps) -> None:
        super().__init__(None, left, right, autojunk=False)
        self.steps, self.allowed = steps, min(steps.each, steps.left)
        self.cost = [0]
        for token in left:
            self.cost.append(self.cost[-1] + 1 + len(self.b2j.get(token, ())))

    def find_longest_match(self, alo=0, ahi=None, blo=0, bhi=None):
        """The longest match, as difflib finds it. Raises TooLong when steps run out."""
        taken = self.cost[len(self.a) if ahi is None else ahi] - self.cost[alo]
        self.allowed -= taken
        self.steps.left -= taken
        if self.allowed < 0:
            raise TooLong
        return super().find_longest_match(alo, ahi, blo, bhi)


def common_start(left: list[str], right: list[str]) -> int:
    """How many tokens two lists have in common at their start."""
    most = min(len(left), len(right))
    return next((place for place in range(most) if left[place] != right[place]), most)


def changed_runs(left: list[str], right: list[str], steps: Steps) -> list[tuple[int, ...]]:
    """(start and end in left, start and end in right) of each run of tokens that differs."""
    start = common_start(left, right)
    end = common_start(left[start:][::-1], right[start:][::-1])
    inner = left[start:len(left) - end], right[start:len(right) - end]
    if not any(inner):
        return []
    codes = Matcher(*inner, steps).get_opcodes()
    runs = [tuple(place + start for place in code[1:]) for code in codes if code[0] != "equal"]
    return without_islands(left, runs)


def without_islands(left: list[str], runs: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Runs joined over a few equal words between longer changes, which only scatter marks."""
    kept: list[tuple[int, ...]] = []
    for run in runs:
        if kept:
            last = kept[-1]
            island = sum(map(len, left[last[1]:run[0]]))
            changes = [max(each[1] - each[0], each[3] - each[2]) for each in (last, run)]
            if island <= 6 and run[0] - last[1] < min(changes):
                kept[-1] = last[0], run[1], last[2], run[3]
                continue
        kept.append(run)
    return kept


def word_diff(left: str, right: str, steps: Steps) -> tuple[list[Span], list[Span]]:
    """The words that only one of two texts has, as spans of each. Raises TooLong.

    White space is not compared.
    """
    steps.left -= len(left) + len(right)
    if max(len(left), len(right)) > DIFF_LIMIT or steps.left < 0:
        raise TooLong
    words = [list(TOKEN.finditer(text)) for text in (left, right)]
    runs = changed_runs(*([match[0] for match in part] for part in words), steps)
    return tuple([(words[side][run[2 * side]].start(), words[side][run[2 * side + 1] - 1].end(),
                   ("gone", "new")[side]) for run in runs if run[2 * side] < run[2 * side + 1]]
                 for side in (0, 1))


@functools.lru_cache(maxsize=4096)
def cluster_form(cluster: str) -> str:
    """One character with its marks as quotes are compared, white space around it kept."""
    return eval_loop.quote_form(f"a{cluster}a")[1:-1]


def clusters(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each character with the marks that combine with it."""
    start = 0
    for place, char in enumerate(text):
        if place and not unicodedata.combining(char):
            yield start, place
            start = place
    if text:
        yield start, len(text)


@functools.lru_cache(maxsize=4)
def quote_map(output: str) -> tuple[str, list[int], list[int]]:
    """The output as quotes are compared, and where each of its characters starts and ends.

    All empty when they cannot be told: the output is too long, or reads otherwise as a whole
    than character by character.
    """
    form, starts, ends = [], [], []
    for start, end in clusters(output) if len(output) <= DIFF_LIMIT else ():
        for char in cluster_form(output[start:end]):
            if char != " " or (form and form[-1] != " "):
                form.append(char)
                starts.append(start)
                ends.append(end)
    whole = "".join(form)
    same_form = whole.rstrip() == eval_loop.quote_form(output)
    return (whole, starts, ends) if same_form else ("", [], [])


def quote_spans(output: str, quote: str) -> list[Span]:
    """Where a quote stands in an output; nothing when its place cannot be told."""
    form, starts, ends = quote_map(output)
    spans, place = [], 0
    for piece in filter(None, map(str.strip, eval_loop.quote_form(quote).split("..."))):
        place = form.find(piece, place)
        if place < 0:
            return []
        spans.append((starts[place], ends[place + len(piece) - 1], "quote"))
        place += len(piece)
    return spans


def marked(text: str, spans: list[Span], start: int, end: int) -> Html:
    """The part of a text from start to end with its marks, sorted; they may overlap."""
    edges = sorted({start, end, *(edge for span in spans for edge in span[:2]
                                  if start < edge < end)})
    active: list[Span] = []
    parts, following = [], 0
    for left, right in zip(edges, edges[1:]):
        while following < len(spans) and spans[following][0] <= left:
            active.append(spans[following])
            following += 1
        active = [span for span in active if span[1] > left]
        piece = escape(text[left:right])
        for kind in sorted({span[2] for span in active}):  # a quote goes around what differs
            piece = tag(MARKS[kind], piece, class_=kind)
        parts.append(piece)
    return joined(*parts)


def head_length(text: str) -> int:
    """How much of a text is seen at once: all of it, or some first lines of a long one."""
    lines = [match.end() for match in re.finditer("\n", text[:HEAD_CHARACTERS])]
    cut = lines[HEAD_LINES - 1] if len(lines) >= HEAD_LINES else HEAD_CHARACTERS
    return len(text) if len(text) <= cut + HEAD_CHARACTERS // 4 else cut


def text_block(text: str, spans: Iterable[Span] = (), source: str = "its receipt") -> Html:
    """A text as it is, with marks; long ones fold, and what is too long stays in `source`."""
    if not text.strip():
        return tag("p", "(no text)" if not text else "(white space only)", class_="note")
    spans, shown = sorted(set(spans)), min(len(text), SHOWN_LIMIT)
    cut = min(head_length(text), shown)
    rest = None
    if cut < shown:
        inside = sum(start >= cut for start, _, _ in spans)
        rest = folded(f"Show the rest: {count(shown - cut, 'more character')}"
                      + (f", {count(inside, 'mark')} in it" if inside else ""),
                      tag("pre", marked(text, spans, cut, shown), dir="auto"), class_="rest")
    beyond = None
    if shown < len(text):
        beyond = tag("p", f"The first {shown:,} of {len(text):,} characters. {source} holds "
                     "all of them.", class_="note")
    return tag("div", tag("pre", marked(text, spans, 0, cut), dir="auto"), rest, beyond,
               class_="text")


# ---- What is shown -------------------------------------------------------------------------


class Side(NamedTuple):
    """What one arm did with one case."""

    variant: str
    run: eval_loop.Attempt | None
    judged: dict[str, eval_loop.Attempt | None]   # judge test -> its last attempt
    rows: dict[str, eval_loop.Row]                # test -> its row of the score
    attempts: int

    @property
    def output(self) -> str | None:
        """The Skill's answer, or None."""
        return self.run.terminal.get("output") if self.run and self.run.terminal else None

    def passed(self, test: str) -> bool:
        """Whether a check is passed; an unknown one is not."""
        return self.rows[test].verdict == "pass"


class Pair(NamedTuple):
    """One case with what both arms did."""

    case: eval_loop.Case
    split: str
    sides: tuple[Side, Side]     # baseline, candidate

    @property
    def anchor(self) -> str:
        """Its address on the page."""
        return f"{self.split}-{self.case.id}"

    def change(self, test: str) -> int:
        """1 for a check that is fixed, -1 for one that regressed, else 0."""
        before, after = (side.passed(test) for side in self.sides)
        return after - before

    def changed(self, direction: int) -> list[str]:
        """The tests that are fixed (1) or regressed (-1)."""
        return [test.id for test in self.case.tests if self.change(test.id) == direction]

    def failing_critical(self) -> list[str]:
        """The critical tests that the candidate does not pass."""
        return [test.id for test in self.case.tests
                if test.critical and not self.sides[1].passed(test.id)]

    def urgency(self) -> int:
        """Where it stands on the page: what speaks against the candidate first."""
        alike = all(side.passed(test) for side in self.sides for test in side.rows)
        return (0 if self.failing_critical() else 1 if self.changed(-1)
                else 2 if self.changed(1) else 4 if alike else 3)


class Review(NamedTuple):
    """A comparison rebuilt from its receipts, with everything that it rests on."""

    file: str
    sha256: str
    document: dict[str, Any]
    arms: dict[str, eval_loop.Arm]
    pairs: dict[str, list[Pair]]     # by split
    lapsed: str | None               # expired or revoked: the calibration, now

    @property
    def candidate(self) -> eval_loop.Arm:
        """The held-out arm of the candidate, which stands on all the others."""
        return self.arms["candidateHeldout"]


def read_sides(experiment: eval_loop.Experiment, arm: eval_loop.Arm) -> Iterator[Side]:
    """What an arm did with each of its cases, each receipt rebuilt and found equal."""
    names = eval_loop.receipt_names(experiment.root, arm.directory)
    rows: dict[str, dict[str, eval_loop.Row]] = collections.defaultdict(dict)
    for row in eval_loop.scored(experiment, arm).rows:
        rows[row.caseId][row.testId] = row
    for case in arm.cases:
        run = eval_loop.read_attempts(experiment.root, eval_loop.run_call(arm, case), names)
        side = Side(arm.plan["variant"], run[-1] if run else None, {}, rows[case.id], len(run))
        for test in case.tests:
            if test.kind == "judge" and side.output is not None:
                made = eval_loop.read_attempts(
                    experiment.root, eval_loop.judge_call(arm, case, test, run[-1]), names)
                side.judged[test.id] = made[-1] if made else None
        yield side


def read_review(document: str) -> Review:
    """The comparison named, rebuilt. Refuses one that its receipts do not give."""
    experiment, [file] = eval_loop.open_experiment(document)
    bound = eval_loop.named(experiment, file, "comparison")
    told, arms = eval_loop.stored_comparison(experiment, bound)
    pairs = {}
    for split in SPLIT_WORDS:
        before, after = (arms[f"{variant}{split.capitalize()}"] for variant in VARIANTS)
        pairs[split] = [Pair(case, split, sides) for case, *sides in zip(
            after.cases, read_sides(experiment, before), read_sides(experiment, after),
            strict=True)]
    calibration = arms["candidateHeldout"].calibration
    lapsed = calibration and eval_loop.lapse(experiment.root, calibration, experiment.now)
    return Review(file, bound.sha256, told, arms, pairs, lapsed)


def criteria_of(review: Review) -> dict[str, eval_loop.Bound]:
    """The criteria of a comparison by their hashes."""
    return {test.criterion.sha256: test.criterion for pairs in review.pairs.values()
            for pair in pairs for test in pair.case.tests if test.criterion}


# ---- Pictures ------------------------------------------------------------------------------


def across(share: Any) -> str:
    """A place in a picture, from its left edge."""
    return f"{float(share) * 100:.2f}%"


def picture(words: str, *shapes: Any, kind: str = "") -> Html:
    """A picture as wide as its place; the words say the same to those who do not see it."""
    return tag("svg", *shapes, role="img", aria_label=words, class_=f"picture {kind}".strip())


def line(start: Any, end: Any, kind: str) -> Html:
    """A horizontal line in the middle of a picture."""
    return tag("line", x1=across(start), x2=across(end), y1="50%", y2="50%", class_=kind)


def tick(place: Any, kind: str) -> Html:
    """A vertical line through a picture."""
    return tag("line", x1=across(place), x2=across(place), y1="0", y2="100%", class_=kind)


def limit(place: Any) -> list[Html]:
    """The mark of a registered limit, to be seen on a bar as well as beside it."""
    return [tick(place, "halo"), tick(place, "limit")]


def dot(place: Any, kind: str) -> Html:
    """A round mark."""
    return tag("circle", cx=across(place), cy="50%", r="5", class_=kind)


def bar(start: Any, end: Any, kind: str) -> Html:
    """A bar from one place to another."""
    return tag("rect", x=across(start), width=across(end - start), y="25%", height="50%",
               class_=kind)


def grid(*places: Any) -> list[Html]:
    """The faint lines that one picture shares with the next."""
    return [tick(place, "grid") for place in places]


def axis(*marks: tuple[Any, str]) -> Html:
    """The scale above a column of pictures: (place, words) from left to right."""
    anchors = {0: "start", len(marks) - 1: "end"}
    return tag("svg", *(tag("text", words, x=across(place), y="75%",
                            text_anchor=anchors.get(index, "middle"))
                        for index, (place, words) in enumerate(marks)),
               class_="picture axis", aria_hidden="true")


def legend(*entries: tuple[Html, str]) -> Html:
    """What the marks of a picture mean."""
    return tag("ul", *(tag("li", tag("svg", shape, class_="key", aria_hidden="true"), words)
                       for shape, words in entries), class_="legend")


class Family(NamedTuple):
    """The held-out checks of one family: passed and unknown of each arm, and all."""

    name: str
    passed: tuple[int, int]
    unknown: tuple[int, int]
    total: int

    @property
    def gain(self) -> int:
        """Checks gained by the candidate."""
        return self.passed[1] - self.passed[0]


def families_of(pairs: list[Pair]) -> list[Family]:
    """The families of some cases, those that lost most first."""
    inside: dict[str, list[Pair]] = collections.defaultdict(list)
    for pair in pairs:
        inside[pair.case.place.family].append(pair)
    found = []
    for members in inside.values():
        counts = {verdict: tuple(sum(row.verdict == verdict for pair in members
                                     for row in pair.sides[side].rows.values())
                                 for side in (0, 1)) for verdict in VERDICTS}
        found.append(Family(members[0].case.family, counts["pass"], counts["unknown"],
                            sum(len(pair.case.tests) for pair in members)))
    return sorted(found, key=lambda family: (family.gain, family.name))


def family_row(family: Family) -> list[Any]:
    """One family in the picture: from the baseline's passes to the candidate's."""
    before, after = (Fraction(passed, family.total) for passed in family.passed)
    doubt = [line(share, share + Fraction(unknown, family.total), "doubt")
             for share, unknown in zip((before, after), family.unknown) if unknown]
    way = ("tie", "won", "lost")[(family.gain > 0) - (family.gain < 0)]
    words = f"from {family.passed[0]} to {family.passed[1]} of {family.total} passed"
    shape = picture(words, *grid(0, Fraction(1, 2), 1), *doubt, line(before, after, way),
                    dot(before, "baseline"), dot(after, "candidate"))
    number = f"{family.passed[0]} → {family.passed[1]} of {family.total}"
    doubts = [f"{unknown} of the {variant}'s unknown"
              for variant, unknown in zip(VARIANTS, family.unknown) if unknown]
    return [said(family.name), shape, joined(number, tag("small", ", ".join(doubts))
                                             if doubts else None)]


def family_picture(pairs: list[Pair]) -> Html:
    """The picture of the held-out families."""
    families = families_of(pairs)
    scale = axis((0, "0 %"), (Fraction(1, 2), "50 %"), (1, "100 %"))
    told = [table(("Family", scale, "Passed"), map(family_row, part),
                  "Held-out families: checks passed by baseline and candidate",
                  "chart families")
            for part in (families[:ROWS_SHOWN], families[ROWS_SHOWN:]) if part]
    keys = [(dot(Fraction(1, 2), "baseline"), "baseline"),
            (dot(Fraction(1, 2), "candidate"), "candidate"),
            (line(0, 1, "won"), "better"), (line(0, 1, "lost"), "worse")]
    if any(any(family.unknown) for family in families):
        keys.append((line(0, 1, "doubt"), "what unknown checks could add"))
    return joined(legend(*keys), told[0], folded(
        count(len(families) - ROWS_SHOWN, "more family", "more families"), told[1])
        if told[1:] else None)


def scale_end(values: Iterable[Fraction]) -> Fraction:
    """The end of a scale of shares that holds all of these."""
    most = max(values, default=Fraction(0))
    return next((Fraction(end, 100) for end in (10, 20, 30, 40, 50, 60, 80)
                 if most <= Fraction(end, 100)), Fraction(1))


def bound_row(words: tuple[str, str], told: dict[str, Any], most: Fraction | None,
              end: Fraction) -> list[Any]:
    """One error class in the picture: what was seen, how large it can be, the limit."""
    bound, seen = Fraction(told["upperBound"]), Fraction(told["errors"], max(told["n"], 1))
    missed = most is not None and bound > most
    numbers = f"{told['errors']} of {told['n']}; at most {rate(bound)}"
    if most is not None:
        numbers += f"; limit {rate(most)}"
    shape = picture(numbers, *grid(0, Fraction(1, 2), 1),
                    bar(0, bound / end, "missed" if missed else "bound"),
                    dot(seen / end, "seen"),
                    limit(most / end) if most is not None else None)
    return [joined(words[0], tag("small", words[1])), shape,
            joined(numbers, chip("bad", "above the limit") if missed else None)]


def limits_of(limits: dict[str, Any] | None) -> dict[str, Fraction]:
    """The registered limit of each error class; none of exact agreement."""
    return {name: Fraction(limits[eval_loop.CLASSES[name][2]])
            for name in ERROR_CLASSES} if limits else {}


def judge_picture(groups: list[dict[str, Any]], limits: dict[str, Any] | None,
                  names: dict[str, Html], gain: Fraction | None = None) -> Html:
    """The picture of the judge's errors, by criterion and slice; the gain on the same scale."""
    by_class = limits_of(limits)
    bounds = [Fraction(group[name]["upperBound"]) for group in groups for name in ERROR_CLASSES]
    end = scale_end([*bounds, *by_class.values(), gain or Fraction(0)])
    scale = axis((0, "0 %"), (Fraction(1, 2), rate(end / 2)), (1, rate(end)))
    told = []
    if gain is not None and gain > 0:
        words = f"{rate(gain, up=False)} with every unknown against the candidate"
        shape = picture(words, *grid(0, Fraction(1, 2), 1), bar(0, gain / end, "gain"))
        told.append(table(
            ("Gain", scale, "Of all held-out checks"),
            [["Candidate over baseline", shape, words]],
            "The gain, on the scale of the judge's errors", "chart stack bounds"))
    for group in groups:
        rows = [bound_row(words, group[name], by_class.get(name), end)
                for name, words in ERROR_CLASSES.items()]
        told += [tag("h3", names.get(group["criterionSha256"], group["criterionSha256"][:12]),
                     tag("small", "slice ", said(group["slice"])) if group["slice"] else None),
                 table(("Error", scale, "Seen; bound; limit"), rows,
                       "The judge's errors against people's labels", "chart stack bounds"),
                 tag("p", abstentions(group), class_="note"),
                 listed(said(text, 2000) for text in group["missed"]) if group["missed"]
                 else None]
    joint = " for all together" if limits and limits["jointConfidence"] else ""
    keys = [(dot(Fraction(1, 2), "seen"), "share of errors seen"),
            (bar(0, 1, "bound"), f"how large it can be (one-sided 95 % bound{joint})")]
    keys += [(tick(Fraction(1, 2), "limit"), "registered limit")] if by_class else []
    return joined(legend(*keys), *told)


def abstentions(group: dict[str, Any]) -> str:
    """How often the judge gave no verdict, in words."""
    told = group["abstention"]
    words = f"No verdict on {told['errors']} of {told['n']} samples labelled pass or fail"
    return f"{words}; at most {rate(told['upperBound'])} of all such."


def money_row(name: str, calls: dict[str, Any], most: Decimal) -> list[Any]:
    """One arm's money in the picture."""
    run, judge = (Decimal(calls[part]["knownUsd"]) for part in ("run", "judge"))
    words = f"{run} USD for the Skill, {judge} USD for the judge"
    shape = picture(words, bar(Decimal(0), run / most, "skill"),
                    bar(run / most, (run + judge) / most, "judging"))
    return [ARM_WORDS[name], shape, spent_words(calls["run"]), spent_words(calls["judge"])]


def spent_words(told: dict[str, Any]) -> Html:
    """What one kind of call took, in words."""
    served = told["attempts"] - told["unserved"]
    lines = [f"{told['knownUsd']} USD",
             f"{count(told['attempts'], 'call')}, {told['tokens']:,} tokens"]
    if served:
        lines.append(f"{told['milliseconds'] / served / 1000:.1f}\N{NO-BREAK SPACE}s each")
    lines += [f"{told[name]} {words}" for name, words in (
        ("unserved", "unserved"), ("unknownCost", "of unknown cost")) if told[name]]
    return joined(lines[0], tag("small", ", ".join(lines[1:])))


def money_picture(document: dict[str, Any]) -> Html:
    """The picture of what the calls of each arm cost."""
    calls = document["calls"]
    most = max([sum(Decimal(part["knownUsd"]) for part in arm.values())
                for arm in calls.values()] + [Decimal("0.000001")])
    rows = [money_row(name, calls[name], most) for name in reversed(ARMS)]
    return joined(legend((bar(0, 1, "skill"), "Skill calls"), (bar(0, 1, "judging"),
                                                               "judge calls")),
                  table(("Arm", Html("Cost"), "Skill calls", "Judge calls"), rows,
                        "What the calls of each arm cost and took", "chart stack money"))


# ---- Parts of the decision page ------------------------------------------------------------


def synthetic_note(kind: str) -> Html | None:
    """The first words of a page whose evidence is not real."""
    return tag("p", tag("strong", "Synthetic evidence."), " It shows how the loop works, never "
               "that a Skill is good.", class_="banner") if kind == "synthetic" else None


def answer(question: str, words: str, kind: str, *more: Any) -> Html:
    """One of the answers that the page opens with."""
    return tag("div", tag("dt", question), tag("dd", tag("strong", words, class_=kind),
                                               *(tag("p", part) for part in more if part)))


def outcome(review: Review) -> Html:
    """The answer: whether the threshold is met, whether an improvement is shown."""
    told, policy = review.document, review.candidate.policy
    title, shown, kind, meaning = FINDINGS[told["finding"]]
    hold = told["status"] == "hold"
    return tag(
        "header", synthetic_note(told["evidenceKind"]),
        tag("p", f"{review.file}: Skill {policy['skillName']}, task {policy['taskId']}",
            class_="over"),
        tag("h1", tag("span", f"Threshold {'not met: hold' if hold else 'met'}."), " ",
            tag("span", f"{title}.")),
        tag("dl", answer("Is the registered threshold met?", "No: hold" if hold else "Yes",
                         "bad" if hold else "good", threshold_words(told)),
            answer("Is an improvement shown?", shown, kind, meaning, family_words(told)),
            check_answer(told), class_="answers"), class_="page-head")


def threshold_words(told: dict[str, Any]) -> str:
    """What the status means."""
    if told["status"] == "hold":
        return f"{count(len(told['reasons']), 'reason')} for a hold, listed below."
    return ("Every registered gate is met with every unknown counted against the candidate. "
            "That makes it eligible for your review; it accepts nothing.")


def family_words(told: dict[str, Any]) -> str:
    """Wins and losses by family, as they are and in the worst case."""
    families, worst = told["heldout"]["families"], told["worstCase"]
    found, least = ((len(families["wins"]), len(families["losses"])),
                    (worst["wins"], worst["losses"]))
    doubt = (f"; in the worst case for unknown checks {least[0]} better, {least[1]} worse"
             if found != least else "")
    of = count(families["families"], "held-out family", "held-out families")
    return (f"Of {of}, {found[0]} got better, {found[1]} worse, {families['ties']} stayed "
            f"equal{doubt}. One-sided p, unknown checks against the candidate: "
            f"{eval_loop.plain(worst['pOneSided'])}.")


def check_answer(told: dict[str, Any]) -> Html:
    """How many held-out checks pass before and after."""
    scores = [told["heldout"]["scores"][variant] for variant in VARIANTS]
    checks = told["heldout"]["checks"]
    return answer(
        "How many held-out checks pass?",
        f"{scores[0]['passed']:,} → {scores[1]['passed']:,} of {scores[1]['total']:,}", "",
        "Baseline → candidate.", unknown_words(scores),
        f"{count(len(checks['fixed']), 'check')} fixed, {len(checks['regressed']):,} "
        "regressed.")


def unknown_words(scores: list[dict[str, Any]]) -> str | None:
    """How many checks have no verdict, when there are any."""
    if not any(part["unknown"] for part in scores):
        return None
    return (f"Without a verdict: {scores[0]['unknown']} of the baseline's, "
            f"{scores[1]['unknown']} of the candidate's; they count as not passed.")


def hold_reasons(review: Review) -> Html:
    """Every reason for a hold."""
    reasons = review.document["reasons"]
    if not reasons:
        return section("No reason for a hold", "reasons", tag(
            "p", "No gate is missed, no critical check of the candidate fails, no held-out "
            "case was exposed, and the judge's record stands."))
    return section("Reasons for a hold", "reasons", tag("div", listed(
        said(reason, 2000) for reason in reasons), class_="against"))


def cautions(review: Review) -> Iterator[Any]:
    """What else an owner should know before deciding, a sentence each."""
    told = review.document
    if told["judge"]:
        yield ("No person has checked the judge on these outputs yet. Read the judged checks "
               "below, the fixed ones first; where you disagree, say so in humanReview of the "
               "decision.")
    yield from (said(text, 2000) for text in (*told["laxGates"], *told["candidateNotes"],
                                              *told["contradictoryTimes"]))
    yield ("One attempt a case: chance from run to run is not separated from the difference "
           "between cases.")
    if told["candidatesTried"] > 1:
        yield f"{told['candidatesTried']} candidates were tried on the development cases."
    if told["otherReceipts"]:
        yield (f"{count(len(told['otherReceipts']), 'Skill run')} of other plans in this "
               "experiment came before the end of these four.")
    if told["largestGapSeconds"] > 600:
        yield (f"Up to {told['largestGapSeconds'] // 60:,} minutes lie between the two arms of "
               "a case; the service may have changed meanwhile.")
    if len(told["programs"]) > 1:
        yield f"The receipts come from {len(told['programs'])} versions of eval_loop.py."
    if told["judge"]:
        yield (f"The judge's record is {told['judge']['status']} (attempt "
               f"{told['judge']['attemptNumber']}, labels {told['judge']['labelKind']}); it "
               f"expires at {told['judge']['expiresAtUtc']}.")
    if review.lapsed:
        yield tag("strong", f"The judge's calibration is {review.lapsed} now: an accept would "
                  "be refused.")


def gate_row(gate: dict[str, Any]) -> list[Any]:
    """One gate: its meaning, the value found, the limit."""
    words, share = GATES.get(gate["gate"], (gate["gate"], False))
    least = gate["gate"].startswith("minimum")
    got, wanted = (rate(gate[name], up) if share else eval_loop.plain(gate[name])
                   for name, up in (("got", not least), ("limit", least)))
    wanted = f"{'at least' if least else 'at most'} {wanted}"
    value, bound = (min(max(Fraction(gate[name]), Fraction(0)), Fraction(1))
                    for name in ("got", "limit"))
    shape = picture(f"{got}, {wanted}", *grid(0, 1),
                    bar(0, value, "bound" if gate["met"] else "missed"), limit(bound))
    shown = share or gate["gate"] == "maximumGainPValue"
    return [joined(words[0].upper() + words[1:], tag("small", gate["gate"])),
            shape if shown else "", got, wanted,
            chip("good", "✓ met") if gate["met"] else chip("bad", "✗ missed")]


def gates(review: Review) -> Html:
    """The registered gates."""
    return section("Gates", "gates", tag(
        "p", "Registered in the policy before the first Skill call. Unknown checks count "
        "against the candidate."), legend((bar(0, 1, "bound"), "found"),
                                  (tick(Fraction(1, 2), "limit"), "registered limit")),
        table(("Gate", axis((0, "0"), (1, "1")), "Found", "Limit", "Result"),
              map(gate_row, review.document["gates"]), "The registered gates",
              "chart stack gates"))


def judged(review: Review) -> Html:
    """How far the judge can be relied on."""
    told = review.document["judge"]
    if told is None:
        return section("Judge", "judge", tag(
            "p", "No test of these cases is judged by a model."))
    record = review.candidate.calibration.document
    gain = next((Fraction(gate["got"]) for gate in review.document["gates"]
                 if gate["gate"] == "minimumHeldoutGain"), None)
    rule = ("Registered limits were set before the judge was measured."
            if told["rule"] == "statistical" else
            "Accepted on exact agreement: every verdict matched its label, but so few samples "
            "exclude only very large error rates.")
    return section("Judge", "judge", tag("p", rule), judge_picture(
        told["groups"], record["registeredLimits"],
        {digest: criterion_name(bound) for digest, bound in criteria_of(review).items()}, gain))


def criterion_name(bound: eval_loop.Bound) -> Html:
    """A criterion as a heading: its first line, and its file."""
    first = next(filter(None, map(str.strip, bound.document.splitlines())), bound.file)
    return joined(said(first, 160), tag("small", bound.file))


def money(review: Review) -> Html:
    """What it cost."""
    told, calls = review.document["accounting"], review.document["calls"]
    each = [per_call(calls[f"{variant}Heldout"]["run"]) for variant in VARIANTS]
    lines = [f"Known cost of the Skill calls and judgments of the four plans, calibration apart: "
             f"{told['knownUsd']} USD. {ACCOUNTING[told['status']]}"]
    if told["unknownCalls"]:
        lines.append(f"{count(told['unknownCalls'], 'call')} of unknown cost: up to "
                     f"{told['reservedForUnknownUsd']} USD were reserved for them.")
    if all(each):
        lines.append(f"A held-out Skill call cost {each[0]} USD with the baseline and "
                     f"{each[1]} USD with the candidate, on average.")
    lines.append("These are the CLI's own estimates, not an invoice; people, hosting and "
                 "earlier experiments are not in them.")
    return section("Money and time", "money", tag("p", " ".join(lines)),
                   money_picture(review.document))


def per_call(told: dict[str, Any]) -> str | None:
    """The mean known cost of a call."""
    known = told["attempts"] - told["unserved"] - told["unknownCost"]
    return f"{Decimal(told['knownUsd']) / known:.4f}" if known else None


def changes_table(document: dict[str, Any]) -> Html:
    """Fixed, regressed and unchanged checks of both splits."""
    rows = [[f"{SPLIT_WORDS[split]}, {kind}", *(f"{part[name]:,}" for name in (
        "fixed", "regressed", "unchanged"))]
        for split in SPLIT_WORDS for kind in ("literal", "judge")
        for part in (document[split]["checks"][kind],)]
    return table(("Checks", "Fixed", "Regressed", "Unchanged"), rows,
                 "Changed checks by split and kind of test", "numbers")


def change_chips(pair: Pair) -> Html:
    """What changed in a case, in a few words."""
    chips = [chip("bad", "✗ critical: ", ", ".join(pair.failing_critical()))] \
        if pair.failing_critical() else []
    for direction in (-1, 1):
        if tests := pair.changed(direction):
            word, glyph, kind = CHANGES[direction]
            chips.append(chip(kind, tag("span", glyph, aria_hidden="true"),
                              f" {len(tests)} {word}"))
    unknown = [sum(row.verdict == "unknown" for row in side.rows.values())
               for side in pair.sides]
    if any(unknown):
        chips.append(chip("unsure", f"? {max(unknown)} unknown"))
    return joined(*chips)


def passed_words(pair: Pair) -> str:
    """How many checks of a case each arm passes."""
    before, after = (sum(map(side.passed, side.rows)) for side in pair.sides)
    return f"{before} → {after} of {len(pair.case.tests)}"


def paired_row(pair: Pair) -> list[Any]:
    """One case in the paired table."""
    moved = [tag("div", chip(CHANGES[way][2], CHANGES[way][1], f" {CHANGES[way][0]}"), " ",
                 ", ".join(pair.changed(way))) for way in (-1, 1) if pair.changed(way)]
    family = said(pair.case.family, 80) if pair.case.family != pair.case.id else None
    return [joined(tag("a", pair.case.id, href=f"#{pair.anchor}"),
                   tag("small", family) if family else None), passed_words(pair),
            joined(*moved) if moved else "–"]


def paired_table(pairs: list[Pair]) -> Html:
    """All cases of a split, those that changed first."""
    ordered = sorted(pairs, key=Pair.urgency)
    parts = [table(("Case", "Passed", "What changed"), map(paired_row, part),
                   "Cases: checks passed by baseline and candidate", "stack paired")
             for part in (ordered[:ROWS_SHOWN], ordered[ROWS_SHOWN:]) if part]
    return joined(parts[0], folded(count(len(ordered) - ROWS_SHOWN, "more case"), parts[1])
                  if parts[1:] else None)


# ---- Cases ---------------------------------------------------------------------------------


class Look(NamedTuple):
    """How a case is shown: the names of its two sides, their marks, and what is hidden."""

    names: tuple[str, str]
    marks: tuple[str, str]
    blind: bool


OPEN = Look(("Baseline", "Candidate"), ("gone", "new"), False)
BLIND = Look(("A", "B"), ("differs", "differs"), True)


def test_words(test: eval_loop.Test) -> Html:
    """What a test asks."""
    if test.kind == "judge":
        return joined("judge: ", tag("span", test.criterion.file, class_="file"))
    return joined(test.kind.replace("_", " "), " ", tag("code", said(test.value)))


def check_row(pair: Pair, sides: list[Side], test: eval_loop.Test, look: Look) -> list[Any]:
    """One check of a case: what it asks, and the verdict on both sides."""
    told = [verdict_word(side.rows[test.id].verdict, side.rows[test.id].reason)
            for side in sides]
    if not look.blind:
        word, glyph, kind = CHANGES[pair.change(test.id)]
        told.append(chip(kind, glyph, f" {word}") if word else "")
    return [joined(test.id, chip("critical", "critical") if test.critical else None,
                   tag("small", test_words(test))), *told]


def checks_table(pair: Pair, sides: list[Side], look: Look) -> Html:
    """The checks of a case."""
    head = ["Check", *look.names] + ([] if look.blind else ["Change"])
    return table(head, (check_row(pair, sides, test, look) for test in pair.case.tests),
                 f"Checks of case {pair.case.id}", "stack checks")


def all_quotes(side: Side) -> list[Span]:
    """The places of an output that the judge quoted."""
    quotes = [made.terminal["quote"] for made in side.judged.values()
              if made and made.terminal and made.terminal.get("quote")]
    return [span for quote in quotes for span in quote_spans(side.output, quote)]


def panel(name: str, side: Side, spans: list[Span], look: Look) -> Html:
    """One output with its marks."""
    terminal = side.run.terminal if side.run else None
    source = "The receipt" if look.blind or not side.run else f"{side.run.file}.terminal.json"
    if side.output is None:
        reason = terminal["reason"] if terminal else "not called"
        body = tag("p", f"No output: {reason}.", class_="note")
    else:
        body = text_block(side.output, spans, source)
    words = count(len(side.output.split()), "word") if side.output is not None else ""
    more = [f"{side.attempts} attempts"] if side.attempts > 1 and not look.blind else []
    return tag("div", tag("h5", name, tag("small", ", ".join(filter(None, [words, *more])))),
               body, class_="panel")


def outputs(sides: list[Side], look: Look, steps: Steps) -> Html:
    """Both outputs side by side, with the words that only one has and the judge's quotes."""
    spans: list[list[Span]] = [[], []]
    note: Any = None
    if None not in (sides[0].output, sides[1].output):
        spans, note = diff_marks([side.output for side in sides], look, steps)
    if not look.blind:
        spans = [found + (all_quotes(side) if side.output else [])
                 for found, side in zip(spans, sides)]
    return joined(note, tag("div", *(panel(name, side, found, look) for name, side, found
                                     in zip(look.names, sides, spans)), class_="pair"))


def diff_marks(texts: list[str], look: Look,
               steps: Steps) -> tuple[list[list[Span]], Html | None]:
    """The marks of the words that differ, and a sentence about them."""
    if texts[0] == texts[1]:
        return [[], []], tag("p", "The two are the same, character for character.",
                             class_="note")
    try:
        found = word_diff(*texts, steps)
    except TooLong:
        sizes = " and ".join(f"{len(text):,}" for text in texts)
        return [[], []], tag("p", f"No word diff: with texts of {sizes} characters it would "
                             "take too long. Nothing is marked as different.", class_="note")
    note = None if any(found) else tag("p", "The two differ in white space only.",
                                       class_="note")
    return [[(start, end, mark) for start, end, _ in spans]
            for spans, mark in zip(found, look.marks)], note


def marks_legend(look: Look) -> Html:
    """What the marks in outputs mean."""
    if look.blind:
        return tag("p", tag("mark", "words that the other one does not have", class_="differs"),
                   " (white space is not compared)", class_="note")
    return tag("p", tag("del", "only in the baseline", class_="gone"), " ",
               tag("ins", "only in the candidate", class_="new"), " ",
               tag("mark", "quoted by the judge", class_="quote"),
               " White space is not compared. Unseen characters are shown by number, such as ",
               escape("\0"), ".", class_="note")


def judgment(name: str, side: Side, test: eval_loop.Test) -> Html:
    """What the judge said about one output."""
    row, made = side.rows[test.id], side.judged.get(test.id)
    told = made.terminal if made and made.terminal else {}
    return tag("div", tag("h6", name, " ", verdict_word(row.verdict, row.reason)),
               *judge_words(told, side.output) if told else [tag(
                   "p", "The judge said nothing about it.", class_="note")], class_="panel")


def judge_words(told: dict[str, Any], output: str | None) -> list[Any]:
    """Evidence and quote of a judge's terminal receipt."""
    if told.get("evidence") is None:
        return [tag("p", f"No usable reply: {told['reason']}.", class_="note")]
    quote = told["quote"]
    place = None
    if quote and output is not None and not quote_spans(output, quote):
        place = tag("p", "The place of this quote in the output is not marked"
                    + (": it does not occur." if told["reason"] == "quote-not-found" else "."),
                    class_="note")
    return [tag("p", "Evidence", class_="note"), text_block(told["evidence"]),
            tag("p", "Quote" if quote else "No quote", class_="note"),
            tag("blockquote", text_block(quote)) if quote else None, place]


def judgments(pair: Pair, sides: list[Side], look: Look) -> Html | None:
    """All that the judge said about a case."""
    tests = [test for test in pair.case.tests if test.kind == "judge"]
    parts = [tag("div", tag("h5", test.id, tag("small", test.criterion.file)),
                 folded("Criterion", text_block(test.criterion.document, (), "The file")),
                 tag("div", *(judgment(name, side, test)
                              for name, side in zip(look.names, sides)), class_="pair"),
                 class_="judgment")
             for test in tests]
    return joined(tag("h4", "What the judge said"), *parts) if parts else None


def materials(case: eval_loop.Case) -> Html:
    """The approved truth and the input of a case."""
    return tag("div", *(tag("div", tag("h5", name, tag("small", bound.file)), text_block(
        bound.document, (), "The file"), class_="panel") for name, bound in (
        ("Approved truth", case.truth), ("Input", case.task))), class_="pair")


def case_body(pair: Pair, sides: list[Side], look: Look, steps: Steps) -> list[Any]:
    """Everything about one case."""
    told = [checks_table(pair, sides, look), judgments(pair, sides, look)]
    if look.blind:
        return [tag("h4", "Outputs"), outputs(sides, look, steps), tag("h4", "Truth and input"),
                materials(pair.case), tag("h4", "To judge"), blind_questions(pair.case),
                folded("Show the verdicts (they may tell which is which)", *told)]
    return [told[0], tag("h4", "Outputs"), outputs(sides, look, steps),
            tag("h4", "Truth and input"), materials(pair.case), told[1]]


def case_part(pair: Pair, unfolded: bool, steps: Steps) -> Html:
    """One case of the decision page."""
    facts = [part for part in (
        f"family {pair.case.family}" if pair.case.family != pair.case.id else "",
        f"slice {pair.case.slice}" if pair.case.slice else "") if part]
    head = tag("summary", tag("h3", pair.case.id), tag("span", passed_words(pair),
                                                       class_="passed"), change_chips(pair),
               tag("small", said(", ".join(facts), 120)) if facts else None)
    return tag("details", head, *case_body(pair, list(pair.sides), OPEN, steps), class_="case",
               id=pair.anchor, open=unfolded)


def cases(review: Review, split: str, steps: Steps) -> Html:
    """The cases of one split."""
    pairs, told = sorted(review.pairs[split], key=Pair.urgency), review.document[split]
    name = SPLIT_WORDS[split]
    return section(f"{name} cases", split, tag(
        "p", f"{count(len(pairs), 'case')}: {count(len(told['checks']['regressed']), 'check')} "
        f"regressed, {len(told['checks']['fixed'])} fixed. Cases that speak against the "
        "candidate come first, unfolded."), paired_table(pairs), marks_legend(OPEN),
        tag("p", "Folded parts are printed folded: unfold on the screen what you want on "
            "paper.", class_="note on-paper"),
        *(case_part(pair, place < CASES_UNFOLDED and pair.urgency() < 2, steps)
          for place, pair in enumerate(pairs)))


def skill_change(review: Review, steps: Steps) -> Html:
    """Both revisions of the Skill side by side."""
    texts = [review.arms[f"{variant}Heldout"].skill.decode("utf-8", "replace")
             for variant in VARIANTS]
    spans, note = diff_marks(texts, OPEN, steps)
    return section("What changed in the Skill", "skill", note, tag("div", *(
        tag("div", tag("h3", name), text_block(text, found, "The file"), class_="panel")
        for name, text, found in zip(OPEN.names, texts, spans)), class_="pair"))


def to_decide(review: Review) -> Html:
    """What the decision document binds, and what the comparison rests on."""
    told = review.document
    needs = "An accept needs an eligible comparison and a judge's record that still stands"
    if told["finding"] != "better":
        needs += ", and acceptWithoutShownImprovement, since no improvement is shown"
    hashes = {"comparisonSha256": review.sha256,
              "candidateSkillSha256": told["candidateSkillSha256"]}
    rest = {"baseline Skill": told["baselineSkillSha256"], "policy": told["policySha256"],
            "calibration": told["calibrationSha256"] or "none",
            **{f"score, {ARM_WORDS[name].lower()}": told["scoreSha256"][name] for name in ARMS},
            **{f"eval_loop.py {number}": digest
               for number, digest in enumerate(told["programs"], 1)}}
    return section("To decide", "decide", tag("p", f"{needs}. The decision document binds "
                                              "these two hashes:"), hash_table(hashes),
                   folded("All other hashes", hash_table(rest)))


def hash_table(hashes: dict[str, str]) -> Html:
    """Names and hashes."""
    return table(("What", "SHA-256"), ([name, tag("code", digest)] for name, digest
                                       in hashes.items()), "Hashes", "hashes")


# ---- Whole pages ---------------------------------------------------------------------------

MARKER = "<!doctype html>\n<!-- review page of eval_loop -->\n"


def whole_page(title: str, *parts: Any) -> str:
    """A complete page: no script, no address, and a policy that allows neither."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = (f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri "
              "'none'; form-action 'none'")
    head = tag("head", tag("meta", charset="utf-8"),
               tag("meta", http_equiv="Content-Security-Policy", content=policy),
               tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
               tag("meta", name="color-scheme", content="light dark"),
               tag("meta", name="referrer", content="no-referrer"),
               tag("link", rel="icon", href="data:,"), tag("title", title),
               tag("style", Html(STYLE)))
    body = tag("body", tag("a", "Skip to the content", href="#content", class_="skip"), *parts)
    return f"{MARKER}{tag('html', head, body, lang='en')}\n"


def contents(links: dict[str, str]) -> Html:
    """The list of the page's parts."""
    told = tag("ol", *(tag("li", tag("a", words, href=f"#{anchor}"))
                       for anchor, words in links.items()))
    return tag("nav", told if len(links) <= LINKS_SHOWN else folded("All parts", told),
               aria_label="Parts of this page")


def laid_out(head: Html, links: dict[str, str], *parts: Any) -> Html:
    """Head, list of parts and content."""
    return tag("div", head, contents(links), tag("main", *parts, id="content", tabindex="-1"),
               class_="frame")


def decision_page(review: Review) -> str:
    """The page to decide from."""
    steps = Steps()
    links = {"reasons": "Reasons for a hold" if review.document["reasons"] else "No hold",
             "before": "Before you decide", "gates": "Gates", "families": "Families",
             "judge": "Judge", "money": "Money and time", "heldout": "Held-out cases",
             "development": "Development cases", "skill": "The Skill's change",
             "decide": "To decide"}
    families = section("Held-out families", "families", tag(
        "p", "From the checks that the baseline passes to those that the candidate passes. "
        "Families that got worse come first."), family_picture(review.pairs["heldout"]),
        changes_table(review.document))
    title = f"Threshold {'not met' if review.document['reasons'] else 'met'}: {review.file}"
    return whole_page(title, laid_out(
        outcome(review), links, hold_reasons(review),
        section("Before you decide", "before", listed(cautions(review), 40)),
        gates(review), families, judged(review), money(review),
        cases(review, "heldout", steps), cases(review, "development", steps),
        skill_change(review, steps), to_decide(review)))


# ---- The blind page ------------------------------------------------------------------------


def drawn_sides(pairs: list[Pair]) -> dict[str, tuple[int, int]]:
    """For each case which side is A and which is B (0 baseline, 1 candidate), by fair draws."""
    return {pair.case.id: ((0, 1), (1, 0))[secrets.randbelow(2)] for pair in pairs}


def blind_questions(case: eval_loop.Case) -> Html:
    """The criteria of a case and the values of its literal tests, without any verdict."""
    judged_tests = [test for test in case.tests if test.kind == "judge"]
    literal = [tag("li", test.id, ": ", test_words(test)) for test in case.tests
               if test.kind != "judge"]
    return joined(*(tag("div", tag("h5", test.id), text_block(
        test.criterion.document, (), "The file"), class_="panel") for test in judged_tests),
        folded("Literal tests", tag("ul", *literal)) if literal else None)


def notes_sheet(rows: list[list[str]], columns: tuple[str, ...]) -> Html:
    """A sheet to be filled in by hand."""
    blanks = ["pass / fail / unknown"] * (len(columns) - len(rows[0])) if rows else []
    return section("A sheet for your notes", "sheet", tag(
        "p", "The page keeps nothing: print it, or write elsewhere."), folded(
        "Show the sheet", table(columns, ([*row, *blanks] for row in rows), "Notes", "sheet")))


def blind_page(review: Review, drawn: dict[str, tuple[int, int]]) -> str:
    """The held-out outputs as A and B, in the order of the inventory, without their arms."""
    steps, pairs = Steps(), review.pairs["heldout"]
    parts = [tag("section", tag("h3", f"Case {pair.case.id}", id=pair.anchor),
                 *case_body(pair, [pair.sides[side] for side in drawn[pair.case.id]], BLIND,
                            steps), aria_labelledby=pair.anchor, class_="sample")
             for pair in pairs]
    rows = [[f"{pair.case.id}, {test.id}"] for pair in pairs for test in pair.case.tests
            if test.kind == "judge"]
    head = tag("header", synthetic_note(review.document["evidenceKind"]),
               tag("p", f"Skill {review.candidate.policy['skillName']}", class_="over"),
               tag("h1", f"Blind reading of {count(len(pairs), 'held-out case')}"),
               tag("p", "Each case shows two outputs, A and B. Which is the baseline and which "
                   "the candidate was drawn anew for each case and stands in the key file "
                   "alone. Note your verdict on each judged test, then open the key."),
               marks_legend(BLIND), class_="page-head")
    links = {pair.anchor: pair.case.id for pair in pairs}
    return whole_page(f"Blind reading: {review.candidate.policy['skillName']}", laid_out(
        head, {**links, "sheet": "Notes"}, section("Cases", "cases", *parts),
        notes_sheet(rows, ("Check", *BLIND.names))))


def blind_key(review: Review, drawn: dict[str, tuple[int, int]], page: bytes) -> bytes:
    """The key of a blind page."""
    return (json.dumps({
        "kind": "review-key", "pageSha256": eval_loop.sha256(page),
        "comparisonSha256": review.sha256,
        "sides": {case: {name: VARIANTS[side] for name, side in zip(BLIND.names, order)}
                  for case, order in drawn.items()}}, indent=1) + "\n").encode()


# ---- The calibration page ------------------------------------------------------------------


class Sample(NamedTuple):
    """One labelled sample, with the judge's answer when there is one."""

    entry: dict[str, Any]
    texts: dict[str, eval_loop.Bound]     # input, truth, output, criterion
    label: str
    terminal: dict[str, Any] | None

    @property
    def differs(self) -> bool:
        """Whether the judge said something else than the label."""
        return bool(self.terminal) and (self.terminal["verdict"] != self.label
                                        or self.terminal["status"] != "ok")


class Labelling(NamedTuple):
    """A calibration plan as it is to be reviewed."""

    plan: eval_loop.Bound
    samples: list[Sample]            # in the order in which they are shown
    problems: list[str]              # with the labels
    record: dict[str, Any] | None    # the calibration, when it exists


def read_terminals(experiment: eval_loop.Experiment,
                   plan: eval_loop.Bound) -> dict[str, dict[str, Any] | None]:
    """Sample -> the terminal receipt of its last attempt, each rebuilt."""
    calls, made = eval_loop.sample_calls(experiment, plan)
    return {call.subject["sampleId"]: attempts[-1].terminal if attempts else None
            for call, attempts in zip(calls, made, strict=True)}


def read_labelling(document: str) -> Labelling:
    """A calibration plan with its samples in a drawn order that its bytes decide."""
    experiment, [file] = eval_loop.open_experiment(document)
    plan = eval_loop.named(experiment, file, "calibration-plan")
    labels, problems = eval_loop.labels_of(plan)
    terminals = {} if problems else read_terminals(experiment, plan)
    samples = [Sample(entry, {name: experiment.at(entry, name) for name in (
        "input", "truth", "output", "criterion")}, labels[entry["id"]],
        terminals.get(entry["id"])) for entry in plan["samples"]]
    samples.sort(key=lambda sample: (
        sample.texts["criterion"].file, eval_loop.sha256(
            f"{plan.sha256} {sample.entry['id']}".encode())))
    return Labelling(plan, samples, problems, read_record(experiment, plan))


def read_record(experiment: eval_loop.Experiment,
                plan: eval_loop.Bound) -> dict[str, Any] | None:
    """The calibration of a plan, rebuilt and found equal; None while it is not written."""
    file = plan["calibrationOutputFile"]
    if not os.path.lexists(os.path.join(experiment.root, file)):
        return None
    bound = experiment.load({"file": file}, "calibration")
    experiment.settle()
    if bound["calibrationPlan"]["sha256"] != plan.sha256:
        return None
    record = eval_loop.calibration_document(experiment, plan,
                                            experiment.at(bound, "calibrationApproval"))
    if eval_loop.sha256(eval_loop.canonical(record)) != bound.sha256:
        raise Refused(f"{file}: is not what the receipts of {plan.file} give; restore it")
    return record


def review_lines(entry: dict[str, Any]) -> list[Html]:
    """The labels of a sample, each with who gave it and why."""
    given = [("First label", entry, "humanEvidence"),
             ("Second label", entry.get("secondReview"), "humanEvidence"),
             ("Adjudication", entry.get("adjudication"), "reason")]
    return [tag("div", tag("dt", name, " by ", said(part["reviewedBy"], 80)),
                tag("dd", verdict_word(part["humanVerdict"]), text_block(part[reason])))
            for name, part, reason in given if part]


def sample_part(number: int, sample: Sample) -> Html:
    """One sample: its texts are seen, its labels and the judge's verdict are asked for."""
    entry, texts = sample.entry, sample.texts
    facts = [f"id {entry['id']}"] + (["tries to talk the judge round"] if entry.get("attack")
                                     else [])
    hidden = [folded("Show the labels", tag("p", said(", ".join(facts)), class_="note"),
                     tag("dl", *review_lines(entry), class_="labels"))]
    if sample.terminal:
        spans = quote_spans(texts["output"].document, sample.terminal.get("quote") or "")
        hidden.append(folded(
            "Show the judge's verdict",
            tag("p", verdict_word(sample.terminal["verdict"], sample.terminal["reason"])),
            *judge_words(sample.terminal, texts["output"].document),
            [tag("p", "Its place in the output", class_="note"),
             text_block(texts["output"].document, spans, "The file")] if spans else None))
    slice_words = tag("small", "slice ", said(entry["slice"])) if entry.get("slice") else None
    panels = [tag("div", tag("h4", name), text_block(texts[part].document, (), "The file"),
                  class_="panel") for name, part in (
        ("Output", "output"), ("Approved truth", "truth"), ("Input", "input"))]
    return tag("section", tag("h3", f"Sample {number}", slice_words, id=f"sample-{number}"),
               tag("div", *panels[:2], class_="pair"), folded("Input", panels[2]),
               tag("div", *hidden, class_="asked"), aria_labelledby=f"sample-{number}",
               class_="sample")


def label_counts(labelling: Labelling) -> Html:
    """What is hidden until asked: counts, mismatches, the judge's bounds."""
    numbered = list(enumerate(labelling.samples, 1))
    told = [table(("Human label", *(f"judge: {word}" for word in VERDICTS), "not judged"), (
        [label, *(f"{sum(same(sample, label, word) for sample in labelling.samples):,}"
                  for word in (*VERDICTS, None))] for label in VERDICTS),
        "Verdicts by human label", "numbers")]
    if differing := [pair for pair in numbered if pair[1].differs]:
        told += [tag("h3", "Where the judge differs from the label"), listed(
            (joined(tag("a", f"Sample {number}", href=f"#sample-{number}"), ": labelled ",
                    verdict_word(sample.label), ", judged ", verdict_word(
                        sample.terminal["verdict"], sample.terminal["reason"]))
             for number, sample in differing), 100)]
    if labelling.record:
        names = {sample.texts["criterion"].sha256: criterion_name(sample.texts["criterion"])
                 for sample in labelling.samples}
        told += [tag("h3", f"Record: {labelling.record['status']}"), judge_picture(
            labelling.record["groups"], labelling.record["registeredLimits"], names)]
    return joined(*told)


def same(sample: Sample, label: str, verdict: str | None) -> bool:
    """Whether a sample has this label and this verdict (None: not judged)."""
    judged_as = sample.terminal["verdict"] if sample.terminal else None
    return (sample.label, judged_as) == (label, verdict)


def calibration_page(labelling: Labelling) -> str:
    """The page for labelling review."""
    plan, samples = labelling.plan, labelling.samples
    groups: dict[str, list[tuple[int, Sample]]] = collections.defaultdict(list)
    for number, sample in enumerate(samples, 1):
        groups[sample.texts["criterion"].sha256].append((number, sample))
    parts, links = [], {}
    for place, members in enumerate(groups.values(), 1):
        criterion = members[0][1].texts["criterion"]
        links[f"criterion-{place}"] = f"Criterion {place}: {count(len(members), 'sample')}"
        parts.append(section(f"Criterion {place}", f"criterion-{place}",
                             tag("p", criterion.file, class_="note"),
                             text_block(criterion.document, (), "The file"),
                             *(sample_part(*member) for member in members)))
    judged_now = sum(sample.terminal is not None for sample in samples)
    head = tag("header", synthetic_note(plan["labelKind"]),
               tag("p", f"{plan.file}: task {plan['taskId']}", class_="over"),
               tag("h1", f"Labelling review of {count(len(samples), 'sample')}"),
               tag("p", "Decide each sample for yourself before you ask for its labels. "
                   "Samples stand in a drawn order and under numbers, because ids and order "
                   f"may tell the label. {judged_now:,} of {len(samples):,} have been judged."),
               folded("Show the problems with the labels", listed(
                   said(text, 2000) for text in labelling.problems)) if labelling.problems
               else None, class_="page-head")
    links |= {"sheet": "Notes", "counts": "Counts and errors"}
    sheet = notes_sheet([[f"Sample {number}"] for number in range(1, len(samples) + 1)],
                        ("Sample", "Your label"))
    end = section("Counts and errors", "counts", folded(
        "Show the counts of labels and the judge's errors", label_counts(labelling)))
    return whole_page("Labelling review", laid_out(head, links, *parts, sheet, end))


# ---- Style ---------------------------------------------------------------------------------

LIGHT = """
  --page: #f7f6f3; --card: #ffffff; --ink: #1e1d1a; --soft: #5d5a53; --rule: #dcd9d1;
  --link: #1c4c9c; --good: #17643a; --good-back: #e1f1e6; --bad: #a0261c; --bad-back: #fce8e5;
  --unsure: #72500a; --unsure-back: #f7edd3; --gone-ink: #6b140c; --gone-back: #fbdcd7;
  --new-ink: #0e4526; --new-back: #d0eed9; --differs-ink: #3b2f66; --differs-back: #e4dffa;
  --quote-ink: #33290a; --quote-back: #fff0b3; --quote-line: #9a7300;
  --banner-ink: #4c3a05; --banner-back: #fbedc0;
  --baseline: #6d6a63; --candidate: #1c4c9c; --won: #17643a; --lost: #a0261c; --faint: #d2cfc6;
  --judging: #6f8abf;
"""
DARK = """
  --page: #16171a; --card: #1e2024; --ink: #e9e7e2; --soft: #aeaba3; --rule: #383b41;
  --link: #97bcff; --good: #86d7a2; --good-back: #16331f; --bad: #ffa79d; --bad-back: #421c17;
  --unsure: #eec877; --unsure-back: #372b0e; --gone-ink: #ffdad4; --gone-back: #5b231c;
  --new-ink: #d3f5de; --new-back: #1a4a2a; --differs-ink: #e6e0ff; --differs-back: #41367a;
  --quote-ink: #fff4c2; --quote-back: #4d3f06; --quote-line: #dcb51c;
  --banner-ink: #f6e2a4; --banner-back: #3a2f0c;
  --baseline: #aeaba3; --candidate: #97bcff; --won: #86d7a2; --lost: #ffa79d; --faint: #44474e;
  --judging: #56719f;
"""
STYLE = """
:root {""" + LIGHT + """}
@media screen and (prefers-color-scheme: dark) { :root {""" + DARK + """} }
:root { color-scheme: light dark; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
.frame { max-width: 86rem; margin: 0 auto; padding: 1.5rem clamp(1rem, 3vw, 2.5rem) 5rem; }
a { color: var(--link); text-underline-offset: .15em; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 2px; }
.skip { position: absolute; left: -100rem; background: var(--card); padding: .5rem 1rem; }
.skip:focus { left: 1rem; top: 1rem; z-index: 1; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); }
h1, h2, h3, h4, h5, h6 { line-height: 1.2; margin: 0; text-wrap: balance; font-weight: 650; }
h1 { font-size: clamp(1.75rem, 1.2rem + 2.2vw, 2.75rem); letter-spacing: -.02em; }
h1 > span { display: inline-block; }
h2 { font-size: 1.5rem; letter-spacing: -.01em; margin: 0 0 .75rem; }
h3 { font-size: 1.0625rem; }
h4 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
h5, h6 { font-size: .875rem; margin: 0 0 .375rem; }
.panel > h4 { font-size: .875rem; margin: 0 0 .375rem; }
h2, h3, .case { scroll-margin-top: 1rem; }
p, ul, ol, dl, dd { margin: 0; }
p { max-width: 46rem; text-wrap: pretty; }
p + p, section > * + p, p + table, ul + table { margin-top: .75rem; }
section > * + h3 { margin-top: 2rem; }
small, .note, .over, .file { color: var(--soft); font-size: .875rem; font-weight: 400; }
h3 > small, h5 > small { margin-left: .5rem; }
th > small, td > small { display: block; }
code, pre, .file { font-family: ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono",
  Menlo, Consolas, monospace; font-size: .8125rem; }
section { margin-top: 3.5rem; }
main > section:first-child { margin-top: 0; }
main:focus { outline: none; }
.on-paper { display: none; }
.banner { background: var(--banner-back); color: var(--banner-ink); padding: .5rem .875rem;
  margin-bottom: 1.5rem; max-width: none; border-radius: .25rem; }
.page-head { margin-bottom: 2.5rem; }
.page-head h1 + p { margin-top: 1rem; }
.over { margin-bottom: .5rem; }
.answers { display: grid; gap: 1.5rem 3rem; margin-top: 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); }
.answers > div { border-top: 2px solid var(--ink); padding-top: .75rem; }
.answers dt { color: var(--soft); }
.answers strong { display: block; font-size: 1.75rem; line-height: 1.2;
  margin: .25rem 0 .5rem; }
.answers p { font-size: .9375rem; }
.answers p + p { margin-top: .375rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .unsure { color: var(--unsure); }
.against { background: var(--bad-back); border-radius: .375rem; padding: 1rem 1.25rem; }
ul { padding-left: 1.25rem; max-width: 54rem; }
li + li { margin-top: .375rem; }
nav ol { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
nav li + li { margin: 0; }
nav { margin-bottom: 3rem; font-size: .9375rem; }
nav a { display: inline-block; padding: .1875rem 0; }

table { border-collapse: collapse; width: 100%; font-size: .9375rem; table-layout: fixed; }
th, td { text-align: left; vertical-align: top; padding: .5rem 1rem .5rem 0;
  border-top: 1px solid var(--rule); font-weight: 400; }
th:last-child, td:last-child { padding-right: 0; }
thead th { border-top: 0; color: var(--soft); font-size: .875rem; vertical-align: bottom; }
tbody th { font-weight: 550; }
.numbers { max-width: 38rem; margin-top: 1.5rem; }
.numbers td, .numbers thead th + th { text-align: right; }
.chart :is(td, th) { padding-top: .375rem; padding-bottom: .375rem; }
.picture { display: block; width: 100%; height: 1.25rem; overflow: visible; }
.axis text { fill: var(--soft); font-size: .75rem; }
.grid { stroke: var(--rule); }
.tie { stroke: var(--baseline); stroke-width: 3; } .won { stroke: var(--won); stroke-width: 3; }
.lost { stroke: var(--lost); stroke-width: 3; }
.doubt { stroke: var(--unsure); stroke-width: 2; stroke-dasharray: 2 3; }
circle.baseline { fill: var(--page); stroke: var(--baseline); stroke-width: 2.5; }
circle.candidate { fill: var(--candidate); stroke: var(--page); stroke-width: 1; }
circle.seen { fill: var(--ink); stroke: var(--page); }
.limit { stroke: var(--ink); stroke-width: 2; } .halo { stroke: var(--page); stroke-width: 6; }
rect.bound, rect.gain, rect.skill { fill: var(--candidate); } rect.missed { fill: var(--lost); }
rect.gain { fill: var(--won); } rect.judging { fill: var(--judging); }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem;
  color: var(--soft); font-size: .875rem; margin: .75rem 0 .5rem; }
.legend li { display: flex; align-items: center; gap: .5rem; margin: 0; }
.key { width: 1.25rem; height: 1rem; overflow: visible; }
.chip { display: inline-block; white-space: nowrap; border-radius: .25rem; 
  padding: 0 .4375rem; margin-right: .375rem;
  font-size: .875rem; line-height: 1.5; font-weight: 550; }
.chip.good { background: var(--good-back); } .chip.bad { background: var(--bad-back); }
.chip.unsure { background: var(--unsure-back); }
.chip.critical { border: 1px solid currentColor; margin-left: .5rem; line-height: 1.3; }
.verdict { font-weight: 550; white-space: nowrap; }
.verdict small { white-space: normal; }
.verdict.pass { color: var(--good); } .verdict.fail { color: var(--bad); }
.verdict.unknown { color: var(--unsure); }

summary { cursor: pointer; color: var(--link); padding: .1875rem 0; }
details > summary + * { margin-top: .5rem; }
.case { border-top: 1px solid var(--rule); padding: .25rem 0; margin: 0; }
.case > summary { color: inherit; padding: .5rem 0 .5rem 1.25rem; position: relative;
  display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem .75rem; }
.case > summary::before { content: ""; position: absolute; left: .125rem; top: .95rem;
  border: .3125rem solid transparent; border-left-color: currentColor; border-right: 0; }
.case[open] > summary::before { transform: rotate(90deg); }
.case > summary::-webkit-details-marker { display: none; }
.case > summary h3 { text-decoration: underline; text-decoration-color: var(--rule);
  text-underline-offset: .2em; }
.case > summary:hover h3 { text-decoration-color: currentColor; }
.case[open] { padding-bottom: 2rem; }
.passed { color: var(--soft); }
.pair { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit,
  minmax(min(100%, 20rem), 1fr)); }
.pair + *, .panel + .panel, .panel + details { margin-top: 1rem; }
.pair > .panel + .panel { margin-top: 0; }
.panel { min-width: 0; }
.text { background: var(--card); border: 1px solid var(--rule); border-radius: .375rem;
  padding: .625rem .875rem; min-width: 0; }
.text + .note { margin-top: .5rem; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.6;
  overflow: hidden; tab-size: 4; }
.rest summary { font-size: .875rem; }
blockquote { margin: 0; }
.judgment + .judgment { margin-top: 1.75rem; }
.judgment .note, .asked .note { margin: .375rem 0 .125rem; }
.asked details + details { margin-top: .75rem; }
.note + .case { margin-top: 1.5rem; }
table + .note, details + .note { margin-top: 1.25rem; }
blockquote .text { background: var(--quote-back); color: var(--quote-ink); border: 0; }
ins, del, mark { border-radius: .125rem; -webkit-box-decoration-break: clone;
  box-decoration-break: clone; }
.gone { background: var(--gone-back); color: var(--gone-ink);
  text-decoration: underline dotted 1px; text-underline-offset: .2em; }
.new { background: var(--new-back); color: var(--new-ink);
  text-decoration: underline solid 1px; text-underline-offset: .2em; }
.differs { background: var(--differs-back); color: var(--differs-ink);
  text-decoration: underline solid 1px; text-underline-offset: .2em; }
.quote { background: var(--quote-back); color: var(--quote-ink);
  border-bottom: 2px solid var(--quote-line); }
.code-point { font: 600 .6875rem/1 system-ui, sans-serif; border: 1px solid currentColor;
  border-radius: .1875rem; padding: 0 .1875rem; unicode-bidi: isolate; }
.labels > div + div { margin-top: .75rem; }
.sample { border-top: 1px solid var(--rule); padding-top: 1.25rem; margin-top: 2rem; }
.sample > h3 { margin-bottom: .75rem; }
.asked { margin-top: .25rem; }
.pair + details { margin-top: .75rem; }

@media (min-width: 72rem) {
  .frame { display: grid; grid-template-columns: 10.5rem minmax(0, 1fr); column-gap: 3.5rem; }
  .page-head { grid-column: 1 / -1; }
  nav ol { display: block; }
  nav ol li + li { margin-top: .25rem; }
  nav { position: sticky; top: 1.5rem; align-self: start; max-height: calc(100vh - 3rem);
    overflow-y: auto; }
}
@media (min-width: 40.01rem) {
  .paired th:nth-child(2) { width: 8rem; } .paired th:nth-child(3) { width: 55%; }
  .checks th { width: 22%; } .checks th:first-child { width: 42%; }
  .checks th:nth-child(4) { width: 8rem; }
  .numbers th:first-child { width: 40%; }
  .hashes th:first-child { width: 12rem; }
  .chart th:first-child, .chart th:last-child { width: 27%; }
  .families th:last-child { width: 19%; }
  .gates th:nth-child(2) { width: 27%; } .gates th:last-child { width: 6.5rem; }
  .money th:not(:nth-child(2)) { width: 21%; }
}
@media (max-width: 40rem) {
  section { margin-top: 2.75rem; }
  th, td { padding-right: .625rem; }
  .families th:first-child { width: 34%; } .families th:last-child { width: 28%; }
  .numbers th:first-child { width: 36%; } .numbers :is(th, td) { padding-right: .25rem; }
  .numbers thead th { font-size: .8125rem; }
  .stack, .stack tbody, .stack thead { display: block; }
  .stack tr { display: grid; gap: .125rem .75rem; padding: .625rem 0;
    grid-template-columns: repeat(6, minmax(0, 1fr)); border-top: 1px solid var(--rule); }
  .stack thead tr { border-top: 0; padding: 0; }
  .stack tr > * { display: block; border: 0; padding: 0; grid-column: span 2; }
  .stack thead th:not(:has(svg)) { position: absolute; width: 1px; height: 1px;
    overflow: hidden; clip-path: inset(50%); }
  .stack tbody th, .stack tr > :has(svg), .bounds tbody td, .paired td:last-child {
    grid-column: 1 / -1; }
  .money tbody td:not(:has(svg)) { grid-column: span 3; }
  .paired tbody th { grid-column: span 4; }
  .stack td:empty { display: none; }
  .gates td::before, .money td::before, .checks td::before { display: block;
    content: attr(data-label); color: var(--soft); font-size: .8125rem; }
}
@media print {
  @page { margin: 16mm 14mm; }
  html { font-size: 9.5pt; }
  body { background: none; }
  .answers { grid-template-columns: repeat(3, 1fr); gap: 1.5rem; }
  .on-paper { display: block; }
  .frame { display: block; padding: 0; }
  nav, .skip { display: none; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  h2, h3, h4, h5, h6, summary, thead, .legend { break-after: avoid; }
  tr, .answers > div { break-inside: avoid; }
  tbody tr:first-child { break-before: avoid; }
  section { margin-top: 2rem; }
}
"""

# ---- Files and the command line ------------------------------------------------------------


def refuse_taken(path: str, force: bool, begins: bytes) -> None:
    """Refuses a name that is taken, but for an older page of ours when `force` is said."""
    if not os.path.lexists(path):
        return
    if not force:
        raise Refused(f"{path}: exists; name another file with --output or --key, or say "
                      "--force")
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise Refused(f"{path}: is no plain file; --force replaces an older page only")
    with open(path, "rb") as stream:
        if stream.read(len(begins)) != begins:
            raise Refused(f"{path}: was not written by review_page.py; --force replaces an "
                          "older page only, name another file")


def write_file(path: str, raw: bytes, force: bool) -> None:
    """Write a private file, whole or not at all; refuses a name that is taken or unusable."""
    target = f"{path}.{secrets.token_hex(4)}.part" if force else path
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Refused(f"{path}: cannot be written ({error.strerror})") from None
    try:
        with open(descriptor, "wb") as stream:
            stream.write(raw)
        if force:
            os.replace(target, path)
    except OSError as error:
        os.unlink(target)
        raise Refused(f"{path}: cannot be written ({error.strerror})") from None


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line's arguments; `document`, and whether it is a calibration's."""
    described, _, more = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(description=described, epilog=more,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", nargs="+", metavar="DOCUMENT",
                        help="comparison.json, or: calibration calibration-plan.json")
    parser.add_argument("--output", metavar="PAGE", help="the page to write")
    parser.add_argument("--force", action="store_true", help="replace an older page")
    parser.add_argument("--blind", action="store_true", help="hide which side is which")
    parser.add_argument("--key", metavar="KEY", help="the key of a blind page")
    options = parser.parse_args(argv)
    options.calibration = options.documents[0] == "calibration"
    if len(options.documents) != 1 + options.calibration:
        parser.error("expected one document, or the word calibration and one document")
    if options.key and not options.blind:
        parser.error("--key belongs to --blind")
    if options.blind and options.calibration:
        parser.error("--blind is for a comparison; labels are hidden in any case")
    options.document = options.documents[-1]
    stem = options.document.removesuffix(".json")
    options.output = options.output or f"{stem}-{'blind' if options.blind else 'page'}.html"
    options.key = options.key or (f"{options.output.removesuffix('.html')}-key.json"
                                  if options.blind else None)
    if options.key and os.path.realpath(options.key) == os.path.realpath(options.output):
        parser.error("--key and --output name one file")
    return options


def make_pages(options: argparse.Namespace) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of each file that the command line asks for; the key before its page."""
    if options.calibration:
        yield options.output, calibration_page(read_labelling(options.document)).encode()
        return
    review = read_review(options.document)
    if not options.blind:
        yield options.output, decision_page(review).encode()
        return
    drawn = drawn_sides(review.pairs["heldout"])
    page = blind_page(review, drawn).encode()
    yield options.key, blind_key(review, drawn, page)
    yield options.output, page


def main(argv: list[str] | None = None) -> int:
    """Write a page; return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    options = parse(argv)
    try:
        refuse_taken(options.output, options.force, MARKER.encode())
        if options.key:
            refuse_taken(options.key, options.force, b'{\n "kind": "review-key"')
        for path, raw in list(make_pages(options)):
            write_file(path, raw, options.force)
            print(f"{path} written ({len(raw):,} bytes)")
    except Refused as refusal:
        for problem in refusal.problems:
            print(f"refused: {problem}", file=sys.stderr)
        return REFUSED
    return DONE


if __name__ == "__main__":
    sys.exit(main())
