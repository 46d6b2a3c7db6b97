"""What `import vcl` offers, and what it costs."""

import subprocess
import sys
from importlib import import_module

import pytest

import vcl

ROOMS = ("beliefs", "coresets", "data", "engines", "fitting", "learner", "models", "predicting", "projections")


def test_every_public_name_is_there_and_listed() -> None:
    assert 20 < len(vcl.__all__) < 35, "the top level is for what most programs need"
    for name in vcl.__all__:
        assert getattr(vcl, name).__name__ == name
        assert name in dir(vcl)
    space: dict[str, object] = {}
    exec("from vcl import *", space)
    assert set(vcl.__all__) <= set(space)
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = vcl.nonsense


def test_a_name_of_a_room_is_refused_at_the_top_and_its_room_is_named() -> None:
    homes = {"Nothing": "coresets", "Source": "data", "kl": "beliefs", "Target": "projections", "Probit": "models"}
    homes |= {"generative_vcl": "learner", "generate": "predicting", "Curvature": "fitting", "SetAside": "recursion"}
    for name, room in homes.items():
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; it is in vcl\.{room}$"):
            getattr(vcl, name)
        assert hasattr(import_module(f"vcl.{room}"), name)
    with pytest.raises(AttributeError, match=r"no attribute 'Tensor'$"):
        _ = vcl.Tensor


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_can_be_imported_first(room: str) -> None:
    """No room needs another to have been imported before it."""
    code = f"import vcl; print(vcl.{room}.__name__)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == f"vcl.{room}\n"


def test_public_names_are_not_hidden_by_files_of_the_same_name() -> None:
    """`from vcl import learn` must give the function whatever was imported before."""
    code = (
        "import vcl.recursion, vcl.predicting.prediction, vcl.data\n"
        "from vcl import learn, predict, dataset\n"
        "print(all(map(callable, (learn, predict, dataset))))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_importing_the_package_or_the_command_line_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "matplotlib", "sklearn")
    code = f"import sys, vcl, vcl.lab.cli; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_import_contract_covers_every_module_of_the_core() -> None:
    import tomllib
    from pathlib import Path

    root = Path(__file__).parents[1]
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    covered = {module for contract in contracts[:3] for module in contract["source_modules"]}
    found = {
        f"vcl.{path.stem}"
        for path in (root / "src/vcl").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert covered == found - {"vcl.__init__", "vcl.__main__", "vcl.lab"}
