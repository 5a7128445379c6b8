"""The sanitizer: what a GPU does in silence, reported with kernel, line, program, tensor and index.

Four kinds of violation. `bounds`: a read or write outside the tensor that the pointer comes from; the
lane is suppressed, so that the process survives. `unwritten`: a use of an element that nobody wrote, or
of a lane that a masked load leaves undefined; to read and discard one is no violation (see `definedness`).
`race`: two programs of one launch, unordered by acquire and release, of which one writes a value that
the other overwrites or reads. `assert`: a device assertion or assumption that does not hold.
Masked-off lanes never count, and neither does writing the value that is there already.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitproof.harness.lanes.interpreter.sanitizer.blocks import (
    Addresses,
    Array,
    Lanes,
    Pointers,
    active,
    background,
    differ,
    poison,
    positions,
)
from bitproof.harness.lanes.interpreter.sanitizer.readings import Numbers, Readings
from bitproof.harness.lanes.interpreter.sanitizer.regions import Region, every_address
from bitproof.harness.lanes.interpreter.sanitizer.shadow import Cells, Shadow
from bitproof.harness.lanes.interpreter.sanitizer.timeline import Stamps, Timeline
from bitproof.harness.lanes.interpreter.sanitizer.violations import (
    Kind,
    Place,
    Violation,
    counted,
    place,
)
from bitproof.harness.lanes.interpreter.sanitizer.whereabouts import describe_stray

Point = tuple[int, int, int]

_STORED = 100


@dataclass(frozen=True)
class _Launch:
    """One launch; its stamps start at `base`."""

    base: int
    kernel: str
    grid: Point

    def program(self, number: int) -> Point:
        _, ny, nz = self.grid
        return number // (ny * nz), number // nz % ny, number % nz


class Sanitizer:
    """Watches the launches of one run of a launcher; `violations` grows as they are found.

    `unwritten` are tensors whose elements nobody has written yet (outputs, workspaces); an iterable that
    grows, or a function that returns one, is asked again before every launch. A torch operation that
    writes into one counts as writing all of it. `reachable` are tensors that a kernel may address
    without having them as an argument, through a table of pointers. `allow` names what a spec has
    declared with a reason: "race:dw" silences races on argument dw.
    """

    def __init__(
        self,
        unwritten: Iterable[torch.Tensor] | Callable[[], Iterable[torch.Tensor]] = (),
        *,
        reachable: Iterable[torch.Tensor] | Callable[[], Iterable[torch.Tensor]] = (),
        allow: frozenset[str] = frozenset(),
    ) -> None:
        """Nothing is read or written yet."""
        self.violations: list[Violation] = []
        self._unwritten = unwritten
        self._reachable = reachable
        self._allow = allow
        self._shadows: dict[int, Shadow] = {}
        self._fresh: dict[tuple[Any, ...], tuple[torch.Tensor, int]] = {}
        self._line = Timeline()
        self._launches: list[_Launch] = []
        self._regions: list[Region] = []
        self._program: Point = (0, 0, 0)
        self._reported: set[tuple[Kind, str, int, str]] = set()
        self.readings = Readings()
        self._stores: list[Place] = []
        self._learn(first=True)

    def begin(
        self, kernel: str, grid: Point, arguments: Sequence[tuple[str, torch.Tensor]]
    ) -> list[Region]:
        """Start a launch with these (name, tensor in host memory); one region for each."""
        self._learn(first=False)
        self._line.begin_launch()
        self._launches.append(_Launch(self._line.base, kernel, grid))
        passed = [self._region(name, tensor) for name, tensor in arguments]
        given = self._reachable() if callable(self._reachable) else self._reachable
        reachable = (*given, *(tensor for tensor, _ in self._fresh.values()))
        self._regions = [*passed, *(self._region("", tensor) for tensor in reachable)]
        return passed

    def enter(self, number: int, program: Point) -> None:
        """Program `number` of the grid starts."""
        self._line.begin_program(number)
        self._program = program

    def load(
        self,
        pointers: Pointers,
        origin: Region | None,
        mask: Lanes | None,
        other: Array | None,
        dtype: np.dtype[Any],
        *,
        atomic: bool,
    ) -> tuple[Array, Numbers | None]:
        """Read elements of `dtype`; `other`, or else 0, where the mask is off (None: nowhere).

        Also the number of each lane that holds what nobody wrote, 0 for the others; or None.
        """
        lanes, addresses = active(pointers, mask)
        shape = pointers.shape
        result: Array | None = None
        numbers: Numbers | None = None
        for region, chosen in self._targets(addresses, origin, dtype.itemsize, "reads"):
            if region is None:
                result = background(other, shape, dtype) if result is None else result
                poison(result, positions(lanes, chosen))
                continue
            inside = addresses if chosen is None else addresses[chosen]
            found = self._judge_read(region, inside, dtype.itemsize, atomic=atomic)
            if found is not None:
                numbers = np.zeros(shape, dtype=np.int64) if numbers is None else numbers
                numbers.reshape(-1)[positions(lanes, chosen)] = found
            memory, places = region.shadow.memory(inside, dtype)
            if lanes is None and chosen is None:
                return memory.take(places).reshape(shape), numbers
            result = background(other, shape, dtype) if result is None else result
            result.reshape(-1)[positions(lanes, chosen)] = memory.take(places)
        return background(other, shape, dtype) if result is None else result, numbers

    def store(
        self,
        pointers: Pointers,
        origin: Region | None,
        mask: Lanes | None,
        value: Array,
        *,
        atomic: bool,
        numbers: Numbers | None = None,
    ) -> None:
        """Write `value` (as many bytes an element as its dtype has) where the mask is on.

        `numbers` are those of its lanes that are undefined, 0 for the others.
        """
        lanes, addresses = active(pointers, mask)
        values = np.broadcast_to(value, pointers.shape).reshape(-1)
        size = value.dtype.itemsize
        for region, chosen in self._targets(addresses, origin, size, "writes"):
            if region is None:
                continue
            inside = addresses if chosen is None else addresses[chosen]
            new = values[positions(lanes, chosen)]
            memory, places = region.shadow.memory(inside, value.dtype)

            def changed(memory: Array = memory, places: Cells = places, new: Array = new) -> Lanes:
                return differ(memory.take(places), new)

            self._judge_write(region, inside, size, changed, atomic=atomic)
            memory[places] = new
            if numbers is not None:
                stored = np.broadcast_to(numbers, pointers.shape).reshape(-1)
                cells = region.shadow.cells(inside, size)
                self._note_stored(region, cells, stored[positions(lanes, chosen)])
            twice = changed()
            if twice.any():
                said = _plainly("writes two values in one store")
                self._report("race", region, inside, twice, said)

    def atomic(
        self,
        pointers: Pointers,
        origin: Region | None,
        mask: Lanes | None,
        size: int,
        *,
        reads: bool,
    ) -> Lanes:
        """Note a read-modify-write; the lanes of `pointers` that are on and may go ahead."""
        lanes, addresses = active(pointers, mask)
        allowed = np.zeros(pointers.size, dtype=np.bool_)
        for region, chosen in self._targets(addresses, origin, size, "atomically changes"):
            if region is None:
                continue
            allowed[positions(lanes, chosen)] = True
            inside = addresses if chosen is None else addresses[chosen]
            cells = region.shadow.cells(inside, size)
            missing = region.shadow.missing(cells) if reads else None
            if missing is not None:
                said = _plainly("atomically reads what nobody wrote")
                self._report("unwritten", region, inside, missing, said)
            stored = region.shadow.undefined(cells) if reads else None
            if stored is not None:
                self.use(stored, "stores it, and atomically changes it")
            self._judge_write(region, inside, size, None, atomic=True)
        return allowed.reshape(pointers.shape)

    def use(self, numbers: Numbers, how: str) -> None:
        """Report that undefined lanes matter at the present line; `how` says what it does with them."""
        self._report_use(numbers, how, self._here())

    def judge_outputs(self, tensors: Iterable[torch.Tensor]) -> None:
        """After the last launch: report the undefined values that kernels stored in these tensors."""
        for tensor in tensors:
            shadow = self._shadows.get(tensor.untyped_storage().data_ptr())
            if shadow is None or not shadow.doubted or not tensor.numel():
                continue
            cells = shadow.cells(every_address(tensor), tensor.element_size())
            numbers = shadow.undefined(cells)
            if numbers is None:
                continue
            storers = shadow.storers(cells)
            for storer in np.unique(storers[numbers != 0]):
                here = numbers[(storers == storer) & (numbers != 0)]
                self._report_use(here, "stores it in an output", self._stores[int(storer)])

    def acquire(self, address: int) -> None:
        """What was released at `address` happened before the present program goes on."""
        self._line.acquire(address)

    def release(self, address: int) -> None:
        """Whoever acquires at `address` later comes after what the present program did."""
        self._line.release(address)

    def fail(self, detail: str) -> None:
        """Report an assertion that does not hold."""
        nowhere = np.zeros(1, dtype=np.int64)
        self._report("assert", None, nowhere, nowhere == 0, _plainly(detail))

    def writer(self, tensor: torch.Tensor) -> NDArray[np.int64]:
        """The program ids that wrote each element last, shape (*tensor.shape, 3); -1 where none did."""
        shadow = self._shadow(tensor)
        cells = shadow.cells(every_address(tensor), tensor.element_size())
        stamps = shadow.writers(cells)
        stamps = stamps[:, 0] if stamps.ndim == 2 else stamps
        number = np.array(self._line.owners)[stamps]
        launch = np.searchsorted([one.base for one in self._launches], stamps, side="right") - 1
        _, ny, nz = np.array([one.grid for one in self._launches] or [(1, 1, 1)])[launch].T
        programs = np.stack([number // (ny * nz), number // nz % ny, number % nz], axis=-1)
        programs[stamps == 0] = -1
        return programs.reshape(*tensor.shape, 3)

    def _learn(self, *, first: bool) -> None:
        """Take in newly listed unwritten tensors, and what torch wrote into listed ones since."""
        listed = self._unwritten() if callable(self._unwritten) else self._unwritten
        for tensor in listed:
            key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
            if key not in self._fresh and tensor.numel():
                self._fresh[key] = (tensor, _version(tensor) if first else 0)
                self._set_written(tensor, False)
        for key, (tensor, version) in self._fresh.items():
            if _version(tensor) != version:
                self._fresh[key] = (tensor, _version(tensor))
                self._set_written(tensor, True)

    def _set_written(self, tensor: torch.Tensor, written: bool) -> None:
        shadow, size = self._shadow(tensor), tensor.element_size()
        if tensor.is_contiguous():
            shadow.set_written(shadow.run(tensor.data_ptr(), tensor.numel() * size), written)
        else:
            shadow.set_written(shadow.cells(every_address(tensor), size), written)

    def _shadow(self, tensor: torch.Tensor) -> Shadow:
        storage = tensor.untyped_storage()
        shadow = self._shadows.get(storage.data_ptr())
        if shadow is None or not shadow.covers(storage):
            shadow = self._shadows[storage.data_ptr()] = Shadow(storage, tensor.element_size())
        return shadow

    def _region(self, name: str, tensor: torch.Tensor) -> Region:
        return Region(
            name=name,
            first=tensor.data_ptr(),
            itemsize=tensor.element_size(),
            shape=tuple(tensor.shape),
            strides=tuple(tensor.stride()),
            shadow=self._shadow(tensor),
        )

    def _targets(
        self, addresses: Addresses, origin: Region | None, size: int, verb: str
    ) -> Iterator[tuple[Region | None, Lanes | None]]:
        """(region, its lanes or None for all) of accesses, the outside ones reported, with None."""
        if addresses.size == 0:
            return
        candidates = self._regions if origin is None else (origin,)
        left: Lanes | None = None
        for region in candidates:
            out = region.outside(addresses, size)
            if out is None and left is None:
                yield region, None
                return
            chosen = left if out is None else (~out if left is None else left & ~out)
            if chosen is not None and chosen.any():
                yield region, chosen
                left = ~chosen if left is None else left & ~chosen
                if not left.any():
                    return
        left = np.ones(addresses.size, dtype=np.bool_) if left is None else left

        def told(lane: int) -> str:
            return describe_stray(origin, self._regions, verb, int(addresses[lane]), size)

        self._report("bounds", origin, addresses, left, told)
        yield None, left

    def _note_stored(self, region: Region, cells: Cells, numbers: Numbers) -> None:
        """A store of undefined values; its cells pass them on to whoever reads them."""
        if not numbers.any():
            return
        store = self._here()
        if not self._stores or self._stores[-1] != store:
            self._stores.append(store)
        region.shadow.set_undefined(cells, numbers, len(self._stores) - 1)

    def _judge_read(
        self, region: Region, addresses: Addresses, size: int, *, atomic: bool
    ) -> Numbers | None:
        """Look for races; the numbers of the elements that are undefined, or None."""
        shadow, line = region.shadow, self._line
        cells = shadow.cells(addresses, size)
        numbers = shadow.undefined(cells)
        missing = shadow.missing(cells)
        if missing is not None:
            numbers = np.zeros(addresses.size, dtype=np.int64) if numbers is None else numbers
            numbers[missing] = self.readings.unwritten(region, addresses[missing])
        raced = shadow.find_overwritten(cells, line, atomic=atomic)
        if raced is not None:
            stamps = shadow.writers(cells)
            self._report_race(region, addresses, raced, stamps, "reads what {} writes")
        if not atomic:
            shadow.mark_read(cells, line)
        return numbers

    def _judge_write(
        self,
        region: Region,
        addresses: Addresses,
        size: int,
        changed: Callable[[], Lanes] | None,
        *,
        atomic: bool,
    ) -> None:
        """Before a write: `changed` says which lanes bring another value than memory holds."""
        shadow, line = region.shadow, self._line
        cells = shadow.cells(addresses, size)
        written = shadow.find_overwritten(cells, line, atomic=atomic)
        read = shadow.find_observed(cells, line)
        verb = "atomically changes" if atomic else "writes"
        for raced, stamps, what in (
            (written, shadow.writers, "what {} writes"),
            (read, shadow.readers, "what {} reads"),
        ):
            if raced is not None and changed is not None:
                raced = raced & changed()
            if raced is not None and raced.any():
                self._report_race(region, addresses, raced, stamps(cells), f"{verb} {what}")
                break
        shadow.mark_written(cells, line, atomic=atomic)

    def _report_race(
        self, region: Region, addresses: Addresses, raced: Lanes, stamps: Stamps, detail: str
    ) -> None:
        def told(lane: int) -> str:
            stamp = int(stamps.reshape(raced.size, -1)[lane].max())
            return detail.format(f"program {self._author(stamp)}")

        self._report("race", region, addresses, raced, told)

    def _author(self, stamp: int) -> Point:
        launch = self._launches[bisect.bisect(self._launches, stamp, key=lambda at: at.base) - 1]
        return launch.program(self._line.owners[stamp])

    def _here(self) -> Place:
        file, line = place()
        return Place(self._launches[-1].kernel, file, line, self._program)

    def _report(
        self,
        kind: Kind,
        region: Region | None,
        addresses: Addresses,
        lanes: Lanes,
        detail: Callable[[int], str],
    ) -> None:
        """Store a violation at the present line; `detail` is asked with the first lane concerned."""
        here = self._here()
        first = int(np.argmax(lanes))

        def told() -> str:
            return detail(first) + counted(lanes)

        self._add(kind, here, region, int(addresses[first]), told)

    def _report_use(self, numbers: Numbers, how: str, use: Place) -> None:
        """Store a violation at the line that read the first undefined lane; `use` is where it matters."""
        number = int(numbers[numbers != 0][0])
        reading, address = self.readings.find(number)
        there = (use.file, use.line)
        at = "" if there == (reading.file, reading.line) else f" at {use.file}:{use.line}"

        def told() -> str:
            return f"{reading.what}, and {how}{at}{counted(numbers != 0)}"

        read = Place(use.kernel, reading.file, reading.line, use.program)
        self._add("unwritten", read, reading.region, address, told)

    def _add(
        self, kind: Kind, at: Place, region: Region | None, address: int, told: Callable[[], str]
    ) -> None:
        """Store a violation unless this line, tensor and kind are known or allowed."""
        name = region.name if region is not None else ""
        known = (kind, at.file, at.line, name)
        if known in self._reported or f"{kind}:{name}" in self._allow:
            return
        self._reported.add(known)
        if len(self.violations) >= _STORED:
            return
        index = region.index(address) if region is not None else ()
        self.violations.append(at.violation(kind, name, index, told()))


def _plainly(detail: str) -> Callable[[int], str]:
    return lambda _: detail


def _version(tensor: torch.Tensor) -> int:
    """How often torch has written into the tensor's storage, as far as it keeps count."""
    return 0 if tensor.is_inference() else tensor._version
