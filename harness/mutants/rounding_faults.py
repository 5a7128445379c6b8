"""Single faults of casts, rounding and precision: what may stand in the place of a node."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bitproof.harness.mutants.places import Place, called, keyword

_FLOATS = ("float32", "float16", "bfloat16", "float8e4nv", "float8e5")
_ROUNDINGS = ("round", "saturate", "clamp", "to_e4m3")


def drop_cast(place: Place) -> Iterator[str]:
    """x.to(type) -> x, casts to 64-bit integers apart, which have an operator of their own."""
    call = _cast(place)
    if call and not place.of(call.args[0]).endswith("int64"):
        assert isinstance(call.func, ast.Attribute)
        yield place.of(call.func.value)


def round_twice(place: Place) -> Iterator[str]:
    """x.to(type) -> x.to(tl.float16).to(type), to bf16 first where the type is fp16."""
    call = _cast(place)
    if call and not _is_wide(place, call) and keyword(call, "bitcast") is None:
        assert isinstance(call.func, ast.Attribute)
        kind = place.of(call.args[0])
        first = "tl.bfloat16" if kind.endswith(".float16") else "tl.float16"
        base = place.operand(call.func.value)
        yield f"{base}.to({first}).to({', '.join(place.of(one) for one in call.args)})"


def round_toward_zero(place: Place) -> Iterator[str]:
    """x.to(type) -> the same, toward zero."""
    call = _cast(place)
    if call and not _is_wide(place, call) and not call.keywords:
        yield place.rewritten(call, changed={"fp_downcast_rounding": '"rtz"'})


def _cast(place: Place) -> ast.Call | None:
    call = place.call("to")
    return call if call and isinstance(call.func, ast.Attribute) and call.args else None


def _is_wide(place: Place, call: ast.Call) -> bool:
    """Whether a cast rounds no float: to fp32, or to an integer."""
    text = place.of(call.args[0])
    return "float32" in text or "int" in text.replace("pointer", "")


def remove_rounding(place: Place) -> Iterator[str]:
    """round(x, ...) -> x."""
    node = place.node
    if not isinstance(node, ast.Call) or not node.args:
        return
    name = called(node)
    if name in ("floor", "ceil") or any(part in name for part in _ROUNDINGS):
        yield place.of(node.args[0])


def approximate(place: Place) -> Iterator[str]:
    """div_rn(a, b) -> a / b, sqrt_rn(x) -> sqrt(x)."""
    call = place.call("div_rn", "sqrt_rn")
    if call and called(call) == "div_rn" and len(call.args) == 2:
        first, second = (place.operand(one) for one in call.args)
        yield f"{first} / {second}"
    elif call and called(call) == "sqrt_rn":
        yield place.of(call).replace("sqrt_rn", "sqrt", 1)


def move_cast(place: Place) -> Iterator[str]:
    """(a * b).to(type) -> a.to(type) * b.to(type); a.to(type) * b -> (a * b).to(type)."""
    call = _cast(place)
    if call and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.BinOp):
        product = call.func.value
        if isinstance(product.op, ast.Mult) and not _is_wide(place, call):
            first, second = (place.operand(one) for one in (product.left, product.right))
            kind = place.of(call.args[0])
            yield f"({first}).to({kind}) * ({second}).to({kind})"
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left = node.left
        if isinstance(left, ast.Call) and called(left) == "to" and left.args and not left.keywords:
            assert isinstance(left.func, ast.Attribute)
            base, kind = place.of(left.func.value), place.of(left.args[0])
            if any(one in kind for one in _FLOATS):
                yield f"(({base}) * {place.operand(node.right)}).to({kind})"


def change_precision(place: Place) -> Iterator[str]:
    """input_precision "tf32" -> "ieee" and back."""
    call = place.call("dot")
    precision = keyword(call, "input_precision") if call else None
    if call and precision is not None:
        new = '"ieee"' if "tf32" in place.of(precision) else '"tf32"'
        yield place.rewritten(call, changed={"input_precision": new})
