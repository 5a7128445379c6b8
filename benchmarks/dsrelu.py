"""The dsReLU backward pass on a card: what determinism costs, which tiling is fastest, what varies.

    python benchmarks/dsrelu.py [--quick]

At 8 experts of 1024 rows, K = N = 2048, in microseconds (median): `torch._grouped_mm` alone, with the
epilogue in eager torch, and this kernel in both modes for each candidate tiling. Then, over 16 launches
and for each mode, how many of the later 15 differ from the first in dprob and in dbias, at the shapes
where the system's history says they do; and what the harness itself says of a configuration that cannot
vary. The tables come last.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from bitproof.harness import lanes  # noqa: E402

lanes.choose("cuda")

import torch  # noqa: E402
import triton  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from benchmarks.timing import median  # noqa: E402
from bitproof.harness.case import Launch  # noqa: E402
from bitproof.harness.search import falsify  # noqa: E402
from bitproof.kernels.dsrelu.arguments import Operands, Tiling  # noqa: E402
from bitproof.kernels.dsrelu.backward import backward  # noqa: E402
from bitproof.kernels.dsrelu.cases import DsreluCase  # noqa: E402
from bitproof.kernels.dsrelu.specs import BF16  # noqa: E402

CANDIDATES = tuple(
    Tiling(block_m=m, block_n=n, block_k=k, subtiles=s, num_warps=w, num_stages=stages)
    for m, n, k, s, w, stages in (
        (128, 256, 64, 2, 8, 3),
        (128, 256, 64, 4, 8, 3),
        (128, 256, 64, 2, 8, 4),
        (128, 256, 64, 4, 8, 4),
        (128, 256, 32, 4, 8, 5),
        (128, 128, 64, 2, 4, 3),
        (128, 128, 64, 4, 4, 3),
        (128, 128, 32, 2, 4, 4),
        (128, 128, 64, 1, 8, 3),
        (128, 128, 64, 2, 8, 3),
        (128, 128, 64, 2, 8, 4),
        (128, 128, 128, 2, 8, 3),
        (64, 256, 64, 2, 4, 3),
        (256, 128, 64, 2, 8, 3),
        (256, 128, 64, 4, 8, 4),
    )
)


def main() -> None:
    """Measure, then print the tables."""
    parser = argparse.ArgumentParser(description="What determinism costs on this card.")
    parser.add_argument("--quick", action="store_true", help="only the default tiling")
    options = parser.parse_args()
    lanes.present()
    operands, dprob, dbias = problem((1024,) * 8, 2048, 2048)
    lines = ["8 x 1024 rows, K = N = 2048, microseconds"]
    alone, eager = references(operands, dprob, dbias)
    lines += [f"  torch._grouped_mm alone         {alone:8.1f}"]
    lines += [f"  with the epilogue in eager torch{eager:8.1f}"]
    lines += ["  block m   n   k  sub warps stages   default  determ.  ratio  of the product alone"]
    lines += tilings(operands, dprob, dbias, alone, quick=options.quick)
    lines += ["of 15 later launches, how many differ from the first in (dprob, dbias)"]
    for tokens, n, k in (
        ((256, 512, 256, 1024), 512, 512),
        ((512, 256, 1024, 256), 512, 512),
        ((1024,) * 8, 2048, 2048),
    ):
        given = problem(tokens, n, k)
        counts = {mode: varying(*given, deterministic=mode) for mode in (False, True)}
        name = f"{list(tokens)}, n = {n}"
        lines.append(f"  {name:34} default {counts[False]}  deterministic {counts[True]}")
    lines += verdicts()
    card = torch.cuda.get_device_name()
    print(f"\n{card}, torch {torch.__version__}, triton {triton.__version__}")
    print("\n".join(lines))


def problem(tokens: tuple[int, ...], n: int, k: int) -> tuple[Operands, torch.Tensor, torch.Tensor]:
    """bf16 operands of a case with these groups, each its own expert, and zeroed dprob and dbias."""
    case = DsreluCase(
        tokens=tokens,
        experts=tuple(range(len(tokens))),
        weights=len(tokens),
        columns=n,
        depth=k,
        seed=1,
    )
    tensors = case.tensors(torch.device("cuda"))
    dprob, dbias = tensors.pop("dprob"), tensors.pop("dbias")
    return Operands(**tensors), dprob, dbias


def references(operands: Operands, dprob: torch.Tensor, dbias: torch.Tensor) -> tuple[float, float]:
    """Microseconds of torch's grouped product, alone and with the epilogue in eager torch."""
    ends, weights = operands.offsets[1:], operands.b.transpose(1, 2)
    sizes = operands.offsets.diff().tolist()
    rows = torch.repeat_interleave(
        operands.experts.long(), operands.offsets.diff().long(), output_size=operands.rows
    )

    def alone() -> torch.Tensor:
        return torch._grouped_mm(operands.a, weights, offs=ends)

    def eager() -> tuple[torch.Tensor, ...]:
        gradient = operands.alpha[rows][:, None] * alone().float()
        relu = operands.c.float().relu()
        prob = operands.prob[:, None]
        d = 2.0 * prob * relu * gradient
        square = relu * relu
        share = dprob + (square * gradient).sum(1)
        sums = dbias + torch.stack([part.sum(0) for part in d.split(sizes)])
        amax = torch.stack([part.abs().amax() for part in d.split(sizes)])
        return d.to(torch.bfloat16), (prob * square).to(torch.bfloat16), share, sums, amax

    mine = backward(operands, dprob.clone(), dbias.clone(), deterministic=True)
    for name, theirs in zip(("d_row", "d_srelu", "dprob", "dbias", "amax"), eager(), strict=True):
        scale = theirs.float().abs().amax()
        apart = (mine[name].float() - theirs.float()).abs().amax() / scale
        print(f"{name}: {apart.item():.1e} of the largest value from eager torch", flush=True)
    return median(alone), median(eager)


