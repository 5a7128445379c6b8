"""Natural edits of the kernels: what a tired colleague writes. Each is to be caught by the spec as it is."""

from __future__ import annotations

from bitproof import Fault


def _edits(within: str, *changes: tuple[str, str, str, str]) -> tuple[Fault, ...]:
    """(name, old, new, the check that sees it) of each edit within one function."""
    return tuple(
        Fault(
            name=name,
            module="tests.first_specs.kernels",
            within=within,
            old=old,
            new=new,
            caught_by=check,
        )
        for name, old, new, check in changes
    )


_SEEN = "agreement"
_NORM = "x * tl.rsqrt(mean + eps) * w"
_STORE = "tl.store(y_ptr + row * n + column, x * tl.rsqrt(mean + eps) * w, mask=inside)"

EDITS: dict[str, tuple[Fault, ...]] = {
    "row_norm": _edits(
        "_row_norm",
        ("divides by the block", "/ n\n", "/ BLOCK\n", _SEEN),
        ("forgets eps", "mean + eps", "mean", _SEEN),
        ("forgets the weight", _NORM, "x * tl.rsqrt(mean + eps)", _SEEN),
        ("adds the weight", _NORM, "x * tl.rsqrt(mean + eps) + w", _SEEN),
        (
            "squares in bf16",
            "tl.sum(x * x)",
            "tl.sum((x * x).to(tl.bfloat16).to(tl.float32))",
            _SEEN,
        ),
        ("takes the variance", "/ n\n", "/ n - tl.sum(x) / n * tl.sum(x) / n\n", _SEEN),
        (
            "normalises in bf16",
            "mean = tl.sum",
            "x = x.to(tl.bfloat16).to(tl.float32); mean = tl.sum",
            _SEEN,
        ),
        (
            "writes past the row",
            _STORE,
            _STORE.replace("mask=inside", "mask=column <= n"),
            "memory",
        ),
    ),
    "masked_softmax": _edits(
        "_masked_softmax",
        ("subtracts no maximum", "tl.exp(x - largest)", "tl.exp(x)", _SEEN),
        ("divides by nothing kept", "tl.where(total > 0.0, e / total, 0.0)", "e / total", _SEEN),
        ("keeps all", 'tl.where(keep, x, float("-inf"))', "x", _SEEN),
        ("masks with zeros", 'keep, x, float("-inf")', "keep, x, 0.0", _SEEN),
        ("masks with -1e4", 'keep, x, float("-inf")', "keep, x, -1e4", _SEEN),
        ("takes powers of two", "tl.exp(", "tl.exp2(", _SEEN),
        ("reads one mask for all rows", "keep_ptr + row * n + column", "keep_ptr + column", _SEEN),
        ("adds in bf16", "tl.sum(e, 0)", "tl.sum(e.to(tl.bfloat16).to(tl.float32), 0)", _SEEN),
    ),
    "swiglu_int8": _edits(
        "_swiglu_int8",
        (
            "exchanges the halves",
            "gate / (1.0 + tl.exp(-gate)) * up",
            "up / (1.0 + tl.exp(-up)) * gate",
            _SEEN,
        ),
        ("reads gates twice", "row * 2 * n + n + column", "row * 2 * n + column", _SEEN),
        ("turns the sign", "tl.exp(-gate)", "tl.exp(gate)", _SEEN),
        ("divides by 128", "largest / 127.0", "largest / 128.0", _SEEN),
        ("cuts codes", "tl.where(q >= 0.0, tl.floor(q + 0.5), -tl.floor(0.5 - q))", "q", _SEEN),
        ("forgets magnitudes", "tl.max(tl.abs(h), 0)", "tl.max(h, 0)", _SEEN),
        ("stores the largest", "scale_ptr + row, scale", "scale_ptr + row, largest", _SEEN),
        ("has a high floor", "1e-8", "1e-2", _SEEN),
    ),
    "scatter_add": _edits(
        "_gather_add",
        ("overwrites", "tl.atomic_add(", "tl.store(", _SEEN),
        ("takes padding", "inside & (into >= 0)", "inside", "memory"),
        ("reads one index", "index_ptr + row", "index_ptr", _SEEN),
    )
    + _edits("scatter_add", ("starts from fresh memory", "torch.zeros", "torch.empty", _SEEN)),
    "packed_mean": _edits(
        "_packed_mean",
        ("leaves the last out", "range(first, end)", "range(first, end - 1)", _SEEN),
        ("leaves the first out", "range(first, end)", "range(first + 1, end)", _SEEN),
        ("divides by no tokens", "total / count", "total / (end - first)", _SEEN),
        ("counts one more", "tl.maximum(end - first, 1)", "end - first + 1", _SEEN),
        ("adds in bf16", "total += ", "total = total.to(tl.bfloat16).to(tl.float32) + ", _SEEN),
    ),
}
