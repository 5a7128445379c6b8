"""Accesses outside of their tensor, each reported at its line and kept from happening."""

import pytest
import torch
import triton
import triton.language as tl

from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer
from tests.harness.lanes.interpreter.marking import marked, only


@triton.jit
def off_by_one(x, y, n, BLOCK: tl.constexpr):
    """The mask lets one element too many in."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at <= n, other=0.0)  # here
    tl.store(y + at, value, mask=at < n)


@triton.jit
def off_by_one_store(x, y, n, BLOCK: tl.constexpr):
    """The mask lets one element too many out."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, value, mask=at <= n)  # here


@triton.jit
def discarded_lane(x, y, n, BLOCK: tl.constexpr):
    """A load without a mask, whose surplus lanes are not stored."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)  # here
    tl.store(y + at, value, mask=at < n)


@triton.jit
def load_one_further(x, at):
    """Loads the element after."""
    return tl.load(x + at + 1)  # here


@triton.jit
def nested(x, y, BLOCK: tl.constexpr):
    """Errs in a function it calls."""
    at = tl.arange(0, BLOCK)
    tl.store(y + at, load_one_further(x, at))


@triton.jit
def copy_rows(x, y, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Copy a matrix whose rows are `stride` apart."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + row * stride + column)  # here
    tl.store(y + row * COLUMNS + column, value)


@triton.jit
def far_row(x, y, row, stride, BLOCK: tl.constexpr):
    """Copy a row whose offset is computed in int32."""
    start = (row + tl.program_id(0)) * stride
    value = tl.load(x + start + tl.arange(0, BLOCK))  # here
    tl.store(y + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)


@triton.jit
def far_row_wide(x, y, row, stride, BLOCK: tl.constexpr):
    """Copy a row whose offset is computed in int64."""
    start = (row + tl.program_id(0)).to(tl.int64) * stride
    value = tl.load(x + start + tl.arange(0, BLOCK))
    tl.store(y + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)


@triton.jit
def scale_blocks(x, y, scale, rows, columns, BLOCK: tl.constexpr):
    """Divide each block of a matrix by its largest magnitude."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    block = tl.load(x + row * columns + column, mask=inside, other=0.0)
    largest = tl.max(tl.max(tl.abs(block), axis=1), axis=0)
    tl.store(scale + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), largest)
    tl.store(y + row * columns + column, block / largest, mask=inside)


@triton.jit
def scale_whole_columns(x, y, scale, rows, columns, BLOCK: tl.constexpr):
    """The same, as if the last block of a row were whole."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    block = tl.load(x + row * columns + column, mask=inside, other=0.0)
    largest = tl.max(tl.max(tl.abs(block), axis=1), axis=0)
    tl.store(scale + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), largest)
    tl.store(y + row * columns + column, block / largest, mask=row < rows)  # here


@triton.jit
def add_everywhere(total, BLOCK: tl.constexpr):
    """An unmasked atomic."""
    tl.atomic_add(total + tl.arange(0, BLOCK), 1.0)  # here


@triton.jit
def described(x, y, rows, BLOCK: tl.constexpr):
    """Copy through descriptors, of which the first claims `rows` rows."""
    source = tl.make_tensor_descriptor(x, [rows, 16], [16, 1], [BLOCK, 16])
    target = tl.make_tensor_descriptor(y, [BLOCK, 16], [16, 1], [BLOCK, 16])
    target.store([0, 0], source.load([0, 0]))  # here


@triton.jit
def through_a_table(table, y, BLOCK: tl.constexpr):
    """Copy tensors whose addresses lie in a tensor."""
    start = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    value = tl.load(start + tl.arange(0, BLOCK))  # here
    tl.store(y + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), value)


@triton.jit
def misaligned(x, y):
    """Reads int32 out of bytes, three bytes into an element."""
    at = (x + 3).to(tl.pointer_type(tl.int32))
    tl.store(y, tl.load(at))  # here


def test_an_off_by_one_mask_is_reported(watched):
    """The first element past the end, by its program, tensor and index; y is right all the same."""
    x, y = torch.arange(100.0), torch.zeros(100)
    violation = only(watched(off_by_one, x, y, 100, 64, grid=(2,)), off_by_one, "bounds")
    assert (violation.kernel, violation.program) == ("off_by_one", (1, 0, 0))
    assert (violation.tensor, violation.index) == ("x", (100,))
    assert torch.equal(x, y)


def test_an_out_of_bounds_store_is_dropped(watched):
    """Memory behind the tensor keeps its value, and the report names the element."""
    memory = torch.full((101,), 7.0)
    watch = watched(off_by_one_store, torch.zeros(101), memory[:100], 100, 64, grid=(2,))
    violation = only(watch, off_by_one_store, "bounds")
    assert (violation.tensor, violation.index, memory[100].item()) == ("y", (100,), 7.0)


def test_a_discarded_lane_without_mask_is_reported(watched):
    """A load past the end counts even if its value is thrown away; the lane reads as NaN."""
    y = torch.zeros(128)
    watch = watched(discarded_lane, torch.zeros(100), y, 128, 64, grid=(2,))
    assert only(watch, discarded_lane, "bounds").detail.endswith("(28 elements)")
    assert y.isnan().tolist() == [False] * 100 + [True] * 28


def test_the_innermost_line_is_reported(watched):
    """In a function that a kernel calls, the line is the function's, the kernel the launched one."""
    watch = watched(nested, torch.zeros(8), torch.zeros(8), 8)
    assert only(watch, load_one_further, "bounds").kernel == "nested"


