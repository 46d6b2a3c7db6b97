"""Methods, experiments and datasets of others: from a file that is given, or from an installed package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_made import alone, call, fault

from vcl.errors import VclError
from vcl.lab import cli, registry
from vcl.lab.registry import code_of, datasets, experiments, load_file, methods
from vcl.lab.results import read_csv
from vcl.lab.settings import settings_in

METHOD = '''"""VCL whose posterior is widened after each task, so that the past weighs less."""

from dataclasses import dataclass, field
from math import log
from typing import Annotated

from vcl.fitting.loop import Ascent, silent
from vcl.lab.methods.entry import MethodEntry
from vcl.lab.methods.fits import Fit
from vcl.lab.settings import Positive
from vcl.projections import VariationalKL
from vcl.recursion import Method


@dataclass(frozen=True)
class Widened:
    factor: Annotated[Positive, "what variances are multiplied by"] = 2.0
    fit: Fit = field(default_factory=Fit)


@dataclass(frozen=True)
class Widening:
    ascent: Ascent
    factor: float

    def initial(self, prior):
        return prior

    def __call__(self, target, rng, report=silent):
        q = VariationalKL(self.ascent)(target, rng, report)
        return q._replace(log_var=q.log_var + log(self.factor))


def build(s):
    return Method(Widening(s.fit.ascent(), s.factor))


WIDENED = MethodEntry("widened", "VCL that forgets a little", Widened, build)
'''

EXPERIMENT = '''"""The digits as tasks of three, under another network."""

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from vcl.lab.experiments.digits import SPLIT_DIGITS
from vcl.lab.settings import Count
from vcl.models import Categorical, Network


@dataclass(frozen=True)
class Narrow:
    units: Annotated[Count, "units of the one layer"] = 6


def model(s, shape):
    width = shape[0] * shape[1]
    return Network(nn.Sequential(nn.Flatten(-2), nn.Linear(width, s.units), nn.Tanh()), s.units, Categorical(), 1.0)


def narrow(setup):
    changed = setup.but(tasks=3, classes=3)
    return type(setup)(changed.stream, Narrow(), changed.prediction, changed.run, changed.shared, changed.own)


THREES = SPLIT_DIGITS._replace(
    name="threes", about="tasks of three digits", model=model,
    presets={name: narrow(setup) for name, setup in SPLIT_DIGITS.presets.items()},
)
'''

DATASET = '''"""Four classes of stripes."""

import numpy as np

from vcl.lab.datasets.entry import Dataset, DatasetEntry, Found


def read(found, say):
    def part(n):
        y = np.arange(n) % 4
        x = np.zeros((n, 6, 5), dtype=np.uint8)
        x[np.arange(n), y] = 255
        return x, y.astype(np.int64)

    return Dataset("stripes", *part(80), *part(40), tuple("abcd"), found.where)


STRIPES = DatasetEntry(
    "stripes", "made-up stripes", "look elsewhere", lambda folder: Found("made here"), lambda path: "made", read
)
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, and no plugins but those of the test."""
    monkeypatch.setattr(registry, "FILES", {})
    registry.installed.cache_clear()
    yield alone(tmp_path, monkeypatch)
    registry.installed.cache_clear()
    for name in [name for name in sys.modules if name.startswith(("wide_", "broken_", "vcl_plugin_"))]:
        del sys.modules[name]


def plugin(text: str, name: str = "mine.py") -> Path:
    path = Path.cwd() / name
    path.write_text(text)
    return path


RUN = "run split-digits --preset smoke --seeds 2 --device cpu --method vcl,widened"


def check_run(folder: Path, first: str = "vcl", second: str = "widened") -> None:
    """The rows, the table and the figure of two methods, two seeds each."""
    rows = read_csv(folder / "split-digits" / "rows.csv")
    assert {(row.method, row.seed) for row in rows} == {(name, seed) for name in (first, second) for seed in (0, 1)}
    assert {row.after for row in rows} == {1, 2}
    values = {
        name: [row.value for row in rows if row.method == name and row.metric == "log predictive"]
        for name in (first, second)
    }
    assert values[first] != values[second]
    table = (folder / "table.md").read_text()
    assert f"| {first} " in table
    assert f"| {second} " in table
    assert (folder / "split-digits" / "average-accuracy.png").stat().st_size > 0


