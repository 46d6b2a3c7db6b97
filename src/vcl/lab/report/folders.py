"""The page of one or more folders of results: a function of what is stored there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from vcl import __version__
from vcl.errors import VclError
from vcl.lab.folder import write_atomic
from vcl.lab.paper.published import items_in
from vcl.lab.parts import compared
from vcl.lab.provenance import now
from vcl.lab.report import paper
from vcl.lab.report.groups import Source, comparison
from vcl.lab.report.objectives import Budget
from vcl.lab.show import Group, groups_in
from vcl.lab.store import PARTS
from vcl.pages import Comparison, Page, Section, html, is_page

NAME = "report.html"


def report(folders: Sequence[Path], out: Path | None, console: Console) -> Path:
    """Write the page of folders to ``out``, by default into the first folder; returns its path."""
    target = out or folders[0] / NAME
    check(target, out is not None)
    write_atomic(target, html(page_of(folders, console)))
    return target


def check(target: Path, given: bool) -> None:
    """Raise one clear sentence unless a page can be written there; an older page is replaced, another file is not."""
    if given and target.is_dir():
        raise VclError(f"--out is {target}, which is a folder; give a file, such as {target / NAME}.")
    if target.suffix.lower() not in (".html", ".htm"):
        raise VclError(f"--out is {target}; give a name that ends in .html.")
    if given and not target.parent.is_dir():
        raise VclError(f"--out is {target}, but {target.parent} is not a folder; give a file in a folder that exists.")
    if target.exists():
        with target.open(encoding="utf-8", errors="replace") as file:
            if not is_page(file.read(4096)):
                raise VclError(f"{target} exists and is no page of vcl; give another name with --out.")


def page_of(folders: Sequence[Path], console: Console, live: bool = False) -> Page:
    """The page of folders, each compared with the others where they have the same experiment and stream.

    A ``live`` one has the finished tasks of parts that are not finished.
    """
    names = named(folders)
    sections, found, stored = list[Section](), list[Comparison](), list[Source]()
    for folder in folders:
        if not folder.is_dir():
            raise VclError(f"{folder} is no folder; give one that `vcl run`, `vcl sweep` or `vcl paper` made.")
        if any(items_in(folder)):
            sections += paper.sections(folder, names[folder] if len(folders) > 1 else "")
            found += paper.comparisons(folder, names[folder] if len(folders) > 1 else "")
            if not any((folder / PARTS).glob("*/part.json")):
                continue
        stored += [Source(group, names[folder], folder) for group in groups_in(folder, console, live)]
    budget = Budget.of([member.stack for source in stored for member in source.group.members])
    found += [comparison(several, len(folders) > 1, budget) for several in _together(stored)]
    shown = ", ".join(names.values())
    return Page(
        title=f"Results: {shown}" if len(shown) <= 80 else f"Results of {len(folders)} folders",
        lead=_lead(found),
        footer=f"Written by vcl {__version__} at {now()[:16].replace('T', ' ')} UTC, from stored rows alone. "
        "Every number is in this file: click one to see its rows.",
        sections=sections,
        groups=found,
        plain="\n\n".join(_plain(source.group) for source in stored),
    )


def named(folders: Sequence[Path]) -> dict[Path, str]:
    """A short name of each folder; no two share one. VclError if a folder is given twice."""
    found: dict[Path, str] = {}
    for folder in folders:
        whole = folder.resolve()
        if folder in found or any(whole == other.resolve() for other in found):
            raise VclError(f"{folder} is given twice; give each folder once.")
        taken = set(found.values())
        parts = whole.parts[1:] or (str(whole),)
        found[folder] = next(
            (name for n in range(1, len(parts) + 1) if (name := "/".join(parts[-n:])) not in taken), str(whole)
        )
    return found


def _together(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Groups of several folders that stand in one table, together."""
    left = list(sources)
    while left:
        first = left[0]
        mine = [first, *(other for other in left[1:] if _alike(first.group, other.group))]
        left = [source for source in left if not any(source is one for one in mine)]
        yield mine


def _alike(one: Group, other: Group) -> bool:
    if not one.members or not other.members:
        return False
    return compared(one.members[0].stack, other.members[0].stack)


def _lead(found: Sequence[Comparison]) -> str:
    lines = sum(len(each.lines) for each in found)
    runs = sum(len(line.seeds) for each in found for line in each.lines)
    return f"{_count(len(found), 'comparison')}, {_count(lines, 'line')}, {_count(runs, 'run')}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _plain(group: Group) -> str:
    """A group's table as text."""
    table = group.experiment.evaluation.table
    lines = [table.columns(group.rows), *table.cells(group.rows, group.paper)] if group.rows else []
    return "\n".join([group.title, *("  ".join(line) for line in lines)])
