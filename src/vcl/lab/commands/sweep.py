"""`vcl sweep`: finds the best lambda of EWC, SI, LP or MAP and tests it."""

from __future__ import annotations

from typing import Annotated

import typer

from vcl.lab.commands import options


def sweep(
    experiment: options.Experiment,
    method: Annotated[str, typer.Option(help="One or more methods with a lambda, separated by commas.")] = "ewc",
    grid: Annotated[
        str, typer.Option(help="lambda=1,10,100, or lambda=paper: the paper's grid, or a method's own.")
    ] = "lambda=paper",
    select: Annotated[
        str, typer.Option(help="Select on: validation (held-out training data) or test (as in the paper).")
    ] = "validation",
    validation: Annotated[float, typer.Option(help="The share of the training data to hold out.")] = 0.1,
    preset: options.Preset = "quick",
    seeds: options.Seeds = None,
    device: options.Device = "auto",
    out: options.Out = None,
    set_: options.Set = None,
    dataset: options.Dataset = None,
    jobs: options.Jobs = None,
    launcher: options.Launcher = "local",
    address: options.Address = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    runs_per_job: options.RunsPerJob = None,
    data: options.Data = None,
    save_every: options.SaveEvery = 180.0,
    log: options.Log = None,
    plugin: options.Plugin = None,
) -> None:
    """Run a grid of lambdas as one stack, choose the best on held-out training data, and test it.

    \b
    Example:
      vcl sweep permuted-digits --method ewc,si,lp --grid lambda=0.1,1,10,100
    """
    from vcl.lab.console import make_console, say_on
    from vcl.lab.launching.choose import Options, elsewhere
    from vcl.lab.loading import load_data
    from vcl.lab.plan import check_used, make_plan, unused
    from vcl.lab.remote.place import check_shared, place_of
    from vcl.lab.session import opened
    from vcl.lab.side_by_side import check_jobs
    from vcl.lab.sweep import WARNINGS, check
    from vcl.lab.sweep import sweep as run_sweep
    from vcl.lab.tensorboard import check_log
    from vcl.learner.saving import check_every

    console = make_console()
    check_jobs(1 if jobs is None else jobs)
    away = elsewhere(Options(launcher, jobs, address, cpus, gpus, runs_per_job), data)
    check_shared(out, away is not None)
    at_once = jobs or 1
    check_every(save_every)
    check_log(log)
    options.load_plugins(plugin)
    # All arguments are checked before any work starts.
    plan = make_plan(experiment, method, preset, seeds, device, set_ or [], grid, dataset)
    check_used([plan])
    selection = check(plan, select, validation)
    place = None if out is None else place_of(out, lambda line: say_on(console, line))
    plan, loaded = load_data(plan, None, data, console)
    for line in unused(plan):
        say_on(console, line)
    with opened(plan, place, console, save_every, log) as store:
        run_sweep(plan, loaded, selection, validation, store, console, at_once, away)
    say_on(console, WARNINGS[selection])
