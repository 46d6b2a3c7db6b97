"""Where an update belongs: the name of its task, and the head that it is learned and predicted with."""

from __future__ import annotations

from typing import Any, NamedTuple

from vcl.errors import VclError, unknown
from vcl.learner.backbone import HEAD
from vcl.learner.given import require_utf8
from vcl.learner.knowledge import Knowledge
from vcl.learner.settings import Settings


class Place(NamedTuple):
    """The name and the head of an update."""

    task: str
    head: str
    named: bool
    """Whether the user gave the name."""


def place_of(task: Any, settings: Settings, known: Knowledge | None) -> Place:
    """The place of an update of ``task``, None for data without a name; VclError if it does not fit what is known."""
    if task is not None and (not isinstance(task, str) or not task):
        raise VclError(f"task is {task!r}; give its name as a string that is not empty.")
    require_utf8("task", task or "")
    shared = settings.one_head or task is None
    if settings.heads == "per-task" and task is None:
        raise VclError("every task has a head of its own here; name the task, as in update(x, y, task='june').")
    heads = () if known is None else known.heads
    if heads and shared != (HEAD in heads):
        how = "one head for all updates" if HEAD in heads else f"heads for the tasks {', '.join(heads)}"
        want = "without task (or with heads='shared')" if HEAD in heads else "with the name of a task"
        raise VclError(f"this learner has {how}; update it {want}.")
    if not shared and task == HEAD:
        raise VclError(f"task is {HEAD!r}, which is the name of the shared head; give the task another name.")
    name = _unnamed(known) if task is None else task
    return Place(name, HEAD if shared else name, task is not None)


def _unnamed(known: Knowledge | None) -> str:
    """The first name of the form "update 3" from the number of updates on that no task has."""
    number, used = (1, {}) if known is None else (len(known.history) + 1, {**known.tasks})
    while f"update {number}" in used:
        number += 1
    return f"update {number}"


def refuse_again(place: Place, digest: str, known: Knowledge | None) -> None:
    """Raise VclError if this task, or this data, was learned before."""
    if known is None:
        return
    if place.named and place.task in known.tasks:
        raise VclError(
            f"task {place.task!r} was learned before; give new data another name, or revisit=True to learn it again on "
            "top of what is known."
        )
    if digest in known.seen:
        raise VclError(
            f"this is the data of {known.seen[digest]!r}, which would count twice; give new data, or revisit=True."
        )


def head_of(task: Any, known: Knowledge) -> str:
    """The head that a task is predicted with; None is the only one."""
    heads = known.heads
    if not heads:
        raise VclError("all tasks were forgotten; call update(x, y) first.")
    if task is None:
        if len(heads) == 1:
            return heads[0]
        raise VclError(f"there is a head for each of the tasks {', '.join(heads)}; give one, as in task={heads[0]!r}.")
    if task not in known.tasks:
        raise unknown("task", str(task), known.tasks)
    return known.tasks[task].head
