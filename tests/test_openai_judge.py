"""The judge over the OpenAI Responses API: its one request, its refusals, its price."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
from decimal import Decimal

import pytest

from builder import POOR_MARK, QUOTE, UNSURE_MARK, Experiment, program_flags, sha256
from openai_api import (MODEL, ResponsesApi, error_reply, message, response, text_part,
                        verdict_reply, verdict_text)

JUDGE = pathlib.Path(__file__).resolve().parent.parent / "examples" / "openai_judge.py"
CALL_ID = "3f0c5f5e-8a67-4f7b-9d0a-0b6a5d3c2e11"
KEY = "synthetic-key-7Qd"
SCHEMA = {"type": "object", "properties": {
    "evidence": {"type": "string"}, "quote": {"type": "string"},
    "verdict": {"type": "string", "enum": ["pass", "fail", "unknown"]}},
    "required": ["evidence", "quote", "verdict"], "additionalProperties": False}
RATES = {"OPENAI_JUDGE_INPUT_USD_PER_MILLION": "2",
         "OPENAI_JUDGE_OUTPUT_USD_PER_MILLION": "8"}
PROMPT = "Judge the output below. tag\nPrüfe: “ok”\n"


def vector(**replaced: str | None) -> list[str]:
    """Return the argument vector of a judge call; None takes an option with its value away."""
    words = {"--bare": None, "-p": None, "--setting-sources": "",
             "--settings": '{"disableAllHooks":true}', "--strict-mcp-config": None,
             "--disable-slash-commands": None, "--tools": "", "--disallowedTools": "mcp__*",
             "--permission-prompts": "none", "--no-session-persistence": None,
             "--session-id": CALL_ID, "--system-prompt": "FIXED JUDGE TEXT",
             "--max-turns": "1", "--max-budget-usd": "0.2", "--model": MODEL,
             "--output-format": "json", "--verbose": None,
             "--json-schema": json.dumps(SCHEMA, separators=(",", ":"))}
    for name, value in replaced.items():
        option = "--" + name.replace("_", "-")
        if value is None:
            del words[option]
        else:
            words[option] = value
    return [word for pair in words.items() for word in pair if word is not None]


class Said:
    """One finished call of the judge: exit status, both streams, items, result."""

    def __init__(self, done: subprocess.CompletedProcess):
        self.exit, self.out, self.err = done.returncode, done.stdout, done.stderr
        printed = self.out[:1] == b"["
        self.items = json.loads(self.out, parse_float=Decimal) if printed else []
        self.result = self.items[-1] if self.items else None

    def only(self, kind: str, subtype: str | None = None) -> dict:
        """Return the one item of a kind."""
        found = [item for item in self.items
                 if item["type"] == kind and item.get("subtype") == subtype]
        assert len(found) == 1, self.out
        return found[0]

    @property
    def provider(self) -> dict:
        """Return the item with the provider's body."""
        return self.only("system", "provider_response")

    @property
    def blocks(self) -> list[dict]:
        """Return the blocks of the assistant's message."""
        return self.only("assistant")["message"]["content"]

    def is_no_judgment(self) -> bool:
        """Whether nothing in it can be taken for a verdict."""
        return (self.exit == 1 and self.result["is_error"] is True
                and self.result["terminal_reason"] != "completed"
                and "structured_output" not in self.result
                and all(block["type"] != "tool_use" for block in self.blocks))


@pytest.fixture
def api():
    """Return the scripted provider, running."""
    with ResponsesApi() as server:
        yield server


@pytest.fixture
def say(api, tmp_path):
    """Return a function that makes one judge call against the scripted provider."""
    def call(reply=None, arguments=None, prompt=PROMPT, **environment) -> Said:
        if reply is not None:
            api.reply = reply
        values = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path),
                  "LANG": "C.UTF-8", "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": api.url,
                  **environment}
        words = vector() if arguments is None else arguments
        text = prompt if isinstance(prompt, bytes) else prompt.encode("utf-8")
        said = Said(subprocess.run(
            [sys.executable, "-I", *program_flags(), str(JUDGE), *words], input=text,
            env={name: value for name, value in values.items() if value is not None},
            capture_output=True, timeout=60, check=False))
        assert KEY.encode() not in said.out + said.err
        return said
    return call


# ---- a judgment -----------------------------------------------------------------------------

def test_prints_its_version_and_says_the_same_in_init(say):
    assert say({}, ["--version"]).out == b"1.0.0 (openai-judge)\n"
    init = say(verdict_reply("pass")).items[0]
    assert init["subtype"] == "init"
    assert init["claude_code_version"] == "1.0.0"
    assert init["tools"] == ["StructuredOutput"]
    assert init["session_id"] == CALL_ID


