"""Context parallelism on one card: what it costs in accuracy and in time.

    python benchmarks/context_parallel.py [--skip-long | --parts]

The inputs of the GDN2 report's context-parallel tests (flash-linear-attention's `test_cp_gdn2.py`): sequences
of [3000, 4000, 3240], [5120, 5120], [7000, 3240], [10240] and [65536] tokens over 2, 2, 4, 4 and 8 ranks, all
of which run in this process. For each: the relative RMS error in percent of o and of every gradient, on one
rank and on all, against the recurrence in float64 (65536 tokens: against the chunk form in float64, which
agrees with it to 1e-13), and whether the two give equal bits, as they must where no sequence is cut.

Then, for one sequence of 32768 tokens, 64 heads of 128 x 128, over 2, 4 and 8 ranks: how much longer a rank's
forward and backward passes take for summaries and folds, over all ranks and for the slowest, and the bytes
that a rank receives in a pass. `--skip-long` leaves out 65536 tokens; `--parts` says what each kernel of
a rank takes instead, and the summaries under several launches. The status is 1 where equal bits
are missing, or 2 ranks need more than 15 % beyond a forward pass.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bitproof.harness import lanes

lanes.choose("cuda")

import torch  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from benchmarks import delta, gdn2_report  # noqa: E402
from benchmarks.gdn2_report import HEADS, PARAMS, SEED, WIDTH, percent  # noqa: E402
from bitproof.kernels.delta import chunk_bwd, chunk_fwd  # noqa: E402
from bitproof.kernels.delta.arguments import Operands, Options  # noqa: E402
from bitproof.kernels.delta.ranks import run  # noqa: E402
from bitproof.kernels.delta.ranks.exchange import Program, simulated  # noqa: E402
from bitproof.kernels.delta.ranks.partition import Share, partition  # noqa: E402
from bitproof.oracles.delta import answers, recurrence  # noqa: E402
from bitproof.oracles.delta.chunk import as_is  # noqa: E402
from bitproof.oracles.delta.problem import pose_problem  # noqa: E402
from bitproof.oracles.precision import UPSTREAM, exact  # noqa: E402

LAYOUTS = (
    (2, (3000, 4000, 3240)),
    (2, (5120, 5120)),
    (4, (7000, 3240)),
    (4, (10240,)),
    (8, (65536,)),
)
OUTPUTS = ("o", "dq", "dk", "dv", "dg", "db", "dw")
TOKENS, MOST = 32768, 15.0
DEVICE = torch.device("cuda")


def main() -> int:
    """Print both tables; 1 where something falls short."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-long", action="store_true", help="without 65536 tokens")
    parser.add_argument("--parts", action="store_true", help="each kernel's time instead")
    chosen = parser.parse_args()
    layouts = LAYOUTS[:-1] if chosen.skip_long else LAYOUTS
    lanes.present()
    card = torch.cuda.get_device_name()
    print(f"{card}, torch {torch.__version__}, triton {triton.__version__}")
    if chosen.parts:
        show_parts()
        return 0
    print("relative RMS errors in percent, on one rank / on all")
    print(f"  {'ranks, sequences':24}" + "".join(f"{name:>17}" for name in OUTPUTS) + "  bits")
    unequal = []
    for ranks, lengths in layouts:
        errors, equal = compare(ranks, lengths)
        told = "".join(f"{one:8.4f} /{all_:7.4f}" for one, all_ in errors)
        aligned = sum(lengths) // ranks in lengths and len(set(lengths)) == 1 and len(lengths) > 1
        unequal += [f"{lengths} over {ranks} ranks give other bits"] if aligned > equal else []
        print(f"  {ranks} {list(lengths)!s:22}{told}  {'equal' if equal else 'other'}", flush=True)
    print(f"{TOKENS} tokens, 64 heads of 128 x 128: percent beyond a rank's own pass")
    print("  ranks   forward, all  slowest  backward, all  slowest  MiB received")
    for ranks in (2, 4, 8):
        forward, backward, received = measure(ranks)
        told = "".join(f"{total:14.1f} {most:8.1f}" for total, most in (forward, backward))
        print(f"  {ranks:5}{told}  {received / 2**20:12.1f}", flush=True)
        if ranks == 2 and max(forward) > MOST:
            unequal.append(f"2 ranks need {max(forward):.1f} % beyond a forward pass, above {MOST}")
    print("\n".join(unequal) or "equal bits where no sequence is cut; 2 ranks within 15 %")
    return bool(unequal)


def compare(ranks: int, lengths: tuple[int, ...]) -> tuple[list[tuple[float, float]], bool]:
    """(errors of each output on one rank and on all, whether both gave equal bits)."""
    device, tokens = DEVICE, sum(lengths)
    tensors = gdn2_report.sequences(gdn2_report.inputs(device, tokens), lengths)
    tensors["do"] = output_gradient(device, tokens)
    tensors["dht"] = torch.zeros((len(lengths), HEADS, WIDTH, WIDTH), device=DEVICE)
    one, several = (answer(tensors, count) for count in (1, ranks))
    equal = all(torch.equal(one[name], several[name]) for name in OUTPUTS)
    reference = refer(tensors, long=tokens > gdn2_report.DRAWN)
    errors = [
        (percent(one[name].double(), value), percent(several[name].double(), value))
        for name, value in ((name, reference[name]) for name in OUTPUTS)
    ]
    return errors, equal


def output_gradient(device: torch.device, tokens: int) -> Tensor:
    """The report's gradient of o: the seventh tensor of its draws, of which `inputs` gives the others."""
    generator = torch.Generator(device).manual_seed(SEED)
    shape = (tokens, HEADS, WIDTH)
    drawn = [
        torch.randn(shape, dtype=torch.bfloat16, device=device, generator=generator)
        for _ in range(7)
    ]
    return drawn[-1]