# A file.


def test_a_method_of_a_file_is_run_beside_ours(here: Path) -> None:
    plugin(METHOD)
    assert len(METHOD.splitlines()) < 45
    result = call(f"{RUN} --plugin mine.py --set widened.factor=4 --set epochs=3 --out out")
    assert result.exit_code == 0, result.exception
    check_run(here / "out")
    # What it is computed from is stored with it: other values are another part, the same are read again.
    parts = sorted(path.name for path in (here / "out" / "parts").iterdir())
    assert call(f"{RUN} --plugin mine.py --set widened.factor=4 --set epochs=3 --out out").exit_code == 0
    assert sorted(path.name for path in (here / "out" / "parts").iterdir()) == parts
    assert len(parts) == 2
    assert call(f"{RUN} --plugin mine.py --set widened.factor=5 --set epochs=3 --out out").exit_code == 0
    assert len(list((here / "out" / "parts").iterdir())) == 3


def test_its_results_are_shown_again_without_the_file(here: Path) -> None:
    plugin(METHOD)
    assert call(f"{RUN} --plugin mine.py --out out").exit_code == 0
    registry.FILES.clear()
    before = (here / "out" / "table.md").read_text()
    (here / "out" / "table.md").unlink()
    assert call("show out").exit_code == 0
    assert (here / "out" / "table.md").read_text() == before


def test_its_networks_predict(here: Path) -> None:
    plugin(METHOD)
    assert call(f"{RUN} --plugin mine.py --out out").exit_code == 0
    result = call("predict out --method widened --task 0/1 --plugin mine.py --out p.csv")
    assert result.exit_code == 0, result.exception
    assert (here / "p.csv").stat().st_size > 0
    registry.FILES.clear()
    assert "is of the method 'widened', which is not known here; give the file" in fault(
        "predict out --method widened --task 0/1 --out q.csv"
    )


def test_the_plan_of_a_method_of_a_file(here: Path) -> None:
    plugin(METHOD)
    result = call(f"{RUN} --plugin mine.py --set factor=3 --dry-run")
    assert result.exit_code == 0, result.exception
    assert "widened: factor=3, epochs=2" in result.output
    assert re.search(r"widened\s*│ 4\s", result.output), "two epochs of two tasks, whole"
    listed = call(f"{RUN} --plugin mine.py --settings")
    assert "what variances are multiplied by" in listed.output
    assert {path.name for path in here.iterdir()} <= {"mine.py", "__pycache__"}, "nothing was run"


def test_the_settings_of_a_method_of_a_file_are_checked(here: Path) -> None:
    plugin(METHOD)
    for change, message in (
        ("factor=0", "factor is 0.0; give a number above 0."),
        ("factor=much", "setting factor takes a number, not 'much'."),
        ("widened.draws=3", "unknown setting 'draws'"),
    ):
        assert message in fault(f"{RUN} --plugin mine.py --set {change}")


def test_what_a_file_offers_is_listed(here: Path) -> None:
    plugin(METHOD)
    plugin(EXPERIMENT, "other.py")
    plugin(DATASET, "third.py")
    result = call("list --plugin mine.py --plugin other.py --plugin third.py")
    assert result.exit_code == 0, result.exception
    for text in ("widened", "VCL that forgets a little", "threes", "tasks of three digits", "stripes", "made-up"):
        assert text in result.output
    registry.FILES.clear()
    assert "widened" not in call("list").output


def test_an_experiment_of_a_file(here: Path) -> None:
    plugin(EXPERIMENT)
    line = "run threes --preset smoke --device cpu --method vcl,ewc --plugin mine.py --set units=5 --out out"
    result = call(line)
    assert result.exit_code == 0, result.exception
    rows = read_csv(here / "out" / "threes" / "rows.csv")
    assert {row.method for row in rows} == {"vcl", "ewc"}
    assert {row.on for row in rows} == {1, 2, 3}
    assert "threes, preset smoke, after 3 tasks" in (here / "out" / "table.md").read_text()
    registry.FILES.clear()
    assert call("show out").exit_code == 1, "what is measured is the file's to say"
    assert call("show out --plugin mine.py").exit_code == 0


