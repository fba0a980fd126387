#!/usr/bin/env -S python3 -IS
"""A synthetic stand-in for the Claude Code CLI: no model, no network, no key, no cost.

It takes the argument vectors that eval_loop.py builds, reads the prompt on standard input and
prints one JSON array in the CLI's own format (init, assistant, for a judge the tool result,
result). Everything it prints says `synthetic`. It serves the demonstration and the tests; what
it answers proves nothing about any model.

A Skill run follows .claude/skills/NAME/SKILL.md under the current directory. Its task is a
small record, one `label: value unit` a line, with `subject:`, `source:` and, as often as
wanted, `compare LABEL with OTHER: value unit`; any other task is answered with its own text.
Four points decide how good the answer is (POINTS): what the Skill asks for is done, what it
asks against mostly is not, and where it is silent chance decides, with a probability of the
case's own. A judge call compares the output with the approved truth as far as the criterion
asks. Answers are fixed by (seed, Skill text, prompt), judgments by the prompt alone.

Environment variables
  OFFLINE_SEED        text that seeds every chance draw
  OFFLINE_SLIP        percent chance that one draw of a Skill run goes wrong (0)
  OFFLINE_JUDGE       honest, always-pass, always-fail or always-unknown (honest)
  OFFLINE_COST        cost of a Skill call, decimal text (0.01)
  OFFLINE_JUDGE_COST  cost of a judge call (0.002)
  OFFLINE_LOG         absolute path: one JSON line a call (callId purpose pid argv cwd
                      environment stdinSha256 stdin), appended in a single write
  OFFLINE_SCRIPT      absolute path: {"rules": [RULE, ...]}, the first that matches wins

A rule matches by "purpose" (run, judge), "contains" (in the prompt), "skillContains" (in the
SKILL.md) and "times" (only the first N matching calls; counted in SCRIPT.counts). Then
  what is printed   answer | answers | verdict (evidence, quote) | capture | stdout |
                    stdoutFile, or status: the envelope of an HTTP error (its text: answer);
                    none of them: as usual
  changes to it     model, version, skills, cost (null: unknown), patch (result), initPatch
  before printing   readStdin (false: only if the rule needs it), ignoreSigterm, appendSelf,
                    orphanSeconds, sleep, hang, floodBytes
  after printing    signal, closeStdout, sleepAfter, stderr, exit
A rule with "signal" or "floodBytes" and nothing to print prints no envelope.
"""
import json
import os
import sys

VERSION = "1.0.0"
VERSION_LINE = VERSION + " (synthetic stand-in)"

# Options of the two argument vectors, and whether a value follows.
OPTIONS = {
    "--bare": False, "-p": False, "--strict-mcp-config": False, "--verbose": False,
    "--no-session-persistence": False, "--exclude-dynamic-system-prompt-sections": False,
    "--disable-slash-commands": False, "--add-dir": True, "--setting-sources": True,
    "--settings": True, "--tools": True, "--disallowedTools": True,
    "--permission-prompts": True, "--session-id": True, "--max-turns": True,
    "--max-budget-usd": True, "--model": True, "--output-format": True,
    "--system-prompt": True, "--json-schema": True,
}

# status: (error word of the assistant item, error type, text)
HTTP_ERRORS = {
    400: ("unknown", "invalid_request_error", "API Error: 400 synthetic bad request"),
    401: ("authentication_failed", "authentication_error",
          "Failed to authenticate. API Error: 401 synthetic"),
    402: ("billing_error", "billing_error", "Credit balance is too low"),
    403: ("authentication_failed", "permission_error",
          "Failed to authenticate. API Error: 403 synthetic"),
    404: ("model_not_found", "not_found_error", "There's an issue with the selected model."),
    429: ("rate_limit", "rate_limit_error", "API Error: Request rejected (429) · synthetic"),
}
SERVER_ERROR = ("server_error", "overloaded_error", "API Error: server trouble, synthetic")

