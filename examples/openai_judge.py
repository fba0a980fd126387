#!/usr/bin/env -S python3 -I
"""A judge over the OpenAI Responses API, for the environment document's `judgeExecutable`.

It takes the argument vector of a judge call, reads the prompt on standard input, makes exactly
one POST to /v1/responses and prints one JSON array in the output format of the Claude Code CLI.
It never follows a redirect, never repeats a request, never uses a proxy and has no clock of its
own: the calling program ends a call that takes too long.

An environment document that uses it (the key's name in passEnvironment, never its value):

    "judgeExecutable": "/absolute/path/openai_judge.py",
    "judgeCliVersion": "1.0.0 (openai-judge)",
    "judgeCliSha256": "… of this file",
    "passEnvironment": ["OPENAI_API_KEY"],
    "setEnvironment": {
      "OPENAI_BASE_URL": "https://api.openai.com/v1",
      "OPENAI_JUDGE_INPUT_USD_PER_MILLION": "2",
      "OPENAI_JUDGE_OUTPUT_USD_PER_MILLION": "8",
      "OPENAI_JUDGE_MAX_OUTPUT_UNITS": "8192"
    }

All four settings may be left out. Without both rates every cost is unknown. Cached input is
counted at the full input rate, so a cost can be too high and not too low; it is unknown when
another model or another service tier answered. An output limit too small for a model that
thinks before it answers cuts the answer, which is then no verdict.

What is a judgment: HTTP 200, a complete body of strict JSON, the requested model, status
`completed`, believable usage, one message with one text and no refusal, and in it one JSON
object that fits the schema. Everything else ends with exit status 1 and no verdict:

    HTTP status from 400 on, a server never reached   nothing was answered, and so it says
    a refusal, or a cut by the content filter         stop_reason refusal
    a cut reply, no JSON, other keys or words         error_max_turns, and no call
    a cost above --max-budget-usd                     error_max_budget_usd
    another model                                     an error, under the name that answered
    everything else                                   an API error without a status

The body of the provider is kept in an item of its own, `provider_response`; one that is too
large, or repeats the key, is replaced by its hash and `response_not_retained`.
"""
import base64
import errno
import hashlib
import http.client
import ipaddress
import json
import os
import re
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any
from urllib.parse import urlsplit

VERSION = "1.0.0"
BASE_URL = "https://api.openai.com/v1"
PROMPT_BYTES_MAX = 10_000_000
BODY_BYTES_MAX = 1_000_000
READ_BYTES_MAX = 16_000_000
COUNT_MAX = 10**9
OUTPUT_LIMIT = 8192
EXACT = Context(prec=60)
SYNTHETIC = "<synthetic>"
TOOL = "StructuredOutput"

# Option -> the only value it may have; ... for any value, None for an option without one.
OPTIONS: dict[str, Any] = {
    "--bare": None, "-p": None, "--strict-mcp-config": None, "--disable-slash-commands": None,
    "--no-session-persistence": None, "--verbose": None, "--setting-sources": "",
    "--settings": ..., "--tools": "", "--disallowedTools": "mcp__*",
    "--permission-prompts": "none", "--session-id": ..., "--system-prompt": ...,
    "--max-turns": "1", "--max-budget-usd": ..., "--model": ..., "--output-format": "json",
    "--json-schema": ...,
}
NEEDED = ("-p", "--session-id", "--system-prompt", "--max-budget-usd", "--model",
          "--output-format", "--verbose", "--json-schema")
INPUT_RATE = "OPENAI_JUDGE_INPUT_USD_PER_MILLION"
OUTPUT_RATE = "OPENAI_JUDGE_OUTPUT_USD_PER_MILLION"
OUTPUT_UNITS = "OPENAI_JUDGE_MAX_OUTPUT_UNITS"
UNREACHED = {errno.ECONNREFUSED: "ECONNREFUSED", errno.ENETUNREACH: "ENETUNREACH",
             errno.EHOSTUNREACH: "EHOSTUNREACH"}
