"""The real CLI in tests: where it is, its 53 scripted outcomes, how its outputs compare.

An outcome is what the CLI prints when the API answers in a certain way. Each has a capture in
tests/data/captures/VERSION (its exact bytes) and here: the scripted replies that bring it
about, how many requests that takes, and what the program has to make of it, worked out from the
contract and not from what the program says.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from builder import Experiment
from mock_api import MockApi, session_of

CAPTURES = pathlib.Path(__file__).resolve().parent / "data" / "captures"
PINNED, FLOOR = "2.1.332", "2.1.286"
MODEL = "claude-sonnet-4-5-20250929"           # the model asked in every capture but one
OTHER_MODEL = "claude-haiku-4-5-20251001"
FUTURE_MODEL = "claude-future-9-20270101"      # a model whose price the CLI does not know
CAPTURED_SKILL = "brief"                       # the Skill of the captures
ANSWER = "Mercury is a rocky planet with a mean radius of 2439.7 km."
VERDICT = {"evidence": "The source states 2439.7 km.", "quote": "2439.7 km"}
SHORT = {"evidence": "e", "quote": "q", "verdict": "pass"}
JUDGED_OUTPUT = f"{ANSWER} (q)"                # an output that holds every quote given here
NO_PORT = "http://127.0.0.1:1"                 # where nothing listens

# What the CLI says for 100 tokens read and 20 written, exactly as it prints it.
ONCE, TWICE = "0.0006000000000000001", "0.0012000000000000001"
FOUR_TIMES = "0.0024000000000000002"

HOW_TO_ENABLE = (
    "set {0} to the absolute path of the Claude Code CLI {1}: npm install --prefix DIRECTORY "
    "@anthropic-ai/claude-code@{1}, then DIRECTORY/node_modules/@anthropic-ai/"
    "claude-code-linux-x64/claude (or the folder of your platform)")


def cli_named_by(variable: str, version: str) -> pathlib.Path:
    """The executable named by an environment variable; skips (or fails) the test without it."""
    value = os.environ.get(variable)
    if value:
        path = pathlib.Path(value)
        assert path.is_absolute() and os.access(path, os.X_OK), f"{variable}: {value}: no CLI"
        return path
    sentence = HOW_TO_ENABLE.format(variable, version)
    if os.environ.get("EVAL_LOOP_REQUIRE_REAL_CLI") == "1":
        pytest.fail("the real CLI is required here: " + sentence)
    pytest.skip("needs the real CLI: " + sentence)


def version_line(cli: pathlib.Path, home: pathlib.Path) -> str:
    """What `--version` of a CLI prints, in a HOME and TMPDIR of the test's own."""
    environment = {"HOME": str(home), "TMPDIR": str(home), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([cli, "--version"], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=True)
    return done.stdout.decode().strip()


def file_sha256(path: pathlib.Path) -> str:
    """The SHA-256 of a large file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One scripted outcome: what the API says, and what the receipt must then say."""
    replies: list
    status: str
    reason: str | None
    cost: str
    requests: int = 1
    floor_requests: int | None = None
    situation: str = ""       # what else it takes; empty: only the replies
    verdict: str | None = None
    output: str | None = None

    def requests_of(self, version: str) -> int:
        """How many model requests this CLI version makes."""
        if version == FLOOR and self.floor_requests is not None:
            return self.floor_requests
        return self.requests


def text(words: str, **more) -> dict:
    return {"text": words, **more}


def error(status: int, kind: str, message: str = "mock") -> dict:
    return {"status": status, "error_type": kind, "message": message}


def structured(**fields) -> dict:
    return {"structured": fields}


def call_block(number: int, **fields) -> dict:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "StructuredOutput",
            "input": {**SHORT, **fields}}


EXPENSIVE = {"input_tokens": 900_000, "output_tokens": 90_000}
FREE = {"input_tokens": 0, "output_tokens": 0}
OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}
TOO_LONG = "prompt is too long: 250000 tokens > 200000 maximum"
NO_CREDIT = "Your credit balance is too low to access the Anthropic API."

