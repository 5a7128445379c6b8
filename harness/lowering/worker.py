"""The process that reads code for one target: `python -m bitproof.harness.lowering.worker`, see `compile`.

One process a target: Triton 3.6 keeps its first target's conversions for the rest of the process, and no
process can both compile and interpret. It answers each request with a `Reading`.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import torch

from bitproof.harness.errors import BitproofError, EnvironmentUnfit, describe
from bitproof.harness.lowering.read import read
from bitproof.harness.processes.serve import serve
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import with_fault
from bitproof.harness.targets.architectures import target


def main() -> None:
    """Answer requests until there are no more."""
    torch.set_num_threads(1)
    serve(lambda request: answer(sys.argv[1], request))


def answer(target_name: str, request: dict[str, Any]) -> Any:
    """The reading that `request` asks for: {"spec", "kernel", "fault", "examples"}.

    What a launcher raises is in the reading; EnvironmentUnfit for what reading itself raises.
    """
    try:
        found = with_fault(find([request["spec"]], [request["kernel"]])[0], request["fault"])
        made = read(found.spec, target(target_name), examples=request["examples"])
    except BitproofError:
        raise
    except Exception as error:
        where = f"code of {request['kernel']} for {target_name} cannot be read here"
        raise EnvironmentUnfit(f"{where}: {describe(error)}") from error
    return msgspec.to_builtins(made)


if __name__ == "__main__":
    main()
