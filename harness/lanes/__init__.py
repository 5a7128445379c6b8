"""How a kernel is run: the only package that knows about devices, streams and the interpreter.

`choose` decides the process's lane before triton is imported; `present` opens it once it is needed.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from typing import TYPE_CHECKING

from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.targets.families import LANES, family

if TYPE_CHECKING:
    from bitproof.harness.lanes.base import Lane

__all__ = ["choose", "family", "gpus", "present"]

# The cuda lane with another target's code: see `harness.lanes.foreign`.
_FOREIGN = re.compile(r"cuda:sm_\d+")
_VARIABLE = "BITPROOF_LANE"


def choose(name: str | None = None) -> str:
    """Fix this process's lane (and its children's): `name`, or cuda where there is a GPU.

    Sets TRITON_INTERPRET to match and pins TRITON_DEFAULT_FP_FUSION, whose default differs between
    triton versions. Raises UsageError for an unknown name, EnvironmentUnfit when there is no GPU for
    cuda or when triton was imported in the other mode already.
    """
    from bitproof.oracles.instructions import INSTRUCTIONS

    # The interpreter lane with a target's tensor cores.
    interpreted = tuple(f"interpreter:{one}" for one in INSTRUCTIONS)
    wanted = name or os.environ.get(_VARIABLE) or ("cuda" if gpus() else "interpreter")
    if wanted not in (*LANES, *interpreted) and not _FOREIGN.fullmatch(wanted):
        raise UsageError(
            f"unknown lane {wanted!r}: choose one of {', '.join(LANES)}, cuda:sm_89 for that target's "
            f"code on the present card, or {', '.join(interpreted)} for its tensor cores without one"
        )
    if family(wanted) == "cuda" and not gpus():
        raise EnvironmentUnfit(
            f"no GPU for lane {wanted}: use --lane interpreter, or run where torch sees one"
        )
    if importlib.util.find_spec("triton") is None:
        raise EnvironmentUnfit("triton is not installed: pip install 'triton>=3.6' (Linux)")
    interpreting = "1" if family(wanted) == "interpreter" else "0"
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET", "0") != interpreting:
        raise EnvironmentUnfit(
            f"triton was imported before lane {wanted} was chosen: start a fresh process, or set "
            f"TRITON_INTERPRET={interpreting} before anything imports triton"
        )
    os.environ[_VARIABLE] = wanted
    os.environ["TRITON_INTERPRET"] = interpreting
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    return wanted


def find_assembler() -> str:
    """The ptxas that TRITON_PTXAS_PATH has Triton use instead of its own; "" where it names none."""
    return os.environ.get("TRITON_PTXAS_PATH", "")


@functools.cache
def gpus() -> int:
    """How many GPUs torch could use, asked of the driver's management library: no CUDA context is made."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@functools.cache
def present() -> Lane:
    """The lane this process runs on; opens it on the first call.

    Raises EnvironmentUnfit when none was chosen, when the installed triton is not supported, or when the
    processor flushes subnormals.
    """
    name = os.environ.get(_VARIABLE)
    if name is None:
        raise EnvironmentUnfit(
            "no lane was chosen in this process: call bitproof.harness.lanes.choose() first"
        )
    import torch
    import triton

    from bitproof.harness.lanes.base import require_subnormals
    from bitproof.harness.targets.versions import release

    require_subnormals()
    torch.set_num_threads(1)  # cases are small, and workers already fill the cores
    if release(triton.__version__) < (3, 6):
        raise EnvironmentUnfit(
            f"triton {triton.__version__} is not supported: pip install 'triton>=3.6'"
        )
    if family(name) == "interpreter":
        from bitproof.harness.lanes.interpreter.lane import InterpreterLane

        return InterpreterLane(name=name)
    if _FOREIGN.fullmatch(name):
        from bitproof.harness.lanes.foreign import open_lane

        return open_lane(name)
    from bitproof.harness.lanes.cuda import CudaLane

    return CudaLane()
