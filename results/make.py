"""Make the tables and figures of this folder from the rows beside them.

    python results/make.py

Each sub-folder with a ``rows.csv`` is one `vcl run`; its ``run.json`` holds the command, the settings, the seeds, the
versions, the machine and the time. To make the rows again, run that command.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcl.lab import tables
from vcl.lab.figures import average_accuracy, lambda_grid
from vcl.lab.registry import experiment
from vcl.lab.results import Row, final, label, methods, read_csv, split_label

HERE = Path(__file__).parent
TITLES = {"split-mnist": "Split MNIST, the paper's protocol", "permuted-mnist": "Permuted MNIST, the paper's protocol"}
TUNED = ("ewc", "lp", "si")
ASIDE = {
    "long": "With batches of 256 instead of the whole task, so 120 epochs are 5,600 steps a task and not 120",
    "single-head": "With one head over all ten classes",
    "fisher-all": "EWC at lambda 100 with the Fisher information from all 60,000 examples instead of 600",
    "fisher-true": "EWC at lambda 100 with labels drawn from the model (600 examples)",
}
"""Runs that are no part of the main table, and what they are."""

Runs = dict[Path, dict[str, Any]]


def runs(folder: Path) -> Runs:
    """The descriptions of the runs in a folder, those with drawn weights first and grids last."""

    def place(path: Path) -> tuple[bool, bool, str]:
        return path.parent.name.startswith("grid"), path.parent.name.startswith("local"), path.parent.name

    return {path.parent: json.loads(path.read_text()) for path in sorted(folder.glob("*/run.json"), key=place)}


def is_main(folder: Path, run: dict[str, Any]) -> bool:
    """Whether a run belongs to the main table, with or without a grid."""
    return folder.name not in ASIDE and "chosen" not in run


def main_rows(made: Runs) -> list[Row]:
    """All runs without a grid, the estimator written behind the method where it is not the default."""
    rows = []
    for folder, run in made.items():
        if not run.get("grid") and is_main(folder, run):
            local = run["settings"]["estimator"] == "local"
            found = read_csv(folder / "rows.csv")
            rows += [row._replace(method=f"{row.method} (local)") if local else row for row in found]
    return rows


def grid_rows(made: Runs) -> list[Row]:
    """All lambdas that were tried, each once."""
    rows: dict[str, list[Row]] = {}
    for folder, run in made.items():
        if run.get("grid") and is_main(folder, run):
            found = read_csv(folder / "rows.csv")
            for name in methods(found):
                rows.setdefault(name, [row for row in found if row.method == name])
    ordered = sorted(rows, key=lambda name: (split_label(name)[0], split_label(name)[1] or 0.0))
    return [row for name in ordered for row in rows[name]]


def best(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The one of best average accuracy at the end: on the test set, as the paper chose."""
    return max(names, key=lambda name: final(rows, name)["average accuracy"].mean)


def accuracy(rows: Sequence[Row], name: str) -> str:
    """Mean and standard error after the last task, in %."""
    mean, error, _ = final(rows, name)["average accuracy"]
    return f"{100 * mean:.1f} ± {100 * error:.1f}"


def tuning(rows: Sequence[Row], name: str) -> str:
    """Per baseline: the paper's number, ours at its lambda, and ours at the best lambda of its grid and of all."""
    chosen = experiment(name)
    own = chosen.presets["paper"].own
    text = "| method | paper (its lambda) | ours at that lambda | best of the paper's grid | best of all |\n"
    text += "| --- | ---: | ---: | ---: | ---: |\n"
    for method in TUNED:
        tried = [each for each in methods(rows) if split_label(each)[0] == method]
        grid = [label(method, lam) for lam in chosen.grids[method]]
        cells = [
            f"{chosen.paper[method]:g} ({own[method]['lam']:g})",
            accuracy(rows, label(method, own[method]["lam"])),
        ]
        for names in (grid, tried):
            top = best(rows, [each for each in names if each in tried])
            cells.append(f"{accuracy(rows, top)} ({split_label(top)[1]:g})")
        text += f"| {method} | {' | '.join(cells)} |\n"
    return text


def chosen_fairly(made: Runs) -> str:
    """What `vcl sweep` chose on held-out training data, and what that gave on the test set."""
    text = ""
    for folder, run in made.items():
        rows = read_csv(folder / "rows.csv")
        for method, choice in run.get("chosen", {}).items():
            lam, held = choice["lambda"], 100 * choice["accuracy"]["mean"]
            text += f"| {method} | {lam:g} | {held:.1f} | {accuracy(rows, label(method, lam))} |\n"
    head = "| method | lambda chosen on held-out training data | accuracy there | on the test set, trained on all |\n"
    return f"{head}| --- | ---: | ---: | ---: |\n{text}\n" if text else ""


def commands(made: Runs) -> str:
    """How the rows were made."""
    return "\n".join(
        f"- `{folder.name}/`: `{run['command']}`, seeds {run['seeds'][0]} to {run['seeds'][-1]}, vcl "
        f"{run['versions']['vcl']}, torch {run['versions']['torch']}, {run['device']}, {run['total_seconds']:.0f} s"
        for folder, run in made.items()
    )


def main() -> None:
    """Write the tables and the figures of each experiment."""
    for name, title in TITLES.items():
        folder, chosen = HERE / name, experiment(name)
        made = runs(folder)
        grids, rows = grid_rows(made), main_rows(made)
        tops = [best(grids, [label(method, lam) for lam in chosen.grids[method]]) for method in TUNED]
        rows += [row for row in grids if row.method in tops]
        paper = dict(chosen.paper)
        paper |= {f"{method} (local)": value for method, value in paper.items()}
        paper |= {top: chosen.paper[split_label(top)[0]] for top in tops}
        text = f"# {title}\n\n{tables.markdown(tables.cells(rows, paper))}\n{tables.explain(rows, paper)}\n\n"
        text += "`(local)` is local reparameterisation; the other rows of VCL draw weights, as the authors' code does. "
        text += "EWC, LP and SI have the lambda of the paper's grid that is best **on the test set**, the paper's "
        text += "practice: see [tuning.md](tuning.md) for all of them.\n\n"
        text += (
            f"## Made by\n\n{commands(made)}\n\nSeveral of these shared one card, so their times are upper bounds.\n"
        )
        (folder / "table.md").write_text(text)
        average_accuracy.draw(rows, title, paper, folder / "average-accuracy")
        text = f"# {title}: lambda of the baselines\n\n{tuning(grids, name)}\n"
        text += "Every lambda was judged **on the test set**, as in the paper, so the best are too good.\n\n"
        fair = chosen_fairly(made)
        text += f"## Chosen without the test set (`vcl sweep`)\n\n{fair}" if fair else ""
        text += f"## All lambdas\n\n{tables.markdown(tables.cells(grids, {}))}\n"
        for part, what in ASIDE.items():
            if folder / part in made:
                aside = read_csv(folder / part / "rows.csv")
                text += f"## {what}\n\n{tables.markdown(tables.cells(aside, {}))}\n"
        (folder / "tuning.md").write_text(text)
        tuned = [row for row in grids if split_label(row.method)[0] in TUNED]
        lambda_grid.draw(tuned, f"{title}: tuning", chosen.paper, folder / "lambda")


if __name__ == "__main__":
    main()
