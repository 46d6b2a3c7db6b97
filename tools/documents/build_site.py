"""The documentation site: pages from the Markdown of this repository and from docstrings, built strictly by Zensical.

python tools/documents/build_site.py            # build/site/index.html

build/pages mirrors the repository, so that links between documents hold as they are. Equations become MathML, headings
get the anchors that GitHub gives them, and a linked source file becomes a page with its text. A dead link, a page
without a place in zensical.toml and a page that loads something from a network end the build with a sentence.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import api_pages
import equations
from document_checks import ROOT, broken, documents
from markdown_links import FENCE, HEADING, LINK, links, prose, slug

THEME = Path(__file__).parent / "theme"
COPIED = {".png", ".svg", ".gif", ".webp", ".csv", ".json", ".html"}
"""Files that are shown or downloaded as they are; any other linked file becomes a page of its text."""
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh"}
ITEM = re.compile(r"\s*([-*]|\d+\.) ")
UNLISTED = "---\nsearch:\n  exclude: true\n---\n\n"
TABLES = re.compile(r"results/.+/")
"""Generated tables, which would stand above the pages that explain them in a search."""
SHIM = "https://unpkg.com/iframe-worker/shim"


class SiteError(Exception):
    """What is wrong with the pages, a line each."""


def prepare(folder: Path, root: Path = ROOT) -> list[str]:
    """Fill an empty folder with every page; the paths of the documents and API pages."""
    written = {path.relative_to(root).as_posix(): path for path in documents(root)}
    if said := [line for path in written.values() for line in broken(path, root)]:
        raise SiteError("\n".join(said))
    made = api_pages.pages(root)
    linked: set[Path] = set()
    for name, path in written.items():
        text = path.read_text(encoding="utf-8")
        linked |= {_file(path, link.target) for link in links(text) if _local(link.target)}
        try:
            _write(folder / name, (UNLISTED if TABLES.match(name) else "") + page(text, path, root))
        except equations.EquationError as error:
            raise SiteError(f"{name}: {error}") from error
    for name, text in made.items():
        linked |= {root.resolve() / found for found in re.findall(r"\]\(\.\./(src/[^)]+)\)", text)}
        _write(folder / name, re.sub(r"(\]\(\.\./src/[^)]+)\)", r"\1.md)", text))
    home = root.resolve()
    for folder_ in {path.parent for path in linked if path.name == "README.md" and not path.exists()}:
        name = folder_.relative_to(home).as_posix()
        files = sorted(path for path in folder_.iterdir() if path.suffix in {".md", *COPIED})
        linked |= set(files)
        _write(folder / name / "README.md", listing(name, files))
    for path in linked:
        name = path.relative_to(home).as_posix()
        if path.suffix in COPIED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / name)
        elif path.suffix != ".md":
            _write(folder / f"{name}.md", source(name, path.read_text(encoding="utf-8")))
    shutil.copytree(THEME, folder / "theme")
    return [*written, *made]


def page(text: str, path: Path, root: Path = ROOT) -> str:
    """A document as the site's Markdown."""
    out: list[str] = []
    mark, equation, seen = "", None, {}
    for line in text.splitlines():
        found = FENCE.match(line)
        if found and not mark:
            mark, equation = found[1], [] if found[2] == "math" else None
            if equation is None:
                out.append(line)
        elif mark and line.strip() == mark:
            out.append(line if equation is None else equations.block("\n".join(equation)))
            mark, equation = "", None
        elif equation is not None:
            equation.append(line)
        elif mark:
            out.append(line)
        elif heading := HEADING.match(line):
            name = slug(heading[2])
            seen[name] = seen.get(name, -1) + 1
            out.append(f"{_relinked(line, path, root)} {{#{name}{f'-{seen[name]}' if seen[name] else ''}}}")
        else:
            if ITEM.match(line) and out and out[-1].strip() and not ITEM.match(out[-1]) and out[-1][0] != " ":
                out.append("")  # GitHub begins a list right below a paragraph
            line = equations.inline(_relinked(line, path, root))
            out.append(line if line.startswith("    ") else equations.indexed(line))
    return _plain_equations("\n".join(out)) + "\n"


def _plain_equations(text: str) -> str:
    """Indented blocks with a Greek letter are equations."""
    block = re.compile(r"(?<=\n\n)((?:    [^\n]*[α-ωΑ-Ω][^\n]*\n)+)(?=\n)")
    body = lambda words: "\n".join(line[4:] for line in words.splitlines())  # noqa: E731
    return block.sub(lambda found: f'<pre class="plain">{equations.plain(body(found[1]))}</pre>\n', text)


