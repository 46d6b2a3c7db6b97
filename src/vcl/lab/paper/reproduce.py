"""Run items: compute the parts that are missing, draw the figure, and bring the table up to date."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import fill

import torch
from rich.console import Console
from torch import Tensor

from vcl.errors import VclError
from vcl.fitting.loop import Report
from vcl.lab.claim import claimed
from vcl.lab.datasets import MissingData, load
from vcl.lab.experiments import experiment
from vcl.lab.folder import make_folder, write_atomic
from vcl.lab.identity import check_used, described, identity
from vcl.lab.paper import table
from vcl.lab.paper.item import Context, Item, Request, Shown, StreamItem, TableItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.judged import Judged, judge_stream, judge_table
from vcl.lab.paper.numbers import numbers
from vcl.lab.paper.store import PICTURES, FinishedPart, Loaded, Store, description, notes_under, read_rows
from vcl.lab.plan import Plan, make_plan
from vcl.lab.reading import check_pictures, reading
from vcl.lab.results import Row, methods, to_csv
from vcl.lab.runner import set_aside_in
from vcl.lab.settings import Preset
from vcl.lab.side_by_side import side_by_side
from vcl.lab.streams import arrays
from vcl.ops.rng import Rng

QUICK_SEEDS: Mapping[Preset, int | None] = {"paper": None, "quick": 2, "smoke": None}
"""Where all items together would take too long with the preset's own number of seeds."""

TITLE_WIDTH = 56
"""Letters that fit over the narrowest figure."""

LINES, CLAIMS, DOCUMENT = "table.csv", "claims.csv", "table.md"
MEND = "delete it and run all items again"
HEAD = "# The paper's items, ours beside theirs (preset {})"


