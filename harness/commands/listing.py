"""`bitproof list`: every kernel, what is checked and claimed of it, and the faults planted in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from harness import lanes


def run(*, specs: Sequence[str], lane: str | None, sweepable: bool, as_json: bool) -> int:
    """Print the kernels of `specs`, the built-in ones where none are named."""
    lanes.choose(lane)
    from harness.discovery import find
    from harness.spec import LANES

    found = find(specs)
    if sweepable:
        found = tuple(item for item in found if item.spec.elementwise is not None)
    kernels = [_plain(item) for item in found]
    if as_json:
        click.echo(json.dumps(kernels, indent=2))
        return 0
    if sweepable:
        for kernel in kernels:
            click.echo(kernel["kernel"])
        return 0
    for kernel in kernels:
        click.echo(f"{kernel['kernel']}  ({kernel['spec']})")
        click.echo(f"  checks  {', '.join(kernel['checks'])}")
        for claim in kernel["claims"]:
            click.echo(f"  claim   {claim}")
        for fault in kernel["faults"]:
            where = (
                "" if set(fault["lanes"]) == set(LANES) else f" on {', '.join(fault['lanes'])} only"
            )
            click.echo(f"  fault   {fault['name']!r}, caught by {fault['caught_by']}{where}")
        for limit in kernel["limits"]:
            click.echo(f"  limit   no {limit['check']} on lane {limit['lane']}: {limit['because']}")
    return 0


def _plain(found: Any) -> dict[str, Any]:
    from harness import checks

    spec = found.spec
    return {
        "kernel": spec.name,
        "spec": found.reference,
        "checks": list(checks.names(spec)),
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


def _claims(spec: Any) -> list[str]:
    claims = [f"{output}: {bound.formula}" for output, bound in sorted(spec.bounds.items())]
    bitwise = spec.reproducible
    shown = f"control {bitwise.control}" if bitwise.control else f"fault {bitwise.shown_by!r}"
    claims.append(f"equal bits over {bitwise.runs} runs, shown by {shown}")
    claims += [f"invariance: {invariance.name}" for invariance in spec.invariances]
    if spec.elementwise is not None:
        cast = spec.elementwise
        claims.append(
            f"every fp32 pattern rounds to {cast.format} ({cast.mode}, {cast.overflow} on overflow)"
        )
    if spec.storage is not None:
        claims.append(f"stores, for `attribute`: {', '.join(spec.storage.points)}")
    return claims