SKILL_OUTCOMES = {
    "success": Outcome([text(ANSWER)], "ok", None, ONCE, output=ANSWER),
    "thinking": Outcome(
        [{"content": [{"type": "thinking", "thinking": "hm"},
                      {"type": "text", "text": "An answer."}]}],
        "ok", None, ONCE, output="An answer."),
    "two-text-blocks": Outcome(
        [{"content": [{"type": "text", "text": "First half. "},
                      {"type": "text", "text": "Second half."}]}],
        "ok", None, ONCE, output="First half. Second half."),
    "lone-surrogate": Outcome([text("bad \ud83d end")], "ok", None, ONCE,
                              output="bad \ud83d end"),
    "nul-and-escape": Outcome([text("a\0b\x1b[31mred")], "ok", None, ONCE,
                              output="a\0b\x1b[31mred"),
    "zero-usage": Outcome([text(ANSWER, usage=FREE)], "ok", None, "unknown", output=ANSWER),
    "unknown-model-price": Outcome([text(ANSWER)], "ok", None, "unknown", output=ANSWER,
                                   situation="future-model"),

    "empty": Outcome([text("")], "error", "empty-output", TWICE, requests=2),
    "whitespace": Outcome([text("  \n ")], "error", "empty-output", TWICE, requests=2),
    "refusal": Outcome([text("", stop_reason="refusal")], "error", "refusal", ONCE),
    "refusal-with-text": Outcome([text("I cannot", stop_reason="refusal")],
                                 "error", "refusal", ONCE),
    "max-tokens": Outcome([text("cut off", stop_reason="max_tokens")],
                          "error", "output-cut", FOUR_TIMES, requests=4),

    "empty-then-answer": Outcome([text(""), text(ANSWER)], "error", "hidden-retry", TWICE,
                                 requests=2),
    "max-tokens-then-tail": Outcome(
        [text("PART ONE", stop_reason="max_tokens"), text("PART TWO")],
        "error", "hidden-retry", TWICE, requests=2),
    "stream-error": Outcome([text("par", stream_error=OVERLOADED)],
                            "error", "cli-error", "unknown", requests=4),
    "tool-attempt": Outcome([{"tool": "Bash", "input": {"command": "true"}}],
                            "error", "cli-error", ONCE),
    "budget-exceeded": Outcome([text(ANSWER, usage=EXPENSIVE)],
                               "error", "over-budget", "4.05"),
    "other-model-served": Outcome([text(ANSWER, model=OTHER_MODEL)],
                                  "error", "model-mismatch", ONCE),
    "unknown-skill": Outcome([text(ANSWER)], "error", "skill-not-loaded", ONCE,
                             situation="other-skill"),
    "html-200": Outcome([{"raw": "<html>proxy</html>", "content_type": "text/html"}],
                        "error", "cli-error", "unknown"),
    "connection-dropped": Outcome([{"close": True}], "error", "cli-error", "unknown"),
    "sigterm": Outcome([text("hello", hang="headers")], "error", "killed", "unknown",
                       situation="SIGTERM"),
    "sigkill": Outcome([text("hello", hang="headers")], "error", "killed", "unknown",
                       situation="SIGKILL"),
    "sigint": Outcome([text("hello world", hang="partial")], "error", "killed", "unknown",
                      situation="SIGINT"),

    "http-400": Outcome([error(400, "invalid_request_error", "bad request")], "unserved",
                        "request-rejected", "0", requests=3, floor_requests=1),
    "http-400-context": Outcome([error(400, "invalid_request_error", TOO_LONG)], "unserved",
                                "request-rejected", "0"),
    "http-400-credit": Outcome([error(400, "invalid_request_error", NO_CREDIT)], "unserved",
                               "no-credit", "0"),
    "http-401": Outcome([error(401, "authentication_error")], "unserved", "bad-credential",
                        "0"),
    "http-403": Outcome([error(403, "permission_error")], "unserved", "bad-credential", "0"),
    "http-404": Outcome([error(404, "not_found_error")], "unserved", "no-such-model", "0",
                        requests=2),
    "http-413": Outcome([error(413, "request_too_large")], "unserved", "request-rejected",
                        "0"),
    "http-429": Outcome([error(429, "rate_limit_error")], "unserved", "rate-limited", "0"),
    "http-500": Outcome([error(500, "api_error")], "unserved", "overloaded", "0"),
    "http-529": Outcome([error(529, "overloaded_error")], "unserved", "overloaded", "0"),
    "connection-refused": Outcome([], "unserved", "unreachable", "0", requests=0,
                                  situation="no-server"),
    "no-api-key": Outcome([], "unserved", "bad-credential", "0", requests=0,
                          situation="no-key"),
}

