"""What precision costs the chunked delta rule on a card: latency and memory of each policy, beside fla-core.

    python benchmarks/delta.py [--kind kda] [--tokens 129,2048,16384] [--parts]

KDA, or GDN2, with 64 heads of 128 keys and values, bf16 operands of unit-norm q and k, log-decays
-5 sigmoid(normal). For each number of tokens and each policy: the median time in microseconds of the forward
pass, called and as a captured graph's replay, and of the backward pass (which computes the forward pass's
intermediates again), the peak of memory in MiB beyond the operands', and the relative RMS error of o in
percent against the recurrence in float64. fla-core, where it is installed, runs the same operands in the same
run, called. `--parts` says what each kernel takes.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(CHECKOUT))

from bitproof.harness import lanes  # noqa: E402

lanes.choose("cuda")

import torch  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from benchmarks.gdn2_report import percent  # noqa: E402
from bitproof.harness import generators  # noqa: E402
from bitproof.kernels.delta import chunk_bwd, chunk_fwd  # noqa: E402
from bitproof.kernels.delta.arguments import Operands, Options  # noqa: E402
from bitproof.oracles.delta import recurrence  # noqa: E402
from bitproof.oracles.delta.problem import pose_problem  # noqa: E402
from bitproof.oracles.precision import NAMED  # noqa: E402

HEADS, WIDTH = 64, 128

Row = tuple[str, float, float, float, float, float, float]


def main() -> None:
    """Measure, then print one table for each number of tokens."""
    parser = argparse.ArgumentParser(description="What precision costs on this card.")
    parser.add_argument("--kind", choices=("kda", "gdn2"), default="kda")
    parser.add_argument("--tokens", default="129,2048,16384", help="numbers of tokens")
    parser.add_argument("--parts", action="store_true", help="each kernel's time")
    options = parser.parse_args()
    lanes.present()
    card = torch.cuda.get_device_name()
    print(f"{card}, torch {torch.__version__}, triton {triton.__version__}; microseconds, MiB")
    for tokens in map(int, options.tokens.split(",")):
        operands, do = problem(tokens, options.kind)
        exact = reference(operands)
        rows = [ours(name, operands, do, exact) for name in NAMED]
        rows += theirs(operands, do, exact) if importlib.util.find_spec("fla") else []
        title = "forward  of upstream's  replayed   backward   memory  of backward   error"
        print(f"{options.kind} {tokens:6} tokens     {title}")
        for name, fwd, again, bwd, room, more, error in rows:
            ratio = fwd / rows[0][1]
            times = f"{fwd:9.1f} {ratio:14.2f} {again:9.1f} {bwd:10.1f}"
            print(f"  {name:18} {times} {room:8.0f} {more:12.0f} {error:7.4f}")
        if options.parts:
            for name in NAMED:
                print(f"  {name}: {parts(name, operands, do)}")


def problem(tokens: int, kind: str = "kda") -> tuple[dict[str, Tensor], Tensor]:
    """Operands of `kind` and the gradient of o, from the counter."""
    device, shape = torch.device("cuda"), (tokens, HEADS, WIDTH)
    count = tokens * HEADS * WIDTH

    def normal(seed: int) -> Tensor:
        return generators.normal(generators.hash_words(seed, 0, count, device)).reshape(shape)

    q, k, v, do = (normal(seed).to(torch.bfloat16) for seed in range(4))
    operands = {"q": q, "k": k, "v": v, "g": -5.0 * torch.sigmoid(normal(4))}
    if kind == "kda":
        operands["beta"] = torch.sigmoid(normal(5)[..., 0]).to(torch.bfloat16)
    else:
        operands |= {
            name: torch.sigmoid(normal(seed)).to(torch.bfloat16)
            for name, seed in (("b", 5), ("w", 6))
        }
    operands["cu_seqlens"] = torch.tensor([0, tokens], dtype=torch.int32, device=device)
    return operands, do


def reference(operands: dict[str, Tensor]) -> Tensor:
    """o in float64."""
    options = {"scale": None, "gate": "log", "lower_bound": -5.0, "normalise": True}
    p = pose_problem(operands, {**options, "state_v_first": False})
    return recurrence.recurrence(p.x, p.scale, p.initial, p.lengths).o


def passes(
    policy: str, operands: dict[str, Tensor], do: Tensor
) -> tuple[Callable[[], tuple[Any, ...]], Callable[[], object]]:
    """(forward, backward) of our kernels."""
    options = Options(normalise=True, bounded=True, precision=NAMED[policy])
    x = Operands.of(operands, options)
    dfinal = torch.zeros(x.state_shape, device="cuda")
    return (
        lambda: chunk_fwd.forward(x, options, None),
        lambda: chunk_bwd.backward(x, options, None, do, dfinal),
    )


def ours(policy: str, operands: dict[str, Tensor], do: Tensor, exact: Tensor) -> Row:
    """The row of one policy."""
    forward, backward = passes(policy, operands, do)
    times = timed(forward), replayed(forward), timed(backward)
    return policy, *times, peak(forward), peak(backward), percent(forward()[0], exact)


def theirs(operands: dict[str, Tensor], do: Tensor, exact: Tensor) -> list[Row]:
    """fla-core's chunked operator, whose backward pass computes the intermediates again too."""
    from fla.ops.gdn2 import chunk_gdn2
    from fla.ops.kda import chunk_kda

    operator = chunk_kda if "beta" in operands else chunk_gdn2
    given = [
        tensor[None].detach().requires_grad_()
        for name, tensor in operands.items()
        if name != "cu_seqlens"
    ]
    how = {"use_qk_l2norm_in_kernel": True, "safe_gate": True, "lower_bound": -5.0}

    def forward() -> Tensor:
        with torch.no_grad():
            found: Tensor = operator(*given, output_final_state=True, **how)[0]
            return found

    o = operator(*given, **how)[0]

    def backward() -> object:
        return torch.autograd.grad(o, given, do[None], retain_graph=True)

    times = timed(forward), math.nan, timed(backward)
    error = percent(forward()[0], exact)
    return [("fla-core", *times, peak(forward), peak(backward), error)]


def timed(run: Callable[[], object]) -> float:
    """Microseconds, the median."""
    median: float = triton.testing.do_bench(run, warmup=10, rep=80, return_mode="median")
    return 1e3 * median


def replayed(run: Callable[[], object]) -> float:
    """Microseconds of a graph's replay, the median: what the card takes, without the host's launches."""
    with torch.cuda.stream(torch.cuda.Stream()):
        median: float = triton.testing.do_bench_cudagraph(run, rep=40, return_mode="median")
    return 1e3 * median


def peak(run: Callable[[], object]) -> float:
    """MiB allocated at most, beyond what was before."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def parts(policy: str, operands: dict[str, Tensor], do: Tensor) -> str:
    """Each kernel's microseconds in a backward pass, which runs those of the forward pass too."""
    _, backward = passes(policy, operands, do)
    backward()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            backward()
        torch.cuda.synchronize()
    spent = {e.key: e.device_time_total / 5 for e in seen.key_averages()}
    return ", ".join(f"{key[:20]} {time:.0f}" for key, time in spent.items() if time > 5)


if __name__ == "__main__":
    main()
