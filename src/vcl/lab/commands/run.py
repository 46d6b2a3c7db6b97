"""`vcl run`: runs one or more methods on an experiment, with all seeds stacked."""

from __future__ import annotations

from typing import Annotated

import typer

from vcl.lab.commands import options


def run(
    experiment: options.Experiment,
    method: Annotated[str, typer.Option(help="One or more methods, separated by commas.")] = "vcl",
    preset: options.Preset = "quick",
    seeds: options.Seeds = None,
    device: options.Device = "auto",
    out: options.Out = None,
    set_: options.Set = None,
    grid: Annotated[
        str | None, typer.Option(help="lambda=1,10,100 or lambda=paper: run every lambda with every seed as one stack.")
    ] = None,
    dataset: options.Dataset = None,
    jobs: options.Jobs = None,
    launcher: options.Launcher = "local",
    address: options.Address = None,
    cpus: options.Cpus = None,
    gpus: options.Gpus = None,
    runs_per_job: options.RunsPerJob = None,
    data: options.Data = None,
    fallback: Annotated[str | None, typer.Option(help="An experiment to run if the data is unavailable.")] = None,
    save_every: options.SaveEvery = 180.0,
    log: options.Log = None,
    plugin: options.Plugin = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="List every setting with its value, meaning and origin; do not run.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan with its time and memory; do not run.")
    ] = False,
) -> None:
    """Run an experiment and write rows, a table and a figure to a folder.

    The same command with the same --out resumes where it stopped. Other settings, methods or seeds add to the folder.

    \b
    Examples:
      vcl run permuted-digits --method mle,vcl,vcl-random
      vcl run split --dataset fashion-mnist --method vcl,ewc --seeds 5
      vcl run split-mnist --method vcl --set vcl.draws=4 --out runs/mine
    """
    from vcl.lab.compute import compute_all
    from vcl.lab.console import make_console, say_on
    from vcl.lab.estimate import check_methods, show_estimate
    from vcl.lab.launching.choose import Options, elsewhere
    from vcl.lab.loading import load_data
    from vcl.lab.part import Part
    from vcl.lab.plan import check_used, make_plan, unused
    from vcl.lab.remote.place import check_shared, place_of
    from vcl.lab.session import list_settings, opened
    from vcl.lab.side_by_side import check_jobs
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
    other = make_plan(fallback, method, preset, seeds, device, set_ or [], grid) if fallback else None
    for each in (plan, other):
        check_used([each] if each else [])
    if settings:
        list_settings(plan, console)
        return
    place = None if out is None or dry_run else place_of(out, lambda line: say_on(console, line))
    plan, loaded = load_data(plan, other, data, console, fetch=not dry_run)
    for line in unused(plan):
        say_on(console, line)
    check_methods(plan, loaded.arrays, at_once)
    if dry_run:
        show_estimate(plan, loaded.arrays, console)
        return
    with opened(plan, place, console, save_every, log) as store:
        compute_all([Part(plan, entry, loaded) for entry in plan.methods], store, console, at_once, elsewhere=away)
