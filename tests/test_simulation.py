"""Many experiments at once: how often the registered rule lets luck through, and how often it
finds a true difference.

An experiment is simulated by drawing verdicts and giving them to the program's own `weigh`,
with the gates of templates/policy.template.json and a seed for every draw. The control `same`
of examples/demo.py is simulated with the stand-in's own answers and judgments; short real walks
of the demo show that these are the rows which the program itself gets. With EVAL_LOOP_SOAK=1
ten whole walks are made as well.
"""
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
from statistics import NormalDist
from types import SimpleNamespace

import pytest

from eval_loop import Row, literal_verdict, normalise, quote_form, quote_occurs, weigh

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEMPLATE = json.loads((ROOT / "templates" / "policy.template.json").read_text())
GATES = {name: value for name, value in TEMPLATE.items()
         if name.startswith(("minimum", "maximum"))}
SEEDS = 200
LEVEL = float(GATES["maximumGainPValue"])


def module_of(name):
    """One of the companions in examples/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEMO, STAND_IN = module_of("demo"), module_of("offline_claude")


def row(case, test, kind, verdict):
    """One check that is not critical."""
    return Row(case, test, kind, False, verdict, "timeout" if verdict == "unknown" else None,
               [], [])


def outcome(baseline, candidate):
    """(whether eligible, the finding) of two held-out arms whose cases are families."""
    nothing = [row("d", "t", "contains", "pass")]
    told = weigh(GATES, {"baselineHeldout": baseline, "candidateHeldout": candidate,
                         "baselineDevelopment": nothing, "candidateDevelopment": nothing},
                 {each.caseId: each.caseId for each in baseline})
    return not told["reasons"], told["finding"]


# ---- A planted difference --------------------------------------------------------------------


def planted(seed, baseline, candidate, families=20, correlation=0.3, flips=0.02, failed=0.005):
    """The outcome of one experiment whose Skills truly pass a check at these rates.

    One case a family with three to five checks, two of them judged. The difficulty of a case
    is shared by its checks and by both arms. A check comes out the other way in `flips` of all
    times; a call fails in `failed`: a Skill's leaves all its case unknown, a judge's its check.
    """
    draw, normal = random.Random(f"{seed} {baseline} {candidate}"), NormalDist()
    arms = ([], [])
    for number in range(families):
        difficulty, checks = draw.gauss(), draw.randint(3, 5)
        for rate, rows in zip((baseline, candidate), arms, strict=True):
            lost = draw.random() < failed
            for test in range(checks):
                ease = correlation**0.5 * difficulty + (1 - correlation) ** 0.5 * draw.gauss()
                passed = (ease < normal.inv_cdf(rate)) != (draw.random() < flips)
                judged = test < 2
                unknown = lost or (judged and draw.random() < failed)
                rows.append(row(f"c{number}", f"t{test}", "judge" if judged else "contains",
                                "unknown" if unknown else "pass" if passed else "fail"))
    return outcome(*arms)


def simulated(*rates, **options):
    """(how many of 200 experiments end eligible, how often each finding)"""
    told = [planted(seed, *rates, **options) for seed in range(SEEDS)]
    findings = [finding for _, finding in told]
    return sum(eligible for eligible, _ in told), {
        each: findings.count(each) for each in ("better", "worse", "cannot-tell")}


def test_a_true_gain_of_three_tenths_ends_eligible_in_most_experiments():
    eligible, findings = simulated(0.6, 0.9)
    assert eligible >= 0.85 * SEEDS and findings["better"] >= 0.85 * SEEDS
    assert findings["worse"] == 0


@pytest.mark.parametrize("rate", [0.6, 0.75, 0.9])
def test_without_a_true_difference_luck_is_let_through_no_more_often_than_registered(rate):
    eligible, findings = simulated(rate, rate)
    assert eligible <= LEVEL * SEEDS
    assert findings["better"] <= LEVEL * SEEDS and findings["worse"] <= LEVEL * SEEDS


def test_a_true_loss_is_found_worse_and_never_eligible():
    eligible, findings = simulated(0.9, 0.6)
    assert eligible == 0 and findings["better"] == 0
    assert findings["worse"] >= 0.85 * SEEDS


def test_a_gain_that_is_too_small_for_the_set_is_mostly_not_shown():
    eligible, findings = simulated(0.8, 0.85, families=8)
    assert findings["cannot-tell"] > 0.8 * SEEDS and eligible <= findings["better"]


# ---- The demo's controls ---------------------------------------------------------------------


class Written:
    """The held-out part of an experiment that the demo wrote: texts, tests, Skills, seed."""

    def __init__(self, folder):
        self.folder, self.known = folder, {}
        self.settings = json.loads(self.text("environment.json"))["setEnvironment"]
        self.cases = [
            (case["id"], self.text(case["input"]["file"]), self.text(case["truth"]["file"]),
             json.loads(self.text(case["expected"]["file"]))["tests"])
            for case in json.loads(self.text("heldout-cases.json"))["cases"]]
        skills = f".claude/skills/{DEMO.SKILL}/SKILL.md"
        self.skills = {variant: self.text(f"skills/{variant}/{skills}")
                       for variant in ("baseline", "candidate")}

    def text(self, file):
        """The text of one of its files."""
        if file not in self.known:
            self.known[file] = (self.folder / file).read_text("utf-8")
        return self.known[file]

    def verdict(self, test, case, truth, output):
        """The verdict on one check, as the stand-in and the program's literal tests give it."""
        if test["kind"] != "judge":
            return literal_verdict(SimpleNamespace(**test), output, normalise(output))[0]
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        verdict, _, quote = STAND_IN.honest_judgment({
            "criterion": self.text(test["criterion"]["file"]), "task-input": case,
            "approved-truth": truth, "untrusted-output": output}, lines)
        found = quote_occurs(quote_form(quote), quote_form(output))
        return verdict if found or (verdict != "pass" and not quote) else "unknown"

    def rows(self, monkeypatch, variant, seed=None):
        """The rows of one arm, for the seed that was written or for another one."""
        for name, value in self.settings.items():
            monkeypatch.setenv(name, value)
        if seed is not None:
            monkeypatch.setenv("OFFLINE_SEED", str(seed))
        rows, skill = [], self.skills[variant]
        for name, task, truth, tests in self.cases:
            draws = STAND_IN.draws(skill, f"/{DEMO.SKILL} {task}")
            output = STAND_IN.answer_record(task, draws)
            rows += [row(name, test["id"], test["kind"], self.verdict(
                test, task, truth, output))._replace(critical=test["critical"])
                for test in tests]
        return rows


