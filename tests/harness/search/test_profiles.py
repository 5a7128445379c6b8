"""The profiles of a property run: fresh cases or the same ones, and as many as a budget allows."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import settings

from bitproof.harness.case import Scale
from bitproof.harness.search import profiles
from bitproof.harness.spec import Bitwise
from tests.harness.plain import scaled, variant

SHOW = """
from hypothesis import settings
from bitproof.harness.search import profiles
profiles.register()
for name in (profiles.DEFAULT, profiles.CI, profiles.NIGHTLY):
    chosen = settings.get_profile(name)
    print(name, chosen.derandomize, chosen.database is None)
print(profiles.default())
"""


@pytest.mark.parametrize(("ci", "default"), [({}, "bitproof"), ({"CI": "true"}, "bitproof-ci")])
def test_only_the_ci_profile_repeats_its_cases(ci: dict[str, str], default: str) -> None:
    """The nightly run draws fresh cases also on a CI machine, where Hypothesis would derandomise it."""
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    said = subprocess.run(
        [sys.executable, "-c", SHOW],
        env={**inherited, **ci},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines() == [
        "bitproof False False",
        "bitproof-ci True True",
        "bitproof-nightly False False",
        default,
    ]


def test_profiles_can_be_registered_twice() -> None:
    """And registering loads none of them."""
    before = settings.get_current_profile_name()
    profiles.register()
    profiles.register()
    assert settings.get_current_profile_name() == before
    assert settings.get_profile(profiles.CI).derandomize


@pytest.mark.parametrize(
    ("lane", "profile", "scale"),
    [
        ("interpreter", profiles.DEFAULT, Scale()),
        ("interpreter", profiles.NIGHTLY, Scale()),
        ("cuda", profiles.CI, Scale(on_card=True)),
        ("cuda", profiles.NIGHTLY, Scale(on_card=True, nightly=True)),
        ("cuda:sm_89", profiles.DEFAULT, Scale(on_card=True)),
        ("cuda:sm_89", profiles.NIGHTLY, Scale(on_card=True, nightly=True)),
    ],
)
def test_cases_are_as_large_as_a_lanes_family_and_the_profile_afford(
    lane: str, profile: str, scale: Scale
) -> None:
    """Another target's code runs on a card like the card's own."""
    before = settings.get_current_profile_name()
    profiles.register()
    settings.load_profile(profile)
    try:
        assert profiles.scale(lane) == scale
    finally:
        settings.load_profile(before)


@pytest.mark.parametrize(
    ("check", "lane", "profile", "examples"),
    [
        ("agreement", "interpreter", profiles.DEFAULT, 400),
        ("memory", "interpreter", profiles.DEFAULT, 200),
        ("reproducibility", "interpreter", profiles.DEFAULT, 44),
        ("agreement", "interpreter", profiles.CI, 80),
        ("agreement", "cuda", profiles.NIGHTLY, 20_000),
        ("agreement", "cuda", "theirs", 800),
    ],
)
def test_examples_fit_the_budget_of_launches(
    check: str, lane: str, profile: str, examples: int
) -> None:
    """A check that launches more gets fewer examples; the nightly run spends many times as much."""
    assert profiles.examples(variant(), check, lane, profile) == examples
    claim = variant(launches={lane: 6}, reproducible=Bitwise(control=scaled))
    assert profiles.examples(claim, "reproducibility", lane, profile) >= 3
