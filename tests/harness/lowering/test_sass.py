"""Machine code is searched for uniform registers that nothing has written.

The lines are nvdisasm's, from kernels that ptxas 12.8 and 12.9 assembled for sm_90a.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from triton import knobs

from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.read import subject_of
from bitproof.harness.lowering.readers import ptx, sass
from bitproof.harness.lowering.readers.code import Place
from bitproof.harness.lowering.rules import table as rules
from bitproof.harness.lowering.rules.evidence import Subject
from bitproof.harness.lowering.specialisations import Compiled
from bitproof.harness.subjects.discovery import find
from bitproof.harness.targets.architectures import target
from tests.harness.lowering.conftest import KERNELS

LOST = Path(__file__).parent / "code" / "lost_descriptor_sm_90_triton36.ptx"
ENTRY = '\t.other\t_kernel,@"STO_CUDA_ENTRY STV_DEFAULT"\n'
COUNTS_FROM_NOTHING = "UIADD3 UR44, UP0, UR44, 0x20, URZ"


def instructions(body: str) -> list[str]:
    """What is told of a kernel of these lines: labels, and instructions with guards before them."""
    lines = [line.strip() for line in body.strip().split("\n")]
    listed = [
        line if line.endswith(":") else f"/*{i:04x}*/ {line} ;" for i, line in enumerate(lines)
    ]
    return [found.instruction for found in sass.find_unwritten(ENTRY + "\n".join(listed))]


def test_a_descriptor_made_of_nothing_is_found() -> None:
    """Both halves of base + 0x20 where nobody wrote the base; what they are used for is not told again."""
    upper = "UIADD3.X UR45, UR45, -0x3ffffff0, URZ, UP0, !UPT"
    assert instructions(f"""
        UMOV UR46, 0x400
        UMOV UR47, 0x40000040
        {COUNTS_FROM_NOTHING}
        {upper}
        IMAD.U32 R158, RZ, RZ, UR44
        HGMMA.64x64x8.F32.TF32 R24, gdesc[UR44], R24
    """) == [COUNTS_FROM_NOTHING, upper]


@pytest.mark.parametrize(
    "writes",
    [
        "UMOV UR44, 0x400",
        "@P0 R2UR UR44, R5",
        "@!UP1 UMOV UR44, URZ",
        "S2UR UR44, SR_CTAID.X",
        "ULDC.64 UR44, c[0x0][0x230]",
        "ULDC.64 UR43, c[0x0][0x230]",
        "UIMAD.WIDE.U32 UR43, UR4, 0x4, URZ",
        "CS2UR UR43, SRZ",
        "ULOP3.LUT UP0, UR44, URZ, 0x3, URZ, 0xc0, !UPT",
        "VOTEU.ANY UR44, UPT, PT",
        "REDUX.SUM UR44, R3",
    ],
)
def test_whatever_writes_a_register_defines_it(writes: str) -> None:
    """Moves, loads, votes; the upper half of a pair; and a write that may not happen."""
    assert instructions(f"UMOV UR4, URZ\n{writes}\n{COUNTS_FROM_NOTHING}") == []


@pytest.mark.parametrize(
    "lacks",
    [
        "UISETP.GE.AND UP0, UPT, UR4, URZ, UPT",
        "UMOV UR43, 0x400",
        "USHF.R.U64 UR43, UR4, 0x4, UR4",
        "STG.E desc[UR4][R2.64], R44",
        "BRA.DIV UR4, `(.L_x_9)",
    ],
)
def test_what_writes_no_register_or_another_defines_nothing(lacks: str) -> None:
    """Comparisons, stores, branches, 32 bits beside the register."""
    body = f"UMOV UR4, URZ\n{lacks}\n{COUNTS_FROM_NOTHING}"
    assert instructions(body) == [COUNTS_FROM_NOTHING]


@pytest.mark.parametrize(
    ("product", "missing"),
    [
        ("HGMMA.64x64x8.F32.TF32 R24, R56, gdesc[UR4], RZ, !UPT", False),
        ("HGMMA.64x16x16.F32.BF16 R24, gdesc[UR4], R24, gsb0", True),
    ],
)
def test_a_product_reads_the_descriptors_that_it_has(product: str, missing: bool) -> None:
    """A left operand in registers has no descriptor: the first two registers are not read then."""
    found = instructions(f"UMOV UR6, 0x400\nUMOV UR7, 0x40000040\n{product}")
    assert found == ([product] if missing else [])


def test_a_register_that_an_earlier_block_writes_is_defined_in_a_loop() -> None:
    """A counter that starts before its loop was written, in every round."""
    assert (
        instructions(f"""
        UMOV UR44, URZ
        .L_x_3:
        {COUNTS_FROM_NOTHING}
        @P1 BRA `(.L_x_3)
        EXIT
    """)
        == []
    )


def test_a_counter_in_a_loop_does_not_define_itself() -> None:
    """Going round does not make something of nothing."""
    assert instructions(f"""
        .L_x_3:
        {COUNTS_FROM_NOTHING}
        @P1 BRA `(.L_x_3)
        EXIT
    """) == [COUNTS_FROM_NOTHING]


def test_code_that_runs_earlier_may_stand_later() -> None:
    """A block out of line that writes the register and jumps back comes before what is above it."""
    assert (
        instructions(f"""
        BRA `(.L_x_2)
        .L_x_1:
        {COUNTS_FROM_NOTHING}
        EXIT
        .L_x_2:
        UMOV UR44, URZ
        BRA `(.L_x_1)
    """)
        == []
    )


def test_code_that_runs_later_defines_nothing_before_it() -> None:
    """Nor does what stands above and is jumped over."""
    assert instructions(f"""
        BRA `(.L_x_1)
        UMOV UR44, URZ
        .L_x_1:
        {COUNTS_FROM_NOTHING}
        UMOV UR44, URZ
        EXIT
    """) == [COUNTS_FROM_NOTHING]


def test_what_a_called_function_wrote_counts_after_the_call() -> None:
    """A return goes back behind calls, not to the start of the function that it names."""
    counts = "UIADD3 UR45, UP0, UR45, 0x20, URZ"
    assert instructions(f"""
        _kernel:
        {counts}
        CALL.REL.NOINC `(_root)
        {COUNTS_FROM_NOTHING}
        EXIT
        _root:
        UMOV UR44, URZ
        UMOV UR45, URZ
        RET.REL.NODEC R4 `(_kernel)
    """) == [counts]


def test_the_kernels_line_comes_with_what_inlined_it() -> None:
    """The innermost place first, as everywhere else."""
    text = f"""{ENTRY}
	//## File "/k/tiles.py", line 23 inlined at "/k/within.py", line 73
	//## File "/k/within.py", line 73
        /*0000*/                   S2UR UR4, SR_CTAID.X ;
        /*0010*/                   {COUNTS_FROM_NOTHING} ;
	//## File "/k/within.py", line 80
        /*0020*/                   UIADD3 UR45, UR45, 0x1, URZ ;
    """
    found = sass.find_unwritten(text)
    assert [[str(place) for place in each.where] for each in found] == [
        ["/k/tiles.py:23", "/k/within.py:73"],
        ["/k/within.py:80"],
    ]


PTX = """
.visible .entry _kernel(
	.param .u64 .ptr .global .align 1 _kernel_param_0
)
{{
	.loc	1 23 0
	mov.b32 	%r1, {{%rs1, {half}}};
	.loc	1 80 0
	add.s32 	%r2, %r1, 1;
	mov.b16 	%rs1, 0;
}}
	.file	1 "/k/tiles.py"
"""


def told(unwritten: tuple[sass.Unwritten, ...] | None, half: str = "%rs1") -> list[tuple[str, str]]:
    """(hazard, instruction) by the rules, of a kernel of which nothing else is known."""
    subject = Subject(
        spec=find([str(KERNELS)], ["adds"])[0].spec,
        nvidia=True,
        asked=(),
        code=ptx.parse(PTX.format(half=half)),
        written={},
        fused={},
        unwritten=unwritten,
        verdict=lambda conversion: NotModelled("none"),
    )
    return [(name, evidence.instruction) for name, evidence in rules.find(subject)]


@pytest.mark.parametrize("line", [23, 80])
def test_what_ptx_left_undefined_is_not_the_assemblers(line: int) -> None:
    """PTX that pads half a pair with nothing is told neither there nor where the pair is used."""
    found = sass.Unwritten((Place("/k/tiles.py", line, 0),), COUNTS_FROM_NOTHING)
    assert told((found,)) == [("undefined register", COUNTS_FROM_NOTHING)]
    assert told((found,), half="%rs2") == []


def test_machine_code_that_nobody_could_read_is_not_clean(tmp_path: Path) -> None:
    """A file that nvdisasm refuses, or no nvdisasm, makes the kernel not analysed."""
    (tmp_path / "no.cubin").write_bytes(b"no machine code")
    assert sass.disassemble(tmp_path / "no.cubin") is None
    assert told(None) == [("not analysed", "wgmma")]
    assert told(()) == []


def compiled(cubin: Path | None, name: str, text: str = LOST.read_text("utf-8")) -> Subject:
    """The kernel of `LOST` as the rules see it, as if Triton had compiled it for a target."""
    made = Compiled(function="solve", variant="", texts={"ttir": "", "ptx": text}, cubin=cubin)
    return subject_of(find([str(KERNELS)], ["adds"])[0].spec, target(name), made)


def test_only_products_on_sm_90_are_disassembled() -> None:
    """Without a cubin to read, code that has wgmma for sm_90 is the one of which nobody can say."""
    assert compiled(None, "sm_90").unwritten is None
    assert compiled(None, "sm_90", PTX.format(half="%rs1")).unwritten == ()
    assert compiled(None, "sm_100").unwritten == ()


def test_ptxas_12_8_loses_a_descriptor_and_12_9_does_not(tmp_path: Path) -> None:
    """PTX of Triton 3.6, cut down, assembled by what the installed Triton brings: found where it is 12.8."""
    tool = knobs.nvidia.ptxas
    if tool.version not in ("12.8", "12.9"):
        pytest.skip(f"what ptxas {tool.version} makes of this code is not known")
    cubin = tmp_path / "solve.cubin"
    command = [tool.path, "--gpu-name=sm_90a", str(LOST), "-o", str(cubin)]
    subprocess.run(command, check=True)
    found = compiled(cubin, "sm_90").unwritten
    assert found is not None
    lost = [re.match(r"UIADD3 UR(\d+), UP\d, UR\1, ", each.instruction) for each in found]
    assert any(lost) == (tool.version == "12.8")
