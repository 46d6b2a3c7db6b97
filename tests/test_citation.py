"""CITATION.cff: it parses, is of the version that the package has, and prefers the paper."""

from __future__ import annotations

from pathlib import Path

import yaml

import vcl

ROOT = Path(__file__).parents[1]


def test_the_citation_is_of_this_version_and_prefers_the_paper() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(said)  # what the format requires
    assert said["version"] == vcl.__version__
    paper = said["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper)
    assert "CITATION.cff" in (ROOT / "README.md").read_text(encoding="utf-8")
    for author in paper["authors"]:
        assert author["family-names"] in (ROOT / "README.md").read_text(encoding="utf-8")