# What a Skill can say about an answer: (point, asks for it, asks against it).
POINTS = (
    ("unit", r"\b(keep|with|give|state|include|write)\b.*\bunits?\b",
     r"\b(omit|drop|without|leave (out|off)|no)\b.*\bunits?\b"),
    ("exact", r"\bunrounded\b|\bround\b|\bexactly as\b",
     r"(?<!not )(?<!never )\bround(ed|ing)?\b"),
    ("direction", r"\b(direction|larger or smaller|smaller or larger)\b",
     r"\balways\b.*\b(larger|smaller)\b"),
    ("source", r"\b(name|cite|give|state|end with)\b.*\bsources?\b",
     r"\b(omit|drop|without|leave (out|off)|no|not (name|cite))\b.*\bsources?\b"),
)

UNITS = ("thousand km", "million km", "10^24 kg", "km2", "km3", "km", "kg/m3", "g/cm3", "kg",
         "m/s2", "km/s", "m/s", "m", "days", "hours", "years", "people", "u", "k", "c", "%")
DIRECTIONS = {"smaller": -1, "shorter": -1, "lower": -1, "less": -1, "lighter": -1, "fewer": -1,
              "larger": 1, "longer": 1, "higher": 1, "greater": 1, "more": 1, "heavier": 1,
              "equal": 0}


class Call:
    """One invocation: its options, its prompt (read when first needed) and its Skill."""

    def __init__(self, argv):
        self.argv = argv
        self.options = read_options(argv)
        self.call_id = self.options.get("--session-id", "no-session")
        self.model = self.options.get("--model", "synthetic-model")
        self.purpose = "judge" if "--json-schema" in self.options else "run"
        self.stdin = None

    @property
    def prompt(self):
        """Standard input to its end, as text."""
        if self.stdin is None:
            self.stdin = sys.stdin.buffer.read()
        return self.stdin.decode("utf-8", "replace")

    def skills(self):
        """Names of the Skills under the current directory that the options expose."""
        exposed = self.options.get("--setting-sources") == "project" and \
            "--add-dir" in self.options
        try:
            names = sorted(os.listdir(".claude/skills")) if exposed else []
        except OSError:
            names = []
        return [name for name in names
                if os.path.isfile(".claude/skills/" + name + "/SKILL.md")]

    def skill_text(self):
        """Text of all exposed Skills (a project holds one)."""
        texts = []
        for name in self.skills():
            with open(".claude/skills/" + name + "/SKILL.md", "rb") as file:
                texts.append(file.read().decode("utf-8", "replace"))
        return "\n".join(texts)

    def identifier(self, prefix, length=20):
        """A made-up identifier that only this call has."""
        return prefix + digest(self.call_id, prefix).hex()[:length]


def read_options(argv):
    """Options as a dict; an unknown one ends the call as the real CLI does."""
    options, position = {}, 0
    while position < len(argv):
        name = argv[position]
        if name not in OPTIONS:
            sys.stderr.write("error: unknown option '" + name + "'\n")
            raise SystemExit(1)
        options[name] = argv[position + 1] if OPTIONS[name] else True
        position += 2 if OPTIONS[name] else 1
    return options


def digest(*parts):
    """SHA-256 of the parts, each ended by a zero byte."""
    import hashlib
    return hashlib.sha256(b"".join(part.encode("utf-8", "replace") + b"\0" for part in parts)
                          ).digest()


def chance(*parts):
    """A number in [0, 1) fixed by the parts."""
    return int.from_bytes(digest(*parts)[:8], "big") / 2 ** 64


# ---- Skill runs ----------------------------------------------------------------------------


