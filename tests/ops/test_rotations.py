"""Eigenvectors that do not follow from rounding."""

import torch
from torch import Tensor

from vcl.ops.rotations import eigen


def of_rank_three() -> tuple[Tensor, Tensor]:
    """A matrix [1, 7, 7] of rank 3, and the same but for rounding."""
    g = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 3, 7, generator=g, dtype=torch.float64)
    A, noise = rows.mT @ rows, torch.randn(1, 7, 7, generator=g, dtype=torch.float64)
    return A, A + 1e-16 * (noise + noise.mT)


def test_directions_without_data_have_a_basis_that_rounding_does_not_choose() -> None:
    A, other = of_rank_three()
    plain = torch.linalg.eigh(A).eigenvectors.abs() - torch.linalg.eigh(other).eigenvectors.abs()
    assert float(plain.abs().max()) > 0.1, "rounding chooses it in torch's own decomposition"
    (values, vectors), (again, turned) = eigen(A), eigen(other)
    assert torch.allclose(vectors.abs(), turned.abs(), atol=1e-9)
    assert torch.allclose(values, again, rtol=1e-12, atol=0)


def test_they_are_eigenvectors_and_eigenvalues_of_rounding_are_zero() -> None:
    A, _ = of_rank_three()
    for matrix, close in ((A, 1e-12), (A.float(), 1e-5)):
        values, vectors = eigen(matrix)
        assert values[0, :4].tolist() == [0, 0, 0, 0]
        assert float(values[0, 4]) > 0.1
        assert torch.allclose(vectors.mT @ vectors, torch.eye(7).to(matrix), atol=close)
        assert torch.allclose((vectors * values.to(matrix).unsqueeze(1)) @ vectors.mT, matrix, atol=10 * close)


def test_a_negative_eigenvalue_counts_as_zero() -> None:
    values, _ = eigen(torch.diag(torch.tensor([-1e-3, 2.0, 1.0])).unsqueeze(0))
    assert values[0].tolist() == [0, 1, 2]
