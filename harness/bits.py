"""A tensor's bit patterns."""

from __future__ import annotations

import torch
from torch import Tensor

INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: Tensor) -> Tensor:
    """`tensor`'s bit patterns as integers of its width; same shape and memory."""
    return tensor.view(INTEGER_OF_SIZE[tensor.element_size()])
