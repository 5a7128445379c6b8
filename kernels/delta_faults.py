"""Planted faults of the delta-rule kernels: what a tired colleague would write, and who must see it.

docs/delta.md lists those of the systems' history that no edit can plant, with the reason.
"""

from __future__ import annotations

from harness.spec import Fault


def _fault(
    module: str, within: str, name: str, old: str, new: str, caught_by: str = "agreement"
) -> Fault:
    module = f"kernels.delta_{module}"
    return Fault(name=name, within=within, old=old, new=new, caught_by=caught_by, module=module)


_UNINITIALISED = "state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)"

STATES = (
    _fault(
        "states",
        "pass_states",
        "begins at what the final state's memory holds",
        _UNINITIALISED,
        "place, mask = state_places(final_ptr, number, column, K, V, V_FIRST, PADDED_K, BLOCK_V)\n"
        "        state = tl.load(place, mask=mask, other=0.0)",
        caught_by="reproducibility",
    ),
)
WITHIN = (
    _fault(
        "within",
        "within",
        "includes the diagonal in L",
        "lower = tl.zeros((CHUNK, CHUNK), tl.float32)",
        "lower = tl.where(diagonal, tl.sum(bk * k, 1)[:, None], 0.0)",
    ),
)
SCALAR = (
    _fault(
        "tiles",
        "load_gate",
        "reads the first head's beta in every head",
        "one = load_rows(ptr, first, end, heads, head, 0, 1, 1)",
        "one = load_rows(ptr, first, end, heads, 0, 0, 1, 1)",
    ),
)
GRADIENTS = (
    _fault(
        "gradients",
        "of_scores",
        "leaves nobody's rows of dg unwritten",
        "        store_rows(dg_ptr, nothing, first, end, HEADS, head, column, K, BLOCK_K)\n",
        "",
        caught_by="reproducibility",
    ),
)
SCALAR_GRADIENTS = (
    _fault(
        "gradients",
        "of_products",
        "leaves the values' share out of dbeta",
        "tl.store(place, dbeta[:, None], mask=mask)",
        "tl.store(place, dbeta[:, None] * 0.0, mask=mask)",
    ),
)
TOKENS = (
    _fault(
        "recurrent",
        "recurrent",
        "begins at what the final state's memory holds",
        _UNINITIALISED,
        "place, mask = state_places(\n"
        "            final_ptr, number, first_column, K, V, V_FIRST, PADDED_K, BLOCK_V\n"
        "        )\n"
        "        state = tl.load(place, mask=mask, other=0.0)",
        caught_by="reproducibility",
    ),
    _fault(
        "recurrent",
        "recurrent",
        "reads the state before it is written",
        "        state += k[:, None] * v_new[None, :]\n        o = scale * tl.sum(q[:, None] * state, 0)\n",
        "        o = scale * tl.sum(q[:, None] * state, 0)\n        state += k[:, None] * v_new[None, :]\n",
    ),
)
SCALAR_TOKENS = (
    _fault(
        "recurrent",
        "recurrent",
        "leaves beta out of what is written",
        "erase, write = beta * k, beta * v",
        "erase, write = beta * k, v",
    ),
)
