"""Seeded mutators of JSON and bytes, and commands said in this process.

A parsed document keeps what a Python dict loses: an object is a `Pairs` (it bears a key twice),
and a token such as NaN or 1e999 is a `Raw` (it is written as it stands). A place in it is a
tuple of positions; `json_path` tells it in words ($.cases[0].id), `edited` changes one place.

Nothing here is random beyond the seed: the same seed gives the same mutations on every machine.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import pathlib
import random
import sys
import traceback

from builder import Experiment

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import eval_loop  # noqa: E402  (the program is no installed module)

# ---- documents that can be wrong -----------------------------------------------------------


class Pairs(list):
    """An object as the list of its (key, value) pairs."""


class Raw(str):
    """A token that is written as it stands."""


def read(raw: bytes | str):
    """The document with objects as Pairs and fractions as Raw."""
    return json.loads(raw, object_pairs_hook=Pairs, parse_float=Raw)


def strict(raw: bytes):
    """The document of strict JSON; ValueError where a key stands twice, NaN, BOM, bad UTF-8."""
    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key twice")
        return dict(pairs)

    def refuse(word):
        raise ValueError(word)

    return json.loads(raw.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)


def write(value) -> str:
    """The document as compact ASCII JSON; a Raw as it stands. Depth does not matter."""
    parts, todo = [], [value]
    while todo:
        item = todo.pop()
        if isinstance(item, Raw):
            parts.append(item)
        elif isinstance(item, (Pairs, dict)):
            pairs = list(item.items() if isinstance(item, dict) else item)
            parts.append("{")
            todo.append(Raw("}"))
            for index, (key, inner) in reversed(list(enumerate(pairs))):
                todo += [inner, Raw(("," if index else "") + json.dumps(key) + ":")]
        elif isinstance(item, list):
            parts.append("[")
            todo.append(Raw("]"))
            for index, inner in reversed(list(enumerate(item))):
                todo += [inner, Raw("," if index else "")]
        else:
            parts.append(json.dumps(item))
    return "".join(parts)


def children(value) -> list:
    """The values directly inside."""
    if isinstance(value, Pairs):
        return [inner for _, inner in value]
    return value if isinstance(value, list) else []


def places(value, where: tuple = ()):
    """Every place inside the document with its value, containers as well."""
    for index, inner in enumerate(children(value)):
        yield (*where, index), inner
        yield from places(inner, (*where, index))


def leaves(value):
    """Every place that holds no other: texts, numbers, words and empty containers."""
    return ((where, inner) for where, inner in places(value) if not children(inner))


def json_path(value, where: tuple) -> str:
    """A place in words, as the program's refusals name it."""
    words = "$"
    for index in where:
        words += f".{value[index][0]}" if isinstance(value, Pairs) else f"[{index}]"
        value = children(value)[index]
    return words


def edited(value, where: tuple, change):
    """The document with the item at one place replaced by the items that `change(item)` gives.

    Inside an object an item is a pair, inside a list a value; none removes it, two double it.
    """
    index, *deeper = where
    item = value[index]
    if not deeper:
        items = change(item)
    elif isinstance(value, Pairs):
        items = [(item[0], edited(item[1], tuple(deeper), change))]
    else:
        items = [edited(item, tuple(deeper), change)]
    return type(value)([*value[:index], *items, *value[index + 1:]])


def other_value(value):
    """Another value of the same type."""
    if value is True or value is False:
        return not value
    if value is None:
        return "was null"
    if isinstance(value, Raw):
        return Raw(value + "1")
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        swapped = {"pass": "fail", "fail": "pass", "unknown": "pass"}.get(value)
        return swapped or value[:-1] + ("0" if value[-1:] != "0" else "1")
    return Pairs([("more", 1)]) if isinstance(value, Pairs) else [*value, 1]


def other_type(value):
    """A value of another type that stands for the same thing as nearly as possible."""
    if isinstance(value, str) and not isinstance(value, Raw):
        return [value]
    if value is None:
        return False
    if isinstance(value, bool):
        return int(value)
    return write(value) if not isinstance(value, list) else None


def tampered(document, where: tuple, kind: str):
    """The document with one leaf changed in value or type, deleted, doubled, or joined by a
    neighbour (`value type delete duplicate add`)."""
    def change(item):
        pair = isinstance(item, tuple)
        inner = item[1] if pair else item
        if kind in ("value", "type"):
            new = other_value(inner) if kind == "value" else other_type(inner)
            return [(item[0], new) if pair else new]
        if kind == "add":
            return [item, ("added" + item[0], inner) if pair else other_value(inner)]
        return {"delete": [], "duplicate": [item, item]}[kind]

    return edited(document, where, change)


KINDS = ("value", "type", "delete", "add", "duplicate")

# ---- bytes ---------------------------------------------------------------------------------