@pytest.mark.parametrize("verdict", ["pass", "fail", "unknown"])
def test_a_verdict_is_printed_like_a_structured_output(say, verdict):
    said = say(verdict_reply(verdict, "é \ud83d", "q"))
    expected = {"evidence": "é \ud83d", "quote": "q", "verdict": verdict}
    assert (said.exit, said.err) == (0, b"")
    assert said.out.count(b"\n") == 1 and said.out.isascii()
    kinds = [(item["type"], item.get("subtype")) for item in said.items]
    assert kinds == [("system", "init"), ("assistant", None), ("user", None),
                     ("system", "provider_response"), ("result", "success")]
    assert said.only("assistant")["message"]["model"] == MODEL
    block, = said.blocks
    assert (block["type"], block["name"], block["input"]) == (
        "tool_use", "StructuredOutput", expected)
    assert said.items[2]["message"]["content"][0]["tool_use_id"] == block["id"]
    result = said.result
    assert result["structured_output"] == json.loads(result["result"]) == expected
    assert (result["is_error"], result["terminal_reason"], result["stop_reason"]) == (
        False, "completed", "tool_use")
    assert (result["num_turns"], result["session_id"]) == (2, CALL_ID)
    assert list(result["modelUsage"]) == [MODEL]
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (100, 20)


def test_the_request_is_exactly_this(say, api):
    said = say(verdict_reply("pass"), OPENAI_JUDGE_MAX_OUTPUT_UNITS="777")
    assert said.exit == 0
    request, = api.requests
    assert (request["method"], request["path"]) == ("POST", "/v1/responses")
    assert request["body"] == {
        "model": MODEL, "instructions": "FIXED JUDGE TEXT", "input": PROMPT,
        "text": {"format": {"type": "json_schema", "name": "StructuredOutput",
                            "strict": True, "schema": SCHEMA}},
        "tools": [], "stream": False, "store": False, "truncation": "disabled",
        "service_tier": "default", "max_output_tokens": 777}
    schema = request["body"]["text"]["format"]["schema"]
    assert list(schema["properties"]) == ["evidence", "quote", "verdict"]
    assert request["headers"]["Authorization"] == f"Bearer {KEY}"
    assert request["raw"].count(KEY.encode()) == 0


def test_an_output_limit_is_sent_when_none_is_set(say, api):
    say(verdict_reply("pass"))
    assert api.requests[0]["body"]["max_output_tokens"] == 8192


@pytest.mark.parametrize("ending", ["", "/", "/v1/"])
def test_the_address_may_end_with_or_without_a_slash_or_version(say, api, ending):
    said = say(verdict_reply("pass"), OPENAI_BASE_URL=f"http://127.0.0.1:{api.port}{ending}")
    assert said.exit == 0
    assert [request["path"] for request in api.requests] == ["/v1/responses"]


def test_the_path_of_a_gateway_is_kept(say, api):
    say(verdict_reply("pass"), OPENAI_BASE_URL=f"http://127.0.0.1:{api.port}/team/v1")
    assert api.requests[0]["path"] == "/team/v1/responses"


def test_a_proxy_in_the_environment_is_not_used(say, api):
    proxy = "http://127.0.0.1:9"
    said = say(verdict_reply("pass"), http_proxy=proxy, HTTP_PROXY=proxy, ALL_PROXY=proxy)
    assert said.exit == 0
    assert len(api.requests) == 1


def test_waits_without_a_limit_of_its_own(api, monkeypatch):
    specification = importlib.util.spec_from_file_location("openai_judge", JUDGE)
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "openai_judge", module)
    specification.loader.exec_module(module)
    api.reply = verdict_reply("pass")
    waits = []
    answer_over = module.answer_over

    def watched(connection, call):
        waits.append(connection.sock.gettimeout())
        return answer_over(connection, call)

    monkeypatch.setattr(module, "answer_over", watched)
    call = module.call_of(vector(), {"OPENAI_BASE_URL": api.url, "OPENAI_API_KEY": KEY}, b"x")
    assert module.exchange(call).status == 200
    assert waits == [None]
    assert KEY not in repr(call)


def test_a_judge_that_is_ended_while_it_waits_has_printed_nothing(api, tmp_path):
    api.reply = {"hold": True}
    with subprocess.Popen([sys.executable, str(JUDGE), *vector()], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path),
                               "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": api.url}) as process:
        process.stdin.write(b"prompt")
        process.stdin.close()
        assert api.arrived.wait(60)
        process.terminate()
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")
    assert process.returncode == -15


