"""`and`, `or`, `not`, comparison chains and conditions on tensors, as the compiler reads them.

The interpreter runs them as Python, which asks a tensor for its truth, and a block is always true. The
compiler combines tensors elementwise (constants still cut short), and refuses a condition that is a
block, an operand that is not boolean, and, before triton 3.9, a chain of comparisons.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter

from bitproof.harness.errors import Uncompilable
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.overlay import Patch
from bitproof.harness.targets.versions import release

_CHAINS_COMPILE = release(triton.__version__) >= (3, 9)
_RELATIONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def patches() -> list[Patch]:
    """The rewriting of a kernel's source."""
    return [Patch(interpreter.FunctionRewriter, "_transform_ast", _wrap_transform)]


def _wrap_transform(original: Callable[..., Any]) -> Callable[..., Any]:
    def transform(self: Any, source: str) -> Any:
        self.fn.__globals__.update(_HELPERS)
        return ast.fix_missing_locations(_Rewriter().visit(original(self, source)))

    return transform


class _Rewriter(ast.NodeTransformer):
    """Turns operators that ask for a truth into calls of the functions below."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = _bitproof_all.__name__ if isinstance(node.op, ast.And) else _bitproof_any.__name__
        return _call(name, node, node.values)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return (
            _call(_bitproof_no.__name__, node, [node.operand])
            if isinstance(node.op, ast.Not)
            else node
        )

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        known = all(type(relation) in _RELATIONS for relation in node.ops)
        if _CHAINS_COMPILE or len(node.ops) == 1 or not known:
            return node
        called = _call(_bitproof_chained.__name__, node, [node.left, *node.comparators])
        if isinstance(called, ast.Call):
            called.args.insert(0, ast.Constant(" ".join(type(op).__name__ for op in node.ops)))
        return called

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._with_test(node, _bitproof_truth)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._with_test(node, _bitproof_truth)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._with_test(node, _bitproof_truth)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return self._with_test(node, _bitproof_holds)

    def _with_test(
        self, node: ast.If | ast.While | ast.IfExp | ast.Assert, reading: Callable[[Any], Any]
    ) -> ast.AST:
        self.generic_visit(node)
        name = ast.Name(reading.__name__, ast.Load())
        node.test = ast.copy_location(ast.Call(name, [node.test], []), node.test)
        return node


def _call(name: str, node: ast.expr, operands: list[ast.expr]) -> ast.AST:
    """`name(lambda: first, lambda: second, ...)`, unless an operand binds a name."""
    if any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node)):
        return node
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    lazily: list[ast.expr] = [ast.Lambda(nothing, operand) for operand in operands]
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), lazily, []), node)


def _is_tensor(value: Any) -> bool:
    return state.current is not None and isinstance(value, tl.tensor)


def _bitproof_all(*operands: Callable[[], Any]) -> Any:
    return _join(operands, stops_at=False, join=lambda a, b: a.logical_and(b))


def _bitproof_any(*operands: Callable[[], Any]) -> Any:
    return _join(operands, stops_at=True, join=lambda a, b: a.logical_or(b))


def _join(operands: Any, *, stops_at: bool, join: Callable[[Any, Any], Any]) -> Any:
    tensors: list[Any] = []
    value: Any = None
    for operand in operands:
        value = operand()
        if _is_tensor(value):
            tensors.append(_boolean(value))
        elif bool(value) is stops_at:
            return value
    if not tensors:
        return value
    result = tensors[0]
    for tensor in tensors[1:]:
        result = join(result, tensor)
    return result


def _bitproof_no(operand: Callable[[], Any]) -> Any:
    value = operand()
    return _boolean(value).__not__() if _is_tensor(value) else not value


def _boolean(value: Any) -> Any:
    if not value.dtype.is_int1():
        raise Uncompilable(
            f"no target compiles and, or and not of {value.dtype}, only of int1: compare first"
        )
    return value


def _bitproof_chained(relations: str, *operands: Callable[[], Any]) -> Any:
    left, result = operands[0](), True
    for name, operand in zip(relations.split(), operands[1:], strict=True):
        right = operand()
        if _is_tensor(left) or _is_tensor(right):
            raise Uncompilable(
                "triton before 3.9 compiles no chain of comparisons for any target: write (a < b) & (b < c)"
            )
        result = _RELATIONS[getattr(ast, name)](left, right)
        if not result:
            break
        left = right
    return result


def _bitproof_truth(condition: Any) -> Any:
    if _is_tensor(condition) and condition.type.is_block():
        raise Uncompilable(
            "no target compiles the truth of a block: use tl.where, or reduce it to a scalar"
        )
    return condition


def _bitproof_holds(test: Any) -> bool:
    if _is_tensor(test):
        tl.device_assert(test)
        return True
    return bool(test)


_HELPERS = {
    helper.__name__: helper
    for helper in (
        _bitproof_all,
        _bitproof_any,
        _bitproof_no,
        _bitproof_chained,
        _bitproof_truth,
        _bitproof_holds,
    )
}
