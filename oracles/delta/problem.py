"""A call of a delta-rule kernel as its oracles take it: in float64, gates activated, rows normalised."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitproof.oracles.delta import ranks
from bitproof.oracles.delta.chunk import make_chunks
from bitproof.oracles.delta.gates import GateParameters, activate, normalise
from bitproof.oracles.delta.ranks import Parts
from bitproof.oracles.delta.recurrence import Tokens

Tensors = Mapping[str, Tensor]
Params = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A call in float64, slack rows left out: `raw` as passed, `x` as the recurrence takes it.

    `parts` are what ranks hold of the sequences: each of them whole on one rank.
    """

    raw: Mapping[str, Tensor]
    x: Tokens
    gate: GateParameters
    initial: Tensor
    lengths: tuple[int, ...]
    parts: Parts
    scale: float
    slack: int
    scalar: bool
    normalise: bool
    v_first: bool

    @property
    def groups(self) -> int:
        """Value heads that share one q and k."""
        return self.raw["v"].shape[1] // self.raw["q"].shape[1]

    @property
    def deepest(self) -> float:
        """The largest cumulative log-decay of a chunk."""
        decays = make_chunks(self.parts.lengths, len(self.x.g)).split(self.x.g).cumsum(-2).abs()
        return float(decays.max()) if decays.numel() else 0.0


def pose_problem(tensors: Tensors, params: Params) -> Problem:
    """From tensors and parameters as `kernels.delta.arguments` describes them.

    ValueError for what no kernel can check without waiting for the device: offsets that do not begin at 0,
    fall, or end past the last row; NaN and infinities; and value heads that no head of q has.
    """
    starts = tensors["cu_seqlens"].tolist()
    lengths = tuple(stop - start for start, stop in itertools.pairwise(starts))
    rows = len(tensors["q"])
    if starts[:1] != [0] or min(lengths, default=0) < 0 or starts[-1] > rows:
        raise ValueError(
            f"cu_seqlens must begin at 0, never fall and end at {rows} at most, it is {starts}"
        )
    used, v_first = starts[-1], bool(params["state_v_first"])
    whole = {"initial_state", "A_log", "dt_bias", "dht"}
    raw = {
        name: (value if name in whole else value[:used]).double()
        for name, value in tensors.items()
        if name != "cu_seqlens"
    }
    for name, value in raw.items():
        if not value.isfinite().all():
            raise ValueError(f"{name} holds NaN or infinities, of which nothing is promised")
    for name in ("initial_state", "dht"):
        if name in raw and v_first:
            raw[name] = raw[name].transpose(-1, -2)
    heads, keys = raw["v"].shape[1], raw["q"].shape[2]
    groups = heads // max(raw["q"].shape[1], 1)
    if groups * raw["q"].shape[1] != heads:
        raise ValueError(f"v's {heads} heads must be a multiple of q's {raw['q'].shape[1]}")
    gate = GateParameters(
        gate=params["gate"],
        a_log=raw.get("A_log"),
        dt_bias=raw.get("dt_bias"),
        lower_bound=params["lower_bound"],
    )
    unit = normalise if params["normalise"] else torch.clone
    q, k = (unit(raw[name]).repeat_interleave(groups, 1) for name in "qk")
    b, w = (raw[name] if name in raw else raw["beta"][..., None] for name in "bw")
    x = Tokens(
        q=q,
        k=k,
        v=raw["v"],
        g=activate(raw["g"], gate),
        b=b.expand_as(raw["g"]),
        w=w.expand_as(raw["v"]),
    )
    empty = raw["q"].new_zeros(len(lengths), heads, keys, raw["v"].shape[2])
    return Problem(
        raw=raw,
        x=x,
        gate=gate,
        initial=raw.get("initial_state", empty),
        lengths=lengths,
        parts=ranks.cut(lengths, rows, params.get("ranks", 1)),
        # As a kernel takes it.
        scale=float(np.float32(keys**-0.5 if params["scale"] is None else params["scale"])),
        slack=len(tensors["q"]) - used,
        scalar="beta" in tensors,
        normalise=bool(params["normalise"]),
        v_first=v_first,
    )