def demo_outcomes(tmp_path, monkeypatch, scenario, seeds):
    """The outcomes of a scenario of the demo over so many seeds."""
    DEMO.write_documents(DEMO.Experiment(tmp_path, scenario, 1, 1))
    written = Written(tmp_path)
    assert written.settings["OFFLINE_SEED"] == "1" and len(written.cases) >= 20
    return [outcome(*(written.rows(monkeypatch, variant, seed)
                      for variant in ("baseline", "candidate"))) for seed in range(seeds)]


def test_the_demo_with_the_same_skill_twice_ends_eligible_no_more_often_than_registered(
        tmp_path, monkeypatch):
    told = demo_outcomes(tmp_path, monkeypatch, "same", SEEDS)
    assert sum(eligible for eligible, _ in told) <= LEVEL * SEEDS
    for luck in ("better", "worse"):
        assert sum(finding == luck for _, finding in told) <= LEVEL * SEEDS


@pytest.mark.parametrize("scenario", ["better", "worse"])
def test_the_demo_finds_what_was_planted_in_every_experiment(tmp_path, monkeypatch, scenario):
    told = demo_outcomes(tmp_path, monkeypatch, scenario, 10)
    assert [finding for _, finding in told] == [scenario] * 10
    assert scenario == "better" or not any(eligible for eligible, _ in told)


# ---- Real walks of the demo ------------------------------------------------------------------


SHORT_WALK = """
import sys
sys.path.insert(0, {examples!r})
import demo
demo.DEVELOPMENT, demo.HELDOUT = demo.DEVELOPMENT[:4], demo.HELDOUT[:8]
demo.CRITERIA = {{"figures": demo.CRITERIA["figures"]}}
sys.exit(demo.main({arguments!r}))
"""


def walk(tmp_path, *arguments, short=True, ends=(0,)):
    """Walk the demo in a fresh directory; return it and what was printed."""
    arguments = [*arguments, "--keep", str(tmp_path / "walk")]
    words = ["-c", SHORT_WALK.format(examples=str(ROOT / "examples"), arguments=arguments)]
    if not short:
        words = [str(ROOT / "examples" / "demo.py"), *arguments]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path),
                   "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, timeout=600,
                          stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                          check=False)
    assert done.returncode in ends, done.stdout + done.stderr
    return tmp_path / "walk", done.stdout


@pytest.mark.parametrize("seed", [1, 2])
def test_a_real_walk_gets_the_rows_that_are_simulated_and_no_improvement(
        tmp_path, monkeypatch, seed):
    folder, told = walk(tmp_path, "same", "--seed", str(seed))
    comparison = json.loads((folder / "comparison.json").read_bytes())
    assert comparison["status"] == "hold" and comparison["finding"] != "better"
    assert "improvement not shown" in told
    written = Written(folder)
    assert written.settings["OFFLINE_SEED"] == str(seed) and len(written.cases) == 8
    for variant in ("baseline", "candidate"):
        score = json.loads((folder / f"results/{variant}-heldout/score.json").read_bytes())
        assert [{name: each[name] for name in ("caseId", "testId", "verdict", "critical")}
                for each in score["rows"]] == [
            {name: getattr(each, name) for name in ("caseId", "testId", "verdict", "critical")}
            for each in written.rows(monkeypatch, variant)]


@pytest.mark.skipif(not os.environ.get("EVAL_LOOP_SOAK"), reason="EVAL_LOOP_SOAK=1 runs it")
def test_ten_whole_walks_with_the_same_skill_twice_let_luck_through_at_most_once(tmp_path):
    told = []
    for seed in range(1, 11):
        (tmp_path / str(seed)).mkdir()
        folder, _ = walk(tmp_path / str(seed), "same", "--seed", str(seed), short=False,
                         ends=(0, 4))          # 4: luck was let through
        told.append(json.loads((folder / "comparison.json").read_bytes()))
    assert sum(each["status"] != "hold" for each in told) <= 1
    assert sum(each["finding"] == "better" for each in told) <= 1
