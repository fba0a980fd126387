"""What a CLI could print instead of an answer: thousands of seeded mutations of real outputs.

None of them may raise, none may be taken for an answer whose signs are not all there, and no
byte may be lost. What an answer is, is worked out here a second time from the contract
(`meaning`), with nothing of the program's own reading.
"""

import json
import random
import sys

import pytest

import mutations
from builder import POOR_MARK, PROGRAM, QUOTE, Experiment, sha256
from mutations import BYTE_MUTATORS, STRUCTURE_MUTATORS, Quick
from real_cli import (CAPTURED_SKILL, FLOOR, FUTURE_MODEL, JUDGED_OUTPUT, MODEL, PINNED,
                      captured)
from test_captures import ALL, CALL_ID, interpreted

sys.path.insert(0, str(PROGRAM.parent))
import eval_loop  # noqa: E402  (the program is no installed module)

NAMES = [(name, version) for name in ALL for version in (PINNED, FLOOR)
         if captured(version, name)[0].strip()]
PER_CAPTURE = 55                   # mutations of each captured output; 140 captures
FIELDS = {"run": {"output", "cliResult"}, "judge": {"verdict", "evidence", "quote"}}
COMMON = {"status", "reason", "costUsd", "usage", "models", "messageIds", "requestIds"}
STATUSES = {"ok", "error", "unserved"}


def output_of(name: str, version: str) -> bytes:
    """A captured output as the program would have got it."""
    return captured(version, name)[0].replace(b"CALL-ID", CALL_ID.encode())


# ---- what an answer is, from the contract --------------------------------------------------


def meaning(name: str, version: str, raw: bytes, exit_status: int):
    """The output of a Skill, or the judge's three texts; None where any sign is missing."""
    try:
        items = mutations.strict(raw)
        answer = signs_of(items, name, version)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return answer if exit_status == 0 else None


def signs_of(items: list, name: str, version: str):
    """As `meaning`, of a parsed array; raises where it has another form."""
    init, result = items[0], items[-1]
    messages = [item["message"] for item in items if item["type"] == "assistant"]
    blocks = [block for message in messages for block in message["content"]]
    judge = name.startswith("judge-")
    model = FUTURE_MODEL if ALL[name].situation == "future-model" else MODEL
    common = (
        [item["type"] for item in items].count("result") == 1 and result["type"] == "result"
        and result["session_id"] == CALL_ID and result["subtype"] == "success"
        and result["is_error"] is False and result["terminal_reason"] == "completed"
        and set(result["modelUsage"]) == {model}
        and {message["model"] for message in messages} == {model}
        and len({message["id"] for message in messages}) == 1
        and (init["type"], init["subtype"]) == ("system", "init")
        and init["tools"] == (["StructuredOutput"] if judge else [])
        and init["claude_code_version"] == version
        and not any(item.get("subtype") == "api_retry" for item in items))
    if not common:
        return None
    if judge:
        reply = result["structured_output"]
        calls = [block for block in blocks if block["type"] == "tool_use"]
        good = (result["num_turns"] == 2 and result["stop_reason"] == "tool_use"
                and len(calls) == 1 and calls[0]["input"] == reply
                and calls[0]["name"] == "StructuredOutput"
                and sorted(reply) == ["evidence", "quote", "verdict"]
                and all(isinstance(value, str) for value in reply.values())
                and reply["verdict"] in ("pass", "fail", "unknown")
                and reply["evidence"].strip()
                and (reply["quote"].strip() or reply["verdict"] != "pass"))
        return (reply["verdict"], reply["evidence"], reply["quote"]) if good else None
    skill = "nosuch" if ALL[name].situation == "other-skill" else CAPTURED_SKILL
    loaded = skill in init["skills"] or init["slash_commands"][0] == skill
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    good = (loaded and result["num_turns"] == 1 and result["stop_reason"] == "end_turn"
            and (text.strip() or result["result"].strip()))
    return text if good else None


def test_second_reading_agrees_with_the_captures():
    """The oracle can say both yes and no, and says yes exactly to the whole answers."""
    for name, version in NAMES:
        said = meaning(name, version, output_of(name, version),
                       captured(version, name)[1]["exitCode"])
        assert (said is not None) == (ALL[name].status == "ok"), name
        if name.startswith("skill-") and said is not None:
            assert said == ALL[name].output


