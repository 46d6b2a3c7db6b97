"""tools/figures: each script writes its figure, which is well formed and shows what its caption says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import vcl

ROOT = Path(__file__).parents[2]
TOOLS, FIGURES = ROOT / "tools" / "figures", ROOT / "docs" / "figures"


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))


def script(name: str) -> ModuleType:
    """The module of a script."""
    return import_module(name)


@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.svg")), ids=lambda path: path.name)
def test_figures_are_whole_files_that_load_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert not re.findall(r'(?:href|src)="(?!#)', text)
    assert not re.findall(r"url\((?!#)", text)


def test_each_figure_is_listed_with_a_command_that_exists() -> None:
    listed = (FIGURES / "README.md").read_text(encoding="utf-8")
    for path in FIGURES.iterdir():
        assert path.name == "README.md" or f"]({path.name})" in listed
    commands = set(re.findall(r"`python (tools/figures/\w+\.py)", listed))
    assert commands
    assert all((ROOT / command).is_file() for command in commands)


def test_the_exact_posterior_keeps_what_fine_tuning_forgets() -> None:
    line = script("line")
    data = line.made()
    errors = {}
    for name, projection in (("exact", line.exact()), ("fine-tuning", line.fine_tuning())):
        *_, last = line.beliefs(data, projection)
        weights = last.mean[0].double().numpy()
        errors[name] = [
            float(np.sqrt(np.square(data.phi(x) @ weights - y).mean())) for x, y in zip(data.x, data.y, strict=True)
        ]
    assert max(errors["exact"]) < 0.15
    assert errors["fine-tuning"][2] < 0.15
    assert min(errors["fine-tuning"][:2]) > 0.3


def test_the_band_of_the_idea_stays_narrow_at_old_data() -> None:
    line = script("line")
    data = line.made()
    grid = line.GRID
    at_first = (grid > data.x[0].min()) & (grid < data.x[0].max())
    unseen = grid > data.x[1].min()
    bands = [line.band(data, belief)[1] for belief in line.beliefs(data, line.exact())]
    assert all(sd[at_first].max() < line.NOISE for sd in bands)
    assert bands[0][unseen].min() > 4 * line.NOISE
    assert (bands[2] <= bands[0] + 1e-6).all()  # of a linear model, more data never widens it


def test_the_idea_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import vcl

    monkeypatch.setattr(script("line"), "fine_tuning", lambda: vcl.MaximumLikelihood(vcl.Ascent(5, None, 1e-2)))
    script("idea").main(["--out", str(tmp_path / "new")])
    assert str(tmp_path / "new" / "idea.svg") in capsys.readouterr().out
    drawn = (tmp_path / "new" / "idea.svg").read_text(encoding="utf-8")
    shapes = [each.tag.rpartition("}")[2] for each in ET.fromstring(drawn).iter()]
    assert shapes.count("circle") == 2 * (14 + 28 + 42) + 2  # data and rings, and the key
    assert len(drawn.encode()) < 100_000


def test_the_recursion_has_a_frame_for_each_point_and_one_that_stands_still(tmp_path: Path) -> None:
    line = script("line")
    script("recursion").main(["--out", str(tmp_path)])
    drawn = (tmp_path / "recursion.svg").read_text(encoding="utf-8")
    ET.fromstring(drawn)
    assert drawn.count('<g class="f ') == 1 + 3 * line.POINTS
    assert drawn.count('<g class="f e last"') == 1
    assert ".f{opacity:0}.last{opacity:1}@media (prefers-reduced-motion:no-preference)" in drawn
    assert len(drawn.encode()) < 500_000


def test_the_forgetting_of_every_method_is_that_of_its_rows(tmp_path: Path) -> None:
    forgetting = script("forgetting")
    found = {name: forgetting.accuracies(folder, method) for name, folder, method in forgetting.METHODS}
    for name, each in found.items():
        assert np.isfinite(each[np.tril_indices(10)]).all(), name
    assert np.mean(found["VCL"][-1]) == pytest.approx(88.3, abs=0.05)  # as in the README
    assert np.mean(found["EWC"][-1]) == pytest.approx(81.7, abs=0.05)
    assert np.mean(found["vcl-kron"][-1]) == pytest.approx(97.0, abs=0.05)
    forgetting.main(["--out", str(tmp_path)])
    cells = (tmp_path / "forgetting.svg").read_text(encoding="utf-8").count('<rect class="blue"')
    assert cells == 12 * 55 + 11


def test_the_planes_show_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    planes = script("planes")
    monkeypatch.setattr(planes, "LAMBDAS", (1.0,))
    parts = planes.made()
    found = planes.ways(parts, epochs=150)
    kept, _, fine_tuned = (planes.accuracy(states[-1], parts) for _, _, states in found)
    assert kept > 0.9 > 0.8 > fine_tuned
    monkeypatch.setattr(planes, "CELLS", 9)
    assert planes.drawing(parts, found).count("<clipPath") == 9


def test_kronecker_factors_are_nearer_to_the_full_covariance_than_mean_field() -> None:
    covariance = script("covariance")
    found = {name: covariance.correlations(each) for name, each in covariance.projections(200).items()}
    off = ~np.eye(21, dtype=bool)
    assert np.abs(found["mean field"][off]).max() < 0.05  # of 20,000 draws
    far = {
        name: np.square(found[name] - found["full Gaussian"])[off].mean()
        for name in ("mean field", "Kronecker factors")
    }
    assert far["Kronecker factors"] < 0.5 * far["mean field"]
    drawn = covariance.drawing(found)
    assert drawn.count("<rect") > 3 * 21


def test_the_schematic_has_the_names_of_the_code(tmp_path: Path) -> None:
    script("schematic").main(["--out", str(tmp_path)])
    drawn = (tmp_path / "schematic.svg").read_text(encoding="utf-8")
    words = ["".join(each.itertext()) for each in ET.fromstring(drawn).iter() if each.tag.endswith("}text")]
    model = vcl.Network(vcl.mlp(2, (3,)), features=3, likelihood=vcl.Categorical())
    for name in model.prior({"1": 2, "2": 2}).layout.names:  # such as trunk.0.weight, heads.1.bias
        assert any(name.startswith(word) for word in words), name
    for name in ("encoder", "lower", "upper"):
        assert name in words
        assert isinstance(getattr(vcl.mlp_vae(pixels=4), name), torch.nn.Module)
