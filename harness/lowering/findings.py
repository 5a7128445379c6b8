"""What a reading of one kernel's code for one target says: plain values only, since they travel as JSON."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Hazard:
    """One hazard at one place of the source.

    name         one of `harness.targets.hazards.HAZARDS`
    function     the compiled kernel it is in
    source       "file:line" in the kernel's source, "" where the compiler kept none
    instruction  the machine instructions that show it
    detail       what happens, with an example where there is one
    outputs      the outputs it reaches, all of them where that cannot be told
    conversion   the conversion of floats that shows it, such as "fp32 to e4m3"; "" where none does
    wrong        on how many of the inputs that decide that conversion is wrong in this way
    variants     in how many of the compiled specialisations it was seen, and in which first
    """

    name: str
    function: str
    source: str
    instruction: str
    detail: str
    outputs: tuple[str, ...]
    conversion: str = ""
    wrong: int = 0
    variants: int = 1
    first: str = ""


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why the compiler refused specialisations, how many, and the first."""

    sentence: str
    variants: int
    first: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was read of one kernel under test for one target.

    triton       the version that compiled it
    reached      the distinct specialisations that drawn cases reached
    compiled     those that were compiled and read (see `specialisations`)
    unseen       values of types, constants, alignments or options that were in none of those
    uncompiled   those that were to be compiled and were neither made nor refused
    refusals     what the compiler refused
    hung         why nothing was read, where no answer came in time; "" mostly
    unlaunched   what the launcher itself raised, where it could not run without a result; "" mostly
    conversions  the conversions of floats met, and what is known of each, in words
    atomics      the outputs into which floats are summed atomically, claimed to be reproducible or not
    """

    kernel: str
    target: str
    triton: str
    reached: int = 0
    compiled: int = 0
    unseen: int = 0
    uncompiled: int = 0
    hazards: tuple[Hazard, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    hung: str = ""
    unlaunched: str = ""
    conversions: tuple[str, ...] = ()
    atomics: tuple[str, ...] = ()
    seconds: float = 0.0
