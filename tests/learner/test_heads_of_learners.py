"""Heads of learners: shared or one for each task, inferred tasks, and classes that come later."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from own_data import classes_of, classifier, fit, numbers, regressor, small_net, targets_of, whole_net
from vcl.errors import VclError
from vcl.learner import ContinualClassifier
from vcl.learner.continual_classifier import _entropy, _surest

CENTRES = np.array([[3, 0, 0, 0], [-3, 0, 0, 0], [0, 3, 0, 0], [0, -3, 0, 0], [0, 0, 3, 0.0]])


def clouds(classes: tuple[int, ...], n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points around a centre of each class."""
    y = np.array(classes)[np.arange(n) % len(classes)]
    return CENTRES[y] + 0.6 * np.random.default_rng(seed).normal(size=(n, 4)), y


METHODS = ("structured", "mean-field", "laplace", "generative")


def test_generators_take_a_narrow_table_of_numbers_from_0_to_1() -> None:
    """It is standardised, so its numbers are no longer grey values."""
    x = np.random.default_rng(0).random((60, 3))
    y = (x[:, 0] > 0.5).astype(int)
    learner = classifier(None, method="generative", epochs=20).update(x, y)
    assert (learner.predict(x) == y).mean() > 0.7


class TestClassesThatComeLater:
    def test_an_update_without_any_old_class_is_warned_about_unless_old_examples_are_kept(self) -> None:
        learner = classifier(**fit("structured", standardize=False)).update(*clouds((0, 1)))
        with pytest.warns(UserWarning, match="it will forget those. Keep some"):
            learner.update(*clouds((2, 3), seed=1))
        assert learner.history[-1].lost > 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learner.update(*clouds((3, 4), seed=2))
            classifier(memory=5, **fit("structured", standardize=False)).update(*clouds((0, 1))).update(
                *clouds((2, 3), seed=1)
            )
            per_task = classifier(**fit("structured", standardize=False)).update(*clouds((0, 1)), task="a")
            per_task.update(*clouds((2, 3), seed=1), task="b")

    @pytest.mark.parametrize("method", METHODS)
    def test_they_are_learned_and_the_others_keep_their_places(self, method: str) -> None:
        learner = classifier(None if method == "generative" else small_net(), **fit(method, standardize=False))
        learner.update(*clouds((1, 0)))
        assert learner.classes() == (0, 1)
        learner.update(*clouds((4, 2, 1), seed=1))
        assert learner.classes() == (0, 1, 2, 4)
        x, y = clouds((2, 4), 20, 5)
        assert (learner.predict(x) == y).mean() > 0.9
        assert learner.predict_proba(x).shape == (20, 4)

    @pytest.mark.parametrize("head", ["new", "own"])
    @pytest.mark.parametrize("method", ["structured", "mean-field", "laplace"])
    def test_old_outputs_keep_their_values_at_that_moment(self, method: str, head: Any) -> None:
        """The belief that the second fit starts from, with the new outputs, at the mean."""
        net = small_net() if head == "new" else whole_net()
        learner = classifier(net, **fit(method, epochs=3, head=head)).update(*clouds((0, 1)))
        model, q = learner._model(), learner._knows().state.propagated
        grown, rows = q.grow(model.prior({"all": 4})), learner._rows(clouds((0, 1))[0])[0]
        values = [{name: value[0] for name, value in each.layout.split(each.mean).items()} for each in (q, grown)]
        # By sums, whose rounding does not depend on the number of outputs.
        before, after = (
            (model._features(each, rows).unsqueeze(1) * each["heads.all.weight"]).sum(-1) + each["heads.all.bias"]
            for each in values
        )
        assert before.shape == (60, 2)
        assert before.std() > 0.01
        assert torch.equal(after[:, :2], before)

    def test_labels_in_another_order_name_the_same_outputs(self) -> None:
        learner = classifier().update(numbers(), np.array(["b", "a"])[classes_of(numbers())])
        learner.update(numbers(seed=1), np.array(["c", "a"])[classes_of(numbers(seed=1))])
        assert learner.classes() == ("a", "b", "c")

    def test_a_single_class_at_first_is_certain_and_a_second_one_may_follow(self) -> None:
        for method in METHODS:
            net = None if method == "generative" else small_net()
            learner = classifier(net, **fit(method, standardize=False))
            learner.update(*clouds((1,)))
            x, y = clouds((1, 2), 20, 3)
            assert np.array_equal(learner.predict_proba(x), np.ones((20, 1)))
            assert np.array_equal(learner.predict(x), np.ones(20))
            assert not learner.uncertainty(x, draws=3).total.any()
            learner.update(*clouds((1, 2), seed=1))
            assert (learner.predict(x) == y).mean() > 0.9

    def test_the_last_layer_of_a_network_has_the_classes_of_its_places(self) -> None:
        learner = classifier(whole_net(outputs=3), head="own").update(*clouds((0, 2)))
        assert learner.classes() == (0, 1, 2)
        with pytest.warns(UserWarning, match=r"no example of the 3 classes, 0, 1, 2 that this head"):
            learner.update(*clouds((4, 3), seed=1))
        assert learner.classes() == (0, 1, 2, 3, 4)
        x, y = clouds((0, 2))
        with pytest.raises(
            VclError,
            match=r"the last layer of the network has 3 outputs, and the labels are .*; say which output is which",
        ):
            classifier(whole_net(outputs=3), head="own").update(x, np.array(["a", "", "c"])[y])
        with pytest.raises(VclError, match=r"has 3 outputs, and 2 classes are given; name one class for each output"):
            classifier(whole_net(outputs=3), head="own", classes=["a", "c"]).update(x, np.array(["a", "", "c"])[y])
        with pytest.raises(
            VclError, match=r"has 3 outputs, which are the classes 0 to 2, and there are the labels \[3\]; relabel them"
        ):
            classifier(whole_net(outputs=3), head="own").update(*clouds((1, 2, 3)))
        from_one = classifier(whole_net(outputs=3), head="own", classes=[1, 2, 3]).update(*clouds((1, 2, 3)))
        assert from_one.classes() == (1, 2, 3)
        named = classifier(whole_net(outputs=3), head="own", classes=["a", "b", "c"])
        assert named.update(x, np.array(["a", "b", "c"])[y]).classes() == ("a", "b", "c")
        with pytest.raises(
            VclError, match=r"the last layer of the network has 2 outputs, and one target of this likelihood need 1"
        ):
            regressor(whole_net(), head="own").update(x, y * 1.0)


