"""Fixtures: fresh small experiments, and copies of ones that were walked once a session."""

from __future__ import annotations

import signal

import pytest

from builder import Experiment

for number in (signal.SIGHUP, signal.SIGQUIT):      # a shell in the background ignores them, and
    signal.signal(number, signal.SIG_DFL)           # so would every program started here


@pytest.fixture
def make(tmp_path):
    """Return a function that makes an experiment in a fresh directory of this test."""
    made = []

    def make_one(**options) -> Experiment:
        made.append(Experiment(tmp_path / f"made-{len(made) + 1}", **options))
        return made[-1]

    return make_one


@pytest.fixture(scope="session")
def walked(tmp_path_factory):
    """Return a function: (stage, options) -> an experiment as it was after that stage.

    Experiments of the same options are walked once a session, and no further than asked. What
    is returned is shared: tests read it, and take a copy (`ready`, `finished`) to change it.
    """
    masters, snapshots = {}, {}

    def walk_once(until: str, **options) -> Experiment:
        key = repr(sorted(options.items()))
        if key not in masters:
            masters[key] = Experiment(tmp_path_factory.mktemp("walked") / "master", **options)
        master = masters[key]

        def keep(stage: str) -> None:
            snapshots[key, stage] = master.snapshot(master.root.parent / f"after-{stage}")

        if (key, until) not in snapshots:
            master.walk(until, after=keep)
        return snapshots[key, until]

    return walk_once


@pytest.fixture
def ready(walked, tmp_path):
    """Return a function: (stage, options) -> a copy of an experiment that was walked up to it.

    A copy has its own documents and results, and the stand-in's script, which is put back
    when the test ends.
    """
    copies = []

    def copy_of(until: str, **options) -> Experiment:
        copies.append(walked(until, **options).copied(tmp_path / f"ready-{len(copies)}"))
        return copies[-1]

    yield copy_of
    for experiment in copies:
        experiment.rules(*experiment.script)


@pytest.fixture
def finished(ready):
    """Return a copy of an experiment that ended in an accepted decision."""
    return ready("decide")
