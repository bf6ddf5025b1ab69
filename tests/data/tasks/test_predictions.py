"""What is said of rows finds its way back to the example, packed or not."""

import numpy as np
import pytest

from data.tasks import predictions
from data.tasks.packing import TaskSource
from tests.data.tasks.test_packing import LENGTH, features_of


def said(features, pack: bool, by_token: bool):
  """Each sequence is said to be its number, each token its place in the flat arrays."""
  source = TaskSource(features, LENGTH, 8, pack=pack)
  found = {}
  for step in range(source.num_batches):
    batch = source.evaluation(step)
    if not by_token:
      found |= predictions.of_slots(batch, np.stack([batch["sequences"], -batch["sequences"]], axis=2))
      continue
    starts = np.where(batch["sequences"] >= 0, features.starts[batch["sequences"]], 0)
    slot = np.maximum(batch["sequence_ids"] - 1, 0)
    rows = np.arange(len(slot))[:, None]
    place = np.arange(slot.shape[1]) - predictions.first_tokens(batch)[rows, slot] + starts[rows, slot]
    found |= predictions.of_tokens(batch, place)
  return found


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_sequences_and_options_are_found_again(family, pack):
  features = features_of("regression", family)
  result = predictions.of_examples(features, said(features, pack, by_token=False))
  assert [x.tolist() for x in result] == [[i, -i] for i in range(50)]
  features = features_of("choice", family)
  result = predictions.of_examples(features, said(features, pack, by_token=False))
  assert [len(x) for x in result] == [2 + i % 3 for i in range(50)]
  assert np.concatenate(result)[:, 0].tolist() == list(range(features.num_sequences))


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_words_are_found_again(family, pack):
  features = features_of("tagging", family)
  result = predictions.of_examples(features, said(features, pack, by_token=True))
  first_pieces = np.flatnonzero(features.words >= 0)
  np.testing.assert_array_equal(np.concatenate(result), first_pieces)
  numbers = [features.words[x] for x in result]
  assert all(x.tolist() == list(range(len(x))) for x in numbers)
  with pytest.raises(ValueError, match="nothing was said of 1 of"):
    predictions.of_examples(features, dict(list(said(features, pack, by_token=True).items())[1:]))


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_windows_are_found_again(family, pack):
  features = features_of("span", family, count=12)
  found = said(features, pack, by_token=True)
  for example in range(12):
    windows = predictions.window_arrays(features, example)
    places = predictions.padded(found, features, example, fill=-1)
    assert places.shape == windows.begins.shape
    assert ((places >= 0) == windows.real).all()
    own = places[windows.real]
    np.testing.assert_array_equal(windows.begins[windows.real], features.spans[own, 0])
    np.testing.assert_array_equal(windows.ends[windows.real], features.spans[own, 1])
    np.testing.assert_array_equal(windows.is_max_context[windows.real], features.max_context[own])
    assert (windows.begins[~windows.real] == -1).all()
