"""The house rules of eval_loop.py, read from its syntax tree.

An auditor bounds the damage by reading a few functions, not the whole file. That holds only as
long as nothing else has their powers, so each rule here is a promise of the module's docstring
or of the README.
"""

from __future__ import annotations

import ast
import collections
import io
import re
import statistics
import sys
import tokenize

import pytest

from builder import PROGRAM

TEXT = PROGRAM.read_text("utf-8")
LINES = TEXT.splitlines()
TREE = ast.parse(TEXT)

# Ceilings near what the file needs now, so that growth is noticed. The goals are smaller:
# 2,000 lines and 16,000 tokens, better 1,800 and 14,000; 50 lines a function; the money path,
# that is everything up to the end of Calls, under 900 lines.
LINES_CEILING, TOKENS_CEILING, MONEY_PATH_CEILING = 4_960, 38_400, 1_715
LINES_GOAL, TOKENS_GOAL, MONEY_PATH_GOAL = 2_000, 16_000, 900
COLUMNS, FUNCTION_LINES, MEDIAN_LINES, NESTING, OPERANDS = 96, 50, 15, 5, 5

SECTIONS = ["Words", "Bytes", "Store", "Shapes", "Receipts", "Calls", "Documents", "Cases",
            "Statistics", "Qualification", "Scoring", "Comparing", "Stages", "Commands",
            "Command line"]
JUDGEMENT = ["Receipts", "Statistics", "Qualification", "Scoring", "Comparing"]
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)

# Who may do what, besides the five powers.
OPENERS = {"say", "main", "read_bound", "publish", "sync_directory", "file_sha256", "unlocked",
           "experiment_lock", "open_stream", "make_private", "sync_stream", "close_interrupted",
           "boot_id", "open_plain"}
CREATORS = {"publish", "open_stream", "sync_stream", "experiment_lock"}
CHANGERS = {
    "os.write": {"publish", "ask"}, "os.link": {"publish"}, "os.pwrite": {"experiment_lock"},
    "os.unlink": {"remove"}, "os.ftruncate": {"sync_stream"}, "shutil.rmtree": {"close_call"},
    "os.makedirs": {"make_private"}, "os.mkdir": {"make_directory", "make_private"},
    "os.urandom": {"publish"},
    "os.killpg": {"kill_group"}, "uuid.uuid4": {"claim"}, "time.sleep": {"close_left"}}
FORBIDDEN = {
    "os.replace", "os.rename", "os.renames", "os.remove", "os.removedirs", "os.rmdir",
    "os.truncate", "os.symlink", "os.chmod", "os.chown", "os.utime", "os.putenv",
    "os.unsetenv", "os.getenv", "os.getenvb", "os.environb", "os.system", "os.popen",
    "os.fork", "os.forkpty", "os.posix_spawn", "os.posix_spawnp", "os.kill", "os.startfile",
    "os.chdir", "os.umask", "os.path.expanduser", "os.path.expandvars", "io.open", "eval",
    "exec", "compile", "__import__", "input", "breakpoint", "globals", "setattr",
    "datetime.utcnow", "datetime.today", "time.time_ns", "random", "shutil.copy",
    "shutil.move", "tempfile.mkdtemp", "tempfile.mkstemp"}
NETWORK_AND_CODE = {"socket", "ssl", "http", "urllib", "ftplib", "smtplib", "ctypes", "pickle",
                    "marshal", "importlib", "runpy", "code", "multiprocessing", "asyncio",
                    "webbrowser", "xmlrpc", "random", "pathlib"}


# ---- reading the tree ------------------------------------------------------------------------


def section_lines() -> dict[str, int]:
    """The line of each section's banner, by name, in order."""
    banner = re.compile(r"# -{20,} (.+)")
    return {match[1]: number for number, line in enumerate(LINES, 1)
            if (match := banner.fullmatch(line))}


BANNERS = section_lines()


def section_of(line: int) -> int:
    """The number of the section that a line lies in, -1 before the first."""
    return sum(start <= line for start in BANNERS.values()) - 1


def section_name(line: int) -> str:
    return list(BANNERS)[section_of(line)]


