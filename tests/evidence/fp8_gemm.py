"""Block-scaled products against the bits of their tensor core, and where native and decoded answers part.

    python -m tests.evidence.fp8_gemm [--bits] [--chain]

--bits   on a card: the linear, native and decoded, against `oracles.fp8_gemm.bits`; no bit may differ
--chain  a mixture of experts with either product native or decoded: what each of them changes, on a card or
         on `BITPROOF_LANE=interpreter:sm_90`, which computes what that card's tensor core does

`tests.evidence.fp8_many` holds the same kernels to their bounds. On the present lane. Exit 1 where a bit
differs.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import replace

from bitproof.harness import lanes

lanes.choose()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from bitproof.harness.case import Launch, build  # noqa: E402
from bitproof.harness.lanes.base import Lane, Variation  # noqa: E402
from bitproof.harness.report import compare  # noqa: E402
from bitproof.harness.spec import Params, Tensors  # noqa: E402
from bitproof.harness.subjects.discovery import find  # noqa: E402
from bitproof.kernels.fp8_gemm.activation import activate, add_choices  # noqa: E402
from bitproof.kernels.fp8_gemm.align_tokens import align  # noqa: E402
from bitproof.kernels.fp8_gemm.arguments import CODES, SCALED, tiling_of  # noqa: E402
from bitproof.kernels.fp8_gemm.cases import LinearCase  # noqa: E402
from bitproof.kernels.fp8_gemm.cases_experts import ExpertsCase, Routing  # noqa: E402
from bitproof.kernels.fp8_gemm.grouped_gemm import multiply_by_expert  # noqa: E402
from bitproof.kernels.fp8_gemm.specialised import multiply_specialised  # noqa: E402
from bitproof.kernels.quantise.per_token_group import per_token_group  # noqa: E402
from bitproof.oracles import formats  # noqa: E402
from bitproof.oracles.fp8_gemm import bits  # noqa: E402
from bitproof.oracles.tensor_cores import SM_90  # noqa: E402

FORMS = ("native", "decoded")
STORED = ("gate and up", "codes", "scales")
PARTS = ("native, native", "native, decoded", "decoded, native")
SEEDS = 8


def compare_bits(lane: Lane) -> tuple[list[str], int]:
    """A line for each kind of codes and each instruction; how many outputs differ in a bit."""
    linear = find([], ["block_scaled_linear"])[0].spec
    launchers = [
        (linear, decoded, height, key)
        for decoded in (False, True)
        for height, key in ((64, "wgmma"), (128, "wgmma"), (16, "mma"))
    ]
    if lanes.family(lane.name) == "cuda" and torch.cuda.get_device_capability() == (9, 0):
        launchers.append((replace(linear, run=run_specialised), False, 128, "wgmma"))
    lines, total = [], 0
    for spec, decoded, height, key in launchers:
        for kind in ("even", "one-sided", "any"):
            case = LinearCase(
                rows=130,
                columns=200,
                depth=1040,
                kind=kind,
                spread=2,
                decoded=decoded,
                out="fp32" if spec is linear else "bf16",
                block_m=height,
                seed=5,
                launch=Launch(block=64),
            )
            inputs = build(case, lane.device)
            got = compare.fetch(lane.run(spec, inputs, Variation()).outputs)["y"]
            operand = "bf16" if decoded else "e4m3"
            instruction = SM_90[operand, key]
            if decoded and key == "mma":  # bytes that a thread widens are dealt out by twos
                instruction = replace(instruction, interleaved=2)
            want = bits.linear(inputs.tensors, inputs.params, instruction)
            different = int((formats.bits(got) != formats.bits(want)).sum())
            total += different
            name = key if spec is linear else "specialised"
            lines.append(
                f"  {operand} {name:11} height {height:3} {kind:10} {different} of {got.size} differ"
            )
    return lines, total


def run_specialised(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """`multiply_specialised` on the tensors of a linear's case -> y."""
    operands = (tensors[name] for name in ("a", "a_scale", "b", "b_scale"))
    return {"y": multiply_specialised(*operands, out=params["out"])}


