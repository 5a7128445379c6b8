"""The same cases on an H200 and here: the verdicts and the bits are equal.

`verdicts.json` holds drawn cases of every kernel and check, one for each planted fault, and what an H200
said of them (`verdicts` takes them).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bitproof.harness import lanes
from bitproof.harness.bounds import ExactBits
from bitproof.harness.subjects.discovery import find
from tests.evidence import verdicts

DATA = json.loads(verdicts.TABLE.read_text(encoding="utf-8"))
KERNELS = sorted({row["kernel"] for row in DATA["rows"]})
# Dozens of launches of large kernels, for which dsrelu_fp8 and the recurrent forms stand in every run.
LONG = {"dsrelu_bf16", "dsrelu_fp8", "gdn2_chunk", "gdn2_chunk_vjp", "kda_chunk", "kda_chunk_vjp"}

# Where the lanes may differ on a case, and why.
APART = {
    "does not mask the tail of a head": "a card does not tell of a read whose lane is discarded",
    "orders the sum over tiles alone": "whether a card's atomics change their order is chance",
}


def _rows(kernel: str) -> list[tuple[dict[str, Any], dict[str, str]]]:
    pairs = zip(DATA["rows"], DATA["verdicts"]["cuda"]["rows"], strict=True)
    return [(row, verdict) for row, verdict in pairs if row["kernel"] == kernel]


def test_the_verdicts_were_given_by_a_card() -> None:
    """Verdicts of this lane would agree with themselves."""
    assert "H200" in DATA["verdicts"]["cuda"]["versions"]["card"]


def test_no_row_is_about_a_kernel_that_is_gone() -> None:
    """A kernel that is added has rows once somebody judges it on a card; one that goes takes its rows."""
    assert set(KERNELS) <= {found.spec.name for found in find()}


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in KERNELS],
)
def test_both_lanes_say_the_same(kernel: str) -> None:
    """Equal verdicts and inputs on every row, and equal outputs where the bound is exact bits."""
    spec = find([], [kernel])[0].spec
    exact = all(isinstance(bound, ExactBits) for bound in spec.bounds.values())
    lane = lanes.present()
    for row, on_card in _rows(kernel):
        here = verdicts.judge(row, lane)
        compared = ["inputs", "outputs"] if exact else ["inputs"]
        compared += [] if row["fault"] in APART else ["outcome"]
        differing = [name for name in compared if here.get(name) != on_card.get(name)]
        assert not differing, (row["fault"], row["check"], row["case"])