NO_CREDIT = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}


class Refused(Exception):
    """A call that cannot be made as asked; nothing was sent."""


@dataclass(frozen=True)
class Call:
    """One judge call, checked. The key is left out of every printed form."""
    call_id: str
    model: str
    instructions: str
    prompt: str
    schema: dict
    budget_usd: Decimal
    base_url: str
    output_limit: int
    rates: tuple[Decimal, Decimal] | None
    key: str | None = field(repr=False)


@dataclass(frozen=True)
class Answer:
    """What came back: a fault instead of a status when nothing readable did."""
    status: int | None = None
    request_id: str | None = None
    kept: bytes = b""
    size: int = 0
    sha256: str = ""
    complete: bool = False
    fault: str = ""


@dataclass(frozen=True)
class Outcome:
    """What the printed items say; `verdict` is set for a usable judgment only.

    `said` is the model's own text, None when there is only the client's `text`."""
    text: str
    said: str | None = None
    subtype: str = "success"
    terminal_reason: str = "api_error"
    stop_reason: str | None = "stop_sequence"
    message_id: str | None = None
    model: str = SYNTHETIC
    verdict: dict | None = None
    usage: tuple[int, int] | None = None
    cost: Decimal | None = None
    error: dict = field(default_factory=dict)


# ---- Reading what was asked -----------------------------------------------------------------

