"""Block-scaled fp8 products and a mixture of experts on a card: speed beside torch's, and how exact they are.

    python benchmarks/fp8_gemm.py [--parts linear,rows,experts,accuracy]
                                  [--tiles M,N,PARTS,TALL,WARPS,STAGES ...] [--blocks M,N,WARPS,STAGES ...]

In one run, in microseconds (median, caches cold): the linear at 4096^3 for each of the `--tiles`, beside
bf16 `torch.matmul` and `torch._scaled_mm` with the same block scales; M = 16 and M = 1 at N = K = 4096;
2048 tokens through 8 of 256 experts of 7168 x 2048 for each of the `--blocks`, beside its own two
products. Then how far native and bf16-decoded answers are apart at the shapes of the report, as a part of
the largest value. The tables come last.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from bitproof.harness import lanes  # noqa: E402

lanes.choose("cuda")

import torch  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.timing import median  # noqa: E402
from bitproof.harness.case import Launch  # noqa: E402
from bitproof.kernels.fp8_gemm import moe_prefill  # noqa: E402
from bitproof.kernels.fp8_gemm.activation import activate, add_choices  # noqa: E402
from bitproof.kernels.fp8_gemm.align_tokens import align  # noqa: E402
from bitproof.kernels.fp8_gemm.arguments import CODES, SCALED, Tiling, blocks  # noqa: E402
from bitproof.kernels.fp8_gemm.block_scaled_linear import multiply  # noqa: E402
from bitproof.kernels.fp8_gemm.grouped_gemm import multiply_by_expert  # noqa: E402
from bitproof.kernels.fp8_gemm.specialised import multiply_specialised  # noqa: E402
from bitproof.kernels.fp8_gemm.split_k_linear import multiply_vector  # noqa: E402
from bitproof.kernels.quantise.per_token_group import per_token_group  # noqa: E402

TILES = (
    "64,128,1,32,4,3",
    "64,128,1,16,4,3",
    "128,128,1,8,8,4",
    "128,128,2,16,8,3",
    "128,128,2,8,4,3",
    "128,64,1,8,4,4",
)
BLOCKS = ("64,128,4,3", "64,128,8,3", "64,64,4,4", "128,128,8,3")
FEW_ROWS = tuple(
    (
        f"tile of {m} x {n}, {stages} stages",
        Tiling(block_m=m, block_n=n, num_warps=4, num_stages=stages),
    )
    for m, n, stages in ((64, 32, 5), (16, 32, 5), (64, 32, 8), (16, 32, 8))
)
VECTORS = ((16, 8, 4), (8, 4, 4), (32, 8, 4), (16, 4, 8))  # columns, splits, warps


def main() -> None:
    """Measure, then print the tables."""
    parser = argparse.ArgumentParser(
        description="How fast and how exact block-scaled products are."
    )
    parser.add_argument("--parts", default="linear,rows,experts,accuracy")
    parser.add_argument("--tiles", nargs="*", default=TILES)
    parser.add_argument("--blocks", nargs="*", default=BLOCKS)
    options = parser.parse_args()
    lanes.present()
    torch.manual_seed(0)
    measure = {
        "linear": functools.partial(linear, options.tiles),
        "rows": few_rows,
        "experts": functools.partial(mixture, options.blocks),
        "accuracy": accuracy,
    }
    lines = []
    for part in options.parts.split(","):
        lines += measure[part]()
        print(f"{part} done", flush=True)
    card = torch.cuda.get_device_name()
    print(f"\n{card}, torch {torch.__version__}, triton {triton.__version__}")
    print("\n".join(lines))


def codes(*shape: int) -> Tensor:
    """Normal values in e4m3."""
    count = 1 << 22
    values = torch.randn(count, device="cuda").to(CODES).view(torch.uint8)
    size = functools.reduce(int.__mul__, shape)
    found = torch.empty(size, dtype=torch.uint8, device="cuda")
    for start in range(0, size, count):
        found[start : start + count] = values[: size - start]
    return found.view(CODES).reshape(shape)


def scales(*shape: int) -> Tensor:
    """Scales between a half and one and a half."""
    return torch.rand(shape, device="cuda") + 0.5


def weights_of(*shape: int) -> tuple[Tensor, Tensor]:
    """Normal weights [..., N, K] of variance 1 / K quantised with a scale for 128 x 128: codes, scales."""
    *outer, n, k = shape
    values = torch.randn(*outer, n // SCALED, SCALED, k // SCALED, SCALED, device="cuda") * k**-0.5
    found = values.abs().amax((-3, -1), keepdim=True) / 448.0
    return (values / found).to(CODES).reshape(shape), found.reshape(
        *outer, n // SCALED, k // SCALED
    )


def linear(tiles: tuple[str, ...]) -> list[str]:
    """4096 x 4096 x 4096: torch's and each tiling."""
    m = n = k = 4096
    a, b = codes(m, k), codes(n, k)
    # As torch takes them, one column of scales after the other.
    a_scale, b_scale = scales(blocks(k), m).t(), scales(blocks(n), blocks(k))
    wide_a, wide_b = a.to(torch.bfloat16), b.to(torch.bfloat16)
    bf16 = median(lambda: wide_a @ wide_b.t())
    block_scaled = their_product(a, a_scale, b, b_scale)
    theirs = median(block_scaled)
    expected = block_scaled().float()
    lines = [
        "4096 x 4096 x 4096, microseconds",
        f"  bf16 torch.matmul                 {bf16:8.1f}",
        f"  torch._scaled_mm, block scales    {theirs:8.1f}",
        "  block m   n parts tall warps stages       us  of torch's  of bf16  apart from torch's",
    ]
    for text in tiles:
        bm, bn, parts, tall, warps, stages = (int(part) for part in text.split(","))
        tiling = Tiling(
            block_m=bm, block_n=bn, parts=parts, tall=tall, num_warps=warps, num_stages=stages
        )
        call = functools.partial(multiply, a, a_scale, b, b_scale, tiling=tiling)
        try:
            apart = (call().float() - expected).abs().max() / expected.abs().max()
            mine = median(call)
        except triton.runtime.errors.OutOfResources as error:
            print(f"{text}: {error}", flush=True)
            continue
        print(text, mine, flush=True)
        lines.append(
            f"     {bm:4}{bn:4}{parts:6}{tall:5}{warps:6}{stages:7} {mine:8.1f}"
            f"  {theirs / mine:10.3f}  {bf16 / mine:7.3f}  {apart.item():.1e}"
        )
    if torch.cuda.get_device_capability() == (9, 0):
        call = functools.partial(multiply_specialised, a, a_scale, b, b_scale)
        apart = (call().float() - expected).abs().max() / expected.abs().max()
        mine = median(call)
        lines.append(
            f"  specialised warps, 128 x 128      {mine:8.1f}"
            f"  {theirs / mine:10.3f}  {bf16 / mine:7.3f}  {apart.item():.1e}"
        )
    decoded = median(
        lambda: multiply(
            a, a_scale, b, b_scale, decoded=True, tiling=Tiling(block_m=128, num_warps=8)
        )
    )
    return [*lines, f"  decoded to bf16, 128 x 128        {decoded:8.1f}"]


