"""The process that reads code for one target: `python -m bitproof.harness.lowering.worker TARGET`.

One process a target: Triton 3.6 keeps its first target's conversions for the rest of the process, and no
process can both compile and interpret. It takes requests from standard input, one line of JSON each, and
answers each with the JSON of a `Reading`, or of {"error": ...}; what compilers print goes to standard
error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import msgspec

from bitproof.harness.errors import BitproofError


def main() -> None:
    """Answer requests until there are no more."""
    speak = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    os.environ["TRITON_INTERPRET"] = "0"
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        speak.write(msgspec.json.encode(answer(sys.argv[1], json.loads(line))).decode() + "\n")
        speak.flush()


def answer(target_name: str, request: dict[str, Any]) -> Any:
    """The reading that `request` asks for: {"spec", "kernel", "fault", "examples"}."""
    from bitproof.harness.lowering.read import read
    from bitproof.harness.subjects.discovery import find
    from bitproof.harness.subjects.planting import plant
    from bitproof.harness.targets.architectures import target

    try:
        found = find([request["spec"]], [request["kernel"]])[0]
        faults = [fault for fault in found.spec.faults if fault.name == request["fault"]]
        spec = plant(found, faults[0]) if faults else found.spec
        return read(spec, target(target_name), examples=request["examples"])
    except BitproofError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main()
