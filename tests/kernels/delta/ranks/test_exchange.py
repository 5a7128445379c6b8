"""One all-gather for all ranks of a process, or for one rank in each through torch.distributed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bitproof.harness import lanes
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs, build
from bitproof.harness.lanes.base import Variation
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.strategies.gates import Gates
from bitproof.kernels.delta.arguments import of_case
from bitproof.kernels.delta.cases import DeltaCase
from bitproof.kernels.delta.ranks import run
from bitproof.kernels.delta.ranks.cases import RanksCase
from bitproof.kernels.delta.ranks.exchange import distributed, simulated
from bitproof.kernels.delta.ranks.exchange import run as run_programs
from bitproof.kernels.delta.ranks.partition import Share, partition
from bitproof.kernels.delta.ranks.specs import GDN2_CP, GDN2_CP_VJP

Names = Generator[Tensor, Tensor, list[float]]


def _rank(rank: int, rounds: int, worked: list[int]) -> Names:
    worked.append(rank)
    heard: list[float] = []
    for turn in range(rounds):
        received = yield torch.tensor([10.0 * turn + rank])
        heard += received[:, 0].tolist()
    return heard


def test_every_rank_hears_all_in_the_order_of_ranks() -> None:
    """Whatever the order in which they work."""
    for order in (None, (2, 0, 1)):
        worked: list[int] = []
        found = run_programs([_rank(n, 2, worked) for n in range(3)], simulated, order)
        assert found == [[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]] * 3
        assert worked == [*(order or range(3))]


def test_a_rank_that_takes_no_part_is_an_error() -> None:
    """The others would wait for it for ever."""
    with pytest.raises(RuntimeError, match="a rank returned while others wait"):
        run_programs([_rank(0, 1, []), _rank(1, 0, [])], simulated)


def _case(ranks: int) -> RanksCase:
    call = DeltaCase(
        kind="gdn2",
        lengths=(3, 13, 0, 4),
        groups=2,
        gates=Gates(gate="bounded", kind="gentle"),
        initial=True,
        gradient=True,
        retain=True,
    )
    return RanksCase(call=call, ranks=ranks)


def _one_rank(tensors: Tensors, params: Params) -> dict[str, Tensor]:
    """What the rank of this process answers with: a launcher, so that its memory is poisoned."""
    x, options = of_case(tensors, params)
    rank = torch.distributed.get_rank()
    share = partition(x.cu_seqlens.tolist(), len(x.q), params["ranks"])[rank]
    own, exchange, launch = run.cut(x, share), distributed(), params["launch"]
    (done,) = run_programs([run.forward(own, options, launch, share, retain=True)], exchange)
    do = tensors["do"][share.first : share.end].clone()
    dfinal = run.cut_states(x, share, tensors["dht"], share.ended)
    program = run.backward(own, options, launch, share, do, dfinal, done.saved)
    (found,) = run_programs([program], exchange)
    return {"o": done.o, "final_state": done.final, **found}


def _process(rank: int, ranks: int, folder: Path) -> None:
    import dataclasses

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks
    )
    spec = dataclasses.replace(GDN2_CP_VJP, run=_one_rank)
    found = _run(spec, build(_case(ranks), torch.device("cpu")), number=rank)
    torch.save(found, folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def _run(spec: KernelSpec, inputs: Inputs, number: int = 0) -> dict[str, Tensor]:
    variation = Variation(run=number, runs=8)
    return dict(lanes.present().run(spec, inputs, variation).outputs)


def _same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, tensor in expected.items():
        assert torch.equal(bits(found[name]), bits(tensor)), name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_over_gloo_give_the_bits_of_the_simulation(ranks: int, tmp_path: Path) -> None:
    """Every output, on a CPU; each process fills its memory with a poison of its own."""
    if lanes.present().device.type != "cpu":
        pytest.skip("a card's driver does not outlive a fork")
    context: Any = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_process, args=(rank, ranks, tmp_path)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    inputs = build(_case(ranks), torch.device("cpu"))
    simulation = _run(GDN2_CP, inputs) | _run(GDN2_CP_VJP, inputs)
    for process in processes:
        process.join(timeout=240)
    assert [process.exitcode for process in processes] == [0] * ranks
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(ranks)]
    x, _ = of_case(inputs.tensors, {**inputs.params, "launch": inputs.launch})
    shares: tuple[Share, ...] = partition(x.cu_seqlens.tolist(), len(x.q), ranks)
    assert sum(share.pre > 0 for share in shares) == ranks - 1
    finals = [one.pop("final_state") for one in found]
    joined = run.join_gradients(x, shares, found) | {
        "o": torch.cat([one["o"] for one in found]),
        "final_state": run.join_states(x, shares, finals, ended=True),
    }
    assert set(joined) == set(simulation)
    _same(joined, simulation)
