"""Planted errors, each reported at its line; what is allowed to happen is not reported."""

import inspect

import pytest
import torch
import triton
import triton.language as tl

from harness.lanes.interpreter.sanitizer import Sanitizer


def marked(kernel):
    """The number of the line that says "# here" in a kernel's source."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if "# here" in line)


def only(watch, kernel, kind):
    """The single violation of `watch`, which must be of `kind` and at `kernel`'s marked line."""
    (violation,) = watch.violations
    assert (violation.kind, violation.line) == (kind, marked(kernel)), violation.text
    assert violation.file == __file__
    assert violation.source_line.endswith("# here")
    return violation


# Bounds


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
    block = tl.load(x + row * columns + column, mask=inside)
    largest = tl.max(tl.max(tl.abs(block), axis=1), axis=0)
    tl.store(scale + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), largest)
    tl.store(y + row * columns + column, block / largest, mask=inside)


@triton.jit
def scale_whole_columns(x, y, scale, rows, columns, BLOCK: tl.constexpr):
    """The same, as if the last block of a row were whole."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    block = tl.load(x + row * columns + column, mask=inside)
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


# Unwritten


@triton.jit
def fill_most(work, n, BLOCK: tl.constexpr):
    """Write the first n elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(work + at, 1.0, mask=at < n)


@triton.jit
def add_up(work, total, n, BLOCK: tl.constexpr):
    """Read the first n elements."""
    at = tl.arange(0, BLOCK)
    tl.store(total, tl.sum(tl.load(work + at, mask=at < n, other=0.0)))  # here


@triton.jit
def accumulate(x, total, BLOCK: tl.constexpr):
    """Add atomically to whatever is there."""
    tl.atomic_add(total + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))  # here


def test_a_read_of_an_unwritten_workspace_is_reported(watched):
    """What one launch wrote another may read; the element it left out is reported."""
    work, total = torch.empty(100), torch.empty(1)
    watch = watched(fill_most, work, 99, 64, grid=(2,), unwritten=[work, total])
    assert not watch.violations
    watched(add_up, work, total, 99, 128, watch=watch)
    assert not watch.violations
    watched(add_up, work, total, 100, 128, watch=watch)
    violation = only(watch, add_up, "unwritten")
    assert (violation.tensor, violation.index) == ("work", (99,))


def test_an_atomic_sum_into_unwritten_memory_is_reported(watched):
    """Accumulating reads its accumulator first."""
    total = torch.empty(4)
    watch = watched(accumulate, torch.ones(4), total, 4, unwritten=[total])
    assert only(watch, accumulate, "unwritten").tensor == "total"


def test_what_torch_wrote_is_written(watched):
    """A launcher that zeroes its workspace with torch has written it, before or between launches."""
    total = torch.empty(4)
    watch = Sanitizer([total])
    total.zero_()
    watched(accumulate, torch.ones(4), total, 4, watch=watch)
    assert not watch.violations


def test_fresh_memory_may_be_listed_late(watched):
    """A list that grows as the launcher allocates is looked at before every launch."""
    fresh: list[torch.Tensor] = []
    watch = Sanitizer(lambda: fresh)
    fresh.append(torch.empty(4))
    watched(accumulate, torch.ones(4), fresh[0], 4, watch=watch)
    only(watch, accumulate, "unwritten")


# Races


@triton.jit
def racing_store(y, BLOCK: tl.constexpr):
    """Every program writes its own number to the same place."""
    tl.store(y + tl.arange(0, BLOCK), tl.program_id(0))  # here


@triton.jit
def same_store(y, BLOCK: tl.constexpr):
    """Every program writes the same number to the same place."""
    tl.store(y + tl.arange(0, BLOCK), 5)