# ---- the price ------------------------------------------------------------------------------

def test_the_cost_is_exact(say):
    said = say(verdict_reply("pass"), **RATES)
    assert b'"total_cost_usd":0.00036,' in said.out
    assert said.result["total_cost_usd"] == Decimal("0.00036")
    usage = said.result["modelUsage"][MODEL]
    assert (usage["costUSD"], usage["costBasis"]) == (Decimal("0.00036"), "list")


@pytest.mark.parametrize(("counts", "rates", "cost"), [
    ((1, 1), ("0.05", "0.4"), "0.00000045"),
    ((10**9, 10**9), ("999999.999999", "999999.999999"), "1999999999.998"),
    ((3, 1), ("0.1", "0.7"), "0.000001"),
    ((1_000_000, 1), ("2", "0"), "2"),
])
def test_the_cost_is_a_plain_decimal_at_any_size(say, counts, rates, cost):
    said = say(verdict_reply("pass", usage={"input_tokens": counts[0],
                                            "output_tokens": counts[1]}),
               vector(max_budget_usd="9999999999"),
               OPENAI_JUDGE_INPUT_USD_PER_MILLION=rates[0],
               OPENAI_JUDGE_OUTPUT_USD_PER_MILLION=rates[1])
    assert said.exit == 0
    assert f'"total_cost_usd":{cost},'.encode() in said.out


@pytest.mark.parametrize(("fields", "environment"), [
    ({}, {}),
    ({"service_tier": "priority"}, RATES),
], ids=["no rates", "another service tier"])
def test_the_cost_is_unknown_while_the_verdict_stands(say, fields, environment):
    said = say(verdict_reply("pass", **fields), **environment)
    assert said.exit == 0
    assert said.result["total_cost_usd"] == 0
    assert said.result["modelUsage"][MODEL]["costBasis"] == "unknown"


def test_a_cost_above_the_budget_is_no_judgment(say):
    said = say(verdict_reply("pass"), vector(max_budget_usd="0.00035"), **RATES)
    assert said.is_no_judgment()
    assert said.result["subtype"] == "error_max_budget_usd"
    assert said.result["total_cost_usd"] == Decimal("0.00036")


def test_a_cost_equal_to_the_budget_is_a_judgment(say):
    assert say(verdict_reply("pass"), vector(max_budget_usd="0.00036"), **RATES).exit == 0


# ---- never a usable judgment ----------------------------------------------------------------

def test_an_answer_of_another_model_carries_the_name_that_answered(say):
    said = say(verdict_reply("pass", model=MODEL + "-b"), **RATES)
    assert said.is_no_judgment()
    assert said.only("assistant")["message"]["model"] == MODEL + "-b"
    assert list(said.result["modelUsage"]) == [MODEL + "-b"]
    assert said.result["modelUsage"][MODEL + "-b"]["costBasis"] == "unknown"


@pytest.mark.parametrize("parts", [
    [{"type": "refusal", "refusal": "I cannot."}],
    [text_part(verdict_text("pass")), {"type": "refusal", "refusal": "I cannot."}],
    [{"type": "refusal", "refusal": ""}, text_part(verdict_text("pass"))],
], ids=["alone", "after a verdict", "before a verdict"])
def test_a_refusal_is_a_refusal_beside_a_verdict_too(say, parts):
    said = say({"document": response(output=[message(*parts)])}, **RATES)
    assert said.is_no_judgment()
    assert said.result["stop_reason"] == "refusal"
    assert said.result["terminal_reason"] == "api_error"
    assert said.result["subtype"] == "success"
    assert said.result["total_cost_usd"] == Decimal("0.00036")
    assert said.only("assistant")["message"]["model"] == "<synthetic>"


def test_a_cut_by_the_content_filter_is_a_refusal(say):
    said = say({"document": response(
        status="incomplete", incomplete_details={"reason": "content_filter"},
        output=[message(text_part(verdict_text("pass")), status="incomplete")])})
    assert said.is_no_judgment()
    assert said.result["stop_reason"] == "refusal"


@pytest.mark.parametrize("text", [verdict_text("pass"), verdict_text("pass")[:-20]])
def test_an_incomplete_answer_is_cut_even_when_its_verdict_is_whole(say, text):
    said = say({"document": response(
        status="incomplete", incomplete_details={"reason": "max_output_tokens"},
        output=[message(text_part(text), status="incomplete")])})
    assert said.is_no_judgment()
    assert (said.result["subtype"], said.result["stop_reason"]) == (
        "error_max_turns", "max_tokens")
    assert said.blocks == [{"type": "text", "text": text}]