class TestHeadsOfOneClass:
    def test_they_are_warned_about_and_do_not_win_the_inference(self) -> None:
        learner = classifier(**fit("structured", standardize=False)).update(*clouds((0, 1)), task="two")
        with pytest.warns(UserWarning, match=r"head of 'one' has a single class, 2, .* use heads='shared'") as seen:
            learner.update(*clouds((2,), seed=1), task="one")
        assert seen[0].filename == __file__
        learner.update(*clouds((3, 4), seed=2), task="more")
        x, y = clouds((0, 1), 40, 7)
        assert set(learner.infer_task(x)) <= {"two", "more"}
        assert (learner.predict(x) == y).mean() > 0.8
        p = learner.predict_proba(x)
        assert p.shape == (40, 5)
        assert not p[:, 2].any()
        assert learner.uncertainty(x).total.min() > 0
        assert set(learner.predict(x, "one").tolist()) == {2}

    def test_without_another_head_there_is_nothing_to_infer_by(self) -> None:
        learner = classifier(standardize=False)
        for place, task in enumerate(("a", "b")):
            with pytest.warns(UserWarning, match="has a single class"):
                learner.update(*clouds((place,), seed=place), task=task)
            assert set(learner.predict(numbers(), task).tolist()) == {place}
        for ask in (learner.predict, learner.infer_task, learner.uncertainty):
            with pytest.raises(VclError, match=r"tasks a, b have a single class each, .*; name the task, or begin"):
                ask(numbers())

    def test_a_head_of_more_classes_is_not_less_sure_by_their_number(self) -> None:
        """Entropies count as shares of that of as many alike classes: 0.64 of log 8 is surer than 0.72 of log 2."""
        two, eight = np.array([[0.8, 0.2]]), np.array([[0.65, *[0.05] * 7]])
        np.testing.assert_allclose([_entropy(two), _entropy(eight)], [[0.7219281], [0.6388808]], rtol=1e-6)
        alike = [np.full((1, classes), 1 / classes) for classes in (2, 8)]
        np.testing.assert_allclose([_entropy(p) for p in alike], 1)
        assert _surest([two, eight]).tolist() == [1]