JUDGE_OUTCOMES = {
    "pass": Outcome([structured(**VERDICT, verdict="pass")], "ok", None, ONCE, verdict="pass"),
    "fail": Outcome([structured(**VERDICT, verdict="fail")], "ok", None, ONCE, verdict="fail"),
    "unknown": Outcome([structured(**VERDICT, verdict="unknown")], "ok", "abstained", ONCE,
                       verdict="unknown"),
    "text-plus-call": Outcome(
        [{"content": [{"type": "text", "text": "Let me grade."}, call_block(1)],
          "stop_reason": "tool_use"}], "ok", None, ONCE, verdict="pass"),

    "refusal": Outcome([text("", stop_reason="refusal")], "error", "abstained", ONCE),
    "bad-verdict": Outcome([structured(**{**SHORT, "verdict": "PASS"})],
                           "error", "invalid-verdict", ONCE),
    "extra-property": Outcome([structured(**SHORT, confidence=1)],
                              "error", "invalid-verdict", ONCE),
    "missing-property": Outcome([structured(verdict="pass")],
                                "error", "invalid-verdict", ONCE),
    "max-tokens": Outcome([{**structured(**VERDICT, verdict="pass"),
                            "stop_reason": "max_tokens"}],
                          "error", "invalid-verdict", ONCE),
    "text-instead": Outcome([text("I think it passes.")], "error", "invalid-verdict", ONCE),
    "json-text-instead": Outcome([text('```json\n{"verdict":"pass"}\n```')],
                                 "error", "invalid-verdict", ONCE),
    "two-calls": Outcome(
        [{"content": [call_block(1, verdict="fail"), call_block(2, verdict="pass")],
          "stop_reason": "tool_use"}], "error", "invalid-verdict", ONCE),

    "budget-exceeded": Outcome([{**structured(**VERDICT, verdict="pass"),
                                 "usage": EXPENSIVE}], "error", "over-budget", "4.05"),
    "other-model-served": Outcome([{**structured(**VERDICT, verdict="pass"),
                                    "model": OTHER_MODEL}],
                                  "error", "model-mismatch", ONCE),
    "sigterm": Outcome([text("hello", hang="headers")], "error", "killed", "unknown",
                       situation="SIGTERM"),
    "http-429": Outcome([error(429, "rate_limit_error")], "unserved", "rate-limited", "0"),
    "http-529": Outcome([error(529, "overloaded_error")], "unserved", "overloaded", "0"),
}