@pytest.mark.parametrize("text", [
    '{"evidence":"e","quote":"q","verdict":"fail","verdict":"pass"}',
    '{"evidence":"e","quote":"q","verdict":"PASS"}',
    '{"evidence":"e","verdict":"pass"}',
    '{"evidence":"e","quote":"q","verdict":"pass","confidence":"1"}',
    '{"evidence":1.5,"quote":"q","verdict":"pass"}',
    '{"evidence":NaN,"quote":"q","verdict":"pass"}',
    '["e","q","pass"]', '"pass"', "pass", "",
    "```json\n" + verdict_text("pass") + "\n```",
    verdict_text("pass") + verdict_text("pass"),
    '{"evidence":' + "[" * 200_000,
], ids=["duplicate key", "other word", "missing", "extra", "number", "NaN", "list", "string",
        "word", "empty", "fenced", "twice", "deep"])
def test_a_text_that_is_not_exactly_a_verdict_is_shown_as_text(say, text):
    said = say({"document": response(text)})
    assert said.is_no_judgment()
    assert said.result["subtype"] == "error_max_turns"
    assert said.blocks == [{"type": "text", "text": text}]
    assert said.only("assistant")["message"]["model"] == MODEL


@pytest.mark.parametrize("output", [
    [message(text_part(verdict_text("pass")), text_part(verdict_text("fail")))],
    [message(text_part(verdict_text("pass")), {"type": "note", "text": "x"})],
    [message(text_part(verdict_text("fail"))), message(text_part(verdict_text("pass")))],
    [message()],
    [],
], ids=["two texts", "another part", "two messages", "empty message", "no message"])
def test_anything_but_one_text_is_no_verdict(say, output):
    said = say({"document": response(output=output)})
    assert said.is_no_judgment()
    assert said.result["subtype"] == "error_max_turns"


@pytest.mark.parametrize("usage", [
    None, [], {}, {"input_tokens": 100}, {"output_tokens": 20},
    {"input_tokens": "100", "output_tokens": 20}, {"input_tokens": True, "output_tokens": 20},
    {"input_tokens": 100.0, "output_tokens": 20}, {"input_tokens": 0, "output_tokens": 20},
    {"input_tokens": 100, "output_tokens": -1},
    {"input_tokens": 10**9 + 1, "output_tokens": 20},
    {"input_tokens": 100, "output_tokens": 10**9 + 1},
    {"input_tokens": 100, "output_tokens": 20, "total_tokens": 121},
    {"input_tokens": 100, "output_tokens": 20, "total_tokens": None},
], ids=repr)
def test_usage_that_is_missing_or_not_believable_is_no_judgment(say, usage):
    said = say(verdict_reply("pass", usage=usage), **RATES)
    assert said.is_no_judgment()
    assert "usage" in said.result["result"]
    assert said.result["api_error_status"] is None
    assert (said.result["total_cost_usd"], said.result["modelUsage"]) == (0, {})
    assert said.only("assistant")["message"]["model"] == MODEL


@pytest.mark.parametrize("fields", [
    {"object": "chat.completion"}, {"id": None}, {"id": "a b"}, {"model": None}, {"model": ""},
    {"status": "failed", "error": {"code": "server_error", "message": "x"}, "usage": None},
    {"status": "in_progress"}, {"status": None}, {"error": {"code": "server_error"}},
    {"incomplete_details": {"reason": "max_output_tokens"}}, {"output": None},
    {"output": ["x"]}, {"output": [{"type": "message", "content": None}]},
    {"output": [message("x")]},
    {"output": [message({"type": "output_text", "text": None})]},
    {"output": [{"type": "function_call", "name": "f", "arguments": "{}"},
                message(text_part(verdict_text("pass")))]},
    {"output": [message(text_part(verdict_text("pass"))) | {"role": "user"}]},
    {"output": [message(text_part(verdict_text("pass")), status="incomplete")]},
], ids=repr)
def test_a_response_of_another_shape_is_no_judgment(say, fields):
    said = say(verdict_reply("pass", **fields))
    assert said.is_no_judgment()
    assert said.result["result"].startswith("API Error: the response is not usable: ")
    assert said.result["api_error_status"] is None


WHOLE = json.dumps(response(verdict_text("pass"))).encode()


