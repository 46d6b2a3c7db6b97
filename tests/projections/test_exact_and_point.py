import pytest
import torch

from made import blob_tasks, linear_data, small_network
from vcl.errors import VclError
from vcl.fitting.loop import Ascent
from vcl.models import LinearGaussian
from vcl.ops.rng import Rng
from vcl.projections import Exact, MaximumLikelihood, Target

MODEL = LinearGaussian(inputs=4, noise=0.5, prior_var=2.0)


def test_exact_refuses_a_model_it_has_no_formula_for() -> None:
    model, (task,) = small_network(), blob_tasks(1)
    prior = model.prior({"h0": 2})
    with pytest.raises(VclError, match="linear-Gaussian models only, not Network"):
        Exact()(Target(Exact().initial(prior), model, task.train, prior), Rng((0,)))


def test_maximum_likelihood_of_a_linear_model_is_least_squares() -> None:
    data = linear_data(40, 0)
    prior = MODEL.prior({}).to(torch.float64)
    project = MaximumLikelihood(Ascent(3000, None, 0.1, "cosine"))
    theta = project(Target(project.initial(prior), MODEL, data, prior), Rng((0,))).mean[0]
    assert torch.allclose(theta, torch.linalg.lstsq(data.x[0], data.y[0]).solution, atol=1e-3)


def test_a_point_draws_itself_and_leaves_other_heads_alone() -> None:
    model, tasks = small_network(), blob_tasks(2)
    project = MaximumLikelihood(Ascent(3, None, 0.01))
    prior = model.prior({"h0": 2, "h1": 2})
    q = project.initial(prior)
    after = project(Target(q, model, tasks[1].train, prior), Rng((0,)))
    moved = {name for name, value in prior.layout.split(after.mean).items() if value.any()}
    assert moved == {"trunk.1.weight", "trunk.1.bias", "heads.h1.weight", "heads.h1.bias"}
    assert torch.equal(after.draw(torch.randn(1, 3, prior.layout.size)), after.mean[:, None].expand(1, 3, -1))
