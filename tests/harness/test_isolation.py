"""Cases in a process of their own: what kills or stops it costs one case, never the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitproof.harness import case as cases
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import records
from bitproof.harness.search import isolation
from bitproof.harness.search.isolation import Careful
from bitproof.harness.subjects.discovery import Found, find
from tests.harness.conftest import Write
from tests.harness.plain import PlainLane, RowsCase

SPECS = """
import os
import time
from bitproof.harness.spec import Bitwise, Invariance
from tests.harness.plain import scaled, variant


def dies(tensors, params):
    if len(tensors["x"]) == 2:
        os._exit(7)
    return scaled(tensors, params)


def hangs(tensors, params):
    if len(tensors["x"]) == 2:
        time.sleep(60)
    return scaled(tensors, params)


def breaks(tensors, params):
    if len(tensors["x"]) == 2:
        from bitproof.harness.lanes.interpreter.lane import InterpreterLane  # in the child alone

        InterpreterLane.usable = lambda lane: False
        raise RuntimeError("the device is lost")
    return scaled(tensors, params)


def prints(tensors, params):
    print("to standard output")
    os.system("echo from a process of its own")
    return scaled(tensors, params)


def raises(tensors, params):
    raise ValueError("no")


def unanswered(tensors, params):
    return {}


def turned(inputs):
    raise ValueError("no turn")


SPECS = [variant(name=run.__name__, run=run) for run in (breaks, dies, hangs, prints, raises)]
TURN = Invariance(name="turned", transform=turned, relate=lambda found, inputs: found)
ODD = variant(name="odd", oracle=unanswered, invariances=(TURN,))
"""


@pytest.fixture(scope="module")
def careful() -> Iterator[Careful]:
    """One child for all of these tests, replaced when it dies."""
    judge = Careful(lane=PlainLane(), isolate=True, timeout=60.0)
    yield judge
    if judge._child is not None:
        judge._child._end()


@pytest.fixture
def spec(write: Write) -> Callable[[str], Found]:
    """`spec(name)`: one of SPECS, in a file that the child can find as well."""
    path = write("isolated_specs.py", SPECS)
    return lambda name: find([str(path)], [name])[0]


def test_a_child_judges_as_this_process_does(
    careful: Careful, spec: Callable[[str], Found]
) -> None:
    """Passed and failed alike, with measures; what a kernel prints is no answer."""
    inputs, findings = careful(spec("prints"), "agreement", RowsCase(rows=3))
    assert findings.outcome is Outcome.PASSED
    assert findings.measures == {"worst": 0.0}
    assert inputs.case == RowsCase(rows=3)
    _, findings = careful(spec("raises"), "agreement", RowsCase())
    assert findings.outcome is Outcome.CRASHED
    assert findings.text == "the launch raised ValueError: no"


def test_a_death_costs_one_case(careful: Careful, spec: Callable[[str], Found]) -> None:
    """The exit code is told, and the next case is judged by a new child."""
    found = spec("dies")
    _, findings = careful(found, "agreement", RowsCase(rows=2))
    assert findings.outcome is Outcome.CRASHED
    assert "exit code 7" in findings.text
    assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_a_broken_device_is_blamed_on_the_case_that_broke_it(
    careful: Careful, spec: Callable[[str], Found]
) -> None:
    """A child whose device is lost leaves, and the cases after it meet another at once."""
    found = spec("breaks")
    for _ in range(3):
        assert careful(found, "agreement", RowsCase(rows=2))[1].outcome is Outcome.CRASHED
        assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_silence_is_a_hang(careful: Careful, spec: Callable[[str], Found]) -> None:
    """After the time that is allowed; the child is ended and replaced."""
    found = spec("hangs")
    assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED
    assert careful._child is not None
    careful._child.timeout = 0.5
    _, findings = careful(found, "agreement", RowsCase(rows=2))
    careful._child.timeout = 60.0
    assert findings.outcome is Outcome.HUNG
    assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_a_specs_own_mistake_is_no_crash(careful: Careful, spec: Callable[[str], Found]) -> None:
    """It is raised here as it was raised there, and the child lives on."""
    with pytest.raises(SpecError, match="spec 'odd': its oracle does not answer output 'y'"):
        careful(spec("odd"), "agreement", RowsCase())
    with pytest.raises(SpecError, match=r"the case RowsCase raised RuntimeError in hashed \("):
        careful(spec("dies"), "agreement", RowsCase(rows=-1))
    with pytest.raises(SpecError, match=r"judging a case raised ValueError in turned \(.*no turn"):
        careful(spec("odd"), "invariances", RowsCase())
    assert careful(spec("dies"), "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_the_case_in_flight_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Callable[[str], Found]
) -> None:
    """For whoever finds this process dead, it becomes a record that replays."""
    monkeypatch.chdir(tmp_path)
    journal = tmp_path / "deep" / "journal.json"
    judge = Careful(lane=PlainLane(), journal=journal)
    found = spec("prints")
    assert judge(found, "agreement", RowsCase(rows=4))[1].outcome is Outcome.PASSED
    assert not judge.isolate
    path = isolation.bury(journal, "interpreter")
    assert path is not None
    record = records.load(path)
    assert (record.kernel, record.check, record.outcome) == ("prints", "agreement", "crashed")
    assert cases.decode(RowsCase, record.case) == RowsCase(rows=4)
    assert isolation.bury(tmp_path / "none.json", "interpreter") is None