def functions(tree: ast.AST = TREE, prefix: str = ""):
    """Yield (qualified name, node) of every function, methods and nested ones as well."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            name = prefix + node.name
            if isinstance(node, FUNCTION):
                yield name, node
            yield from functions(node, name + ".")
        else:
            yield from functions(node, prefix)


FUNCTIONS = dict(functions())
NODES = list(ast.walk(TREE))
OWNERS = {line: name for name, function in FUNCTIONS.items()     # the innermost comes last
          for line in range(function.lineno, function.end_lineno + 1)}


def owner_of(node: ast.AST) -> str:
    """The innermost function whose lines hold a node, "" outside of all."""
    return OWNERS.get(node.lineno, "")


def outermost(name: str) -> str:
    """A function as an auditor finds it: nested ones belong to the one around them."""
    parts = name.split(".")
    known = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return next((part for part in known if part in FUNCTIONS), name)


def dotted(node: ast.AST) -> str:
    """`os.path.join` of the expression os.path.join, "" of anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def uses() -> dict[str, set[str]]:
    """Every dotted name that is read, and the functions that read it ("" at the top)."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for node in NODES:
        if name := dotted(node):
            found[name].add(outermost(owner_of(node)))
    return found


USES = uses()


def imported() -> set[tuple[str, str]]:
    """Every (module, function) where a module is imported; function "" at the top."""
    found = set()
    for node in NODES:
        if isinstance(node, ast.Import):
            found |= {(name.name, outermost(owner_of(node))) for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found.add((node.module, outermost(owner_of(node))))
    return found


def defined() -> dict[str, int]:
    """The line of every name that the module defines at its top, but for imports."""
    found: dict[str, int] = {}
    for node in TREE.body:
        targets = node.targets if isinstance(node, ast.Assign) else [
            node.target] if isinstance(node, ast.AnnAssign) else []
        for target in targets:
            found |= {name.id: node.lineno for name in ast.walk(target)
                      if isinstance(name, ast.Name)}
        if isinstance(node, (*FUNCTION, ast.ClassDef)):
            found[node.name] = node.lineno
    return found


DEFINED = defined()


def local_names(function: ast.AST) -> set[str]:
    """The names that a function binds itself: arguments, targets, nested functions."""
    bound = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, FUNCTION) and node is not function:
            bound.add(node.name)
    return bound


def module_names_used() -> list[tuple[str, int, str]]:
    """(name, line, function) of every use of a name that the module defines at its top."""
    locals_of = {name: local_names(node) for name, node in FUNCTIONS.items()}
    found = []
    for node in NODES:
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else ""
        if name in DEFINED:
            owner = owner_of(node)
            parts = owner.split(".") if owner else []
            around = {".".join(parts[:count + 1]) for count in range(len(parts))}
            if not any(name in locals_of.get(function, ()) for function in around):
                found.append((name, node.lineno, owner))
    return found


MODULE_NAMES_USED = module_names_used()
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}


# Attributes that values of Python's own types have: such a call tells no class of ours.
COMMON = {name for kind in (dict, list, set, str, bytes, tuple, int, collections.Counter,
                            collections.deque, re.Match, io.BytesIO) for name in dir(kind)}


def methods() -> dict[str, list[str]]:
    """Method name -> the classes that define it, where the name alone tells a method."""
    found: dict[str, list[str]] = collections.defaultdict(list)
    fields = {node.target.id for node in NODES if isinstance(node, ast.AnnAssign)
              and isinstance(node.target, ast.Name)}
    fields |= {node.attr for node in NODES if isinstance(node, ast.Attribute)
               and isinstance(node.ctx, ast.Store)}
    for kind in CLASSES.values():
        for inner in kind.body:
            if isinstance(inner, FUNCTION) and inner.name not in fields | COMMON:
                found[inner.name].append(kind.name)
    return found


def call_graph() -> dict[str, set[str]]:
    """Function -> functions of this file that it names; methods by their name alone."""
    known = methods()
    graph: dict[str, set[str]] = {name: set() for name in FUNCTIONS}
    for name, _, owner in MODULE_NAMES_USED:
        if owner and name in FUNCTIONS:
            graph[owner].add(name)
        elif owner and name in CLASSES:
            graph[owner].add(f"{name}.__init__")
    for node in NODES:
        if isinstance(node, ast.Attribute) and (owner := owner_of(node)):
            graph[owner] |= {f"{kind}.{node.attr}" for kind in known.get(node.attr, ())}
    for name in FUNCTIONS:      # what is nested belongs to the function around it
        if "." in name and name.rpartition(".")[0] in FUNCTIONS:
            graph[name.rpartition(".")[0]].add(name)
    return graph


GRAPH = call_graph()


def reaching(target: str) -> set[str]:
    """The functions from which a function can be reached, itself included."""
    found, more = set(), {target}
    while more:
        found |= more
        more = {name for name, used in GRAPH.items() if used & found} - found
    return found


def documented(name: str) -> str:
    """The docstring of a function, on one line."""
    return " ".join((ast.get_docstring(FUNCTIONS[name]) or "").split())


# ---- the five powers, and the lesser ones ----------------------------------------------------


def test_only_spawn_starts_a_process():
    assert {place for module, place in imported() if module == "subprocess"} == {"spawn"}
    assert USES["subprocess.Popen"] == {"spawn"}
    starters = {name for name in USES if re.match(r"os\.(exec|spawn|posix_spawn|fork)", name)}
    assert not starters


def test_only_publish_writes_documents():
    written = {name: places for name, places in CHANGERS.items() if name in USES}
    assert {name: USES[name] for name in written} == written
    assert set(CHANGERS) - {"os.urandom"} <= set(USES)
    creating = {outermost(owner_of(node)) for node in NODES
                if isinstance(node, ast.Attribute) and node.attr == "O_CREAT"}
    assert creating == CREATORS


def test_only_two_functions_read_the_clock():
    assert USES["datetime.now"] == {"utc_now"}
    clocks = {name for name in USES if re.match(r"time\.(?!sleep)\w+", name)}
    assert clocks and all(USES[name] == {"elapsed_clock"} for name in clocks), clocks


def test_only_call_environment_reads_environment_variables():
    assert USES["os.environ"] == {"call_environment"}


def test_only_read_bound_and_listed_makers_and_lockers_open_files():
    opened = USES["os.open"] | USES["open_plain"] | {
        outermost(owner_of(node)) for node in NODES
        if isinstance(node, ast.Call) and dotted(node.func) == "open"}
    assert opened == OPENERS
    assert "read_bound" in opened


def test_what_no_function_of_this_program_does():
    assert not FORBIDDEN & set(USES)
    methods_of_paths = {"read_text", "read_bytes", "write_text", "write_bytes"}
    named = {node.attr for node in NODES if isinstance(node, ast.Attribute)}
    assert not methods_of_paths & named


def test_nothing_but_the_standard_library_is_imported():
    modules = {module.split(".")[0] for module, _ in imported()}
    assert modules <= sys.stdlib_module_names
    assert not modules & NETWORK_AND_CODE


@pytest.mark.parametrize("power", ["spawn", "publish", "utc_now", "elapsed_clock",
                                   "call_environment", "read_bound", "open_stream",
                                   "make_private"])
def test_the_module_tells_where_each_power_is(power):
    assert power in FUNCTIONS
    assert re.search(rf"\b{power}\b", ast.get_docstring(TREE))


# ---- order -----------------------------------------------------------------------------------


def test_the_sections_stand_in_the_order_of_trust():
    assert list(BANNERS) == SECTIONS


def test_the_module_names_its_sections_in_their_order():
    told = ast.get_docstring(TREE).partition("How to audit it")[2]
    places = [re.search(rf"\b{name}\b", told) for name in SECTIONS[:-1]]
    assert all(places)
    assert sorted(places, key=lambda place: place.start()) == places


def test_no_section_uses_a_later_one():
    later = [f"line {line}: {name} of {section_name(DEFINED[name])} in {section_name(line)}"
             for name, line, _ in MODULE_NAMES_USED
             if section_of(line) >= 0 and section_of(DEFINED[name]) > section_of(line)]
    assert len(MODULE_NAMES_USED) > 500
    assert not later, "\n".join(later)


def test_no_section_uses_a_method_of_a_later_one():
    known, later = methods(), []
    for node in NODES:
        classes = known.get(node.attr, []) if isinstance(node, ast.Attribute) else []
        if classes and all(section_of(DEFINED[name]) > section_of(node.lineno)
                           for name in classes):
            later.append(f"line {node.lineno}: {node.attr} of {classes}")
    assert len(known) > 20
    assert not later, "\n".join(later)


def test_judgement_reaches_nothing_that_writes_spends_or_prints():
    harmful = (reaching("publish") | reaching("spawn") | reaching("remove")
               | reaching("make_private") | reaching("open_stream") | reaching("experiment_lock")
               | reaching("say") | reaching("note"))
    judging = {name for name, node in FUNCTIONS.items()
               if section_name(node.lineno) in JUDGEMENT}
    assert len(judging) > 60
    assert not judging & harmful


def test_statistics_to_comparing_touch_neither_files_nor_calls():
    pure = JUDGEMENT[1:]
    used = {(name, line) for name, line, _ in MODULE_NAMES_USED
            if section_name(line) in pure
            and section_name(DEFINED[name]) in ("Store", "Calls")}
    assert not used
    system = {name for node in NODES if (name := dotted(node)).startswith("os.")
              and section_name(node.lineno) in pure}
    assert not system


# ---- what it says ----------------------------------------------------------------------------


def test_whatever_can_reach_spawn_says_that_it_spends_and_nothing_else_does():
    spending = reaching("spawn")
    assert {"attempt", "make_calls", "cmd_run", "cmd_judge", "cmd_calibrate_run"} <= spending
    silent = {name for name in spending if not re.search(r"Spends:|SPENDS MONEY",
                                                         documented(name))}
    assert not silent
    loud = {name for name in FUNCTIONS if re.search(r"Spends:|SPENDS MONEY", documented(name))}
    assert loud == spending


def test_a_command_that_spends_says_so_first_and_the_others_do_not():
    commands = {name for name in FUNCTIONS if name.startswith("cmd_")}
    assert len(commands) == 10
    assert {name for name in commands if documented(name).startswith("SPENDS MONEY")} == {
        "cmd_calibrate_run", "cmd_run", "cmd_judge"}


def test_every_function_has_type_hints():
    bare = []
    for name, node in FUNCTIONS.items():
        given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
        given = given[given[:1] != [] and given[0].arg in ("self", "cls"):]
        given += [one for one in (node.args.vararg, node.args.kwarg) if one]
        bare += [f"{name}({one.arg})" for one in given if one.annotation is None]
        bare += [f"{name} ->"] if node.returns is None else []
    assert not bare


def test_every_public_function_and_class_has_a_docstring():
    public = {name: node for name, node in FUNCTIONS.items()
              if not any(part.startswith("_") for part in name.split("."))
              and name.rpartition(".")[0] not in FUNCTIONS}
    public |= CLASSES
    assert not [name for name, node in public.items() if not ast.get_docstring(node)]


def has_value(node: ast.AST) -> bool:
    """Whether an argument of Refused is more than fixed words."""
    if isinstance(node, ast.Constant):
        return False
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) for part in node.values)
    if isinstance(node, ast.BinOp):
        return has_value(node.left) or has_value(node.right)
    return True


def test_every_refusal_carries_a_value():
    refusals = [node for node in NODES
                if isinstance(node, ast.Call) and dotted(node.func) == "Refused"]
    assert len(refusals) > 40
    wordy = [f"line {argument.lineno}" for node in refusals for argument in node.args
             if not has_value(argument)]
    assert not wordy
    assert not [f"line {node.lineno}" for node in refusals if not node.args]


def test_there_is_one_error_class():
    classes = [node.name for node in NODES if isinstance(node, ast.ClassDef)
               and any(dotted(base).endswith(("Exception", "Error")) for base in node.bases)]
    assert classes == ["Refused"]


def test_no_handler_catches_everything():
    silent = []
    for node in NODES:
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = {dotted(kind) for kind in getattr(node.type, "elts", [node.type])}
            if caught & {"Exception", "BaseException"}:
                silent.append(f"line {node.lineno}: catches everything")
        elif isinstance(node, ast.ExceptHandler):
            silent.append(f"line {node.lineno}: catches everything")
    assert not silent


# ---- numbers ---------------------------------------------------------------------------------


def test_evidence_is_never_checked_by_assert():
    assert not [node.lineno for node in NODES if isinstance(node, ast.Assert)]


def test_the_only_float_is_how_often_running_calls_are_looked_at():
    floats = [node for node in NODES
              if isinstance(node, ast.Constant) and isinstance(node.value, float)]
    constants = {node.targets[0].id: node.value for node in TREE.body
                 if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    assert floats == [constants["TICK_SECONDS"]]
    made = [node.lineno for node in NODES
            if isinstance(node, ast.Call) and dotted(node.func) == "float"]
    assert not made


def docstring_lines(tree: ast.Module) -> set[int]:
    """The first lines of all docstrings."""
    return {node.body[0].value.lineno for node in ast.walk(tree)
            if isinstance(node, (ast.Module, *FUNCTION, ast.ClassDef)) and node.body
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
            and isinstance(node.body[0].value.value, str)}


def tokens() -> int:
    """Python tokens without comments, line ends, indentation and docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
               tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    documentation = docstring_lines(TREE)
    # An f-string is one token up to Python 3.11 and many since; it is counted as one.
    depth = count = 0
    for token in tokenize.generate_tokens(io.StringIO(TEXT).readline):
        kind = tokenize.tok_name[token.type]
        depth -= kind == "FSTRING_END"
        if not depth and token.type not in skipped and kind != "FSTRING_START" and not (
                token.type == tokenize.STRING and token.start[0] in documentation):
            count += 1
        depth += kind == "FSTRING_START"
    return count


