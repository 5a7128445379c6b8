"""How code is read: where instructions come from, and which values reach which stores."""

from __future__ import annotations

from bitproof.harness.lowering.readers import llir, ptx, ttir
from bitproof.harness.lowering.readers.code import Code, Instruction, own

HEAD = """
.visible .entry _kernel(
	.param .u64 .ptr .global .align 1 _kernel_param_0,
	.param .u64 .ptr .global .align 1 _kernel_param_1
)
{
"""
FILES = """
	.file	1 "/home/me/kernels.py"
	.file	2 "/lib/triton/language/standard.py"
"""


def parsed(body: str) -> Code:
    """PTX with this body."""
    return ptx.parse(HEAD + body + "\n}" + FILES)


def only(code: Code, opcode: str) -> Instruction:
    """The one instruction with this opcode."""
    (found,) = (i for i in code.instructions if i.opcode == opcode)
    return found


def test_the_line_is_the_kernels_not_the_librarys() -> None:
    """An instruction inlined from Triton's own library is shown at the kernel's line that called it."""
    code = parsed("""
	.loc	1 48 17
	.loc	2 314 12, function_name $L__info_string0, inlined_at 1 48 17
	.loc	2 287 12, function_name $L__info_string0, inlined_at 2 314 12
	add.f32 	%r7, %r1, %r6;
    """)
    where = only(code, "add.f32").where
    assert [(place.line, place.column) for place in where] == [(287, 12), (314, 12), (48, 17)]
    assert str(own(where)) == "/home/me/kernels.py:48"


def test_lines_counted_within_assembly_are_not_source_lines() -> None:
    """LLVM numbers the lines of an assembly block on from the kernel's; the block is at one line."""
    code = parsed("""
	.loc	1 7 9
	// begin inline asm
	mov.u32 %r2, 0x0;
	.loc	1 8 9
	@%p1 ld.global.b32 { %r2 }, [ %rd1 + 0 ];
	// end inline asm
    """)
    load = only(code, "ld.global.b32")
    assert load.where[0].line == 7
    assert (load.outs, load.address, load.guards) == (("%r2",), ("%rd1",), ("%p1",))


def test_registers_of_two_assembly_blocks_are_apart() -> None:
    """Two blocks that both call a register `a` have two registers."""
    code = parsed("""
	{ .reg .b32 a; mov.b32 a, %r1; mov.b32 %r2, a; }
	{ .reg .b32 a; mov.b32 a, %r3; mov.b32 %r4, a; }
	st.global.b32 [ %rd1 + 0 ], { %r4 };
    """)
    (store,) = code.stores
    reached = {code.instructions[i].text for i in code.behind(store)}
    assert "mov.b32 a, %r3" in reached
    assert "mov.b32 a, %r1" not in reached


def test_a_store_depends_on_its_value_not_on_its_address() -> None:
    """What only makes the address is not behind the value, but says which parameter it points into."""
    code = parsed("""
	ld.param.b64 	%rd1, [_kernel_param_1];
	add.s64 	%rd2, %rd1, %rd9;
	div.full.f32 	%r3, %r1, %r2;
	st.global.b32 [ %rd2 + 0 ], { %r3 };
    """)
    (store,) = code.stores
    behind = {code.instructions[i].opcode for i in code.behind(store)}
    assert behind == {"div.full.f32", "st.global.b32"}
    assert code.targets(store) == {1}


def test_an_address_out_of_a_table_points_into_the_tensor_not_the_table() -> None:
    """An index that was loaded from another parameter is not what is written to."""
    code = parsed("""
	ld.param.b64 	%rd1, [_kernel_param_0];
	ld.param.b64 	%rd2, [_kernel_param_1];
	ld.global.b64 { %rd3 }, [ %rd1 + 0 ];
	add.s64 	%rd4, %rd2, %rd3;
	st.global.b32 [ %rd4 + 0 ], { %r3 };
    """)
    (store,) = code.stores
    assert code.targets(store) == {1}


