"""The session an overlaid interpreter is in; outside of one, Triton behaves as shipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(kw_only=True)
class Session:
    """What the overlay consults while one launch is interpreted.

    `order` names the sequence in which the programs of the grid run (see `order`), `watch` is
    the sanitizer that sees every access (see `sanitizer`) or None, `fence` what stops wild ones
    where nobody watches (see `sanitizer.fence`) or None, `fp_fusion` says whether `a * b + c` contracts to
    one fused multiply-add, as compiled code does when fusion is on. `poison` is the byte of which those lanes
    of a masked load consist that are off and have no `other`: the language leaves them undefined. `on_grid`
    names conversions, such as "fp32 to e4m3", whose values are claimed to need no rounding. `launches` are
    the kernels that were started, in order (see `compiling.launch.KernelLaunch`). Where sums are `reordered`,
    those of floats take another order than usual (see `numerics.sums`); `sums` counts them, or those that
    could take one. In every second run, results that hang on a reduction's tree come out otherwise.
    `target` is that whose tensor cores multiply, `asking` says whether its compiler is asked by which
    instruction where that decides bits, `products` keeps for each (file, line) of a product how its
    instruction is known.
    `vast` is how many elements here stand for 2^31 and more, or None where no tensor is so large; `small`
    says whether an address lies in an input that never is.
    """

    order: Any = None
    watch: Any = None
    fence: Any = None
    fp_fusion: bool = True
    poison: int = 0
    on_grid: frozenset[str] = frozenset()
    launches: list[Any] = field(default_factory=list)
    run: int = 0
    vast: int | None = None
    small: Callable[[int], bool] = lambda address: False
    reordered: bool = False
    sums: int = 0
    target: str = "sm_90"
    asking: bool = False
    products: dict[tuple[str, int], str] = field(default_factory=dict)
    scratch: dict[str, Any] = field(default_factory=dict)


current: Session | None = None


@contextmanager
def session(new: Session) -> Iterator[Session]:
    """Make `new` the current session for the duration; sessions do not nest.

    A GPU raises no floating-point warnings, so numpy does not either.
    """
    global current
    if current is not None:
        raise RuntimeError("an interpreter session is already active in this process")
    current = new
    try:
        with np.errstate(all="ignore"):
            yield new
    finally:
        current = None
