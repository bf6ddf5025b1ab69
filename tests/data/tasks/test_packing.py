"""Batches: every unit once an epoch, packed into the least shape, each sequence as it was alone."""

import numpy as np
import pytest

from data.rows import padded
from data.tasks import packing
from data.tasks.examples import ChoiceExample, TagExample, TextExample
from data.tasks.features import build
from data.tasks.flat import IGNORED
from data.tasks.packing import TaskSource, evaluation_batches, first_fit, levels
from data.tasks.table import TASKS, custom
from tests.data.tasks import small

LENGTH = 24


def texts(count: int) -> list[TextExample]:
  rng = np.random.default_rng(1)
  return [
    TextExample(str(i), (" ".join(rng.choice(small.WORDS[:9], rng.integers(1, 20))),), "ab"[i % 2])
    for i in range(count)
  ]


def features_of(kind: str, family: str = "bert", count: int = 50):
  tokenizer = small.TOKENIZERS[family]()
  if kind == "classification":
    return build(custom(kind, labels=("a", "b")), texts(count), tokenizer, LENGTH)
  if kind == "regression":
    some = [TextExample(e.id, e.texts, float(e.id) / 4 if int(e.id) % 3 else None) for e in texts(count)]
    return build(custom(kind), some, tokenizer, LENGTH)
  if kind == "choice":
    some = [e.texts[0] for e in texts(count)]
    examples = [ChoiceExample(str(i), some[i], tuple(some[: 2 + i % 3]), i % 2) for i in range(count)]
    return build(custom(kind), examples, tokenizer, LENGTH)
  if kind == "tagging":
    tags = TASKS["conll2003"].labels
    words = [tuple(e.texts[0].split()) for e in texts(count)]
    some = [TagExample(str(i), w, tuple(tags[(i + j) % 9] for j in range(len(w)))) for i, w in enumerate(words)]
    return build(TASKS["conll2003"], some, tokenizer, LENGTH)
  return build(TASKS["squad2"], small.questions(count, words=12), tokenizer, LENGTH, doc_stride=5)


def taken(batch) -> np.ndarray:
  return batch["sequences"][batch["sequences"] >= 0]


def test_the_longest_goes_first_into_the_first_row_with_room():
  assert first_fit([3, 9, 5, 7, 2, 4], room=10, most=9) == [1, 0, 2, 1, 3, 2]
  assert first_fit([1] * 5, room=10, most=2) == [0, 0, 1, 1, 2]
  assert first_fit([], room=10, most=2) == []


def test_the_shapes_waste_least():
  assert levels(np.array([3, 3, 4, 5, 5]), 32) == [3, 4, 5, 32]
  # Of 1, 2, 8, 9 and 10 three can be had: two ways leave an excess of 4, all others more.
  assert levels(np.array([1, 1, 1, 2, 8, 9, 9, 10]), 99) in ([2, 9, 10, 99], [1, 2, 10, 99])
  assert levels(np.array([7, 7]), 7) == [7]


def test_a_shape_that_saves_next_to_nothing_is_not_compiled():
  assert levels(np.array([99, 100, 100, 100, 101]), 101) == [101]
  assert levels(np.array([50, 99, 100, 100, 100]), 101) == [50, 101]


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("batch_size", [1, 8, 12, 50, 64])
def test_every_unit_comes_once_an_epoch_in_another_order(batch_size, pack):
  features = features_of("classification")
  source = TaskSource(features, LENGTH, batch_size, seed=5, pack=pack)
  steps = 2 * 50 // batch_size + 1
  units = np.concatenate([source.units(step) for step in range(steps)])
  assert sorted(units[:50]) == sorted(units[50:100]) == list(range(50))
  assert units[:50].tolist() != units[50:100].tolist()
  for step in range(steps):
    assert sorted(taken(source.batch(step))) == sorted(source.units(step))
  other = TaskSource(features, LENGTH, batch_size, seed=6)
  assert np.concatenate([other.units(step) for step in range(steps)])[:50].tolist() != units[:50].tolist()


def test_few_units_and_many_come_once_an_epoch(monkeypatch):
  for few in (50, 49):
    monkeypatch.setattr(packing, "_FEW", few)
    source = TaskSource(features_of("classification"), LENGTH, 8, seed=5)
    units = np.concatenate([source.units(step) for step in range(25)]).reshape(4, 50)
    assert (np.sort(units, axis=1) == np.arange(50)).all()
    assert len(np.unique(units, axis=0)) == 4


