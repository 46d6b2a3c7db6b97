"""Compare another run of `vcl paper` with the published one, seed by seed: does changed code give the same numbers?

    python results/again.py runs/paper-again    # keep its rows in results/paper-again/, and compare
    python results/again.py                     # compare again what is there

Both runs have the same seeds, and so the same tasks and coresets. Kernels may differ, and so rounding and noise.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from vcl.errors import VclError
from vcl.lab.paper.compare import changed_claims, compare, summary
from vcl.lab.paper.published import copy_rows, items_in, rebuild, seconds_of
from vcl.lab.paper.table import read_seen, write

HERE = Path(__file__).parent
BEFORE, AFTER = HERE / "paper", HERE / "paper-again"


def keep(source: Path, before: Path = BEFORE, after: Path = AFTER) -> None:
    """The rows of a run (items that the published run has too) with their tables, and of its parts what made them."""
    known = {item.name for item in items_in(before)}
    if not any(item.name in known for item in items_in(source)):
        raise VclError(f"{source} holds no rows of an item in {before}; give the folder of a finished `vcl paper`.")
    shutil.rmtree(after, ignore_errors=True)
    for item in copy_rows(source, after):
        if item.name not in known:
            shutil.rmtree(after / item.name)
    rebuild(after, seconds_of(source))
    parts = [json.loads(path.read_text()) for path in sorted(source.glob("parts/*/part.json"))]
    (after / "parts.json").write_text(json.dumps([part for part in parts if part["finished"]], indent=1) + "\n")


def report(before: Path = BEFORE, after: Path = AFTER) -> str:
    """Write compared.csv beside the second run's rows; returns what it says."""
    if not any(items_in(after)):
        raise VclError(f"{after} holds no rows; give the folder of a finished `vcl paper` to compare with.")
    lines, missing = compare(before, after)
    (after / "compared.csv").write_text(write(lines))
    claims = changed_claims(*(read_seen(folder / "claims.csv") for folder in (before, after)))
    return f"{summary(lines, missing)}\n{claims}"


def main() -> None:
    """Keep a run's rows if told from where, and compare."""
    try:
        if len(sys.argv) > 1:
            keep(Path(sys.argv[1]))
        sys.stdout.write(f"{report()}\n")
    except VclError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
