"""Answers of kernels that store intermediates: what is exact, what the stored roundings make of it, the rest.

A kernel that writes an intermediate in bf16 cannot be nearer to the exact answer than that rounding leaves
it. A storage model repeats the exact computation with just those roundings; what it loses is what the
kernel's storage explains, and whatever a kernel loses beyond it has to come from its fp32 arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitproof.oracles.formats import Floats


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """The exact answer, the storage model's, and what fp32 arithmetic may add, by rows.

    value  float64, any shape [...]: the exact answer; NaN or an infinity asks for the same
    model  float64, the shape of `value`: the answer with the kernel's stored intermediates rounded,
           the output itself included
    floor  float64, broadcastable to that shape, >= 0: absolute error of each element that fp32
           arithmetic may add
    rows   how many leading axes index rows, such as 2 for [token, head, :]: errors are judged by the
           Euclidean norm over the axes that remain, so that one token's fault is not lost in the rest
    limit  a contract's own threshold on the relative RMS error of the whole output, or None

    Raises ValueError where these do not fit together.
    """

    value: Floats
    model: Floats
    floor: Floats
    rows: int
    limit: float | None = None

    def __post_init__(self) -> None:
        """Name the part that does not fit."""
        for name in ("value", "model", "floor"):
            dtype = np.asarray(getattr(self, name)).dtype
            if dtype != np.float64:
                raise ValueError(f"the {name} of a modelled answer must be float64, it is {dtype}")
        if self.model.shape != self.value.shape:
            raise ValueError(
                f"the model of an answer of shape {self.value.shape} has shape {self.model.shape}"
            )
        if np.broadcast_shapes(np.shape(self.floor), self.value.shape) != self.value.shape:
            raise ValueError(
                f"a floor of shape {np.shape(self.floor)} does not broadcast to {self.value.shape}"
            )
        if not (np.asarray(self.floor) >= 0).all():
            raise ValueError("the floor of a modelled answer must be at least 0 everywhere")
        if not 0 <= self.rows <= self.value.ndim:
            raise ValueError(
                f"rows must be from 0 to the answer's {self.value.ndim} axes, it is {self.rows}"
            )
        if self.limit is not None and not self.limit > 0:
            raise ValueError(f"the limit of a modelled answer must be above 0, it is {self.limit}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the answer."""
        return self.value.shape