def test_it_is_read_in_one_sitting():
    assert len(LINES) <= LINES_CEILING
    assert tokens() <= TOKENS_CEILING
    assert LINES_GOAL <= LINES_CEILING and TOKENS_GOAL <= TOKENS_CEILING


def test_the_money_path_is_read_first_and_is_the_smaller_part():
    end = BANNERS["Documents"] - 1
    assert end <= MONEY_PATH_CEILING
    assert end < len(LINES) / 2
    assert MONEY_PATH_GOAL <= MONEY_PATH_CEILING


def test_no_line_is_wider_than_the_column_limit():
    wide = [f"line {number}: {len(line)}" for number, line in enumerate(LINES, 1)
            if len(line) > COLUMNS]
    assert not wide, f"{len(wide)} lines: {', '.join(wide[:10])}"


def test_functions_are_short():
    sizes = {name: node.end_lineno - node.lineno + 1 for name, node in FUNCTIONS.items()}
    assert not {name: size for name, size in sizes.items() if size > FUNCTION_LINES}
    assert statistics.median(sizes.values()) < MEDIAN_LINES


def depth_of(node: ast.AST, depth: int = 0) -> int:
    """The deepest block in a function; an elif is no deeper than its if."""
    deepest = depth
    for inner in ast.iter_child_nodes(node):
        block = isinstance(inner, (ast.If, ast.For, ast.While, ast.With, ast.Try, *FUNCTION))
        chained = isinstance(node, ast.If) and node.orelse == [inner] and isinstance(
            inner, ast.If)
        deepest = max(deepest, depth_of(inner, depth + (block and not chained)))
    return deepest


