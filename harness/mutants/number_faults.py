"""Single faults of loops, accumulation and arithmetic: what may stand in the place of a node."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import numpy as np

from bitproof.harness.mutants.places import Place, called, is_language, keyword, names_in


def change_padding(place: Place) -> Iterator[str]:
    """tl.where(m, x, 0.0) -> tl.where(m, x, 1.0)."""
    call = place.call("where")
    if call is None or len(call.args) != 3:
        return
    condition, first, second = (place.of(one) for one in call.args)
    where = place.of(call.func)
    for place_of, value in ((1, call.args[1]), (2, call.args[2])):
        new = _other_number(value)
        if new is not None:
            parts = (new, second) if place_of == 1 else (first, new)
            yield f"{where}({condition}, {', '.join(parts)})"


def _other_number(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        if isinstance(node.value, bool):
            return None
        one, zero = ("1", "0") if isinstance(node.value, int) else ("1.0", "0.0")
        return one if node.value == 0 else zero
    if isinstance(node, ast.Call) and called(node) == "float":
        return "0.0"
    return None


def drop_selection(place: Place) -> Iterator[str]:
    """tl.where(c, a, b) -> a, b where that is no constant."""
    call = place.call("where")
    if call is None or len(call.args) != 3:
        return
    for value in call.args[1:]:
        if _other_number(value) is None:
            yield place.of(value)


def swap_selection(place: Place) -> Iterator[str]:
    """tl.where(c, a, b) -> tl.where(c, b, a)."""
    call = place.call("where")
    if call is not None and len(call.args) == 3:
        condition, first, second = (place.of(one) for one in call.args)
        yield f"{place.of(call.func)}({condition}, {second}, {first})"


def shorten_loop(place: Place) -> Iterator[str]:
    """range(a, b, s) -> range(a, b - s)."""
    call = _loop(place)
    if call is None:
        return
    parts = [place.of(one) for one in call.args]
    stop = 0 if len(parts) == 1 else 1
    step = parts[2] if len(parts) == 3 else "1"
    parts[stop] = f"({parts[stop]}) - {step}"
    yield _with_arguments(place, call, parts)


def skip_first(place: Place) -> Iterator[str]:
    """range(a, b, s) -> range(a + s, b, s)."""
    call = _loop(place)
    if call is None:
        return
    parts = [place.of(one) for one in call.args]
    if len(parts) == 1:
        parts = ["0", *parts]
    step = parts[2] if len(parts) == 3 else "1"
    parts[0] = step if parts[0] == "0" else f"{parts[0]} + {step}"
    yield _with_arguments(place, call, parts)


def _loop(place: Place) -> ast.Call | None:
    call = place.call("range", "static_range")
    parent = place.parent
    return call if call and isinstance(parent, ast.For) and parent.iter is call else None


def _with_arguments(place: Place, call: ast.Call, parts: list[str]) -> str:
    keywords = [f"{one.arg}={place.of(one.value)}" for one in call.keywords]
    return f"{place.of(call.func)}({', '.join([*parts, *keywords])})"


def invert_condition(place: Place) -> Iterator[str]:
    """if c -> if not c, of branches and conditional expressions."""
    parent = place.parent
    if isinstance(parent, (ast.If, ast.IfExp)) and parent.test is place.node:
        yield f"not ({place.of(place.node)})"


def replace_comparison(place: Place) -> Iterator[str]:
    """a < b -> a > b, a == b -> a != b, a <= b -> a >= b, and back."""
    node = place.node
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = {
            ast.Lt: ">",
            ast.Gt: "<",
            ast.LtE: ">=",
            ast.GtE: "<=",
            ast.Eq: "!=",
            ast.NotEq: "==",
        }.get(type(node.ops[0]))
        if other:
            yield f"{place.of(node.left)} {other} {place.of(node.comparators[0])}"


def overwrite(place: Place) -> Iterator[str]:
    """a += b -> a = b."""
    node = place.node
    if isinstance(node, ast.AugAssign):
        yield f"{place.of(node.target)} = {place.of(node.value)}"


def leave_out_accumulation(place: Place) -> Iterator[str]:
    """a += b -> nothing."""
    if isinstance(place.node, ast.AugAssign):
        yield ""


def drop_accumulator(place: Place) -> Iterator[str]:
    """tl.dot(a, b, acc) -> tl.dot(a, b)."""
    call = place.call("dot", "dot_scaled")
    if call and called(call) == "dot":
        if len(call.args) > 2:
            yield _with_arguments(place, call, [place.of(one) for one in call.args[:2]])
        elif keyword(call, "acc") is not None:
            yield place.rewritten(call, drop=("acc",))


def start_at_one(place: Place) -> Iterator[str]:
    """tl.zeros(shape, type) -> tl.full(shape, 1, type)."""
    call = place.call("zeros")
    if call and is_language(call):
        dtype = keyword(call, "dtype") or (call.args[1] if len(call.args) > 1 else None)
        shape = keyword(call, "shape") or (call.args[0] if call.args else None)
        if dtype is not None and shape is not None:
            module = place.of(call.func).rpartition(".")[0]
            yield f"{module}.full({place.of(shape)}, 1, {place.of(dtype)})"


def narrow_accumulator(place: Place) -> Iterator[str]:
    """tl.zeros(shape, tl.float32) -> tl.zeros(shape, tl.float16)."""
    call = place.call("zeros", "full")
    if call and "float32" in place.of(call):
        yield place.of(call).replace("float32", "float16")


def change_imprecise(place: Place) -> Iterator[str]:
    """Hopper's fp8 products promoted after so many terms, or never, as by default."""
    call = place.call("dot")
    if call and keyword(call, "max_num_imprecise_acc") is not None:
        # A number beyond the tile's depth does not compile.
        yield place.rewritten(call, changed={"max_num_imprecise_acc": "None"})