def test_a_dataset_of_a_file(here: Path) -> None:
    plugin(DATASET)
    plugin(METHOD, "other.py")
    both = "--plugin mine.py --plugin other.py"
    line = f"run split --dataset stripes --preset smoke --device cpu --method vcl,widened {both} --out out"
    result = call(line)
    assert result.exit_code == 0, result.exception
    rows = read_csv(here / "out" / "split-on-stripes" / "rows.csv")
    assert {row.method for row in rows} == {"vcl", "widened"}
    assert {row.on for row in rows} == {1, 2}
    assert "stripes" in call("data list --plugin mine.py").output
    assert "stripes:" in call("data get stripes --plugin mine.py").output
    registry.FILES.clear()
    assert "unknown dataset 'stripes'" in fault("run split --dataset stripes --preset smoke")


def test_a_file_is_loaded_once(here: Path) -> None:
    path = plugin(METHOD)
    load_file(path)
    found = methods("networks")["widened"]
    load_file(Path("mine.py"))
    assert methods("networks")["widened"] is found
    assert "widened" not in methods("generators")


def test_two_files_of_the_same_name_are_two(here: Path) -> None:
    """Each has settings that are looked up in its own module."""
    (here / "a").mkdir()
    (here / "b").mkdir()
    future = "from __future__ import annotations\n"
    first, second = plugin(future + METHOD, "a/mine.py"), plugin(future + METHOD, "b/mine.py")
    second.write_text(second.read_text().replace("widened", "wider").replace("Positive", "Count").replace("2.0", "2"))
    load_file(first)
    load_file(second)
    kinds = {name: settings_in(methods("networks")[name].settings)["factor"].kind for name in ("widened", "wider")}
    assert kinds == {"widened": float, "wider": int}
    assert code_of(methods("networks")["widened"]) != code_of(methods("networks")["wider"])


