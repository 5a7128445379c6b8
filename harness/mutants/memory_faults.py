"""Single faults of masks, addresses and the order of accesses: what may stand in the place of a node."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from bitproof.harness.mutants.places import Place, called, is_language, keyword, names_in

_ATOMICS = (
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_xchg",
    "atomic_and",
    "atomic_or",
    "atomic_xor",
)
_OFFSETS = re.compile(
    r"head|batch|expert|seq|group|token|slot|(?<![a-z])(b|h|hv|bh|n)(?![a-z])", re.I
)
_ADDRESS = re.compile(
    r"ptr|place|address|base|source|cache|row|start|offset|_here|beside|stride", re.I
)


def drop_load_mask(place: Place) -> Iterator[str]:
    """tl.load(p, mask=m, other=o) -> tl.load(p)."""
    call = place.call("load")
    if call and keyword(call, "mask") is not None:
        yield place.rewritten(call, drop=("mask", "other"))


def drop_store_mask(place: Place) -> Iterator[str]:
    """tl.store(p, v, mask=m) -> tl.store(p, v)."""
    call = place.call("store")
    if call and keyword(call, "mask") is not None:
        yield place.rewritten(call, drop=("mask",))


def drop_atomic_mask(place: Place) -> Iterator[str]:
    """The same of an atomic."""
    call = place.call(*_ATOMICS)
    if call and keyword(call, "mask") is not None:
        yield place.rewritten(call, drop=("mask",))


def drop_conjunct(place: Place) -> Iterator[str]:
    """A & B -> A, B where these are conditions."""
    node = place.node
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitAnd)
        and not _is_number(node.left)
        and not _is_number(node.right)
    ):
        yield place.of(node.left)
        yield place.of(node.right)
    elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield place.of(value)


def shift_bound(place: Place) -> Iterator[str]:
    """a < b -> a <= b, and so on."""
    node = place.node
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}.get(type(node.ops[0]))
        if other:
            yield f"{place.of(node.left)} {other} {place.of(node.comparators[0])}"


def shorten_bound(place: Place) -> Iterator[str]:
    """a < b -> a < b - 1."""
    node = place.node
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt):
        bound = node.comparators[0]
        if not isinstance(bound, ast.Constant):
            yield f"{place.of(node.left)} < {place.operand(bound)} - 1"


def swap_axis(place: Place) -> Iterator[str]:
    """x[:, None] -> x[None, :] and back."""
    node = place.node
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        parts = node.slice.elts
        if len(parts) == 2 and sum(isinstance(one, ast.Slice) for one in parts) == 1:
            first, second = (
                place.of(one) if not isinstance(one, ast.Slice) else ":" for one in parts
            )
            yield f"{place.of(node.value)}[{second}, {first}]"


def change_other(place: Place) -> Iterator[str]:
    """Another value of the same kind in `other`."""
    call = place.call("load")
    other = keyword(call, "other") if call else None
    if call is None or other is None:
        return
    text = place.of(other)
    new = {"0.0": "1.0", "0": "1", "-1": "0", "1": "0", "1.0": "0.0"}.get(text, "0")
    yield place.rewritten(call, changed={"other": new})


def drop_other(place: Place) -> Iterator[str]:
    """tl.load(p, mask=m, other=o) -> tl.load(p, mask=m)."""
    call = place.call("load")
    if call and keyword(call, "other") is not None:
        yield place.rewritten(call, drop=("other",))


def drop_addend(place: Place) -> Iterator[str]:
    """a + b -> a, b: of addresses, indices and numbers."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        if not _names_offset(place, node.right) and not _names_epsilon(place, node.right):
            yield place.of(node.left)
        if not _is_pointer(place, node.left) and not _names_offset(place, node.left):
            yield place.of(node.right)
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
        return
    if _is_pointer(place, node.target):
        yield ""


def drop_named_offset(place: Place) -> Iterator[str]:
    """a + head -> a, where the addend names a head, a batch, an expert, a sequence, a group or a token."""
    node = place.node
    if not isinstance(node, ast.BinOp):
        return
    if isinstance(node.op, ast.Add):
        if _names_offset(place, node.right) and not _names_epsilon(place, node.right):
            yield place.of(node.left)
        if _names_offset(place, node.left) and not _is_pointer(place, node.left):
            yield place.of(node.right)
    if isinstance(node.op, ast.FloorDiv) and _names_offset(place, node.left):
        yield place.of(node.left)