@pytest.mark.parametrize("raw", [
    b"", b"<html>ok</html>", WHOLE[:-1], WHOLE + b"{}", b"\xef\xbb\xbf" + WHOLE,
    WHOLE.replace(b'"store"', b'"status": "failed", "store"'),
    WHOLE.replace(b'"metadata": {}', b'"metadata": NaN'),
    WHOLE.replace(b"req", b"\xff").replace(b"says", b"\xff"),
    b"[" * 100_000, b"1" * 10_000, b"null", WHOLE.decode().encode("utf-16"),
], ids=["empty", "html", "cut", "two", "mark", "duplicate", "NaN", "not UTF-8", "deep",
        "huge number", "null", "utf-16"])
def test_a_body_that_is_no_strict_json_object_is_no_judgment(say, raw):
    said = say({"raw": raw})
    assert said.is_no_judgment()
    assert said.provider["sha256"] == hashlib.sha256(raw).hexdigest()


def test_a_connection_that_ends_within_the_body_is_no_judgment(say):
    said = say({"raw": WHOLE, "short": 7})
    assert said.is_no_judgment()
    assert said.provider["complete"] is False
    assert said.provider["body"] == WHOLE.decode()


def test_a_chunked_body_that_breaks_off_is_no_judgment(say):
    chunk = b"%x\r\n%s\r\n" % (len(WHOLE), WHOLE)
    chunked = {"Content-Length": None, "Transfer-Encoding": "chunked"}
    assert say({"raw": chunk, "headers": chunked}).is_no_judgment()
    assert say({"raw": chunk + b"0\r\n\r\n", "headers": chunked}).exit == 0


@pytest.mark.parametrize("status", [201, 202, 206])
def test_a_success_other_than_200_is_no_judgment(say, status):
    said = say(verdict_reply("pass") | {"status": status})
    assert said.is_no_judgment()
    assert said.result["api_error_status"] is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_moved_endpoint_is_not_followed(say, api, status):
    moved = {"status": status, "headers": {"Location": f"{api.url}/elsewhere"}}
    said = say(lambda request: verdict_reply("pass") | (
        moved if request["path"] == "/v1/responses" else {}))
    assert said.is_no_judgment()
    assert [request["path"] for request in api.requests] == ["/v1/responses"]
    assert "moved" in said.result["result"]


# ---- nothing was answered -------------------------------------------------------------------

@pytest.mark.parametrize(("status", "code", "words"), [
    (400, "context_length_exceeded", "API Error: Request rejected (400)"),
    (401, "invalid_api_key", "Failed to authenticate. API Error: 401"),
    (403, None, "Failed to authenticate. API Error: 403"),
    (404, "model_not_found", "API Error: Request rejected (404)"),
    (429, "rate_limit_exceeded", "API Error: Request rejected (429)"),
    (429, "insufficient_quota", "Credit balance is too low"),
    (500, None, "API Error: Request rejected (500)"),
    (503, "server_is_overloaded", "API Error: Request rejected (503)"),
])
def test_an_http_error_is_one_request_with_its_status_and_no_usage(say, api, status, code,
                                                                   words):
    said = say(error_reply(status, code, headers={"Retry-After": "0"}), **RATES)
    assert said.is_no_judgment()
    assert len(api.requests) == 1
    result = said.result
    assert (result["subtype"], result["terminal_reason"]) == ("success", "api_error")
    assert result["api_error_status"] == status
    assert result["result"].startswith(words)
    assert (result["total_cost_usd"], result["modelUsage"]) == (0, {})
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (0, 0)
    assert said.only("assistant")["message"]["model"] == "<synthetic>"
    assert said.provider["http_status"] == status
    assert "synthetic words" in said.provider["body"]


def test_a_verdict_under_an_http_error_is_no_judgment(say):
    said = say(verdict_reply("pass") | {"status": 429})
    assert said.is_no_judgment()
    assert said.result["api_error_status"] == 429


def test_a_refused_connection_says_so(say):
    said = say(OPENAI_BASE_URL="http://127.0.0.1:1")     # where nothing listens
    assert said.is_no_judgment()
    assert "(ECONNREFUSED)" in said.result["result"]
    assert said.result["api_error"] == "connection_failed"
    assert said.result["modelUsage"] == {}


def test_a_name_that_cannot_exist_is_not_resolved(say):
    said = say({}, OPENAI_BASE_URL="https://judge.invalid/v1")
    assert said.is_no_judgment()
    assert re.search(r"\((ENOTFOUND|EAI_AGAIN)\)", said.result["result"])


def test_a_connection_dropped_after_the_request_is_not_called_unreached(say, api):
    said = say({"drop": True})
    assert said.is_no_judgment()
    assert len(api.requests) == 1
    assert "dropped" in said.result["result"]
    assert not re.search("ECONNREFUSED|ENOTFOUND|EAI_AGAIN|UNREACH", said.out.decode())