@dataclass
class Reproduction:
    """One folder of results of one preset: parts, and for each item its rows and its figure."""

    preset: Preset
    seeds: int | None
    device: torch.device
    data: Path | None
    out: Path
    command: str
    console: Console
    changes: tuple[str, ...] = ()
    """Settings of the user's own, for every stream."""
    jobs: int = 1
    """How many parts are computed at once."""
    loaded: dict[str, Loaded] = field(default_factory=dict)

    def run(self, items: Sequence[Item]) -> None:
        """Every item in turn; one whose data cannot be had is left out and named at the end."""
        streams = [item for item in items if isinstance(item, StreamItem)]
        self._check_changes(streams)
        self._known()  # a table of another version is refused before any work
        self._check_preset()
        with claimed(self.out):  # two at once would write over each other's lines of the table
            if self.jobs > 1:
                self._ahead(streams)
            self._each(items)

    def _each(self, items: Sequence[Item]) -> None:
        left_out = {}
        for item in items:
            self.console.print(f"{item.name}: {item.about}", highlight=False, soft_wrap=True, style="bold")
            try:
                self._item(item)
            except MissingData as error:
                left_out[item.name] = str(error)
        self.console.print(f"The table is in {self.out / DOCUMENT}.", highlight=False, soft_wrap=True)
        if left_out:
            why = " ".join(dict.fromkeys(left_out.values()))
            raise VclError(f"{', '.join(left_out)} could not be run: {why}")

    def _check_changes(self, items: Sequence[StreamItem]) -> None:
        """Refuse a changed setting that no method of any item uses; items without data are left for later."""
        if not self.changes:
            return
        plans, given = [], {change.partition("=")[0] for change in self.changes}
        for item in items:
            with suppress(MissingData):
                for request in item.requests(Context(self.preset, self.data_of)):
                    own = given & {change.partition("=")[0] for change in request.changes}
                    if own:
                        raise VclError(
                            f"--set {sorted(own)[0]}=… was given, but {item.name} compares values of that setting; "
                            "leave it out, or leave out the item."
                        )
                    plans.append(self.plan_of(request))
        if not plans:
            raise VclError("--set was given, but none of these items is a stream of tasks; leave it out.")
        check_used([replace(plan, changes=self.changes) for plan in plans])

    def _check_preset(self) -> None:
        """Refuse a folder whose table is of another preset: its lines do not say of which they are."""
        document = self.out / DOCUMENT
        with reading(document, MEND):
            head = document.read_text().partition("\n")[0] if document.exists() else HEAD.format(self.preset)
        if head != HEAD.format(self.preset):
            raise VclError(f"{self.out} holds results of another preset than {self.preset}; give --out another folder.")

    def _ahead(self, items: Sequence[StreamItem]) -> None:
        """Compute what is missing of all ``items``, several parts at once; those without data are left for later."""
        store, pieces = self._store(), dict[str, Callable[[Report], object]]()
        for item in items:
            with suppress(MissingData):
                for request in item.requests(Context(self.preset, self.data_of)):
                    plan, data = self.plan_of(request), self.data_of(request.experiment)
                    called = f"{request.experiment} {request.label or request.method}"
                    if not store.finished(plan, data):
                        about = described(description(plan, data))
                        pieces.setdefault(identity(about), partial(store.stream, plan, data, called))
        side_by_side(list(pieces.values()), self.jobs, self.device)

    def _store(self) -> Store:
        return Store(self.out / "parts", self.device, self.command, self.console)

    def _item(self, item: Item) -> None:
        store = self._store()
        folder = self.out / item.name
        if isinstance(item, TableItem):
            (_, lines, seen), figures = self._table_item(item, store, folder)
        else:
            (_, lines, seen), figures = self._stream_item(item, store, folder)
        self._update(item.name, lines, seen)
        for line in lines:
            paper = f", paper {line.paper}: {line.verdict}" if line.paper else ""
            self._say(f"  {line.what}: {table.plus_minus(line.ours, line.error)} ({line.seeds} seeds){paper}")
        for one in seen:
            self._say(f"  {one.claim}: {one.verdict} ({table.plus_minus(one.difference, one.error)})")
        self._say(f"  figure {figures[0]}")

    def _stream_item(self, item: StreamItem, store: Store, folder: Path) -> tuple[Judged, list[Path]]:
        requests = item.requests(Context(self.preset, self.data_of))
        rows: list[Row] = []
        seconds: dict[str, float] = {}
        pictures: dict[str, list[Tensor]] = {}
        for request in requests:
            plan = self.plan_of(request)
            part = store.stream(plan, self.data_of(request.experiment))
            found = relabelled(read_rows(part.path, plan, set_aside=part.set_aside), request)
            for line in () if part.new else set_aside_in(part.notes):  # new ones were said as they came
                self._say(f"  {line}")
            rows += found
            seconds |= dict.fromkeys(methods(found), part.seconds)
            runs, gone = plan.runs(plan.methods[0]), {each.run for each in part.set_aside}
            drawn = part.pictures(len(runs))
            if drawn:
                labels = [run.label for place, run in enumerate(runs) if place not in gone]
                check_pictures(drawn, len(labels), plan.settings.tasks, part.path.with_name(PICTURES))
                pictures |= by_label(drawn, labels, request)
        rows = item.arrange(rows)
        judged = judge_stream(item, rows, seconds)
        paper = numbers(item.name)
        marks = {name: paper[table.base(name)].value for name in judged.values if table.base(name) in paper}
        shown = Shown(self._title(item), marks, folder / item.name, self._task_names(requests[0]), pictures)
        return judged, self._draw(folder, to_csv(rows), lambda: item.draw(rows, shown))

    def _table_item(self, item: TableItem, store: Store, folder: Path) -> tuple[Judged, list[Path]]:
        settings = dict(item.settings[self.preset])
        if self.seeds is not None:
            settings["seeds"] = self.seeds
        part: FinishedPart = store.table(item.name, settings, item.compute)
        with reading(part.path):
            text = part.path.read_text()
            rows = list(csv.DictReader(text.splitlines()))
            judged = judge_table(item, rows, part.seconds)
            figures = self._draw(folder, text, lambda: item.draw(rows, folder / item.name))
        return judged, figures

    def plan_of(self, request: Request) -> Plan:
        """The plan of one part."""
        seeds = self.seeds or request.seeds or QUICK_SEEDS[self.preset]
        changes = (*request.changes, *self.changes)
        return make_plan(
            request.experiment, request.method, self.preset, seeds, self.device.type, changes, request.grid
        )

    def data_of(self, name: str) -> Loaded:
        """The data of an experiment, loaded once."""
        dataset = experiment(name).dataset
        if dataset not in self.loaded:
            found = load(dataset, self.data, say=self._say)
            made = arrays(found)
            self.loaded[dataset] = Loaded(made, found.origin, made.digest())
        return self.loaded[dataset]

    def _task_names(self, request: Request) -> Callable[[], list[str]]:
        def names() -> list[str]:
            plan = self.plan_of(request)
            data = self.data_of(request.experiment).arrays
            return [task.name for task in plan.experiment.stream(data, plan.settings, Rng((0,)))]

        return names

    def _draw(self, folder: Path, rows: str, draw: Callable[[], list[Path]]) -> list[Path]:
        write_atomic(make_folder(folder) / "rows.csv", rows)
        return draw()

    def _update(self, name: str, lines: Sequence[table.Line], seen: Sequence[table.Seen]) -> None:
        """Replace the lines of one item and keep those of all others."""
        others, known = self._known()
        write_tables(
            self.out,
            self.preset,
            [*(line for line in others if line.item != name), *lines],
            [*(one for one in known if one.item != name), *seen],
            self.command,
        )

    def _known(self) -> tuple[list[table.Line], list[table.Seen]]:
        """What the tables of the folder hold already."""
        with reading(self.out / LINES, MEND):
            lines = table.read_lines(self.out / LINES)
        with reading(self.out / CLAIMS, MEND):
            return lines, table.read_seen(self.out / CLAIMS)

    def _title(self, item: StreamItem) -> str:
        return fill(item.about if self.preset == "paper" else f"{item.about} ({self.preset})", TITLE_WIDTH)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True)


