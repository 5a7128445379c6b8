"""The case of a contract that declares its inputs: a dataclass made for it, its tensors, what it covers."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from bitproof.harness import generators
from bitproof.harness.case import Launch
from bitproof.harness.inputs.axes import extent
from bitproof.harness.inputs.declaration import Declaration, measure, simplest_of
from bitproof.harness.inputs.declared import Index, Offsets, Tensor
from bitproof.harness.strategies import launches, packed, ragged
from bitproof.harness.strategies.fills import Fill, name_of

Order = Literal["any", "same", "ascending", "descending"]
_ORDERS: tuple[Order, ...] = ("any", "same", "ascending", "descending")

# No case has a dimension beyond it: a damaged record must not ask for all of a machine's memory.
_LONGEST = 1 << 31


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The lengths of the parts that offsets cut, and the rows past the last of them."""

    lengths: tuple[int, ...] = (1,)
    slack: int = 0

    def __post_init__(self) -> None:
        """ValueError for a negative length."""
        if not self.lengths or min(*self.lengths, self.slack, 0) < 0:
            raise ValueError(f"parts need one length or more, of 0 or more rows, got {self}")


@dataclass(frozen=True, kw_only=True)
class Picks:
    """In which order an index picks rows, and whether some of it is padding."""

    order: Order = "any"
    padded: bool = False


class DeclaredCase:
    """What the cases of all contracts that declare their inputs have in common; `case_of` adds the fields.

    These are the size of each dimension that nothing else decides, how each input is made (`Fill`, `Parts` or
    `Picks`), the parameters, a seed and a launch.
    """

    declaration: ClassVar[Declaration]
    seed: int
    launch: Launch

    def __post_init__(self) -> None:
        """ValueError for a dimension that no tensor has."""
        for name in self.declaration.free():
            if not 0 <= getattr(self, name) < _LONGEST:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")

    def sizes(self) -> dict[str, int]:
        """Every dimension by name, and the parameters that axes may name."""
        declaration = self.declaration
        known = {name: getattr(self, name) for name in declaration.free()}
        known |= {name: getattr(self, name) for name in declaration.numbers()}
        for name, offsets in declaration.of_kind(Offsets).items():
            parts: Parts = getattr(self, name)
            known |= {offsets.count: len(parts.lengths)}
            known |= {offsets.of: sum(parts.lengths) + parts.slack}
        return known

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The inputs by name."""
        return dict(_build(self, device))

    def params(self) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self.declaration.params}

    def features(self) -> Iterable[str]:
        """What the case covers, in words."""
        return tuple(dict.fromkeys(_describe(self)))


def case_of(declaration: Declaration) -> type[DeclaredCase]:
    """The dataclass of the contract's cases; the defaults of its fields are the simplest case."""
    fields: list[tuple[str, Any, Any]] = []
    for name, size in declaration.free().items():
        assert size.least is not None
        fields.append((name, int, max(size.least, size.multiple)))
    for name, one in declaration.inputs.items():
        if isinstance(one, Offsets):
            fields.append((name, Parts, Parts(lengths=(max(one.least, 1),))))
        elif isinstance(one, Index):
            fields.append((name, Picks, Picks()))
        else:
            fields.append((name, Fill, Fill(kind=one.kinds[0], dtype=name_of(one.dtypes[0]))))
    for name, parameter in declaration.params.items():
        fields.append((name, type(simplest_of(parameter)), simplest_of(parameter)))
    fields += [("seed", int, 0), ("launch", Launch, Launch())]
    title = "".join(word.capitalize() for word in declaration.name.split("_"))
    return dataclasses.make_dataclass(
        f"{title}Case",
        [(name, kind, dataclasses.field(default=plain)) for name, kind, plain in fields],
        bases=(DeclaredCase,),
        namespace={"declaration": declaration, "__module__": __name__},
        frozen=True,
        kw_only=True,
    )


def seed_of(case: DeclaredCase, name: str) -> int:
    """The seed of one input: each has numbers of its own."""
    return (case.seed * 0x9E3779B1 ^ zlib.crc32(name.encode())) & 0xFFFFFFFF