# Outcomes beyond the 53: the corners between two signs, and what the network itself does.
# Those with a situation of their own are kept as captures only.
EXTRA_SKILL_OUTCOMES = {
    "without-description": Outcome([text(ANSWER)], "ok", None, ONCE, output=ANSWER,
                                   situation="no-description"),
    "only-thinking": Outcome([{"content": [{"type": "thinking", "thinking": "hm"}]}],
                             "error", "empty-output", TWICE, requests=2),
    "cut-then-refusal": Outcome(
        [text("part", stop_reason="max_tokens"), text("no", stop_reason="refusal")],
        "error", "refusal", TWICE, requests=2),
    "empty-then-refusal": Outcome([text(""), text("", stop_reason="refusal")],
                                  "error", "refusal", TWICE, requests=2),
    "context-window": Outcome([text("abc", stop_reason="model_context_window_exceeded")],
                              "error", "output-cut", FOUR_TIMES, requests=4),
    "stream-error-then-answer": Outcome(
        [text("par", stream_error=OVERLOADED), text("tial rest")],
        "error", "hidden-retry", "unknown", requests=2),
    "cut-then-empty": Outcome([text("part", stop_reason="max_tokens"), text("")],
                              "error", "hidden-retry", "0.0018000000000000002", requests=3),
    # The CLI reports an error inside a stream by the same status, so the cost may be too low.
    "empty-then-529": Outcome([text(""), error(529, "overloaded_error")],
                              "error", "cli-error", "unknown", requests=2),
    "cut-then-529": Outcome(
        [text("part", stop_reason="max_tokens"), error(529, "overloaded_error")],
        "error", "cli-error", "unknown", requests=2),
    "pause-turn": Outcome([text("abc", stop_reason="pause_turn")],
                          "error", "cli-error", ONCE),
    "not-user-invocable": Outcome([], "error", "skill-not-loaded", "unknown", requests=0,
                                  situation="not-user-invocable"),
    "http-402": Outcome([error(402, "billing_error")], "unserved", "no-credit", "0"),
    "http-503": Outcome([error(503, "api_error")], "unserved", "overloaded", "0"),
    "host-not-found": Outcome([], "unserved", "unreachable", "0", requests=0,
                              situation="no-such-host"),
    "name-lookup-failed": Outcome([], "unserved", "unreachable", "0", requests=0,
                                  situation="no-network-name"),
    "no-route": Outcome([], "unserved", "unreachable", "0", requests=0,
                        situation="no-network-address"),
    "unknown-option": Outcome([], "unserved", "bad-option", "0", requests=0,
                              situation="unknown-option"),
}

EXTRA_JUDGE_OUTCOMES = {
    "text-after-call": Outcome(
        [{"content": [{"type": "text", "text": "before"}, call_block(1),
                      {"type": "text", "text": "after"}], "stop_reason": "tool_use"}],
        "ok", None, ONCE, verdict="pass"),
    "empty": Outcome([text("")], "error", "invalid-verdict", TWICE, requests=2),
    "empty-then-call": Outcome([text(""), structured(**SHORT)],
                               "error", "hidden-retry", TWICE, requests=2),
    "stream-error-then-call": Outcome(
        [text("par", stream_error=OVERLOADED), structured(**SHORT)],
        "error", "hidden-retry", "unknown", requests=2),
}

OUTCOMES = {**{f"skill-{name}": outcome for name, outcome in SKILL_OUTCOMES.items()},
            **{f"judge-{name}": outcome for name, outcome in JUDGE_OUTCOMES.items()}}
EXTRA_OUTCOMES = {
    **{f"skill-{name}": outcome for name, outcome in EXTRA_SKILL_OUTCOMES.items()},
    **{f"judge-{name}": outcome for name, outcome in EXTRA_JUDGE_OUTCOMES.items()}}


# ---- what the CLI printed, without what differs from call to call --------------------------

CHANGING_TEXT = [
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|CALL-ID", "UUID"),
    (r"\b(msg|req|toolu)_[0-9a-f]{20}\b", r"\1_ID"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"(?<=~)\d+(?= tokens is the| tokens —)", "N"),
]
CHANGING_NUMBERS = {"duration_ms", "duration_api_ms", "ttft_ms", "ttft_stream_ms",
                    "time_to_request_ms", "first_content_frame_ms", "thinking_duration_ms"}
