"""The memory of one emulated thread, and numbers in it: arrays of words, one element an input."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bitproof.harness.targets import roundings

Array = npt.NDArray[Any]


class NotModelled(Exception):
    """The code does something that the emulation has no model of; the text is the instruction."""


@dataclass(kw_only=True)
class Memory:
    """`source` are the codes [elements, inputs] that a thread reads, `width` bits each.

    What it writes is found in `written`, by byte offset: arrays of bytes [inputs].
    """

    source: Array
    width: int
    written: dict[int, Array] = field(default_factory=dict)

    def load(self, offset: Array, width: int) -> Array:
        """`width` bits at a byte offset, little-endian, in uint64."""
        start = _single(offset)
        value = as_word(0)
        each = self.width // 8
        for i in range(width // 8):
            element, byte = divmod(start + i, each)
            if not 0 <= element < len(self.source):
                raise NotModelled(f"a load at byte {start + i}, outside of what the thread has")
            word = self.source[element].astype(np.uint64)
            value = value | ((word >> as_word(8 * byte)) & as_word(0xFF)) << as_word(8 * i)
        return value

    def store(self, offset: Array, value: Array, width: int) -> None:
        """`width` bits to a byte offset, little-endian."""
        start = _single(offset)
        for i in range(width // 8):
            byte = (value >> as_word(8 * i)) & as_word(0xFF)
            self.written[start + i] = np.broadcast_to(byte, self.source.shape[1:]).astype(np.uint8)

    def results(self, width: int) -> Array:
        """The codes [elements, inputs] written, `width` bits each; NotModelled where one is missing."""
        each = width // 8
        codes = np.zeros(self.source.shape, dtype=np.uint64)
        for element in range(len(codes)):
            for byte in range(each):
                if element * each + byte not in self.written:
                    raise NotModelled(f"nothing was stored for element {element}")
                word = self.written[element * each + byte].astype(np.uint64)
                codes[element] |= word << as_word(8 * byte)
        return codes


def _single(offset: Array) -> int:
    offsets = np.unique(offset)
    if offsets.size != 1:
        raise NotModelled("an address that depends on the data")
    return int(offsets[0])


def as_word(value: int) -> Array:
    """A constant as an array of one word, modulo 2^64."""
    return np.array([value & ((1 << 64) - 1)], dtype=np.uint64)


def as_float(word: Array, name: str) -> Array:
    """Codes of the format `name`, in the low bits of words, as fp32 values, exactly."""
    if name == "fp32":
        return word.astype(np.uint32).view(np.float32)
    if name == "fp16":
        with np.errstate(invalid="ignore"):
            return word.astype(np.uint16).view(np.float16).astype(np.float32)
    if name == "bf16":
        return roundings.f32_from_bf16(word.astype(np.uint16))
    fp8 = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}.get(name)
    if fp8 is None:
        raise NotModelled(f"numbers in {name}")
    return roundings.f32_from_fp8(word.astype(np.uint8), fp8)
