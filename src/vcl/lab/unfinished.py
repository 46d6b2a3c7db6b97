"""What can be done with a stack that is not finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from vcl.errors import VclError
from vcl.lab.claim import TakenError, claimed
from vcl.lab.identity import description, same
from vcl.lab.parts import same_part
from vcl.lab.plan import make_plan
from vcl.lab.registry import methods
from vcl.lab.stopped import with_out
from vcl.lab.store import Stack


def told(stack: Stack, shown: str, stacks: Sequence[Stack], out: Path) -> str:
    """One sentence on an unfinished stack of those in a folder: the command that continues it, if there is one."""
    begun = f"{shown}: {len(stack.known['tasks'])} tasks are finished; "
    if at_work(stack.folder):
        return f"{begun}another process computes it now."
    if stack.known["method"] not in methods(stack.experiment().models):
        return f"{begun}its method is not known here; give the file that defines it with --plugin."
    if can_continue(stack, stacks):
        return f"{begun}`{with_out(stack.known['command'], out)}` continues it."
    return f"{begun}no command continues it any more; {stack.folder} can be deleted."


def at_work(folder: Path) -> bool:
    """Whether a process has a stack's folder."""
    try:
        with claimed(folder):
            return False
    except TakenError:
        return True
    except VclError:  # a folder in which nothing may be written, so that nobody computes there
        return False


def can_continue(stack: Stack, stacks: Sequence[Stack]) -> bool:
    """Whether the command that began a stack would go on with it: it is the same part today, and lacks its runs."""
    known, about = stack.known, stack.known["description"]
    done = {run for each in stacks if each.finished and same_part(each, stack) for run in each.runs}
    if done & set(stack.runs):
        return False
    try:
        plan = make_plan(
            known["experiment"], known["method"], known["preset"], None, "cpu", known["changes"], None, known["dataset"]
        )
        plan = replace(plan, device=torch.device(about["device"]))
        prepared = {key: value for key, value in about["prediction"].items() if key != "settings"}
        return same(about, description(plan, plan.methods[0], about["data"], prepared))
    except Exception:  # a plugin that was edited may raise anything
        return False
