"""Kernels that differ only in names, places and the order of what has no effect are one text."""

from __future__ import annotations

from bitproof.harness.compiling.canonical import canonical

KERNEL = """
module {
  tt.func public @k(%x_ptr: !tt.ptr<f32> loc("x"("k.py":1:2)), %n: i32) {
    %one = arith.constant 1 : i32 loc(#loc1)
    %two = arith.constant 2 : i32
    %last = arith.subi %n, %one : i32
    %p = tt.addptr %x_ptr, %last : !tt.ptr<f32>, i32
    %sum = scf.for %i = %one to %n step %two iter_args(%acc = %two) -> (i32)  : i32 {
      %next = arith.addi %acc, %i : i32
      scf.yield %next : i32
    }
    tt.store %p, %sum : !tt.ptr<f32>
    tt.return
  }
} loc(#loc)
#loc1 = loc("k.py":3:4)
"""


def test_names_places_and_the_order_of_computations_do_not_count() -> None:
    """Names, comments on places, two constants exchanged."""
    other = KERNEL.replace("%acc", "%total").replace("%p", "%where").replace("#loc1", "#loc7")
    constants = (
        "    %one = arith.constant 1 : i32 loc(#loc7)\n",
        "    %two = arith.constant 2 : i32\n",
    )
    assert "".join(constants) in other
    other = other.replace("".join(constants), "".join(reversed(constants)))
    assert canonical(other) == canonical(KERNEL) != ""


def test_another_operand_operation_type_or_order_of_stores_counts() -> None:
    """Each change of what is computed makes another text."""
    store = "    tt.store %p, %sum : !tt.ptr<f32>\n"
    changes = (
        ("arith.subi %n, %one", "arith.subi %one, %n"),
        ("arith.subi", "arith.addi"),
        ("arith.constant 2 : i32", "arith.constant 3 : i32"),
        ("iter_args(%acc = %two)", "iter_args(%acc = %one)"),
        (store, store + store),
        ("%acc, %i : i32", "%acc, %acc : i32"),
    )
    texts = [canonical(KERNEL.replace(old, new)) for old, new in changes]
    assert len({canonical(KERNEL), *texts}) == len(changes) + 1
