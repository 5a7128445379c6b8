"""Specs are found by module, name or file, and what cannot be found is said in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from bitproof.harness.errors import SpecError, UsageError
from bitproof.harness.subjects import discovery
from tests.harness.conftest import Write

CHECKOUT = Path(__file__).resolve().parents[3]
BUILT_IN = [
    *("align_tokens", "block_scaled_linear", "cast_bf16", "cast_e4m3", "cast_e5m2", "cast_fp16"),
    *("dsrelu_atomic", "dsrelu_bf16", "dsrelu_fp8", "e2m1_group", "gdn2_chunk", "gdn2_chunk_vjp"),
    *("gdn2_cp", "gdn2_cp_vjp", "gdn2_recurrent", "kda_chunk", "kda_chunk_vjp", "kda_cp"),
    *("kda_cp_vjp", "kda_recurrent", "kv_store_fp8", "kv_store_int8", "moe_prefill"),
    *("per_tensor_static", "per_token_group", "power_of_two_linear", "round_e4m3"),
    *("split_k_linear", "ue8m0_group", "ue8m0_inplace"),
]
FAMILIES = ("delta", "delta/ranks", "dsrelu", "fp8_gemm", "quantise")
PLAIN = "from tests.harness.plain import variant\n"


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLAIN + text)
    return path


def _names(*references: str, kernels: tuple[str, ...] = ()) -> list[str]:
    return [found.spec.name for found in discovery.find(references, kernels)]


def test_own_specs_are_found_sorted() -> None:
    """Without a reference: every spec of the checkout's kernels, by name, with where it is."""
    found = discovery.find()
    names = [item.spec.name for item in found]
    assert names == sorted(names)
    assert names == BUILT_IN
    folders = {Path(str(item.module.__file__)).resolve().parent for item in found}
    assert folders == {CHECKOUT / "kernels" / family for family in FAMILIES}
    assert {item.reference for item in found} == {"bitproof.kernels"}
    again = discovery.find([found[0].reference], [found[0].spec.name])
    assert again[0].spec is found[0].spec


def test_specs_are_found_in_a_module(elsewhere: Path) -> None:
    """Single ones and those in a list or tuple, each once, sorted by their own names."""
    _write(
        elsewhere,
        "their_kernels.py",
        "FIRST = variant(name='z')\nSPECS = [variant(name='b'), FIRST]\nMORE = (variant(name='a'),)\n",
    )
    assert _names("their_kernels") == ["a", "b", "z"]
    assert _names("their_kernels:FIRST") == ["z"]
    assert _names("their_kernels:SPECS") == ["b", "z"]
    assert _names("their_kernels", kernels=("z", "a", "z")) == ["a", "z"]


