"""fp32 words as tensors of fp32, bf16 or fp16, by shifts alone: the same bits on every device."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from bitproof.harness import generators

Dtype = Literal["fp32", "bf16", "fp16"]

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
_MAGNITUDE = 0x7FFFFFFF
_INFINITY = 0x7F800000


def encode(words: Tensor, dtype: Dtype) -> Tensor:
    """fp32 words (int64) as a tensor of `dtype`: truncated; in fp16, too large values become the largest.

    A NaN stays a NaN.
    """
    if dtype == "fp32":
        return generators.words_to_fp32(words)
    magnitude = words & _MAGNITUDE
    short = _half(magnitude) if dtype == "fp16" else _bfloat(magnitude)
    signed = short | (-(words >> 31) << 15)
    return signed.to(torch.int16).view(DTYPES[dtype])


def _bfloat(magnitude: Tensor) -> Tensor:
    """bf16 codes of fp32 words without sign, truncated."""
    short = magnitude >> 16
    # A NaN whose payload lies in the lost half must not become an infinity.
    return short | ((magnitude > _INFINITY) & (short == 0x7F80)).to(torch.int64)


def _half(magnitude: Tensor) -> Tensor:
    """fp16 codes of fp32 words without sign, truncated; finite values stay finite."""
    exponent = magnitude >> 23
    normal = (magnitude - (112 << 23)) >> 13
    significand = (magnitude & 0x7FFFFF) | 0x800000
    subnormal = significand >> (126 - exponent).clamp(14, 31)
    finite = torch.where(exponent > 112, normal, subnormal).clamp(max=0x7BFF)
    payload = magnitude >> 13 & 0x3FF
    special = 0x7C00 | payload | ((magnitude > _INFINITY) & (payload == 0)).to(torch.int64)
    return torch.where(magnitude >= _INFINITY, special, finite)