def run_both(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """A mixture of experts with either product native and decoded.

    -> gate and up, codes and scales by the first product's form; y by both products' forms.
    """
    choices, tiling = tensors["choices"], tiling_of(params)
    tokens, top_k = choices.shape
    quantiser = {"group": SCALED, "launch": Launch(block=1024)}
    x = per_token_group({"x": tensors["hidden"]}, quantiser)
    product = functools.partial(
        multiply_by_expert,
        alignment=align(choices, experts=len(tensors["w1"]), block=tiling.block_m),
        routes=tokens * top_k,
        tiling=tiling,
    )
    found = {}
    for first in FORMS:
        gate_up = product(
            x["y"],
            x["scale"],
            tensors["w1"],
            tensors["w1_scale"],
            top_k=top_k,
            decoded=first == "decoded",
        )
        codes, scale = activate(gate_up, choices)
        found |= {
            f"gate and up {first}": gate_up,
            f"codes {first}": codes,
            f"scales {first}": scale,
        }
        for second in FORMS:
            shares = product(
                codes,
                scale,
                tensors["w2"],
                tensors["w2_scale"],
                top_k=1,
                weights=tensors["weights"],
                decoded=second == "decoded",
            )
            found[f"{first}, {second}"] = add_choices(shares, choices)
    return found


def compare_chain(lane: Lane) -> list[str]:
    """A mixture of experts at the shapes of the report, native or decoded product by product.

    Lines for tiles of 64 and 32 rows: how much of what is stored in between differs, and how far each answer
    is from the one that decodes both products, as a part of its largest value.
    """
    case = ExpertsCase(routing=Routing(sizes=(19, 19, 18, 18), top_k=2), width=256, inner=128)
    spec = replace(find([], ["moe_prefill"])[0].spec, run=run_both)
    lines = []
    for height in (64, 32):
        counts = np.zeros((3, 2), dtype=int)
        largest = dict.fromkeys(PARTS, 0.0)
        for seed in range(SEEDS):
            generator = torch.Generator().manual_seed(7 + seed)
            w1, w2 = (
                _quantised(torch.randn(4, n, k, generator=generator) * k**-0.5)
                for n, k in ((256, 256), (256, 128))
            )
            hidden = torch.randn(37, 256, generator=generator).bfloat16()
            weights = torch.rand(37, 2, generator=generator).softmax(1)
            given = dict(zip(("w1", "w1_scale", "w2", "w2_scale"), (*w1, *w2), strict=True))
            given |= {"hidden": hidden, "weights": weights}
            inputs = build(replace(case, block_m=height, seed=seed), lane.device)
            inputs = inputs.replace(**{k: v.to(lane.device) for k, v in given.items()})
            found = lane.run(spec, inputs, Variation()).outputs
            for row, name in enumerate(STORED):
                one, other = (found[f"{name} {form}"].float() for form in FORMS)
                counts[row] += int((one != other).sum()), one.numel()
            reference = found["decoded, decoded"].double()
            for key in PARTS:
                apart = (found[key].double() - reference).abs().max() / reference.abs().max()
                largest[key] = max(largest[key], float(apart))
        lines.append(f"  tiles of {height} rows, {SEEDS} draws")
        for name, (different, number) in zip(STORED, counts, strict=True):
            lines.append(f"    {name:12} {different:7} of {number} differ")
        for key, apart in largest.items():
            lines.append(f"    gate and up, down {key:18} {apart:.1e} of the largest value at most")
    return lines


def _quantised(values: Tensor) -> tuple[Tensor, Tensor]:
    """Weights [E, N, K] as e4m3 codes with a scale for 128 x 128."""
    experts, n, k = values.shape
    parts = values.reshape(experts, n // SCALED, SCALED, k // SCALED, SCALED)
    scales = parts.abs().amax((2, 4), keepdim=True) / 448.0
    codes = (parts / scales).to(CODES).reshape(experts, n, k)
    return codes, scales.reshape(experts, n // SCALED, k // SCALED)


def main() -> int:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", action="store_true")
    parser.add_argument("--chain", action="store_true")
    options = parser.parse_args()
    lane = lanes.present()
    different = 0
    print(f"lane {lane.name}, torch {torch.__version__}")
    if options.bits:
        lines, different = compare_bits(lane)
        print("\n".join(lines))
    if options.chain:
        print("\n".join(compare_chain(lane)))
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
