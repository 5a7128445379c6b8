"""Measures outputs against the oracle; the only module that words numeric failures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.bounds import Bound, ExactBits, ForwardError, Judgement, is_float
from bitproof.harness.bounds.norms import StorageModel
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError, describe
from bitproof.harness.lanes.base import Writer, parameters
from bitproof.harness.outcomes import TRIED, Finding
from bitproof.harness.references import bound_on, find_looseness
from bitproof.harness.report import measured
from bitproof.harness.spec import KernelSpec
from bitproof.oracles import formats
from bitproof.oracles.estimates import Estimate
from bitproof.oracles.modelled import Modelled

Array = NDArray[Any]

# What a `Writer` answers of an element that still holds what fresh memory is filled with.
NOBODY = "no program"
_WRITTEN = "written by "
# Bounds of which nobody typed the width.
_DERIVED = (ExactBits, ForwardError, StorageModel)
_UNCERTAIN = (Estimate, Modelled)  # answers that carry more than their numbers


def against_oracle(
    spec: KernelSpec,
    outputs: Mapping[str, Tensor],
    inputs: Inputs,
    *,
    widths: dict[str, int] | None = None,
) -> tuple[list[Finding], float]:
    """Compare every output with the spec's oracle: the findings, and the worst distance / bound.

    `widths` is filled with counts that say whether bounds which may be too wide tell wrong outputs here.
    Raises SpecError when outputs, bounds and oracle do not name the same outputs, or when the oracle raises.
    """
    # Fetched before the oracle runs, so that an error of the device is not attributed to the oracle.
    got = fetch(outputs)
    expected = _answer(spec, inputs)
    types = _types(spec, inputs)
    findings: list[Finding] = []
    worst = 0.0
    for name in sorted(set(spec.bounds) - spec.list_left_out(parameters(inputs))):
        if name not in expected:
            raise SpecError(f"spec {spec.name!r}: its oracle does not answer output {name!r}")
        if name not in got:
            findings.append(Finding(summary=f"output {name} is missing", output=name))
            continue
        if outputs[name].dtype != types.get(name, outputs[name].dtype):
            findings.append(_of_type(name, outputs[name].dtype, types[name]))
            worst = np.inf
            continue
        finding, distance = output(spec, name, got[name], expected[name], inputs)
        worst = max(worst, distance)
        measured.note(name, distance, got[name], _numbers(expected[name]))
        findings += [finding] if finding else []
        if finding is None and widths is not None:
            widths |= _measure_width(spec, name, got[name], expected[name], inputs)
    undeclared = sorted(set(outputs) - set(spec.bounds))
    if undeclared:
        raise SpecError(f"spec {spec.name!r}: output {undeclared[0]!r} has no bound: declare one")
    return findings, worst


def fetch(outputs: Mapping[str, Tensor]) -> dict[str, Array]:
    """The outputs as numpy arrays; outputs on a card are copied with one synchronisation for all.

    The copies go to page-locked memory, which torch keeps for the next call. A card copies to other memory at
    a fraction of the speed, and each fresh page of that memory costs a page fault.
    """
    here: dict[str, Tensor] = {}
    for name, tensor in outputs.items():
        here[name] = tensor
        if tensor.device.type == "cuda" and tensor.numel():
            held = torch.empty(tensor.shape, dtype=bits(tensor).dtype, pin_memory=True)
            here[name] = held.copy_(bits(tensor), non_blocking=True).view(tensor.dtype)
    if any(tensor.device.type == "cuda" for tensor in outputs.values()):
        torch.cuda.current_stream().synchronize()
    return {name: formats.to_numpy(tensor) for name, tensor in here.items()}


def output(
    spec: KernelSpec, name: str, got: Array, expected: Any, inputs: Inputs
) -> tuple[Finding | None, float]:
    """Compare one output with the expected answer: the finding or None, and the worst distance / bound."""
    want = _numbers(expected)
    if got.shape != want.shape:
        return (
            Finding(summary=f"{name} has shape {got.shape}, expected {want.shape}", output=name),
            np.inf,
        )
    if got.dtype != want.dtype != np.float64:
        return _of_type(name, got.dtype, want.dtype), np.inf
    bound = bound_on(spec.bounds[name], name, inputs.tensors, parameters(inputs))
    if isinstance(bound, ExactBits) and got.dtype == want.dtype and _agree(bound, got, want):
        return None, 0.0
    try:
        judgement = bound.judge(got, expected if isinstance(expected, _UNCERTAIN) else want)
    except SpecError as error:
        raise SpecError(f"spec {spec.name!r}, output {name!r}: {error}") from error
    if judgement is None:
        return None, 0.0
    if not judgement.bad.any():
        return None, judgement.ratio
    return _word(spec, name, got, want, bound, judgement, inputs), judgement.ratio


def _measure_width(
    spec: KernelSpec, name: str, got: Array, expected: Any, inputs: Inputs
) -> dict[str, int]:
    """Whether the bound of an output tells zeros and other rows from what it passed, where they differ.

    Nothing is measured of a bound that is derived from the operation: it is as wide as it has to be.
    """
    bound = bound_on(spec.bounds[name], name, inputs.tensors, parameters(inputs))
    if isinstance(bound, _DERIVED) or not got.size:
        return {}
    told = f"told {name} from zeros and other rows"
    answer = expected if isinstance(expected, _UNCERTAIN) else _numbers(expected)
    if not find_looseness(bound, answer, got.dtype):
        return {told: 1, f"{told}{TRIED}": 1}
    return {told: 0, f"{told}{TRIED}": 1}


def _of_type(name: str, got: Any, want: Any) -> Finding:
    """A finding that the output's dtype is not the expected one; both are torch's or both numpy's."""
    one, other = (str(dtype).removeprefix("torch.") for dtype in (got, want))
    return Finding(summary=f"{name} has dtype {one}, expected {other}", output=name)


