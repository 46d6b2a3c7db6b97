"""Make the tables and figures of this folder from the rows beside them.

    python results/make.py

Each sub-folder with a ``rows.csv`` is one `vcl run`; its ``run.json`` holds the command, the settings, the seeds, the
versions, the machine and the time. To make the rows again, run that command.
"""

from __future__ import annotations

import json
from pathlib import Path

from vcl.lab import tables
from vcl.lab.experiments import experiment
from vcl.lab.figures import average_accuracy
from vcl.lab.results import Row, read_csv

HERE = Path(__file__).parent
TITLES = {"split-mnist": "Split MNIST, the paper's protocol", "permuted-mnist": "Permuted MNIST, the paper's protocol"}


def runs(folder: Path) -> list[Path]:
    """The descriptions of the runs in a folder, those with drawn weights first."""
    return sorted(folder.glob("*/run.json"), key=lambda path: (path.parent.name.startswith("local"), path.parent.name))


def rows_of(folder: Path) -> list[Row]:
    """All runs of one experiment, the estimator written behind the method where it is not the default."""
    made = []
    for path in runs(folder):
        local = json.loads(path.read_text())["settings"]["estimator"] == "local"
        rows = read_csv(path.with_name("rows.csv"))
        made += [row._replace(method=f"{row.method} (local)") if local else row for row in rows]
    return made


def commands(folder: Path) -> str:
    """How the rows were made."""
    lines = []
    for path in runs(folder):
        run = json.loads(path.read_text())
        lines.append(
            f"- `{path.parent.name}/`: `{run['command']}`, seeds {run['seeds'][0]} to {run['seeds'][-1]}, vcl "
            f"{run['versions']['vcl']}, torch {run['versions']['torch']}, {run['device']}, {run['total_seconds']:.0f} s"
        )
    return "\n".join(lines)


def main() -> None:
    """Write table.md and the figure of each experiment."""
    for name, title in TITLES.items():
        folder, paper = HERE / name, dict(experiment(name).paper)
        rows = rows_of(folder)
        paper |= {f"{method} (local)": value for method, value in paper.items()}
        text = f"# {title}\n\n{tables.markdown(tables.cells(rows, paper))}\n{tables.explain(rows, paper)}\n\n"
        text += "`(local)` is local reparameterisation; the other rows draw weights, as the authors' code does.\n\n"
        text += (
            f"## Made by\n\n{commands(folder)}\n\nSeveral of these shared one card, so their times are upper bounds.\n"
        )
        (folder / "table.md").write_text(text)
        average_accuracy.draw(rows, title, experiment(name).paper, folder / "average-accuracy")


if __name__ == "__main__":
    main()