def orders_of(index: Index) -> tuple[Order, ...]:
    """The orders in which an index may pick."""
    return tuple(order for order in _ORDERS if order != "same" or not index.unique)


def _build(case: DeclaredCase, device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    declaration, sizes = case.declaration, case.sizes()
    for name, one in declaration.inputs.items():
        how, seed = getattr(case, name), seed_of(case, name)
        if isinstance(one, Tensor):
            if one.like is not None:
                how = dataclasses.replace(how, dtype=getattr(case, one.like).dtype)
            shape = measure(declaration, name, sizes)
            yield name, how.build(shape, device, seed=seed, between=one.between)
        elif isinstance(one, Index):
            shape = measure(declaration, name, sizes)
            yield name, _pick(one, how, shape, extent(one.into, sizes), seed, device)
        else:
            yield name, _cut(one, how, device)


def _cut(offsets: Offsets, parts: Parts, device: torch.device) -> torch.Tensor:
    bounds = ragged.offsets(parts.lengths)
    told = {"bounds": bounds, "ends": bounds[1:], "lengths": parts.lengths}[offsets.form]
    return torch.tensor(told, dtype=offsets.dtype, device=device)


def _pick(
    index: Index, picks: Picks, shape: tuple[int, ...], into: int, seed: int, device: torch.device
) -> torch.Tensor:
    count = torch.Size(shape).numel()
    if count and not into:
        raise ValueError(f"{count} indices pick from {index.into!r}, which has no rows")
    words = generators.hash_words(seed, 0, count, device)
    if index.unique:
        width = shape[-1] if shape else 1
        if width > into:
            raise ValueError(f"{width} unique indices pick from {into} rows of {index.into!r}")
        lines = [
            generators.permutation(seed + line, into, device)[:width]
            for line in range(count // max(width, 1))
        ]
        chosen = torch.stack(lines) if lines else words.reshape(0, width)
    else:
        chosen = words % max(into, 1)
        if picks.order == "same" and count:
            chosen = chosen[:1].expand(count)
    chosen = chosen.reshape(-1, shape[-1] if shape and shape[-1] else 1) if count else chosen
    if picks.order in ("ascending", "descending") and count:
        chosen = chosen.sort(dim=-1, descending=picks.order == "descending").values
    chosen = chosen.reshape(shape).to(index.dtype)
    if picks.padded and index.padding is not None:
        chosen = torch.where(words.reshape(shape) >> 29 == 0, index.padding, chosen)
    return chosen.contiguous()


def _describe(case: DeclaredCase) -> Iterator[str]:
    declaration, sizes = case.declaration, case.sizes()
    for name in declaration.free():
        size = sizes[name]
        if size < 2:
            yield f"{name} = {size}"
        else:
            yield f"{name} {'a' if size & (size - 1) == 0 else 'no'} power of two"
    for name, one in declaration.inputs.items():
        how = getattr(case, name)
        if isinstance(one, Offsets):
            features = _OF_PARTS[one.parts]
            yield from features(how.lengths, one.block)
            yield from ("slack rows",) if how.slack else ()
        elif isinstance(one, Index):
            yield f"{name} in {how.order} order"
            yield from (f"{name} padded",) if how.padded and one.padding is not None else ()
        else:
            yield from _describe_fill(name, one, how)
    for name, parameter in declaration.params.items():
        if simplest_of(parameter) is not parameter and not isinstance(getattr(case, name), float):
            yield f"{name} = {getattr(case, name)}"
    yield from launches.features(case.launch)


def _describe_fill(name: str, tensor: Tensor, fill: Fill) -> Iterator[str]:
    if tensor.between is None:
        yield f"{name} {fill.kind}"
        yield from (f"{name} scaled",) if fill.exponent else ()
    if len(tensor.dtypes) > 1 and tensor.like is None:
        yield f"{name} in {fill.dtype}"


_OF_PARTS: Mapping[str, Any] = {
    "sequences": lambda lengths, block: packed.features(lengths, chunk=block),
    "experts": ragged.features,
}
