"""What callers of the delta-rule kernels pass, and what is refused.

Tensors are packed: the tokens of N sequences one after another, `cu_seqlens` [N + 1] int32 saying where each
begins; rows past its last entry are slack, their outputs zero. With H heads of q and k and HV = H * m
value heads:

    q, k            [T, H, K]       bf16, fp16 or fp32
    v               [T, HV, V]      as q
    g               [T, HV, K]      natural-log decay, or raw gates (see `oracles.delta.gates`)
    b, w            [T, HV, K], [T, HV, V]; or beta [T, HV] in place of both
    initial_state   [N, HV, K, V]   fp32, [N, HV, V, K] with `state_v_first`; zeros where there is none
    A_log, dt_bias  [HV], [HV, K]   fp32, for raw gates; a bounded gate may lack A_log, any gate dt_bias

`cu_seqlens` must begin at 0, never fall, and end at T at most. That is not checked: checking would wait for
the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from bitproof.harness import lanes
from bitproof.harness.spec import Params, Tensors
from bitproof.harness.targets.versions import release
from bitproof.oracles.precision import UPSTREAM, Precision, find_policy

CHUNK = 64
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_GATES = ("log", "plain", "bounded")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is not a tensor; `scale` None is K^-1/2.

    `lower_bound` is the least log-decay of a bounded gate: natural log, per token.

    `bounded` promises that no log-decay is below -5, as a bounded gate's never is; it saves time. Where that
    is broken, factors pass e^37.5 (see `kernels.delta.tiles.near_factors`); beyond e^88 they are infinite,
    and results may be NaN.

    ValueError: an unknown gate; a bound outside [-5, 0) for a bounded one.
    """

    scale: float | None = None
    gate: str = "log"
    lower_bound: float = -5.0
    normalise: bool = False
    state_v_first: bool = False
    precision: Precision = UPSTREAM
    bounded: bool = False

    def __post_init__(self) -> None:
        """Refuse what no kernel computes."""
        if self.gate not in _GATES:
            raise ValueError(f"gate must be one of {', '.join(_GATES)}, not {self.gate!r}")
        if self.gate == "bounded" and not -5.0 <= self.lower_bound < 0.0:
            raise ValueError(f"lower_bound must be at least -5 and below 0, not {self.lower_bound}")

    @staticmethod
    def of(params: Params) -> Options:
        """The options of a case's parameters, its policy by name or as a `Precision`."""
        names = ("scale", "gate", "lower_bound", "normalise", "state_v_first")
        return Options(
            **{name: params[name] for name in names},
            precision=find_policy(params["precision"]),
            bounded=params.get("bounded", False),
        )

    @property
    def shallow(self) -> bool:
        """Whether no log-decay is below -5."""
        return self.gate == "bounded" or self.bounded

    def scale_of(self, keys: int) -> float:
        """The factor of q k^T."""
        return keys**-0.5 if self.scale is None else self.scale


