"""Cases of the gated delta rule on several ranks: a call of the chunked kernels, and how many share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.case import Launch, Scale
from bitproof.harness.errors import UsageError
from bitproof.harness.strategies import correlated, gates, partitions
from bitproof.harness.strategies.partitions import Partition
from bitproof.kernels.delta.cases import CHUNK, DeltaCase, Kind

RANKS = (1, 2, 4, 8)
_USUAL = DeltaCase()


@dataclass(frozen=True, kw_only=True)
class RanksCase:
    """A call whose rows, slack included, are cut over `ranks` ranks; all of them run in one process."""

    call: DeltaCase = _USUAL
    ranks: int = 1

    def __post_init__(self) -> None:
        """Reject what is no call: UsageError."""
        if self.ranks < 1:
            raise UsageError(f"a case's ranks must be at least 1, it has {self.ranks}")

    @property
    def launch(self) -> Launch:
        """The call's."""
        return self.call.launch

    @property
    def seed(self) -> int:
        """The call's."""
        return self.call.seed

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """The call's, whole."""
        return self.call.tensors(device)

    def params(self) -> dict[str, Any]:
        """The call's, and `ranks`; no limits, which contracts have for whole sequences."""
        return {**self.call.params(), "limits": {}, "ranks": self.ranks}

    def features(self) -> list[str]:
        """The call's, and how ranks' borders cut its sequences."""
        cut = Partition(ranks=self.ranks, lengths=self.call.lengths, slack=self.call.slack)
        return [*self.call.features(), *cut.features(CHUNK)]


# What is compiled in, the plainest first: few, since each costs seconds to compile on a card. Where there are
# two value heads, their gates differ.
_BUILDS: tuple[dict[str, Any], ...] = (
    {"gate": "bounded", "initial": True},
    {"gate": "bounded", "precision": "narrow", "initial": True, "values": 24},
    {"gate": "log", "keys": 24, "initial": True},
    {"gate": "bounded", "precision": "fp32", "dtype": "fp32", "initial": True, "heads": 2},
    {"gate": "bounded", "precision": "targeted", "state_v_first": True, "keys": 24},
    {"gate": "bounded", "precision": "fp32", "retain": True, "keys": 24},
    {"gate": "plain", "dtype": "fp16", "initial": True, "state_v_first": True},
    {"gate": "bounded", "groups": 2, "retain": True, "initial": True},
)
# Widths of a card's cases, by those above.
_WIDE = {16: 64, 24: 60, 32: 128}


@cache
@st.composite
def rank_cases(
    draw: Any,
    *,
    kind: Kind,
    gradient: bool,
    ranks: tuple[int, ...] = RANKS,
    scale: Scale = Scale(),
) -> RanksCase:
    """A few sequences over a few ranks, whose states are not forgotten from one rank to the next.

    Shrinks toward the fewest ranks and tokens.
    """
    build = dict(draw(st.sampled_from(_BUILDS)))
    widths = {name: build.pop(name, 16) for name in ("keys", "values")}
    retain = build.pop("retain", False)
    if scale.on_card:
        widths = {name: _WIDE[width] for name, width in widths.items()}
    cut: Partition = draw(
        partitions.partitions(
            ranks=ranks, most=_most(scale, gradient), sequences=3 if gradient else 4
        )
    )
    operands: correlated.Kind = draw(st.sampled_from(("normal", "normal", "correlated")))
    call = DeltaCase(
        kind=kind,
        lengths=cut.lengths,
        slack=cut.slack,
        operands=operands,
        gates=draw(gates.gates(build.pop("gate"), kinds=("gentle", "usual", "gentle"))),
        gradient=gradient,
        retain=retain and gradient,
        seed=draw(st.integers(0, 2**16)),
        **widths,
        **build,
    )
    return RanksCase(call=call, ranks=cut.ranks)


def _most(scale: Scale, gradient: bool) -> int:
    """Rows of a case: on a card some chunks a rank, in the interpreter one or two."""
    if scale.on_card:
        return 4096 if scale.nightly else 1024
    return 48 if gradient else 100