def strict_json(text: str | bytes) -> Any:
    """The value of one JSON text; ValueError for a repeated key, NaN, too deep, not UTF-8."""
    def pairs(items: list) -> dict:
        if len({name for name, _ in items}) != len(items):
            raise ValueError("a key occurs twice")
        return dict(items)

    def constant(word: str) -> None:
        raise ValueError(f"{word} is no JSON number")

    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def options_of(arguments: list[str]) -> dict[str, str]:
    """Option -> value. Refuses an option or a value that this judge cannot honour."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name = rest.pop(0)
        if name not in OPTIONS:
            raise Refused(f"'{name[:80]}'")
        if name in found:
            raise Refused(f"'{name}' given twice")
        wanted = OPTIONS[name]
        if wanted is not None and not rest:
            raise Refused(f"'{name}' without its value")
        found[name] = "" if wanted is None else rest.pop(0)
        if isinstance(wanted, str) and found[name] != wanted:
            raise Refused(f"value: '{name}' must be '{wanted}'")
    for name in NEEDED:
        if name not in found:
            raise Refused(f"set: '{name}' is missing")
    return found


def decimal_of(name: str, text: str, places: int) -> Decimal:
    """An exact decimal of so many places at most before and after the point."""
    if not re.fullmatch(rf"[0-9]{{1,{places}}}(\.[0-9]{{1,{places}}})?", text):
        raise Refused(f"value: {name} must be a plain decimal such as 0.25")
    return Decimal(text)


def schema_of(text: str) -> dict:
    """The verdict schema: an object of strings, all required, nothing beside them."""
    try:
        schema = strict_json(text)
    except ValueError:
        raise Refused("value: '--json-schema' is not strict JSON") from None
    shape = Refused("value: '--json-schema' must be a closed object of required strings")
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise shape
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        raise shape
    if schema.get("additionalProperties") is not False:
        raise shape
    required = schema.get("required")
    if not isinstance(required, list) or sorted(map(str, required)) != sorted(properties):
        raise shape
    for value in properties.values():
        if not isinstance(value, dict) or value.get("type") != "string":
            raise shape
        if not isinstance(value.get("enum", []), list):
            raise shape
    return schema


def base_url_of(text: str) -> str:
    """The address without its last slash. Refuses one that would send the key in clear."""
    refusal = Refused("value: OPENAI_BASE_URL must be an https address without a user, a query "
                      "or a fragment (http on loopback only)")
    if not re.fullmatch(r"[!-~]+", text) or "?" in text or "#" in text:
        raise refusal
    try:
        parts = urlsplit(text)
        parts.port
    except ValueError:
        raise refusal from None
    if not parts.hostname or "@" in parts.netloc:
        raise refusal
    if parts.scheme != "https" and not (parts.scheme == "http" and loopback(parts.hostname)):
        raise refusal
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or '/v1'}"


def loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def rates_of(environment: Mapping[str, str]) -> tuple[Decimal, Decimal] | None:
    """USD per million input and output tokens, or None. One without the other is refused."""
    given = [name for name in (INPUT_RATE, OUTPUT_RATE) if name in environment]
    if not given:
        return None
    if len(given) == 1:
        raise Refused(f"set: {given[0]} needs the other rate beside it")
    return (decimal_of(INPUT_RATE, environment[INPUT_RATE], 6),
            decimal_of(OUTPUT_RATE, environment[OUTPUT_RATE], 6))


def key_of(environment: Mapping[str, str]) -> str | None:
    """The key, or None when it is absent or could not stand in a header.

    At least eight characters, or it could not be told from ordinary words in a reply."""
    key = environment.get("OPENAI_API_KEY", "")
    return key if re.fullmatch(r"[A-Za-z0-9._~+/=-]{8,}", key) else None


def call_of(arguments: list[str], environment: Mapping[str, str], prompt: bytes) -> Call:
    """The checked call. Refuses here whatever can be refused before anything is sent."""
    options = options_of(arguments)
    for name in environment:
        if name.startswith("OPENAI_JUDGE_") and name not in (INPUT_RATE, OUTPUT_RATE,
                                                             OUTPUT_UNITS):
            raise Refused(f"in the environment: {name}")
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
                        options["--session-id"]):
        raise Refused("value: '--session-id' must be a UUID")
    if not options["--model"].strip():
        raise Refused("value: '--model' is empty")
    budget_usd = decimal_of("'--max-budget-usd'", options["--max-budget-usd"], 12)
    if not budget_usd:
        raise Refused("value: '--max-budget-usd' must be above 0")
    limit = environment.get(OUTPUT_UNITS, str(OUTPUT_LIMIT))
    if not re.fullmatch(r"[1-9][0-9]{1,6}", limit) or int(limit) < 16:
        raise Refused(f"value: {OUTPUT_UNITS} must be a whole number from 16 to 9999999")
    if len(prompt) > PROMPT_BYTES_MAX:
        raise Refused("use: the prompt on standard input exceeds 10 MB")
    try:
        text = prompt.decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("use: the prompt on standard input is not UTF-8") from None
    if not text.strip():
        raise Refused("use: no prompt on standard input")
    return Call(options["--session-id"], options["--model"], options["--system-prompt"], text,
                schema_of(options["--json-schema"]), budget_usd,
                base_url_of(environment.get("OPENAI_BASE_URL", BASE_URL)), int(limit),
                rates_of(environment), key_of(environment))


# ---- The one request ------------------------------------------------------------------------

def request_of(call: Call) -> bytes:
    """The body of the request. The tier is fixed, because a rate belongs to one tier."""
    return json.dumps({
        "model": call.model,
        "instructions": call.instructions,
        "input": call.prompt,
        "text": {"format": {"type": "json_schema", "name": TOOL, "strict": True,
                            "schema": call.schema}},
        "tools": [],
        "stream": False,
        "store": False,
        "truncation": "disabled",
        "service_tier": "default",
        "max_output_tokens": call.output_limit,
    }, separators=(",", ":")).encode("ascii")


def connection_to(call: Call) -> http.client.HTTPConnection:
    """A connection that is not open yet and will wait without limit."""
    parts = urlsplit(call.base_url)
    kind = http.client.HTTPConnection
    if parts.scheme == "https":
        kind = http.client.HTTPSConnection
    return kind(parts.hostname, parts.port, timeout=None)


def exchange(call: Call) -> Answer:
    """The provider's answer to one POST. Every failure becomes a fault, worded by us.

    Spends: one call of the model. Texts of exceptions are never used: they quote headers."""
    connection = connection_to(call)
    try:
        try:
            connection.connect()
        except socket.gaierror as error:
            known = "EAI_AGAIN" if error.errno == socket.EAI_AGAIN else "ENOTFOUND"
            return Answer(fault=f"Name not resolved ({known})")
        except (OSError, ValueError) as error:
            known = UNREACHED.get(getattr(error, "errno", None) or 0)
            if known == "ECONNREFUSED":
                return Answer(fault="Connection refused (ECONNREFUSED)")
            if known:
                return Answer(fault=f"Server not reached ({known})")
            return Answer(fault="No secure connection")
        return answer_over(connection, call)
    finally:
        connection.close()


def answer_over(connection: http.client.HTTPConnection, call: Call) -> Answer:
    """Send the request over an open connection and read what comes, up to a limit."""
    try:
        connection.request("POST", urlsplit(call.base_url).path + "/responses",
                           request_of(call), {
                               "Authorization": f"Bearer {call.key}",
                               "Content-Type": "application/json",
                               "Accept": "application/json",
                               "User-Agent": f"openai-judge/{VERSION}",
                               "Connection": "close"})
        response = connection.getresponse()
    except (OSError, http.client.HTTPException):
        return Answer(fault="Connection dropped after the request was sent")
    with response:
        return body_of(response)


def body_of(response: http.client.HTTPResponse) -> Answer:
    """The answer with its body, hashed as it comes and kept up to one byte over the limit."""
    digest, kept, size, ended = hashlib.sha256(), b"", 0, False
    declared = response.length
    while size <= READ_BYTES_MAX and not ended:
        try:
            piece = response.read(65536)
            ended = not piece
        except http.client.IncompleteRead as error:
            piece = error.partial
            declared, ended = -1, True
        except (OSError, http.client.HTTPException):
            piece = b""
            declared, ended = -1, True
        digest.update(piece)
        size += len(piece)
        kept += piece[:BODY_BYTES_MAX + 1 - len(kept)]
    request_id = response.getheader("x-request-id") or ""
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,200}", request_id):
        request_id = None
    return Answer(response.status, request_id, kept, size, digest.hexdigest(),
                  complete=ended and declared in (None, size))


# ---- Judging the answer: pure ---------------------------------------------------------------

def repeats_key(body: bytes, key: str | None) -> bool:
    """Whether a body holds the key, plainly or in JSON's escapes (also of text in text)."""
    if not key:
        return False
    plain = re.sub(rb"\\+u00([0-7][0-9a-fA-F])",
                   lambda match: bytes([int(match.group(1), 16)]), body)
    plain = re.sub(rb"\\+/", b"/", plain)
    return key.encode() in plain