@dataclass(frozen=True, kw_only=True)
class Operands:
    """The tensors, checked against one another; b and w are beta twice where there is one number a token.

    The table of offsets has `room` for so many sequences, or for those there are where they are more: what
    is compiled depends on that number alone.

    ValueError, naming the tensor and what it should be: a shape, type or layout that does not fit.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    b: Tensor
    w: Tensor
    cu_seqlens: Tensor
    initial_state: Tensor | None = None
    a_log: Tensor | None = None
    dt_bias: Tensor | None = None
    state_v_first: bool = False
    room: int = 0

    @staticmethod
    def of(tensors: Tensors, options: Options) -> Operands:
        """From tensors by the names above; ValueError for beta beside b or w, or none of them."""
        scalar = "beta" in tensors
        if scalar == ("b" in tensors or "w" in tensors) or ("b" in tensors) != ("w" in tensors):
            raise ValueError("give either b and w, or beta in place of both")
        raw = options.gate != "log"
        if options.gate == "plain" and "A_log" not in tensors:
            raise ValueError("a plain gate needs A_log; only a bounded one may lack it")
        return Operands(
            q=tensors["q"],
            k=tensors["k"],
            v=tensors["v"],
            g=tensors["g"],
            cu_seqlens=tensors["cu_seqlens"],
            b=tensors["beta" if scalar else "b"],
            w=tensors["beta" if scalar else "w"],
            initial_state=tensors.get("initial_state"),
            a_log=tensors.get("A_log") if raw else None,
            dt_bias=tensors.get("dt_bias") if raw else None,
            state_v_first=options.state_v_first,
        )

    def __post_init__(self) -> None:
        """Check every tensor."""
        if self.q.dim() != 3 or self.v.dim() != 3:
            raise ValueError("q and v must be [T, heads, width], packed by cu_seqlens")
        if self.q.dtype not in _FLOATS:
            raise ValueError(f"q must be bf16, fp16 or fp32, it is {self.q.dtype}")
        if self.heads == 0 or self.value_heads % self.heads:
            raise ValueError(
                f"the {self.value_heads} value heads must be a multiple of q's {self.heads} heads"
            )
        if max(self.keys, self.values) > 256 or min(self.keys, self.values) < 1:
            raise ValueError(f"K and V must be from 1 to 256, they are {self.keys}, {self.values}")
        t, hv = len(self.q), self.value_heads
        vectors = {"b": (t, hv, self.keys), "w": (t, hv, self.values)}
        beta = {"beta": (t, hv)}
        self._require("q", self.q, tuple(self.q.shape), self.q.dtype)
        self._require("k", self.k, (t, self.heads, self.keys), self.q.dtype)
        self._require("v", self.v, (t, hv, self.values), self.q.dtype)
        self._require("g", self.g, (t, hv, self.keys))
        for name, shape in (beta if self.scalar else vectors).items():
            self._require(name, self.w if name == "w" else self.b, shape)
        if self.cu_seqlens.dim() != 1 or len(self.cu_seqlens) < 2:
            raise ValueError("cu_seqlens must be [N + 1] for N sequences, N at least 1")
        self._require("cu_seqlens", self.cu_seqlens, (self.sequences + 1,), torch.int32)
        self._require("initial_state", self.initial_state, self.state_shape, torch.float32)
        self._require("A_log", self.a_log, (hv,), torch.float32)
        self._require("dt_bias", self.dt_bias, (hv, self.keys), torch.float32)

    @staticmethod
    def _require(
        name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype | None = None
    ) -> None:
        if tensor is None:
            return
        if tuple(tensor.shape) != shape:
            raise ValueError(f"{name} must have shape {shape}, it has {tuple(tensor.shape)}")
        if dtype is None and tensor.dtype not in _FLOATS:
            raise ValueError(f"{name} must be bf16, fp16 or fp32, it is {tensor.dtype}")
        if dtype is not None and tensor.dtype != dtype:
            raise ValueError(f"{name} must be {dtype}, it is {tensor.dtype}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} must be contiguous")

    def require_gradients(self, do: Tensor, dfinal: Tensor) -> None:
        """ValueError unless the gradients of o and of the final state fit."""
        self._require("do", do, tuple(self.v.shape), self.v.dtype)
        self._require("dht", dfinal, self.state_shape, torch.float32)

    @property
    def scalar(self) -> bool:
        """Whether one number a token stands for both gates."""
        return self.b is self.w and self.b.dim() == 2

    @property
    def heads(self) -> int:
        """H."""
        return self.q.shape[1]

    @property
    def value_heads(self) -> int:
        """HV."""
        return self.v.shape[1]

    @property
    def groups(self) -> int:
        """Value heads that share one head of q and k."""
        return self.value_heads // self.heads

    @property
    def keys(self) -> int:
        """K."""
        return self.q.shape[2]

    @property
    def values(self) -> int:
        """V."""
        return self.v.shape[2]

    @property
    def sequences(self) -> int:
        """N."""
        return len(self.cu_seqlens) - 1

    @property
    def most_sequences(self) -> int:
        """As many as the table of offsets has room for."""
        return max(self.sequences, self.room)

    @property
    def state_shape(self) -> tuple[int, ...]:
        """Of initial and final states."""
        inner = (self.values, self.keys) if self.state_v_first else (self.keys, self.values)
        return (self.sequences, self.value_heads, *inner)

    @property
    def most_chunks(self) -> int:
        """At least as many as the chunks of all sequences and of the slack rows; needs no lengths."""
        return len(self.q) // CHUNK + self.sequences + 1

    @property
    def meta(self) -> dict[str, Any]:
        """Compile-time sizes that every kernel takes."""
        return {
            "HEADS": self.value_heads,
            "K": self.keys,
            "N": triton.next_power_of_2(self.most_sequences + 1),
            "PADDED_K": max(triton.next_power_of_2(self.keys), 16),
        }

    @property
    def padded_values(self) -> int:
        """V, rounded up to what a tensor core takes."""
        return max(int(triton.next_power_of_2(self.values)), 16)


def require_assembler(device: torch.device, version: str) -> None:
    """ValueError, with the remedy, on a card whose Triton `version` assembles chunked kernels wrongly.

    ptxas 12.8, which Triton 3.6 and 3.7 carry, loses descriptors of `wgmma` in some of them, which then read
    anywhere; see "undefined register" in docs/lowering.md.
    """
    spoilt = release(version) < (3, 8)
    if device.type == "cuda" and spoilt and not lanes.find_assembler():
        raise ValueError(
            f"Triton {version} carries ptxas 12.8, which assembles these kernels wrongly: use Triton 3.8 or "
            "newer, or let TRITON_PTXAS_PATH name ptxas 12.9 (triton/backends/nvidia/bin/ptxas-blackwell)"
        )


def of_case(tensors: Tensors, params: Params) -> tuple[Operands, Options]:
    """Operands and options of a case."""
    options = Options.of(params)
    return Operands.of(tensors, options), options


def name_gates(operands: Operands, db: Tensor, dw: Tensor) -> Mapping[str, Tensor]:
    """The gates' gradients by the names of the tensors they belong to."""
    return {"dbeta": db} if operands.scalar else {"db": db, "dw": dw}
