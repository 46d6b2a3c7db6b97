"""A script as people write it: a learner of their own, saved after each update, each of which can be interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

UPDATES = 3


def learn(method: str) -> None:
    """Make or load a learner, and learn what is left; the end is in ``out/``."""
    import torch

    import vcl
    from vcl.learner.checkpoint import to_bytes

    torch.manual_seed(0)  # for the network's first values
    net: Any = None if method == "generative" else vcl.mlp(4, (5,))
    x = torch.randn(30 * UPDATES, 4)
    y = x[:, 1] + 0.1 * x[:, 2] if method == "regression" else (x[:, 0] > 0).long()
    kind: Any = vcl.ContinualRegressor if method == "regression" else vcl.ContinualClassifier
    options: dict[str, Any] = {} if method == "regression" else {"method": method}
    saved = Path("learner")
    known = saved.exists()
    learner = kind.load(saved, net, verbose=0) if known else kind(net, epochs=4, batch=8, verbose=0, **options)
    for update in range(len(learner.history), UPDATES):
        half = list(Path("half").glob("journal-*.json")) if Path("half").exists() else []
        if half:
            print(f"{method}: goes on within task {update + 1}", flush=True)
        rows = slice(30 * update, 30 * (update + 1))
        learner.update(x[rows], y[rows], checkpoint="half", save_every=0)
        learner.save(saved)
        print(f"{method}: task {update + 1} of {UPDATES}", flush=True)
    out = Path("out")
    out.mkdir(exist_ok=True)
    (out / "state").write_bytes(to_bytes(learner._known.state))
    (out / "noise").write_text(repr(learner._known.noise))
    (out / "predictions").write_bytes(learner.predict(x).tobytes())
    (out / "left").write_text(repr(sorted(path.name for path in Path("half").iterdir())))