SET_BY_HOST = {"cwd", "original_cwd"}
# Present or not, depending on how fast an answer came.
SOMETIMES = {"ttft_ms", "ttft_stream_ms", "time_to_request_ms", "first_content_frame_ms"}


def structure(stdout: bytes, skill: str = CAPTURED_SKILL):
    """What one call printed, with ids, times, ports, paths and the Skill's name made alike."""
    if not stdout.strip():
        return stdout.decode()
    return _alike(json.loads(stdout), skill)


def _alike(value, skill: str, key: str = ""):
    if isinstance(value, dict):
        return {name: _alike(inner, skill, name) for name, inner in sorted(value.items())
                if name not in SOMETIMES}
    if isinstance(value, list):
        return [_alike(inner, skill, key) for inner in value]
    if key in SET_BY_HOST:
        return "PATH"
    if key in CHANGING_NUMBERS:
        return "NUMBER"
    if isinstance(value, str):
        if key in ("skills", "slash_commands") and value == skill:
            return "SKILL"
        for pattern, name in CHANGING_TEXT:
            value = re.sub(pattern, name, value)
    return value


def captured(version: str, name: str) -> tuple[bytes, dict]:
    """The stored stdout of one outcome and its facts (exitCode, stderr, apiRequests)."""
    directory = CAPTURES / version
    facts = json.loads((directory / "facts.json").read_text("utf-8"))[name]
    return (directory / f"{name}.stdout").read_bytes(), facts


# ---- experiments on the real CLI -----------------------------------------------------------

JUDGE_MARK = "[[begin untrusted-output "       # what only a judge's prompt holds


def judge_rule(*texts: str, verdict: str, quote: str = "", evidence: str = "It says so."):
    """A rule of the API for judge calls whose prompt holds all `texts`."""
    return (JUDGE_MARK, *texts), [structured(evidence=evidence, quote=quote, verdict=verdict)]


def wrapper(cli: pathlib.Path, path: pathlib.Path, before: str = "") -> pathlib.Path:
    """A small executable that becomes the CLI, after doing `before` in a call.

    Hashing it takes no time, and a test may change it. It execs, so that its process is the
    CLI's.
    """
    lines = ["#!/bin/sh", f'[ "$1" = --version ] || {{ {before}\n}}' if before else "",
             f'exec "{cli}" "$@"']
    path.write_text("\n".join(lines) + "\n", "utf-8")
    path.chmod(0o755)
    return path


class RealExperiment(Experiment):
    """A small experiment whose CLI is the real one, answered by a scripted API.

    Calling commands run two calls at a time.
    """

    jobs = 2

    def __init__(self, root, api_url: str, cli: pathlib.Path, version: str, *,
                 model=MODEL, judge_model=OTHER_MODEL, fields=None, **options):
        environment = {
            "cliVersion": version, "modelId": model, "judgeModelId": judge_model,
            "budgetUsd": "1", "judgeBudgetUsd": "0.2", "timeoutSeconds": 120,
            "unservedAttempts": 1, "evidenceKind": "synthetic",
            "setEnvironment": {"ANTHROPIC_BASE_URL": api_url}, **(fields or {})}
        super().__init__(root, cli=cli, environment=environment, **options)

    def command(self, *words, **options):
        if words[0] in ("calibrate-run", "run", "judge"):
            words = (*words, "--jobs", str(self.jobs))
        return super().command(*words, **options)

    def planned(self) -> str:
        """Write the policy and the baseline's development plan; return the plan's name."""
        self.write_policy()
        return self.write_plan("baseline", "development")

    def terminal(self, stem: str) -> dict:
        """The one terminal receipt whose name begins with `stem`."""
        found = [receipt for name, receipt in self.receipts(stem).items()
                 if name.endswith(".terminal.json")]
        assert len(found) == 1, f"{stem}: {len(found)} terminal receipts"
        return found[0]

    def stdout_of(self, stem: str) -> bytes:
        """What the CLI printed in the one call whose name begins with `stem`."""
        found = list(self.directory.rglob(f"{stem}*.stdout"))
        assert len(found) == 1, f"{stem}: {len(found)} outputs"
        return found[0].read_bytes()

    def call_ids(self) -> dict[str, str]:
        """Call id -> the name of its pending receipt."""
        return {receipt["callId"]: name for name, receipt in self.receipts().items()
                if receipt["kind"] == "pending"}