BYTE_MUTATORS = {
    "flip a bit": lambda raw, dice: _at(raw, dice, lambda byte: bytes(
        [byte ^ 1 << dice.randrange(8)])),
    "another byte": lambda raw, dice: _at(raw, dice, lambda byte: bytes([dice.randrange(256)])),
    "a byte less": lambda raw, dice: _at(raw, dice, lambda byte: b""),
    "a byte twice": lambda raw, dice: _at(raw, dice, lambda byte: bytes([byte]) * 2),
    "cut": lambda raw, dice: raw[:dice.randrange(len(raw) + 1)],
    "headless": lambda raw, dice: raw[dice.randrange(1, len(raw) + 1):],
    "a piece less": lambda raw, dice: _piece(raw, dice, lambda piece: b""),
    "a piece twice": lambda raw, dice: _piece(raw, dice, lambda piece: piece * 2),
    "a piece backwards": lambda raw, dice: _piece(raw, dice, lambda piece: piece[::-1]),
    "noise inside": lambda raw, dice: _piece(raw, dice, lambda piece: dice.randbytes(9)),
    "invalid UTF-8": lambda raw, dice: _piece(raw, dice, lambda piece: piece + dice.choice(
        [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xfe\xff"])),
    "control character": lambda raw, dice: _piece(raw, dice, lambda piece: piece + dice.choice(
        [b"\0", b"\x1b[2J", b"\r", b"\x07", b"\x7f"])),
    "byte-order mark": lambda raw, dice: b"\xef\xbb\xbf" + raw,
    "UTF-16": lambda raw, dice: raw.decode("utf-8", "replace").encode("utf-16"),
    "a warning before": lambda raw, dice: b"Warning: a newer version is there\n" + raw,
    "a line after": lambda raw, dice: raw + b"\nDone.\n",
    "two documents": lambda raw, dice: raw + raw,
    "two documents in one": lambda raw, dice: b"[" + raw.rstrip() + b"," + raw.rstrip() + b"]",
    "in a list": lambda raw, dice: b"[" + raw.rstrip() + b"]",
    "in a text": lambda raw, dice: json.dumps(raw.decode("utf-8", "replace")).encode(),
    "with a fence": lambda raw, dice: b"```json\n" + raw + b"```\n",
    "with a comment": lambda raw, dice: b"// " + dice.randbytes(3).hex().encode() + b"\n" + raw,
    "trailing comma": lambda raw, dice: raw.rstrip()[:-1] + b"," + raw.rstrip()[-1:],
    "nothing": lambda raw, dice: b"",
    "only noise": lambda raw, dice: dice.randbytes(dice.randrange(1, 200)),
}


def _at(raw: bytes, dice: random.Random, change) -> bytes:
    if not raw:
        return b"x"
    index = dice.randrange(len(raw))
    return raw[:index] + change(raw[index]) + raw[index + 1:]


def _piece(raw: bytes, dice: random.Random, change) -> bytes:
    start = dice.randrange(len(raw) + 1)
    end = min(len(raw), start + dice.randrange(1, 40))
    return raw[:start] + change(raw[start:end]) + raw[end:]


# ---- structure -----------------------------------------------------------------------------

STRANGE = [
    None, True, False, 0, -1, 1, 2**63, Raw("1" + "0" * 4000), Raw("9" * 5000),
    Raw("-" + "9" * 5000), Raw("1e999"), Raw("-1e999"), Raw("1e-999"),
    Raw("1E+99999999999999999999"), Raw("0." + "3" * 900), Raw("NaN"), Raw("Infinity"),
    Raw("-Infinity"), Raw("-0"), Raw("-0.0"), Raw("1.0"), Raw("01"), Raw("0x10"), "", " ", "\0",
    "\ud800", "\udfff\ud800", "\u202e\u2066", "null", "true", "x" * 100_000, Pairs(), [], [[]],
    Pairs([("", "")]), Pairs([("a", 1), ("a", 2)]), Pairs([("\ud83d", "\ude00")]),
]


def nested(depth: int, dice: random.Random) -> Raw:
    """A value of that many lists or objects inside each other."""
    opened, closed = dice.choice([("[", "]"), ('{"a":', "}")])
    return Raw(opened * depth + "0" + closed * depth)


DEPTHS = [1, 5, 50, 400, 900, 960, 985, 1000]


STRUCTURE_MUTATORS = {
    "strange value": lambda item, dice: [_with(item, dice.choice(STRANGE))],
    "another value": lambda item, dice: [_with(item, other_value(_inner(item)))],
    "another type": lambda item, dice: [_with(item, other_type(_inner(item)))],
    "deleted": lambda item, dice: [],
    "twice": lambda item, dice: [item, item],
    "twice, the second other": lambda item, dice: [
        item, _with(item, other_value(_inner(item)))],
    "in a list of its own": lambda item, dice: [_with(item, [_inner(item)])],
    "in an object": lambda item, dice: [_with(item, Pairs([("type", _inner(item))]))],
    "key in capitals": lambda item, dice: [_renamed(item, str.upper)],
    "key misspelt": lambda item, dice: [_renamed(item, lambda key: key + "s")],
    "another key besides": lambda item, dice: [
        item, ("more", 1) if isinstance(item, tuple) else 1],
    "nested": lambda item, dice: [_with(item, nested(dice.choice(DEPTHS), dice))],
    "nested deeply": lambda item, dice: [
        _with(item, nested(dice.choice([3_000, 20_000, 100_000]), dice))],
}


def _inner(item):
    return item[1] if isinstance(item, tuple) else item


def _renamed(item, change):
    return (change(item[0]), item[1]) if isinstance(item, tuple) else item


def _with(item, value):
    return (item[0], value) if isinstance(item, tuple) else value


def mutated(document, name: str, dice: random.Random) -> tuple[bytes, str]:
    """A document with one structure mutation: its bytes and the place in words."""
    where = dice.choice([where for where, _ in places(document)])
    changed = edited(document, where, lambda item: STRUCTURE_MUTATORS[name](item, dice))
    return write(changed).encode("ascii"), json_path(document, where)


# ---- commands in this process --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Said:
    """What one command said: exit status (1: a traceback), standard output and error."""

    status: int
    out: str
    err: str

    returncode = property(lambda self: self.status)     # as a finished process calls it
    stdout = property(lambda self: self.out)
    stderr = property(lambda self: self.err)

    @property
    def refusals(self) -> list[str]:
        """The problems of a refusal."""
        return [line.removeprefix("refused: ") for line in self.err.splitlines()
                if line.startswith("refused: ")]


def say(directory: pathlib.Path, command: str, *documents: str, options=()) -> Said:
    """Say one command on documents of `directory` in this process; a crash is status 1."""
    return spoken([command, *(f"{directory}/{name}" for name in documents), *options])


def spoken(words: list[str]) -> Said:
    """Say one command, word by word, in this process; a crash is status 1."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
               for _ in range(2)]
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            status = eval_loop.main(words)
        except SystemExit as ending:
            status = ending.code
        except Exception:
            status = 1
            traceback.print_exc()
    return Said(status, *(stream.buffer.getvalue().decode("utf-8", "replace")
                          for stream in streams))


class Quick(Experiment):
    """An experiment whose commands are said in this process, ten times as fast.

    Its stand-in is a process as ever. A command with variables or a directory of its own is
    said as usual.
    """

    def command(self, *words, env=None, expect=None, cwd=None, **options):
        """As Experiment.command."""
        if env or cwd:
            return super().command(*words, env=env, expect=expect, cwd=cwd, **options)
        words = [str(word) for word in words]
        said = spoken([f"{self.directory}/{word}" if index and word.endswith(".json")
                       and "/" not in word and words[index - 1] != "--output" else word
                       for index, word in enumerate(words)])
        wanted = (expect,) if isinstance(expect, int) else expect
        assert wanted is None or said.status in wanted, (
            f"{' '.join(words)}: exit {said.status}, expected {expect}\n{said.out}{said.err}")
        return said

    def calls(self, purpose: str = "") -> int:
        """How many calls of that purpose the stand-in has received."""
        return sum(purpose in call["purpose"] for call in self.call_log())


def in_two(work, experiment: Experiment, root: pathlib.Path, items: list, *more) -> list:
    """What `work(copy of the experiment, half of the items, *more)` gives, in two processes."""
    copies = [experiment.copied(root / f"half-{number}") for number in (1, 2)]
    with concurrent.futures.ProcessPoolExecutor(
            2, multiprocessing.get_context("fork")) as processes:
        halves = [processes.submit(work, copy, items[number::2], *more)
                  for number, copy in enumerate(copies)]
        return [result for half in halves for result in half.result()]


def traces(directory: pathlib.Path) -> dict[str, tuple]:
    """What changes in a directory when anything is written, removed or renamed there."""
    found = {}
    for path, directories, names in os.walk(directory):
        for name in directories + names:
            status = os.lstat(os.path.join(path, name))
            found[os.path.join(path, name)] = (
                status.st_ino, status.st_size, status.st_mtime_ns)
    return found


@contextlib.contextmanager
def replaced(path: pathlib.Path, raw: bytes):
    """A file with other bytes for a moment."""
    before = path.read_bytes()
    path.write_bytes(raw)
    try:
        yield
    finally:
        path.write_bytes(before)


def report(what: str, count: int) -> None:
    """Print one number for whoever collects them (pytest -s, or -rP shows it)."""
    print(f"\nRELIABILITY {what} {count}")