def stances(skill):
    """What the Skill says about each point: asked, against or silent; the last word counts."""
    import re
    body = re.sub(r"(?s)\A---\n.*?\n---\n|<!--.*?-->", "", skill.lower())
    body = re.sub(r"(do not|don't|never) (omit|drop|leave out|leave off)", "keep", body)
    said = {point: "silent" for point, _, _ in POINTS}
    for sentence in re.split(r"[.;\n]+", body):
        for point, asked, against in POINTS:
            if re.search(against, sentence):
                said[point] = "against"
            elif re.search(asked, sentence):
                said[point] = "asked"
    return said


def draws(skill, prompt):
    """A function (point, which) -> whether the answer gets this point right."""
    said = stances(skill)
    seed = os.environ.get("OFFLINE_SEED", "")
    slip = float(os.environ.get("OFFLINE_SLIP", "0")) / 100
    odds = {"asked": lambda point: 1.0, "against": lambda point: 0.1,
            "silent": lambda point: 0.3 + 0.6 * chance("odds", prompt, point)}

    def right(point, which):
        draw = (seed, skill, "run", prompt, point, which)
        if chance("slip", *draw) < slip:
            return False
        return chance("draw", *draw) < odds[said[point]](point)

    return right


def record_of(text):
    """The record's lines as (label, value) pairs."""
    pairs = [line.partition(": ") for line in text.splitlines()]
    return [(label.strip(), value.strip()) for label, colon, value in pairs if colon]


def rounded(number):
    """The number at two significant digits, in plain notation."""
    return format(float(format(float(number), ".2g")), ".15g")


def figure(value, right, which):
    """A value as the answer gives it: unrounded and with its unit, or not."""
    number, _, unit = value.partition(" ")
    if not right("exact", which):
        number = rounded(number)
    return number + " " + unit if unit and right("unit", which) else number


def comparison(subject, label, other, own, value, right):
    """One sentence that compares two values, in the right direction or not."""
    sign = (float(own.split()[0]) > float(value.split()[0])) * 2 - 1
    sign = sign if right("direction", label + other) else -sign
    word = "larger" if sign > 0 else "smaller"
    return f"The {label} of {subject} is {word} than that of {other} ({value})."


def answer_record(text, right):
    """The answer to a record; to anything else, its own text."""
    pairs = record_of(text)
    record = dict(pairs)
    if "subject" not in record:
        return text.strip() or "Nothing was asked (synthetic)."
    subject, lines = record["subject"], []
    for label, value in pairs:
        if label.startswith("compare "):
            compared, _, other = label[len("compare "):].partition(" with ")
            lines.append(comparison(subject, compared, other, record[compared], value, right))
        elif label not in ("subject", "source"):
            lines.append(f"The {label} of {subject} is {figure(value, right, label)}.")
    if "source" in record and right("source", "source"):
        lines.append("Source: " + record["source"])
    return "\n".join(lines)


def skill_answer(call):
    """The answer of a Skill run."""
    name, _, text = call.prompt.partition(" ")
    skill = call.skill_text() if name[1:] in call.skills() else ""
    return answer_record(text, draws(skill, call.prompt))


# ---- Judging -------------------------------------------------------------------------------


def parts_of(prompt):
    """The five parts of a judge prompt by name; the first line ends with their tag."""
    tag = prompt.partition("\n")[0].split()[-1]
    parts = {}
    for name in ("criterion", "task-input", "approved-truth", "untrusted-output"):
        after = prompt.partition(f"[[begin {name} {tag}]]\n")[2]
        parts[name] = after.partition(f"\n[[end {name} {tag}]]")[0]
    return parts


def plain(text):
    """Text for comparing: compatible characters, no case, no thousands separators."""
    import re
    import unicodedata
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")
    return " ".join(re.sub(r"(?<=\d),(?=\d{3})", "", text).split())


def word_at(words, text):
    """The match of any of the words as a whole word, or None."""
    import re
    pattern = "|".join(re.escape(word) for word in words)
    return re.search(rf"(?<!\w)({pattern})(?!\w)", text)


def labelled(truth, label):
    """The value of the truth's line `label: value`, plain, or ''."""
    return plain(dict(record_of(truth.lower())).get(label, ""))


