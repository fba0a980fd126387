"""README.md is true: its session runs, its commands exist, its numbers are the program's.

What lies in README.md between `<!-- NAME -->` and `<!-- /NAME -->` is generated here:

    python3 tests/test_docs.py --write      writes it anew
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import threading
import tokenize
import uuid
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "examples")]

import eval_loop  # noqa: E402  (the program beside this directory)

README = ROOT / "README.md"
PROGRAM = ROOT / "eval_loop.py"
TREE = ast.parse(PROGRAM.read_text("utf-8"))
WIDTH = 96
DEMO_COMMAND = "python3 examples/demo.py"
TEST_COMMAND = ("python3 -m venv .venv && .venv/bin/pip install -q pytest && "
                ".venv/bin/python -m pytest -q tests")
MONEY_PATH = ("Words", "Bytes", "Store", "Shapes", "Receipts", "Calls")

# What the tests report with a line RELIABILITY NAME N, in words. The least N stands in the
# test itself, as an assertion; or in another one, which is named here.
RELIABILITY = {
    "steps-crashed": "commands killed in place of one durable step, then said again",
    "storage-faults-survived": "failures of the disk (full, unreadable, no sync) at one step",
    "process-faults-survived": "ways in which a CLI hangs, dies, floods or leaves children",
    "processes": "commands at work on one experiment at once",
    "answers-mutated": "outputs of the CLI with one change, each ending in a terminal receipt",
    "documents-mutated-*": "documents of the owner with one change",
    "leaves-tampered-*": "leaves of documents and receipts changed, for each kind of change",
    "stream-bytes-tampered": "bits of kept outputs flipped",
    "files-swapped": "pairs of bound files exchanged",
    "injection-attempts": "outputs that try to leave their part of the judge's prompt",
    "prompts-told-apart": "judge prompts of similar parts, no two of them equal",
}
ASSERTED_BY = {"documents-mutated-*": "test_at_least_five_thousand_documents_were_mutated"}


def readme() -> str:
    """Return README.md."""
    return README.read_text("utf-8")


def section(title: str) -> str:
    """Return the text below one heading of README.md, up to the next of its rank."""
    text, = re.findall(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", readme())
    return text


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


def table(text: str, first: str) -> list[list[str]]:
    """Return the rows, in cells, of the table whose header begins with `first`."""
    rows = re.search(rf"(?m)^\| {re.escape(first)} \|.*\n\|[-:| ]+\|\n((?:\|.*\n)+)", text)[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]


def rows_of(*rows) -> str:
    """Return a Markdown table; the first row is its header."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|---" + "|--:" * (len(rows[0]) - 1) + "|", *lines[1:]]) + "\n"


# ---- what is generated ---------------------------------------------------------------------


def sections() -> dict[str, tuple[int, int]]:
    """Return for each section of the program its lines and its tokens."""
    text = PROGRAM.read_text("utf-8")
    starts = [(number, match[1]) for number, line in enumerate(text.splitlines(), 1)
              if (match := re.match(r"# -{60,} (.+)", line))]
    ends = [number for number, _ in starts[1:]] + [text.count("\n") + 1]
    nothing = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
               tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    documented = {node.body[0].value.lineno for node in ast.walk(TREE) if isinstance(
        node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node)}
    tokens, inside = [], 0      # from Python 3.12 on an f-string is many tokens: here one
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if not (inside or token.type in nothing
                or (name == "STRING" and token.start[0] in documented)):
            tokens.append(token.start[0])
        inside += (name == "FSTRING_START") - (name == "FSTRING_END")
    return {name: (end - start, sum(start <= line < end for line in tokens))
            for (start, name), end in zip(starts, ends, strict=True)}


