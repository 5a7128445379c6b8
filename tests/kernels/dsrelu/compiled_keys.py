"""Prints, as JSON, how many variants triton would compile for each of a series of calls: no GPU is needed.

`python compiled_keys.py [FAULT]` runs in compiled mode, with a fault of dsrelu_bf16 planted if one is named.
A driver that only names its target stands in for a card, and triton's own hook, called where no cache has a
variant, counts and keeps it from compiling.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget

from bitproof.harness.case import build
from bitproof.harness.lanes.base import parameters
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant
from bitproof.kernels.dsrelu.cases import DsreluCase

CALLS: dict[str, dict[str, Any]] = {
    "first": {},
    "other sizes": {"tokens": (3, 0, 1)},
    "a multiple of 16": {"tokens": (16, 16, 16)},
    "one token": {"tokens": (1, 0, 0)},
    "slack": {"slack": 7},
    "no tokens": {"tokens": (0, 0, 0)},
    "the same split turned": {"tokens": (1, 7, 5)},
    "another n with as many slots": {"columns": 40},
    "another number of slots": {"columns": 72},
    "another mode": {"deterministic": False},
    "quantised": {"quantised": True},
    "e4m3 operands": {"small": True, "depth": 32},
    "another tile": {"block_m": 64},
    "first again": {},
    "tokens in default mode": {"deterministic": False, "tokens": (9, 9, 9)},
}


def main(*faults: str) -> None:
    """One entry for each call, in order."""
    (found,) = find([], ["dsrelu_bf16"])
    planted = [plant(found, fault) for fault in found.spec.faults if fault.name in faults]
    spec = planted[0] if planted else found.spec
    keys: list[Any] = []

    def note(*args: Any, **kwargs: Any) -> bool:
        keys.append(kwargs["key"])
        return True  # handled: nothing is compiled, nothing launched

    knobs.runtime.jit_cache_hook = note
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
        )
    )
    known: set[Any] = set()
    counted = {}
    for name, changes in CALLS.items():
        keys.clear()
        call(spec, **changes)
        counted[name] = len(set(keys) - known)
        known |= set(keys)
    print(json.dumps(counted))


def call(spec: KernelSpec, deterministic: bool = True, **changes: Any) -> None:
    """One backward pass of a small case on the host's memory."""
    fields = {"tokens": (5, 1, 7), "experts": (0, 1, 0), "weights": 2, "columns": 48, **changes}
    inputs = build(DsreluCase(**fields), torch.device("cpu"))
    spec.run(inputs.tensors, {**parameters(inputs), "deterministic": deterministic})


if __name__ == "__main__":
    main(*sys.argv[1:])
