"""The script of docs/scale.md, alone and as two processes of torchrun: one sentence, from the first of them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "scale.md"


def said(*command: str, folder: Path) -> str:
    """What a command prints."""
    known = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, env=known, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_two_processes_of_torchrun_predict_as_one(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "fit.py").write_text(script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1")
    two = said(*run, "--master-port", f"{port}", "fit.py", folder=tmp_path)
    one = said("fit.py", folder=tmp_path)
    alone, shared = (re.fullmatch(r"(\d) processes: (0\.\d{4})\n", text) for text in (one, two))
    assert alone is not None
    assert shared is not None
    assert (alone[1], shared[1]) == ("1", "2")
    assert abs(float(alone[2]) - float(shared[2])) <= 1e-4, "float32, and four digits"
