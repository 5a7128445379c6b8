"""Property-based differential testing of Triton kernels: the names that authors of specs need.

Each is loaded when it is first asked for, so that importing `bitproof` costs nothing and leaves it to
`bitproof.harness.lanes` to choose a lane before Triton is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitproof.harness import generators, invariances, strategies
    from bitproof.harness.bounds import all_of, exact_bits, forward_error, ulps
    from bitproof.harness.bounds.norms import relative_rms, scaled_max, storage_model
    from bitproof.harness.bounds.stochastic import stochastic_rounding
    from bitproof.harness.bounds.tolerances import close, row_rms
    from bitproof.harness.case import Inputs, Launch, Scale
    from bitproof.harness.contract import Contract
    from bitproof.harness.errors import Refused, Unsupported
    from bitproof.harness.inputs import (
        Choice,
        Index,
        Integer,
        Offsets,
        Real,
        Size,
        Tensor,
        matrix,
        packed_sequences,
        ragged_experts,
        vector,
    )
    from bitproof.harness.objects import of_object
    from bitproof.harness.references import Reference, run_like
    from bitproof.harness.spec import (
        Accepted,
        Bitwise,
        Elementwise,
        Equivalent,
        Fault,
        Invariance,
        KernelSpec,
        Limit,
        Lowering,
        Refusal,
        Storage,
        Tolerated,
        Varies,
    )
    from bitproof.oracles import estimates, formats
    from bitproof.oracles.estimates import Estimate
    from bitproof.oracles.modelled import Modelled
    from bitproof.oracles.rounding import round_to

__all__ = [
    "Accepted",
    "Bitwise",
    "Choice",
    "Contract",
    "Elementwise",
    "Equivalent",
    "Estimate",
    "Fault",
    "Index",
    "Inputs",
    "Integer",
    "Invariance",
    "KernelSpec",
    "Launch",
    "Limit",
    "Lowering",
    "Modelled",
    "Offsets",
    "Real",
    "Reference",
    "Refusal",
    "Refused",
    "Scale",
    "Size",
    "Storage",
    "Tensor",
    "Tolerated",
    "Unsupported",
    "Varies",
    "all_of",
    "close",
    "estimates",
    "exact_bits",
    "formats",
    "forward_error",
    "generators",
    "invariances",
    "matrix",
    "of_object",
    "packed_sequences",
    "ragged_experts",
    "relative_rms",
    "round_to",
    "row_rms",
    "run_like",
    "scaled_max",
    "stochastic_rounding",
    "storage_model",
    "strategies",
    "ulps",
    "vector",
]

_SPEC = "bitproof.harness.spec"
_INPUTS = "bitproof.harness.inputs"
_HOMES = {
    **dict.fromkeys(("Accepted", "Bitwise", "Elementwise", "Equivalent", "Fault"), _SPEC),
    **dict.fromkeys(("Invariance",), _SPEC),
    **dict.fromkeys(("KernelSpec", "Limit", "Lowering", "Refusal", "Storage", "Tolerated"), _SPEC),
    "Contract": "bitproof.harness.contract",
    "Varies": _SPEC,
    **dict.fromkeys(("Choice", "Index", "Integer", "Offsets", "Real", "Size", "Tensor"), _INPUTS),
    **dict.fromkeys(("matrix", "packed_sequences", "ragged_experts", "vector"), _INPUTS),
    **dict.fromkeys(("Inputs", "Launch", "Scale"), "bitproof.harness.case"),
    **dict.fromkeys(("Refused", "Unsupported"), "bitproof.harness.errors"),
    **dict.fromkeys(("all_of", "exact_bits", "forward_error", "ulps"), "bitproof.harness.bounds"),
    **dict.fromkeys(
        ("relative_rms", "scaled_max", "storage_model"), "bitproof.harness.bounds.norms"
    ),
    **dict.fromkeys(("close", "row_rms"), "bitproof.harness.bounds.tolerances"),
    "of_object": "bitproof.harness.objects",
    **dict.fromkeys(("Reference", "run_like"), "bitproof.harness.references"),
    "stochastic_rounding": "bitproof.harness.bounds.stochastic",
    "Estimate": "bitproof.oracles.estimates",
    "Modelled": "bitproof.oracles.modelled",
    "round_to": "bitproof.oracles.rounding",
}
_MODULES = {
    "generators": "bitproof.harness.generators",
    "estimates": "bitproof.oracles.estimates",
    "formats": "bitproof.oracles.formats",
    "invariances": "bitproof.harness.invariances",
    "strategies": "bitproof.harness.strategies",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