def their_product(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Callable[[], Tensor]:
    """torch's block-scaled product, by whichever of its calls this release takes."""
    kinds = getattr(torch.nn.functional, "ScalingType", None)
    calls: list[Callable[[], Tensor]] = [
        lambda: torch._scaled_mm(a, b.t(), a_scale, b_scale.t(), out_dtype=torch.bfloat16),
        lambda: torch._scaled_mm(a, b.t(), a_scale, b_scale, out_dtype=torch.bfloat16),
    ]
    if kinds is not None:
        one, square = kinds.BlockWise1x128, kinds.BlockWise128x128
        calls += [
            lambda: torch.nn.functional.scaled_mm(
                a, b.t(), a_scale, one, b_scale, square, output_dtype=torch.bfloat16
            ),
            lambda: torch.nn.functional.scaled_mm(
                a, b.t(), a_scale, one, b_scale.t(), square, output_dtype=torch.bfloat16
            ),
        ]
    for call in calls:
        try:
            call()
        except (RuntimeError, ValueError) as error:
            print(f"torch's product: {str(error).splitlines()[0]}", flush=True)
        else:
            return call
    raise RuntimeError("no call of torch takes block scales here")


def few_rows() -> list[str]:
    """M = 16 and M = 1 at N = K = 4096."""
    n = k = 4096
    b, b_scale = codes(n, k), scales(blocks(n), blocks(k))
    wide_b = b.to(torch.bfloat16)
    lines = ["N = K = 4096, microseconds"]
    for m in (16, 1):
        wide = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        bf16 = median(functools.partial(torch.matmul, wide, wide_b.t()))
        lines.append(f"  M = {m:2}: bf16 torch.matmul          {bf16:8.1f}")
        a, a_scale = codes(m, k), scales(blocks(k), m).t()
        if m == 16:
            theirs = their_product(a, a_scale, b, b_scale)
            lines.append(f"  M = {m:2}: torch._scaled_mm           {median(theirs):8.1f}")
            for name, tiling in FEW_ROWS:
                mine = median(functools.partial(multiply, a, a_scale, b, b_scale, tiling=tiling))
                lines.append(f"  M = {m:2}: linear, {name:31} {mine:8.1f}")
            continue
        for columns, splits, warps in VECTORS:
            call = functools.partial(
                multiply_vector,
                wide,
                b,
                b_scale,
                splits=splits,
                block_n=columns,
                num_warps=warps,
            )
            name = f"split K, {columns} columns, {splits} splits, {warps} warps"
            lines.append(f"  M = {m:2}: {name:40} {median(call):8.1f}")
    return lines


def mixture(blocks_tried: tuple[str, ...]) -> list[str]:
    """2048 tokens through 8 of 256 experts, and its two products alone."""
    tokens, top_k, experts, width, inner = 2048, 8, 256, 7168, 2048
    hidden = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16)
    w1, w2 = codes(experts, 2 * inner, width), codes(experts, width, inner)
    w1_scale = scales(experts, 2 * inner // SCALED, width // SCALED)
    w2_scale = scales(experts, width // SCALED, inner // SCALED)
    drawn = torch.rand(tokens, experts, device="cuda").topk(top_k)
    choices, weights = drawn.indices.to(torch.int32), drawn.values.softmax(1)
    routes = tokens * top_k
    lines = [
        "2048 tokens, 8 of 256 experts, 7168 x 2048, microseconds",
        "  block m   n warps stages    whole  gate and up     down  others  products / whole",
    ]
    for text in blocks_tried:
        bm, bn, warps, stages = (int(part) for part in text.split(","))
        tiling = Tiling(block_m=bm, block_n=bn, num_warps=warps, num_stages=stages)
        whole = functools.partial(
            moe_prefill.prefill,
            hidden,
            w1,
            w1_scale,
            w2,
            w2_scale,
            choices,
            weights,
            tiling=tiling,
        )
        quantise = functools.partial(
            per_token_group, {"x": hidden}, {"group": SCALED, "launch": Launch(block=1024)}
        )
        x = quantise()
        table = align(choices, experts=experts, block=bm)
        up = functools.partial(
            multiply_by_expert,
            x["y"],
            x["scale"],
            w1,
            w1_scale,
            table,
            routes=routes,
            top_k=top_k,
            tiling=tiling,
        )
        gate_up = up()
        y, scale = activate(gate_up, choices)
        down = functools.partial(
            multiply_by_expert,
            y,
            scale,
            w2,
            w2_scale,
            table,
            routes=routes,
            top_k=1,
            weights=weights,
            tiling=tiling,
        )
        shares = down()
        try:
            times = [median(call, 15) for call in (whole, up, down)]
        except triton.runtime.errors.OutOfResources as error:
            print(f"{text}: {error}", flush=True)
            continue
        others = {
            "quantise": quantise,
            "align": functools.partial(align, choices, experts=experts, block=bm),
            "activate": functools.partial(activate, gate_up, choices),
            "add": functools.partial(add_choices, shares, choices),
        }
        rest = {name: round(median(call, 15), 1) for name, call in others.items()}
        print(text, times, rest, flush=True)
        lines.append(
            f"     {bm:4}{bn:4}{warps:6}{stages:7} {times[0]:8.1f}  {times[1]:11.1f} {times[2]:8.1f}"
            f"  {rest}  {(times[1] + times[2]) / times[0]:.3f}"
        )
    return [*lines, public_mixture(hidden, w1, w2, choices, weights)]


def public_mixture(hidden: Tensor, w1: Tensor, w2: Tensor, choices: Tensor, weights: Tensor) -> str:
    """The same in bf16 by moe-ops: permute, two grouped products around silu, unpermute."""
    try:
        import moe_ops
    except ImportError:
        return (
            "  no public mixture of experts beside it: moe-ops is not installed "
            "(pip install --no-deps moe-ops==0.1.0)"
        )
    wide1, wide2 = (torch.stack([expert.to(torch.bfloat16) for expert in w]) for w in (w1, w2))
    (tokens, top_k), experts = choices.shape, len(w1)

    def whole() -> Tensor:
        rows, places, ends = moe_ops.permute(hidden, choices, E=experts)
        gate, up = moe_ops.grouped_gemm(rows, wide1, ends).chunk(2, 1)
        down = moe_ops.grouped_gemm(torch.nn.functional.silu(gate) * up, wide2, ends)
        return torch.as_tensor(moe_ops.unpermute(down, places, weights, tokens, top_k))

    with torch.no_grad():
        return f"  moe-ops {version('moe-ops')}, bf16 weights: {median(whole, 15):8.1f}"


def accuracy() -> list[str]:
    """Native against bf16-decoded, as a part of the largest value, by the tile's height.

    Tiles of 64 rows multiply e4m3 in the tensor core's 14 bits, tiles of 32 by way of fp16.
    """
    lines = [
        "native less bf16-decoded, the largest as a part of the largest value",
        f"  {'':48} tiles of 64   tiles of 32",
    ]
    tilings = [Tiling(block_m=m, num_warps=4) for m in (64, 32)]
    for m, n, k in ((37, 512, 512), (64, 256, 4096), (256, 1024, 7168)):
        x = per_token_group(
            {"x": torch.randn(m, k, device="cuda", dtype=torch.bfloat16) * 2},
            {"group": SCALED, "launch": Launch(block=1024)},
        )
        operands = (x["y"], x["scale"], *weights_of(n, k))
        found = [apart(functools.partial(multiply, *operands, tiling=tiling)) for tiling in tilings]
        lines.append(f"  {f'linear {m} x {n} x {k}':48} {found[0]:11.1e}   {found[1]:11.1e}")
    for tokens, experts, width, inner, top_k in ((37, 4, 256, 128, 2), (256, 16, 1024, 512, 8)):
        drawn = torch.rand(tokens, experts, device="cuda").topk(top_k)
        operands = (
            torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16),
            *weights_of(experts, 2 * inner, width),
            *weights_of(experts, width, inner),
            drawn.indices.to(torch.int32),
            drawn.values.softmax(1),
        )
        found = [
            apart(functools.partial(moe_prefill.prefill, *operands, tiling=tiling))
            for tiling in tilings
        ]
        name = f"{tokens} tokens, {top_k} of {experts} experts, {width} x {inner}"
        lines.append(f"  {name:48} {found[0]:11.1e}   {found[1]:11.1e}")
    return lines


def apart(call: Callable[..., Tensor]) -> float:
    """The largest difference between native and decoded, as a part of the largest value."""
    native, decoded = (call(decoded=decoded).float() for decoded in (False, True))
    return float(((native - decoded).abs().max() / decoded.abs().max()).item())


if __name__ == "__main__":
    main()