def source(name: str, text: str) -> str:
    """A page with the text of a file; searches pass it by."""
    fence = "`" * (1 + max([2, *(len(run) for run in re.findall(r"`+", text))]))
    return f"{UNLISTED}# {name}\n\n{fence}{LANGUAGES.get(Path(name).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"


def listing(name: str, files: list[Path]) -> str:
    """A page for a folder without a README.md."""
    return "\n".join([f"{UNLISTED}# {name}", "", *(f"- [{path.name}]({path.name})" for path in files), ""])


def _local(target: str) -> bool:
    return not urlsplit(target).scheme and bool(target.partition("#")[0])


def _file(path: Path, target: str) -> Path:
    """The file that a link leads to; of a folder, its README.md."""
    found = (path.parent / unquote(target.partition("#")[0])).resolve()
    return found / "README.md" if found.is_dir() else found


def _relinked(line: str, path: Path, root: Path) -> str:
    """A line whose links lead to pages of the site."""
    blank = prose(line)

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if blank[found.start()] not in "![" or not _local(target):
            return found[0]
        name, _, anchor = target.partition("#")
        file = _file(path, target)
        if (path.parent / name).is_dir():
            name = f"{name.rstrip('/')}/README.md"
        elif file.suffix not in {".md", *COPIED}:
            name += ".md"
        words = LINK.sub(link, found["text"])
        return f"{found['image']}[{words}]({name}{'#' if anchor else ''}{anchor})"

    return LINK.sub(link, line)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def places(nav: object) -> set[str]:
    """The pages that a navigation names."""
    if isinstance(nav, str):
        return {nav}
    items = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(places, items))  # type: ignore[call-overload]


def missing(names: list[str], nav: object) -> list[str]:
    """A sentence for each page of docs/ and the API without a place, and for each place without a page."""
    named = places(nav)
    wanted = {name for name in names if re.fullmatch(r"(docs|api)/[^/]+\.md", name)} | {"README.md"}
    said = [f"zensical.toml: {name} has no place in nav" for name in sorted(wanted - named)]
    return said + [f"zensical.toml: nav names {name}, which is no page" for name in sorted(named - set(names))]


class _Page(HTMLParser):
    """The anchors, links and loads of a built page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag names."""
        found = {key: value or "" for key, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if "src" in found or (tag == "link" and found.get("rel") in ("stylesheet", "icon", "preconnect", "preload")):
            self.loads.append(found.get("src") or found["href"])


def faults(site: Path) -> list[str]:
    """A sentence for each link of the built site that leads nowhere, and each load from a network."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    said = []
    for path, found in pages.items():
        where = path.relative_to(site)
        for target in (*found.links, *found.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in found.loads and parts.scheme != "data":
                    said.append(f"{where}: loads {target} from a network")
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path not in ("", ".") else path
            file = file / "index.html" if file.is_dir() else file
            if path.name == "404.html":
                continue  # its links are relative to the address that was asked for
            if not file.exists():
                said.append(f"{where}: {target} leads nowhere")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                said.append(f"{where}: {target}: there is no such anchor")
    return said


def build(folder: Path, root: Path = ROOT) -> Path:
    """Build the site in ``folder``/build/site; SiteError if anything is wrong."""
    config = folder / "zensical.toml"
    if folder.resolve() != root.resolve():
        shutil.copyfile(root / "zensical.toml", config)
    pages, site = folder / "build" / "pages", folder / "build" / "site"
    for old in (pages, site):
        shutil.rmtree(old, ignore_errors=True)
    names = prepare(pages, root)
    nav = tomllib.loads(config.read_text(encoding="utf-8"))["project"]["nav"]
    if said := missing(names, nav):
        raise SiteError("\n".join(said))
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(config)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        said = re.sub(r"\x1b\[[\d;]*m", "", ended.stdout + ended.stderr)
        raise SiteError(said.partition("Traceback")[0].rstrip())
    for path in site.rglob("*.html"):
        up = "../" * (len(path.relative_to(site).parts) - 1)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(SHIM, f"{up}theme/iframe-worker.js"), encoding="utf-8")
    if said := faults(site):
        raise SiteError("\n".join(said))
    return site


def main() -> None:
    """Build, and say where, or what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    try:
        print(build(ROOT) / "index.html")
    except SiteError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