def figures_of(truth):
    """(label, number, unit) for every figure of the truth, but not of its other lines."""
    import re
    units = "|".join(re.escape(unit) for unit in UNITS)
    found = []
    for line in truth.splitlines():
        label = plain(line.partition(":")[0]) if ":" in line else ""
        if label not in ("comparison", "source", "subject"):
            found += [(label, number, unit) for number, unit in re.findall(
                rf"(?<![\w.])(-?\d+(?:\.\d+)?)(?!\w)\s*((?:{units})(?![\w/]))?", plain(line))]
    return found


def asked_labels(parts):
    """Labels of the task's record that the criterion names; none when it asks for all."""
    criterion = plain(parts["criterion"])
    labels = [plain(label) for label, _ in record_of(parts["task-input"])]
    return [label for label in labels
            if label not in ("subject", "source") and word_at([label], criterion)]


def figure_line(lines, label, number, unit):
    """The output line that states this figure, or None; a line about its label goes first."""
    import re
    pattern = rf"(?<![\d.])(?<!\d-){re.escape(number)}(?!\d|\.\d)\s*{re.escape(unit)}(?!\w)"
    about = [line for line in lines if label and label in plain(line)] or lines
    return next((line for line in about if re.search(pattern, plain(line))), None)


def judge_figures(parts, lines):
    """(verdict, evidence, quote): does the output state every figure of the truth?"""
    only = asked_labels(parts)
    wanted = [row for row in figures_of(parts["approved-truth"]) if not only or row[0] in only]
    if not wanted:
        return "unknown", "The approved truth holds no figure that the criterion asks for.", ""
    stated = ""
    for label, number, unit in wanted:
        line = figure_line(lines, label, number, unit)
        if line is None:
            about = next((line for line in lines if label and label in plain(line)), "")
            text = f"The truth gives {label or 'a figure'} as {number} {unit}".rstrip()
            return "fail", text + "; the output does not state it so.", about
        stated = stated or line
    return "pass", f"All {len(wanted)} figures of the truth are stated so.", stated


def direction_of(sentence, other):
    """-1, 0 or 1 as the sentence compares its subject with the other body, or None."""
    word = word_at(DIRECTIONS, sentence)
    name = word_at([other], sentence)
    if word is None or name is None:
        return None
    return DIRECTIONS[word.group()] * (-1 if name.start() < word.start() else 1)


def judge_comparison(parts, lines):
    """(verdict, evidence, quote): is the comparison stated in the truth's direction?"""
    truth = labelled(parts["approved-truth"], "comparison")
    other = truth.rpartition(" of ")[2].rstrip(".")
    wanted = direction_of(truth, other) if other else None
    if wanted is None:
        return "unknown", "The approved truth holds no comparison.", ""
    stated = [(direction_of(plain(line), other), line) for line in lines]
    stated = [(direction, line) for direction, line in stated if direction is not None]
    if not stated:
        return "fail", "The output states no comparison with " + other + ".", ""
    wrong = [line for direction, line in stated if direction != wanted]
    if wrong:
        return "fail", f"The truth says: {truth}; the output says otherwise.", wrong[0]
    return "pass", f"The truth says: {truth}; so does the output.", stated[0][1]


def judge_source(parts, lines):
    """(verdict, evidence, quote): does the output name the truth's source?"""
    source = labelled(parts["approved-truth"], "source")
    if not source:
        return "unknown", "The approved truth names no source.", ""
    named = [line for line in lines if source in plain(line)]
    if not named:
        return "fail", "The output does not name the source " + source + ".", ""
    return "pass", "The output names the source of the truth.", named[0]