def not_retained(call: Call, answer: Answer) -> str:
    """Why a body is replaced by its hash, or the empty text."""
    if answer.size > BODY_BYTES_MAX:
        return "too large"
    if repeats_key(answer.kept, call.key):
        return "repeats the key"
    return ""


def outcome_of(call: Call, answer: Answer) -> Outcome:
    """What the answer is worth; never raises."""
    if answer.fault:
        return Outcome(f"API Error: {answer.fault}", error={"api_error": "connection_failed"})
    if answer.status >= 400:
        return rejection(call, answer)
    if 300 <= answer.status < 400:
        return Outcome(f"API Error: the endpoint moved ({answer.status}); not followed")
    if answer.status != 200:
        return Outcome(f"API Error: unexpected HTTP status {answer.status}")
    if not_retained(call, answer):
        return Outcome(f"API Error: response not retained: {not_retained(call, answer)}")
    if not answer.complete:
        return Outcome("API Error: the response was cut off")
    try:
        document = strict_json(answer.kept)
    except ValueError:
        return Outcome("API Error: the response is not strict JSON")
    problem = shape_problem(document)
    if problem:
        return Outcome(f"API Error: the response is not usable: {problem}")
    return judgment(call, document)


def rejection(call: Call, answer: Answer) -> Outcome:
    """An HTTP error. Of the provider's words only a code is repeated: they may quote a key."""
    codes = {"code": "", "type": ""}
    try:
        error = strict_json(answer.kept)["error"]
        for name in codes:
            if re.fullmatch(r"[a-z0-9_]{1,64}", str(error.get(name) or "")):
                codes[name] = str(error[name])
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # a body that is no such JSON has no code; the status says enough
    text = f"API Error: Request rejected ({answer.status})"
    if answer.status in (401, 403):
        text = f"Failed to authenticate. API Error: {answer.status}"
    if not NO_CREDIT.isdisjoint(codes.values()):
        text = f"Credit balance is too low. API Error: {answer.status}"
    words = codes["code"] or codes["type"]
    return Outcome(f"{text} · {words}" if words else text, error={
        "api_error_status": answer.status, "api_error_type": codes["type"] or "api_error"})