# ---- pure interpretation -------------------------------------------------------------------


def mutations_of(name: str, version: str, count: int):
    """(what was done, bytes): seeded mutations of one captured output."""
    raw = output_of(name, version)
    document = mutations.read(raw)
    dice = random.Random(f"{name} {version}")
    for _ in range(count):
        if dice.random() < 0.4:
            what = dice.choice(list(BYTE_MUTATORS))
            yield what, BYTE_MUTATORS[what](raw, dice)
        else:
            what = dice.choice(list(STRUCTURE_MUTATORS))
            changed, where = mutations.mutated(document, what, dice)
            yield f"{what} at {where}", changed
    lines = b"\n".join(mutations.write(item).encode() for item in document)
    yield "a line each", lines
    yield "a line each, with a heading", b"Loading...\n" + lines + b"\n"
    yield "the items without the list", raw.strip()[1:-1]
    yield "the items backwards", mutations.write(document[::-1]).encode()
    yield "only the result", mutations.write(document[-1]).encode()
    yield "the result twice", mutations.write([*document, document[-1]]).encode()
    yield "without init", mutations.write(document[1:]).encode()
    yield "without the messages", mutations.write([document[0], document[-1]]).encode()
    yield "another call's", raw.replace(CALL_ID.encode(), CALL_ID[::-1].encode())
    yield "no call's", raw.replace(CALL_ID.encode(), b"")


def judgement_of(said: dict, name: str):
    return said["output"] if name.startswith("skill-") else tuple(
        said[field] for field in ("verdict", "evidence", "quote"))


def test_no_mutated_output_raises_or_passes_for_an_answer_that_it_is_not():
    wrong, count, answers = [], 0, 0
    for name, version in NAMES:
        exit_status = captured(version, name)[1]["exitCode"]
        for what, raw in mutations_of(name, version, PER_CAPTURE):
            count += 1
            try:
                said = interpreted(name, version, raw)
                eval_loop.parse_json(eval_loop.canonical(said))
            except Exception as error:                  # noqa: BLE001 (any of them is a defect)
                wrong.append(f"{name} {version}: {what}: raised {error!r:.200}")
                continue
            kind = "judge" if name.startswith("judge-") else "run"
            if set(said) != FIELDS[kind] | COMMON or said["status"] not in STATUSES:
                wrong.append(f"{name}: {what}: {sorted(said)}")
            if said["status"] == "ok":
                answers += 1
                meant = meaning(name, version, raw, exit_status)
                if ALL[name].status != "ok" or meant is None \
                        or judgement_of(said, name) != meant:
                    wrong.append(f"{name} {version}: {what}: ok, {meant!r:.80}")
    mutations.report("answers-mutated", count)
    mutations.report("answers-mutated-and-still-whole", answers)
    assert count >= 8_000 and 100 < answers < count / 3
    assert not wrong, f"{len(wrong)} of them:\n" + "\n".join(wrong[:25])


def test_cost_of_a_mutated_output_is_what_it_says_or_unknown():
    """A cost is a plain decimal above 0 that stands in the output, 0 for an unserved call."""
    count = 0
    for name, version in NAMES:
        for what, raw in mutations_of(name, version, 15):
            said = interpreted(name, version, raw)
            if said["status"] == "unserved":
                assert said["costUsd"] == "0", (name, what)
            elif said["costUsd"] != "unknown":
                result = mutations.strict(raw)[-1]
                assert float(said["costUsd"]) == float(result["total_cost_usd"]) > 0
                assert all(use["costBasis"] == "list" for use in result["modelUsage"].values())
                count += 1
    assert count > 200


@pytest.mark.parametrize("ended", ["timeout", "suspended", "killed", "too-much-output",
                                   "interrupted", "not-started"])
def test_no_mutated_output_of_an_ended_call_raises_or_becomes_an_answer(ended):
    for name, version in NAMES[::4]:
        whole = meaning(name, version, output_of(name, version), 0)
        for what, raw in mutations_of(name, version, 20):
            said = interpreted(name, version, raw, ended=ended, exitStatus=None)
            if said["status"] == "ok":
                assert ended == "interrupted" and whole is not None, (name, what)
                assert judgement_of(said, name) == meaning(name, version, raw, 0)