def judge_statements(parts, lines):
    """(verdict, evidence, quote): does every line of the truth occur in the output?"""
    if figures_of(parts["approved-truth"]):
        return judge_figures(parts, lines)
    wanted = [plain(line) for line in parts["approved-truth"].splitlines() if line.strip()]
    if not wanted:
        return "unknown", "The approved truth is empty.", ""
    output = plain(parts["untrusted-output"])
    missing = [line for line in wanted if line.rstrip(".") not in output]
    if missing:
        return "fail", "The output lacks: " + missing[0], ""
    return "pass", "The output holds every statement of the truth.", lines[0] if lines else ""


ASPECTS = (
    (("figure", "unit", "value", "number", "round"), judge_figures),
    (("compar", "direction", "larger", "smaller"), judge_comparison),
    (("source",), judge_source),
)


def honest_judgment(parts, lines):
    """The worst judgment over the aspects that the criterion asks about."""
    criterion = plain(parts["criterion"])
    judges = [judge for words, judge in ASPECTS if any(word in criterion for word in words)]
    found = [judge(parts, lines) for judge in judges or [judge_statements]]
    return min(found, key=lambda row: ("fail", "unknown", "pass").index(row[0]))


def judgment(call):
    """(verdict, evidence, quote) in the mode that OFFLINE_JUDGE names."""
    mode = os.environ.get("OFFLINE_JUDGE", "honest")
    parts = parts_of(call.prompt)
    lines = [line.strip() for line in parts["untrusted-output"].splitlines() if line.strip()]
    if mode == "honest":
        return honest_judgment(parts, lines)
    verdict = mode.rpartition("-")[2]
    quote = lines[0] if lines and verdict == "pass" else ""
    return verdict, f"This synthetic judge says {verdict} to everything.", quote


# ---- Envelopes -----------------------------------------------------------------------------


def init_item(call, rule):
    """The first item: what the CLI says of itself."""
    item = {"type": "system", "subtype": "init", "synthetic": True, "cwd": os.getcwd(),
            "session_id": call.call_id, "tools": [], "mcp_servers": [], "model": call.model,
            "permissionMode": "default", "apiKeySource": "none",
            "claude_code_version": rule.get("version", VERSION),
            "skills": rule.get("skills", call.skills()), "plugins": [],
            "uuid": call.identifier("uuid-init-")}
    if call.purpose == "judge":
        item["tools"] = ["StructuredOutput"]
    item.update(rule.get("initPatch", {}))
    return item


def message_item(call, block, model, **extra):
    """An assistant item with one content block."""
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0,
             "cache_read_input_tokens": 0, "output_tokens": 1, "service_tier": "synthetic"}
    message = {"id": call.identifier("msg_synthetic_"), "type": "message", "role": "assistant",
               "model": model, "content": [block], "stop_reason": None, "usage": usage}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None,
            "session_id": call.call_id, "request_id": call.identifier("req_synthetic_"),
            **extra}


def result_item(call, rule, **fields):
    """The last item; the cost stands in it as a mark that write_envelope replaces."""
    basis = "unknown" if rule.get("cost", "") is None else "list"
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 0,
             "cache_read_input_tokens": 0, "output_tokens": 20,
             "output_tokens_details": {"thinking_tokens": 0}, "service_tier": "synthetic"}
    model_usage = {"inputTokens": 100, "outputTokens": 20, "cacheReadInputTokens": 0,
                   "cacheCreationInputTokens": 0, "costUSD": "@cost@", "thinkingTokens": 0,
                   "canonicalModel": call.model, "provider": "synthetic", "costBasis": basis}
    item = {"type": "result", "subtype": "success", "is_error": False, "synthetic": True,
            "session_id": call.call_id, "num_turns": 1, "stop_reason": "end_turn",
            "terminal_reason": "completed", "total_cost_usd": "@cost@", "usage": usage,
            "modelUsage": {call.model: model_usage}, "permission_denials": [],
            "api_error_status": None, "safety_stops": 0, "duration_ms": 10,
            "duration_api_ms": 5, "uuid": call.identifier("uuid-result-")}
    item.update(fields)
    item.update(rule.get("patch", {}))
    return item