def answer(tensors: Mapping[str, Tensor], ranks: int) -> dict[str, Tensor]:
    """o and the gradients on so many ranks."""
    params = {**PARAMS, "ranks": ranks, "retain": False, "launch": None}
    return {**run.launch(tensors, params), **run.launch_vjp(tensors, params)}


def refer(tensors: Mapping[str, Tensor], *, long: bool) -> dict[str, Tensor]:
    """o and the gradients in float64: of the recurrence, or where they are `long` of the chunk form."""
    p = pose_problem(tensors, PARAMS)
    if long:
        o = answers.chunk_outputs(p, exact, as_is)["o"]
        return {"o": o, **answers.chunk_gradients(p, exact, as_is)[0]}
    o = recurrence.recurrence(p.x, p.scale, p.initial, p.lengths).o
    return {"o": o, **answers.exact_gradients(p)}


Times = tuple[float, float]
"""Microseconds of a rank's pass without and with summaries and folds."""
Cost = tuple[float, float]
"""Percent beyond a rank's own pass: of all ranks, and of the slowest beside the mean rank's own."""


def measure(ranks: int) -> tuple[Cost, Cost, int]:
    """(forward, backward, bytes that a rank receives in a pass) of one sequence over so many ranks."""
    tensors, do = delta.problem(TOKENS, "gdn2")
    options = Options(normalise=True, bounded=True, precision=UPSTREAM)
    x = Operands.of(tensors, options)
    shares = partition([0, TOKENS], TOKENS, ranks)
    times = [time_rank(run.cut(x, s), options, s, do[s.first : s.end].clone()) for s in shares]
    forward, backward = ([both[place] for both in times] for place in range(2))
    received = ranks * x.value_heads * x.keys * (x.values + x.keys) * 4
    return relate(forward), relate(backward), received


def time_rank(x: Operands, options: Options, share: Share, do: Tensor) -> tuple[Times, Times]:
    """One rank's forward pass, and its backward pass after that."""
    dfinal = torch.zeros(x.state_shape, device=DEVICE)
    heard = gathered(x, share)
    saved = chunk_fwd.forward(x, options, None, retain=True)[2]

    def backward() -> Program[dict[str, Tensor]]:
        return run.backward(x, options, None, share, do, dfinal, saved)

    return (
        (
            delta.timed(lambda: chunk_fwd.forward(x, options, None)),
            delta.timed(lambda: alone(run.forward(x, options, None, share), heard)),
        ),
        (
            delta.timed(lambda: chunk_bwd.backward(x, options, None, do, dfinal, saved)),
            delta.timed(lambda: alone(backward(), heard)),
        ),
    )


def gathered(x: Operands, share: Share) -> Tensor:
    """A buffer such as a rank receives, of zeros: what it holds costs no time."""
    summary = torch.zeros((x.value_heads, x.keys, x.values + x.keys), device=x.q.device)
    return simulated([summary] * share.ranks)


def alone(program: Any, heard: Tensor) -> object:
    """One rank's pass, which hears what is there at once."""
    return run.run([program], lambda sent: heard)


def show_parts() -> None:
    """Microseconds of each kernel on the first, a middle and the last of 4 ranks, and of summaries alone."""
    tensors, do = delta.problem(TOKENS, "gdn2")
    options = Options(normalise=True, bounded=True, precision=UPSTREAM)
    shares = partition([0, TOKENS], TOKENS, 4)
    held = [run.cut(Operands.of(tensors, options), share) for share in shares]
    for place in (0, 1, 3):
        x, share, rows = held[place], shares[place], slice(shares[place].first, shares[place].end)
        dfinal = torch.zeros(x.state_shape, device=DEVICE)
        heard, gradient = gathered(x, share), do[rows].clone()

        def both() -> object:
            return alone(run.backward(x, options, None, share, gradient, dfinal), heard)  # noqa: B023

        print(f"rank {place}: {spend(both)}", flush=True)
    x, share = held[1], shares[1]
    heard, dfinal = gathered(x, share), torch.zeros(held[1].state_shape, device=DEVICE)
    gradient = do[share.first : share.end].clone()
    usual, columns = dict(chunk_fwd._TUNED), run._SUMMARY
    for wide in (32, 64):
        for warps, stages in itertools.product((4, 8), (1, 2, 3)):
            chunk_fwd._TUNED |= dict.fromkeys(
                ("summarise", "summarise_gradients"), (warps, stages, None)
            )
            run._SUMMARY = wide
            told = spend(
                lambda: alone(run.backward(x, options, None, share, gradient, dfinal), heard),
                "summarise",
            )
            print(f"{wide} columns, {warps} warps, {stages} stages: {told}", flush=True)
    chunk_fwd._TUNED |= usual
    run._SUMMARY = columns


def spend(passing: Callable[[], object], only: str = "") -> str:
    """Microseconds of each kernel whose name begins with `only`."""
    passing()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            passing()
        torch.cuda.synchronize()
    spent = {event.key: event.device_time_total / 3 for event in seen.key_averages()}
    return ", ".join(
        f"{key[:24]} {time:.0f}" for key, time in spent.items() if time > 2 and key.startswith(only)
    )


def relate(times: Sequence[Times]) -> Cost:
    """What all ranks, and the slowest, take beyond their own passes."""
    own = sum(without for without, _ in times) / len(times)
    added = [within - without for without, within in times]
    return 100 * sum(added) / len(added) / own, 100 * max(added) / own


if __name__ == "__main__":
    sys.exit(main())