def shape_problem(document: Any) -> str:
    """What is wrong with the frame of a response, or the empty text."""
    if not isinstance(document, dict) or document.get("object") != "response":
        return "no response object"
    identity = document.get("id")
    if not isinstance(identity, str) or not re.fullmatch(r"[A-Za-z0-9_.:-]{1,200}", identity):
        return "no id"
    if not isinstance(document.get("model"), str) or not document["model"]:
        return "no model"
    if not isinstance(document.get("output"), list):
        return "no output"
    for item in document["output"]:
        if not isinstance(item, dict):
            return "an output item is no object"
        if item.get("type") == "message" and not isinstance(item.get("content"), list):
            return "a message without content"
        for part in item["content"] if item.get("type") == "message" else []:
            if not isinstance(part, dict):
                return "a part of a message is no object"
            if part.get("type") == "output_text" and not isinstance(part.get("text"), str):
                return "a text that is no text"
    return ""


def usage_of(document: dict) -> tuple[int, int] | None:
    """Input and output tokens, or None when they are missing or not believable."""
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    counts = usage.get("input_tokens"), usage.get("output_tokens")
    for count in counts:
        if type(count) is not int or not 1 <= count <= COUNT_MAX:
            return None
    total = usage.get("total_tokens", sum(counts))
    return counts if type(total) is int and total == sum(counts) else None


def cost_of(call: Call, document: dict, usage: tuple[int, int] | None) -> Decimal | None:
    """The exact price of a response, or None when it is not known."""
    if usage is None or call.rates is None:
        return None
    if document["model"] != call.model:
        return None
    if document.get("service_tier") not in (None, "default"):
        return None
    price = EXACT.add(usage[0] * call.rates[0], usage[1] * call.rates[1])
    return EXACT.scaleb(price, -6)


def judgment(call: Call, document: dict) -> Outcome:
    """The outcome of a response whose frame is sound."""
    parts = [part for item in document["output"] if item.get("type") == "message"
             for part in item["content"]]
    texts = [part["text"] for part in parts if part.get("type") == "output_text"]
    usage = usage_of(document)
    facts: dict = {"message_id": document["id"], "model": document["model"], "usage": usage,
                   "cost": cost_of(call, document, usage)}
    said = "".join(texts)
    if document["model"] != call.model:
        return Outcome("API Error: another model answered", said, **facts)
    problem = status_problem(document)
    if not problem and usage is None:
        problem = "usage missing or not believable"
    if problem:
        return Outcome(f"API Error: the response is not usable: {problem}", said, **facts)
    if refused(document, parts):
        return Outcome("API Error: the model refused", stop_reason="refusal", **facts)
    instead = Outcome("", said, "error_max_turns", "max_turns", "end_turn", **facts)
    if document["status"] == "incomplete":
        return Outcome("", said, "error_max_turns", "max_turns", "max_tokens", **facts)
    if len(parts) != 1:
        return instead
    try:
        verdict = strict_json(said)
    except ValueError:
        return instead
    if not fits(call.schema, verdict):
        return instead
    if facts["cost"] is not None and facts["cost"] > call.budget_usd:
        return Outcome("", said, "error_max_budget_usd", "budget_exhausted", None, **facts)
    return Outcome(written(verdict), said, "success", "completed", "tool_use",
                   verdict=verdict, **facts)


