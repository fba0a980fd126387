"""A scripted Messages API on loopback, so that the real CLI can be run without key or money.

    with MockApi(replies=[{"text": "first"}, {"text": "second"}]) as api:
        ...  start the CLI with ANTHROPIC_BASE_URL=api.url ...
        api.posts()     # every POST /v1/messages, in order of arrival

What one request is answered is decided by rules, because calls may overlap: a rule is a pair
(text, replies), or (texts, replies); the first whose texts all occur in the request's prompt
wins, and the requests of one session (of one call of the CLI) take that rule's replies in turn,
the last one for ever. Without a matching rule the requests take `replies` in order of arrival,
then `default`.

A reply is a dict with one of these:

    text          the assistant's text, stop reason end_turn
    content       a list of content blocks (text, tool_use, thinking) as they are
    tool, input   one call of the named tool, stop reason tool_use
    structured    a call of StructuredOutput where the request offers it, else its JSON as text
    status        an HTTP error: with error_type, message, headers, all optional
    raw           a body as it is: with content_type and status, both optional
    close         True: the connection is dropped without an answer
    hang          "accept": never answers; "headers": only these; "partial": half a text

and, where an answer is given: stop_reason, model, usage (merged), id, stream_error (the stream
ends with this error in place of its end), after (a threading.Event to wait for first).

Requests are recorded before they are answered, with keys and bearer tokens blanked.
"""
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLANKED = {"x-api-key", "authorization", "proxy-authorization"}
DEFAULT_REPLY = {"text": "MOCK-REPLY"}
USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
         "output_tokens": 20, "service_tier": "standard"}


def prompt_of(body: dict) -> str:
    """The text of all user blocks of a request body, joined by line feeds."""
    texts = []
    for message in body.get("messages", []):
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        texts += [block["text"] for block in content if block.get("type") == "text"]
    return "\n".join(texts)


def holds(texts, prompt: str) -> bool:
    """Whether a prompt holds a text, or every one of several."""
    return all(text in prompt for text in ((texts,) if isinstance(texts, str) else texts))


def session_of(record: dict) -> str:
    """The session id that the CLI sent with a recorded request ("" when it sent none)."""
    headers = {name.lower(): value for name, value in record["headers"].items()}
    return headers.get("x-claude-code-session-id", "")


