from threading import Event, Thread

import pytest
import torch

from vcl.lab.arithmetic import matrix_products


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
