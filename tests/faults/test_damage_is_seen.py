"""The families of damage see a wrong number and a pickle that runs: were they blind, nothing would ever be lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "faults"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")

PLANTED = '''
import json
import pickle
import sys
from functools import partial
from pathlib import Path

import people
import pickles
import scenes


def unseen(folder: Path) -> None:
    """Another digit in a model's description, of which nothing has a checksum."""
    path = folder / people.MODEL / "model.json"
    about = json.loads(path.read_text())
    del about["check"]
    about["options"]["epochs"] = 1
    path.write_text(json.dumps(about | {"format": 1}))


def read(folder: Path) -> None:
    """A loader that reads pickles."""
    pickle.loads((folder / people.MODEL / "model.json").read_bytes())


if __name__ == "__main__":
    base = Path(sys.argv[1])
    (scene,) = [each for each in scenes.models() if each.name == "a model that is new"]
    made = scenes.Made.of(scene, base / "made")
    (ask,) = scene.asks
    print(*made.tried("untouched", "", ask, lambda folder: None))
    print(*made.tried("a digit", "here", ask, unseen))
    mark = base / "mark"
    content = pickles.contents(mark)["bare"]
    plant = partial(pickles.write, Path(people.MODEL) / "model.json", content)
    print(*pickles.without(mark, made.tried("a pickle", "", ask, plant)))
    print(*pickles.without(mark, made.tried("a pickle", "read", ask, plant, read)))
'''


def test_a_wrong_number_and_a_pickle_that_runs_are_lost(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    path = f"{TOOL}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    end = subprocess.run(
        [sys.executable, "-m", "planted", str(tmp_path)], cwd=tmp_path, timeout=300, check=False,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert end.returncode == 0, end.stdout + end.stderr
    untouched, digit, pickled, ran = end.stdout.splitlines()
    assert untouched.startswith("untouched survived")
    assert digit.startswith("a digit LOST here: other bytes: answer.csv")
    assert pickled.startswith("a pickle refused vcl: model/model.json is damaged")
    assert ran.startswith("a pickle LOST a pickle was read: ")
