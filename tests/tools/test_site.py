"""The documentation site: built strictly in a folder of its own, and what ends a build."""

from __future__ import annotations

import re
import shutil
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import vcl

pytest.importorskip("latex2mathml", reason="NOT RUN: the site was not built: latex2mathml is missing")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "documents"))


@pytest.fixture
def tool() -> ModuleType:
    return import_module("build_site")


def test_the_site_is_built_without_a_fault(tmp_path: Path, tool: ModuleType) -> None:
    site = tool.build(tmp_path)  # Zensical's warnings, dead links, missing pages and loads from a network are errors
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    for name in tool.places(nav):
        page = site / re.sub(r"README\.md$", "index.html", name).replace(".md", ".html")
        assert "<h1" in page.read_text(encoding="utf-8"), name
    text = (site / "api" / "vcl.html").read_text(encoding="utf-8")
    for name in vcl.__all__:
        found = re.search(rf'href="(\w+\.html)#{name}"', text)
        assert found, name
        assert f'id="{name}"' in (site / "api" / found[1]).read_text(encoding="utf-8")
    for path in (site / "api").glob("*.html"):
        heads = re.findall(r"<h\d.*?</h\d>", path.read_text(encoding="utf-8"))
        assert heads
        assert not [head for head in heads if "{#" in head or "<strong>" in head], path.name
    assert 'id="Exact.call">Exact.__call__<' in (site / "api" / "projections.html").read_text(encoding="utf-8")
    assert "<math" in (site / "docs" / "federated.html").read_text(encoding="utf-8")
    found = (site / "search.json").read_text(encoding="utf-8")
    assert "docs/choosing.html" in found
    assert "results/permuted-mnist/tuning.html" not in found  # a generated table
    assert "https://unpkg.com" not in text
    assert (site / "theme" / "iframe-worker.js").is_file()


def test_a_page_without_a_place_and_a_place_without_a_page_are_named(tool: ModuleType) -> None:
    nav = [{"vcl": "README.md"}, {"Methods": [{"One": "docs/one.md"}, {"Gone": "docs/gone.md"}]}]
    said = tool.missing(["README.md", "docs/one.md", "docs/two.md", "results/table.md"], nav)
    assert said == [
        "zensical.toml: docs/two.md has no place in nav",
        "zensical.toml: nav names docs/gone.md, which is no page",
    ]


def test_dead_links_and_loads_from_a_network_are_named(tmp_path: Path, tool: ModuleType) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="sub/">ok</a><a href="#top">ok</a><a href="https://a.example">ok</a>'
        '<a href="sub/none.html">dead</a><a href="sub/index.html#none">dead</a><img src="none.png">'
        '<script src="https://cdn.example/x.js"></script><link rel="stylesheet" href="https://fonts.example/f.css">'
    )
    (tmp_path / "sub" / "index.html").write_text('<a href="../index.html#top">ok</a>')
    assert tool.faults(tmp_path) == [
        "index.html: sub/none.html leads nowhere",
        "index.html: sub/index.html#none: there is no such anchor",
        "index.html: none.png leads nowhere",
        "index.html: loads https://cdn.example/x.js from a network",
        "index.html: loads https://fonts.example/f.css from a network",
    ]