def status_problem(document: dict) -> str:
    """Why a response does not count as an answer of the model, or the empty text."""
    status, details = document.get("status"), document.get("incomplete_details")
    if status not in ("completed", "incomplete"):
        return "status neither completed nor incomplete"
    if document.get("error") is not None:
        return "an error beside the answer"
    if status == "completed" and details is not None:
        return "completed, yet with reasons for being incomplete"
    for item in document["output"]:
        if item.get("type") not in ("message", "reasoning"):
            return "an output item that is neither message nor reasoning"
        if item["type"] == "message" and item.get("role") != "assistant":
            return "a message of another role"
        if item["type"] == "message" and item.get("status", status) != status:
            return "a message whose status is not that of the response"
    return ""


def refused(document: dict, parts: list[dict]) -> bool:
    """Whether the model, or the provider's content filter for it, declined to answer."""
    details = document.get("incomplete_details")
    if isinstance(details, dict) and details.get("reason") == "content_filter":
        return True
    return any(part.get("type") == "refusal" for part in parts)


def fits(schema: dict, verdict: Any) -> bool:
    """Whether a value has exactly the schema's properties, with words that it allows."""
    properties = schema["properties"]
    if not isinstance(verdict, dict) or verdict.keys() != properties.keys():
        return False
    for name, value in verdict.items():
        if not isinstance(value, str):
            return False
        if value not in properties[name].get("enum", [value]):
            return False
    return True


# ---- Printing -------------------------------------------------------------------------------

def written(value: Any) -> str:
    """JSON text in ASCII. Decimals are written plainly, without an exponent."""
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)}:{written(item)}" for name, item in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def usage_item(usage: tuple[int, int] | None) -> dict:
    """Token counts under the names of the Claude Code CLI."""
    counted = usage or (0, 0)
    return {"input_tokens": counted[0], "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": counted[1]}


def init_item(call: Call) -> dict:
    """The first item: what is about to answer, with which tools."""
    return {"type": "system", "subtype": "init", "session_id": call.call_id,
            "tools": [TOOL], "mcp_servers": [], "model": call.model,
            "permissionMode": "default", "slash_commands": [], "agents": [], "skills": [],
            "plugins": [], "apiKeySource": "OPENAI_API_KEY", "claude_code_version": VERSION,
            "uuid": str(uuid.uuid4())}


def answer_items(call: Call, outcome: Outcome, request_id: str | None) -> list[dict]:
    """The assistant's item, and after a verdict the tool result that accepts it."""
    own = outcome.said is None
    block: dict = {"type": "text", "text": outcome.text if own else outcome.said}
    tool_id = "toolu_" + uuid.uuid4().hex[:20]
    if outcome.verdict is not None:
        block = {"type": "tool_use", "id": tool_id, "name": TOOL, "input": outcome.verdict}
    # The client's own words carry the client's own model name, so that nobody takes them for
    # an answer; a refusal is reported in the client's words.
    message = {"id": outcome.message_id or str(uuid.uuid4()), "type": "message",
               "role": "assistant", "model": SYNTHETIC if own else outcome.model,
               "content": [block], "stop_reason": outcome.stop_reason if own else None,
               "stop_sequence": None, "usage": usage_item(None if own else outcome.usage)}
    item = {"type": "assistant", "message": message, "parent_tool_use_id": None,
            "session_id": call.call_id, "uuid": str(uuid.uuid4()), "request_id": request_id}
    if own:
        item.update(is_api_error_message=True, **outcome.error)
    if outcome.verdict is None:
        return [item]
    said = "Structured output provided successfully"
    return [item, {
        "type": "user", "message": {"role": "user", "content": [
            {"tool_use_id": tool_id, "type": "tool_result", "content": said}]},
        "parent_tool_use_id": None, "session_id": call.call_id, "uuid": str(uuid.uuid4()),
        "tool_use_result": said}]