TWICE = METHOD.replace("    fit: Fit", "    first: Fit = field(default_factory=Fit)\n    fit: Fit")
"""Settings with two fits: which one would `--set epochs=3` change?"""
SAID_TWICE = "offers widened, but its settings Widened have epochs twice; give each a name of its own."
BAD_NAME = "; give a name of letters, digits, dots and dashes, not one of stream, network"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "nowhere.py", r"--plugin is .*nowhere\.py, which does not exist; give a Python file"),
        ("x = 1", "mine.txt", r"--plugin is .*mine\.txt, which is no Python file"),
        ("def broken(:\n", "mine.py", r"--plugin .*mine\.py cannot be loaded \(SyntaxError: .*\); fix it\."),
        ("import nothing_there\n", "mine.py", r"cannot be loaded \(ModuleNotFoundError: No module"),
        ("raise ValueError('no')", "mine.py", r"cannot be loaded \(ValueError: no\); fix it\."),
        ("x = 1", "mine.py", r"--plugin .*mine\.py defines no MethodEntry, Experiment or DatasetEntry; give one"),
        ("from vcl.lab.experiments.sine import SINE", "mine.py", "defines no MethodEntry, Experiment or DatasetEntry"),
        ("raise SystemExit(3)", "mine.py", r"cannot be loaded \(SystemExit: 3\); fix it\."),
        (METHOD.replace('"widened"', '"a b"'), "mine.py", "mine.py names 'a b'" + BAD_NAME),
        (METHOD.replace('"widened"', '"run"'), "mine.py", "mine.py names 'run'" + BAD_NAME),
        (METHOD.replace('"widened"', "3"), "mine.py", "mine.py names 3" + BAD_NAME),
        (TWICE, "mine.py", rf"--plugin .*mine\.py {SAID_TWICE}$"),
        (METHOD.replace("Widened, build", "int, build"), "mine.py", r"widened, which cannot be read \(TypeError: "),
        (METHOD.replace("Positive, ", "list[int], "), "mine.py", "widened, but its setting factor is of the type"),
        (METHOD.replace(", build)", ", build, models='x')"), "mine.py", r"widened, but its models is 'x'; give one of"),
        (METHOD.replace(", build)", ", build, values={'nope': 3})"), "mine.py", "but its values name nope, which its"),
        (METHOD.replace('"widened"', '"vcl"'), "mine.py", r"mine\.py names vcl, which vcl has already; give it"),
        (EXPERIMENT.replace('"threes"', '"sine"'), "mine.py", r"mine\.py names sine, which vcl has already"),
        (DATASET.replace('"stripes", "m', '"digits", "m'), "mine.py", r"mine\.py names digits, which vcl has already"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(text: str | None, name: str, message: str) -> None:
    if text is not None:
        plugin(text, name)
    known = experiments().keys(), methods("networks").keys(), datasets().keys()
    for line in (f"{RUN} --plugin {name}", f"list --plugin {name}", f"show out --plugin {name}"):
        said = fault(line)
        assert re.search(message, said), said
        assert "\n" not in said
    assert not registry.FILES
    assert (experiments().keys(), methods("networks").keys(), datasets().keys()) == known
    # Mended, it can be loaded.
    load_file(plugin(METHOD))
    assert "widened" in methods("networks")


def test_a_folder_is_no_plugin(here: Path) -> None:
    (here / "folder.py").mkdir()
    assert "is no Python file" in fault(f"{RUN} --plugin folder.py")


def test_two_files_may_not_take_the_same_name(here: Path) -> None:
    plugin(METHOD)
    plugin(METHOD, "other.py")
    said = fault(f"{RUN} --plugin mine.py --plugin other.py")
    assert re.search(r"other\.py names widened, which .*mine\.py has already; give it another name\.$", said)


def test_methods_of_networks_and_of_generators_may_share_a_name(here: Path) -> None:
    load_file(plugin(METHOD.replace('"widened"', '"naive"')))
    assert methods("networks")["naive"] is not methods("generators")["naive"]


# What a plugin gives is looked at where it is taken.

QUIET = METHOD.replace(
    "        q = VariationalKL(self.ascent)(target, rng, report)\n"
    "        return q._replace(log_var=q.log_var + log(self.factor))",
    "        return target.q._replace(mean=target.q.mean + 0.1)",
)  # fmt: skip


def test_a_method_that_reports_no_epochs(here: Path) -> None:
    plugin(QUIET)
    result = call(f"{RUN} --plugin mine.py --out out")
    assert result.exit_code == 0, result.exception
    rows = read_csv(here / "out" / "split-digits" / "rows.csv")
    assert {row.after for row in rows if row.method == "widened"} == {1, 2}


ALONE = "run split-digits --preset smoke --seeds 1 --device cpu --method widened --plugin mine.py --out out"
BUILD = "    return Method(Widening(s.fit.ascent(), s.factor))"
STREAM = EXPERIMENT.replace('name="threes",', 'name="threes", stream=lambda data, s, rng: WRONG,')


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (METHOD.replace(BUILD, "    return None"), ALONE, "build of the method widened returned None; return a vcl.Me"),
        (METHOD.replace("def build(s):", "def build():").replace(BUILD, "    pass"), ALONE,
         "build of the method widened is given 1 values, which it does not take (too many positional arguments); mend"),
        (METHOD.replace("def initial", "def first"), ALONE, "the projection Widening of the method widened lacks init"),
        (METHOD.replace("def __call__", "def call"), ALONE, "the projection Widening of the method widened lacks init"),
        (METHOD.replace("        return q._replace", "        q._replace"), ALONE,
         "Widening returned NoneType; return the new belief, a MeanField."),
        (STREAM.replace("WRONG", "[1]"), ALONE.replace("split-digits", "threes").replace("widened", "vcl"),
         "stream of the experiment threes returned list; return a vcl.lab.plugin.Stream."),
        (STREAM.replace("WRONG", "None"), ALONE.replace("split-digits", "threes").replace("widened", "vcl"),
         "stream of the experiment threes returned NoneType"),
        (EXPERIMENT.replace("    return Network", "    Network"),
         ALONE.replace("split-digits", "threes").replace("widened", "vcl"),
         "model of the experiment threes returned NoneType; return a model, such as vcl.Network(...)."),
        (EXPERIMENT.replace("setup.but(", "setup.but(nonsense=20, "),
         ALONE.replace("split-digits", "threes").replace("widened", "vcl"),
         "threes, preset smoke, has a value for nonsense, which is no setting of it or its methods; mend its Setup."),
    ],
)  # fmt: skip
def test_what_a_plugin_gives_is_checked(here: Path, text: str, line: str, said: str) -> None:
    plugin(text)
    assert fault(line).startswith(said)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            "raise SystemExit('bye')",
            r"the plugin ended the program at .*mine\.py, line \d+ \(SystemExit: bye\); fix it\.",
        ),
        ("open('/nowhere/at/all')", r"the plugin failed at .*mine\.py, line \d+ \(FileNotFoundError: .*\); fix it\."),
    ],
)
def test_a_fault_within_a_plugin_names_its_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, wrong: str, said: str
) -> None:
    plugin(METHOD.replace(BUILD, f"    {wrong}"))
    monkeypatch.setattr(sys, "argv", ["vcl", *ALONE.split()])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert re.fullmatch(rf"vcl: {said}\n", capsys.readouterr().err)


