"""The interpreter lane against the table that a card gave."""

import json
import re

import pytest
import triton

from tests.evidence import digests, measurements, take_digests

TABLE = json.loads(take_digests.TABLE.read_text(encoding="utf-8"))
EXACT = [name for name in digests.EXACT if not name.startswith("sweep")]
BLOCKS = 256


def _minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


# Rows whose answer depends on the triton version, and the first version of the later answer.
CHANGED = {
    "neg": (3, 8),
    "neg_mul_add, fusion on": (3, 8),
    "neg_mul_add, fusion off": (3, 8),
    "clamp of fp16: opposite constants": (3, 9),
}


def _comparable(item, row):
    """Whether the installed triton and the table's answer an item's row alike."""
    first = CHANGED.get(row) or CHANGED.get(f"{item}: {row}", (0, 0))
    return (_minor(triton.__version__) >= first) == (_minor(TABLE["versions"]["triton"]) >= first)


@pytest.fixture(scope="module")
def machine():
    """The interpreter lane as the digests see it."""
    return take_digests.interpreted()


def test_the_table_was_taken_on_a_card():
    """A table of the lane's own digests would agree with itself."""
    assert "H200" in TABLE["card"]
    for group, items in (
        ("exact", digests.EXACT),
        ("measured", measurements.MEASURED),
        ("facts", measurements.FACTS),
    ):
        assert list(TABLE[group]) == list(items)
        assert [name for name, found in TABLE[group].items() if "failed" in found] == []


@pytest.mark.parametrize("name", EXACT)
def test_the_lane_gives_the_card_s_bits(machine, name):
    """Every digest of the item equals the card's, but for rows that another triton answers."""
    found, expected = digests.EXACT[name](machine), TABLE["exact"][name]
    assert list(found) == list(expected)
    differing = [row for row in found if _comparable(name, row) and found[row] != expected[row]]
    assert differing == []


@pytest.mark.parametrize("name", sorted(digests.SWEPT))
def test_a_block_of_every_sweep_has_the_card_s_bits(machine, name):
    """2^24 fp32 patterns, those around one, convert as on the card."""
    number = 0x3F
    got = digests.digest(digests.sweep_block(machine, name, number))
    assert got == TABLE["exact"][f"sweep {name}"]["blocks"][number]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(digests.SWEPT))
def test_all_fp32_patterns_have_the_card_s_bits(machine, name):
    """All 2^32 fp32 patterns convert as on the card."""
    blocks = TABLE["exact"][f"sweep {name}"]["blocks"]
    got = [digests.digest(digests.sweep_block(machine, name, i)) for i in range(BLOCKS)]
    assert [i for i in range(BLOCKS) if got[i] != blocks[i]] == []


@pytest.mark.parametrize("name", sorted(measurements.MEASURED))
def test_what_differs_keeps_its_bound_on_both(machine, name):
    """The lane and the card are both within the stated bound of the float64 answer."""
    for where in (measurements.MEASURED[name](machine), TABLE["measured"][name]):
        over = {row: v for row, v in where.items() if v["measured"] > v["bound"]}
        assert over == {}


def test_tf32_operands_are_read_as_the_card_read_them():
    """The lane truncates because the tensor core did, on every probe of either operand."""
    for name, found in TABLE["facts"].items():
        if name.startswith("tf32"):
            probes = int(re.findall(r"\d+", name)[1])
            assert [side["truncated"] for side in found.values()] == [probes, probes]