def size_block() -> str:
    """Return the size of the program, section by section, rounded."""
    holds = {
        "Words": "constants, exit statuses, reasons, the one kind of refusal",
        "Bytes": "hashes, canonical JSON, strict JSON, times, exact decimals",
        "Store": "the one writer, the one reader, names of receipts, locks",
        "Shapes": "what a single value of a document or receipt may be",
        "Receipts": "what a call is, and how its output is read: pure",
        "Calls": "ledger, claim, start, end, resume: **the end of the money path**",
        "Documents": "the shape of every document of the owner, and its checker",
        "Cases": "Skill file, inventories, leakage",
        "Statistics": "bounds, exact tests, power: pure",
        "Qualification": "labels, counts, limits: pure",
        "Scoring": "one row a check: pure",
        "Comparing": "gates, reasons for a hold, finding: pure",
        "Stages": "what must exist and agree before each stage; rebuilding",
        "Commands": "one function a command",
        "Command line": "the table of commands"}
    found = sections()
    rows = [(name, round(lines, -1), round(tokens, -2), holds[name])
            for name, (lines, tokens) in found.items()]
    whole = (round(PROGRAM.read_text("utf-8").count("\n"), -2),
             round(sum(tokens for _, tokens in found.values()), -3))
    money = round(sum(found[name][0] for name in MONEY_PATH), -1)
    text = rows_of(("section", "lines", "tokens", "what it holds"), *rows,
                   ("**all**", *whole, f"of these, money path: {money} lines"))
    return text.replace("|--:|--:|--:|", "|--:|--:|---|", 1)


def least_samples(errors: int, limit: Fraction) -> int:
    """Return the least n at which so many errors still clear a limit."""
    n = max(errors, 1)
    while eval_loop.upper_bound(errors, n) > limit:
        n += 1
    return n


def labels_block() -> str:
    """Return how many samples of a class are needed."""
    return rows_of(("limit", *(f"{errors} errors" if errors != 1 else "1 error"
                               for errors in range(5))),
                   *((limit, *(least_samples(errors, Fraction(limit)) for errors in range(5)))
                     for limit in ("0.02", "0.05", "0.1", "0.15", "0.2")))


FAMILIES = (5, 10, 15, 20, 30, 40, 50, 75, 100)
GAINS = (10, 20, 30, 50)


def power_block() -> str:
    """Return what so many held-out families can show, and how many show it mostly."""
    rows = [(n, *(int(100 * eval_loop.sign_test_power(n, gain + 5, 5)) for gain in GAINS))
            for n in FAMILIES]
    need = []
    for gain in GAINS:
        n = FAMILIES[0]
        while eval_loop.sign_test_power(n, gain + 5, 5) < Fraction(4, 5):
            n += 1
        need.append(n)
    return rows_of(("families", *(f"gain {gain / 100:.1f}" for gain in GAINS)), *rows,
                   ("for 80 % at least", *need))


def critical_block() -> str:
    """Return how often critical checks survive chance flips."""
    numbers = (5, 10, 20, 30, 50)
    return rows_of(("critical checks", *numbers), (
        "percent", *(int(100 * Fraction(98, 100) ** number) for number in numbers)))


def reported() -> dict[str, tuple[str, int]]:
    """Return every number that a test reports: its file, and the least that it asserts."""
    found = {}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        if path.name == "test_docs.py":
            continue
        tree = ast.parse(path.read_text("utf-8"))
        constants = {node.targets[0].id: node.value.value for node in tree.body
                     if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
                     and isinstance(node.targets[0], ast.Name)}
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for name, number in names_reported(function):
                fixed = constants.get(getattr(number, "id", None))
                other = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
                         and node.name == ASSERTED_BY.get(name)]
                found[name] = path.name, fixed or least_asserted([*other, function][0])
    return found


def names_reported(function: ast.FunctionDef) -> list[tuple[str, ast.AST | None]]:
    """Return the names that a function reports, a star for what varies, and their numbers."""
    names: list[tuple[str, ast.AST | None]] = []
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        for text in call.args[:1]:
            words = flat(text)
            if getattr(call.func, "attr", getattr(call.func, "id", "")) == "report":
                names.append((words, call.args[-1]))
            elif words.startswith("RELIABILITY ") and not words.startswith("RELIABILITY \0"):
                names.append((words.split(" ")[1], None))
            elif words.startswith("RELIABILITY "):
                names += [(node.value.replace(" ", "-"), None) for node in ast.walk(function)
                          if isinstance(node, ast.Constant) and isinstance(node.value, str)
                          and re.fullmatch(r"[a-z ]{5,20}", node.value)]
    return [(name.replace("\0", "*"), number) for name, number in names]


