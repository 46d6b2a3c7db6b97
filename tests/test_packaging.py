"""What is published: the declared dependencies, the wheel, and what works where only the declared is installed."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from email.message import Message
from email.parser import Parser
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vcl.__main__ import LAB, main

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
HOME = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["custom"]["home"]
"""Where the project lives, or nothing while nobody has published it."""
# Modules whose distribution has another name.
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "blitz": "blitz-bayesian-pytorch"}


def declared(extra: str | None = None) -> set[str]:
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def modules_named(node: ast.AST) -> Iterator[str]:
    """The modules that a statement imports, or that a call of `import_module` names."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
        case ast.Call(func=ast.Name(id="import_module"), args=[ast.Constant(value=str(module))]):
            yield module


def without_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below this one that can run: what only type checkers read is left out."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                running: Iterable[ast.AST] = otherwise
            case _:
                running = (child,)
        for each in running:
            yield each
            yield from without_type_checking(each)


def imported(files: Iterable[Path]) -> set[str]:
    """The distributions of other people that files import."""
    trees = (ast.parse(file.read_text()) for file in files)
    nodes = (node for tree in trees for node in without_type_checking(tree))
    named = {name.partition(".")[0] for node in nodes for name in modules_named(node)}
    return {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in named - sys.stdlib_module_names - {"vcl"}}


def test_declared_dependencies_are_exactly_those_imported() -> None:
    source = ROOT / "src" / "vcl"
    lab = {*(source / "lab").rglob("*.py"), source / "sklearn.py"}
    core = set(source.rglob("*.py")) - lab
    assert imported(core) == declared() | declared("kernels")
    extras = ("lab", "bench", "parquet", "ray", "remote")
    assert imported(lab) - declared() == {name for extra in extras for name in declared(extra)}
    assert {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in LAB} == declared("lab")


# A finder that stands before all others and knows no module of these names.
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""
IMPORT_ALL = """
from importlib import import_module
from pathlib import Path
import vcl
root = Path(vcl.__file__).parent
for path in sorted(root.rglob("*.py")):
    parts = path.relative_to(root.parent).with_suffix("").parts
    if parts[-1] != "__main__" and (parts[1] in ("lab", "sklearn")) == {lab}:
        import_module(".".join(part for part in parts if part != "__init__"))
"""


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_the_core_imports_nothing_of_the_lab() -> None:
    done = python(BLOCK.format(names=set(LAB)) + IMPORT_ALL.format(lab=False))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lab_works_without_what_only_fetching_needs() -> None:
    code = BLOCK.format(names={"pooch", "requests", "platformdirs", "pydantic"}) + IMPORT_ALL.format(lab=True)
    done = python(f"{code}\nfrom vcl.lab.datasets import load\nprint(load('digits').name)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "digits\n", "")


def command(blocked: str, words: str = "") -> subprocess.CompletedProcess[str]:
    run = f"import sys\nsys.argv = ['vcl', *{words.split()!r}]\nfrom vcl.__main__ import main\nmain()"
    return python(BLOCK.format(names={blocked}) + run)


@pytest.mark.parametrize(("missing", "words"), [("typer", ""), ("rich", "list"), ("sklearn", "data get digits")])
def test_a_command_without_the_extra_ends_in_a_sentence(missing: str, words: str) -> None:
    done = command(missing, words)
    assert done.returncode == 1
    assert done.stderr.startswith("vcl: the command line needs vcl[lab]: pip install 'vcl[lab]'")
    assert f"the module {missing} is missing" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["vcl.lab.nowhere", "nowhere", None])
