"""Words for an address that is no element of its tensor: past its ends, in a gap, or misaligned."""

from __future__ import annotations

from collections.abc import Iterable

from bitproof.harness.lanes.interpreter.sanitizer.regions import Region


def describe_stray(
    origin: Region | None, regions: Iterable[Region], verb: str, address: int, size: int
) -> str:
    """What an access of `size` bytes at `address` does; `origin` is the tensor its pointer comes from.

    Strides are told where they are not those of a dense tensor; `regions` are those of the launch.
    """
    if address % size:
        return f"{verb} {size} bytes at an address that is not a multiple of {size}"
    if origin is None:
        return f"{verb} an address in no tensor of the launch"
    apart = "" if origin.dense else f" and strides are {origin.strides}"
    layout = f"{origin.name}, whose shape is {origin.shape}{apart}"
    if origin.first <= address < origin.first + origin.span:
        return f"{verb} the gap after {origin.name}{list(origin.before(address))} of {layout}"
    inside = [r.name for r in regions if r.name and r.first <= address < r.first + r.span]
    other = f", inside {inside[0]}" if inside and inside[0] != origin.name else ""
    return f"{verb} outside of {layout}{other}"