def least_asserted(function: ast.FunctionDef) -> int:
    """Return the largest whole number that an assertion of a function asks to be reached."""
    least = [0]
    for claim in (node for node in ast.walk(function) if isinstance(node, ast.Assert)):
        for comparison in ast.walk(claim):
            if isinstance(comparison, ast.Compare):
                for sign, right in zip(comparison.ops, comparison.comparators, strict=True):
                    numbers = [node.value for node in ast.walk(right)
                               if isinstance(node, ast.Constant) and type(node.value) is int]
                    if isinstance(sign, (ast.Gt, ast.GtE)) and numbers:
                        least.append(max(numbers) + isinstance(sign, ast.Gt))
    return max(least)


def reliability_block() -> str:
    """Return the least numbers that the tests assert."""
    known = reported()
    rows = [(f"`{name}`", words, f"{known[name][1]:,}", f"`tests/{known[name][0]}`")
            for name, words in RELIABILITY.items() if name in known]
    text = rows_of(("number", "what was done", "at least", "where"), *rows)
    return text.replace("|---|--:|--:|--:|", "|---|---|--:|---|", 1)


def help_of(*words: str) -> str:
    """Return what --help prints at the width of README.md."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run([sys.executable, str(PROGRAM), *words, "--help"], env=environment,
                          capture_output=True, encoding="utf-8", timeout=60, check=True)
    return done.stdout


def reference_block() -> str:
    """Return the help of the program and of every command, without what all of them share."""
    texts = [help_of(), *(help_of(name) for name, *_ in eval_loop.COMMANDS)]
    said = [re.sub(r"(?m)^ +-h, --help .*\n|^positional arguments:\n|^\s*\n", "", text)
            for text in texts]
    said = [re.sub(r"(?m)^options:\n(?=\S|\Z)|^  (?:FILE|DOCUMENT|PLAN|APPROVAL|COMPARISON|"
                   r"DECISION)\n", "", text) for text in said]
    return "```text\n" + "\n".join(said) + "```\n"


GENERATED = {"size": size_block, "labels": labels_block, "power": power_block,
             "critical": critical_block, "reliability": reliability_block,
             "reference": reference_block}


def stored(name: str) -> str:
    """Return what README.md has for a generated block."""
    text, = re.findall(rf"(?s)<!-- {name} -->\n(.*?)<!-- /{name} -->", readme())
    return text


def write() -> None:
    """Write all generated blocks of README.md anew."""
    text = readme()
    for name, make in GENERATED.items():
        block = make()
        text = re.sub(rf"(?s)(<!-- {name} -->\n).*?(<!-- /{name} -->)",
                      lambda match, block=block: match[1] + block + match[2], text)
    README.write_text(text, "utf-8")


# ---- reading the program -------------------------------------------------------------------


def flat(node: ast.AST) -> str:
    """Return the text of a string expression, NUL for each part that varies."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(flat(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return flat(node.left) + flat(node.right)
    return "\0"


TEXTS = {flat(node) for node in ast.walk(TREE)
         if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp))}
FUNCTIONS = {node.name: node for node in ast.walk(TREE) if isinstance(node, ast.FunctionDef)}


def callers(name: str) -> set[str]:
    """Return the functions that call a function of the program, or hand it on."""
    def names(node: ast.FunctionDef, context: type) -> set[str]:
        return {inner.id for inner in ast.walk(node)
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, context)}
    return {outer for outer, node in FUNCTIONS.items()
            if outer != name and name in names(node, ast.Load) - names(node, ast.Store)
            and name not in {argument.arg for argument in node.args.args}}


# ---- the generated parts are those of today --------------------------------------------------


