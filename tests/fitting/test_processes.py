"""Two processes that share a fit against one process, over loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import shared_fits
import torch
from safetensors import safe_open
from torch import Tensor

from vcl import projections
from vcl.errors import VclError
from vcl.fitting import sharing
from vcl.fitting.processes import Group
from vcl.ops.noise import NoiseShape
from vcl.projections import VariationalKL

SCRIPT = Path(shared_fits.__file__)


def begin_two(out: Path) -> list[subprocess.Popen[str]]:
    """The script in two processes that know of each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": "2",
    }
    ranks = [{"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    command = [sys.executable, str(SCRIPT), str(out)]
    return [subprocess.Popen(command, env={**known, **rank}, stderr=subprocess.PIPE, text=True) for rank in ranks]


def read(path: str) -> tuple[dict[str, Tensor], str]:
    """The beliefs that one process found, and what it said of unequal seeds."""
    with safe_open(path, "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, file.metadata()["refused"]  # noqa: SIM118


def test_every_projection_and_family_has_a_fit() -> None:
    """A projection that is left out here would not be compared with one process."""
    fits = [project for project, _, _ in shared_fits.fits().values()]
    named = [getattr(projections, name) for name in dir(projections)]
    known = {each for each in named if hasattr(each, "initial") and each is not projections.Projection}
    assert {type(project) for project in fits} == known
    assert {project.family for project in fits if isinstance(project, VariationalKL)} == {"mean-field", "full"}


def test_two_processes_are_one_and_refuse_unequal_seeds(tmp_path: Path) -> None:
    begun = begin_two(tmp_path / "rank")
    alone = {key: value for name in shared_fits.fits() for key, value in shared_fits.fitted(name).items()}
    for process in begun:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    (first, said), (second, said_too) = (read(str(tmp_path / f"rank{rank}")) for rank in (0, 1))
    assert set(first) == set(second) == set(alone)
    for key, one in alone.items():
        assert torch.equal(first[key], second[key]), key
        if not key.endswith((":Q_A", ":Q_G")):  # eigenvectors, whose signs are free
            torch.testing.assert_close(first[key], one, rtol=1e-6, atol=1e-8, msg=partial("{}: {}".format, key))
    for each in (said, said_too):
        assert "process 1 of 2 has other seeds and start values than process 0" in each


def test_two_processes_on_one_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nccl says it: the last of several lines has the reason."""

    def gather(found: list[Tensor], mine: Tensor) -> None:
        raise RuntimeError("NCCL error, invalid usage\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both")

    monkeypatch.setattr(torch.distributed, "all_gather", gather)
    with pytest.raises(VclError, match="two processes of this machine use one GPU, and nccl needs one for each; start"):
        Group(0, 2).agree("fit", torch.device("cpu"), steps=1)


@pytest.mark.parametrize(
    ("gpu", "nccl", "asked"), [(True, True, "cpu:gloo,cuda:nccl"), (False, True, None), (True, False, None)]
)
def test_beside_a_gpu_processes_exchange_by_nccl_and_by_gloo(
    gpu: bool, nccl: bool, asked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.11 makes nccl alone without a name, which refuses tensors of a CPU."""
    found = list[str | None]()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    monkeypatch.setattr(torch.distributed, "init_process_group", found.append)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with sharing() as group:
        assert (group.rank, group.size) == (1, 2)
    assert found == [asked]


def test_alone_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with sharing() as group:
        assert group.alone
        assert group.share(7) == (slice(0, 7), 1.0)


def test_the_noise_of_a_part_is_that_of_its_examples() -> None:
    shape = NoiseShape(draws=2, fixed=3, widths=(2, 1), unit=4)
    whole = torch.arange(float(shape.size(5))).view(1, -1)
    part = shape.part(whole, 5, slice(1, 3)).view(2, -1)
    assert shape.size(5) == 2 * 20
    assert part[0].tolist() == [0, 1, 2, 5, 6, 7, 8, 14, 15, 0, 0, 0]
    assert part[1, :9].tolist() == [20, 21, 22, 25, 26, 27, 28, 34, 35]
