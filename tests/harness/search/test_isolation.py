"""Cases in a process of their own: what kills or stops it costs one case, never the run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitproof.harness import case as cases
from bitproof.harness.errors import EnvironmentUnfit, SpecError
from bitproof.harness.outcomes import CheckResult, Outcome
from bitproof.harness.report import records
from bitproof.harness.search import journal
from bitproof.harness.search.isolation import Careful
from bitproof.harness.search.journal import Journal
from bitproof.harness.subjects.discovery import FoundSpec, find
from bitproof.harness.subjects.planting import with_fault
from tests.harness.conftest import Write
from tests.harness.plain import PlainLane, RowsCase

SPECS = """
import ctypes
import os
import signal
import sys
import time
from bitproof.harness.spec import Bitwise, Invariance
from tests.harness.plain import scaled, variant


def dies(tensors, params):
    if len(tensors["x"]) == 2:
        os._exit(7)
    return scaled(tensors, params)


def leaves(tensors, params):
    if len(tensors["x"]) == 2:
        sys.exit("enough")
    return scaled(tensors, params)


def killed(tensors, params):
    if len(tensors["x"]) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return scaled(tensors, params)


def reads_nowhere(tensors, params):
    if len(tensors["x"]) == 2:
        ctypes.string_at(0)
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


def wants(tensors, params):
    raise MemoryError("out of memory")


def wants_once(tensors, params, judged=[]):
    judged.append(os.getpid())
    marker = __file__ + ".wanted"
    if not os.path.exists(marker) or judged[0] in map(int, open(marker)):
        open(marker, "w").write(str(judged[0]))
        raise MemoryError("out of memory")
    return scaled(tensors, params)


RUNS = (wants, wants_once, breaks, dies, hangs, killed, leaves, prints, raises, reads_nowhere)
SPECS = [variant(name=run.__name__, run=run) for run in RUNS]
TURN = Invariance(name="turned", transform=turned, relate=lambda found, inputs: found)
ODD = variant(name="odd", oracle=unanswered, invariances=(TURN,))
"""


@pytest.fixture(scope="module")
def careful() -> Iterator[Careful]:
    """One child for all of these tests, replaced when it dies."""
    judge = Careful(lane=PlainLane(), timeout=60.0)
    yield judge
    judge.close()


@pytest.fixture
def spec(write: Write) -> Callable[[str], FoundSpec]:
    """`spec(name)`: one of SPECS, in a file that the child can find as well."""
    path = write("isolated_specs.py", SPECS)
    return lambda name: find([str(path)], [name])[0]


def test_a_child_judges_as_this_process_does(
    careful: Careful, spec: Callable[[str], FoundSpec]
) -> None:
    """Passed and failed alike, with measures; what a kernel prints is no answer."""
    inputs, findings = careful(spec("prints"), "agreement", RowsCase(rows=3))
    assert findings.outcome is Outcome.PASSED
    assert findings.measures == {"worst": 0.0}
    assert inputs.case == RowsCase(rows=3)
    _, findings = careful(spec("raises"), "agreement", RowsCase())
    assert findings.outcome is Outcome.CRASHED
    assert findings.text == "the launch raised ValueError: no"


def test_a_death_costs_one_case(careful: Careful, spec: Callable[[str], FoundSpec]) -> None:
    """How it ended and its last words are told, and the next case is judged by a new child."""
    for name, how, words in (
        ("dies", "ended with exit code 7", ""),
        ("killed", "died of SIGKILL", ""),
        ("reads_nowhere", "died of SIGSEGV", "  printed   Fatal Python error: Segmentation fault"),
    ):
        found = spec(name)
        _, findings = careful(found, "agreement", RowsCase(rows=2))
        assert findings.outcome is Outcome.CRASHED
        first, *rest = findings.text.split("\n")
        assert first == f"the launch crashed: the process {how}"
        assert rest[:1] == ([words] if words else [])
        assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_a_launcher_that_leaves_python_has_raised(spec: Callable[[str], FoundSpec]) -> None:
    """`sys.exit` ends no process here, neither."""
    _, findings = Careful(lane=PlainLane())(spec("leaves"), "agreement", RowsCase(rows=2))
    assert findings.text == "the launch raised SystemExit: enough"


def test_a_copy_of_this_process_judges_and_dies_alike(spec: Callable[[str], FoundSpec]) -> None:
    """It keeps what is warm here from case to case, and needs no file to find its kernel by."""
    found = dataclasses.replace(spec("dies"), reference="nowhere")
    judge = Careful.on(PlainLane(), known=[found])
    for rows, outcome in ((3, Outcome.PASSED), (2, Outcome.CRASHED), (4, Outcome.PASSED)):
        assert judge(found, "agreement", RowsCase(rows=rows))[1].outcome is outcome
    judge.close()


def test_want_of_memory_is_asked_about_twice(spec: Callable[[str], FoundSpec]) -> None:
    """In a fresh process the second time; where the spec says that it must fit, the kernel failed."""
    once, always = spec("wants_once"), spec("wants")
    bound = dataclasses.replace(always.spec, name="bound", must_fit=lambda launch: True)
    must = dataclasses.replace(always, spec=bound)
    judge = Careful.on(PlainLane(), known=[once, always, must])
    case = RowsCase(rows=2)
    assert judge(once, "agreement", case)[1].outcome is Outcome.PASSED
    assert judge(always, "agreement", case)[1].outcome is Outcome.OUT_OF_RESOURCES
    findings = judge(must, "agreement", case)[1]
    assert findings.outcome is Outcome.FAILED
    assert findings.text == "it must fit, but: out of memory"
    judge.close()


def test_a_planted_fault_is_planted_in_the_child(careful: Careful) -> None:
    """It travels by name; without it, and with another, the same child judges otherwise."""
    plain_one = find(["tests.harness.plain"], ["scaled_rows"])[0]
    faulty = with_fault(plain_one, "off by a factor")
    for found, check, outcome in (
        (faulty, "agreement", Outcome.FAILED),
        (plain_one, "agreement", Outcome.PASSED),
        (faulty, "agreement", Outcome.FAILED),
        (with_fault(plain_one, "reads fresh memory"), "reproducibility", Outcome.FAILED),
    ):
        assert careful(found, check, RowsCase(rows=3))[1].outcome is outcome


def test_a_child_that_cannot_start_blames_no_kernel(
    spec: Callable[[str], FoundSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence with what it said."""
    found = spec("prints")
    monkeypatch.setenv("BITPROOF_LANE", "abacus")
    judge = Careful(lane=PlainLane())
    with pytest.raises(
        EnvironmentUnfit, match=r"no process can be started .* unknown lane 'abacus'"
    ):
        judge(found, "agreement", RowsCase())


