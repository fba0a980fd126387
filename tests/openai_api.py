"""A scripted Responses API on loopback: it plays the provider for the OpenAI judge's tests.

    with ResponsesApi() as api:
        api.reply = verdict_reply("pass")      # or a function: request -> reply
        ... OPENAI_BASE_URL = api.url ...
        api.requests                           # what arrived, in order

A reply is a dictionary, every key optional: `status` (200), `document` (sent as JSON), `raw`
(bytes sent as they are, in place of the document), `headers` (added), `drop` (True: the
connection is closed without an answer), `short` (bytes that are promised and not sent), `hold`
(True: nothing is answered until the server stops). No request ever leaves this machine.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "gpt-judge-2026-06-01"


def response(text: str = "", **fields) -> dict:
    """Return a response object whose one message says `text`; `fields` replace its own."""
    return {
        "id": "resp_1f", "object": "response", "created_at": 1790000000, "status": "completed",
        "background": False, "error": None, "incomplete_details": None, "instructions": None,
        "model": MODEL,
        "output": [
            {"id": "rs_1f", "type": "reasoning", "summary": []},
            {"id": "msg_1f", "type": "message", "status": "completed", "role": "assistant",
             "content": [text_part(text)]}],
        "service_tier": "default", "store": False, "tools": [], "truncation": "disabled",
        "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 8},
                  "total_tokens": 120},
        "metadata": {}, **fields}


def text_part(text: str) -> dict:
    """Return one text of a message."""
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def message(*parts: dict, status: str = "completed") -> dict:
    """Return an assistant's message of these parts."""
    return {"id": "msg_1f", "type": "message", "status": status, "role": "assistant",
            "content": list(parts)}


def verdict_text(verdict: str, evidence: str = "The source says so.", quote: str = "q") -> str:
    """Return the JSON text of a verdict."""
    return json.dumps({"evidence": evidence, "quote": quote, "verdict": verdict})


def verdict_reply(verdict: str, evidence: str = "The source says so.", quote: str = "q",
                  **fields) -> dict:
    """Return a reply with a verdict; `fields` replace fields of the response object."""
    return {"document": response(verdict_text(verdict, evidence, quote), **fields)}


def error_reply(status: int, code: str | None = None, kind: str = "invalid_request_error",
                words: str = "synthetic words", **more) -> dict:
    """Return a reply with an HTTP error in the provider's form."""
    return {"status": status, "document": {"error": {
        "message": words, "type": kind, "param": None, "code": code}}, **more}


class ResponsesApi:
    """The server. `requests` holds method, path, headers, raw body and parsed body of each."""

    def __init__(self):
        self.reply = {}
        self.requests: list[dict] = []
        self.arrived, self.stopping = threading.Event(), threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0),
                                          type("Handler", (_Handler,), {"api": self}))
        self.server.handle_error = lambda *_: None     # clients that vanish are part of a test
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ResponsesApi:
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ResponsesApi

    def log_message(self, *_) -> None:
        """Write no log."""

    def _answer(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = {"method": self.command, "path": self.path, "raw": raw,
                   "headers": dict(self.headers.items()),
                   "body": json.loads(raw) if raw else None}
        self.api.requests.append(request)
        self.api.arrived.set()
        reply = self.api.reply(request) if callable(self.api.reply) else self.api.reply
        self.close_connection = True
        if reply.get("hold"):
            self.api.stopping.wait()
            return
        if reply.get("drop"):
            return
        data = reply["raw"] if "raw" in reply else json.dumps(reply["document"]).encode()
        self.send_response(reply.get("status", 200))
        headers = {"Content-Type": "application/json", "x-request-id": "req_1f",
                   "Content-Length": str(len(data) + reply.get("short", 0)),
                   **reply.get("headers", {})}
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = _answer
