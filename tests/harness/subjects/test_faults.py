"""Planting: one edit of a source, applied exactly once, in a module of its own."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from bitproof.harness.case import Launch
from bitproof.harness.errors import SpecError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.spec import Fault
from bitproof.harness.subjects import discovery
from bitproof.harness.subjects import planting as faults
from bitproof.harness.subjects.discovery import FoundSpec
from tests.harness import plain
from tests.harness.conftest import Write
from tests.harness.plain import checked

FOUND = FoundSpec(spec=plain.SPEC, reference="tests.harness.plain", module=plain)

KERNEL = """
import functools

FORM\x0cFEED = 1
LIMIT = 448.0
FLOOR: float = 1e-10
A, B = 1, 2
TEXT = "one\u2028line"


def unrelated():
    return LIMIT + LIMIT


@functools.lru_cache(
    maxsize=16
)
def scaled(x):
    amax = max(abs(x), FLOOR)
    if amax > LIMIT:
        amax = LIMIT
    return x / amax


class Model:
    size = 3
""".replace("FORM\x0cFEED", "FORM_FEED = '\x0c'; FEED")


def _fault(**changes: Any) -> Fault:
    fault = Fault(name="a fault", within="scaled", old="x", new="y", caught_by="agreement")
    return dataclasses.replace(fault, **changes)


@pytest.mark.parametrize(
    ("within", "old", "new"),
    [
        ("scaled", "x / amax", "x * (1 / amax)"),
        ("scaled", "maxsize=16", "maxsize=1"),
        ("LIMIT", "448.0", "480.0"),
        ("FLOOR", "1e-10", "0.0"),
        ("Model", "size = 3", "size = 4"),
        (
            "scaled",
            "    if amax > LIMIT:\n        amax = LIMIT\n",
            "",
        ),
        ("TEXT", "one", "two"),
    ],
)
def test_an_edit_changes_its_part_and_nothing_else(within: str, old: str, new: str) -> None:
    """In a function, decorators included, a class, a constant; over several lines; after odd characters."""
    edited = faults.edit(KERNEL, _fault(within=within, old=old, new=new), where="spec 'k'")
    assert edited == KERNEL.replace(old, new, 1)
    assert edited != KERNEL


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"old": "LIMIT * 2"},
            "spec 'k': fault 'a fault' applies 0 times in scaled, it must apply",
        ),
        (
            {"old": "LIMIT"},
            "spec 'k': fault 'a fault' applies 2 times in scaled, it must apply exac",
        ),
        ({"old": "480.0", "within": "LIMIT"}, "applies 0 times in LIMIT"),
        ({"within": "A"}, "spec 'k': fault 'a fault' names 'A', which its file does not define"),
        ({"within": "size"}, "names 'size', which its file does not define"),
    ],
)
def test_an_edit_applies_exactly_once(changes: dict[str, Any], message: str) -> None:
    """None or several: an error that names spec, fault and part, and says what to do."""
    with pytest.raises(SpecError, match=message):
        faults.edit(KERNEL, _fault(**changes), where="spec 'k'")


@pytest.mark.parametrize("fault", plain.FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_caught_by_its_check_alone(fault: Fault) -> None:
    """And the kernel it was planted in is as it was."""
    planted = faults.plant(FOUND, fault)
    assert planted.name == plain.SPEC.name
    assert checked(fault.caught_by, planted).outcome is Outcome.FAILED
    for check in ("agreement", "memory", "reproducibility"):
        assert checked(check, plain.SPEC).outcome is Outcome.PASSED


def test_planting_twice_gives_the_same_fault() -> None:
    """Each time a spec of its own."""
    first, second = (faults.plant(FOUND, plain.FAULTS[0]) for _ in range(2))
    assert first is not second
    for planted in (first, second):
        assert checked("agreement", planted).outcome is Outcome.FAILED


PACKAGE = {
    "theirs/__init__.py": "",
    "theirs/arithmetic.py": (
        "from .constants import TWO\nfrom .units import ONE\n\n\n"
        "def double(x):\n    return x * TWO * ONE\n"
    ),
    "theirs/constants.py": "TWO = 2.0\n",
    "theirs/units.py": "ONE = 1.0\n",
    "theirs/apart.py": "ONE = 1.0\n",
    "their_constants.py": "TWO = 2.0\n",
    "theirs/kernel.py": (
        "from tests.harness.plain import variant\n"
        "from bitproof.harness.spec import Fault, Bitwise\n"
        "import their_constants\n"
        "from .arithmetic import double\n"
        "from . import constants\n\n\n"
        "def run(tensors, params):\n"
        "    half = constants.TWO / 4\n"
        "    return {'y': double(tensors['x']) * half * their_constants.TWO}\n\n\n"
        "SPEC = variant(name='theirs', run=run, reproducible=Bitwise(control=run), faults=[\n"
        "    Fault(name='here', within='run', old=\"['x']\", new=\"['x'] * 1.5\",\n"
        "          caught_by='agreement'),\n"
        "    Fault(name='there', within='double', old='x * TWO', new='x * TWO * 1.5',\n"
        "          module='theirs.arithmetic', caught_by='agreement'),\n"
        "    Fault(name='beside', within='TWO', old='2.0', new='3.0',\n"
        "          module='theirs.constants', caught_by='agreement'),\n"
        "    Fault(name='outside', within='TWO', old='2.0', new='3.0',\n"
        "          module='their_constants', caught_by='agreement'),\n"
        "    Fault(name='further', within='ONE', old='1.0', new='1.5',\n"
        "          module='theirs.units', caught_by='agreement'),\n"
        "    Fault(name='apart', within='ONE', old='1.0', new='1.5',\n"
        "          module='theirs.apart', caught_by='agreement'),\n"
        "    Fault(name='nowhere', within='double', old='x', new='y',\n"
        "          module='theirs.missing', caught_by='agreement'),\n"
        "])\n"
    ),
    "theirs/listing.py": "from .kernel import SPEC\n",
}


@pytest.fixture
def package(write: Write) -> str:
    """A package with relative imports, whose specs are listed in a module of their own."""
    for name, text in PACKAGE.items():
        write(name, text)
    return "theirs.listing"


@pytest.mark.parametrize("name", ["here", "there", "beside", "outside", "further"])
def test_faults_are_planted_in_packages(package: str, name: str) -> None:
    """In the declaring file or one that it comes to import; relative imports hold, and originals stay."""
    (found,) = discovery.find([package])
    (fault,) = [fault for fault in found.spec.faults if fault.name == name]
    before = {name: module for name, module in sys.modules.items() if name.startswith("their")}
    planted = faults.plant(found, fault)
    assert checked("agreement", planted).outcome is Outcome.FAILED
    assert checked("agreement", found.spec).outcome is Outcome.PASSED
    assert {name: sys.modules[name] for name in before} == before
    for name in ("arithmetic", "constants"):
        assert getattr(sys.modules["theirs"], name) is sys.modules[f"theirs.{name}"]


def test_a_fault_that_cannot_be_imported_is_named(package: str) -> None:
    """A missing module, one that no spec uses, an edit that leaves no Python: the fault's mistake."""
    (found,) = discovery.find([package])
    here, *_, apart, nowhere = found.spec.faults
    with pytest.raises(SpecError, match=r"'apart' names theirs\.apart, which its file"):
        faults.plant(found, apart)
    with pytest.raises(SpecError, match="fault 'nowhere' cannot be imported: ModuleNotFoundError"):
        faults.plant(found, nowhere)
    with pytest.raises(SpecError, match="fault 'here' cannot be imported: SyntaxError"):
        faults.plant(found, dataclasses.replace(here, new="['x'"))


