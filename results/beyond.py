"""Draw the item `beyond` of `vcl paper` from the rows that are published here: results/beyond/.

    python results/beyond.py

The lines are those of the item at the preset `paper`, with the same table and figures. Their rows are in the folders of
``SOURCES``; a line without rows is left out and named. Mean-field rows are those of figures 2 and 4, which have
accuracy alone.
"""

from __future__ import annotations

import shutil
import sys
from functools import cache
from pathlib import Path

from vcl.lab.loading import load_named
from vcl.lab.paper import beyond
from vcl.lab.paper.item import Context, Shown
from vcl.lab.part import Loaded
from vcl.lab.registry import experiment
from vcl.lab.results import Row, read_csv

HERE = Path(__file__).parent
FOLDER = HERE / "beyond"

PERMUTED, SPLIT = "Permuted MNIST", "Split MNIST"
SOURCES = {
    f"{PERMUTED}: vcl": ("paper/fig2", "vcl"),
    f"{PERMUTED}: vcl-restart": ("forgetting/permuted-mnist", "vcl-restart"),
    f"{PERMUTED}: lp-kron": ("kronecker/permuted-10-lp-kron", "lp-kron"),
    f"{PERMUTED}: vcl-kron": ("kronecker/permuted-10-vcl-kron", "vcl-kron"),
    f"{PERMUTED}: vcl-kron-random": ("kronecker/permuted-10-vcl-kron-random", "vcl-kron-random"),
    f"{PERMUTED}: ewc-kron": ("kronecker/permuted-10-ewc-kron", "ewc-kron"),
    f"{PERMUTED}, 50 tasks: vcl": ("kronecker/permuted-50", "vcl"),
    f"{PERMUTED}, 50 tasks: vcl-restart": ("kronecker/permuted-50", "vcl-restart"),
    f"{PERMUTED}, 50 tasks: lp-kron": ("kronecker/permuted-50", "lp-kron"),
    f"{PERMUTED}, 50 tasks: vcl-kron": ("kronecker/permuted-50", "vcl-kron"),
    f"{SPLIT}: vcl": ("paper/fig4", "vcl"),
    f"{SPLIT}: lp-kron": ("kronecker/split-mnist", "lp-kron"),
    f"{SPLIT}: ewc-kron": ("kronecker/split-mnist", "ewc-kron"),
    f"{SPLIT}: vcl-kron": ("kronecker/split-mnist", "vcl-kron"),
    f"{SPLIT}: lp-kron-random": ("kronecker/split-mnist-coreset", "lp-kron-random"),
    f"{SPLIT}: vcl-kron-random": ("kronecker/split-mnist", "vcl-kron-random"),
    f"{SPLIT}, two shared outputs: vcl": ("kronecker/split-mnist-shared", "vcl"),
    f"{SPLIT}, two shared outputs: lp-kron": ("kronecker/split-mnist-shared", "lp-kron"),
    f"{SPLIT}, two shared outputs: ewc-kron": ("kronecker/split-mnist-shared", "ewc-kron"),
    f"{SPLIT}, two shared outputs: vcl-kron": ("kronecker/split-mnist-shared", "vcl-kron"),
    f"{SPLIT}, one head: vcl": ("kronecker/split-mnist-single", "vcl"),
    f"{SPLIT}, one head: lp-kron": ("kronecker/split-mnist-single", "lp-kron"),
    f"{SPLIT}, one head: vcl-kron": ("kronecker/split-mnist-single", "vcl-kron"),
    f"{SPLIT}, convolutions: vcl": ("kronecker/split-mnist-conv", "vcl"),
    f"{SPLIT}, convolutions: ewc": ("kronecker/split-mnist-conv", "ewc"),
    f"{SPLIT}, convolutions: lp-kron": ("kronecker/split-mnist-conv", "lp-kron"),
    f"{SPLIT}, convolutions: vcl-kron": ("kronecker/split-mnist-conv", "vcl-kron"),
    "Split notMNIST (small): vcl": ("paper/fig5", "vcl"),
    "Split notMNIST (small): lp-kron": ("kronecker/split-notmnist", "lp-kron"),
    "Split notMNIST (small): ewc-kron": ("kronecker/split-notmnist", "ewc-kron"),
    "Split notMNIST (small): vcl-kron": ("kronecker/split-notmnist", "vcl-kron"),
    "MNIST, a class a task: generators: vcl": ("kronecker/class-incremental-mnist", "vcl"),
    "MNIST, a class a task: generators: naive": ("kronecker/class-incremental-mnist", "naive"),
    "MNIST, a class a task: generators: ewc": ("kronecker/class-incremental-mnist", "ewc"),
    "MNIST, a class a task: generators: lp": ("kronecker/class-incremental-mnist", "lp"),
    "MNIST, a class a task: generators: independent VAEs": ("kronecker/class-incremental-mnist", "independent-VAEs"),
    "MNIST, a class a task: generators: vcl, shared encoder": (
        "kronecker/class-incremental-mnist",
        "vcl-shared-encoder",
    ),
    "MNIST, a class a task: one head: vcl": ("kronecker/single-head-mnist", "vcl"),
    "MNIST, a class a task: one head: random-only": ("kronecker/single-head-mnist", "random-only"),
    "MNIST, a class a task: one head: vcl-random": ("kronecker/single-head-mnist", "vcl-random"),
    "MNIST, a class a task: one head: lp-kron": ("kronecker/single-head-mnist", "lp-kron"),
    "notMNIST (small), a class a task: generators: vcl": ("kronecker/class-incremental-notmnist", "vcl"),
}
"""By label of the item: the folder of its rows, and the method there (a lambda may follow its name)."""


def published(label: str, folder: str, method: str) -> list[Row]:
    """The rows of a line, under its label."""
    rows = read_csv(HERE / folder / "rows.csv")
    found = [row._replace(method=label) for row in rows if row.method.partition(" ")[0] == method]
    if not found:
        raise SystemExit(f"{folder}/rows.csv has no rows of {method}")
    return found


@cache
def data_of(name: str) -> Loaded:
    """The data of an experiment: the parameters of a line depend on its shapes."""
    return load_named(experiment(name).dataset, None, lambda text: None)


def main() -> None:
    """Write results/beyond/."""
    requests = {request.label or request.method: request for request in beyond.requests(Context("paper", data_of))}
    unknown = SOURCES.keys() - requests.keys()
    if unknown:
        raise SystemExit(f"the item has no line {sorted(unknown)[0]!r}")
    rows = [row for label in requests if label in SOURCES for row in published(label, *SOURCES[label])]
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    facts = {label: request.facts for label, request in requests.items()}
    beyond.draw(rows, Shown("Posteriors that hold", {}, FOLDER / "beyond", (), facts=facts))
    missing = [label for label in requests if label not in SOURCES]
    without = f" Without rows: {'; '.join(missing)}" if missing else ""
    sys.stdout.write(f"{len(SOURCES)} of {len(requests)} lines are in {FOLDER}.{without}\n")


if __name__ == "__main__":
    main()
