"""A bound that nobody types: what the reference itself may lose in the precision that it declares."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.bounds import AllOf, Answer, Array, Bound, Judgement, first_failing, is_float
from bitproof.harness.bounds.elements import settle_overflow
from bitproof.harness.errors import SpecError
from bitproof.harness.references.calling import Params, Reference, Tensors, evaluate
from bitproof.harness.references.lifting import Declared
from bitproof.harness.references.oracle import as_reference
from bitproof.harness.references.sampling import Nearest, Operands, Sampled
from bitproof.oracles import formats
from bitproof.oracles.formats import Floats

# A single element's samples are few: it is allowed this many times what its row is.
_ALONE = 2.0
# Roundings in fp32 that a kernel may always make, of an element and of its row's norm.
_FEW = 4 * 2.0**-24


@dataclass(frozen=True, kw_only=True, eq=False)
class ReferenceBound:
    """As far from the answer as a stated multiple of what the reference itself may be: see `make_bound`.

    It depends on the inputs: `at` gives the bound of one output on given inputs.
    """

    reference: Reference
    samples: int
    slack: float
    operands: Operands
    _drawn: list[_Drawn] = field(default_factory=list, repr=False)

    @property
    def formula(self) -> str:
        """The bound in words."""
        return (
            f"each row's error at most {self.slack:g} times the largest that {self.reference.name} has "
            f"in {self.samples} runs in the precision it declares, every intermediate rounded at random "
            f"to a neighbour{self._said}, plus one rounding of the output; {_ALONE * self.slack:g} times "
            "for one element"
        )

    @property
    def _said(self) -> str:
        return "" if self.operands == "declared" else f", products of {self.operands} operands"

    def at(self, output: str, tensors: Tensors, params: Params) -> SampledBound:
        """The bound of one output on these inputs. Outputs judged one after another share their samples."""
        if not self._drawn or self._drawn[0].tensors is not tensors:
            runs = _Runs(bound=self, tensors=tensors, params=params)
            self._drawn[:] = [_Drawn(tensors=tensors, runs=runs)]
        runs = self._drawn[0].runs
        return SampledBound(
            sampled=lambda: runs.of(output),
            slack=self.slack,
            gradient=output in self.reference.gradients,
            formula=self.formula,
        )

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """SpecError: what the reference may lose depends on its inputs, which `at` takes."""
        raise SpecError(
            "a bound by a reference is judged on inputs: call at(output, tensors, params)"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Drawn:
    tensors: Tensors
    runs: _Runs


@dataclass(frozen=True, kw_only=True, eq=False)
class _Runs:
    """The samples on some inputs, drawn as they are asked for."""

    bound: ReferenceBound
    tensors: Tensors
    params: Params
    found: list[Mapping[str, Array]] = field(default_factory=list)

    def of(self, output: str) -> Iterator[Array]:
        """The samples of one output, one after another: the first three are rounded to nearest."""
        for number in range(self.bound.samples):
            if number == len(self.found):
                self.found.append(self._run(number))
            if output not in self.found[number]:
                raise SpecError(
                    f"the reference {self.bound.reference.name!r} has no output {output!r}: it has "
                    + ", ".join(self.found[number])
                )
            yield self.found[number][output]

    def _run(self, number: int) -> Mapping[str, Array]:
        arithmetic: Nearest | Sampled = Nearest(fused=(None, 0, 1)[number] if number < 3 else None)
        if number > 2:
            device = next(iter(self.tensors.values())).device if self.tensors else "cpu"
            generator = torch.Generator(device=device)
            generator.manual_seed(_seed(self.tensors) + number)
            arithmetic = Sampled(generator=generator, operands=self.bound.operands)
        answers = evaluate(self.bound.reference, arithmetic, self.tensors, self.params)
        return {name: _unrounded(answer) for name, answer in answers.items()}


def _unrounded(answer: Tensor) -> Array:
    """What a sample gives before its output is rounded; a bound adds that rounding itself."""
    if isinstance(answer, Declared):
        answer = answer.value if answer.raw is None else answer.raw
        answer = torch.view_as_real(answer) if answer.is_complex() else answer
    return formats.to_numpy(answer)


def _seed(tensors: Tensors) -> int:
    """A number that is a function of the inputs' bits, whatever their device."""
    seed = 0
    for name in sorted(tensors):
        array = formats.to_numpy(bits(tensors[name].detach().contiguous()))
        seed = zlib.crc32(array.tobytes(), zlib.crc32(name.encode(), seed))
    return seed << 8


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledBound:
    """The bound of one output on given inputs, from samples of it.

    More samples allow no less. So as few are drawn as show that an output is right, and all of them before
    one is called wrong.
    """

    sampled: Callable[[], Iterator[Array]]
    slack: float
    gradient: bool
    formula: str

    def with_samples(self, count: int) -> SampledBound:
        """The same by at most so many samples, which allows no more."""
        return replace(self, sampled=lambda: itertools.islice(self.sampled(), count))

    def overflows(self, expected: Array, dtype: np.dtype[Any]) -> bool:
        """Whether the reference leaves the range of its own types where the answer is a number.

        That is where a sample is not finite, or where an output of `dtype` could not hold the answer.
        """
        if not is_float(dtype):
            return False
        finite = np.isfinite(expected)
        largest = np.finfo(dtype).max if dtype == np.float64 else formats.of_dtype(dtype).largest
        if bool((np.abs(expected[finite]) > largest).any()):
            return True
        return any(
            not np.isfinite(sample[finite]).all() for sample in itertools.islice(self.sampled(), 2)
        )

    def judge(self, got: Array, expected: Answer) -> Judgement | None:
        """Integers equal the answer or a sample. Of floats NaN and infinities, rows, then elements.

        A NaN or an infinity must be the answer's, or a sample's in that place: a reference that overflows
        in the precision it declares says nothing there. Raises SpecError where the answer is no array.
        """
        if not isinstance(expected, np.ndarray):
            raise SpecError("a bound by a reference needs the answer of make_oracle")
        if not is_float(got.dtype):
            return _judge_integers(got, expected, self.sampled())
        with np.errstate(invalid="ignore"):  # widening a signalling NaN raises the flag
            wide = got.astype(np.float64)
        value = settle_overflow(got, expected.astype(np.float64))
        gathered = _Gathered(value)
        judgement: Judgement | None = None
        for number, sample in enumerate(self.sampled()):
            gathered.add(sample.astype(np.float64))
            if number & (number + 1) and number:  # after 1, 2, 4, 8 ... samples
                continue
            judgement = self._judge(got, wide, gathered)
            if judgement is None or not judgement.bad.any():
                return judgement
        return self._judge(got, wide, gathered) if judgement is not None else None

    def _judge(self, got: Array, wide: Floats, gathered: _Gathered) -> Judgement | None:
        value = gathered.value
        if not wide.size:
            return None
        specials = _judge_specials(wide, value, gathered)
        if specials is not None:
            return specials
        finite = np.isfinite(value) & np.isfinite(wide)
        error = np.where(
            finite, np.abs(np.subtract(wide, value, where=finite, out=np.zeros_like(value))), 0.0
        )
        size = np.where(finite, np.abs(value), 0.0)
        rounding = np.where(finite, _half_ulp(size, got.dtype), 0.0)
        axis = value.ndim - 1 if value.ndim else None
        norm, norms = _norm(size, axis), gathered.norms
        if self.gradient and norms.size:  # where rows cancel, they lose what the others lose
            norms = np.maximum(norms, np.sqrt(np.square(norms).mean()))
        allowed = self.slack * norms + _norm(rounding, axis) + _FEW * norm
        errors = _norm(error, axis)
        bad = errors > allowed
        rows = Judgement(
            bad=np.broadcast_to(bad, value.shape),
            distance=np.broadcast_to(errors, value.shape),
            allowed=np.broadcast_to(allowed, value.shape),
            unit="in norm over the last axis" if value.ndim else "absolute",
            worst=_farthest(error, errors, allowed),
            wrong=f"{int(bad.sum())} of {bad.size} rows" if value.ndim else "",
        )
        most = gathered.largest
        if self.gradient:
            most = np.maximum(most, np.sqrt(np.square(most).mean()))
        alone = _ALONE * self.slack * most + rounding + _FEW * size
        elements = Judgement(bad=error > alone, distance=error, allowed=alone, unit="absolute")
        return first_failing((rows, elements))


