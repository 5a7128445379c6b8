"""Hypothesis profiles of the property suite, and how many examples a check may spend."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

from bitproof.harness import checks, lanes
from bitproof.harness.case import Scale
from bitproof.harness.search import draws
from bitproof.harness.spec import KernelSpec

DEFAULT = "bitproof"
CI = "bitproof-ci"
NIGHTLY = "bitproof-nightly"
EXAMPLES = Path(".bitproof") / "examples"

# How much of a spec's launch budget each profile spends.
_SHARE = {DEFAULT: 1.0, CI: 0.2, NIGHTLY: 25.0}
_LEAST = 3


def register() -> None:
    """Make the three profiles known; Hypothesis owns the names `default` and `ci`, these are ours."""
    # Hypothesis derandomises by itself where it finds CI, and the nightly run there wants fresh cases.
    draws.register()
    base = settings(derandomize=False, database=DirectoryBasedExampleDatabase(EXAMPLES))
    settings.register_profile(DEFAULT, base)
    settings.register_profile(CI, base, derandomize=True, database=None)
    settings.register_profile(NIGHTLY, base)


def default() -> str:
    """The profile of a run that names none: the derandomised one where CI is set."""
    return CI if os.environ.get("CI") else DEFAULT


def examples(spec: KernelSpec, check: str, lane: str, profile: str) -> int:
    """How many examples of `check` fit the spec's budget of launches on `lane` under `profile`."""
    launches = spec.launches.get(lanes.family(lane), 400) * _SHARE.get(profile, 1.0)
    return max(_LEAST, int(launches) // checks.find(check).launches(spec))


def scale(lane: str) -> Scale:
    """How large cases may be on `lane` under the profile that is loaded."""
    on_card = lanes.family(lane) == "cuda"
    return Scale(
        on_card=on_card, nightly=on_card and settings.get_current_profile_name() == NIGHTLY
    )