def test_everything_in_shared_memory_may_come_out_anywhere() -> None:
    """A value that goes through shared memory still reaches the store, as does every other one there."""
    code = parsed("""
	ex2.approx.f32 	%r1, %r9;
	st.shared.b32 	[%r20], %r1;
	rcp.approx.f32 	%r2, %r9;
	st.shared.b32 	[%r21], %r2;
	bar.sync 	0;
	ld.shared.b32 	%r3, [%r22];
	st.global.b32 [ %rd2 + 0 ], { %r3 };
    """)
    (store,) = code.stores
    behind = {code.instructions[i].opcode for i in code.behind(store)}
    assert {"ex2.approx.f32", "rcp.approx.f32"} <= behind


def test_what_decides_a_branch_reaches_every_store() -> None:
    """A comparison that a branch hangs on decides what is stored after it."""
    code = parsed("""
	sqrt.approx.f32 	%r1, %r9;
	setp.gt.f32 	%p1, %r1, %r8;
	@%p1 bra 	$L__BB0_2;
	mov.b32 	%r3, 0;
$L__BB0_2:
	st.global.b32 [ %rd2 + 0 ], { %r3 };
    """)
    (store,) = code.stores
    assert "sqrt.approx.f32" in {code.instructions[i].opcode for i in code.behind(store)}


LLVM = """
define amdgpu_kernel void @_kernel(ptr addrspace(1) inreg %0, ptr addrspace(1) inreg %1, i32 %2) #0 {
  %3 = tail call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %1, i16 0), !dbg !9
  %4 = fdiv float %x, %z, !dbg !10
  %5 = shl i32 %2, 2, !dbg !9
  call void @llvm.amdgcn.raw.ptr.buffer.store.f32(float %4, ptr addrspace(8) %3, i32 %5), !dbg !9
  ret void, !dbg !9
}
!1 = !DIFile(filename: "kernels.py", directory: "/home/me")
!4 = distinct !DISubprogram(name: "_kernel", scope: !1, file: !1, line: 3)
!5 = distinct !DISubprogram(name: "_inner", scope: !1, file: !1, line: 30)
!9 = !DILocation(line: 8, column: 5, scope: !4)
!10 = !DILocation(line: 33, column: 7, scope: !5, inlinedAt: !9)
"""


def test_llvm_ir_is_read_the_same_way() -> None:
    """Places, values and addresses, of a store through a buffer descriptor too."""
    code = llir.parse(LLVM)
    assert [str(place) for place in only(code, "fdiv").where] == [
        "/home/me/kernels.py:33",
        "/home/me/kernels.py:8",
    ]
    (store,) = code.stores
    behind = [code.instructions[i].opcode for i in sorted(code.behind(store))]
    assert behind == ["fdiv", "llvm.amdgcn.raw.ptr.buffer.store.f32"]
    assert code.targets(store) == {1, 2}


TTIR = """
#loc = loc("/home/me/kernels.py":3:1)
#loc5 = loc("/home/me/kernels.py":7:9)
#loc6 = loc("y"(#loc5))
#loc7 = loc(callsite(#loc6 at #loc))
module {
  tt.func public @_kernel(%x: !tt.ptr<f32> loc("x"(#loc))) attributes {noinline = false} {
    %y = tt.fp_to_fp %x_1, rounding = rtz : tensor<64x128xf32> -> tensor<64x128xf8E4M3FN> loc(#loc7)
    %z = arith.truncf %x_2 : f32 to bf16 loc(#loc5)
  %w = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<4xf32> * tensor<4xf32> -> tensor<4xf32> loc(#loc5)
    %v = arith.truncf %x_3 : f64 to f32 loc(#loc5)
  }
}
"""


def test_tritons_ir_says_what_is_asked_for() -> None:
    """Conversions with their rounding, products with their precision, places through call sites."""
    ops = {op.results[0]: op for op in ttir.parse(TTIR) if op.name != "tt.func"}
    assert str(ops["%y"].conversion) == "fp32 to e4m3 toward zero"
    assert [place.line for place in ops["%y"].where] == [7, 3]
    assert str(ops["%z"].conversion) == "fp32 to bf16"
    assert ops["%w"].dot == ("f32", "tf32")
    assert ops["%v"].conversion is None
    assert ops["%v"].converted == ("f64", "f32")
