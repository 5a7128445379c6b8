"""What a check is: one declaration that the search, the command line and the property suite go by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bitproof.harness.case import Inputs
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import CheckResult
from bitproof.harness.spec import KernelSpec

# Whether inputs would show something; None where only judging them tells.
Shows = Callable[[Inputs], bool] | None


def _always(spec: KernelSpec) -> bool:
    return True


def _nothing(spec: KernelSpec) -> Mapping[str, Shows]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check: a module of this package calls its own CHECK.

    name     as `harness.vocabulary.CHECKS` has it
    judge    the findings on one case's inputs; what a launcher raises passes through
    launches how many launches one example takes, a control's included
    applies  whether a spec declares what the check judges
    lacking  why a lane on the CPU cannot run it, such as "has no graphs"; "" where it can
    far      whether a search also judges what is hardly ever drawn: the spec's corners, the cases of its
             refusals, and one whose last row's offset needs more than 32 bits
    laid     whether a search also judges cases that show each layout which the spec allows
    tuned    whether a search also judges cases in each autotune configuration that none of its own met
    wanted   what a search has to have seen for its passing to mean something: names of counts in the
             findings, each with a way to tell whether inputs would show it
    idle     names of counts -> what passing lacks where every one of them stayed at zero
    """

    name: str
    judge: Callable[[KernelSpec, Inputs, Lane], CheckResult]
    launches: Callable[[KernelSpec], int]
    applies: Callable[[KernelSpec], bool] = _always
    lacking: str = ""
    far: bool = False
    laid: bool = False
    tuned: bool = False
    wanted: Callable[[KernelSpec], Mapping[str, Shows]] = _nothing
    idle: Callable[[Collection[str]], str] = lambda counts: "nothing that it counts was seen"
