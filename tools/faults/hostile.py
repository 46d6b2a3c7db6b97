"""Every reader of vcl, with valid files for it: what ``readers`` hands hostile files to.

A reader takes the path of one file, which is edited, and does what a user does with it: also the first use of what was
read, as a prediction with a learner. It is made in a folder of its own, in which it writes its valid files. Not here
are files of the package itself, such as ``numbers.toml``, and what a process says to its own workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from hostile_inputs import of_datasets, of_learners, of_tables
from hostile_results import of_paper, of_results, of_words, of_work
from reader import Reader


def readers(here: Path, run: Path) -> dict[str, Reader]:
    """All readers, by what they read; their valid files are written below ``here``."""
    found: dict[str, Reader] = {}
    made: Mapping[str, Callable[[Path], dict[str, Reader]]] = {
        "datasets": of_datasets,
        "tables": of_tables,
        "learners": of_learners,
        "results": lambda place: of_results(place, run),
        "work": lambda place: of_work(place, run),
        "words": lambda place: of_words(place, run),
        "paper": lambda place: of_paper(place, run),
    }
    for name, make in made.items():
        (here / name).mkdir(parents=True)
        found |= make(here / name)
    return found