class _Gathered:
    """The largest errors of samples so far: of each element, and of each row's norm."""

    def __init__(self, value: Floats) -> None:
        """`value` is the answer."""
        self.value = value
        self._axis = value.ndim - 1 if value.ndim else None
        self.largest: Floats = np.zeros_like(value)
        self.norms: Floats = _norm(self.largest, self._axis)
        self.special: list[Floats] = []

    def add(self, sample: Floats) -> None:
        """One more sample, of the answer's shape."""
        if sample.shape != self.value.shape:
            raise SpecError(
                f"the reference gives shape {sample.shape} at one time and {self.value.shape} at another"
            )
        finite = np.isfinite(sample) & np.isfinite(self.value)
        if not finite.all():
            self.special.append(sample)
        error = np.abs(np.subtract(sample, self.value, where=finite, out=np.zeros_like(sample)))
        np.maximum(self.largest, error, out=self.largest)
        self.norms = np.maximum(self.norms, _norm(error, self._axis))


def make_bound(
    function: Callable[..., Any] | Reference,
    *,
    samples: int = 18,
    slack: float = 4.0,
    operands: Operands = "declared",
) -> ReferenceBound:
    """The bound of every output that a torch reference has, from Monte Carlo arithmetic.

    The reference runs `samples` times in the precision that it declares: three times with each result rounded
    to nearest, in two of which products of fp32 are fused with sums, then with each rounded at random from
    seeds that are a function of the inputs (`harness.references.sampling` says what a sample models). The
    error of each row, in norm over the last axis, may be `slack` times the largest of the samples', before
    their last rounding, plus half a unit of the output's type and four roundings in fp32. An element alone
    may have twice the slack times its own largest: with a slack of 4 that is some 14 standard deviations.
    Gradients cancel: their rows and elements may also lose what all of them lose in the root mean square.
    `operands` says what products of matrices may read, where it is less than the reference declares: "tf32",
    "bf16" or "fp16".

    Raises SpecError for fewer than two samples or a slack below 1.
    """
    if samples < 2 or not slack >= 1:
        raise SpecError(
            f"make_bound needs two or more samples and a slack of at least 1, it got {samples} and {slack}"
        )
    return ReferenceBound(
        reference=as_reference(function), samples=samples, slack=slack, operands=operands
    )


