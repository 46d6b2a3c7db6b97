"""Every link of the documents leads to a file, a folder or a heading that is there."""

from __future__ import annotations

import sys
from pathlib import Path

from markdown_links import anchors, links

ROOT = Path(__file__).parents[2]


def documents(root: Path = ROOT) -> list[Path]:
    """The Markdown that people read: the root's, and that of docs, results, benchmarks and examples."""
    below = [path for name in ("docs", "results", "benchmarks", "examples") for path in (root / name).rglob("*.md")]
    return sorted([*root.glob("*.md"), *below])


def broken(path: Path, root: Path = ROOT) -> list[str]:
    """One sentence for each link of a document that leads nowhere."""
    said = []
    text = path.read_text(encoding="utf-8")
    for link in links(text):
        if "://" in link.target or link.target.startswith("mailto:"):
            continue
        name, _, anchor = link.target.partition("#")
        target = (path.parent / name).resolve() if name else path
        where = f"{path.relative_to(root)}:{link.line}: {link.target}"
        if not target.exists():
            said.append(f"{where}: there is no such file")
        elif not target.is_relative_to(root.resolve()):
            said.append(f"{where}: outside of the repository")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            said.append(f"{where}: {target.name} has no such heading")
    return said


def main() -> None:
    """Print what is broken."""
    said = [line for path in documents() for line in broken(path)]
    print("\n".join(said) or "every link leads somewhere")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