def test_a_broken_device_is_blamed_on_the_case_that_broke_it(
    careful: Careful, spec: Callable[[str], FoundSpec]
) -> None:
    """A child whose device is lost leaves, and the cases after it meet another at once."""
    found = spec("breaks")
    for _ in range(3):
        assert careful(found, "agreement", RowsCase(rows=2))[1].outcome is Outcome.CRASHED
        assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_silence_is_a_hang(careful: Careful, spec: Callable[[str], FoundSpec]) -> None:
    """After the time that is allowed; the child is ended and replaced."""
    found = spec("hangs")
    assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED
    careful.timeout = 0.5
    _, findings = careful(found, "agreement", RowsCase(rows=2))
    careful.timeout = 60.0
    assert findings.outcome is Outcome.HUNG
    assert "the launch hung: the process gave no answer within 0.5 s" in findings.text
    assert "in hangs" in findings.text
    assert careful(found, "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_a_specs_own_mistake_is_no_crash(
    careful: Careful, spec: Callable[[str], FoundSpec]
) -> None:
    """It is raised here as it was raised there, and the child lives on."""
    with pytest.raises(SpecError, match="spec 'odd': its oracle does not answer output 'y'"):
        careful(spec("odd"), "agreement", RowsCase())
    with pytest.raises(SpecError, match=r"the case RowsCase raised RuntimeError in hash_words \("):
        careful(spec("dies"), "agreement", RowsCase(rows=-1))
    with pytest.raises(SpecError, match=r"judging a case raised ValueError in turned \(.*no turn"):
        careful(spec("odd"), "invariances", RowsCase())
    assert careful(spec("dies"), "agreement", RowsCase(rows=3))[1].outcome is Outcome.PASSED


def test_the_case_in_flight_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Callable[[str], FoundSpec]
) -> None:
    """For whoever finds this process dead, it becomes a record that replays; a case that is over does not."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "deep" / "journal.json"
    faulty = with_fault(find(["tests.harness.plain"], ["scaled_rows"])[0], "off by a factor")
    judge = Careful(lane=PlainLane(), journal=Journal(path=path, lane="interpreter"))
    during = []
    monkeypatch.setattr(
        Careful,
        "_ask",
        lambda *_: during.append(path.read_bytes()) or CheckResult(outcome=Outcome.PASSED),
    )
    judge(faulty, "agreement", RowsCase(rows=444444))
    judge(faulty, "agreement", RowsCase(rows=4))
    assert list(journal.find_dead(path.parent)) == []  # it lives
    assert journal.bury(path) is None
    judge.close()
    assert not path.parent.exists()
    path.parent.mkdir()
    path.write_bytes(during[-1].replace(journal.process(os.getpid()).encode(), b"1 0"))
    assert list(journal.find_dead(path.parent)) == [path]
    buried = journal.bury(path)
    assert buried is not None
    record = records.load(buried)
    assert (record.kernel, record.check, record.outcome) == ("scaled_rows", "agreement", "crashed")
    assert cases.decode(RowsCase, record.case) == RowsCase(rows=4)
    assert record.fault == "off by a factor"
    assert record.lane == "interpreter"
    assert journal.bury(tmp_path / "none.json") is None
