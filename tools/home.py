"""Project URLs, and a README whose links hold on a package index: both follow from ``home`` in pyproject.toml.

A package index knows no files of the repository. Where there is a home, relative links and images of the README become
those of the version's tag there; where there is none, their words stay and no address is claimed.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!#|[a-z]+:)(?P<path>[^)]+)\)")


def urls(home: str) -> dict[str, str]:
    """The project's URLs by name."""
    pages = {"Homepage": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md"}
    return {name: home + page for name, page in {**pages, "Issues": "/issues"}.items()} if home else {}


def linked(text: str, home: str, version: str) -> str:
    """Markdown with its relative links and images at the tag of a version, or their words alone."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        words = f"{found['image']}[{found['text']}]"
        return f"{words}({home}/{kind}/v{version}/{found['path']})" if home else found["text"]

    return LINK.sub(link, text)


class Home(MetadataHookInterface):
    """Sets what pyproject.toml declares as dynamic, beside the version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling when a wheel or a source distribution is built."""
        home = str(self.config["home"]).rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = urls(home)
        metadata["readme"] = {"content-type": "text/markdown", "text": linked(text, home, str(metadata["version"]))}
