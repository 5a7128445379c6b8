"""`bitproof list`: every kernel in a line; of a named one what it takes, what is claimed and planted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from bitproof.harness import lanes


def run(
    names: Sequence[str], *, specs: Sequence[str], lane: str | None, sweepable: bool, as_json: bool
) -> int:
    """Print the kernels of `specs`, the built-in ones where none are named; all, or those `names`.

    Mistakes of a spec are printed in the place of what it claims, and the status is then 2.
    """
    lanes.choose(lane)
    from bitproof.harness.subjects.discovery import locate, require_sound

    found = every = locate(specs, names)
    if sweepable:
        found = tuple(item for item in every if not item.mistakes and item.spec.elementwise)
        if not as_json:
            for item in found:
                click.echo(item.spec.name)
            require_sound(every)
            return 0
    kernels = [_plain(item, detailed=bool(names)) for item in found]
    if as_json:
        click.echo(json.dumps(kernels, indent=2))
    elif names:
        for kernel in kernels:
            for line in _lines(kernel):
                click.echo(line)
    else:
        for line in _overview(kernels):
            click.echo(line)
    return 2 if any(item.mistakes for item in every) else 0


def _overview(kernels: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line a kernel under the reference of its spec: its checks, and how many faults are planted in it.

    Mistakes of a spec follow it.
    """
    width = max((len(kernel["kernel"]) for kernel in kernels), default=0)
    for reference in dict.fromkeys(kernel["spec"] for kernel in kernels):
        yield reference
        for kernel in kernels:
            if kernel["spec"] != reference:
                continue
            name = f"  {kernel['kernel']:<{width}}"
            if kernel["mistakes"]:
                yield f"{name}  has mistakes:"
                yield from (f"    mistake {mistake}" for mistake in kernel["mistakes"])
            else:
                faults = len(kernel["faults"])
                checks = ", ".join(kernel["checks"])
                yield f"{name}  {faults} fault{'' if faults == 1 else 's'}; {checks}"
    if kernels:
        yield "`bitproof list KERNEL` shows a kernel's tensors, claims, faults and limits."


def _lines(kernel: dict[str, Any]) -> Iterator[str]:
    from bitproof.harness.targets.families import LANES

    yield f"{kernel['kernel']}  ({kernel['spec']})"
    for mistake in kernel["mistakes"]:
        yield f"  mistake {mistake}"
    if kernel["mistakes"]:
        return
    yield f"  checks  {', '.join(kernel['checks'])}"
    for tensor in kernel.get("tensors", ()):
        kinds = " or ".join(tensor["dtypes"])
        ranks = " or ".join(str(count) for count in tensor["dimensions"])
        absent = "" if tensor["required"] else "; in some cases only"
        plural = "" if tensor["dimensions"] == [1] else "s"
        axes = f"[{', '.join(tensor['axes'])}]" if tensor["axes"] is not None else ""
        shape = axes or f"{ranks} dimension{plural}"
        yield f"  tensor  {tensor['name']}: {kinds}, {shape}{absent}"
    for name, value in kernel.get("params", {}).items():
        yield f"  param   {name}, {json.dumps(value)} unless given"
    for claim in kernel["claims"]:
        yield f"  claim   {claim}"
    for fault in kernel["faults"]:
        everywhere = set(fault["lanes"]) == set(LANES)
        where = "" if everywhere else f" on {', '.join(fault['lanes'])} only"
        yield f"  fault   {fault['name']!r}, caught by {fault['caught_by']}{where}"
    for limit in kernel["limits"]:
        yield f"  limit   no {limit['check']} on lane {limit['lane']}: {limit['because']}"


def _plain(found: Any, *, detailed: bool) -> dict[str, Any]:
    from bitproof.harness import checks

    spec = found.spec
    named = {"kernel": spec.name, "spec": found.reference, "mistakes": list(found.mistakes)}
    if found.mistakes:
        return named
    return {
        **named,
        "checks": list(checks.names(spec)),
        **(_inputs(spec) if detailed else {}),
        "claims": _claims(spec),
        "faults": [
            {"name": fault.name, "caught_by": fault.caught_by, "lanes": list(fault.lanes)}
            for fault in spec.faults
        ],
        "limits": [
            {"lane": limit.lane, "check": limit.check, "because": limit.because}
            for limit in spec.limits
        ],
    }


def _inputs(spec: Any) -> dict[str, Any]:
    """What its cases hold, which takes a moment: cases are drawn for it."""
    from bitproof.harness.commands import captured

    like = captured.schema(spec)
    return {
        "tensors": [
            {
                "name": name,
                "dtypes": sorted(str(dtype).removeprefix("torch.") for dtype in dtypes),
                "dimensions": sorted(like.dimensions[name]),
                "axes": _axes(like, name),
                "required": name in like.required,
            }
            for name, dtypes in sorted(like.dtypes.items())
        ],
        "params": captured.defaults(like),
    }


def _axes(like: Any, name: str) -> list[str] | None:
    """The axes of a declared input as it names them, None for one that no contract declares."""
    if like.declaration is None:
        return None
    return [str(axis) for axis in like.declaration.axes()[name]]


def _shown(bitwise: Any) -> str:
    """By what the bitwise claim was seen to fail."""
    if bitwise.control is not None:
        return f"shown by control {bitwise.control}"
    return f"shown by fault {bitwise.shown_by!r}" if bitwise.shown_by else "shown by nothing yet"


def _claims(spec: Any) -> list[str]:
    claims = [f"{output}: {bound.formula}" for output, bound in sorted(spec.bounds.items())]
    bitwise = spec.bitwise
    if bitwise is None:
        claims.append(f"bits may vary: {spec.reproducible.because}")
    else:
        claims.append(f"equal bits over {bitwise.runs} runs, {_shown(bitwise)}")
    claims += [f"invariance: {invariance.name}" for invariance in spec.invariances]
    if spec.elementwise is not None:
        cast = spec.elementwise
        claims.append(
            f"every fp32 pattern rounds to {cast.format} ({cast.mode}, {cast.overflow} on overflow)"
        )
    if spec.storage is not None:
        claims.append(f"stores, for `attribute`: {', '.join(spec.storage.points)}")
    return claims