class MockApi:
    """The server: a context manager that listens on 127.0.0.1, on a free port unless given."""

    def __init__(self, replies=(), default=None, rules=(), port=0):
        self.replies, self.default = list(replies), default or DEFAULT_REPLY
        self.rules = list(rules)
        self.requests: list[dict] = []
        self.served: dict[tuple, int] = {}
        self.changed = threading.Condition()
        self.stopping = threading.Event()
        handler = type("Handler", (_Handler,), {"api": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None    # clients that vanish are part of a test
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def posts(self) -> list[dict]:
        """The recorded model requests so far (POST /v1/messages), oldest first."""
        with self.changed:
            return [record for record in self.requests if is_model_request(record)]

    def bodies(self) -> list[dict]:
        """The JSON bodies of the recorded model requests, oldest first."""
        return [record["body"] for record in self.posts()]

    def clear(self) -> None:
        """Forgets recorded requests and how far each rule has been used."""
        with self.changed:
            self.requests.clear()
            self.served.clear()

    def wait_for(self, *texts: str, count: int = 1, seconds: float = 60) -> list[dict]:
        """The model requests whose prompt holds all `texts`, once there are `count` of them.

        Raises AssertionError when they have not arrived in `seconds`.
        """
        found: list[dict] = []

        def arrived() -> bool:
            found[:] = [record for record in self.requests if is_model_request(record)
                        and holds(texts, prompt_of(record["body"]))]
            return len(found) >= count

        with self.changed:
            came = self.changed.wait_for(arrived, seconds)
        assert came, f"{len(found)} of {count} requests with {texts!r} after {seconds} s"
        return found

    def record(self, record: dict) -> None:
        with self.changed:
            self.requests.append(record)
            self.changed.notify_all()

    def reply_for(self, record: dict) -> dict:
        """The scripted reply to one recorded request, counting it as served."""
        prompt = prompt_of(record["body"])
        with self.changed:
            for texts, replies in self.rules:
                if holds(texts, prompt):
                    key = (str(texts), session_of(record))
                    number = self.served.get(key, 0)
                    self.served[key] = number + 1
                    return replies[min(number, len(replies) - 1)]
            return self.replies.pop(0) if self.replies else self.default


def is_model_request(record: dict) -> bool:
    """Whether a recorded request asks for a model's answer."""
    return record["method"] == "POST" and record["path"].split("?")[0] == "/v1/messages"


def blocks_of(reply: dict, body: dict) -> tuple[list, str]:
    """The content blocks and the stop reason that a reply stands for."""
    if "content" in reply:
        return reply["content"], "end_turn"
    name, given = reply.get("tool"), reply.get("input", {})
    if "structured" in reply:
        offered = [tool.get("name") for tool in body.get("tools") or []]
        if "StructuredOutput" not in offered:
            return [{"type": "text", "text": json.dumps(reply["structured"])}], "end_turn"
        name, given = "StructuredOutput", reply["structured"]
    if name is not None:
        identity = "toolu_" + uuid.uuid4().hex[:20]
        return [{"type": "tool_use", "id": identity, "name": name, "input": given}], "tool_use"
    return [{"type": "text", "text": reply.get("text", "MOCK-REPLY")}], "end_turn"


def message_of(reply: dict, body: dict) -> dict:
    """The complete message that a reply stands for, as one answer without a stream."""
    blocks, stop_reason = blocks_of(reply, body)
    return {"id": reply.get("id") or "msg_" + uuid.uuid4().hex[:20], "type": "message",
            "role": "assistant", "model": reply.get("model") or body.get("model"),
            "content": blocks, "stop_reason": reply.get("stop_reason") or stop_reason,
            "stop_sequence": None, "usage": {**USAGE, **reply.get("usage", {})}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: MockApi

    def log_message(self, *_):
        pass

    def do_POST(self):
        raw = self.read_body()
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {"_raw": raw.decode("utf-8", "replace")}
        headers = {name: "BLANKED" if name.lower() in BLANKED else value
                   for name, value in self.headers.items()}
        record = {"method": self.command, "path": self.path, "headers": headers,
                  "bytes": len(raw), "body": body, "raw": raw.decode("utf-8", "replace")}
        self.api.record(record)
        if not is_model_request(record):
            error = {"type": "not_found_error", "message": "mock: no such path"}
            return self.send_whole(404, {"type": "error", "error": error})
        try:
            return self.answer(self.api.reply_for(record), body)
        except (BrokenPipeError, ConnectionResetError):
            return None

    do_GET = do_PUT = do_HEAD = do_CONNECT = do_OPTIONS = do_POST

    def read_body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            parts.append(self.rfile.read(size))
            self.rfile.readline()
            if not size:
                return b"".join(parts)

    def send_whole(self, status: int, payload, content_type="application/json", headers=None):
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("request-id", "req_" + uuid.uuid4().hex[:20])
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def hang(self):
        """Keeps the connection open until the server stops."""
        self.wfile.flush()
        self.api.stopping.wait()
        self.close_connection = True

    def answer(self, reply: dict, body: dict):
        if "after" in reply:
            reply["after"].wait(120)
        if reply.get("hang") == "accept":
            return self.hang()
        if reply.get("close"):
            self.close_connection = True
            return self.connection.close()
        if "raw" in reply:
            return self.send_whole(reply.get("status", 200), reply["raw"].encode(),
                                   reply.get("content_type", "application/json"))
        if reply.get("status", 200) >= 400:
            error = {"type": reply.get("error_type", "api_error"),
                     "message": reply.get("message", "mock")}
            payload = {"type": "error", "error": error, "request_id": "req_mock"}
            return self.send_whole(reply["status"], payload, headers=reply.get("headers"))
        message = message_of(reply, body)
        if not body.get("stream"):
            return self.send_whole(200, message)
        return self.stream(reply, message)

    def stream(self, reply: dict, message: dict):
        """Sends a message as server-sent events, as far as the reply lets it come."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("request-id", "req_" + uuid.uuid4().hex[:20])
        self.end_headers()
        if reply.get("hang") == "headers":
            return self.hang()
        usage = {**message["usage"], "output_tokens": 1}
        self.event("message_start", message={**message, "content": [], "stop_reason": None,
                                             "usage": usage})
        for index, block in enumerate(message["content"]):
            empty, deltas = in_parts(block)
            self.event("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                if reply.get("hang") == "partial":
                    delta = {**delta, "text": delta["text"][:5]}
                self.event("content_block_delta", index=index, delta=delta)
                if reply.get("hang") == "partial":
                    return self.hang()
            self.event("content_block_stop", index=index)
        if "stream_error" in reply:
            self.event("error", error=reply["stream_error"])
        else:
            delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
            self.event("message_delta", delta=delta, usage=message["usage"])
            self.event("message_stop")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def event(self, name: str, **payload):
        text = f"event: {name}\ndata: {json.dumps({'type': name, **payload})}\n\n"
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def in_parts(block: dict) -> tuple[dict, list]:
    """A content block as its empty start and the deltas that fill it."""
    if block["type"] == "tool_use":
        filled = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        return {**block, "input": {}}, [filled]
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": block["thinking"]},
                  {"type": "signature_delta", "signature": block.get("signature", "sig")}]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    delta = {"type": "text_delta", "text": block["text"]}
    return {"type": "text", "text": ""}, [delta] if block["text"] else []