def test_a_view_is_judged_by_its_own_elements(watched):
    """Columns of a neighbouring view of the same buffer are outside, and named with it."""
    both = torch.zeros(4, 12)
    watch = watched(copy_rows, both[:, :6], both[:, 6:], 12, 4, 8)
    assert [(v.tensor, v.index) for v in watch.violations] == [("x", (0, 6)), ("y", (0, 6))]
    assert watch.violations[0].line == marked(copy_rows)


def test_a_gap_between_rows_is_outside(watched):
    """The padding of a strided tensor belongs to nobody, its last row ends with its last element."""
    padded = torch.zeros(4, 8)[:, :5]
    violation = only(watched(copy_rows, padded, torch.zeros(4, 8), 8, 4, 8), copy_rows, "bounds")
    assert (violation.index, violation.detail[-13:]) == ((0, 5), "(12 elements)")


def test_strided_and_expanded_views_are_inside(watched):
    """Every other column, a transpose and an expanded row are read through their own strides."""
    whole = torch.arange(64.0).reshape(8, 8)
    out = torch.zeros(8, 8)
    assert not watched(copy_rows, whole[0].expand(8, 8), out, 0, 8, 8).violations
    assert torch.equal(out, whole[0].expand(8, 8))


def test_partial_blocks_stay_inside(watched):
    """(1536, 1560) in blocks of 128: the last block of a row is partial, memory around is untouched."""
    memory = torch.full((1536 * 1560 + 256,), 7.0)
    y = memory[128:-128].view(1536, 1560)
    x, scale = torch.ones(1536, 1560), torch.zeros(12, 13)
    assert not watched(scale_blocks, x, y, scale, 1536, 1560, 128, grid=(12, 13)).violations
    assert torch.equal(y, x)
    assert torch.equal(memory[:128], memory[-128:])
    assert memory[-1].item() == 7.0


def test_a_partial_block_written_whole_is_reported(watched):
    """In a row-major matrix, what passes a row's end lands in the next row, where another program wrote."""
    x, y, scale = torch.ones(40, 44), torch.zeros(40, 44), torch.zeros(3, 3)
    x[:, :16] = 2.0
    watch = watched(scale_whole_columns, x, y, scale, 40, 44, 16, grid=(3, 3))
    kinds = {violation.kind for violation in watch.violations}
    assert kinds == {"race", "bounds"}
    assert {violation.line for violation in watch.violations} == {marked(scale_whole_columns)}


@pytest.fixture
def tall():
    """131073 rows of 16384 bytes, of which the system only ever provides the pages touched."""
    return torch.empty((131073, 16384), dtype=torch.int8)