def test_specs_are_found_in_a_file(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an absolute or relative path, also with a name; the same file is imported once."""
    path = _write(
        elsewhere, "deep/kernel_file.py", "A = variant(name='a')\nB = variant(name='b')\n"
    )
    monkeypatch.chdir(elsewhere)
    assert _names(str(path)) == ["a", "b"]
    assert _names("deep/kernel_file.py:B") == ["b"]
    assert _names(str(path), "deep/kernel_file.py:B") == ["a", "b"]


def test_a_listing_module_leads_to_the_declaring_one(elsewhere: Path) -> None:
    """Faults are edits of the file that declares the spec, wherever it is listed again."""
    _write(
        elsewhere,
        "pkg/kernel.py",
        "def run(t, p): ...\nSPEC = variant(name='far', run=run)\n",
    )
    _write(elsewhere, "pkg/__init__.py", "")
    _write(elsewhere, "pkg/listing.py", "from .kernel import SPEC\nOWN = variant(name='near')\n")
    far, near = discovery.find(["pkg.listing"])
    assert (far.reference, far.module.__name__) == ("pkg.listing", "pkg.kernel")
    assert (near.reference, near.module.__name__) == ("pkg.listing", "pkg.listing")


@pytest.mark.parametrize(
    ("references", "kernels", "message"),
    [
        (
            ["no_such_package"],
            [],
            "--spec no_such_package: no module of that name; install its pac",
        ),
        (["pkg.missing"], [], r"--spec pkg\.missing: no module of that name; install its package"),
        (["needy"], [], "--spec needy: importing it needs 'not_installed'; install that"),
        (["broken"], [], "--spec broken: importing it raised ZeroDivisionError: division by zero"),
        (["broken.py"], [], r"--spec broken\.py: importing it raised ZeroDivisionError: division"),
        (["leaving.py"], [], r"--spec leaving\.py: importing it raised SystemExit: 3"),
        (["garbled.py"], [], r"--spec garbled\.py: importing it raised SyntaxError: "),
        (["nowhere.py"], [], r"--spec nowhere\.py: no such file"),
        (["empty"], [], "--spec empty: no KernelSpec in that module; declare one as SPEC"),
        (["two:MISSING"], [], "--spec two:MISSING: 'MISSING' is not a KernelSpec in two"),
        (["two:NOT_ONE"], [], "--spec two:NOT_ONE: 'NOT_ONE' is not a KernelSpec in two"),
        (["two:NONE"], [], "--spec two:NONE: 'NONE' is not a KernelSpec in two"),
        (["two"], [], "two specs are called 'a': in two and two; rename one"),
        (["two:A", "other"], [], "two specs are called 'a': in two and other; rename one"),
        (["other"], ["a", "b"], "unknown kernel 'b': there are a"),
    ],
)
def test_what_is_not_found_is_one_sentence(
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    references: list[str],
    kernels: list[str],
    message: str,
) -> None:
    """Missing, broken, empty, twice, unknown: the reference and the remedy."""
    _write(elsewhere, "pkg/__init__.py", "")
    _write(elsewhere, "needy.py", "import not_installed\n")
    _write(elsewhere, "broken.py", "1 / 0\n")
    _write(elsewhere, "leaving.py", "raise SystemExit(3)\n")
    _write(elsewhere, "garbled.py", "def\n")
    _write(elsewhere, "empty.py", "")
    _write(
        elsewhere,
        "two.py",
        "A = variant(name='a')\nB = variant(name='a')\nNOT_ONE = [A, 3]\nNONE = []\n",
    )
    _write(elsewhere, "other.py", "A = variant(name='a')\n")
    monkeypatch.chdir(elsewhere)
    with pytest.raises(UsageError, match=message) as caught:
        discovery.find(references, kernels)
    assert "\n" not in str(caught.value)


def test_a_declarations_own_mistake_is_told_with_its_line(elsewhere: Path) -> None:
    """What it says of itself is not buried in an import error, whether it is made anew or replaced."""
    path = _write(
        elsewhere,
        "unfit.py",
        "import dataclasses\nfrom bitproof.harness.spec import Lowering\n"
        "RIGHT = Lowering(supports=('sm_90',))\n"
        "WRONG = dataclasses.replace(RIGHT, supports=('sm90',))\n",
    )
    with pytest.raises(SpecError) as caught:
        discovery.find(["unfit"])
    told = f"{path}:5: Lowering: supports names 'sm90': choose from sm_80, "
    assert str(caught.value).startswith(told)
    with pytest.raises(SpecError, match=r"unfit\.py:5: Lowering: supports names 'sm90'"):
        discovery.find([str(path)])


MISTAKEN = "GOOD = variant(name='good')\nBAD = variant(name='bad', bounds={}, strided='x')\n"
ALL_OF_BAD = (
    "spec 'bad' (mistaken) has 2 mistakes:\n"
    "  bounds must be a dict with a bound for each output, got {} (dict)\n"
    "  strided must be a frozenset of names of tensors, got 'x': write frozenset({'x'})"
)


def test_all_mistakes_of_a_spec_are_told_at_once(elsewhere: Path) -> None:
    """Where it is asked for by name, or nothing narrows; each bad spec is a paragraph of its own."""
    _write(elsewhere, "mistaken.py", MISTAKEN + "WORSE = variant(name='worse', launches=3)\n")
    with pytest.raises(SpecError) as caught:
        discovery.find(["mistaken"], ["bad"])
    assert str(caught.value) == ALL_OF_BAD
    with pytest.raises(SpecError) as caught:
        discovery.find(["mistaken"])
    assert str(caught.value) == (
        f"{ALL_OF_BAD}\n"
        "spec 'worse' (mistaken): launches must be a dict of numbers by family of lanes, got 3"
    )


def test_a_bad_spec_blocks_no_other(elsewhere: Path) -> None:
    """The others of its file are found by name, and `locate` gives all of them with their mistakes."""
    _write(elsewhere, "mistaken.py", MISTAKEN + "UNNAMED = variant(name=None)\n")
    assert _names("mistaken", kernels=("good",)) == ["good"]
    unnamed, bad, good = discovery.locate(["mistaken"])
    assert [len(item.mistakes) for item in (unnamed, bad, good)] == [1, 2, 0]


def test_two_of_a_name_block_no_other(elsewhere: Path) -> None:
    """They are an error where one of them may be meant."""
    _write(
        elsewhere,
        "twins.py",
        "A = variant(name='a')\nTWIN = variant(name='a')\nB = variant(name='b')\n",
    )
    assert _names("twins", kernels=("b",)) == ["b"]
    with pytest.raises(UsageError, match="two specs are called 'a'"):
        discovery.find(["twins"], ["a", "b"])


def test_a_broken_file_leaves_nothing_behind(elsewhere: Path) -> None:
    """It can be mended and found in the same process."""
    path = _write(elsewhere, "mended.py", "1 / 0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        discovery.find([str(path)])
    _write(elsewhere, "mended.py", "SPEC = variant(name='mended')\n")
    assert _names(str(path)) == ["mended"]


def test_another_installed_kernels_package_is_left_alone(tmp_path: Path) -> None:
    """Ours has a name of its own, whatever is first on the import path."""
    _write(tmp_path, "kernels/__init__.py", "raise RuntimeError('theirs')\n")
    script = (
        "from bitproof.harness import lanes; from bitproof.harness.subjects import discovery; "
        "lanes.choose(); print(len(discovery.find()))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(CHECKOUT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.stdout.strip() == str(len(discovery.find()))


@pytest.mark.parametrize(
    ("former", "names"),
    [("kernels.casts", 5), ("kernels.delta", 6), ("kernels.ue8m0", 2), ("kernels.dsrelu", 3)],
)
def test_former_names_of_built_in_modules_are_translated(former: str, names: int) -> None:
    """What records and commands named before there was one import name still means the same kernels."""
    found = discovery.find([former])
    assert len(found) == names
    assert {item.reference for item in found} == {"bitproof.kernels"}
    assert {item.spec.name for item in found} < set(BUILT_IN)


def test_a_module_called_like_a_former_one_is_its_owners(elsewhere: Path) -> None:
    """A package `kernels` of somebody else's comes before the translation."""
    _write(elsewhere, "kernels/__init__.py", "")
    _write(elsewhere, "kernels/casts.py", "SPEC = variant(name='theirs')\n")
    assert _names("kernels.casts") == ["theirs"]


def test_a_spec_file_finds_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none of them takes the place of an installed module."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "neighbour_of_a_spec.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('not this one')\n")
    spec = tmp_path / "specs.py"
    spec.write_text(
        "import msgspec\nimport neighbour_of_a_spec\nfrom tests.harness.plain import SPEC\n"
        "assert msgspec.json\n"
    )
    (found,) = discovery.locate([str(spec)])
    assert found.spec.name == "scaled_rows"
    assert sys.path[-1] == str(tmp_path.resolve())
    discovery.locate([str(spec)])
    assert sys.path.count(str(tmp_path.resolve())) == 1
    sys.modules.pop("neighbour_of_a_spec")


@pytest.mark.parametrize("reference", ["theirs", "theirs.py"])
def test_a_warning_of_theirs_keeps_no_spec_from_loading(write: Write, reference: str) -> None:
    """Also where a run makes warnings errors: a deprecation, an invalid escape in a dependency."""
    write("dependency.py", "PATTERN = '\\d'\n")
    text = "import warnings\nimport dependency\nfrom tests.harness.plain import SPEC\n"
    path = write("theirs.py", f"{text}warnings.warn('old', DeprecationWarning)\n")
    named = str(path) if reference.endswith(".py") else reference
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [found.spec.name for found in discovery.find([named])] == ["scaled_rows"]
        with pytest.raises(SyntaxError, match="invalid escape"):
            compile("'\\d'", "theirs", "exec")
