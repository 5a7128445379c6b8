"""How ranks exchange what they make of their parts: one all-gather a pass, and who carries it.

A rank's work is a `Program`: a generator that yields what its rank sends to all, is sent what all have sent,
[ranks, ...] in their order, and returns its result. `run` drives the programs of this process through an
`Exchange`: all ranks' through `simulated`, one rank's through what `distributed` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Program = Generator[Tensor, Tensor, Result]
Exchange = Callable[[Sequence[Tensor]], Tensor]
"""What each of this process's ranks sends, [...] -> what all ranks sent, [ranks, ...]."""


def run(
    programs: Sequence[Program[Result]], exchange: Exchange, order: Sequence[int] | None = None
) -> list[Result]:
    """The results of this process's ranks, which work and reach each exchange in `order`.

    All of them must take part in as many exchanges; RuntimeError where one returns while others wait.
    """
    order = range(len(programs)) if order is None else order
    results: dict[int, Result] = {}
    received: Tensor | None = None
    while len(results) < len(programs):
        sent: dict[int, Tensor] = {}
        for place in order:
            try:
                sent[place] = _step(programs[place], received)
            except StopIteration as done:
                results[place] = done.value
        if results and sent:
            raise RuntimeError("a rank returned while others wait for its message")
        if sent:
            received = exchange([sent[place] for place in range(len(programs))])
    return [results[place] for place in range(len(programs))]


def _step(program: Program[Any], received: Tensor | None) -> Tensor:
    return next(program) if received is None else program.send(received)


def simulated(sent: Sequence[Tensor]) -> Tensor:
    """An all-gather among the ranks of one process: no library, one memory."""
    received = torch.empty((len(sent), *sent[0].shape), dtype=sent[0].dtype, device=sent[0].device)
    for rank, message in enumerate(sent):
        received[rank].copy_(message)
    return received


def distributed(group: Any = None) -> Exchange:
    """torch.distributed's all-gather in `group` (default: all processes), for one rank a process.

    Over gloo for tensors of the CPU, over NCCL for those of a card, as the group was made.
    """
    import torch.distributed as dist

    def exchange(sent: Sequence[Tensor]) -> Tensor:
        (message,) = sent
        ranks = dist.get_world_size(group)
        received = torch.empty((ranks, *message.shape), dtype=message.dtype, device=message.device)
        dist.all_gather(list(received.unbind(0)), message.contiguous(), group=group)
        return received

    return exchange