def test_a_setting_of_a_method_may_be_called_seeds(here: Path) -> None:
    plugin(METHOD.replace("    factor: Annotated", "    seeds: int = 1\n    factor: Annotated"))
    result = call(f"{ALONE} --set widened.seeds=4 --dry-run")
    assert result.exit_code == 0, result.exception
    assert "widened: seeds=4" in result.output
    assert "1 seed stacked" in result.output


# An installed package.


def install(points: str, monkeypatch: pytest.MonkeyPatch, name: str = "wide", **modules: str) -> None:
    """A package beside the folder that is worked in, on the path as an installed one is."""
    site = Path.cwd().parent / "site"
    about = site / f"{name}-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text(points)
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(site))
    registry.installed.cache_clear()


ONE = "[vcl.methods]\nwidened = wide_method:WIDENED\n"


def test_a_method_of_an_installed_package(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(ONE, monkeypatch, wide_method=METHOD)
    result = call(f"{RUN} --set widened.factor=4 --set epochs=3 --out out")
    assert result.exit_code == 0, result.exception
    check_run(here / "out")
    assert "VCL that forgets a little" in call("list").output
    assert code_of(methods("networks")["widened"]) is not None
    assert not registry.installed().faults


def test_a_package_may_offer_several_at_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = f"{EXPERIMENT}\nEVERY = [THREES, THREES._replace(name='others')]\n"
    points = (
        f"{ONE}[vcl.experiments]\nall = wide_experiment:EVERY\n[vcl.datasets]\nstripes = wide_data:STRIPES\n"
        "[console_scripts]\nother = wide_method:nothing\n"
    )
    install(points, monkeypatch, wide_method=METHOD, wide_experiment=every, wide_data=DATASET)
    assert {"threes", "others"} <= experiments().keys()
    assert "stripes" in datasets()
    line = "run threes --preset smoke --device cpu --seeds 1 --method widened --out out"
    assert call(line).exit_code == 0


@pytest.mark.parametrize("edited", ["deep/helper.py", "__init__.py", "method.py"])
def test_every_file_of_a_package_is_part_of_what_it_offers(
    here: Path, monkeypatch: pytest.MonkeyPatch, edited: str
) -> None:
    package = here.parent / "site" / "wide_package"
    (package / "deep").mkdir(parents=True)
    for name, text in (("__init__", ""), ("deep/helper", "x = 1\n"), ("method", METHOD)):
        (package / f"{name}.py").write_text(text)
    install("[vcl.methods]\nwidened = wide_package.method:WIDENED\n", monkeypatch)
    before = code_of(methods("networks")["widened"])
    assert before is not None
    (package / edited).write_text((package / edited).read_text() + "# edited\n")
    assert code_of(methods("networks")["widened"]) == before, "what was loaded counts"
    registry.installed.cache_clear()
    assert code_of(methods("networks")["widened"]) not in (None, before)


def test_what_measures_an_experiment_is_part_of_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is defined elsewhere too: here in a module that the plugin does not name."""
    site = here.parent / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    (site / "wide_measure.py").write_text(
        "from functools import partial\nfrom vcl.lab.classification import CLASSIFICATION, evaluate\n"
        "def measure(context, scale):\n    return evaluate(context)\n"
        "MEASURED = CLASSIFICATION._replace(evaluate=partial(measure, scale=1))\n"
    )
    more = "from importlib import import_module\nOTHER = THREES._replace(name='other', "
    path = plugin(f"{EXPERIMENT}\n{more}evaluation=import_module('wide_measure').MEASURED)\n")
    load_file(path)
    before = {name: code_of(experiments()[name]) for name in ("threes", "other")}
    (site / "wide_measure.py").write_text((site / "wide_measure.py").read_text() + "# edited\n")
    registry.FILES.clear()
    load_file(path)
    after = {name: code_of(experiments()[name]) for name in ("threes", "other")}
    assert after["threes"] == before["threes"]
    assert after["other"] != before["other"]


@pytest.mark.parametrize(
    ("point", "module", "told"),
    [
        (
            "x = broken_one:WIDENED",
            "raise OSError('gone')",
            r"plugin x of bad cannot be loaded \(OSError: gone\)\.",
        ),
        ("x = broken_one:nothing", METHOD, r"the plugin x of bad cannot be loaded \(AttributeError: .*nothing.*\)\."),
        ("x = nowhere_at_all:X", "", r"the plugin x of bad cannot be loaded \(ModuleNotFoundError: .*\)\."),
        ("x = broken_one:X", "X = 3", r"the plugin x of bad is no MethodEntry, Experiment or DatasetEntry\."),
        ("x = broken_one:WIDENED", METHOD.replace('"widened"', '"vcl"'), r"x of bad names vcl, which vcl has already"),
        ("x = broken_one:X", "raise SystemExit(3)", r"plugin x of bad cannot be loaded \(SystemExit: 3\)\."),
        ("x = broken_one:WIDENED", METHOD.replace('"widened"', '"a/b"'), f"plugin x of bad names 'a/b'{BAD_NAME}"),
        ("x = broken_one:WIDENED", METHOD.replace('"widened"', '"parts"'), f"x of bad names 'parts'{BAD_NAME}"),
        ("x = broken_one:WIDENED", METHOD.replace('"widened"', "[]"), f"x of bad names \\[\\]{BAD_NAME}"),
        (
            "x = broken_one:WIDENED",
            METHOD.replace('"widened"', '"mine lambda=abc"'),
            f"x of bad names 'mine lambda=abc'{BAD_NAME}",
        ),
        ("x = broken_one:WIDENED", TWICE, f"the plugin x of bad {SAID_TWICE}"),
        (
            "x = broken_one:SOME",
            f"{EXPERIMENT}\nSOME = THREES._replace(presets={{}})",
            r"x of bad offers threes, which cannot be read \(KeyError: 'paper'\); fix it\.",
        ),
    ],
)
def test_a_broken_package_stops_no_other_and_is_named(
    monkeypatch: pytest.MonkeyPatch, point: str, module: str, told: str
) -> None:
    install(f"[vcl.methods]\n{point}\n", monkeypatch, "bad", broken_one=module)
    install(ONE, monkeypatch, "wide", wide_method=METHOD)
    assert call(f"{RUN} --out out").exit_code == 0
    assert methods("networks")["vcl"].about == "variational continual learning, no coreset"
    listed = call("list")
    assert listed.exit_code == 0
    assert re.search(told, " ".join(listed.output.split()))
    # An unknown name may be one of those that could not be loaded.
    said = fault("run split-digits --method other")
    assert said.startswith("unknown method 'other'")
    assert re.search(told, said)


def test_a_file_may_not_take_the_name_of_a_packages_method(monkeypatch: pytest.MonkeyPatch) -> None:
    install(ONE, monkeypatch, wide_method=METHOD)
    with pytest.raises(VclError, match=r"mine\.py names widened, which widened of wide has already; give it another"):
        load_file(plugin(METHOD))


def test_an_experiment_on_a_dataset_that_is_not_here_is_listed(here: Path) -> None:
    plugin(EXPERIMENT.replace('name="threes"', 'name="threes", dataset="elsewhere"'))
    result = call("list --plugin mine.py")
    assert result.exit_code == 0, result.exception
    assert "unknown dataset 'elsewhere'" in fault("run threes --preset smoke --plugin mine.py")