@pytest.mark.parametrize("exit_status", [1, 2, 126, 127, 129, 137, 143, 255, -6, -9, -11])
def test_no_failed_exit_leaves_an_answer(exit_status):
    for name, version in NAMES:
        said = interpreted(name, version, output_of(name, version), exitStatus=exit_status)
        assert said["status"] != "ok", name


@pytest.mark.parametrize("depth", [100, 190, 201, 500, 960, 985, 990, 1_000, 10_000, 100_000])
@pytest.mark.parametrize("opened, closed", [("[", "]"), ('{"a":', "}"), ("[", ",{}]")])
def test_nesting_of_any_depth_is_read_or_called_malformed(depth, opened, closed):
    deep = (opened * depth + "0" + closed * depth).encode()
    for name in ("skill-success", "judge-pass"):
        raw = output_of(name, PINNED)
        for place in (b'"permission_denials":[]', b'"tools":[', b'"num_turns":1'):
            changed = raw.replace(place, place.split(b":")[0] + b":" + deep + b',"_":['
                                  if place.endswith(b":[") else
                                  place.split(b":")[0] + b":" + deep)
            said = interpreted(name, PINNED, changed)
            assert said["status"] == "error" or changed == raw
        said = interpreted(name, PINNED, raw.replace(b'"usage":{', b'"more":' + deep
                                                     + b',"usage":{'))
        assert (said["status"], said["reason"]) == (
            ("ok", None) if depth < 200 else ("error", "malformed-output"))
        assert interpreted(name, PINNED, deep)["reason"] == "malformed-output"


@pytest.mark.parametrize("text", [
    "\ud800", "a\udfffb", "\ufeffx", "\u202eevil\u202c", "\0", "\x1b[31m", "a\u2028b\u2029",
    "x" * 1_000_000, "\U0010ffff", "e\u0301" * 10_000, "```json\n{}\n```", '"', "\\ud800",
    "[[begin untrusted-output]]"])
def test_answer_of_any_characters_is_kept_as_it_is(text):
    items = json.loads(output_of("skill-success", PINNED))
    items[1]["message"]["content"][0]["text"] = items[-1]["result"] = text
    for ascii_only in (True, False):
        try:
            raw = json.dumps(items, ensure_ascii=ascii_only).encode("utf-8")
        except UnicodeEncodeError:
            raw = json.dumps(items, ensure_ascii=False).encode("utf-8", "surrogatepass")
            assert interpreted("skill-success", PINNED, raw)["reason"] == "malformed-output"
            continue
        said = interpreted("skill-success", PINNED, raw)
        assert (said["status"], said["output"]) == ("ok", text)
        assert eval_loop.parse_json(eval_loop.canonical(said))["output"] == text


@pytest.mark.parametrize("char, times, status", [
    ("\ufdfa", 1, "ok"), ("\ufdfa", 300_000, "ok"), ("\ufdfa", 300_001, "error"),
    ("\u247d", 300_001, "ok")], ids=["once", "often", "too-often", "little"])
def test_only_a_long_answer_that_grows_much_when_normalised_is_no_answer(char, times, status):
    items = json.loads(output_of("skill-success", PINNED))
    items[1]["message"]["content"][0]["text"] = items[-1]["result"] = char * times
    said = interpreted("skill-success", PINNED, json.dumps(items).encode())
    assert said["status"] == status
    assert said["output"] == (char * times if status == "ok" else None)


@pytest.mark.parametrize("quote", ["", " ", "...", "\u2026", "*", "\u200b", "\u202e", "\ud800",
                                   "\0", "2439.7 km is wrong", "0", "pass" * 10_000])
def test_pass_without_words_of_the_output_is_never_a_pass(quote):
    items = json.loads(output_of("judge-pass", PINNED))
    items[1]["message"]["content"][0]["input"]["quote"] = quote
    items[-1]["structured_output"]["quote"] = quote
    said = interpreted("judge-pass", PINNED, json.dumps(items).encode())
    assert said["verdict"] == "unknown" or quote in JUDGED_OUTPUT and quote.strip()
    assert said["status"] == "error" or quote == "0"


