"""What casts and quantisers promise, to the bit, whoever computes it: hold your own kernel against one.

    from bitproof import KernelSpec
    from bitproof.kernels.quantise import contracts

    SPEC = KernelSpec(contract=contracts.PER_TOKEN_GROUP, name="mine", run=launch)

`launch(tensors, params) -> outputs` gets named tensors and plain parameters, `params["launch"]` among them (a
`Launch`, which a kernel may leave aside), and returns named tensors:

    CASTS[FORMAT], ROUND_E4M3   x [n] fp32 -> y [n] in the format; `ROUND_E4M3` as fp32 values of the format
    PER_TENSOR_STATIC           x [M, K], scale [1] fp32 -> y [M, K] e4m3
    PER_TOKEN_GROUP             x [M, K], group -> y [M, K] e4m3, scale [M, ceil(K / group)] fp32
    UE8M0_GROUP                 the same with scales that are powers of two, as uint8 e8m0 codes
    UE8M0_INPLACE               x [M, K], group -> x, written in place: quantised and back
    E2M1_GROUP                  x [M, K], group -> y [M, K / 2] uint8, two codes a byte, scale as e8m0 codes
    KV_STORES[KIND]             k, v [tokens, heads, D], indices [tokens], and the caches, written in place

x, k and v are fp32, bf16 or fp16. `oracles.quantize` defines each answer. A contract says nothing of layouts
and of what is refused: a spec that promises either names it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from bitproof.harness.bounds import exact_bits
from bitproof.harness.invariances import negated, row_alone, rows_permuted, scaled
from bitproof.harness.spec import Contract, Elementwise
from bitproof.harness.strategies.values import POWER_KINDS
from bitproof.kernels.quantise import corners, invariances
from bitproof.kernels.quantise.arguments import CACHES
from bitproof.kernels.quantise.cases import (
    CastCase,
    MatrixCase,
    StaticCase,
    casts,
    explicit_cast,
    matrices,
    scaled_matrices,
)
from bitproof.kernels.quantise.cases_kv_store import StoreCase, stores
from bitproof.oracles import formats, quantize


def _elementwise(name: str, target: str) -> Contract:
    return Contract(
        name=name,
        case=CastCase,
        cases=partial(casts, target),
        corners=corners.casts(target),
        oracle=quantize.cast(target),
        outputs={"y": exact_bits()},
        invariances=invariances.of_cast(target),
        elementwise=Elementwise(
            input="x",
            output="y",
            format=target,
            overflow="saturate" if formats.by_name(target).bits == 8 else "inf",
            case=partial(explicit_cast, target),
        ),
    )


CASTS: Final = {
    target: _elementwise(f"cast_{target}", target) for target in ("e4m3", "e5m2", "bf16", "fp16")
}
ROUND_E4M3: Final = _elementwise("round_e4m3", "e4m3")

PER_TENSOR_STATIC: Final = Contract(
    name="per_tensor_static",
    case=StaticCase,
    cases=scaled_matrices,
    corners=corners.scaled_matrices(),
    oracle=quantize.per_tensor_static,
    outputs={"y": exact_bits()},
    invariances=(
        row_alone(["x"], ["y"]),
        rows_permuted(["x"], ["y"]),
        negated(["x"], ["y"]),
        scaled("x", ["y"], {}, along=["scale"]),
    ),
)

_groups: Any = partial(Contract, case=MatrixCase, corners=corners.matrices("e4m3"))
_codes: Any = partial(_groups, outputs={"y": exact_bits(), "scale": exact_bits()})

PER_TOKEN_GROUP: Final[Contract] = _codes(
    name="per_token_group",
    cases=partial(matrices, "e4m3", groups=(128, 64, 32), strided=True),
    oracle=quantize.per_token_group,
    invariances=invariances.of_codes(invariances.fp32_scales),
)

UE8M0_GROUP: Final[Contract] = _codes(
    name="ue8m0_group",
    cases=partial(matrices, "e4m3", groups=(128, 64, 32), kinds=POWER_KINDS, strided=True),
    oracle=quantize.ue8m0_group,
    invariances=invariances.of_codes(partial(invariances.e8m0_scales, floor=-22)),
)

UE8M0_INPLACE: Final[Contract] = _groups(
    name="ue8m0_inplace",
    cases=partial(matrices, "e4m3", groups=(64, 128, 32), kinds=POWER_KINDS, strided=True),
    oracle=quantize.ue8m0_inplace,
    outputs={"x": exact_bits()},
    invariances=(
        row_alone(["x"], ["x"]),
        rows_permuted(["x"], ["x"]),
        negated(["x"], ["x"]),
        scaled("x", [], {"x": lambda x, steps: x * 2.0**steps}),
    ),
    inplace=frozenset({"x"}),
)

E2M1_GROUP: Final[Contract] = _codes(
    name="e2m1_group",
    cases=partial(matrices, "e2m1", groups=(32, 16, 64), packed=2, kinds=POWER_KINDS, strided=True),
    oracle=quantize.e2m1_group,
    corners=corners.matrices("e2m1", packed=2),
    invariances=(
        row_alone(["x"], ["y", "scale"]),
        rows_permuted(["x"], ["y", "scale"]),
        negated(["x"], [], same=["scale"], packed={"y": 0x88}),
        scaled("x", ["y"], {"scale": partial(invariances.e8m0_scales, floor=-126)}),
    ),
)

KV_STORES: Final = {
    kind: Contract(
        name=f"kv_store_{kind}",
        case=StoreCase,
        cases=partial(stores, kind),
        corners=corners.stores(kind),
        oracle=quantize.kv_store(kind),
        outputs={name: exact_bits() for name in CACHES},
        invariances=(
            rows_permuted(["k", "v", "indices"], [], unmoved=CACHES),
            invariances.others_skipped(),
            invariances.exchanged(),
        ),
        inplace=frozenset(CACHES),
    )
    for kind in ("int8", "fp8")
}