def test_every_order_of_few_units_is_as_likely():
  source = TaskSource(features_of("classification", count=3), LENGTH, 3 * 6000, seed=5)
  _, found = np.unique(source.units(0).reshape(-1, 3), axis=0, return_counts=True)
  assert len(found) == 6
  assert ((found - 1000) ** 2 / 1000).sum() < 20.5  # of chi squared with 5 degrees of freedom one in 1,000 is above


def test_a_batch_is_the_same_whenever_it_is_made():
  features = features_of("choice")
  batch = TaskSource(features, LENGTH, 8, seed=5).batch(11)
  again = list(packing.batches(TaskSource(features_of("choice"), LENGTH, 8, seed=5), 9, 13))[2]
  assert batch.keys() == again.keys()
  for name, values in batch.items():
    np.testing.assert_array_equal(values, again[name], err_msg=name)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("family", ["bert", "xlnet"])
@pytest.mark.parametrize("kind", ["classification", "regression", "choice", "tagging", "span"])
def test_each_sequence_lies_in_its_row_as_it_was_alone(kind, family, pack, parts):
  features = features_of(kind, family)
  source = TaskSource(features, LENGTH, 8, seed=5, pack=pack, parts=parts)
  for step in range(4):
    batch = source.batch(step)
    assert batch["tokens"].shape in source.shapes
    assert all(len(values) == len(batch["tokens"]) for values in batch.values())
    units = source.units(step)
    wanted = [s for unit in units for s in range(features.units[unit], features.units[unit + 1])]
    assert sorted(taken(batch)) == sorted(wanted)
    for row, slot in zip(*np.nonzero(batch["sequences"] >= 0), strict=True):
      sequence = batch["sequences"][row, slot]
      own = features.slice(sequence)
      at = np.flatnonzero(batch["sequence_ids"][row] == slot + 1)
      np.testing.assert_array_equal(np.diff(at), 1)
      np.testing.assert_array_equal(batch["tokens"][row, at], features.tokens[own])
      np.testing.assert_array_equal(batch["segment_ids"][row, at], features.segment_ids[own])
      cls = at[-1] if features.cls_last else at[0]
      assert batch["cls_positions"][row, slot] == cls
      example = features.example[sequence]
      if kind == "tagging":
        np.testing.assert_array_equal(batch["targets"][row, at], features.targets[own])
      elif kind == "span":
        first, last = features.answers[sequence] + at[0]
        assert (batch["start_positions"][row, slot], batch["end_positions"][row, slot]) == (first, last)
        assert batch["no_answer"][row, slot] == (first == cls)
        assert batch["weights"][row, slot] == 1
        np.testing.assert_array_equal(batch["allowed"][row, at], features.allowed[own])
      elif kind == "choice":
        assert batch["weights"][row, slot] == (sequence - features.first[example] == features.labels[example])
        alike = batch["groups"] == batch["groups"][row, slot]
        same_part = np.arange(len(alike))[:, None] % parts == row % parts
        options = batch["sequences"][alike & same_part]
        assert sorted(options) == list(range(features.first[example], features.first[example + 1]))
        assert 0 <= batch["groups"][row, slot] < 8 // parts
      else:
        known = not np.isnan(features.labels[example])
        assert batch["weights"][row, slot] == known
        assert batch["labels"][row, slot] == (features.labels[example] if known else 0)
        assert batch["labels"].dtype == features.labels.dtype
    empty, padding = batch["sequences"] < 0, batch["sequence_ids"] == 0
    assert (batch["tokens"][padding] == features.pad_id).all()
    assert (batch["segment_ids"][padding] == (4 if features.cls_last else 0)).all()
    if kind == "tagging":
      assert (batch["targets"][padding] == IGNORED).all()
    else:
      assert (batch["weights"][empty] == 0).all()
    if kind == "choice":
      assert (batch["groups"][empty] == -1).all()
    if kind == "span":
      assert not batch["allowed"][padding].any()


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_an_unpacked_batch_is_padded_on_its_familys_side(family):
  features, tokenizer = features_of("classification", family), small.TOKENIZERS[family]()
  source = TaskSource(features, LENGTH, 8, pack=False)
  batch = source.batch(0)
  order = batch["sequences"][:, 0]
  rows = [features.tokens[features.slice(s)] for s in order]
  segments = [features.segment_ids[features.slice(s)] for s in order]
  expected = padded(tokenizer, rows, segments, batch["tokens"].shape[1])
  for name, values in expected.items():
    np.testing.assert_array_equal(batch[name], values, err_msg=name)


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("kind", ["classification", "choice", "span"])
def test_four_shapes_hold_any_batch_even_of_the_longest(kind, pack):
  features = features_of(kind)
  tokens = np.add.reduceat(features.lengths, features.units[:-1])
  for batch_size, parts, devices in ((1, 1, 1), (8, 1, 1), (8, 2, 2), (16, 4, 1)):
    source = TaskSource(features, LENGTH, batch_size, pack=pack, parts=parts, row_parts=devices)
    assert len(source.shapes) <= 4
    assert all(rows % (parts * devices) == 0 and length <= LENGTH for rows, length in source.shapes)
    for units in (np.argsort(tokens)[-batch_size:], np.repeat(tokens.argmax(), batch_size)[: len(tokens)]):
      assert source.make(units)["tokens"].shape in source.shapes


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("kind", ["classification", "choice"])
@pytest.mark.parametrize("count", [1, 3, 15])
def test_four_shapes_hold_a_batch_of_several_epochs(count, kind, pack):
  features = features_of(kind, count=count)
  epochs = [np.random.default_rng(i).permutation(len(features.units) - 1) for i in range(100)]
  for length in (int(features.lengths.max()), LENGTH):  # rows that hold one sequence, and several
    for batch_size, parts in ((2, 1), (8, 1), (8, 2), (24, 4)):
      source = TaskSource(features, length, batch_size, pack=pack, parts=parts)
      for step in range(4):
        units = np.concatenate(epochs)[step * batch_size :][:batch_size]
        batch = source.make(units)
        assert batch["tokens"].shape in source.shapes
        assert len(taken(batch)) == sum(np.diff(features.units)[units])