def test_a_fault_that_leaves_no_sound_spec_is_named(write: Write) -> None:
    """An edit of what the spec is declared with: its mistakes are told."""
    write(
        "edited.py",
        "from bitproof.harness.spec import Fault\n"
        "from tests.harness.plain import FAULTS, variant\n"
        "TENSORS = frozenset({'x'})\n"
        "FAULT = Fault(name='no set', within='TENSORS', old=\"frozenset({'x'})\", new=\"'x'\",\n"
        "              caught_by='memory')\n"
        "SPEC = variant(name='edited', strided=TENSORS, faults=(*FAULTS, FAULT))\n",
    )
    (found,) = discovery.find(["edited"])
    with pytest.raises(SpecError, match=r"spec 'edited' \(edited\): strided must be a frozenset"):
        faults.plant(found, found.spec.faults[-1])


def test_a_spec_must_stand_at_the_top_of_its_module() -> None:
    """Where an edited copy of the module can be asked for it."""
    hidden = dataclasses.replace(plain.SPEC, name="hidden")
    with pytest.raises(SpecError, match="spec 'hidden' is not declared at the top level of "):
        faults.plant(dataclasses.replace(FOUND, spec=hidden), plain.FAULTS[0])


def test_edited_sources_are_files_outside_the_checkout() -> None:
    """Triton reads kernels from their files, and nobody's repository is written to."""
    planted = faults.plant(FOUND, plain.FAULTS[0])
    module = sys.modules[planted.run.__module__]
    path = Path(str(module.__file__))
    assert path.is_file()
    assert not path.is_relative_to(Path(__file__).resolve().parents[3])
    assert Launch() == planted.launch_of({})