def test_a_warning_of_zensical_ends_the_build(
    tmp_path: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(folder: Path, root: Path) -> list[str]:
        folder.mkdir(parents=True)
        (folder / "README.md").write_text("# vcl\n\n[gone](gone.md)\n")
        return ["README.md"]

    root = tmp_path / "root"
    root.mkdir()
    (root / "zensical.toml").write_text(
        '[project]\nsite_name = "x"\ndocs_dir = "build/pages"\nsite_dir = "build/site"\nnav = [{ "x" = "README.md" }]\n'
    )
    monkeypatch.setattr(tool, "prepare", prepare)
    with pytest.raises(tool.SiteError, match="page does not exist"):
        tool.build(root, root)


def test_a_document_becomes_a_page(tmp_path: Path, tool: ModuleType) -> None:
    for name in ("one.py", "two.md", "three.png"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder").mkdir()
    text = (
        "# A `b` c\n\n## Same\n\n## Same\n\nwords q_t\n- [one](one.py), [two](two.md#x), `[no](one.py)`, q_{t-1}\n"
        "- ![three](three.png) [folder](folder/) $`\\theta`$\n\n```py\n[no](one.py) # q_t\n```\n\n"
        "    q(θ) = D_t\n\n```math\nx^2\n```\n"
    )
    made = tool.page(text, tmp_path / "page.md", tmp_path)
    assert "# A `b` c {#a-b-c}\n" in made
    assert "## Same {#same}\n\n## Same {#same-1}\n" in made
    assert "words q<sub>t</sub>\n\n- [one](one.py.md), [two](two.md#x), `[no](one.py)`, q<sub>t-1</sub>\n" in made
    assert "- ![three](three.png) [folder](folder/README.md) <math" in made
    assert "```py\n[no](one.py) # q_t\n```\n" in made
    assert '<pre class="plain">q(θ) = D<sub>t</sub></pre>' in made
    assert '<div class="equation"><math' in made
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in made


def test_a_linked_file_becomes_a_page_that_searches_pass_by(tool: ModuleType) -> None:
    made = tool.source("a/b.py", 'x = """\n```\n"""\n')
    assert made.startswith("---\nsearch:\n  exclude: true\n---\n\n# a/b.py\n\n````python\n")
    assert made.endswith("````\n")


def test_equations_keep_what_is_no_equation() -> None:
    equations = import_module("equations")
    assert equations.plain("q_{t-1}(theta) < sigma_d^2") == "q<sub>t-1</sub>(θ) &lt; σ<sub>d</sub><sup>2</sup>"
    assert equations.plain("p*_t(theta), a*b_t") == "p*<sub>t</sub>(θ), a*b<sub>t</sub>"
    assert equations.plain("log_var, theta_hat.mean, first_n") == "log_var, theta_hat.mean, first_n"
    assert equations.indexed("q_t, `q_t`, [q_t](a/q_t.md), log_var") == (
        "q<sub>t</sub>, `q_t`, [q<sub>t</sub>](a/q_t.md), log_var"
    )
    assert equations.inline("`` $`x`$ ``, `x`, $5") == "`` $`x`$ ``, `x`, $5"
    assert equations.inline("a $`x`$ b").startswith("a <math")
    with pytest.raises(equations.EquationError, match=r"\\nonsense in the equation"):
        equations.inline(r"see $`\nonsense x`$")


def test_references_of_docstrings_lead_to_their_pages(tmp_path: Path) -> None:
    source = tmp_path / "src" / "vcl"
    shutil.copytree(ROOT / "src" / "vcl", source, ignore=shutil.ignore_patterns("__pycache__", "lab", "kernels"))
    (source / "errors.py").write_text(
        '"""Errors: see :mod:`vcl.beliefs`."""\n\n\nclass VclError(Exception):\n'
        '    """One, as :func:`vcl.beliefs.kl` and :meth:`told`; ``code`` stays.\n\n'
        '        q_t = proj(theta)\n\n    More.\n    """\n\n'
        '    def told(self, *names: str, size: int = 3) -> str:\n        """Say *so*."""\n'
    )
    made = import_module("api_pages").pages(tmp_path)["api/errors.md"]
    assert "Errors: see [`vcl.beliefs`](beliefs.md)." in made
    assert "as [`vcl.beliefs.kl`](beliefs.md#kl) and [`told`](#VclError.told); `code` stays." in made
    assert '<pre class="plain">q<sub>t</sub> = proj(θ)</pre>' in made
    assert "told(*names: str, size: int = 3) -> str" in made
    assert "Say \\*so\\*." in made
