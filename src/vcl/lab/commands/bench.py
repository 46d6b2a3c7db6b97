"""`vcl bench`: times vcl on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SHORT = {"deterministic": "plain", "fastest other": "other"}
"""Short words for narrow column heads."""


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[int | None, typer.Option(help="CPU threads; default: torch's choice.")] = None,
    matmul: Annotated[str, typer.Option(help="Precision of matrix products on a GPU: float32 or tf32.")] = "float32",
    quick: Annotated[bool, typer.Option("--quick", help="A quick, noisier measurement.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.")] = None,
) -> None:
    """Time training steps, prediction, coresets and curvature against lower bounds and other installed libraries."""
    import json
    import os

    import torch
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from vcl.errors import VclError, unknown
    from vcl.lab.arithmetic import MATMUL_PRECISIONS, matrix_products
    from vcl.lab.bench import peers, suite
    from vcl.lab.console import make_console
    from vcl.lab.folder import check_new, write_new
    from vcl.lab.plan import choose_device

    console = make_console()
    where = choose_device(device)
    if threads is not None:
        cores = os.cpu_count() or 1
        if not 1 <= threads <= cores:
            raise VclError(f"--threads is {threads}; give 1 to {cores}, as many as this machine has cores.")
        torch.set_num_threads(threads)
    how = next((known for known in MATMUL_PRECISIONS if known == matmul), None)
    if how is None:
        raise unknown("matmul", matmul, MATMUL_PRECISIONS)
    if out is not None:
        check_new(out, "bench.json")
    size = suite.QUICK if quick else suite.FULL

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, style="dim")

    missing = [peer.name for peer in peers.PEERS if peer not in peers.installed()]
    if missing:
        say(f"not installed and left out: {', '.join(missing)} (pip install vcl[bench])")
    with matrix_products(how):
        lines = suite.run(where, size, say)
    about = suite.record(lines, where, size, how)
    columns = list(dict.fromkeys(what for line in lines for what in line.ratios))
    for group in dict.fromkeys(line.group for line in lines):
        mine = [line for line in lines if line.group == group]
        shown = [what for what in columns if any(what in line.ratios for line in mine)]
        heads = [f"x {SHORT.get(what, what)}" for what in shown]
        table = Table(
            "job", "ms", "median", *heads,
            title=group, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0),
        )  # fmt: skip
        table.columns[0].no_wrap = True
        for line in mine:
            ratios = [f"{line.ratios[what]:.2f}" if what in line.ratios else "" for what in shown]
            table.add_row(line.name, f"{1e3 * line.timing.least:.3f}", f"{1e3 * line.timing.middle:.3f}", *ratios)
        console.print(table)
    console.print(
        f"vcl {about['vcl']}, torch {about['torch']}, {about['device']}. Least of repeats that take turns; only ratios "
        "compare, since they are of one call on one machine: to the matrix products alone (floor), to the time in "
        "which the device's bandwidth moves weights, gradients, parameters and moments (bytes), to a deterministic "
        "network (plain), to the fastest other library (other), to the same network recognised as a chain (fast way).",
        highlight=False,
        soft_wrap=True,
    )
    if out is not None:
        write_new(out, (json.dumps(about, indent=1) + "\n").encode())