def bound_on(bound: Bound, output: str, tensors: Tensors, params: Params) -> Bound:
    """`bound` for one output on given inputs, where it depends on them; else itself."""
    if isinstance(bound, ReferenceBound):
        return bound.at(output, tensors, params)
    if isinstance(bound, AllOf):
        return AllOf(bounds=tuple(bound_on(one, output, tensors, params) for one in bound.bounds))
    return bound


def _judge_integers(got: Array, expected: Array, samples: Iterator[Array]) -> Judgement | None:
    bad = got != expected
    for sample in samples:
        if not bad.any():
            return None
        bad &= got != sample
    if not bad.any():
        return None
    distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return Judgement(bad=bad, distance=distance, allowed=0.0, unit="absolute")


def _judge_specials(wide: Floats, value: Floats, gathered: _Gathered) -> Judgement | None:
    special = ~np.isfinite(wide) | ~np.isfinite(value)
    bad = special & ~_same(wide, value)
    for sample in gathered.special:
        bad &= ~_same(wide, sample)
    if not bad.any():
        return None
    return Judgement(bad=bad, distance=np.where(bad, np.inf, 0.0), allowed=0.0, unit="absolute")


def _same(one: Floats, other: Floats) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = (one == other) | (np.isnan(one) & np.isnan(other))
    return result


def _half_ulp(size: Floats, dtype: np.dtype[Any]) -> Floats:
    """Half the distance to the next number of the output's type beyond each magnitude."""
    mantissa, lowest = 52, -1022
    if dtype != np.float64:
        fmt = formats.of_dtype(dtype)
        mantissa, lowest = fmt.mantissa_bits, fmt.minimum_exponent
    _, exponent = np.frexp(size)
    binade = np.maximum(np.where(size == 0, lowest, exponent - 1), lowest)
    half: Floats = np.ldexp(0.5, binade - mantissa)
    return half


def _norm(values: Floats, axis: int | None) -> Floats:
    """Euclidean norms over the last axis, which is kept; scaled, so that no square leaves float64's range."""
    largest = values.max(axis=axis, keepdims=True, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    norms: Floats = scale * np.sqrt(np.square(values / scale).sum(axis=axis, keepdims=True))
    return norms


def _farthest(error: Floats, errors: Floats, allowed: Floats) -> tuple[int, ...]:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(errors > 0, errors / allowed, 0.0)
    if not error.ndim:
        return ()
    row = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratios)), ratios.shape)[:-1])
    return (*row, int(np.argmax(error[row])))