def write_tables(
    folder: Path, preset: Preset, lines: Sequence[table.Line], seen: Sequence[table.Seen], command: str = ""
) -> None:
    """Both tables as CSV and as one document, in the order of the items; ``command`` is what added to it last."""
    order = {entry.name: place for place, entry in enumerate(ITEMS)}
    lines = sorted(lines, key=lambda line: order.get(line.item, len(order)))
    seen = sorted(seen, key=lambda one: order.get(one.item, len(order)))
    write_atomic(folder / LINES, table.write(lines))
    write_atomic(folder / CLAIMS, table.write(seen))
    note = "" if preset == "paper" else f"Preset {preset}: not the paper's settings, so verdicts say little.\n\n"
    if command:
        note += f"Last added to by `{command}`. What an earlier command made keeps its settings; `parts/` has them.\n\n"
    gone = [f"- `{name}`: {line}" for name, notes in notes_under(folder / "parts") for line in set_aside_in(notes)]
    ending = (
        "\n".join(("", "Numbers are without the runs that left the finite numbers:", "", *gone, "")) if gone else ""
    )
    write_atomic(folder / DOCUMENT, f"{HEAD.format(preset)}\n\n{note}{table.markdown(lines, seen)}{ending}")


def relabelled(rows: Sequence[Row], request: Request) -> list[Row]:
    """Rows under the label of the request; what a grid puts behind the method's name stays."""
    if request.label is None:
        return list(rows)
    return [row._replace(method=request.label + row.method.removeprefix(request.method)) for row in rows]


def by_label(drawn: Sequence[Tensor], labels: Sequence[str], request: Request) -> dict[str, list[Tensor]]:
    """The pictures of the first run of each label, under the request's label: after each task [tasks, count, …]."""
    names = [request.label + one.removeprefix(request.method) if request.label else one for one in labels]
    return {name: [images[names.index(name)] for images in drawn] for name in dict.fromkeys(names)}
