"""Inputs and outputs of the delta-rule kernels cut into sequences and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bitproof.harness.case import Inputs
from bitproof.harness.spec import Tensors

# Inputs and outputs by what their first axis counts: tokens, sequences.
TOKENS = ("q", "k", "v", "g", "b", "w", "beta", "do")
ROWS = ("o", "dq", "dk", "dv", "dg", "db", "dw", "dbeta")
SEQUENCES = ("initial_state", "dht")
STATES = ("final_state", "d_initial_state")
# Outputs that are sums over all tokens, which another packing adds in another order.
SUMS = ("dA_log", "ddt_bias")

Part = tuple[int, Tensor]
"""A sequence, whose states are taken, and the rows of its tokens."""


def repack(inputs: Inputs, parts: Sequence[Part], slack: Tensor | None = None) -> Inputs:
    """The inputs with these sequences in place of all, then the rows `slack`."""
    sizes = torch.tensor([0, *(len(rows) for _, rows in parts)])
    starts = sizes.cumsum(0).to(inputs.tensors["cu_seqlens"])
    return inputs.replace(**of_parts(inputs.tensors, parts, slack), cu_seqlens=starts)


def of_parts(
    tensors: Tensors, parts: Sequence[Part], slack: Tensor | None = None
) -> dict[str, Tensor]:
    """What of `tensors`, inputs or outputs, belongs to the parts and to the rows `slack`."""
    rows = torch.cat([rows for _, rows in parts] + ([] if slack is None else [slack]))
    sequences = torch.tensor([sequence for sequence, _ in parts], device=rows.device)
    return {
        **{name: tensors[name][rows] for name in (*TOKENS, *ROWS) if name in tensors},
        **{name: tensors[name][sequences] for name in (*SEQUENCES, *STATES) if name in tensors},
    }


def lengths(inputs: Inputs) -> list[int]:
    """How many tokens each sequence has."""
    found: list[int] = inputs.tensors["cu_seqlens"].diff().tolist()
    return found


def whole(inputs: Inputs, sequence: int) -> Part:
    """A sequence with all its rows."""
    offsets = inputs.tensors["cu_seqlens"]
    start, stop = offsets[sequence : sequence + 2].tolist()
    return sequence, torch.arange(start, stop, device=offsets.device)


def slack_rows(inputs: Inputs) -> Tensor:
    """The rows past the last sequence."""
    offsets = inputs.tensors["cu_seqlens"]
    return torch.arange(int(offsets[-1]), len(inputs.tensors["q"]), device=offsets.device)
