from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
import torch
from lab_made import images

from vcl.lab.arithmetic import matrix_products
from vcl.lab.compute import prepare
from vcl.lab.generative import classifier as classifier_module
from vcl.lab.generative.classifier import trained
from vcl.lab.part import Loaded, Part
from vcl.lab.plan import make_plan
from vcl.lab.runner import quiet
from vcl.lab.store import Store


@pytest.mark.parametrize(("how", "inside"), [("float32", "ieee"), ("tf32", "tf32")])
def test_the_process_is_left_as_it_was_found(how: str, inside: str) -> None:
    products = torch.backends.cuda.matmul
    before = products.fp32_precision

    def stopped() -> None:
        with matrix_products(how):  # type: ignore[arg-type]
            assert products.fp32_precision == inside
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert products.fp32_precision == before


def test_methods_that_run_side_by_side_share_a_way_or_wait_for_it() -> None:
    order: list[str] = []
    inside = Event()

    def other() -> None:
        inside.wait(20)
        with matrix_products("tf32"):
            order.append("the same way, at once")
        with matrix_products("float32"):
            order.append("another way, after it")

    thread = Thread(target=other)
    thread.start()
    with matrix_products("tf32"):
        inside.set()
        thread.join(0.3)
        order.append("the first is done")
    thread.join(20)
    assert order == ["the same way, at once", "the first is done", "another way, after it"]


def test_who_wants_another_way_is_not_kept_waiting_by_those_who_come_and_go() -> None:
    order: list[str] = []
    held, asked = Event(), Event()

    def first() -> None:
        with matrix_products("tf32"):
            held.set()
            asked.wait(20)
            sleep(0.2)  # the other two wait by now
        with matrix_products("tf32"):
            order.append("tf32 again")

    def other() -> None:
        held.wait(20)
        asked.set()
        with matrix_products("float32"):
            order.append("float32")

    def late() -> None:
        asked.wait(20)
        sleep(0.1)
        with matrix_products("tf32"):
            order.append("tf32, late")

    threads = [Thread(target=each) for each in (first, other, late)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert order[0] == "float32"
    assert sorted(order[1:]) == ["tf32 again", "tf32, late"]


def test_the_judge_of_generators_is_trained_in_full_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its method asks for: there is one for all methods of a dataset."""
    seen: list[str] = []

    def watched(*args: Any) -> Any:
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return trained(*args)

    monkeypatch.setattr(classifier_module, "trained", watched)
    small = ("hidden=4", "latent=2", "features=4", "tasks=1", "classifier_hidden=8", "classifier_epochs=1")
    plan = make_plan("generative-digits", "naive", "smoke", 1, "cpu", ("matmul=tf32", *small))
    data = images(train=60, test=20)
    part = Part(plan, plan.methods[0], Loaded(data, "made up", data.digest()))
    assert prepare(part, Store(tmp_path, torch.device("cpu"), ""), quiet)[0] is not None
    assert seen == ["ieee"]