def drop_factor(place: Place) -> Iterator[str]:
    """a * b -> a, b; a / b -> a."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        yield place.of(node.left)
        if isinstance(node.op, ast.Mult):
            yield place.of(node.right)
    call = place.call("div_rn", "fdiv")
    if call and len(call.args) == 2:
        yield place.of(call.args[0])


def double_factor(place: Place) -> Iterator[str]:
    """a * b -> a * b * b, where b names a scale, a norm, a gate or a probability."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        sign = "*" if isinstance(node.op, ast.Mult) else "/"
        text = f"{place.operand(node.left)} {sign} {place.operand(node.right)}"
        yield f"{text} {sign} {place.operand(node.right)}"


def swap_sum(place: Place) -> Iterator[str]:
    """a + b -> a - b and back, in place too."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        sign = "-" if isinstance(node.op, ast.Add) else "+"
        yield f"{place.of(node.left)} {sign} {place.operand(node.right)}"
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        sign = "-=" if isinstance(node.op, ast.Add) else "+="
        yield f"{place.of(node.target)} {sign} {place.of(node.value)}"


def swap_product(place: Place) -> Iterator[str]:
    """a * b -> a / b and back."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        sign = "/" if isinstance(node.op, ast.Mult) else "*"
        yield f"{place.operand(node.left)} {sign} {place.operand(node.right)}"
    call = place.call("div_rn", "fdiv")
    if call and len(call.args) == 2:
        first, second = (place.operand(one) for one in call.args)
        yield f"{first} * {second}"