def test_a_wrapped_32_bit_offset_is_reported(watched, tall):
    """int32 offsets reach row 131071 of a stride of 16384; the next row is far before the tensor."""
    y = torch.zeros(16, dtype=torch.int8)
    assert not watched(far_row, tall, y, 131071, 16384, 16).violations
    wrapped = only(watched(far_row, tall, y, 131072, 16384, 16), far_row, "bounds")
    assert (wrapped.tensor, wrapped.index) == ("x", (-131072, 0))


def test_a_64_bit_offset_does_not_wrap(watched, tall):
    """The same row computed in int64 is read where it lies."""
    y = torch.zeros(16, dtype=torch.int8)
    tall[131072, :16] = 3
    assert not watched(far_row_wide, tall, y, 131072, 16384, 16).violations
    assert y.tolist() == [3] * 16


def test_atomics_stay_inside(watched):
    """An atomic past the end is dropped and reported."""
    memory = torch.zeros(8)
    violation = only(watched(add_everywhere, memory[:6], 8), add_everywhere, "bounds")
    assert (violation.index, memory.tolist()) == ((6,), [1.0] * 6 + [0.0] * 2)


def test_a_descriptor_larger_than_its_tensor_is_reported(watched):
    """A descriptor's own bounds are masked; what it claims beyond the tensor is not."""
    x = torch.zeros(8, 16)
    assert not watched(described, x[:5], torch.zeros(8, 16), 5, 8).violations
    watch = watched(described, x[:5], torch.zeros(8, 16), 8, 8)
    assert only(watch, described, "bounds").index == (5, 0)


def test_a_pointer_table_needs_its_tensors_named(watched):
    """An address that came from memory is judged against every tensor the launch can reach."""
    a, b = torch.ones(4), torch.zeros(4)
    table, y = torch.tensor([a.data_ptr(), b.data_ptr()]), torch.zeros(8)
    only(watched(through_a_table, table, y, 4, grid=(2,)), through_a_table, "bounds")
    watch = watched(through_a_table, table, y, 4, grid=(2,), watch=Sanitizer(reachable=[a, b]))
    assert not watch.violations
    assert y.tolist() == [1.0] * 4 + [0.0] * 4


def test_a_misaligned_access_is_reported(watched):
    """What a GPU would stop at, whatever tensor it lies in."""
    x, y = torch.zeros(16, dtype=torch.int8), torch.zeros(1, dtype=torch.int32)
    assert "multiple of 4" in only(watched(misaligned, x, y), misaligned, "bounds").detail


def test_a_report_reads_like_a_sentence(watched):
    """The text of a violation names kernel, program, element, what happened, and where."""
    watch = watched(off_by_one, torch.zeros(100), torch.zeros(100), 100, 64, grid=(2,))
    first, second = watch.violations[0].text.splitlines()
    assert first == (
        "bounds: off_by_one, program (1, 0, 0), x[100]: reads outside of x, whose shape is (100,), "
        f"at {__file__}:{marked(off_by_one)}"
    )
    assert second.strip().startswith("value = tl.load(x + at, mask=at <= n")


@triton.jit
def read_at(x, y, offset):
    """One element, so many elements past the first."""
    tl.store(y, tl.load(x + offset))  # here


STRIDED = {
    "between padded rows": (lambda x: x[:24].view(3, 8)[:, :6], 6, "the gap after x[0, 5]"),
    "between every second": (lambda x: x[:8:2], 3, "the gap after x[1]"),
    "between columns": (lambda x: x[:24].view(3, 8)[:, :6].t(), 14, "the gap after x[5, 1]"),
    "past an expanded row": (lambda x: x[:4].expand(3, 4), 5, "outside of x"),
}


@pytest.mark.parametrize("name", STRIDED)
def test_a_strided_tensor_is_named_with_its_strides(watched, name):
    """An access that hits no element says which one lies before it, and the strides."""
    view, offset, what = STRIDED[name]
    x = view(torch.zeros(64))
    detail = only(watched(read_at, x, torch.zeros(1), offset), read_at, "bounds").detail
    layout = f"whose shape is {tuple(x.shape)} and strides are {x.stride()}"
    assert detail.startswith(f"reads {what}")
    assert layout in detail
