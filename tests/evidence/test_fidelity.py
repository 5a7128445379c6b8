"""What the interpreter lane says about its own nearness to compiled code is complete, and documented."""

import re
from pathlib import Path

from triton.runtime.interpreter import InterpreterBuilder

from bitproof.harness.lanes.interpreter import overlay
from tests.evidence import fidelity

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "interpreter.md"


def test_every_operation_is_in_exactly_one_list():
    """Bit-equal, bounded, moving or absent: no operation of the interpreter is left out."""
    overlay.install()
    operations = {m.removeprefix("create_") for m in dir(InterpreterBuilder) if "create_" in m}
    lists = [fidelity.BIT_EQUAL, set(fidelity.BOUNDED), fidelity.MOVING, fidelity.ABSENT]
    assert {op for op in operations if sum(op in each for each in lists) != 1} == set()


def test_the_document_states_every_bound():
    """docs/interpreter.md has a row for each bounded operation, with its number."""
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))
    assert set(rows) == set(fidelity.BOUNDED)
    for name, bound in fidelity.BOUNDED.items():
        if bound.ulps is not None:
            assert rows[name].startswith(f"{bound.ulps:g} ulp")