def _agree(bound: ExactBits, got: Array, want: Array) -> bool:
    """Whether exact bits hold: compares eight bytes at once, and judges only those that differ if few do."""
    one, other = (np.ascontiguousarray(each).reshape(-1) for each in (got, want))
    whole = one.size - one.size % 8
    words, others = one[:whole].view(np.uint64), other[:whole].view(np.uint64)
    apart = np.flatnonzero(words != others)
    if apart.size > words.size // 8:
        return bound.judge(one, other) is None
    few = (words[apart].view(got.dtype), others[apart].view(got.dtype))
    return all(bound.judge(*part) is None for part in (few, (one[whole:], other[whole:])))


def name_writer(finding: Finding, writer: Writer) -> Finding:
    """The same finding, naming the program that wrote the element; NOBODY takes back who should have."""
    if finding.output is None or finding.index is None:
        return finding
    who = writer(finding.output, finding.index)
    if who == NOBODY:
        lines = (line for line in finding.lines if not line.startswith(_WRITTEN))
        return dataclasses.replace(finding, lines=(*lines, f"{NOBODY} wrote it"))
    return (
        dataclasses.replace(finding, lines=(*finding.lines, f"{_WRITTEN}{who}")) if who else finding
    )


def _answer(spec: KernelSpec, inputs: Inputs) -> Mapping[str, Any]:
    try:
        answer: Any = spec.oracle(inputs.tensors, parameters(inputs))
    except Exception as error:
        raise SpecError(f"spec {spec.name!r}: its oracle raised {describe(error)}") from error
    if not isinstance(answer, Mapping):
        raise SpecError(
            f"spec {spec.name!r}: its oracle must return a dict of answers by output, "
            f"it returned {type(answer).__name__}"
        )
    return answer


def _types(spec: KernelSpec, inputs: Inputs) -> Mapping[str, torch.dtype]:
    if spec.dtypes is None:
        return {}
    try:
        return spec.dtypes(inputs.tensors, parameters(inputs))
    except Exception as error:
        raise SpecError(f"spec {spec.name!r}: its dtypes raised {describe(error)}") from error


def _numbers(expected: Any) -> Array:
    if isinstance(expected, _UNCERTAIN):
        return expected.value
    return formats.to_numpy(expected) if isinstance(expected, Tensor) else np.asarray(expected)


