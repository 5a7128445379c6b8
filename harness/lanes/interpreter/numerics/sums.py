"""Float sums whose bits hang on an order: noted as they are made, and made in another order where asked.

Compiled code adds in one order that the compiler picked, or in none where atomics meet. A session whose sums
are `reordered` is a control: outputs that keep their bits under it would not show which order was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bitproof.harness.lanes.interpreter import state
from bitproof.harness.targets import roundings as r

Columns = Sequence[r.Array]
Combine = Callable[[Columns, Columns], Columns]

# With fewer terms than that no order gives other bits, since an addition commutes.
_TERMS = 3


def meet() -> bool:
    """Whether a sum of floats that is to be made is to take another order; noted where it is not."""
    session = state.current
    if session is None:
        return False
    if not session.reordered:
        session.sums += 1
    return session.reordered


def note() -> None:
    """Note a sum that took another order, and whose bits may hang on it."""
    assert state.current is not None
    state.current.sums += 1


def several(terms: r.Array, axis: int) -> bool:
    """Whether some sum along `axis` has so many terms that are not zero that their order can matter."""
    return terms.shape[axis] >= _TERMS and bool(((terms != 0).sum(axis) >= _TERMS).any())


def several_products(a: r.Array, b: r.Array, acc: r.Array) -> bool:
    """The same of the sums `a @ b + acc`."""
    terms = np.matmul((a != 0).astype(np.float32), (b != 0).astype(np.float32)) + (acc != 0)
    return bool((terms >= _TERMS).any())


def reduce_neighbours(columns: Columns, combine: Combine) -> Columns:
    """Reduce the first axis of every column (a power of two long) by combining neighbours."""
    while len(columns[0]) > 1:
        columns = combine([c[0::2] for c in columns], [c[1::2] for c in columns])
    return [column[0] for column in columns]


def scan_in_sequence(columns: Columns, combine: Combine) -> Columns:
    """Scan the first axis of every column, one element after another."""
    done = [[column[:1]] for column in columns]
    for place in range(1, len(columns[0])):
        earlier = [one[-1] for one in done]
        combined = combine(earlier, [column[place : place + 1] for column in columns])
        for one, new in zip(done, combined, strict=True):
            one.append(np.asarray(new))
    return [np.concatenate(one) for one in done]


def meet_atomics(addresses: r.Array, on: r.Array) -> bool:
    """Note atomic additions of floats to `addresses` where `on`; whether they are to take another order.

    In a session whose sums are reordered only addresses that are met again count.
    """
    session = state.current
    assert session is not None
    if not session.reordered:
        session.sums += 1
        return False
    met = session.scratch.setdefault("added", {})
    met.setdefault(len(session.launches), []).append(addresses[on].ravel())
    return True


def count_met_again() -> None:
    """Note the addresses to which one launch added several times."""
    session = state.current
    assert session is not None
    for found in session.scratch.pop("added", {}).values():
        _, counts = np.unique(np.concatenate(found), return_counts=True)
        session.sums += int((counts > 1).sum())