def test_blocks_are_not_nested_deeply():
    deep = {name: depth for name, node in FUNCTIONS.items()
            if (depth := depth_of(node)) > NESTING}
    assert not deep


def operands(node: ast.AST) -> int:
    """How many conditions one boolean expression joins."""
    if isinstance(node, ast.BoolOp):
        return sum(operands(value) for value in node.values)
    return operands(node.operand) if isinstance(node, ast.UnaryOp) else 1


def test_no_boolean_expression_joins_many_conditions():
    many = [f"line {node.lineno}: {count}" for node in NODES
            if isinstance(node, ast.BoolOp) and (count := operands(node)) > OPERANDS]
    assert not many


def test_the_limits_stand_in_words():
    limits = {"FILE_LIMIT", "PROMPT_LIMIT", "OUTPUT_LIMIT", "REGEX_SECONDS", "GRACE",
              "LEAK_LENGTH", "TICK_SECONDS"}
    assert {section_name(DEFINED[name]) for name in limits} == {"Words"}


def test_no_name_is_defined_twice_or_never_used():
    names = [node.name for node in TREE.body if isinstance(node, (*FUNCTION, ast.ClassDef))]
    assert len(names) == len(set(names))
    used = {name for name, _, _ in MODULE_NAMES_USED}
    unused = set(DEFINED) - used
    assert not unused
