"""What every learner for own data keeps: each method, for classes and for numbers, with shared and per-task heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from own_data import classes_of, classifier, numbers, regressor, same, small_net, targets_of, tensors
from vcl.errors import VclError
from vcl.fitting.loop import Progress
from vcl.learner import ContinualClassifier, ContinualRegressor, continual
from vcl.learner.continual import ContinualLearner
from vcl.learner.progress import Bar
from vcl.learner.ways import METHOD_NAMES

Update = tuple[np.ndarray, np.ndarray, str | None]
Targets = Callable[[np.ndarray, int], np.ndarray]


def labels(x: np.ndarray, number: int) -> np.ndarray:
    """Two new classes with each update."""
    return classes_of(x, 2 * number)


def counts(x: np.ndarray, number: int) -> np.ndarray:
    return np.random.default_rng(number).poisson(np.exp(0.5 * x[:, 0]))


class Case(NamedTuple):
    """How to make a learner, and its updates."""

    make: partial[Any]
    targets: Targets
    named: bool

    @property
    def other_net(self) -> Any:
        """A network of the same kind with other values."""
        return None if self.make.keywords.get("method") == "generative" else small_net(9)

    def update(self, number: int) -> Update:
        x = numbers(40, number)
        return x, self.targets(x, number), f"task {number}" if self.named else None


def cases() -> Iterator[tuple[str, Case]]:
    for method in METHOD_NAMES:
        for heads in ("shared", "per-task"):
            named = heads == "per-task"
            if method != "generative":
                yield f"numbers {method} {heads}", Case(partial(regressor, method=method), targets_of, named)
            elif named:
                continue  # all classes are told apart
            yield f"classes {method} {heads}", Case(partial(classifier, method=method), labels, named)
    yield "poisson", Case(partial(regressor, likelihood="poisson"), counts, False)
    yield "heteroscedastic", Case(partial(regressor, noise="heteroscedastic"), targets_of, True)
    yield "given noise", Case(partial(regressor, noise=0.5), targets_of, False)
    yield "memory", Case(partial(classifier, memory=5), labels, True)
    yield "forgettable", Case(partial(regressor, method="mean-field", forgettable=True), targets_of, True)


CASES = dict(cases())
ON_NETWORKS = [name for name in CASES if "generative" not in name]


@cache
def learned(name: str) -> Any:
    """A learner after one update, which no test changes."""
    case = CASES[name]
    return case.make().update(*case.update(0))


@cache
def learned_twice(name: str) -> Any:
    """A learner after two updates, which no test changes."""
    case = CASES[name]
    return case.make().update(*case.update(0)).update(*case.update(1))


def first_task(learner: ContinualLearner) -> str:
    return learner.tasks[0]


def loaded(name: str, learner: ContinualLearner, path: Path) -> Any:
    """The learner saved and loaded, by a network with other values: those of a posterior come from the folder."""
    learner.save(path)
    return type(learner).load(path, CASES[name].other_net, device="cpu", verbose=0)


@pytest.mark.parametrize("name", CASES)
class TestEveryLearner:
    def test_update_save_load_update_is_update_update_to_the_bit(self, name: str, tmp_path: Path) -> None:
        other = loaded(name, learned(name), tmp_path)
        assert same(tensors(other), tensors(learned(name)))
        other.update(*CASES[name].update(1))
        assert same(tensors(other), tensors(learned_twice(name)))
        x, task = numbers(7, 5), first_task(other)
        assert np.array_equal(other.predict(x, task), learned_twice(name).predict(x, task))

    def test_what_was_learned_is_remembered_and_the_network_is_not_changed(self, name: str) -> None:
        net = CASES[name].other_net
        before = None if net is None else {key: value.clone() for key, value in net.state_dict().items()}
        learner = CASES[name].make(net)
        known = tensors(learner.update(*CASES[name].update(0)))
        assert not same(tensors(learner.update(*CASES[name].update(1))), known)
        assert len(learner.history) == len(learner.tasks) == 2
        if before is not None:
            assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())

    def test_an_update_that_fails_leaves_the_learner_as_it_was(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner, known, first = CASES[name].make(), None, CASES[name].update(0)
        for update in (first, CASES[name].update(1)):
            with monkeypatch.context() as patch:
                patch.setattr(continual, "learn", broken)
                with pytest.raises(RuntimeError, match=r"the fit broke"):
                    learner.update(*update)
            assert learner._known is known
            known = learner.update(*update)._known
        assert same(tensors(learner), tensors(learned_twice(name)))

    def test_an_update_that_is_interrupted_leaves_the_learner_as_it_was(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        learner = CASES[name].make().update(*CASES[name].update(0))
        known = learner._known
        with monkeypatch.context() as patch:
            patch.setattr(Bar, "__call__", interrupted)
            with pytest.raises(KeyboardInterrupt):
                learner.update(*CASES[name].update(1))
        assert learner._known is known
        assert same(tensors(learner.update(*CASES[name].update(1))), tensors(learned_twice(name)))

    def test_parts_of_the_uncertainty_sum_and_none_is_negative(self, name: str) -> None:
        learner = learned_twice(name)
        found = learner.uncertainty(numbers(9, 5), first_task(learner), draws=4)
        for part in found:
            assert part.shape == (9,)
            assert (part >= 0).all()
        np.testing.assert_allclose(found.total, found.aleatoric + found.epistemic, rtol=1e-12)

    def test_the_same_task_or_data_again_is_refused_unless_it_is_a_revisit(self, name: str) -> None:
        case = CASES[name]
        learner, (x, y, task) = case.make().update(*case.update(0)), case.update(0)
        known, order = learner._known, np.random.default_rng(0).permutation(len(x))
        with pytest.raises(VclError, match=r"revisit=True" if task is None else "'task 0' was learned before; give"):
            learner.update(x, y, task)
        other = None if task is None else "another"
        with pytest.raises(VclError, match=r"the data of '.* 1?0?', which would count twice"):
            learner.update(x[order].astype(np.float64), y[order], other)
        assert learner._known is known
        learner.update(x, y, task, revisit=True)
        assert len(learner.history) == 2
        assert sum(record.examples for record in learner._knows().tasks.values()) == 80

    def test_nothing_is_written_unless_it_is_asked_for(
        self, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        learner = CASES[name].make()
        learner.update(*CASES[name].update(0)).predict(numbers(3, 1))
        learner.save(tmp_path)
        assert capfd.readouterr() == ("", "")
        learner.verbose = 1
        learner.update(*CASES[name].update(1))
        out, line = capfd.readouterr()
        assert (out, line.count("\n")) == ("", 1)
        assert f"{learner.tasks[1]}: 40 examples, " in line

    def test_the_summary_names_what_was_learned(self, name: str) -> None:
        found = learned_twice(name).summary()
        size = learned_twice(name)._knows().state.propagated.layout.size
        assert f"{size:,} parameters with a posterior" in found
        assert "inputs [4] numbers, standardised" in found
        assert all(f"task {task}: 40 examples" in found for task in learned_twice(name).tasks)

    def test_what_is_known_may_fade(self, name: str) -> None:
        case = CASES[name]
        plain, learner = learned_twice(name), case.make().update(*case.update(0))
        learner.update(*case.update(1), forget=0.5)
        assert not same(tensors(learner), tensors(plain))
        assert np.isfinite(learner.uncertainty(numbers(5, 5), first_task(learner), draws=2).total).all()
        for share in (-0.1, 1, 1.5, float("nan"), "half", None, True):
            with pytest.raises(VclError, match=r"^forget is .*; give a share of the past from 0"):
                learner.update(*case.update(2), forget=share)

    def test_wrong_numbers_of_draws_are_refused(self, name: str) -> None:
        for draws in (0, -1, 2.5, "many", None):
            with pytest.raises(VclError, match=r"^draws is .*; give a whole number from 1"):
                learned(name).uncertainty(numbers(2, 1), draws=draws)

    def test_a_learner_of_the_other_kind_does_not_load(self, name: str, tmp_path: Path) -> None:
        learned(name).save(tmp_path)
        other = ContinualRegressor if isinstance(learned(name), ContinualClassifier) else ContinualClassifier
        with pytest.raises(VclError, match=f"holds a '{learned(name).KIND}', not a '{other.KIND}'"):
            other.load(tmp_path, small_net())


@pytest.mark.parametrize("name", ON_NETWORKS)
class TestLearnersOfNetworks:
    def test_the_exported_module_is_the_prediction_at_the_mean(self, name: str) -> None:
        learner = learned_twice(name)
        task, x = first_task(learner), numbers(9, 5)
        module = learner.export(task)
        q = learner._knows().state.predictive[learner._head_of(task)]
        rows = learner._rows(x)[0]
        params = {key: value[0] for key, value in q.layout.split(q.mean).items()}
        wanted = learner._model().outputs(params, rows, learner._head_of(task))
        if isinstance(learner, ContinualRegressor):
            scaling = learner._rescaling(learner._head_of(task))
            wanted = wanted if scaling is None else scaling.inverse(wanted)
        found = module(torch.from_numpy(x))
        torch.testing.assert_close(found, wanted.float(), rtol=1e-5, atol=1e-5)
        assert not any(value.requires_grad for value in module.parameters())

    def test_drawn_weights_load_into_the_exported_module(self, name: str) -> None:
        learner = learned_twice(name)
        task, x = first_task(learner), torch.from_numpy(numbers(9, 5))
        module, found = learner.export(task), learner.sample_posterior(3, task)
        at_mean = module(x)
        outputs = []
        for values in found:
            assert list(values) == list(module.state_dict())
            module.load_state_dict(values)
            outputs.append(module(x))
        assert len({*(float(each.sum()) for each in (*outputs, at_mean))}) == 4
        again = learner.sample_posterior(3, task)
        assert all(torch.equal(a[key], b[key]) for a, b in zip(found, again, strict=True) for key in a)
        for n in (0, 1.5, "a"):
            with pytest.raises(VclError, match=r"^n is "):
                learner.sample_posterior(n, task)


@pytest.mark.parametrize("name", ["classes structured shared", "numbers mean-field per-task"])
def test_torch_exports_the_module(name: str) -> None:
    learner = learned_twice(name)
    module, x = learner.export(first_task(learner)), torch.from_numpy(numbers(9, 5))
    torch.testing.assert_close(torch.export.export(module, (x,)).module()(x), module(x))


def broken(*_: object) -> Any:
    raise RuntimeError("the fit broke")


def interrupted(_: Bar, progress: Progress) -> None:
    if progress.epoch == 2:
        raise KeyboardInterrupt