class TestTasks:
    def two(self, **settings: Any) -> ContinualClassifier:
        learner = classifier(**fit("structured", **{"standardize": False, **settings})).update(
            *clouds((0, 1)), task="first"
        )
        return learner.update(*clouds((2, 3), seed=1), task="second")

    def test_named_tasks_have_heads_of_their_own_and_the_task_is_inferred(self) -> None:
        learner = self.two()
        assert learner.tasks == ("first", "second")
        assert learner.classes("first") == (0, 1)
        assert learner.classes() == (0, 1, 2, 3)
        x, y = clouds((2, 3), 20, 5)
        assert (learner.predict(x, "second") == y).mean() > 0.9
        assert set(learner.predict(x, "first").tolist()) <= {0, 1}
        assert learner.predict_proba(x, "first").shape == (20, 2)
        guessed, p = learner.infer_task(x), learner.predict_proba(x)
        assert p.shape == (20, 4)
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-6)
        for place, task in enumerate(("first", "second")):
            mine = guessed == task
            others = [2, 3] if place == 0 else [0, 1]
            assert not p[mine][:, others].any()
            assert np.array_equal(learner.predict(x)[mine], learner.predict(x, task)[mine])
            assert np.array_equal(learner.uncertainty(x).total[mine], learner.uncertainty(x, task).total[mine])

    def test_one_head_for_named_tasks(self) -> None:
        learner = self.two(heads="shared", memory=20)
        assert learner.classes("first") == learner.classes() == (0, 1, 2, 3)
        x, y = clouds((0, 1, 2, 3), 40, 5)
        assert (learner.predict(x) == y).mean() > 0.8
        with pytest.raises(VclError, match=r"all updates share one head, which does not tell tasks apart"):
            learner.infer_task(x)

    def test_tasks_that_are_not_known_and_names_that_cannot_be(self) -> None:
        learner = self.two(epochs=1)
        x = numbers(5)
        for ask in (learner.predict, learner.uncertainty, learner.predict_draws):
            with pytest.raises(VclError, match=r"unknown task 'third'; accepted: first, second"):
                ask(x, "third")
        for ask in (learner.export, learner.classes, learner.forget):
            with pytest.raises(VclError, match=r"unknown task 'fist': did you mean 'first'"):
                ask("fist")
        with pytest.raises(
            VclError, match=r"there is a head for each of the tasks first, second; give one, as in task='first'"
        ):
            learner.export()
        for task in (3, "", ["a"], True):
            with pytest.raises(VclError, match=r"^task is .*; give its name as a string that is not empty"):
                learner.update(x, [0, 1] * 2 + [0], task=task)  # type: ignore[arg-type]
        with pytest.raises(VclError, match=r"task is 'all', which is the name of the shared head"):
            learner.update(x, [0, 1] * 2 + [0], task="all")

    def test_names_and_no_names_do_not_mix(self) -> None:
        x, y = clouds((0, 1), 20, 9)
        with pytest.raises(
            VclError, match=r"this learner has heads for the tasks first, second; update it with the name of a task"
        ):
            self.two(epochs=1).update(x, y)
        with pytest.raises(VclError, match=r"this learner has one head for all updates; update it without task"):
            classifier().update(x, y).update(x + 1, y, task="a")
        with pytest.raises(VclError, match=r"every task has a head of its own here; name the task"):
            classifier(heads="per-task").update(x, y)

    def test_updates_without_a_name_are_numbered_past_names_that_are_taken(self) -> None:
        learner = classifier(heads="shared").update(*clouds((0, 1)), task="update 2").update(*clouds((0, 1), seed=1))
        assert learner.tasks == ("update 2", "update 3")

    @pytest.mark.parametrize("name", ["a.b", "a/b", "heads.x", "trunk.", "é ñ", "weight", "0"])
    def test_any_name_will_do(self, name: str, tmp_path: Any) -> None:
        learner = regressor().update(numbers(), targets_of(numbers()), task=name)
        learner.update(numbers(seed=1), targets_of(numbers(seed=1)), task="other").save(tmp_path)
        loaded = type(learner).load(tmp_path, small_net(), device="cpu", verbose=0)
        assert np.array_equal(loaded.predict(numbers(), name), learner.predict(numbers(), name))
        assert learner.sample_posterior(1, name)[0].keys() == learner.export(name).state_dict().keys()

    def test_nothing_learned_yet(self) -> None:
        for ask in ("predict", "predict_proba", "uncertainty", "predict_draws", "infer_task", "log_evidence"):
            with pytest.raises(VclError, match=r"nothing has been learned yet; call update\(x, y\) first"):
                getattr(classifier(), ask)(numbers())
        for ask in ("summary", "export", "classes"):
            with pytest.raises(VclError, match=r"nothing has been learned yet"):
                getattr(classifier(), ask)()
        assert (classifier().tasks, classifier().history) == ((), ())

    def test_only_generators_have_a_model_of_the_inputs(self) -> None:
        learner = classifier(method="generative", epochs=20, standardize=False).update(*clouds((0, 1)))
        assert (
            learner.log_evidence(numbers(20, 3) * 0.5 + CENTRES[0]).mean()
            > learner.log_evidence(numbers(20) + 20).mean()
        )
        with pytest.raises(VclError, match=r"method 'structured' has no model of the inputs; use method='generative'"):
            classifier().update(*clouds((0, 1))).log_evidence(numbers())
        with pytest.raises(VclError, match=r"a classifier of generators is no single module; use predict_proba"):
            learner.export()
