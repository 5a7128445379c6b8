"""Runs a candidate, in a process that holds neither the reference nor its answers.

`python -m bitproof.harness.acceptance.worker`: inputs come as files of tensors, outputs go as such files, and
whoever judges them is another process.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bitproof.harness import checks, lanes
from bitproof.harness.acceptance.loading import CANDIDATE, Source, load, name_outputs
from bitproof.harness.bits import bits
from bitproof.harness.bounds import exact_bits
from bitproof.harness.case import Inputs, Launch
from bitproof.harness.compiling.compiler import find_refusal
from bitproof.harness.errors import BitproofError
from bitproof.harness.lanes.base import Lane, LaunchFailed, Variation, copy_outputs
from bitproof.harness.outcomes import classify
from bitproof.harness.processes.serve import serve
from bitproof.harness.spec import Bitwise, KernelSpec

# What a launcher raises to say that it does not take such inputs.
REFUSES = (ValueError, NotImplementedError, AssertionError, TypeError)
WARM = 20


class _Operations(TorchDispatchMode):
    """Counts what torch itself computes, which allocating, viewing and copying is not."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name.rpartition("::")[2].removesuffix("_")
        view = any(
            r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns
        )
        if not view and name not in _NO_COMPUTATION:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


_NO_COMPUTATION = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros"),
        *("zeros_like", "new_zeros", "ones", "full", "full_like", "zero", "fill", "clone", "copy"),
        *(
            "_to_copy",
            "_unsafe_view",
            "arange",
            "lift_fresh",
            "detach",
            "_local_scalar_dense",
            "set",
            "resize",
        ),
    }
)


class Candidate:
    """A candidate on a lane, as what the harness runs."""

    def __init__(self, source: Source, lane: Lane, setup: Mapping[str, Any]) -> None:
        """`setup` has the arguments of a model, its weights, and the layouts that are tried."""
        self.lane = lane
        self._call = source.build(list(setup["arguments"]), lane.device)
        if isinstance(self._call, nn.Module) and setup["state"]:
            _load_weights(self._call, setup["state"])
        self._positional = list(setup["names"])
        self.spec = KernelSpec(
            name="candidate",
            run=self._run,
            case=Launch,  # type: ignore[arg-type]
            cases=st.nothing,
            oracle=lambda tensors, params: {},
            bounds={"output": exact_bits()},
            faults=(),
            reproducible=Bitwise(runs=4),
            layouts=setup["layouts"],
            inplace=frozenset(setup["inplace"]),
            refuses=REFUSES,
        )

    def _run(self, tensors: Mapping[str, Tensor], params: Mapping[str, Any]) -> dict[str, Tensor]:
        values = {**params, **tensors}
        with torch.no_grad():
            return name_outputs(self._call(*(values[name] for name in self._positional)))

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request: {"trial", "inputs" (a file), "outputs" (a file to write), ...}."""
        trial: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, f"try_{request['trial']}")
        try:
            with checks.without_warnings():
                return trial(request)
        except LaunchFailed as failure:
            error: BaseException = failure.__cause__ or failure
        except (Exception, SystemExit) as raised:  # of a call on ordinary memory
            if isinstance(raised, BitproofError):
                raise
            error = raised
        return {"failed": msgspec.to_builtins(classify(error, REFUSES), enc_hook=str)}

    def try_run(self, request: dict[str, Any]) -> dict[str, Any]:
        """One guarded call."""
        from bitproof.harness.lanes.starts import noting_starts

        inputs = _read(request["inputs"], self.lane.device)
        operations = _Operations()
        with noting_starts(void=request.get("void", False)) as starts, operations:
            launched = self.lane.run(self.spec, inputs, Variation(run=request.get("turn", 0)))
        compiled = launched.launches or () if request.get("compile", False) else ()
        refusal = find_refusal("candidate", compiled)
        torch.save(_here(launched.outputs), request["outputs"])
        return {
            "starts": dict(starts),
            "operations": dict(operations.counts),
            "refusal": refusal,
        }

    def try_check(self, request: dict[str, Any]) -> dict[str, Any]:
        """One of the harness's own checks that needs no answer."""
        inputs = _read(request["inputs"], self.lane.device)
        result = checks.run(request["check"], self.spec, inputs, self.lane)
        return {"result": msgspec.to_builtins(result, enc_hook=str)}

    def try_stale(self, request: dict[str, Any]) -> dict[str, Any]:
        """A sequence of calls on one storage, as `trials` judges it: the outputs of some of them, in order.

        Every call's inputs are `a`, `b` or `c`, whose shapes may be others.
        """
        a, b, c = (_read(request[name], self.lane.device) for name in ("a", "b", "c"))
        held = _copies(a)
        found: list[dict[str, Tensor]] = []

        def call(
            tensors: Mapping[str, Tensor], inputs: Inputs, *, keep: bool = True
        ) -> dict[str, Tensor]:
            params = {**inputs.params, "launch": inputs.launch}
            outputs = self.lane.launch(self.spec, dict(tensors), params)
            if keep:
                found.append(_here(copy_outputs(outputs)))
            return outputs

        first = call(held, a)
        _write_silently(held, b)
        call(held, b)
        changed = [
            name
            for name, one in first.items()
            if not any(_share(one, tensor) for tensor in held.values())
            and not _equal(_here(first)[name], found[0][name])
        ]
        call(_copies(b), b)
        for _ in range(WARM):
            call(held, b, keep=False)
        _write_silently(held, a)
        call(held, a)
        call(c.tensors, c, keep=False)
        _write_silently(held, a)
        call(held, a)
        if self.lane.device.type == "cuda":
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call(_copies(b), b)
            torch.cuda.synchronize()
        torch.save(found, request["outputs"])
        return {"changed": changed}


def _load_weights(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """The reference's weights, where the candidate names its own the same; else those of the same seed."""
    own = model.state_dict()
    if own.keys() == state.keys() and all(own[n].shape == state[n].shape for n in own):
        model.load_state_dict(dict(state))


def _read(file: str, device: torch.device) -> Inputs:
    told = torch.load(file, weights_only=True, map_location=device)
    return Inputs(
        tensors=told["tensors"],
        params=told["params"],
        launch=Launch(**told["launch"]),
        seed=told["seed"],
    )


def _copies(inputs: Inputs) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in inputs.tensors.items()}


def _write_silently(held: Mapping[str, Tensor], inputs: Inputs) -> None:
    """New values in the same memory; torch's version counters do not notice."""
    for name, tensor in inputs.tensors.items():
        held[name].data.copy_(tensor)


def _share(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.equal(bits(one.contiguous()), bits(other.contiguous()))


def _here(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in outputs.items()}


def main() -> None:
    """Load the candidate, then answer until there are no more requests."""
    pipes, reference, setup = sys.argv[1:4]
    sys.argv[1:] = [pipes]
    lanes.choose()
    serve(answering(reference, setup, lanes.present()))


def answering(reference: str, setup: str, lane: Lane) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What answers requests to a candidate, which is loaded with the first of them.

    So what its file raises is told like any other mistake.
    """
    held: list[Candidate] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if not held:
            told = torch.load(setup, weights_only=True)
            held.append(Candidate(load(reference, CANDIDATE), lane, told))
        return held[0].answer(request)

    return answer


if __name__ == "__main__":
    main()