def test_packing_leaves_little_padding():
  features = features_of("classification", count=400)
  source = TaskSource(features, LENGTH, 40)
  batches = [source.batch(step) for step in range(10)]
  used = sum((batch["sequence_ids"] > 0).sum() for batch in batches)
  assert used / sum(batch["tokens"].size for batch in batches) > 0.85
  assert sum(batch["tokens"].size for batch in batches) < 0.7 * 400 * LENGTH


@pytest.mark.parametrize("batch_size", [7, 16, 60])
def test_evaluation_takes_every_unit_once_in_order(batch_size):
  features = features_of("span", count=20)
  source = TaskSource(features, LENGTH, batch_size)
  batches = list(evaluation_batches(source))
  assert len(batches) == source.num_batches == -(-features.num_sequences // batch_size)
  found = [np.sort(taken(batch)) for batch in batches]
  np.testing.assert_array_equal(np.concatenate(found), np.arange(features.num_sequences))
  assert sum(batch["weights"].sum() for batch in batches) == features.num_sequences
  assert len(list(evaluation_batches(source, 1))) == 1


def test_processes_take_their_rows_of_the_same_batch():
  source = TaskSource(features_of("choice"), LENGTH, 8, seed=5, row_parts=4)
  whole = source.batch(3)
  shares = [
    next(packing.batches(source, 3, 4, lambda rows, i=i: slice(rows // 4 * i, rows // 4 * (i + 1)))) for i in range(4)
  ]
  for name, values in whole.items():
    np.testing.assert_array_equal(np.concatenate([share[name] for share in shares]), values)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"length": 8}, "length=8 is shorter than a sequence of"),
    ({"batch_size": 9, "parts": 2}, "batch_size=9 does not divide into accumulate=2"),
    ({"batch_size": 0}, "batch_size=0"),
    ({"seed": -1}, "seed=-1 must lie in"),
  ],
)
def test_impossible_settings_are_named(change, message):
  with pytest.raises(ValueError, match=message):
    TaskSource(features_of("classification"), **{"length": LENGTH, "batch_size": 8} | change)