def test_the_size_of_the_program_is_as_told():
    told = {row[0]: row for row in table(stored("size"), "section")}
    today = {row[0]: row for row in table(size_block(), "section")}
    assert list(told) == list(today)
    for name, (_, lines, tokens, words) in today.items():
        for number, said in ((lines, told[name][1]), (tokens, told[name][2])):
            assert abs(int(number) - int(said)) <= max(20, int(number) // 20), told[name]
        assert re.sub(r"\d", "", words) == re.sub(r"\d", "", told[name][3])


def test_the_tables_of_labels_power_and_critical_checks_are_the_programs_own():
    for name in ("labels", "power", "critical"):
        assert stored(name) == GENERATED[name](), "python3 tests/test_docs.py --write"
    assert dict((row[0], row[1]) for row in table(stored("labels"), "limit"))["0.05"] == "59"


def test_three_samples_and_unknowns_are_counted_as_told():
    assert eval_loop.upper_bound(0, 1) == Fraction(95, 100)
    rows = [eval_loop.Row("c", test, "judge", False, verdict, reason, [], [])
            for test, verdict, reason in (
                ("a", "pass", None), ("b", "fail", None), ("c", "unknown", "cli-error"),
                ("d", "unknown", "invalid-verdict"))]
    totals = eval_loop.totals(rows)
    assert (totals["passed"], totals["total"]) == (1, 4)
    assert "are 1/4 here" in " ".join(readme().split())
    assert eval_loop.sign_test(4, 0)[0] > Fraction(1, 20) >= eval_loop.sign_test(5, 0)[0]


def test_the_numbers_of_reliability_are_asserted_by_the_tests():
    known = reported()
    rows = table(stored("reliability"), "number")
    assert [row[0] for row in rows] == [f"`{name}`" for name in RELIABILITY]
    for row in rows:
        file, least = known[row[0].strip("`")]
        assert row[3] == f"`tests/{file}`"
        assert 0 < int(row[2].replace(",", "")) <= least, "python3 tests/test_docs.py --write"


def test_the_reference_is_what_help_prints():
    assert stored("reference").split() == reference_block().split(), \
        "python3 tests/test_docs.py --write"


# ---- commands, statuses, words ---------------------------------------------------------------


def test_the_two_commands_to_set_up_are_these():
    assert blocks(section("See it work"), "sh") == [f"{DEMO_COMMAND}\n", f"{TEST_COMMAND}\n"]


def test_every_command_is_in_the_table_and_says_where_money_is_spent():
    rows = table(section("Commands"), "command")
    assert [row[0] for row in rows] == [f"`{name}`" for name, *_ in eval_loop.COMMANDS]
    for row, (_, function, _) in zip(rows, eval_loop.COMMANDS, strict=True):
        spends = function.__doc__.startswith("SPENDS MONEY")
        assert (row[1] == "**SPENDS MONEY**") == spends
        assert row[1] == "no" or spends
        nothing = "Writes nothing." in " ".join(function.__doc__.split())
        assert (row[2] == "nothing") == nothing


def test_every_function_that_the_audit_names_is_in_the_program():
    named = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", section(
        "Read the program before you give it a key")))
    assert {"spawn", "publish", "experiment_lock"} <= named
    assert not [name for name in named if not callable(getattr(eval_loop, name, None))]


def test_only_commands_that_say_so_can_start_a_process():
    reached, known = {"spawn"}, None
    while known != reached:
        known = set(reached)
        reached |= {caller for name in known for caller in callers(name)}
    spenders = {function.__name__ for _, function, _ in eval_loop.COMMANDS
                if function.__doc__.startswith("SPENDS MONEY")}
    assert {name for name in reached if name.startswith("cmd_")} == spenders
    assert callers("spawn") == {"ask"} and callers("ask") == {"attempt"}


def test_exit_statuses_are_those_of_the_program():
    told = [int(row[0]) for row in table(section("Commands"), "exit status")]
    assert told == [int(number) for number in re.findall(
        r"[:;] (\d+) (?=[a-z])", " ".join(eval_loop.EXIT_STATUSES.split()))]
    assert {eval_loop.DONE, eval_loop.REFUSED, eval_loop.HOLD, eval_loop.UNCERTAIN,
            eval_loop.UNFINISHED, eval_loop.INTERRUPTED} <= set(told)


def test_the_places_of_power_are_functions_of_the_program():
    rows = table(section("Read the program before you give it a key"), "power")
    assert len(rows) == 5
    for name in re.findall(r"`(\w+)`", " ".join(row[1] for row in rows)):
        assert name in FUNCTIONS and f" {name}" in eval_loop.__doc__, name


def test_words_of_results_reasons_and_states_are_the_programs():
    words = set(re.findall(r"[a-z]+(?:-[a-z]+)*", " ".join(TEXTS)))
    for title in ("How to read the result", "When something is uncertain"):
        for word in re.findall(r"`([a-z]+(?:-[a-z]+)*)`", section(title)):
            assert word in words, (title, word)
    outcomes = table(section("How to read the result"), "outcome")
    assert [row[0] for row in outcomes] == [
        "pass", "fail", "abstained or error", "not qualified", "lapsed while judging"]


def test_every_message_in_the_table_is_one_of_the_program():
    rows = table(section("Troubleshooting by message"), "message")
    assert len(rows) > 10
    for row in rows:
        pieces = re.escape(row[0].strip("`")).split("…")
        wanted = re.compile(".*?".join(pieces), re.DOTALL)
        assert any(wanted.search(text) for text in TEXTS), row[0]