def text_items(call, rule, texts):
    """The items of a textual answer; from a judge, of a call that never used its tool."""
    model = rule.get("model", call.model)
    items = [message_item(call, {"type": "text", "text": text}, model) for text in texts]
    if call.purpose == "judge":
        fields = {"subtype": "error_max_turns", "is_error": True, "num_turns": 2,
                  "terminal_reason": "max_turns",
                  "errors": ["Reached maximum number of turns (1)"]}
        return items + [result_item(call, rule, **fields)], 1
    return items + [result_item(call, rule, result=texts[-1] if texts else "")], 0


def judgment_items(call, rule, verdict, evidence, quote):
    """The items of a judgment given through the tool."""
    reply = {"evidence": evidence, "quote": quote, "verdict": verdict}
    tool = call.identifier("toolu_synthetic_")
    said = "Structured output provided successfully"
    used = {"type": "tool_use", "id": tool, "name": "StructuredOutput", "input": reply}
    answered = {"tool_use_id": tool, "type": "tool_result", "content": said}
    items = [message_item(call, used, rule.get("model", call.model)),
             {"type": "user", "message": {"role": "user", "content": [answered]},
              "parent_tool_use_id": None, "session_id": call.call_id, "tool_use_result": said}]
    fields = {"num_turns": 2, "stop_reason": "tool_use", "structured_output": reply,
              "result": json.dumps(reply, separators=(",", ":"))}
    return items + [result_item(call, rule, **fields)], 0


def error_items(call, rule):
    """The items of an HTTP error: nothing was served and nothing cost."""
    status = rule["status"]
    word, kind, text = HTTP_ERRORS.get(status, SERVER_ERROR)
    text = rule.get("answer", text)
    extra = {"error": word, "is_api_error_message": True, "api_error_status": status,
             "api_error_type": kind}
    item = message_item(call, {"type": "text", "text": text}, "<synthetic>", **extra)
    item["message"]["usage"] = dict.fromkeys(item["message"]["usage"], 0)
    fields = {"is_error": True, "terminal_reason": "api_error", "stop_reason": "stop_sequence",
              "api_error_status": status, "api_error_type": kind, "result": text,
              "total_cost_usd": 0, "modelUsage": {},
              "usage": {"input_tokens": 0, "cache_creation_input_tokens": 0,
                        "cache_read_input_tokens": 0, "output_tokens": 0}}
    return [item, result_item(call, rule, **fields)], 1


def answer_items(call, rule):
    """(items after init, exit status) of what the rule says or the stand-in does by itself."""
    if "status" in rule:
        return error_items(call, rule)
    if "answer" in rule or "answers" in rule:
        return text_items(call, rule, rule.get("answers", [rule.get("answer")]))
    if "verdict" in rule:
        quote = rule.get("quote")
        if quote is None:
            quote = parts_of(call.prompt)["untrusted-output"].strip().partition("\n")[0]
        return judgment_items(call, rule, rule["verdict"], rule.get("evidence", "Scripted."),
                              quote)
    if call.purpose == "judge":
        return judgment_items(call, rule, *judgment(call))
    return text_items(call, rule, [skill_answer(call)])


def envelope(call, rule):
    """(bytes of the whole output, exit status)."""
    items, status = answer_items(call, rule)
    name, default = {"run": ("OFFLINE_COST", "0.01"),
                     "judge": ("OFFLINE_JUDGE_COST", "0.002")}[call.purpose]
    cost = rule.get("cost") or os.environ.get(name, default)
    text = json.dumps([init_item(call, rule), *items], separators=(",", ":"))
    return text.replace('"@cost@"', cost).encode("ascii") + b"\n", status


# ---- Scripted behaviour --------------------------------------------------------------------


