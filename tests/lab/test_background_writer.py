"""Large files written while the work goes on."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load

import vcl.lab.background_writer
from vcl.errors import VclError
from vcl.lab.background_writer import BackgroundWriter


@pytest.fixture(params=[0, 2**30], ids=["by the thread", "at once"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(vcl.lab.background_writer, "SMALL", request.param)
    return int(request.param)


def test_files_are_whole_and_the_last_one_given_stays(small: int, tmp_path: Path) -> None:
    with BackgroundWriter() as writer:
        for number in range(5):
            writer(tmp_path / "state", {"x": torch.full((1000,), float(number))})
    assert load((tmp_path / "state").read_bytes())["x"].tolist() == [4.0] * 1000
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def interrupted(path: Path) -> None:
    with BackgroundWriter() as writer:
        writer(path, {"x": torch.ones(10)})
        raise KeyboardInterrupt


def test_what_was_given_is_on_disk_after_an_interrupt(small: int, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "state")
    assert load((tmp_path / "state").read_bytes())["x"].tolist() == [1.0] * 10


@pytest.mark.parametrize("more", [0, 1])
def test_an_error_is_told_at_the_next_file_or_at_the_end(small: int, more: int, tmp_path: Path) -> None:
    paths = [tmp_path / "none" / "state", *[tmp_path / "state"] * more]

    def write() -> None:
        with BackgroundWriter() as writer:
            for path in paths:
                writer(path, {"x": torch.ones(1)})

    with pytest.raises(VclError, match="cannot write to"):
        write()
    assert not list(tmp_path.iterdir()), "nothing is written after it"