def scripted_rules(experiment: Experiment) -> list:
    """The rules of the API that answer as the experiment's own script says, judge's first."""
    rules = {"judge": [], "run": []}
    for rule in json.loads(experiment.script_path.read_text("utf-8"))["rules"]:
        texts = [rule[name] for name in ("contains", "skillContains") if name in rule]
        if rule["purpose"] == "judge":
            rules["judge"].append(judge_rule(*texts, verdict=rule["verdict"],
                                             quote=rule["quote"], evidence=rule["evidence"]))
        else:
            rules["run"].append((tuple(texts), [text(rule["answer"])]))
    return rules["judge"] + rules["run"]


def process_table() -> list[tuple[int, int, str]]:
    """(process id, process group, arguments) of every process of this machine."""
    table = subprocess.run(["ps", "-A", "-ww", "-o", "pid=", "-o", "pgid=", "-o", "args="],
                           capture_output=True, check=True).stdout.decode("utf-8", "replace")
    rows = (line.split(None, 2) for line in table.splitlines())
    return [(int(row[0]), int(row[1]), row[2]) for row in rows if len(row) == 3]


def processes_of(call_ids) -> dict[int, str]:
    """Process id -> call id of every process that was started for one of these calls."""
    return {number: call_id for number, _group, words in process_table()
            for call_id in call_ids if call_id in words}


def cli_of(call_id: str) -> int:
    """The process id of the CLI that makes a call: what it forks has its group, not its id."""
    found = [number for number, group, words in process_table()
             if number == group and f"--session-id {call_id}" in words]
    assert len(found) == 1, f"call {call_id}: processes {found}"
    return found[0]


def left_over(experiment: RealExperiment) -> list[str]:
    """What the calls of an experiment left outside it: private directories and processes."""
    call_ids = experiment.call_ids()
    return [f"/tmp/{call_id}" for call_id in call_ids if os.path.lexists(f"/tmp/{call_id}")] + [
        f"process {number} of call {call_id}"
        for number, call_id in processes_of(call_ids).items()]


class World:
    """A scripted API and an experiment that calls the real CLI against it.

    On leaving, nothing may be left of any call: no process and no private directory.
    """

    def __init__(self, root: pathlib.Path, cli: pathlib.Path, version: str, *, rules=(),
                 before=None, direct=False, url=None, port=0, **options):
        root.mkdir(parents=True, exist_ok=True)
        self.api = MockApi(port=port)
        self.cli = cli if direct else wrapper(cli, root / "claude-wrapper", before or "")
        self.experiment = RealExperiment(root, url or self.api.url, self.cli, version,
                                         **options)
        self.api.rules = [*rules, *scripted_rules(self.experiment)]

    def __enter__(self) -> World:
        self.api.__enter__()
        return self

    def __exit__(self, *failure) -> None:
        self.api.__exit__()
        left = left_over(self.experiment)
        for number in processes_of(self.experiment.call_ids()):
            os.kill(number, signal.SIGKILL)
        for call_id in self.experiment.call_ids():
            shutil.rmtree(f"/tmp/{call_id}", ignore_errors=True)
        assert failure[0] is not None or not left, f"left behind: {left}"

    def requests_of(self, stem: str) -> list[dict]:
        """The model requests of the calls whose name begins with `stem`."""
        wanted = {call_id for call_id, name in self.experiment.call_ids().items()
                  if pathlib.Path(name).name.startswith(stem)}
        return [record for record in self.api.posts() if session_of(record) in wanted]