def same_bits(name: str, first: Tensor, other: Tensor, what: str) -> Finding | None:
    """None when two outputs agree in every bit, else a finding; `what` says which run `other` comes from."""
    got, want = formats.to_numpy(other), formats.to_numpy(first)
    if got.shape != want.shape or got.dtype != want.dtype:
        return Finding(
            summary=f"{name}: {what} gives {got.dtype}{got.shape}, expected {want.dtype}{want.shape}",
            output=name,
        )
    differing = formats.bits(got) != formats.bits(want)
    if not differing.any():
        return None
    index = tuple(int(i) for i in np.unravel_index(int(differing.argmax()), differing.shape))
    return Finding(
        summary=f"{name}{list(index)}: {what} gives other bits",
        output=name,
        index=index,
        lines=(
            f"first     {_show(want[index])}",
            f"other     {_show(got[index])}",
            f"differing {int(differing.sum())} of {differing.size} elements",
        ),
        facts={"differing": int(differing.sum()), "of": int(differing.size)},
    )


def _word(
    spec: KernelSpec,
    name: str,
    got: Array,
    want: Array,
    bound: Bound,
    judgement: Judgement,
    inputs: Inputs,
) -> Finding:
    index = judgement.worst
    if index is None:
        flat = int(np.argmax(np.where(judgement.bad, judgement.distance, -1.0)))
        index = tuple(int(i) for i in np.unravel_index(flat, got.shape))
    distance = float(judgement.distance[index])
    allowed = float(np.broadcast_to(judgement.allowed, got.shape)[index])
    count = int(judgement.bad.sum())
    wrong = judgement.wrong or f"{count} of {got.size} elements"
    direction = _direction(got, want, judgement.bad)
    where = f"{name}{list(index)}"
    lines = [
        f"got       {_show(got[index])}",
        f"expected  {_show(want[index])}",
        f"distance  {distance:g} {judgement.unit}, allowed {allowed:g} ({bound.formula})",
        f"wrong     {wrong}{', ' + direction if direction else ''}",
    ]
    lines += _inputs_at(spec, inputs, index, got.shape)
    if spec.program is not None:
        lines.append(f"{_WRITTEN}{spec.program(name, index, inputs)}")
    return Finding(
        summary=f"{where} is {_number(got[index])}, expected {_number(want[index])}",
        output=name,
        index=index,
        lines=tuple(lines),
        facts={
            "got": _show(got[index]),
            "expected": _show(want[index]),
            "distance": distance,
            "unit": judgement.unit,
            "allowed": allowed,
            "bound": bound.formula,
            "wrong": count,
            "of": int(got.size),
            "direction": direction,
        },
    )


def _inputs_at(
    spec: KernelSpec, inputs: Inputs, index: tuple[int, ...], shape: tuple[int, ...]
) -> list[str]:
    """A line for each input with an element at `index`: the cause only where elements depend on no others."""
    cast = spec.elementwise
    lines = []
    for name in sorted(inputs.tensors):
        tensor = inputs.tensors[name]
        if tuple(tensor.shape) == shape:
            element = f"{name}{list(index)} = {_show(formats.to_numpy(tensor[index])[()])}"
            caused = cast is not None and cast.input == name
            lines.append(f"input     {element}" if caused else f"at the same index: {element}")
    return lines


def _direction(got: Array, want: Array, bad: NDArray[np.bool_]) -> str:
    """Whether all wrong elements are wrong in one direction, and which; "" where directions mean nothing."""
    with np.errstate(invalid="ignore"):  # widening a signalling NaN raises the flag
        wrong, right = got[bad].astype(np.float64), want[bad].astype(np.float64)
        change = np.abs(wrong) - np.abs(right)
    if (
        not np.isfinite(change).all()
        or not change.all()
        or (np.sign(wrong) * np.sign(right) < 0).any()
    ):
        return ""
    if (change < 0).all():
        return "all toward zero"
    return "all away from zero" if (change > 0).all() else "to both sides"


def _number(element: Any) -> str:
    return repr(float(element)) if is_float(element.dtype) else str(int(element))


def _show(element: Any) -> str:
    """An element in decimal and in the hexadecimal of its bits."""
    width = element.dtype.itemsize * 2
    return f"{_number(element)}  0x{int(formats.bits(np.asarray(element))[()]):0{width}x} ({element.dtype})"
