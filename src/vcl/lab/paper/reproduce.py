"""Runs items: computes missing parts, draws figures and updates the table."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import fill

import torch
from rich.console import Console
from torch import Tensor

from vcl.errors import VclError
from vcl.lab.claim import claimed
from vcl.lab.compute import Elsewhere, compute, compute_all, missing, prepare
from vcl.lab.console import say_on
from vcl.lab.datasets import MissingData
from vcl.lab.estimate import check_methods
from vcl.lab.experiments.experiment import Preset
from vcl.lab.folder import make_folder, write_atomic
from vcl.lab.loading import load_named
from vcl.lab.memory import check_listed
from vcl.lab.paper import table
from vcl.lab.paper.item import Context, Item, Request, Shown, StreamItem, TableItem
from vcl.lab.paper.items import ITEMS
from vcl.lab.paper.judged import Judged, judge_stream, judge_table
from vcl.lab.paper.numbers import numbers
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import Plan, check_used, make_plan
from vcl.lab.reading import read_part, reading
from vcl.lab.registry import experiment
from vcl.lab.remote.mirror import Mirror
from vcl.lab.results import Row, methods, to_csv
from vcl.lab.runner import quiet, set_aside_in
from vcl.lab.settings import split_change
from vcl.lab.stopped import continued_in
from vcl.lab.store import PART, PARTS, Store, key
from vcl.learner.saving import EVERY
from vcl.ops.rng import Rng

QUICK_SEEDS: Mapping[Preset, int | None] = {"paper": None, "quick": 2, "smoke": None}
"""Seeds per preset, where the preset's own number would take too long for all items."""

TITLE_WIDTH = 56
"""Letters that fit above the narrowest figure."""

LINES, CLAIMS, DOCUMENT, TASKS = "table.csv", "claims.csv", "table.md", "tasks.json"
ADDED = "Last added to by `{}`. What an earlier command made keeps its settings; `parts/` has them."
HEAD = "# The paper's items, ours beside theirs (preset {})"


@dataclass
class Reproduction:
    """A folder of results of one preset: parts, and the rows and figure of each item."""

    preset: Preset
    seeds: int | None
    device: torch.device
    data: Path | None
    out: Path
    command: str
    console: Console
    changes: tuple[str, ...] = ()
    """The user's changes to settings, for every stream."""
    jobs: int = 1
    """The number of parts to compute at once."""
    save_every: float = EVERY
    """Seconds between two saves within a task."""
    elsewhere: Elsewhere | None = None
    """What computes the parts, if not this process."""
    mirror: Mirror | None = None
    """What keeps the folder the same as an address."""
    loaded: dict[str | None, Loaded] = field(default_factory=dict)

    def run(self, items: Sequence[Item]) -> None:
        """Run each item in turn. Items with unavailable data are skipped and named in a VclError at the end."""
        streams = [item for item in items if isinstance(item, StreamItem)]
        self._check_changes(streams)
        if self.mirror is not None:
            self.mirror.pull_top()
            self.mirror.pull()
        self._known()  # rejects a table of another version before any work
        self._check_preset()
        shown, held = (
            (None, nullcontext()) if self.mirror is None else (self.mirror.address, self.mirror.whole("paper"))
        )
        # Two processes would overwrite each other's lines of the table.
        with continued_in(self.out, shown), claimed(self.out), held:
            if self.jobs > 1 or self.elsewhere is not None:
                self._ahead(streams)
            try:
                self._each(items)
            finally:
                if self.mirror is not None:
                    self.mirror.push_drawn()

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
        """Reject a changed setting that no method uses; items without data are skipped here."""
        if not self.changes:
            return
        plans, given = [], {split_change(change)[1] for change in self.changes}
        for item in items:
            with suppress(MissingData):
                for request in item.requests(Context(self.preset, self.data_of)):
                    own = given & {split_change(change)[1] for change in request.changes}
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
        """Reject a folder with the table of another preset, since its lines do not record the preset."""
        document = self.out / DOCUMENT
        with reading(document, table.MEND):
            head = document.read_text().partition("\n")[0] if document.exists() else HEAD.format(self.preset)
        if head != HEAD.format(self.preset):
            raise VclError(f"{self.out} holds results of another preset than {self.preset}; give --out another folder.")

    def _ahead(self, items: Sequence[StreamItem]) -> None:
        """Compute the missing parts of all ``items``, several at once; items without data are skipped here."""
        store, parts = self._store(), dict[str, tuple[str, Part]]()
        for item in items:
            with suppress(MissingData):
                for request in item.requests(Context(self.preset, self.data_of)):
                    part = self.part_of(request)
                    check_listed(part.plan, part.data.arrays)
                    _, value = prepare(part, store, quiet)
                    if missing(part, store.stacks(part.stem, value)):
                        runs = [key(run) for run in part.plan.runs(part.entry)]
                        named = f"{request.experiment} {request.label or request.method}"
                        parts.setdefault(store.new(part.stem, value, runs).name, (named, part))
        names, chosen = [name for name, _ in parts.values()], [part for _, part in parts.values()]
        for part in chosen:
            check_methods(part.plan, part.data.arrays)
        compute_all(chosen, store, self.console, self.jobs, names, self.elsewhere)

    def _store(self) -> Store:
        return Store(self.out, self.device, self.command, self.save_every, self.mirror)

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
            result = compute(self.part_of(request), store, self.console, check=True)
            found = relabelled(result.rows, request)
            for line in () if result.new else set_aside_in(result.notes):  # new parts have already reported theirs
                self._say(f"  {line}")
            rows += found
            seconds |= dict.fromkeys(methods(found), result.seconds)
            pictures |= {renamed(name, request): drawn for name, drawn in result.pictures.items()}
        rows = item.arrange(rows)
        judged = judge_stream(item, rows, seconds)
        tasks = self._task_names(requests[0])
        write_atomic(make_folder(folder) / TASKS, json.dumps(tasks, ensure_ascii=False) + "\n")
        facts = {request.label or request.method: request.facts for request in requests}
        shown = shown_of(item, judged, folder, self.preset, tasks)._replace(pictures=pictures, facts=facts)
        return judged, self._draw(folder, to_csv(rows), lambda: item.draw(rows, shown))

    def _table_item(self, item: TableItem, store: Store, folder: Path) -> tuple[Judged, list[Path]]:
        settings = dict(item.settings[self.preset])
        if self.seeds is not None:
            settings["seeds"] = self.seeds
        about = {"settings": settings, "device": self.device.type}
        path = store.once(item.name, about, lambda: item.compute(settings, self.device).encode(), "table.csv")
        with reading(path):
            text = path.read_text()
            rows = list(csv.DictReader(text.splitlines()))
            judged = judge_table(item, rows, read_part(path.with_name(PART))["seconds"])
            figures = self._draw(folder, text, lambda: item.draw(rows, folder / item.name))
        return judged, figures

    def part_of(self, request: Request) -> Part:
        """The part of a request."""
        plan = self.plan_of(request)
        return Part(plan, plan.methods[0], self.data_of(request.experiment))

    def plan_of(self, request: Request) -> Plan:
        """The plan of a request."""
        seeds = self.seeds or request.seeds or QUICK_SEEDS[self.preset]
        changes = (*request.changes, *self.changes)
        return make_plan(
            request.experiment, request.method, self.preset, seeds, self.device.type, changes, request.grid
        )

    def data_of(self, name: str) -> Loaded:
        """The data of an experiment, loaded once."""
        dataset = experiment(name).dataset
        if dataset not in self.loaded:
            self.loaded[dataset] = load_named(dataset, self.data, self._say)
        return self.loaded[dataset]

    def _task_names(self, request: Request) -> list[str]:
        stream = self.plan_of(request).stream(self.data_of(request.experiment).arrays, Rng((0,)))
        return [task.name for task in stream]

    def _draw(self, folder: Path, rows: str, draw: Callable[[], list[Path]]) -> list[Path]:
        write_atomic(make_folder(folder) / "rows.csv", rows)
        return draw()

    def _update(self, name: str, lines: Sequence[table.Line], seen: Sequence[table.Seen]) -> None:
        """Replace the lines of one item in the tables and keep all others."""
        others, known = self._known()
        write_tables(
            self.out,
            self.preset,
            [*(line for line in others if line.item != name), *lines],
            [*(one for one in known if one.item != name), *seen],
            self.command,
        )

    def _known(self) -> tuple[list[table.Line], list[table.Seen]]:
        """The lines and claims already in the folder's tables."""
        return table.read_lines(self.out / LINES), table.read_seen(self.out / CLAIMS)

    def _say(self, line: str) -> None:
        say_on(self.console, line)