def test_a_broken_import_is_not_masked(missing: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("no such module", name=missing)

    monkeypatch.setitem(sys.modules, "vcl.lab.cli", SimpleNamespace(main=fail))
    with pytest.raises(ModuleNotFoundError, match="no such module"):
        main()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the working tree by the tools that are installed here."""
    for tool in ("build", "hatchling"):
        pytest.importorskip(tool)
    out = tmp_path_factory.mktemp("wheel")
    words = ["-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.iterdir()
    return built


def told(wheel: Path) -> Message:
    """The metadata of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_the_package_and_its_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    assert "vcl/py.typed" in held
    assert "vcl/lab/paper/numbers.toml" in held
    assert {"vcl/pages/assets/page.css", "vcl/pages/assets/main.js"} <= held
    assert {str(path.relative_to(source)) for path in source.rglob("*.py")} <= held
    assert all(name.startswith("vcl/") for name in held)


def home() -> ModuleType:
    """What the build makes of the project's home."""
    pytest.importorskip("hatchling")
    spec = spec_from_file_location("home", ROOT / "tools" / "home.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOMEWHERE = "https://example.org/someone/vcl"
README = (ROOT / "README.md").read_text()


def test_the_metadata_names_the_home_that_is_set_and_the_licence(wheel: Path) -> None:
    about = told(wheel)
    assert dict(line.split(", ") for line in about.get_all("Project-URL", [])) == home().urls(HOME)
    assert str(about.get_payload()).strip() == home().linked(README, HOME, about["Version"]).strip()
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert about.get_all("Dynamic") is None


def test_a_home_gives_every_url() -> None:
    urls = home().urls(SOMEWHERE)
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert all(url.startswith(SOMEWHERE) for url in urls.values())
    assert home().urls("") == {}


def test_no_address_of_the_project_is_written_anywhere_but_in_its_one_place() -> None:
    texts = [(ROOT / name).read_text() for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    texts += [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    assert [text.count("github.com/vcl-dev") for text in texts] == [0] * len(texts)
    assert SETTINGS["project"].get("urls") is None


def test_links_of_the_readme_survive_on_a_package_index() -> None:
    text = home().linked(README, SOMEWHERE, "1.2.3")
    written = re.findall(r"\]\(([^)]+)\)", README)
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) == len(written) > 10
    assert all(target.startswith(("https://", "#")) for target in targets)
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert images
    assert all(image.startswith(f"{SOMEWHERE}/raw/v1.2.3/") for image in images)
    assert not re.search(r"<(img|a)\b", text)  # Markdown only: the rules know no HTML.
    tag = f"{SOMEWHERE}/blob/v1.2.3/"
    for target in targets:
        if target.startswith(tag):
            assert (ROOT / target.removeprefix(tag).partition("#")[0]).exists(), target


def test_without_a_home_the_words_of_links_stay_and_nothing_leads_nowhere() -> None:
    text = home().linked(README, "", "1.2.3")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets == [each for each in re.findall(r"\]\(([^)]+)\)", README) if each.startswith(("https://", "#"))]
    for words in re.findall(r"\[([^\]]+)\]\([^)]+\)", README):
        assert words in text


def closure(lines: Iterable[str], extras: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The distributions, by name, that requirements need, and those that these need, as installed here."""
    found: dict[str, metadata.Distribution] = {}
    todo = [(Requirement(line), frozenset(extras)) for line in lines]
    seen = set()
    while todo:
        wanted, of = todo.pop()
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in of | {""}):
            continue
        name = canonicalize_name(wanted.name)
        if (name, key := frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, key))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # what is not here and is needed all the same shows when it is imported
            continue
        todo += [(Requirement(line), key) for line in found[name].requires or ()]
    return found


class Environment:
    """A virtual environment with the wheel and the distributions that one of its extras, or none, declares."""

    def __init__(self, folder: Path, wheel: Path, extras: tuple[str, ...] = ()) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], timeout=60, check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        for distribution in closure(told(wheel).get_all("Requires-Dist", []), extras).values():
            # Linked and not copied: torch alone is a gigabyte.
            for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
                if not (site / top).exists():
                    (site / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
        words = ["-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
        subprocess.run([sys.executable, *words], timeout=60, check=True)

    def run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return subprocess.run(
            [self.folder / "bin" / program, *words],
            cwd=self.folder,
            env=kept | {"VCL_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


LEARN = """
import torch
from torch import nn
from vcl import Ascent, Categorical, Method, Network, Rng, Task, VariationalKL, dataset, initial, learn, predict
model = Network(nn.Sequential(nn.Linear(4, 5), nn.ReLU()), features=5, likelihood=Categorical())
method = Method(VariationalKL(Ascent(2, 10, 1e-2)))
data = dataset(torch.rand(20, 4), torch.arange(20) % 2, task="first", head="all", runs=1)
(state,) = learn(initial(model, method, 1), [Task("first", train=data, heads={"all": 2})], model, method, Rng((0,)))
print(tuple(predict(state, model, data.x, "all", Rng((0,))).shape))
"""


def test_the_core_alone_learns_and_says_what_the_command_line_needs(wheel: Path, tmp_path: Path) -> None:
    core = Environment(tmp_path / "core", wheel)
    done = core.run("python", "-c", LEARN)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(1, 20, 2)\n", "")
    for words in (("vcl",), ("python", "-m", "vcl", "run", "split-digits")):
        done = core.run(*words)
        assert done.returncode == 1
        assert done.stderr == (
            "vcl: the command line needs vcl[lab]: pip install 'vcl[lab]' (the module typer is missing)\n"
        )


def test_the_extra_is_enough_for_a_run(wheel: Path, tmp_path: Path) -> None:
    lab = Environment(tmp_path / "lab", wheel, ("lab",))
    out = tmp_path / "out"
    done = lab.run("vcl", "run", "split-digits", "--preset", "smoke", "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows = out / "split-digits" / "rows.csv"
    assert len(rows.read_text().splitlines()) > 1


@pytest.mark.parametrize(
    ("first", "status", "said"),
    [
        ("atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))", -signal.SIGTERM, ""),
        ("atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))", -signal.SIGINT, ""),
        ("sys.modules['vcl.lab.cli'] = Early()", 130, "vcl: stopped before anything was begun.\n"),
    ],
)
def test_a_signal_before_the_command_line_or_after_it_makes_no_traceback(first: str, status: int, said: str) -> None:
    run = (
        "import atexit, os, signal, sys\nfrom types import ModuleType\nsys.argv = ['vcl', '--version']\n"
        "class Early(ModuleType):\n    def __init__(self): super().__init__('early')\n"
        "    def __getattr__(self, name): raise KeyboardInterrupt\n"
        f"from vcl.__main__ import main\n{first}\nmain()"
    )
    end = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=60, check=False)
    assert (end.returncode, end.stderr) == (status, said)