@pytest.mark.parametrize("key", [None, "", "short", "two words of it", "line\nbreak-in-key",
                                 "schlüssel-lang"])
def test_without_a_usable_key_nothing_is_sent(say, api, key):
    said = say({}, OPENAI_API_KEY=key)
    assert said.is_no_judgment()
    assert said.result["result"].startswith("Not logged in")
    assert api.requests == []
    assert not key or key.encode() not in said.out + said.err


@pytest.mark.parametrize("environment", [
    {"OPENAI_BASE_URL": "http://192.0.2.1/v1"}, {"OPENAI_BASE_URL": "ftp://127.0.0.1/v1"},
    {"OPENAI_BASE_URL": "127.0.0.1/v1"}, {"OPENAI_BASE_URL": "http://u:p@127.0.0.1/v1"},
    {"OPENAI_BASE_URL": "http://127.0.0.1:x/v1"}, {"OPENAI_BASE_URL": "http://127.0.0.1/v1?a"},
    {"OPENAI_BASE_URL": "http://127.0.0.1/a b"}, {"OPENAI_BASE_URL": ""},
    {"OPENAI_JUDGE_INPUT_USD_PER_MILLION": "2"}, {"OPENAI_JUDGE_OUTPUT_USD_PER_MILLION": "8"},
    RATES | {"OPENAI_JUDGE_INPUT_USD_PER_MILLION": "2e0"},
    RATES | {"OPENAI_JUDGE_INPUT_USD_PER_MILLION": "-2"},
    {"OPENAI_JUDGE_INPUT_PRICE": "2"}, {"OPENAI_JUDGE_MAX_OUTPUT_UNITS": "15"},
    {"OPENAI_JUDGE_MAX_OUTPUT_UNITS": "many"},
], ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()))
def test_a_setting_that_cannot_be_meant_is_refused_before_anything_is_sent(say, api,
                                                                           environment):
    said = say({}, **environment)
    assert (said.exit, said.out) == (1, b"")
    assert said.err.startswith(b"error: unknown option ")
    assert api.requests == []


@pytest.mark.parametrize("arguments", [
    vector() + ["--add-dir", "."], vector() + ["--bare"], vector(model=None), vector(model=" "),
    vector(session_id="1"), vector(tools="Bash"), vector(output_format="text"),
    vector(max_turns="2"), vector(max_budget_usd="0"), vector(max_budget_usd="1e3"),
    vector(json_schema=None), vector(json_schema="{"), vector(json_schema="{}"),
    vector(json_schema=json.dumps(SCHEMA | {"additionalProperties": True})),
    vector(json_schema=json.dumps(SCHEMA | {"required": ["verdict"]})),
    vector() + ["--max-turns"], [],
], ids=lambda words: " ".join(words[-2:])[:40] or "none")
def test_an_argument_vector_that_cannot_be_honoured_is_refused(say, api, arguments):
    said = say({}, arguments)
    assert (said.exit, said.out) == (1, b"")
    assert said.err.startswith(b"error: unknown option ")
    assert api.requests == []


@pytest.mark.parametrize("prompt", [b"", b" \n", b"\xff", b"x" * 10_000_001],
                         ids=["empty", "blank", "not UTF-8", "too large"])
def test_a_prompt_that_cannot_be_sent_is_refused(say, api, prompt):
    said = say({}, prompt=prompt)
    assert (said.exit, said.out) == (1, b"")
    assert api.requests == []


# ---- the body, and the key ------------------------------------------------------------------

def test_the_whole_body_is_kept(say):
    said = say({"raw": WHOLE})
    provider = said.provider
    assert provider["body"].encode() == WHOLE
    assert provider["sha256"] == hashlib.sha256(WHOLE).hexdigest()
    assert (provider["bytes"], provider["complete"]) == (len(WHOLE), True)
    assert (provider["http_status"], provider["request_id"]) == (200, "req_1f")


def test_a_body_that_is_no_utf_8_is_kept_in_base_64(say):
    assert say({"raw": b"\xff\x00"}).provider["body_base64"] == "/wA="


@pytest.mark.parametrize("over", [0, 1])
def test_a_body_one_byte_too_large_is_replaced_by_its_hash(say, over):
    raw = WHOLE + b" " * (1_000_000 + over - len(WHOLE))
    said = say({"raw": raw})
    assert said.provider["sha256"] == hashlib.sha256(raw).hexdigest()
    assert said.provider["bytes"] == len(raw)
    assert said.exit == over
    if over:
        assert said.is_no_judgment()
        assert said.provider["response_not_retained"] == "too large"
        assert "body" not in said.provider
        assert len(said.out) < 10_000
    else:
        assert said.provider["body"].encode() == raw


