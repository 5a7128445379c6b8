"""Far ends of the contract that small drawn cases seldom reach, and calls that must be refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from bitproof.harness.case import Inputs
from bitproof.harness.spec import Refusal
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.gates import Gates
from bitproof.kernels.delta.cases import DeltaCase, Kind
from bitproof.kernels.delta.ranks.cases import RanksCase


def corners(kind: Kind, *, gradient: bool = False) -> tuple[RanksCase, ...]:
    """A sequence over all of four ranks, which hardly decays; forward, others with states stand beside it.

    Then what is not drawn: three heads, rows that are not normalised, a scale, gates in types of their own,
    and fp32 under the policy that keeps the least of it.
    """
    call = DeltaCase(
        kind=kind,
        lengths=(30,) if gradient else (6, 30, 0, 4),
        groups=2,
        gates=Gates(gate="bounded", kind="gentle"),
        precision="fp32",
        initial=True,
        gradient=gradient,
    )
    other = DeltaCase(
        kind=kind,
        lengths=(3, 2),
        heads=3,
        normalise=False,
        scale=floats.pattern(-0.3),
        precision="fp32",
        decay_dtype="bf16",
        gate_dtype="fp32",
        gradient=gradient,
    )
    narrow = DeltaCase(kind=kind, lengths=(5,), dtype="fp32", precision="narrow", gradient=gradient)
    return tuple(RanksCase(call=one, ranks=n) for one, n in ((call, 4), (other, 2), (narrow, 2)))


def refusals(kind: Kind, *, gradient: bool = False) -> tuple[Refusal, ...]:
    """No rank at all, and offsets that cannot be cut."""
    call = DeltaCase(kind=kind, lengths=(2, 1), groups=2, gradient=gradient)
    case = RanksCase(call=call, ranks=2)

    def with_offsets(*offsets: int) -> Callable[[Inputs], Inputs]:
        def spoil(inputs: Inputs) -> Inputs:
            cu = inputs.tensors["cu_seqlens"]
            return inputs.replace(
                cu_seqlens=torch.tensor(offsets, dtype=cu.dtype, device=cu.device)
            )

        return spoil

    def without_ranks(inputs: Inputs) -> Inputs:
        return replace(inputs, params={**inputs.params, "ranks": 0}, case=None)

    return (
        Refusal(name="no rank", case=case, spoil=without_ranks),
        Refusal(name="sequences that begin at row 1", case=case, spoil=with_offsets(1, 2, 3)),
        Refusal(name="offsets that fall", case=case, spoil=with_offsets(0, 3, 2)),
        Refusal(name="sequences past the last row", case=case, spoil=with_offsets(0, 2, 4)),
    )
