"""CLIs that misbehave, signals that end the program: in time, the right reason, nothing left.

Each test has an experiment of its own that runs a Skill without any judge.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time

import pytest

import builder
import faults

DEADLINE = 1                            # seconds that a call has in tests of the deadline
PATIENCE = 30                           # and in the others, which do not wait for it
OUTPUT_LIMIT = 64 * 1024 * 1024         # bytes of output that the design allows a call
ANSWER = {"answer": builder.poor("d01")}
SURVIVED: set[str] = set()


@pytest.fixture
def ready(tmp_path):
    """Return a function: (rules, options) -> (experiment, its first plan, ready to run).

    Whatever its calls leave behind ends with the test.
    """
    made = []

    def make(*rules: dict, timeout: int = PATIENCE, **options):
        one = builder.Experiment(tmp_path / f"made-{len(made)}", judge=False, script=rules,
                                 environment={"timeoutSeconds": timeout}, **options)
        one.write_policy()
        made.append(one)
        return one, one.write_plan("baseline", "development")

    yield make
    for one in made:
        faults.end_left_running(one)


def shell_cli(tmp_path, body: str):
    """Return the path of a CLI written in shell; `$STAND_IN` there is the stand-in."""
    path = tmp_path / "shell-cli"
    path.write_text(f"#!/bin/sh\nSTAND_IN={shlex.quote(str(builder.STAND_IN))}\n{body}\n")
    path.chmod(0o755)
    return path


def run_one(one: builder.Experiment, plan: str, status, case: str = "d01") -> dict:
    """Run one case; return its terminal receipt after checking what holds for every fault."""
    done = one.command("run", plan, "--case", case, expect=status, timeout=60)
    assert "Traceback" not in done.stderr
    (terminal,) = one.receipts(f"{case}.run.1.terminal").values()
    assert terminal["elapsedMilliseconds"] < PATIENCE * 1000
    assert not faults.left_running(one)
    assert not faults.private_directories(one)
    for part in ("stdout", "stderr"):
        path = one.path(f"results/baseline-development/{case}.run.1.{part}")
        assert path.stat().st_size <= OUTPUT_LIMIT
    return terminal


def fault(terminal: dict, reason: str | None, cost: str = "unknown") -> None:
    """Check the outcome of a call, and count it."""
    assert terminal["reason"] == reason, terminal
    assert terminal["status"] == ("ok" if reason is None else "error"), terminal
    assert terminal["costUsd"] == cost, terminal
    SURVIVED.add(os.environ["PYTEST_CURRENT_TEST"])


# ---- hanging -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [
    {"hang": True}, {"hang": True, "ignoreSigterm": True},
    {"hang": True, "orphanSeconds": 60}, {"signal": signal.SIGSTOP, **ANSWER},
    {"stdout": "half an ans", "sleepAfter": 60}, {**ANSWER, "sleepAfter": 60},
    {**ANSWER, "closeStdout": True, "sleepAfter": 60}])
def test_a_cli_that_never_ends_is_ended_at_its_deadline(ready, rule):
    one, plan = ready(rule, timeout=DEADLINE)
    terminal = run_one(one, plan, 4)
    fault(terminal, "timeout")
    assert 0 <= terminal["elapsedMilliseconds"] - DEADLINE * 1000 <= 2000


def test_a_cli_that_waits_for_more_input_finds_its_end(ready, tmp_path):
    one, plan = ready(cli=shell_cli(tmp_path, "cat; read more || exit 0; sleep 60"))
    fault(run_one(one, plan, 4), "malformed-output")


def test_a_cli_that_reads_no_input_is_not_waited_for(ready):
    one, plan = ready({"readStdin": False, "stdout": ""})
    fault(run_one(one, plan, 4), "malformed-output")


# ---- grandchildren and streams -----------------------------------------------------------


def test_a_grandchild_that_holds_the_output_neither_delays_nor_survives(ready):
    one, plan = ready({**ANSWER, "orphanSeconds": 60})
    fault(run_one(one, plan, 0), None, "0.01")


def test_a_grandchild_in_a_session_of_its_own_does_not_delay_the_answer(ready, tmp_path):
    body = ("setsid sh -c 'echo $$ >\"$HOME/../pid\"; cp \"$HOME/../pid\" "
            f"{shlex.quote(str(tmp_path))}/pid; exec sleep 60' &\n"
            f"until test -s {shlex.quote(str(tmp_path))}/pid; do :; done\n"
            'exec "$STAND_IN" "$@"')
    one, plan = ready(ANSWER, cli=shell_cli(tmp_path, body))
    try:
        fault(run_one(one, plan, 0), None, "0.01")
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_cli_that_closes_its_output_early_has_answered(ready):
    one, plan = ready({**ANSWER, "closeStdout": True, "sleepAfter": 0.5})
    fault(run_one(one, plan, 0), None, "0.01")


def test_a_flood_of_a_gigabyte_is_ended_and_cut(ready):
    one, plan = ready({"floodBytes": 1 << 30, "sleepAfter": 60})
    terminal = run_one(one, plan, 4)
    fault(terminal, "too-much-output")
    assert terminal["stdoutSha256"] == one.sha("results/baseline-development/d01.run.1.stdout")
    again = one.command("run", plan, "--case", "d01", expect=4)
    assert "1 before" in again.stdout and len(one.call_log()) == 1


def test_a_flood_that_ends_before_it_is_seen_is_cut_as_well(ready, tmp_path):
    body = f"cat >/dev/null; head -c {OUTPUT_LIMIT + 1} /dev/zero"
    one, plan = ready(cli=shell_cli(tmp_path, body))
    fault(run_one(one, plan, 4), "too-much-output")


def test_a_flood_on_standard_error_is_ended_and_cut(ready, tmp_path):
    body = f"cat >/dev/null; head -c {OUTPUT_LIMIT * 2} /dev/zero >&2; sleep 60"
    one, plan = ready(cli=shell_cli(tmp_path, body))
    fault(run_one(one, plan, 4), "too-much-output")


@pytest.mark.parametrize("text", [
    "", "\n", "null", "[]", "{}", "[", "\0", pytest.param("[" * 300_000, id="deep"),
    "not json at all", '[{"type":"result"}]'])
@pytest.mark.parametrize("status", [0, 1])
def test_a_cli_that_prints_no_answer_has_malformed_output(ready, text, status):
    one, plan = ready({"stdout": text, "exit": status})
    fault(run_one(one, plan, 4), "malformed-output")


# ---- dying -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGABRT", "SIGFPE",
                                  "SIGSEGV", "SIGUSR1", "SIGALRM", "SIGTERM", "SIGKILL"])
def test_a_cli_that_dies_by_a_signal_was_killed(ready, name):
    one, plan = ready({"signal": getattr(signal, name)})
    terminal = run_one(one, plan, 4)
    fault(terminal, "killed")
    assert terminal["exitStatus"] == -getattr(signal, name)


def test_a_cli_that_dies_after_its_answer_was_killed_and_its_bytes_are_kept(ready):
    one, plan = ready({**ANSWER, "signal": signal.SIGSEGV})
    fault(run_one(one, plan, 4), "killed")
    kept = one.path("results/baseline-development/d01.run.1.stdout").read_bytes()
    assert builder.POOR_MARK.encode() in kept


# ---- changing ----------------------------------------------------------------------------


def test_a_cli_that_changes_itself_during_a_call_is_noticed_and_not_used_again(ready):
    one, plan = ready({**ANSWER, "appendSelf": "# changed\n"})
    done = one.command("run", plan, expect=6)
    assert "changed" in done.stdout + done.stderr
    (terminal,) = one.receipts("terminal").values()
    fault(terminal, "version-changed", "0.01")
    assert len(one.call_log()) == 1
    refused = one.command("run", plan, expect=3)
    assert "sha256" in refused.stderr and len(one.call_log()) == 1


def test_a_cli_that_is_replaced_between_two_calls_is_not_called(ready, tmp_path):
    body = ('cp "$0" "$0.new"; echo "# other" >>"$0.new"; "$STAND_IN" "$@"; mv "$0.new" "$0"')
    one, plan = ready(cli=shell_cli(tmp_path, body))
    one.command("run", plan, expect=6)
    (terminal,) = one.receipts("terminal").values()
    fault(terminal, "version-changed", "0.01")
    assert len(one.call_log()) == 1


def test_a_cli_that_cannot_be_started_costs_nothing_and_may_be_tried_again(ready, tmp_path):
    path = tmp_path / "no-interpreter"
    path.write_text("#!/nonexistent/interpreter\n")
    path.chmod(0o755)
    one, plan = ready(cli=path)
    one.command("run", plan, expect=6)
    (terminal,) = one.receipts("terminal").values()
    assert (terminal["status"], terminal["reason"], terminal["costUsd"]) == (
        "unserved", "could-not-start", "0")
    one.command("run", plan, expect=6)
    assert len(one.receipts("d01.run.2.terminal")) == 1
    SURVIVED.add("could not be started")


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_cli_that_is_gone_or_not_executable_is_refused_before_any_receipt(ready, mode):
    one, plan = ready()
    one.cli.chmod(mode) if mode else one.cli.unlink()
    before = one.files()
    done = one.command("run", plan, expect=3)
    assert str(one.cli) in done.stderr and one.files() == before


# ---- signals to the program --------------------------------------------------------------


def start_run(one: builder.Experiment, plan: str, *words: str):
    """Start a run in a process group of its own, as a terminal does; a context manager."""
    return faults.started(one, "run", plan, *words, start_new_session=True)


def interrupt(process: subprocess.Popen) -> None:
    """Send what Ctrl-C on a terminal sends: SIGINT to the whole process group."""
    os.killpg(process.pid, signal.SIGINT)


def finished_well(one: builder.Experiment, plan: str, calls: int) -> None:
    """Say the run again to its end: every call made once, every answer there."""
    one.command("run", plan, expect=0)
    assert len(one.call_log()) == calls
    assert not faults.problems(one)
    SURVIVED.add(os.environ["PYTEST_CURRENT_TEST"])


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_once_makes_no_further_call_and_waits_for_those_in_flight(ready, jobs):
    one, plan = ready({"sleep": 1, **ANSWER}, development=4)
    with start_run(one, plan, "--jobs", str(jobs)) as run:
        paused = faults.pause_calls(one, jobs)
        interrupt(run)
        faults.resume_calls(paused)
        assert run.wait(60) == 130
        assert not faults.left_running(one)
    assert len(one.call_log()) == jobs
    assert len(one.receipts("terminal")) == jobs
    assert not faults.problems(one)
    finished_well(one, plan, 4)


def test_ctrl_c_twice_ends_the_calls_in_flight_with_their_receipts(ready):
    one, plan = ready({"hang": True}, timeout=60, development=4)
    with start_run(one, plan, "--jobs", "2") as run:
        faults.when(lambda: len(one.call_log()) == 2)
        interrupt(run)
        time.sleep(1)                   # two signals at once would be one
        interrupt(run)
        assert run.wait(60) == 130
        assert not faults.left_running(one)
    terminals = one.receipts("terminal").values()
    assert [(document["reason"], document["costUsd"]) for document in terminals] == [
        ("killed", "unknown")] * 2
    assert len(one.call_log()) == 2
    assert not faults.private_directories(one)
    SURVIVED.add("ctrl-c twice")


def test_ctrl_c_once_does_not_outlive_the_deadline_of_a_hanging_call(ready):
    one, plan = ready({"hang": True}, timeout=DEADLINE)
    with start_run(one, plan) as run:
        faults.when(one.call_log)    # in its own session by now
        interrupt(run)
        assert run.wait(60) == 130
    (terminal,) = one.receipts("terminal").values()
    fault(terminal, "timeout")
    assert not faults.left_running(one)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_program_that_is_ended_leaves_the_cli_its_time_and_uses_its_answer(ready, name, jobs):
    one, plan = ready({"sleep": 1, **ANSWER})
    with start_run(one, plan, "--jobs", str(jobs)) as run:
        paused = faults.pause_calls(one, jobs)
        os.kill(run.pid, getattr(signal, name))
        assert run.wait(60) == -getattr(signal, name)
        assert sorted(faults.left_running(one)) == sorted(paused)
        assert not one.receipts("terminal")
        faults.resume_calls(paused)
        finished_well(one, plan, 2)
    terminals = one.receipts("terminal").values()
    assert [document["status"] for document in terminals] == ["ok", "ok"]


def test_ctrl_c_while_waiting_for_a_left_over_cli_closes_nothing_and_loses_nothing(ready):
    one, plan = ready({"contains": "Task d01", "sleep": 1, **ANSWER})
    with start_run(one, plan) as first:
        paused = faults.pause_calls(one, 1)
        first.kill()
        first.wait()
        with start_run(one, plan) as second:
            faults.when(lambda: one.receipts("d02.run.1.terminal"))
            interrupt(second)
            assert second.wait(60) == 130
        assert not one.receipts("d01.run.1.terminal")
        faults.resume_calls(paused)
        finished_well(one, plan, 2)


def test_a_left_over_cli_that_hangs_is_reported_and_never_called_again(ready):
    one, plan = ready({"contains": "Task d01", "hang": True}, timeout=4)
    with start_run(one, plan) as run:
        faults.when(one.call_log)
        run.kill()
        run.wait()
        done = one.command("run", plan, expect=6)
        assert "d01.run.1.stdout" in done.stdout
        assert len(one.call_log()) == 2
        assert len(faults.left_running(one)) == 1
        faults.end_left_running(one)
    one.command("run", plan, expect=4)
    (terminal,) = one.receipts("d01.run.1.terminal").values()
    fault(terminal, "killed")
    assert len(one.call_log()) == 2


@pytest.mark.parametrize("words", [["check", "policy.json"], ["hash", "policy.json"]])
def test_signals_to_an_offline_command_write_nothing(ready, words):
    one, _ = ready()
    before = one.files()
    with faults.started(one, *words, start_new_session=True) as process:
        interrupt(process)
        # 1: Python itself was still starting, before any line of the program
        assert process.wait(60) in (0, 1, 130, -signal.SIGINT)
    assert one.files() == before


def test_threads_of_a_command_end_with_it(ready):
    one, plan = ready(ANSWER, development=4)
    one.command("run", plan, "--jobs", "64", expect=0)
    assert threading.active_count() < 64
    assert len(one.call_log()) == 4 and not faults.problems(one)


def test_the_process_faults_survived_are_many(request):
    print()
    print(f"RELIABILITY process-faults-survived {len(SURVIVED)}")
    if faults.all_asked_for(request):
        assert len(SURVIVED) >= 60