def drop_stride(place: Place) -> Iterator[str]:
    """row * stride -> row, in addresses."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _in_address(place):
        yield place.of(node.left)


def shift_stride(place: Place) -> Iterator[str]:
    """row * stride -> row * (stride + 1), in addresses."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _in_address(place):
        yield f"{place.operand(node.left)} * ({place.of(node.right)} + 1)"


def swap_quotient(place: Place) -> Iterator[str]:
    """a // b -> a % b and back."""
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.FloorDiv, ast.Mod)):
        sign = "%" if isinstance(node.op, ast.FloorDiv) else "//"
        yield f"{place.operand(node.left)} {sign} {place.operand(node.right)}"


def round_down(place: Place) -> Iterator[str]:
    """tl.cdiv(a, b) -> a // b."""
    call = place.call("cdiv")
    if call and len(call.args) == 2:
        yield f"({place.of(call.args[0])}) // ({place.of(call.args[1])})"


def change_axis(place: Place) -> Iterator[str]:
    """tl.program_id(0) -> tl.program_id(1), and so on."""
    call = place.call("program_id", "num_programs")
    axis = (call.args[0] if call.args else keyword(call, "axis")) if call else None
    if call and isinstance(axis, ast.Constant) and isinstance(axis.value, int):
        yield f"{place.of(call.func)}({(axis.value + 1) % 3})"


def drop_int64(place: Place) -> Iterator[str]:
    """x.to(tl.int64) -> x."""
    call = place.call("to")
    if (
        call
        and call.args
        and isinstance(call.func, ast.Attribute)
        and place.of(call.args[0]).endswith("int64")
    ):
        yield place.of(call.func.value)


def take_other_scale(place: Place) -> Iterator[str]:
    """scale_ptr + i -> scale_ptr + i * 0: the first group's scale."""
    node = place.node
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return
    if _is_pointer(place, node.left) and "scale" in place.of(node.left):
        yield f"{place.of(node.left)} + ({place.of(node.right)}) * 0"


def store_for_atomic(place: Place) -> Iterator[str]:
    """tl.atomic_add(p, v, mask=m) -> tl.store(p, v, mask=m)."""
    call = place.call(*_ATOMICS)
    if call and is_language(call) and isinstance(place.parent, ast.Expr):
        module = place.of(call.func).rpartition(".")[0]
        text = place.rewritten(call, drop=("sem", "scope"))
        yield text.replace(f"{module}.{called(call)}", f"{module}.store", 1)


def atomic_for_store(place: Place) -> Iterator[str]:
    """tl.store(p, v, mask=m) -> tl.atomic_add(p, v, mask=m)."""
    call = place.call("store")
    if call and is_language(call):
        module = place.of(call.func).rpartition(".")[0]
        text = place.rewritten(call, drop=("cache_modifier", "eviction_policy", "boundary_check"))
        yield text.replace(f"{module}.store", f"{module}.atomic_add", 1)


def drop_barrier(place: Place) -> Iterator[str]:
    """tl.debug_barrier() -> nothing."""
    if _is_statement_of(place, "debug_barrier"):
        yield ""


def leave_out_store(place: Place) -> Iterator[str]:
    """A store or an atomic -> nothing."""
    if _is_statement_of(place, "store", *_ATOMICS):
        yield ""


def _is_statement_of(place: Place, *names: str) -> bool:
    node = place.node
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and called(node.value) in names
    )


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, bool)


def _is_pointer(place: Place, node: ast.expr) -> bool:
    while isinstance(node, ast.BinOp):
        node = node.left
    return isinstance(node, ast.Name) and bool(re.search(r"ptr|source|cache", node.id))


def _names_offset(place: Place, node: ast.expr) -> bool:
    return any(_OFFSETS.search(name) for name in names_in(node) if "ptr" not in name)


def _names_epsilon(place: Place, node: ast.expr) -> bool:
    return any("eps" in name.lower() for name in names_in(node))


def _in_address(place: Place) -> bool:
    """Whether an expression helps to say where something lies."""
    for node in (place.node, *place.within()):
        if isinstance(node, ast.Call) and called(node) in ("load", "store", *_ATOMICS):
            return bool(node.args) and any(one is place.node for one in ast.walk(node.args[0]))
        if isinstance(node, ast.Assign):
            return any(_ADDRESS.search(place.of(target)) for target in node.targets)
        if isinstance(node, (ast.AugAssign, ast.Return)):
            return bool(_ADDRESS.search(place.of(node)))
    return False