def swap_operands(place: Place) -> Iterator[str]:
    """a - b -> b - a, a / b -> b / a, dot(a, b) -> dot(b, a)."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Div)):
        sign = "-" if isinstance(node.op, ast.Sub) else "/"
        yield f"{place.operand(node.right)} {sign} {place.operand(node.left)}"
    call = place.call("dot", "div_rn", "fdiv", "product", "fine_product")
    if call and len(call.args) >= 2:
        first, second, *rest = (place.of(one) for one in call.args)
        yield _with_arguments(place, call, [second, first, *rest])


def drop_transposition(place: Place) -> Iterator[str]:
    """x.T, tl.trans(x) -> x."""
    node = place.node
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield place.of(node.value)
    call = place.call("trans")
    if call and call.args and is_language(call):
        yield place.of(call.args[0])


def drop_sign(place: Place) -> Iterator[str]:
    """-x -> x, abs(x) -> x."""
    node = place.node
    call = place.call("abs")
    if call and call.args:
        yield place.of(call.args[0])
    if not isinstance(node, ast.UnaryOp) or isinstance(node.operand, ast.Constant):
        return
    if isinstance(node.op, ast.USub):
        yield place.of(node.operand)


def swap_extremes(place: Place) -> Iterator[str]:
    """maximum -> minimum, max -> min, atomic_max -> atomic_min, and back."""
    call = place.call("maximum", "minimum", "max", "min", "atomic_max", "atomic_min")
    if call:
        name = called(call)
        other = name.replace("max", "min") if "max" in name else name.replace("min", "max")
        head = place.of(call.func)
        yield head[: -len(name)] + other + place.of(call)[len(head) :]


def swap_reduction(place: Place) -> Iterator[str]:
    """tl.sum(x, a) -> tl.max(x, a) and back."""
    call = place.call("sum", "max", "min")
    if call and is_language(call):
        head = place.of(call.func)
        other = "max" if called(call) == "sum" else "sum"
        yield head.rpartition(".")[0] + f".{other}" + place.of(call)[len(head) :]


def change_reduction_axis(place: Place) -> Iterator[str]:
    """tl.sum(x, 1) -> tl.sum(x, 0) and back; another axis of a scan."""
    call = place.call("sum", "max", "min", "cumsum", "reduce", "argmax")
    if call is None or not is_language(call):
        return
    axis = keyword(call, "axis")
    if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
        yield place.rewritten(call, changed={"axis": str(int(not axis.value))})
    elif len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
        other = str(int(not call.args[1].value))
        parts = [place.of(one) for one in call.args]
        yield _with_arguments(place, call, [parts[0], other, *parts[2:]])


def change_scan(place: Place) -> Iterator[str]:
    """cumsum(x) -> the same from the other end, or without its own element."""
    call = place.call("cumsum")
    if call is None or not call.args:
        return
    if keyword(call, "reverse") is None:
        yield place.rewritten(call, changed={"reverse": "True"})
    else:
        yield place.rewritten(call, drop=("reverse",))
    yield f"{place.of(call)} - {place.operand(call.args[0])}"


def move_epsilon(place: Place) -> Iterator[str]:
    """sqrt(x + eps) -> sqrt(x) + eps."""
    call = place.call("sqrt", "sqrt_rn", "rsqrt")
    inner = call.args[0] if call and call.args else None
    if call and isinstance(inner, ast.BinOp) and _adds_epsilon(inner):
        yield f"{place.of(call.func)}({place.of(inner.left)}) + {place.of(inner.right)}"


def drop_epsilon(place: Place) -> Iterator[str]:
    """x + eps -> x; maximum(x, floor) -> x."""
    node = place.node
    if isinstance(node, ast.BinOp) and _adds_epsilon(node):
        yield place.of(node.left)
    call = place.call("maximum")
    if (
        call
        and len(call.args) == 2
        and any(
            name.lower() in ("floor", "eps", "epsilon", "tiny") for name in names_in(call.args[1])
        )
    ):
        yield place.of(call.args[0])


def _adds_epsilon(node: ast.BinOp) -> bool:
    small = isinstance(node.right, ast.Constant) and isinstance(node.right.value, float)
    tiny = small and 0 < float(node.right.value) < 1e-3  # type: ignore[attr-defined]
    return isinstance(node.op, ast.Add) and (
        bool(tiny) or any("eps" in name.lower() for name in names_in(node.right))
    )


def nudge_constant(place: Place) -> Iterator[str]:
    """A float -> the next fp32 above it, and below."""
    node = place.node
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        value = np.float32(node.value)
        if value != 0 and np.isfinite(value):
            for toward in (np.inf, 0.0):
                nudged = np.nextafter(value, np.float32(np.copysign(toward, value)))
                if np.isfinite(nudged):
                    yield repr(float(nudged))


def shift_constant(place: Place) -> Iterator[str]:
    """An integer that computes -> one more; a mask of bits -> the same without its last one."""
    node, parent = place.node, place.parent
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        return
    if not isinstance(parent, ast.BinOp):
        return
    if isinstance(parent.op, ast.BitAnd) and node.value > 1:
        yield hex(node.value & (node.value - 1))
    elif node.value not in (0, 1) or isinstance(parent.op, (ast.Add, ast.Sub)):
        hexadecimal = place.of(node).startswith("0x")
        yield hex(node.value + 1) if hexadecimal else str(node.value + 1)


def replace_bit_operation(place: Place) -> Iterator[str]:
    """| -> &, << -> >>, and back; ^ -> |."""
    node = place.node
    if isinstance(node, ast.BinOp):
        other = {ast.BitOr: "&", ast.LShift: ">>", ast.RShift: "<<", ast.BitXor: "|"}.get(
            type(node.op)
        )
        if other:
            yield f"{place.operand(node.left)} {other} {place.operand(node.right)}"


def change_base(place: Place) -> Iterator[str]:
    """exp2 -> exp, log2 -> log, and back."""
    call = place.call("exp", "exp2", "log", "log2", "natural_exp")
    if call and is_language(call):
        name = called(call)
        other = name[:-1] if name.endswith("2") else f"{name}2"
        head = place.of(call.func)
        yield head[: -len(name)] + other + place.of(call)[len(head) :]
