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
