"""Several models as one, by hand."""

import numpy as np
import pytest

from scores import ensembles


def test_probabilities_and_numbers_are_averaged():
  found = ensembles.mean([[[0.9, 0.1], [0.4, 0.6]], [[0.3, 0.7], [0.2, 0.8]]])
  np.testing.assert_allclose(found, [[0.6, 0.4], [0.3, 0.7]])
  np.testing.assert_allclose(ensembles.mean([[1.0, 5.0], [2.0, 3.0]]), [1.5, 4.0])


def test_votes_and_ties():
  models = [["a", "x", "b"], ["b", "y", "c"], ["b", "z", "b"]]
  assert ensembles.vote(models) == ["b", "x", "b"]  # three candidates with a vote each: the first model's


def test_texts_by_mean_probability():
  one = {"q": [("Rollo", 0.5), ("Norse", 0.3), ("", 0.2)]}
  two = {"q": [("Norse leader", 0.6), ("Norse", 0.4)]}
  found = ensembles.mean_nbest([one, two])["q"]
  assert [text for text, _ in found] == ["Norse", "Norse leader", "Rollo", ""]
  assert [p for _, p in found] == pytest.approx([0.35, 0.3, 0.25, 0.1])
  assert ensembles.mean_nbest([one, two], n_best=1)["q"] == [found[0]]


def test_equal_texts_stay_in_the_models_order():
  found = ensembles.mean_nbest([{"q": [("a", 0.5)]}, {"q": [("b", 0.5)]}])
  assert [text for text, _ in found["q"]] == ["a", "b"]


def test_odds_are_averaged():
  assert ensembles.mean_odds([{"a": 1.0, "b": -4.0}, {"b": 2.0, "a": 0.0}]) == {"a": 0.5, "b": -1.0}


@pytest.mark.parametrize(
  ("call", "said"),
  [
    (lambda: ensembles.mean([[0.1, 0.9], [0.1]]), r"of one shape are needed, not \(2,\), \(1,\)"),
    (lambda: ensembles.mean_odds([{"a": 1.0}, {"b": 1.0}]), "model 2 and model 1 answer different questions: a"),
    (lambda: ensembles.mean_nbest([{}, {"b": []}]), "b is only in one"),
  ],
)
def test_models_must_answer_the_same(call, said):
  with pytest.raises(ValueError, match=said):
    call()