@triton.jit
def shifted_in_place(x, BLOCK: tl.constexpr):
    """Reads the elements that the next program writes."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at + BLOCK)
    tl.store(x + at, value + 1)


@triton.jit
def two_values_at_once(y):
    """Two lanes for each element."""
    tl.store(y + tl.arange(0, 4) // 2, tl.arange(0, 4))  # here


@triton.jit
def last_block(x, partial, counter, total, n: tl.constexpr):
    """The program that counts last adds up what the others stored."""
    here = tl.program_id(0)
    tl.store(partial + here, tl.load(x + here))
    if tl.atomic_add(counter, 1) == n - 1:
        tl.store(total, tl.sum(tl.load(partial + tl.arange(0, n))))


@triton.jit
def last_block_relaxed(x, partial, counter, total, n: tl.constexpr):
    """The same with a counter that orders nothing."""
    here = tl.program_id(0)
    tl.store(partial + here, tl.load(x + here))
    if tl.atomic_add(counter, 1, sem="relaxed") == n - 1:
        tl.store(total, tl.sum(tl.load(partial + tl.arange(0, n))))  # here


@triton.jit
def last_block_too_early(x, partial, counter, total, n: tl.constexpr):
    """The same with the counter counted before the store."""
    here = tl.program_id(0)
    finished = tl.atomic_add(counter, 1)
    tl.store(partial + here, tl.load(x + here))
    if finished == n - 1:
        tl.store(total, tl.sum(tl.load(partial + tl.arange(0, n))))  # here


@triton.jit
def locked_sum(x, lock, total):
    """Adds plainly, inside a spin lock."""
    value = tl.load(x + tl.program_id(0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + value)
    tl.atomic_xchg(lock, 0)


@triton.jit
def atomic_sum(x, total):
    """One atomic term a program."""
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))


@triton.jit
def peeking(x, total):
    """Reads a sum that others are adding to."""
    tl.atomic_add(total, tl.load(x + tl.program_id(0)))  # here
    tl.store(x + tl.program_id(0), tl.load(total))


def test_a_racing_store_is_reported(watched):
    """Two programs that write different values to one element, with the earlier one's name."""
    y = torch.zeros(8, dtype=torch.int32)
    violation = only(watched(racing_store, y, 8, grid=(3,)), racing_store, "race")
    assert (violation.program, violation.tensor) == ((1, 0, 0), "y")
    assert "program (0, 0, 0)" in violation.detail


def test_the_same_value_may_be_written_twice(watched):
    """Whoever wins, memory holds the same."""
    y = torch.zeros(8, dtype=torch.int32)
    assert not watched(same_store, y, 8, grid=(3,)).violations


@pytest.mark.parametrize(
    ("order", "verb"), [("forward", "writes what program"), ("reverse", "reads what program")]
)
def test_a_read_of_another_programs_write_is_reported_in_either_order(watched, order, verb):
    """Whether the reader or the writer happens to run first, they race."""
    x = torch.zeros(16)
    (violation,) = watched(shifted_in_place, x, 4, grid=(3,), order=order).violations
    assert (violation.kind, violation.tensor) == ("race", "x")
    assert violation.detail.startswith(verb)


def test_two_values_in_one_store_are_reported(watched):
    """Lanes of one store that disagree about an element: the hardware picks one."""
    y = torch.zeros(2, dtype=torch.int32)
    assert only(watched(two_values_at_once, y), two_values_at_once, "race").index == (0,)


def launched(watched, kernel, order):
    """The watch of a last-block reduction of eight programs."""
    counter = torch.zeros(1, dtype=torch.int32)
    x, partial, total = torch.ones(8), torch.zeros(8), torch.zeros(1)
    watch = watched(kernel, x, partial, counter, total, 8, grid=(8,), order=order)
    assert total.item() == 8
    return watch


@pytest.mark.parametrize("order", ["forward", "reverse", ("drawn", 1)])
def test_a_last_block_reduction_is_no_race(watched, order):
    """The counter's acquire and release order the last program after all others."""
    assert not launched(watched, last_block, order).violations


@pytest.mark.parametrize("kernel", [last_block_relaxed, last_block_too_early])
def test_a_last_block_reduction_without_its_order_is_a_race(watched, kernel):
    """A relaxed counter orders nothing, and neither does one that is counted up before the store."""
    assert only(launched(watched, kernel, "forward"), kernel, "race").tensor == "partial"


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_spin_lock_orders_its_critical_sections(watched, order):
    """Compare-and-swap acquires what the exchange at the end of the section released."""
    total, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    watch = watched(locked_sum, torch.ones(5), lock, total, grid=(5,), order=order)
    assert not watch.violations
    assert total.item() == 5


