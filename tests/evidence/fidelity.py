"""How near the interpreter lane comes to compiled code, operation by operation.

Every operation of Triton's interpreter is in exactly one of these sets, which a test keeps complete;
docs/interpreter.md says the same to a reader. The evidence is the table `digests.json`, which
`take_digests` took on an H200.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How far the lane and compiled code may be apart: in ulp of the fp32 result, or in words."""

    limit: str
    source: str
    ulps: float | None = None


_BIT_EQUAL = """
    add addptr and ashr bitcast ceil clampf fabs fadd fmul fneg fma frem fsub floor
    fp_ext fp_to_fp fp_to_si fp_to_ui fp_trunc si_to_fp ui_to_fp int_cast
    fcmpOEQ fcmpOGE fcmpOGT fcmpOLE fcmpOLT fcmpONE fcmpUEQ fcmpUGE fcmpUGT fcmpULE fcmpULT fcmpUNE
    icmpEQ icmpNE icmpSGE icmpSGT icmpSLE icmpSLT icmpUGE icmpUGT icmpULE icmpULT
    iabs idiv lshr maximumf maxnumf maxsi maxui minimumf minnumf minsi minui mul or
    precise_divf precise_sqrt sdiv select shl srem sub udiv umulhi urem xor histogram
    """

_MOVING = """
    broadcast cat expand_dims gather get_num_programs get_program_id int_to_ptr join make_range
    ptr_to_int reshape splat split trans unsplat advance make_block_ptr make_tensor_descriptor
    load store masked_load masked_store tensor_pointer_load tensor_pointer_store
    descriptor_load descriptor_store descriptor_gather descriptor_scatter
    atomic_load atomic_store atomic_poll atomic_cas barrier print assert assume
    """

# Equal bit for bit, any NaN being as good as another.
BIT_EQUAL = frozenset(_BIT_EQUAL.split())

# Moving data or saying where it is: nothing is computed.
MOVING = frozenset(_MOVING.split())

# Not in the interpreter: the lane answers "unsupported".
ABSENT = frozenset({"extern_elementwise", "inline_asm"})

_PTX = "PTX ISA 8.7"
_GUIDE = "CUDA C++ Programming Guide 13.0, mathematical functions"

BOUNDED: Mapping[str, Bound] = {
    "exp": Bound(ulps=2.5, limit="of 2^p, p the rounded x * log2(e)", source=f"{_PTX}, ex2"),
    "exp2": Bound(ulps=2.5, limit="of a normal result", source=f"{_PTX}, ex2"),
    "log": Bound(ulps=1.5, limit="of the result", source=f"{_GUIDE}, logf"),
    "log2": Bound(ulps=1.5, limit="of the result", source=f"{_GUIDE}, log2f"),
    "sin": Bound(ulps=2.0, limit="of the result", source=f"{_GUIDE}, sinf"),
    "cos": Bound(ulps=2.0, limit="of the result", source=f"{_GUIDE}, cosf"),
    "erf": Bound(ulps=2.5, limit="of the result", source=f"{_GUIDE}, erff"),
    "sqrt": Bound(ulps=1.5, limit="of the result", source=f"{_PTX}, sqrt.approx"),
    "rsqrt": Bound(ulps=2.5, limit="of the result", source=f"{_PTX}, rsqrt.approx"),
    "fdiv": Bound(ulps=2.0, limit="of the result; fp64 is exact", source=f"{_PTX}, div.full"),
    "approx_divf": Bound(
        ulps=2.0, limit="for divisors from 2^-126 to 2^126", source=f"{_PTX}, div.approx"
    ),
    "dot": Bound(
        limit="K * 2^-23 of the product of magnitudes (K * 2^-13 for fp8 operands)",
        source="truncating additions of fp32 (13 bits for fp8) in a tensor core, measured",
    ),
    "dot_scaled": Bound(
        limit="K * 2^-23 of the product of magnitudes",
        source="scaled operands are exact in bf16 or fp16, then as dot",
    ),
    "atomic_rmw": Bound(
        limit="(n - 1) units of the type times the sum of magnitudes for a floating-point add",
        source="the order of programs; integers and other operations are equal",
    ),
    "reduce": Bound(
        limit="(n - 1) units of the accumulation type times the sum of magnitudes, for sums and "
        "products of floats; the index among equals with tie_break_left=False; NaN in argmax",
        source="the shape of the tree; integers, max and min are equal",
    ),
    "scan": Bound(
        limit="(n - 1) units of the accumulation type times the sum of magnitudes, for floats",
        source="the shape of the tree; integers are equal",
    ),
    "contraction": Bound(
        limit="one rounding of the product, where fusion is on and the compiler sees more or less "
        "than an eager interpreter (see fusion.py)",
        source="LLVM's and ptxas's choice",
    ),
}
