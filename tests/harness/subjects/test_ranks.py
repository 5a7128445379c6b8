"""Which numbers of ranks a run asks for, and the kernels that they narrow."""

from __future__ import annotations

import dataclasses

import pytest

from bitproof.harness.errors import UsageError
from bitproof.harness.search import falsify
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.ranks import (
    parse_ranks,
    takes_ranks,
    with_ranks,
    with_ranks_where_taken,
)


def test_numbers_are_read_in_order_and_once() -> None:
    """Spaces do no harm."""
    assert parse_ranks("4, 2,2,1") == (1, 2, 4)


@pytest.mark.parametrize("text", ["", "0", "2,", "2;4", "two", "-1"])
def test_what_is_no_number_of_ranks_is_refused(text: str) -> None:
    """With what to write."""
    with pytest.raises(UsageError, match="write numbers of at least 1, such as 1,2,4,8"):
        parse_ranks(text)


def test_cases_corners_and_refusals_are_over_those_ranks() -> None:
    """And over no others; everything else of the spec stays."""
    (found,) = find(kernels=["gdn2_cp"])
    narrowed = with_ranks(found, (2,)).spec
    assert {case.ranks for case in falsify.draw_cases(narrowed, 20)} == {2}  # type: ignore[attr-defined]
    assert {case.ranks for case in narrowed.corners} == {2}  # type: ignore[attr-defined]
    assert len(narrowed.refusals) == len(found.spec.refusals)
    kept = tuple(case for case in found.spec.corners if case.ranks == 4)  # type: ignore[attr-defined]
    assert with_ranks(found, (4,)).spec.corners == kept != ()
    assert with_ranks(found, (4,)).spec.refusals == ()
    back = dataclasses.replace(
        narrowed,
        cases=found.spec.cases,
        corners=found.spec.corners,
        refusals=found.spec.refusals,
    )
    assert back == found.spec


def test_a_kernel_of_one_rank_takes_none() -> None:
    """Alone it is refused; among others it is as it was, and where no kernel takes ranks that is told."""
    plain, several = find(kernels=["cast_bf16", "gdn2_cp"])
    assert not takes_ranks(plain.spec)
    with pytest.raises(UsageError, match="kernel 'cast_bf16' runs on one rank"):
        with_ranks(plain, (2,))
    same, narrowed = with_ranks_where_taken([plain, several], (2,))
    assert same is plain
    assert {case.ranks for case in narrowed.spec.corners} == {2}  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="none of these kernels runs on several ranks"):
        with_ranks_where_taken([plain], (2,))