def tilings(
    operands: Operands,
    dprob: torch.Tensor,
    dbias: torch.Tensor,
    alone: float,
    *,
    quick: bool,
) -> list[str]:
    """A line for each candidate, the fastest default first."""
    found = []
    for tiling in (Tiling(),) if quick else CANDIDATES:
        times = []
        for mode in (False, True):

            def call(tiling: Tiling = tiling, mode: bool = mode) -> object:
                return backward(operands, dprob, dbias, deterministic=mode, tiling=tiling)

            try:
                times.append(median(call))
            except triton.runtime.errors.OutOfResources as error:
                print(f"{tiling}: {error}", flush=True)
        if len(times) == 2:
            found.append((times, tiling))
            print(f"{tiling}: {times}", flush=True)
    lines = []
    for (default, slots), tiling in sorted(found, key=lambda item: item[0][0]):
        shape = "".join(f"{value:4}" for value in dataclasses.astuple(tiling)[:3])
        rest = "{:5}{:6}{:7}".format(*dataclasses.astuple(tiling)[3:])
        mark = " *" if tiling == Tiling() else ""
        lines.append(
            f"     {shape}{rest}  {default:8.1f} {slots:8.1f}  {slots / default:5.3f}"
            f"  {default / alone:5.3f}{mark}"
        )
    return lines


def varying(
    operands: Operands, dprob: torch.Tensor, dbias: torch.Tensor, *, deterministic: bool
) -> tuple[int, int]:
    """How many of 15 launches differ in a bit from one before, in dprob and in dbias."""
    runs = [
        backward(operands, dprob.clone(), dbias.clone(), deterministic=deterministic)
        for _ in range(16)
    ]
    counts = [
        sum(not torch.equal(bits(run[name]), bits(runs[0][name])) for run in runs[1:])
        for name in ("dprob", "dbias")
    ]
    return counts[0], counts[1]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Bit patterns, so that zeros of either sign differ."""
    return tensor.view(torch.int32)


def verdicts() -> list[str]:
    """What the reproducibility check says of two configurations: one cannot vary, one can."""
    lines = ["the harness on the reproducibility of"]
    tile = {"depth": 512, "block_m": 128, "block_k": 64, "launch": Launch(block=256, num_warps=8)}
    for name, tokens, columns in (
        ("4 x 256 rows, two column tiles", (256,) * 4, 512),
        ("8 x 1024 rows, eight column tiles", (1024,) * 8, 2048),
    ):
        case = DsreluCase(
            tokens=tokens,
            experts=tuple(range(len(tokens))),
            weights=len(tokens),
            columns=columns,
            subtiles=2,
            **tile,
        )
        spec = dataclasses.replace(BF16, cases=lambda case=case: st.just(case))
        result = falsify.search(spec, "reproducibility", lanes.present(), max_examples=1)
        why = f": {result.undemonstrated}" if result.undemonstrated else ""
        lines.append(f"  {name:34} {result.outcome}{why} {dict(result.counts)}")
    return lines


if __name__ == "__main__":
    main()