def test_fields_and_options_that_are_named_exist():
    known = set(re.findall(r"\w+", (ROOT / "templates" / "README.md").read_text("utf-8")))
    for name in re.findall(r"`([a-z]+[A-Z]\w*)`", readme()):
        assert name in known, name
    shown = stored("reference") + subprocess.run(
        [sys.executable, str(ROOT / "examples" / "desk.py"), "--help"], capture_output=True,
        encoding="utf-8", timeout=60, check=True).stdout + " ".join(
            path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py"))
    prose = re.sub(r"(?s)```.*?```", "", readme())
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", prose):
        assert option in shown or option == "--bare", option


def test_scenarios_and_versions_are_those_of_demo_and_tests():
    import demo
    import real_cli
    row, = (row for row in table(section("Companions"), "file") if "demo.py" in row[0])
    assert re.findall(r"`([a-z-]+)`", row[1]) == list(demo.SCENARIOS)
    told = section("Which CLI versions were proven")
    versions = re.findall(r"\d+\.\d+\.\d+", told)
    assert versions == [real_cli.FLOOR, real_cli.PINNED]
    assert tuple(map(int, real_cli.FLOOR.split("."))) == eval_loop.FLOOR_VERSION
    assert f"{len(real_cli.OUTCOMES)} outcomes" in told


# ---- files -----------------------------------------------------------------------------------


def our_files() -> list[pathlib.Path]:
    """Return every file of the checkout that is or may be committed."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-coz", "--exclude-standard"],
            cwd=ROOT, capture_output=True, timeout=60, check=False)
        if listed.returncode == 0:
            return [path for name in listed.stdout.decode().split("\0") if name
                    and (path := ROOT / name).is_file()]
    ignored = {"__pycache__", ".git", ".venv", ".pytest_cache", ".benchmarks"}
    return [path for path in ROOT.rglob("*") if path.is_file()
            and not ignored & set(path.relative_to(ROOT).parts)]


def test_the_top_level_holds_only_what_belongs_there():
    allowed = {"eval_loop.py", "templates", "tests", "examples", "README.md", "LICENSE"}
    top = {path.relative_to(ROOT).parts[0] for path in our_files()}
    assert {name for name in top if not name.startswith(".")} == allowed


def test_every_file_that_the_readme_names_exists():
    named = set(re.findall(r"(?:examples|tests|templates|\.ci)/[\w.]+", readme()))
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).exists(), name
    assert {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")} <= named
    for document in re.findall(r"`([a-z-]+)\.json`", section("From zero to a bound decision")):
        template = ROOT / "templates" / f"{document}.template.json"
        assert template.exists() or document in ("meta", "comparison"), document


def test_every_link_of_the_readme_leads_to_a_heading():
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
               for title in re.findall(r"(?m)^#+ (.+)$", readme())}
    for anchor in re.findall(r"\]\(#([^)]+)\)", readme()):
        assert anchor in anchors, anchor
    assert not re.findall(r"\]\((?!#)[^)]+\)", readme())


def test_the_readme_is_short_and_narrow():
    lines = readme().splitlines()
    assert len(lines) <= 680
    prose = readme().replace(stored("reference"), "").splitlines()
    assert not [line for line in prose if len(line) > WIDTH and not line.startswith("|")]
    assert not [line for line in lines if line != line.rstrip()]


def test_no_file_names_a_registry_or_is_unfinished():
    hosts = "|".join(re.escape("".join(parts)) for parts in (
        ("py", "pi.org"), ("python", "hosted.org"), ("npm", "js.org"), ("npm", "js.com"),
        ("yarn", "pkg.com"), ("crates", ".io"), ("ruby", "gems.org"), ("registry", ".npm")))
    unfinished = "|".join(rf"#.*\b{a}{b}\b|\b{a}{b}:" for a, b in (("TO", "DO"), ("FIX", "ME")))
    workplace = "|".join(re.escape(a + b) for a, b in (
        ("/work", "/"), ("DESIGN", ".md"), ("BRIEF", ".md"), ("STYLE", ".md"),
        ("STATISTICS", ".md"), ("CLI", ".md"), ("CASES", ".md"), ("DEFECTS", ".md"),
        ("co-authored", "-by"), ("generated", " with claude"),
        ("language model wrote", " this")))
    wrong = re.compile(f"(?i:{hosts}|{workplace})|{unfinished}")
    files = our_files()
    assert len(files) > 50
    for path in files:
        text = path.read_bytes().decode("utf-8", "replace")
        found = wrong.search(text)
        assert not found, f"{path.relative_to(ROOT)}: {found and found[0]}"


def test_the_check_of_everything_can_be_run():
    path = ROOT / ".ci" / "run"
    text = path.read_text("utf-8")
    assert path.stat().st_mode & stat.S_IXUSR and text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    subprocess.run(["bash", "-n", str(path)], timeout=60, check=True)
    assert not [line for line in text.splitlines() if len(line) > WIDTH]
    import real_cli
    assert re.search(r"(?m)^PINNED=(\S+)", text)[1] == real_cli.PINNED
    assert re.search(r"(?m)^FLOOR=(\S+)", text)[1] == real_cli.FLOOR


# ---- the session and the steps, exactly as printed -------------------------------------------


def checkout(place: pathlib.Path) -> pathlib.Path:
    """Return a copy of this checkout, as a stranger has it."""
    copy = place / "checkout"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".pytest_cache", ".benchmarks", "data"))
    return copy


def shell_environment(place: pathlib.Path, **more: str) -> dict[str, str]:
    """Return the environment of a shell whose python3 is this Python."""
    import builder
    programs = place / "bin"
    programs.mkdir()
    python = programs / "python3"
    flags = " ".join(builder.program_flags())
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" {flags} "$@"\n', "utf-8")
    python.chmod(0o700)
    return {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(place),
            "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **more}


def commands_and_outputs(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a printed session, each with the lines that follow it."""
    said: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            said.append((line[2:], []))
        else:
            said[-1][1].append(line)
    return said


def pattern(lines: list[str]) -> re.Pattern:
    """Return what a printed output stands for; … is anything, a line of it any lines."""
    parts = [r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*?") + r" *\n"
             for line in lines]
    return re.compile("".join(parts))


def test_the_printed_session_runs_exactly_as_printed(tmp_path):
    said = [pair for block in blocks(section("See it work"), "console")
            for pair in commands_and_outputs(block)]
    assert len(said) >= 8
    mark = f"--{uuid.uuid4()}--"
    script = "".join(f"{command}\nprintf '%s\\n' {mark}\n" for command, _ in said)
    done = subprocess.run(["bash", "-c", f"exec 2>&1\n{script}"], cwd=checkout(tmp_path),
                          env=shell_environment(tmp_path), stdin=subprocess.DEVNULL,
                          capture_output=True, encoding="utf-8", timeout=600, check=False)
    outputs = done.stdout.split(f"{mark}\n")[:-1]
    assert len(outputs) == len(said), done.stdout
    for (command, expected), output in zip(said, outputs, strict=True):
        assert pattern(expected).fullmatch(output), f"$ {command}\n{output}"


def joined(text: str) -> list[str]:
    """Return the commands of a block, continued lines being joined."""
    return [line for line in text.replace("\\\n", "").splitlines() if line.strip()]


def test_the_steps_lead_from_zero_to_a_bound_decision_as_printed(tmp_path):
    import test_desk
    owner = test_desk.Owner(tmp_path / "owner")
    environment = shell_environment(tmp_path, CLI=str(owner.world.cli))
    steps = [joined(block) for block in blocks(section("From zero to a bound decision"), "sh")]
    (first,), *rest = steps
    place = checkout(tmp_path)

    def say(command: str, directory: pathlib.Path) -> str:
        done = subprocess.run(["bash", "-euc", command], cwd=directory, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              timeout=600, check=False)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    say(first, place)
    trial = tmp_path / "my-trial"
    shutil.copytree(owner.directory, trial, dirs_exist_ok=True)
    owner.directory = trial
    for command in (command for step in rest for command in step):
        say(command, trial)
        for path in trial.rglob("*.json") if "desk.py" in command else ():
            text = path.read_text("utf-8")
            if "FILL:" in text and "templates" not in path.parts:
                said = test_desk.answered(json.loads(text), path.parent.name)
                path.write_text(json.dumps(said), "utf-8")
        if "draft start" in command:
            owner.choose("environment.json", evidenceKind="synthetic", setEnvironment={
                "OFFLINE_SCRIPT": str(owner.world.script_path)})
    assert json.loads((trial / "decision-receipt.json").read_bytes())["decision"] == "accept"
    calls = len(owner.world.call_log())
    said, = (joined(block) for block in blocks(section("Questions"), "sh"))
    say(said[0], trial)
    assert len(owner.world.call_log()) == calls
    say("python3 examples/desk.py . status", trial)


# ---- what the questions say of the real CLI --------------------------------------------------


class Listener(BaseHTTPRequestHandler):
    """A server on loopback that is overloaded and remembers what it was asked."""

    asked: list[tuple[str, str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append((self.path, self.headers.get("authorization") or ""))
        body = b'{"type":"error","error":{"type":"overloaded_error","message":"mock"}}'
        self.send_response(529)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_) -> None:
        """Say nothing."""


@contextlib.contextmanager
def listening():
    """Yield the address of a listener whose memory is empty."""
    Listener.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(tmp_path: pathlib.Path, **environment: str) -> dict:
    """Return the result item of one Skill call of the real CLI, as the program makes it."""
    import real_cli
    cli = real_cli.cli_named_by("EVAL_LOOP_REAL_CLI", real_cli.PINNED)
    skill = tmp_path / "w" / ".claude" / "skills" / "brief" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\ndescription: d\n---\nAnswer in one word.\n", "utf-8")
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    call_id = str(uuid.uuid4())
    instrument = eval_loop.Instrument(str(cli), real_cli.PINNED, "", real_cli.MODEL, "1",
                                      {})
    call = type("Call", (), {"instrument": instrument, "skill": ("brief", b"")})
    done = subprocess.run(
        [cli, *eval_loop.arguments(call, call_id)], cwd=tmp_path / "w", input=b"/brief Go.",
        env={**eval_loop.FIXED_ENVIRONMENT, "HOME": str(tmp_path / "home"),
             "TMPDIR": str(tmp_path / "tmp"), **environment},
        capture_output=True, timeout=120, check=False)
    return json.loads(done.stdout)[-1]


def test_a_subscriptions_token_alone_asks_no_model(tmp_path):
    with listening() as url:
        result = ask(tmp_path, ANTHROPIC_BASE_URL=url,
                     CLAUDE_CODE_OAUTH_TOKEN="synthetic-token")
    assert result["is_error"] and result["result"].startswith("Not logged in")
    assert Listener.asked == []
    for text in ("Not logged in", "bad-credential", "CLAUDE_CODE_OAUTH_TOKEN"):
        assert text in section("Questions")


def test_a_gateways_token_is_sent_as_a_bearer_token(tmp_path):
    with listening() as url:
        ask(tmp_path, ANTHROPIC_BASE_URL=url, ANTHROPIC_AUTH_TOKEN="synthetic-token")
    (path, sent), = Listener.asked
    assert path.startswith("/v1/messages") and sent == "Bearer synthetic-token"


def test_bedrock_is_asked_for_more_than_the_call(tmp_path):
    with listening() as url:
        ask(tmp_path, ANTHROPIC_BEDROCK_BASE_URL=url, CLAUDE_CODE_USE_BEDROCK="1",
            AWS_REGION="us-east-1", AWS_ACCESS_KEY_ID="AKIASYNTHETIC",
            AWS_SECRET_ACCESS_KEY="synthetic-key")
    paths = [path for path, _ in Listener.asked]
    assert sum("inference-profiles" in path for path in paths) == 1
    assert sum(path.endswith("/invoke") for path in paths) == 2
    assert sum(path.endswith("/invoke-with-response-stream") for path in paths) == 1


def test_settings_of_the_questions_are_accepted_by_the_program():
    shape = eval_loop.SHAPES["environment"]
    text = " ".join(section("Questions").split())
    settings = re.findall(r'"setEnvironment": (\{.*?\})', text)
    passed = re.findall(r'"passEnvironment": (\[.*?\])', text)
    assert len(settings) == len(passed) == 2
    for value in settings:
        assert not any(problem for *_, problem in eval_loop.inspect(
            shape["setEnvironment?"], json.loads(value)))
    for value in passed:
        assert not any(problem for *_, problem in eval_loop.inspect(
            shape["passEnvironment?"], json.loads(value)))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("usage: python3 tests/test_docs.py --write")
    write()