def shown_of(item: StreamItem, judged: Judged, folder: Path, preset: Preset, tasks: list[str]) -> Shown:
    """The inputs to a figure besides its rows, except pictures."""
    paper = numbers(item.name)
    marks = {name: paper[table.base(name)].value for name in judged.values if table.base(name) in paper}
    title = fill(item.about if preset == "paper" else f"{item.about} ({preset})", TITLE_WIDTH)
    return Shown(title, marks, folder / item.name, tasks)


def write_tables(
    folder: Path, preset: Preset, lines: Sequence[table.Line], seen: Sequence[table.Seen], command: str = ""
) -> None:
    """Write both tables as CSV and as one document, in the order of the items; ``command`` made the last addition."""
    order = {entry.name: place for place, entry in enumerate(ITEMS)}
    lines = sorted(lines, key=lambda line: order.get(line.item, len(order)))
    seen = sorted(seen, key=lambda one: order.get(one.item, len(order)))
    write_atomic(folder / LINES, table.write(lines))
    write_atomic(folder / CLAIMS, table.write(seen))
    note = "" if preset == "paper" else f"Preset {preset}: not the paper's settings, so verdicts say little.\n\n"
    if command:
        note += f"{ADDED.format(command)}\n\n"
    gone = [f"- `{name}`: {line}" for name, notes in notes_under(folder / PARTS) for line in set_aside_in(notes)]
    ending = (
        "\n".join(("", "Numbers are without the runs that left the finite numbers:", "", *gone, "")) if gone else ""
    )
    write_atomic(folder / DOCUMENT, f"{HEAD.format(preset)}\n\n{note}{table.markdown(lines, seen)}{ending}")


def notes_under(root: Path) -> list[tuple[str, list[str]]]:
    """(name, notes on the numbers) of each part in a folder."""
    return [(path.parent.name, read_part(path)["notes"]) for path in sorted(root.glob(f"*/{PART}"))]


def relabelled(rows: Sequence[Row], request: Request) -> list[Row]:
    """Rows under the request's label; the lambda after a method's name is kept."""
    return [row._replace(method=renamed(row.method, request)) for row in rows]


def renamed(name: str, request: Request) -> str:
    """A label with the method's name replaced by the request's label."""
    return name if request.label is None else request.label + name.removeprefix(request.method)