def provider_item(call: Call, answer: Answer) -> dict:
    """The provider's whole body, or its hash and why it is not retained."""
    item: dict = {"type": "system", "subtype": "provider_response",
                  "session_id": call.call_id, "http_status": answer.status,
                  "request_id": answer.request_id, "bytes": answer.size,
                  "complete": answer.complete, "sha256": answer.sha256}
    reason = not_retained(call, answer)
    if reason:
        return item | {"response_not_retained": reason}
    try:
        return item | {"body": answer.kept.decode("utf-8")}
    except UnicodeDecodeError:
        return item | {"body_base64": base64.b64encode(answer.kept).decode("ascii")}


def result_item(call: Call, outcome: Outcome, milliseconds: int) -> dict:
    """The last item: how it ended, what it used, what it cost."""
    failed = outcome.verdict is None
    usage: dict = {}
    if outcome.usage is not None:
        usage[outcome.model] = {
            "inputTokens": outcome.usage[0], "outputTokens": outcome.usage[1],
            "cacheReadInputTokens": 0, "cacheCreationInputTokens": 0,
            "costUSD": outcome.cost or 0, "provider": "openai",
            "costBasis": "unknown" if outcome.cost is None else "list"}
    item = {"type": "result", "subtype": outcome.subtype, "is_error": failed,
            "terminal_reason": outcome.terminal_reason, "stop_reason": outcome.stop_reason,
            "num_turns": 1 if outcome.subtype == "success" and failed else 2,
            "session_id": call.call_id, "total_cost_usd": outcome.cost or 0,
            "usage": usage_item(outcome.usage), "modelUsage": usage,
            "permission_denials": [], "duration_ms": milliseconds,
            "uuid": str(uuid.uuid4())}
    if outcome.subtype == "success":
        item |= {"api_error_status": None, "result": outcome.text} | outcome.error
    elif outcome.subtype == "error_max_turns":
        item["errors"] = ["Reached maximum number of turns (1)"]
    else:
        item["errors"] = [f"Reached maximum budget (${written(call.budget_usd)})"]
    if not failed:
        item["structured_output"] = outcome.verdict
    return item


def printed(call: Call, answer: Answer | None, outcome: Outcome, milliseconds: int) -> str:
    """The whole array as one line."""
    request_id = answer.request_id if answer else None
    items = [init_item(call), *answer_items(call, outcome, request_id)]
    if answer and answer.status is not None:
        items.append(provider_item(call, answer))
    items.append(result_item(call, outcome, milliseconds))
    return written(items)


def main(arguments: list[str]) -> int:
    """Exit status 0 for a usable judgment, 1 for everything else.

    Spends: one call of the model. Writes: standard output, and standard error when refused."""
    if arguments == ["--version"]:
        print(f"{VERSION} (openai-judge)")
        return 0
    try:
        call = call_of(arguments, os.environ, sys.stdin.buffer.read(PROMPT_BYTES_MAX + 1))
    except Refused as refusal:
        # Begins like the refusal of an option by the Claude Code CLI: nothing was sent.
        print(f"error: unknown option {refusal}", file=sys.stderr)
        return 1
    began = time.monotonic()
    answer = None
    outcome = Outcome("Not logged in · OPENAI_API_KEY is not set, or is not a usable key")
    if call.key is not None:
        answer = exchange(call)
        outcome = outcome_of(call, answer)
    milliseconds = int((time.monotonic() - began) * 1000)
    line = printed(call, answer, outcome, milliseconds)
    if call.key is not None and call.key in line:
        # Some field of the reply, decoded, is or holds the key: say so and repeat none of it.
        outcome = Outcome("API Error: the response repeats the key")
        line = printed(call, None, outcome, milliseconds)
    print(line)
    return 0 if outcome.verdict is not None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