def test_a_body_without_end_is_given_up(say):
    said = say({"raw": b" " * 17_000_000})
    assert said.is_no_judgment()
    assert said.provider["complete"] is False
    assert said.provider["response_not_retained"] == "too large"
    assert 16_000_000 <= said.provider["bytes"] < 17_000_000


def escaped(text: str) -> str:
    """Return a text with every character as a JSON escape."""
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


@pytest.mark.parametrize("reply", [
    verdict_reply("pass", evidence=f"It is {KEY}."),
    {"raw": WHOLE.replace(b"The source", escaped(KEY).encode())},
    {"raw": WHOLE.replace(b"The source", b"\\\\" + escaped(KEY).encode()[1:])},
    verdict_reply("pass", instructions=f"Bearer {KEY}"),
    {"raw": WHOLE.replace(b'"instructions": null',
                          b'"instructions": "%s"' % escaped(KEY).encode())},
    {"raw": WHOLE.replace(b'"instructions": null',
                          b'"instructions": "\\%s"' % escaped(KEY).encode())},
    verdict_reply("pass", model=KEY), verdict_reply("pass", id=KEY),
    verdict_reply("pass") | {"headers": {"x-request-id": KEY}},
    error_reply(401, words=f"Incorrect key {KEY}"),
    {"raw": KEY.encode() + b"\xff"},
    {"status": 307, "raw": b"", "headers": {"Location": f"/{KEY}", "x-request-id": KEY}},
], ids=["evidence", "escaped", "escaped in text", "echo", "escaped echo",
        "twice escaped echo", "model", "id", "header", "error",
        "not UTF-8", "redirect"])
def test_a_reply_that_repeats_the_key_is_never_printed(say, reply):
    said = say(reply)
    assert said.is_no_judgment()
    decoded = json.dumps(said.items, default=str)
    assert KEY not in decoded and escaped(KEY) not in decoded
    assert KEY not in re.sub(r"\\+u00(..)", lambda m: chr(int(m[1], 16)), decoded)


def test_a_withheld_error_keeps_its_status(say):
    said = say(error_reply(401, "invalid_api_key", words=f"Incorrect key {KEY}"))
    assert said.result["api_error_status"] == 401
    assert said.provider["response_not_retained"] == "repeats the key"


# ---- with the program -----------------------------------------------------------------------

class JudgedExperiment(Experiment):
    """An experiment whose Skill runs use the stand-in and whose judge is the judge above."""

    def __init__(self, root, api: ResponsesApi, **settings: str):
        root.mkdir(exist_ok=True)
        judge = root / "openai_judge"
        first = JUDGE.read_text("utf-8").split("\n", 1)
        judge.write_text(f"#!{sys.executable} -I\n{first[1]}", "utf-8")
        judge.chmod(0o755)
        self.said: list[str] = []
        super().__init__(root, environment={
            "judgeExecutable": str(judge), "judgeCliVersion": "1.0.0 (openai-judge)",
            "judgeCliSha256": sha256(judge.read_bytes()), "judgeModelId": MODEL,
            "passEnvironment": ["OPENAI_API_KEY"]},
            settings={"OPENAI_BASE_URL": api.url, **RATES, **settings})

    def child_environment(self, env=None) -> dict[str, str]:
        """Return the program's environment with the judge's key in it."""
        return super().child_environment({"OPENAI_API_KEY": KEY, **(env or {})})

    def command(self, *words, **options):
        """Say a command and remember what it printed."""
        done = super().command(*words, **options)
        self.said.append(done.stdout + done.stderr)
        return done

    def places_of_the_key(self) -> list[str]:
        """Return every file that holds the key, and every command's print that does."""
        files = [path for path in self.root.rglob("*") if path.is_file()]
        assert any(path.name.endswith(".stdout") for path in files)
        return ([str(path) for path in files if KEY.encode() in path.read_bytes()]
                + [text for text in self.said if KEY in text])

    def first_terminal(self) -> dict:
        """Return the terminal receipt of the call that came first."""
        pendings = self.receipts("pending")
        name = min(pendings, key=lambda each: pendings[each]["createdAtUtc"])
        return self.read(name.replace("pending", "terminal"))


def honest(request: dict) -> dict:
    """Return the verdict that the marks in the output ask for."""
    for mark, verdict, quote in ((UNSURE_MARK, "unknown", ""), (QUOTE, "pass", QUOTE),
                                 (POOR_MARK, "fail", POOR_MARK)):
        if mark in request["body"]["input"]:
            return verdict_reply(verdict, quote=quote)
    raise AssertionError("an output without a mark")


