"""What is asked of Ray: CPU cores and a share of a GPU for each job; and how many jobs there is room for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from vcl.errors import VclError
from vcl.lab.launching.choose import Options
from vcl.lab.launching.on_ray import OnRay


class Remote:
    """A function handed to Ray, with what it asks for."""

    def __init__(self) -> None:
        self.asked = dict[str, Any]()

    def options(self, **asked: Any) -> Remote:
        self.asked = asked
        return self


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The nodes of a cluster that stands in for Ray's; two live."""
    known = [
        {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0}},
        {"Alive": True, "Resources": {"CPU": 6.0}},
        {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
    ]
    ray = SimpleNamespace(
        init=lambda **given: None, shutdown=lambda: None, nodes=lambda: known, remote=lambda function: Remote(),
        cluster_resources=lambda: {"CPU": 14.0, "GPU": 2.0},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", ray)
    return known


@pytest.mark.parametrize(
    ("cpus", "gpus", "room"),
    [
        (1, 0.0, 14),
        (4, 0.0, 3),  # two on the first node and one on the second, whose other two cores are of no use
        (1, 1.0, 2),
        (1, 0.25, 8),
        (3, 0.25, 2),
        (2, 0.5, 4),
    ],
)
def test_jobs_ask_for_cores_and_shares_of_gpus(nodes: list[Any], cpus: int, gpus: float, room: int) -> None:
    launcher = OnRay("127.0.0.1:6379", None, cpus, gpus)
    assert launcher.slots == room
    assert launcher.remote.asked == {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 0}


def test_the_number_of_jobs_is_a_limit(nodes: list[Any]) -> None:
    assert OnRay("127.0.0.1:6379", 3, 1, 0.25).slots == 3


def test_a_job_that_fits_nowhere_is_refused(nodes: list[Any]) -> None:
    with pytest.raises(VclError, match="asks for 9 CPUs and 0 GPUs, and no node of the Ray cluster has them"):
        OnRay("127.0.0.1:6379", None, 9, 0.0)


@pytest.mark.parametrize(("device", "given", "gpus"), [("cuda", None, 1.0), ("cuda", 0.25, 0.25), ("cpu", None, 0.0)])
def test_a_job_on_a_gpu_asks_for_a_whole_one_unless_told(
    nodes: list[Any], device: str, given: float | None, gpus: float
) -> None:
    launcher = Options("ray", None, "127.0.0.1:6379", None, given, None).launcher_on(device)
    assert isinstance(launcher, OnRay)
    assert launcher.remote.asked["num_gpus"] == gpus
