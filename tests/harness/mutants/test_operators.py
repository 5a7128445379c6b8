"""Operators: each makes the faults that it is named after, and nothing that is no Python."""

from __future__ import annotations

import ast

import pytest

from bitproof.harness.mutants.edits import Source
from bitproof.harness.mutants.generation import make_edits
from bitproof.harness.mutants.operators import OPERATORS, Operator

# What stands in a kernel, and what each operator makes of it: all of it, in order.
EXPECTED = {
    "load mask dropped": ("x = tl.load(p, mask=m, other=0.0)", ["x = tl.load(p)"]),
    "store mask dropped": ("tl.store(p, v, mask=m)", ["tl.store(p, v)"]),
    "atomic mask dropped": ("tl.atomic_add(p, v, mask=m)", ["tl.atomic_add(p, v)"]),
    "mask of one axis only": ("m = a & (b < c)", ["m = a", "m = (b < c)"]),
    "bound off by one": ("m = a < b", ["m = a <= b"]),
    "bound one short": ("m = a < b", ["m = a < b - 1"]),
    "axis of a broadcast swapped": ("y = x[:, None]", ["y = x[None, :]"]),
    "other of a masked load changed": (
        "x = tl.load(p, mask=m, other=0.0)",
        ["x = tl.load(p, mask=m, other=1.0)"],
    ),
    "other of a masked load dropped": (
        "x = tl.load(p, mask=m, other=0.0)",
        ["x = tl.load(p, mask=m)"],
    ),
    "padding value changed": ("x = tl.where(m, x, 0.0)", ["x = tl.where(m, x, 1.0)"]),
    "selection dropped": ("x = tl.where(m, a, 0.0)", ["x = a"]),
    "selection swapped": ("x = tl.where(m, a, b)", ["x = tl.where(m, b, a)"]),
    "offset left out": ("y = p_ptr + a", ["y = p_ptr"]),
    "head, batch, expert or sequence offset left out": ("y = base + head", ["y = base"]),
    "stride left out": ("place = i * stride", ["place = i"]),
    "stride off by one": ("place = i * stride", ["place = i * (stride + 1)"]),
    "quotient and remainder swapped": ("y = a // b", ["y = a % b"]),
    "blocks rounded down": ("y = tl.cdiv(a, b)", ["y = (a) // (b)"]),
    "wrong program axis": ("y = tl.program_id(0)", ["y = tl.program_id(1)"]),
    "64-bit cast dropped": ("y = i.to(tl.int64) * 2", ["y = i * 2"]),
    "one iteration fewer": (
        "for i in range(0, n, 16):\n        pass",
        ["for i in range(0, (n) - 16, 16):\n        pass"],
    ),
    "first iteration skipped": (
        "for i in tl.static_range(4):\n        pass",
        ["for i in tl.static_range(1, 4):\n        pass"],
    ),
    "condition inverted": ("if FLAG:\n        x = 1", ["if not (FLAG):\n        x = 1"]),
    "comparison replaced": ("m = a == b", ["m = a != b"]),
    "accumulator overwritten": ("acc += x", ["acc = x"]),
    "accumulation left out": ("acc += x", ["pass"]),
    "accumulator of a product dropped": ("y = tl.dot(a, b, acc)", ["y = tl.dot(a, b)"]),
    "accumulator not started at zero": (
        "y = tl.zeros((N,), tl.float32)",
        ["y = tl.full((N,), 1, tl.float32)"],
    ),
    "accumulator not fp32": (
        "y = tl.zeros((N,), tl.float32)",
        ["y = tl.zeros((N,), tl.float16)"],
    ),
    "imprecise accumulation": (
        "y = tl.dot(a, b, max_num_imprecise_acc=128)",
        ["y = tl.dot(a, b, max_num_imprecise_acc=None)"],
    ),
    "factor left out": ("y = a * b", ["y = a", "y = b"]),
    "factor applied twice": ("y = a * b", ["y = a * b * b"]),
    "scale of another group": ("p = scale_ptr + i", ["p = scale_ptr + (i) * 0"]),
    "sum and difference swapped": ("y = a + (b + c)", ["y = a - (b + c)", "y = a + (b - c)"]),
    "product and quotient swapped": ("y = a * b", ["y = a / b"]),
    "operands swapped": ("y = a - b", ["y = b - a"]),
    "transposition dropped": ("y = a.T", ["y = a"]),
    "sign dropped": ("y = -a + tl.abs(b)", ["y = a + tl.abs(b)", "y = -a + b"]),
    "minimum for maximum": ("y = tl.maximum(a, b)", ["y = tl.minimum(a, b)"]),
    "sum for maximum": ("y = tl.max(a, 1)", ["y = tl.sum(a, 1)"]),
    "reduction over another axis": ("y = tl.sum(a, axis=1)", ["y = tl.sum(a, axis=0)"]),
    "cumulative sum reversed or exclusive": (
        "y = tl.cumsum(a, 0)",
        ["y = tl.cumsum(a, 0, reverse=True)", "y = tl.cumsum(a, 0) - a"],
    ),
    "epsilon outside the root": ("y = tl.sqrt(a + EPS)", ["y = tl.sqrt(a) + EPS"]),
    "epsilon missing": ("y = tl.sqrt(a + 1e-6)", ["y = tl.sqrt(a)"]),
    "constant one ulp off": (
        "y = a * 448.0",
        ["y = a * 448.0000305175781", "y = a * 447.9999694824219"],
    ),
    "integer constant off by one": ("y = a >> 23", ["y = a >> 24"]),
    "bit operation replaced": ("y = a | b", ["y = a & b"]),
    "function of another base": ("y = tl.exp2(a)", ["y = tl.exp(a)"]),
    "cast dropped": ("y = a.to(tl.bfloat16)", ["y = a"]),
    "rounded twice": ("y = a.to(tl.bfloat16)", ["y = a.to(tl.float16).to(tl.bfloat16)"]),
    "rounded toward zero": (
        "y = a.to(tl.bfloat16)",
        ['y = a.to(tl.bfloat16, fp_downcast_rounding="rtz")'],
    ),
    "rounding or saturation removed": ("y = saturate(a, 448.0)", ["y = a"]),
    "approximate for exact": ("y = tl.math.div_rn(a, b)", ["y = a / b"]),
    "cast moved across a product": (
        "y = (a * b).to(tl.bfloat16)",
        ["y = (a).to(tl.bfloat16) * (b).to(tl.bfloat16)"],
    ),
    "input precision changed": (
        'y = tl.dot(a, b, input_precision="tf32")',
        ['y = tl.dot(a, b, input_precision="ieee")'],
    ),
    "store for an atomic": ("tl.atomic_add(p, v, mask=m)", ["tl.store(p, v, mask=m)"]),
    "atomic for a store": ("tl.store(p, v, mask=m)", ["tl.atomic_add(p, v, mask=m)"]),
    "barrier dropped": ("tl.debug_barrier()", ["pass"]),
    "store left out": ("tl.store(p, v)", ["pass"]),
}


@pytest.mark.parametrize("operator", OPERATORS, ids=[one.name for one in OPERATORS])
def test_an_operator_makes_the_faults_that_it_is_named_after(operator: Operator) -> None:
    """These and no others."""
    name = operator.name
    body, expected = EXPECTED[name]
    head = "def kernel():\n    "
    source = Source(text=head + body)
    made = [
        source.apply(edit) for one, edit in make_edits(source, source.tree.body[0]) if one == name
    ]
    assert [ast.unparse(ast.parse(text)) for text in made] == [
        ast.unparse(ast.parse(head + text)) for text in expected
    ]


def test_every_operator_is_expected_to_make_something_and_says_what_inspired_it() -> None:
    """The table and the expectations are of the same operators."""
    assert {one.name for one in OPERATORS} == set(EXPECTED)
    assert all(len(one.inspired) > 10 for one in OPERATORS)