def test_atomics_do_not_race_with_each_other(watched):
    """A sum of atomics is reported by nobody; with a plain read of it in the same launch, it is."""
    total = torch.zeros(1)
    assert not watched(atomic_sum, torch.ones(5), total, grid=(5,)).violations
    watch = watched(peeking, torch.ones(5), total, grid=(5,))
    assert only(watch, peeking, "race").detail == "atomically changes what program (0, 0, 0) reads"


def test_a_declared_exception_is_silent(watched):
    """What a spec allows by name is not reported, on that tensor only."""
    y = torch.zeros(8, dtype=torch.int32)
    allowing = Sanitizer(allow=frozenset({"race:y"}))
    assert not watched(racing_store, y, 8, grid=(3,), watch=allowing).violations
    allowing = Sanitizer(allow=frozenset({"race:x"}))
    assert watched(racing_store, y, 8, grid=(3,), watch=allowing).violations


# Assertions, and what else a sanitizer is asked


@triton.jit
def asserting(x, n):
    """Asserts that an element is small."""
    tl.device_assert(tl.load(x) < n, "too large")  # here


@triton.jit
def tiles(y, BLOCK: tl.constexpr):
    """Programs of a two-axis grid, of which some store less."""
    row, column = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    tl.store(y + row * 4 + column * BLOCK + at, 1.0, mask=at < 2 - row)


def test_a_failing_device_assertion_is_reported(watched):
    """Assertions that compiled code leaves out by default are looked at here."""
    x = torch.ones(1)
    assert not watched(asserting, x, 2).violations
    assert "too large" in only(watched(asserting, x, 1), asserting, "assert").detail


def test_the_writer_of_every_element_is_known(watched):
    """A failure message can name the program that wrote a wrong element, or say that none did."""
    y = torch.zeros(2, 4)
    writer = watched(tiles, y, 2, grid=(2, 2)).writer(y)
    nobody = [-1, -1, -1]
    assert writer[0].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert writer[1].tolist() == [[1, 0, 0], nobody, [1, 1, 0], nobody]


def test_a_report_reads_like_a_sentence(watched):
    """The text of a violation names kernel, program, element, what happened, and where."""
    watch = watched(off_by_one, torch.zeros(100), torch.zeros(100), 100, 64, grid=(2,))
    first, second = watch.violations[0].text.splitlines()
    assert first == (
        "bounds: off_by_one, program (1, 0, 0), x[100]: reads outside of x, whose shape is (100,), "
        f"at {__file__}:{marked(off_by_one)}"
    )
    assert second.strip().startswith("value = tl.load(x + at, mask=at <= n")


def test_one_line_is_reported_once(watched):
    """A kernel that errs in every program is one report a line, kind and tensor."""
    y = torch.zeros(8, dtype=torch.int32)
    assert len(watched(racing_store, y, 8, grid=(50,)).violations) == 1


@triton.jit
def misaligned(x, y):
    """Reads int32 out of bytes, three bytes into an element."""
    at = (x + 3).to(tl.pointer_type(tl.int32))
    tl.store(y, tl.load(at))  # here


@triton.jit
def halves(x, y):
    """Writes int32 as pairs of int16, and reads the pairs back."""
    at = x.to(tl.pointer_type(tl.int16)) + tl.arange(0, 2)
    tl.store(at, tl.arange(1, 3).to(tl.int16))
    tl.store(y, tl.load(x))


def test_a_misaligned_access_is_reported(watched):
    """What a GPU would stop at, whatever tensor it lies in."""
    x, y = torch.zeros(16, dtype=torch.int8), torch.zeros(1, dtype=torch.int32)
    assert "multiple of 4" in only(watched(misaligned, x, y), misaligned, "bounds").detail


def test_elements_may_be_written_in_parts(watched):
    """Memory is known at the width of the narrowest access, so that two halves make a whole."""
    x, y = torch.empty(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    assert not watched(halves, x, y, unwritten=[x]).violations
    assert y.item() == 0x20001