# ---- whole runs ----------------------------------------------------------------------------

STOPPING = {"bad-credential", "no-credit", "no-such-model", "bad-option", "could-not-start"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A function: outputs -> an experiment, ready to run, that answers case N by output N."""
    made = []

    def make(outputs: list[bytes], **options) -> Experiment:
        root = tmp_path_factory.mktemp("world")
        rules = []
        for number, raw in enumerate(outputs, 1):
            (root / f"{number}.bytes").write_bytes(raw)
            rules.append({"purpose": "run", "contains": f"Task d{number:02}:",
                          "capture": str(root / f"{number}.bytes")})
        fields = {"cliVersion": f"{PINNED} (Claude Code)", "modelId": MODEL,
                  "budgetUsd": "1", "unservedAttempts": 1, **options.pop("environment", {})}
        experiment = Experiment(root / "it", development=len(outputs), heldout=1, judge=False,
                                environment=fields, script=rules,
                                policy={"skillName": CAPTURED_SKILL}, **options)
        for variant in ("baseline", "candidate"):
            old = experiment.path(experiment.skill_file(variant))
            text = old.read_text("utf-8").replace("name: figures", f"name: {CAPTURED_SKILL}")
            old.parent.rename(old.parent.with_name(CAPTURED_SKILL))
            old.parent.with_name(CAPTURED_SKILL).joinpath("SKILL.md").write_text(text, "utf-8")
        experiment.skill_file = lambda variant: (
            f"skills/{variant}/.claude/skills/{CAPTURED_SKILL}/SKILL.md")
        experiment.write_policy()
        experiment.plan = experiment.write_plan("baseline", "development")
        made.append(experiment)
        return experiment

    return make


def ends_a_command(said: dict) -> bool:
    """Whether a command stops after such a call: by its reason, or a cost above its budget."""
    cost = said["costUsd"]
    return said["reason"] in STOPPING or cost != "unknown" and float(cost) > 1


def sample_of_mutations(count: int, kind: str, good: str) -> list[bytes]:
    """Mutations of a kind of outputs that do not end a whole command, every third a good one.

    (A command stops after three calls in a row that ended by machinery.)
    """
    dice = random.Random(f"whole runs {kind}")
    good_raw = captured(PINNED, good)[0]
    chosen = []
    while len(chosen) < count:
        if len(chosen) % 3 == 2:
            chosen.append(good_raw)
            continue
        name = dice.choice([name for name, version in NAMES if name.startswith(kind)
                            and version == PINNED])
        _, raw = dice.choice(list(mutations_of(name, PINNED, 30)))
        if len(raw) < 500_000 and not any(ends_a_command(interpreted(one, PINNED, raw))
                                          for one in (name, good)):
            chosen.append(raw.replace(CALL_ID.encode(), b"CALL-ID"))
    return chosen


def test_sample_of_mutated_outputs_runs_scores_and_verifies_with_every_byte_kept(world):
    outputs = sample_of_mutations(90, "skill-", "skill-success")
    own = world(outputs)
    done = own.command("run", own.plan, expect=(0, 4))
    assert "Traceback" not in done.stderr
    folder = own.path(own.result_directory("baseline", "development"))
    for number, raw in enumerate(outputs, 1):
        stem = f"d{number:02}.run.1"
        terminal = json.loads((folder / f"{stem}.terminal.json").read_bytes())
        pending = json.loads((folder / f"{stem}.pending.json").read_bytes())
        kept = (folder / f"{stem}.stdout").read_bytes()
        assert kept == raw.replace(b"CALL-ID", pending["callId"].encode())
        assert terminal["stdoutSha256"] == sha256(kept)
        if terminal["status"] == "ok":
            again = kept.replace(pending["callId"].encode(), CALL_ID.encode())
            assert terminal["output"] == meaning("skill-success", PINNED, again, 0)
    mutations.report("whole-runs-of-mutations", len(outputs))
    assert "Traceback" not in own.command("score", own.plan, expect=4).stderr
    own.command("verify", own.plan, expect=0)
    own.command("run", own.plan, expect=(0, 4))
    assert len(own.call_log()) == len(outputs)




@pytest.fixture
def judge_world(tmp_path):
    """A function: outputs -> an experiment whose judge answers about case N by output N.

    The judge has a CLI of its own, whose version is that of the captures.
    """
    def make(outputs: list[bytes]) -> Experiment:
        rules = []
        for number, raw in enumerate(outputs, 1):
            (tmp_path / f"{number}.bytes").write_bytes(raw)
            rules.append({"purpose": "judge", "contains": f"Task d{number:02}:",
                          "capture": str(tmp_path / f"{number}.bytes")})
        for label, quote in (("pass", QUOTE), ("fail", POOR_MARK), ("unknown", "")):
            rules.append({"purpose": "judge", "contains": f"Task s10-{label}", "quote": quote,
                          "verdict": label, "evidence": "So it is.", "version": PINNED})
        answers = {("baseline", f"d{number:02}"): JUDGED_OUTPUT
                   for number in range(1, len(outputs) + 1)}
        own = Quick(tmp_path / "it", development=len(outputs), heldout=1, script=rules,
                    answers=answers)
        own.edit("environment.json", lambda given: given.update(
            judgeExecutable=str(own.cli), judgeCliVersion=f"{PINNED} (Claude Code)",
            judgeCliSha256=given["cliSha256"], judgeModelId=MODEL, judgeBudgetUsd="1",
            unservedAttempts=1))
        own.write_calibration_plan()
        own.calibrate()
        own.policy()
        own.plan = own.write_plan("baseline", "development")
        return own

    return make


def test_sample_of_mutated_judgments_is_judged_and_scored_with_every_byte_kept(judge_world):
    outputs = sample_of_mutations(60, "judge-", "judge-pass")
    own = judge_world(outputs)
    own.command("run", own.plan, "--jobs", "2", expect=0)
    own.command("judge", own.plan, expect=(0, 4))
    folder, verdicts = own.path(own.result_directory("baseline", "development")), {}
    for number, raw in enumerate(outputs, 1):
        stem = f"d{number:02}.grounded-1.judge.1"
        terminal = json.loads((folder / f"{stem}.terminal.json").read_bytes())
        kept = (folder / f"{stem}.stdout").read_bytes()
        assert kept == raw.replace(b"CALL-ID", terminal["callId"].encode())
        again = kept.replace(terminal["callId"].encode(), CALL_ID.encode())
        meant = meaning("judge-pass", PINNED, again, 0)
        verdicts[f"d{number:02}"] = terminal["verdict"]
        assert terminal["status"] != "ok" or meant and terminal["verdict"] == meant[0]
        assert terminal["status"] == "ok" or terminal["verdict"] == "unknown"
    mutations.report("whole-judgments-of-mutations", len(outputs))
    own.command("score", own.plan, expect=4)
    assert {case: row["verdict"] for (case, test), row in own.checks(
        "baseline", "development").items() if test == "grounded-1"} == verdicts
    own.command("verify", own.plan, expect=0)


@pytest.mark.parametrize("what", ["spaces", "one long text", "noise"])
def test_output_above_64_megabytes_ends_the_call_and_its_first_64_are_kept(world, what):
    good = captured(PINNED, "skill-success")[0]
    size = 70_000_000
    raw = {"spaces": b" " * size + good, "noise": random.Random(7).randbytes(size),
           "one long text": good.replace(b'"result":"', b'"result":"' + b"x" * size)}[what]
    own = world([raw])
    own.command("run", own.plan, expect=4)
    folder = own.path(own.result_directory("baseline", "development"))
    terminal = json.loads((folder / "d01.run.1.terminal.json").read_bytes())
    kept = (folder / "d01.run.1.stdout").read_bytes()
    assert (terminal["status"], terminal["reason"]) == ("error", "too-much-output")
    assert terminal["costUsd"] == "unknown"
    assert len(kept) == 64 * 1024 * 1024
    assert raw.replace(b"CALL-ID", terminal["callId"].encode()).startswith(kept)
    own.command("score", own.plan, expect=4)