def test_an_experiment_with_this_judge_runs_end_to_end(api, tmp_path):
    api.reply = honest
    experiment = JudgedExperiment(tmp_path / "root", api).walk()
    assert experiment.read("comparison.json")["status"] == "eligible-for-manual-review"
    assert experiment.read("decision-receipt.json")["kind"] == "decision-receipt"
    judged = {name: receipt for part in (".judge.", ".calibrate.")
              for name, receipt in experiment.receipts(part).items() if "terminal" in name}
    assert len(judged) == len(api.requests) == 3 + 4 * 2
    assert {receipt["status"] for receipt in judged.values()} == {"ok"}
    assert {receipt["costUsd"] for receipt in judged.values()} == {"0.00036"}
    assert {request["body"]["model"] for request in api.requests} == {MODEL}
    assert {call["purpose"] for call in experiment.call_log()} == {"run"}
    experiment.command("verify", "decision-receipt.json", expect=0)
    assert experiment.places_of_the_key() == []


@pytest.mark.parametrize(("reply", "settings", "status", "reason", "cost"), [
    (verdict_reply("pass", quote="", model="gpt-other"), {}, "error", "model-mismatch",
     "unknown"),
    ({"document": response(output=[message(text_part(verdict_text("pass")),
                                           {"type": "refusal", "refusal": "no"})])},
     {}, "error", "abstained", "0.00036"),
    ({"document": response(verdict_text("pass"), status="incomplete",
                           incomplete_details={"reason": "max_output_tokens"},
                           output=[message(text_part(verdict_text("pass")),
                                           status="incomplete")])},
     {}, "error", "invalid-verdict", "0.00036"),
    ({"document": response(verdict_text("pass")[:-1] + ',"verdict":"pass"}')}, {}, "error",
     "invalid-verdict", "0.00036"),
    (verdict_reply("pass", usage=None), {}, "error", "cli-error", "unknown"),
    (verdict_reply("pass", usage={"input_tokens": 10**9 + 1, "output_tokens": 1}), {},
     "error", "cli-error", "unknown"),
    ({"raw": WHOLE + b" " * 1_000_000}, {}, "error", "cli-error", "unknown"),
    ({"status": 307, "raw": b"", "headers": {"Location": "/v1/other"}}, {}, "error",
     "cli-error", "unknown"),
    ({"drop": True}, {}, "error", "cli-error", "unknown"),
    (verdict_reply("pass"), {"OPENAI_JUDGE_INPUT_USD_PER_MILLION": "999999"}, "error",
     "over-budget", "100.00006"),
    (error_reply(429, "rate_limit_exceeded"), {}, "unserved", "rate-limited", "0"),
    (error_reply(429, "insufficient_quota"), {}, "unserved", "no-credit", "0"),
    (error_reply(401, "invalid_api_key", words=f"Wrong: {KEY}"), {}, "unserved",
     "bad-credential", "0"),
    (error_reply(404, "model_not_found"), {}, "unserved", "no-such-model", "0"),
    (error_reply(503), {}, "unserved", "overloaded", "0"),
    (error_reply(400), {}, "unserved", "request-rejected", "0"),
    ({}, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "unserved", "unreachable", "0"),
    ({}, {"OPENAI_JUDGE_MAX_OUTPUT_UNITS": "1"}, "unserved", "bad-option", "0"),
], ids=["another model", "refusal beside a verdict", "incomplete", "duplicate key",
        "usage missing", "count too large", "oversized body", "moved", "dropped",
        "over budget", "429", "no credit", "401", "404", "503", "400", "refused connection",
        "bad setting"])
def test_the_program_gives_no_verdict_and_this_reason(api, tmp_path, reply, settings, status,
                                                      reason, cost):
    api.reply = reply
    experiment = JudgedExperiment(tmp_path / "root", api, **settings)
    experiment.command("calibrate-run", "calibration-plan.json")
    terminal = experiment.first_terminal()
    assert (terminal["status"], terminal["reason"]) == (status, reason)
    assert terminal["costUsd"] == cost
    assert terminal.get("verdict") in (None, "unknown")
    assert experiment.places_of_the_key() == []


def test_the_program_calls_nobody_while_the_key_is_not_set(api, tmp_path):
    experiment = JudgedExperiment(tmp_path / "root", api)
    refused = experiment.command("calibrate-run", "calibration-plan.json",
                                 env={"OPENAI_API_KEY": None}, expect=3)
    assert "OPENAI_API_KEY" in refused.stdout + refused.stderr
    assert (api.requests, experiment.receipts()) == ([], {})
