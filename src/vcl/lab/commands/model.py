"""`vcl model`: a classifier or regressor that keeps learning from files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

HELP = """A model of your own tables or arrays that keeps learning, kept in a folder.

\b
Example:
  vcl model new june --kind classifier --hidden 100,100
  vcl model update june june.csv --target label
  vcl model update june july.csv
  vcl model predict june august.csv --out predictions.csv
  vcl model info june

\b
Files: CSV and Parquet tables with named columns, npz files with the arrays x and y.
"""

app = typer.Typer(no_args_is_help=True, help=HELP, rich_markup_mode=None)


OPTIONS = {
    r"revisit=True": "--revisit",
    r"as in update\(x, y, task='([^']*)'\)": r"as in --task \1",
    r"task='([^']*)'": r"--task \1",
    r"without task \(or with heads='shared'\)": "without --task",
}
"""What learners advise in Python, and the same on the command line."""


class Kind(StrEnum):
    """What a model predicts."""

    CLASSIFIER = "classifier"
    REGRESSOR = "regressor"


Folder = Annotated[Path, typer.Argument(help="The model's folder.")]
File = Annotated[Path, typer.Argument(help="A CSV, npz or Parquet file.")]
Delimiter = Annotated[
    str | None, typer.Option(help="What stands between fields of a CSV file; default: found, if only one can be meant.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to make; new or empty.")],
    kind: Annotated[Kind, typer.Option(help="What it predicts: classes, or numbers.")] = Kind.CLASSIFIER,
    hidden: Annotated[str | None, typer.Option(help="Widths of the network's hidden layers; default: 100,100.")] = None,
    method: Annotated[
        str | None, typer.Option(help="structured (default), mean-field, laplace; of classifiers also generative.")
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(help="auto (default: a head for each named task), shared or per-task."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Fixed classes, as in yes,no; default: new classes are added as they come.")
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="Of a regressor: learned (default), heteroscedastic, or a standard deviation.")
    ] = None,
    likelihood: Annotated[str | None, typer.Option(help="Of a regressor: normal (default), or poisson.")] = None,
    memory: Annotated[int | None, typer.Option(help="Examples to keep of each update; default: 0.")] = None,
    prior_var: Annotated[float | None, typer.Option(help="The prior variance of a weight; default: 1.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; default: from its size.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples of a step; default: from the data's size.")] = None,
    lr: Annotated[float | None, typer.Option(help="The learning rate; default: the method's.")] = None,
    draws: Annotated[int | None, typer.Option(help="Draws of the weights in a step; default: the method's.")] = None,
    standardize: Annotated[
        bool | None, typer.Option(help="Scale inputs by the first update; default: unless they are grey values.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of everything; default: 0.")] = None,
) -> None:
    """Make a model that has learned nothing yet.

    \b
    Example:
      vcl model new june --kind regressor --hidden 50,50 --noise heteroscedastic
    """
    from vcl.lab.model import kept
    from vcl.lab.model.recipe import Recipe

    given: dict[str, Any] = {
        "method": method, "heads": heads, "memory": memory, "prior_var": prior_var, "epochs": epochs, "batch": batch,
        "lr": lr, "draws": draws, "standardize": standardize, "seed": seed,
    }  # fmt: skip
    mine = {"classes": _classes(classes)}, {"noise": _noise(noise), "likelihood": likelihood}
    own, others = mine if kind is Kind.CLASSIFIER else mine[::-1]
    _refuse_others(kind, others)
    options = {name: value for name, value in (given | own).items() if value is not None}
    widths = _widths("100,100" if hidden is None and method != "generative" else hidden)
    recipe = Recipe(kind.value, widths, options)
    kept.make(folder, recipe)
    typer.echo(f"{folder} is a {kind.value}; give it data with `vcl model update {folder} FILE`.")


@app.command()
def update(
    folder: Folder,
    file: File,
    target: Annotated[
        str | None, typer.Option(help="The column to predict; needed in the first update from a table.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out, such as an id. Repeatable.")] = None,
    task: Annotated[
        str | None,
        typer.Option(help="A name for data with a question of its own, which gets a head; default: one head for all."),
    ] = None,
    forget: Annotated[
        float, typer.Option(help="The share of old knowledge that fades first, from 0 to below 1.")
    ] = 0.0,
    revisit: Annotated[bool, typer.Option("--revisit", help="Learn a task or a file that was learned before.")] = False,
    delimiter: Delimiter = None,
    device: Device = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no summary of the update.")] = False,
) -> None:
    """Learn from a file, on top of all that was learned before.

    An update that fails or is interrupted leaves the model as it was. Two updates at once are refused. Rows without a
    target are left out, with a count.

    \b
    Example:
      vcl model update june june.csv --target label --drop id
      vcl model update june july.csv --forget 0.01
    """
    from vcl.lab.model.update import update as learn

    with _spoken():
        learn(
            folder, file, target=target, drop=tuple(drop or ()), task=task, forget=forget, revisit=revisit,
            delimiter=delimiter, device=device, quiet=quiet, say=_say,
        )  # fmt: skip


@app.command()
def predict(
    folder: Folder,
    file: File,
    out: Annotated[Path, typer.Option(help="The new CSV, npz or Parquet file to write.")] = Path("predictions.csv"),
    task: Annotated[
        str | None, typer.Option(help="The task whose head predicts; default: the surest one for each row.")
    ] = None,
    level: Annotated[float, typer.Option(help="Of a regressor: the probability of its intervals.")] = 0.9,
    draws: Annotated[int | None, typer.Option(help="Draws of the weights; default: 50, of a regressor 100.")] = None,
    delimiter: Delimiter = None,
    device: Device = "auto",
) -> None:
    """Write predictions and how unsure they are, a line for each row of a file in its order.

    A classifier gives label, p_CLASS, and the entropies uncertainty = aleatoric + epistemic (in nats). A regressor
    gives mean, sd, lower, upper, and the variances aleatoric and epistemic. The file may have the target; then a line
    says how good the predictions are.

    \b
    Example:
      vcl model predict june august.csv --out predictions.csv
    """
    from vcl.lab.folder import check_new, write_new
    from vcl.lab.model import files, kept, predictions, recipe, targets

    predictions.check_ending(out)
    check_new(out, "predictions.csv")
    described = recipe.read(folder)
    contents = files.read(file, delimiter)
    with _spoken():
        learner = kept.load(folder, described, device)
        asked, x = predictions.Asked(task, level, draws), targets.inputs_of(contents, described)
        table = kept.table_of(folder, described)
        if table is not None and isinstance(x, dict):
            table.numbers(x, warnings.warn)  # Of the whole file, with its counts and rows.
            warnings.simplefilter("ignore", UserWarning)
        found = predictions.predicted(learner, x, asked)
        write_new(out, predictions.as_bytes(found, out.suffix.lower()))
    typer.echo(f"{len(next(iter(found.values()))):,} predictions in {out}.")
    told = predictions.scored(learner, found, contents, described, str(file), task)
    if told:
        typer.echo(told)


@app.command()
def info(
    folder: Folder,
    json: Annotated[bool, typer.Option("--json", help="All of it, as JSON.")] = False,
) -> None:
    """Show what a model is, its tasks, classes and columns, and what each update did."""
    from vcl.lab.model import described, recipe

    found = recipe.read(folder)
    typer.echo(described.as_json(folder, found) if json else described.as_text(folder, found))


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(help="The new file: .pt2 or .safetensors.")],
    task: Annotated[str | None, typer.Option(help="The task whose head is exported, if there are several.")] = None,
) -> None:
    """Write the network at the posterior's mean for other programs.

    A .pt2 file is a program of torch.export, for any number of rows; a .safetensors file has the weights by name.
    Neither has a pickle in it. Both say in JSON what inputs and outputs are.
    """
    from vcl.lab.folder import check_new, write_new
    from vcl.lab.model import exported, kept, recipe

    exported.check_ending(out)
    check_new(out, "module.pt2")
    described = recipe.read(folder)
    learner = kept.load(folder, described, verbose=0)
    write_new(out, exported.exported(folder, described, learner, task, out.suffix))
    typer.echo(f"The network at the posterior's mean is in {out}.")


def _widths(text: str | None) -> tuple[int, ...]:
    from vcl.errors import VclError

    try:
        return () if text is None else tuple(int(each) for each in text.split(","))
    except ValueError:
        raise VclError(f"--hidden is {text!r}; give widths with commas between them, such as 100,100.") from None


def _classes(text: str | None) -> list[str | int] | None:
    """Labels as files are read: whole numbers if all are."""
    if text is None:
        return None
    from vcl.lab.model.targets import WHOLE

    parts = [each.strip() for each in text.split(",")]
    return [int(each) for each in parts] if all(WHOLE.fullmatch(each) for each in parts) else list(parts)


def _noise(text: str | None) -> str | float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _refuse_others(kind: Kind, others: dict[str, Any]) -> None:
    from vcl.errors import VclError

    given = [name for name, value in others.items() if value is not None]
    if given:
        raise VclError(f"--{given[0]} is not for a {kind.value}; leave it out, or give another --kind.")


def _say(line: str) -> None:
    typer.echo(f"vcl: {line}", err=True)


@contextmanager
def _spoken() -> Iterator[None]:
    """Warnings as lines on standard error, without the place in the source."""
    from vcl.errors import VclError

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category is UserWarning:
                _say(f"warning: {message}")
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        try:
            yield
        except VclError as error:
            text = str(error)
            for python, shell in OPTIONS.items():
                text = re.sub(python, shell, text)
            raise VclError(text) from error
