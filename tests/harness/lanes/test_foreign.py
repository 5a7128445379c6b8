"""The foreign lane: compiled for one target, assembled for another, and honest about what it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import knobs

from bitproof.harness import lanes
from bitproof.harness.case import Inputs
from bitproof.harness.errors import EnvironmentUnfit, Unsupported, UsageError
from bitproof.harness.lanes import foreign
from bitproof.harness.lanes.base import LaunchFailed, Variation
from bitproof.harness.lanes.cuda import CudaLane
from bitproof.harness.outcomes import Outcome, classify
from bitproof.harness.targets.architectures import target
from tests.harness.plain import SPEC

CHECKOUT = Path(__file__).resolve().parents[3]
HAZARDS = CHECKOUT / "tests" / "harness" / "lowering" / "hazards.py"

# Compiles a cast for a target, assembles it for a card (0: for the target itself), and prints the PTX's
# target and the lower ELF flags of the binary, which hold the architecture it is for (older assemblers
# keep the PTX's in the upper ones).
ASSEMBLE = """
import struct, sys
from pathlib import Path
import torch
from triton import knobs
from bitproof.harness.subjects.discovery import find
from bitproof.harness.lanes.foreign import reassemble
from bitproof.harness.compiling import null_driver
from bitproof.harness.targets.architectures import target

chosen, card = target(sys.argv[1]), int(sys.argv[2])
made = {}
null_driver.install(chosen, lambda source, arguments: None)
if card:
    reassemble(chosen, lambda: card)
knobs.compilation.listener = lambda *, metadata_group, **_: made.update(metadata_group)
spec = find([sys.argv[3]], ["fp32_to_e5m2"])[0].spec
spec.run({"x": torch.zeros(256), "w": torch.zeros(256)}, {})
files = {Path(path).suffix: Path(path) for path in made.values()}
(declared,) = (line for line in files[".ptx"].read_text().split("\\n") if ".target" in line)
(flags,) = struct.unpack_from("<I", files[".cubin"].read_bytes(), 48)
print(declared.split()[1], flags & 0xFFFF)
"""


def assembled(name: str, card: int, folder: Path) -> tuple[str, int]:
    """(target of the PTX, lower ELF flags of the binary) of a cast for the target `name`."""
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLE, name, str(card), str(HAZARDS)],
        env={
            **os.environ,
            "TRITON_INTERPRET": "0",
            "TRITON_CACHE_DIR": str(folder / f"{name}-{card}"),
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stderr.strip().split("\n")[-1])
    declared, flags = done.stdout.split()
    return declared, int(flags)


def test_a_targets_code_is_assembled_for_the_card(tmp_path: Path) -> None:
    """The PTX is sm_89's, the binary is one for sm_90."""
    native = {name: assembled(name, 0, tmp_path) for name in ("sm_89", "sm_90")}
    ptx, binary = assembled("sm_89", 90, tmp_path)
    assert ptx == native["sm_89"][0] == "sm_89"
    assert binary == native["sm_90"][1] != native["sm_89"][1]


@pytest.mark.parametrize(
    ("name", "card", "why"),
    [
        ("sm_100", 90, "code for sm_100 does not run on an older sm_90"),
        ("sm_90", 100, "code for sm_90 is specific to it and does not run on sm_100"),
    ],
)
def test_what_the_card_cannot_run_is_unsupported(name: str, card: int, why: str) -> None:
    """A newer target's code and one architecture's own are told apart before anything is assembled."""
    assembler = foreign._Assembler(target=target(name), card=lambda: card, options=None)
    with pytest.raises(Unsupported, match=why) as raised:
        assembler("", {})
    assert classify(raised.value, ()).outcome is Outcome.UNSUPPORTED


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages hook as it was, after a test that sets it."""
    monkeypatch.setattr(knobs.runtime, foreign._HOOK, None)


@pytest.mark.usefixtures("hook")
def test_a_triton_that_does_not_obey_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that is gone, or that nobody asks any more, is one sentence and not silence."""
    from triton.backends.nvidia.compiler import CUDABackend

    foreign.reassemble(target("sm_89"), lambda: 90)
    monkeypatch.setattr(CUDABackend, "add_stages", lambda *_: None)
    with pytest.raises(
        EnvironmentUnfit, match=r"is no longer asked for the assembler; use another"
    ):
        foreign.reassemble(target("sm_89"), lambda: 90)
    monkeypatch.setattr(foreign, "knobs", SimpleNamespace(runtime=SimpleNamespace()))
    with pytest.raises(EnvironmentUnfit, match=r"add_stages_inspection_hook is gone"):
        foreign.reassemble(target("sm_89"), lambda: 90)


@pytest.mark.usefixtures("hook")
def test_its_cache_is_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Opened twice in a row of processes, the lane still has one folder, which no other lane reads."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert foreign.open_lane("cuda:sm_89").name == "cuda:sm_89"
        assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "foreign-sm_89")


def test_the_lane_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs a GPU like the cuda lane, whose claims and limits it shares."""
    assert lanes.family("cuda:sm_89") == lanes.family("cuda") == "cuda"
    with pytest.raises(UsageError, match="does not run on an NVIDIA card"):
        foreign.open_lane("cuda:gfx942")
    with pytest.raises(UsageError, match="unknown target 'sm_75'"):
        foreign.open_lane("cuda:sm_75")
    monkeypatch.setattr(lanes, "gpus", lambda: 0)
    with pytest.raises(EnvironmentUnfit, match="no GPU for lane cuda:sm_89"):
        lanes.choose("cuda:sm_89")


def test_what_the_target_refuses_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's own sentence says why; any other error stays what it is."""
    lane = foreign.ForeignLane(name="cuda:sm_80", target=target("sm_80"))
    monkeypatch.setattr(foreign.ForeignLane, "_report_target", lambda self: None)

    class CompilationError(Exception):
        """Named as Triton's."""

    def failing(cause: Exception) -> Any:
        def run(self: CudaLane, *_: Any) -> Any:
            raise LaunchFailed("x") from cause

        return run

    inputs = Inputs(tensors={}, params={})
    refusal = CompilationError('at 1:0:\n^\nValueError("type fp8e4nv not supported")')
    monkeypatch.setattr(CudaLane, "run", failing(refusal))
    with pytest.raises(LaunchFailed) as refused:
        lane.run(SPEC, inputs, Variation())
    assert refused.value.__cause__ is not None
    findings = classify(refused.value.__cause__, ())
    assert findings.outcome is Outcome.UNSUPPORTED
    assert findings.reason == "sm_80 refuses it: type fp8e4nv not supported"
    monkeypatch.setattr(CudaLane, "run", failing(torch.OutOfMemoryError("out of memory")))
    with pytest.raises(LaunchFailed) as other:
        lane.run(SPEC, inputs, Variation())
    assert isinstance(other.value.__cause__, torch.OutOfMemoryError)


def test_the_driver_reports_the_target_and_is_itself_in_all_else() -> None:
    """Only what to compile for is changed."""
    own = SimpleNamespace(utils="its own", get_current_target=lambda: "sm_90")
    driver = foreign._Reporting(own, target("sm_89"))
    assert driver.utils == "its own"
    assert (driver.get_current_target().arch, driver.get_current_target().warp_size) == (89, 32)