def takes_turn(path, index, times):
    """Whether this call is among the first `times` that matched; counted under a lock."""
    import fcntl
    with open(path + ".counts", "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        counts = json.loads(file.read() or "{}")
        counts[str(index)] = counts.get(str(index), 0) + 1
        file.truncate(0)
        file.write(json.dumps(counts))
        file.flush()
        return counts[str(index)] <= times


def matches(rule, call):
    """Whether a rule's conditions, but for its count, hold."""
    if rule.get("purpose", call.purpose) != call.purpose:
        return False
    if "skillContains" in rule and rule["skillContains"] not in call.skill_text():
        return False
    return "contains" not in rule or rule["contains"] in call.prompt


def find_rule(call):
    """The first rule of the script that matches, or an empty one."""
    path = os.environ.get("OFFLINE_SCRIPT")
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        rules = json.load(file)["rules"]
    for index, rule in enumerate(rules):
        if matches(rule, call) and (
                "times" not in rule or takes_turn(path, index, rule["times"])):
            return rule
    return {}


def output_of(call, rule):
    """(bytes to print, exit status) of a call."""
    if "stdout" in rule:
        return rule["stdout"].encode("utf-8", "surrogatepass"), 0
    path = rule.get("capture") or rule.get("stdoutFile")
    if path:
        with open(path, "rb") as file:
            raw = file.read()
        call_id = call.call_id.encode() if "capture" in rule else b"CALL-ID"
        return raw.replace(b"CALL-ID", call_id), 0
    says = {"answer", "answers", "verdict", "status"} & set(rule)
    if not says and {"signal", "floodBytes"} & set(rule):
        return b"", 0
    return envelope(call, rule)


def write_all(data):
    """Write bytes to standard output without a buffer of our own."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]


def leave_orphan(seconds):
    """Fork a child that holds standard output for a while."""
    import time
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)


def hang():
    """Wait for ever."""
    import signal
    while True:
        signal.pause()


def before_printing(rule):
    """What a rule does before its output."""
    import signal
    import time
    if rule.get("ignoreSigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "appendSelf" in rule:
        with open(os.path.abspath(sys.argv[0]), "a", encoding="utf-8") as file:
            file.write(rule["appendSelf"])
    if "orphanSeconds" in rule:
        leave_orphan(rule["orphanSeconds"])
    time.sleep(rule.get("sleep", 0))
    if rule.get("hang"):
        hang()
    left = rule.get("floodBytes", 0)
    while left > 0:
        write_all(b"x" * min(left, 1 << 20))
        left -= 1 << 20


def after_printing(rule):
    """What a rule does after its output."""
    import time
    if "signal" in rule:
        os.kill(os.getpid(), rule["signal"])
    if rule.get("closeStdout"):
        os.close(1)
    os.write(2, rule.get("stderr", "").encode())
    time.sleep(rule.get("sleepAfter", 0))


def log_call(call):
    """Append one line about this call to the log, if one is named."""
    path = os.environ.get("OFFLINE_LOG")
    if not path:
        return
    import hashlib
    read = call.stdin is not None
    line = {"callId": call.call_id, "purpose": call.purpose, "pid": os.getpid(),
            "argv": call.argv, "cwd": os.getcwd(), "environment": sorted(os.environ),
            "stdinSha256": hashlib.sha256(call.stdin).hexdigest() if read else None,
            "stdin": call.prompt if read else None}
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, json.dumps(line).encode() + b"\n")
    os.close(descriptor)


def main(argv):
    """Exit status of one call."""
    if argv == ["--version"]:
        print(VERSION_LINE)
        return 0
    call = Call(argv)
    rule = find_rule(call)
    if rule.get("readStdin", True) and not call.prompt.strip():
        sys.stderr.write("Error: Input must be provided through stdin (synthetic)\n")
        return 1
    log_call(call)
    if not rule:
        output, status = envelope(call, rule)
        write_all(output)
        return status
    output, status = output_of(call, rule)
    before_printing(rule)
    write_all(output)
    after_printing(rule)
    return rule.get("exit", status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
