"""Masking: the budget, the rates, what is never touched, and where the randomness comes from."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from objectives import masking
from objectives.masking import MaskingConfig
from objectives.vocabulary import Vocabulary

PAD, UNK, CLS, SEP, MASK = range(5)
SIZE = 200
SPECIAL = np.arange(SIZE) < 5
CONTINUES = (np.arange(SIZE) >= 5) & (np.arange(SIZE) % 3 == 0)  # "##" pieces
VOCABULARY = Vocabulary(MASK, SPECIAL, ~CONTINUES, np.ones(SIZE, int), np.arange(SIZE))


def rows(count: int, length: int, seed: int = 0, lengths: np.ndarray | None = None) -> dict:
  """Rows of [CLS] A [SEP] B [SEP] and padding, with some [UNK] among the text."""
  rng = np.random.default_rng(seed)
  tokens = rng.integers(5, SIZE, (count, length))
  tokens[rng.random((count, length)) < 0.02] = UNK
  lengths = np.full(count, length) if lengths is None else lengths
  column = np.arange(length)
  tokens[:, 0] = CLS
  tokens[column == lengths[:, None] // 2] = SEP
  tokens[column == lengths[:, None] - 1] = SEP
  inside = column < lengths[:, None]
  return {
    "tokens": jnp.asarray(np.where(inside, tokens, PAD), jnp.int32),
    "sequence_ids": jnp.asarray(inside, jnp.int32),
    "row": jnp.arange(count, dtype=jnp.int32),
  }


@functools.partial(jax.jit, static_argnames=("whole_word", "max_sequences"))
def corrupt(key, batch, whole_word=False, max_sequences=1):
  return masking.corrupt(key, batch, VOCABULARY, MaskingConfig(whole_word=whole_word), max_sequences)


def targets_of(batch, corrupted) -> list[tuple[int, int, int, int]]:
  """(row, position, clean token, shown token) of every target."""
  found = []
  for row, (positions, weights) in enumerate(
    zip(*map(np.asarray, (corrupted.positions, corrupted.weights)), strict=True)
  ):
    for position in positions[weights > 0]:
      found.append((row, position, int(batch["tokens"][row, position]), int(corrupted.tokens[row, position])))
  return found


def test_budget_is_the_rounded_share_of_the_length_and_at_least_one():
  table = masking.budgets(512, 0.15)
  assert table[[0, 1, 5, 7, 64, 128, 512]].tolist() == [0, 1, 1, 1, 10, 19, 77]
  assert masking.max_targets(512, 0.15) == 77


def test_exactly_the_budget_is_chosen_in_every_row():
  lengths = np.random.default_rng(1).integers(20, 65, 256)
  batch = rows(256, 64, lengths=lengths)
  corrupted = corrupt(jax.random.key(0), batch)
  expected = np.maximum(1, np.round(lengths * 0.15))
  np.testing.assert_array_equal(corrupted.weights.sum(1), expected)
  np.testing.assert_array_equal(corrupted.shortfall, 0)


def test_rates_over_a_hundred_thousand_tokens_are_within_three_standard_errors():
  batch = rows(800, 128)  # 102,400 tokens
  corrupted = corrupt(jax.random.key(1), batch)
  clean, shown = np.asarray(batch["tokens"]), np.asarray(corrupted.tokens)
  candidates = ~SPECIAL[clean]
  used = np.asarray(corrupted.weights) > 0
  targets = np.zeros_like(clean, bool)
  targets[np.arange(800)[:, None].repeat(used.shape[1], 1)[used], np.asarray(corrupted.positions)[used]] = True
  count = targets.sum()
  assert count == 800 * 19
  masked, kept = (shown == MASK)[targets].mean(), (shown == clean)[targets].mean()
  same_by_chance = 0.1 / (SIZE - 5)
  for rate, expected in ((masked, 0.8), (kept, 0.1 + same_by_chance), (1 - masked - kept, 0.1 - same_by_chance)):
    assert abs(rate - expected) < 3 * np.sqrt(expected * (1 - expected) / count)
  # Replacements are uniform over ordinary tokens: chi-square within three standard deviations of its mean.
  replaced = np.bincount(shown[targets & (shown != MASK) & (shown != clean)], minlength=SIZE)
  expected = replaced.sum() / (SIZE - 5)
  chi = ((replaced[5:] - expected) ** 2 / expected).sum()
  assert abs(chi - (SIZE - 6)) < 3 * np.sqrt(2 * (SIZE - 6))
  # Every candidate position is as likely as any other.
  by_position = targets.sum(0)[candidates.mean(0) > 0.9]
  share = count / candidates.sum()
  sigma = np.sqrt(800 * share * (1 - share))
  assert (np.abs(by_position - by_position.mean()) < 4.5 * sigma).all()  # 125 positions: 4.5 is one in 1,000 for all


def test_special_tokens_and_padding_are_never_chosen_and_never_a_replacement():
  lengths = np.random.default_rng(2).integers(10, 129, 400)
  batch = rows(400, 128, lengths=lengths)
  for whole_word in (False, True):
    corrupted = corrupt(jax.random.key(2), batch, whole_word)
    found = targets_of(batch, corrupted)
    assert found
    assert not any(SPECIAL[clean] for _, _, clean, _ in found)
    assert not any(SPECIAL[shown] and shown != MASK for _, _, _, shown in found)
    untouched = np.asarray(batch["sequence_ids"]) == 0
    np.testing.assert_array_equal(np.asarray(corrupted.tokens)[untouched], PAD)


def test_only_targets_change():
  batch = rows(100, 64)
  corrupted = corrupt(jax.random.key(3), batch)
  changed = np.argwhere(np.asarray(corrupted.tokens != batch["tokens"]))
  targets = {(row, position) for row, position, _, _ in targets_of(batch, corrupted)}
  assert {tuple(x) for x in changed} <= targets
  for row, position, clean, _ in targets_of(batch, corrupted):
    slot = list(np.asarray(corrupted.positions[row])).index(position)
    assert int(corrupted.targets[row, slot]) == clean


def test_every_key_gives_other_masks_and_the_same_key_the_same():
  batch = rows(50, 64)
  one, again, two = (corrupt(jax.random.key(seed), batch) for seed in (4, 4, 5))
  np.testing.assert_array_equal(one.tokens, again.tokens)
  overlap = np.mean([len(set(a.tolist()) & set(b.tolist())) for a, b in zip(one.positions, two.positions, strict=True)])
  assert overlap < 4  # two independent choices of 10 in 61 share 1.6 on average


def test_a_row_is_corrupted_the_same_in_any_batch():
  batch = rows(16, 64)
  whole = corrupt(jax.random.key(6), batch)
  part = corrupt(jax.random.key(6), {name: value[5:9] for name, value in batch.items()})
  for a, b in zip(whole, part, strict=True):
    np.testing.assert_array_equal(a[5:9], b)


def greedy(scores, starts, sizes, budget) -> set[int]:
  """The original's loop: units in random order, each taken if it fits what is left."""
  chosen, left = set(), budget
  for unit in np.argsort(scores, kind="stable"):
    if sizes[unit] <= left:
      left -= sizes[unit]
      chosen |= set(range(starts[unit], starts[unit] + sizes[unit]))
  return chosen


def test_whole_words_are_chosen_whole_exactly_as_the_one_by_one_loop_does():
  batch = rows(60, 96, seed=7)

  @jax.jit
  @functools.partial(jax.vmap, in_axes=(None, 0, 0, 0))
  def choose(key, row, tokens, sequence_ids):
    key = jax.random.fold_in(key, row)
    units = masking.unit_starts(tokens, sequence_ids, VOCABULARY, whole_word=True)
    chosen = masking.choose(key, units, sequence_ids, MaskingConfig(whole_word=True))
    return *chosen, units.size, jax.random.uniform(key, (96,))

  drawn = choose(jax.random.key(7), batch["row"], batch["tokens"], batch["sequence_ids"])
  for tokens, chosen, shortfall, size, scores in zip(batch["tokens"], *map(np.asarray, drawn), strict=True):
    starts = np.flatnonzero(size > 0)
    sizes, scores = size[starts], scores[starts]
    expected = greedy(scores, starts, sizes, 14)
    assert set(np.flatnonzero(chosen)) == expected
    assert int(shortfall) == 14 - len(expected)
    clean = np.asarray(tokens)
    for position in expected:  # a chosen piece takes the word's other pieces with it
      if position + 1 < 96 and CONTINUES[clean[position + 1]]:
        assert position + 1 in expected


def test_whole_words_by_hand():
  # [CLS] a ##b c [SEP] d ##e ##f [SEP]: words are {1,2} {3} {5,6,7}; a piece after a special token begins a word.
  tokens = jnp.asarray([CLS, 7, 9, 8, SEP, 12, 15, 18, SEP])
  units = masking.unit_starts(tokens, jnp.ones(9, jnp.int32), VOCABULARY, whole_word=True)
  assert units.size.tolist() == [0, 2, 0, 1, 0, 3, 0, 0, 0]
  assert np.asarray(units.start)[np.asarray(units.candidate)].tolist() == [1, 1, 3, 5, 5, 5]


def test_every_packed_sequence_has_its_own_budget():
  sequence_ids = np.repeat([1, 2, 3, 0], [40, 20, 30, 10])
  tokens = np.random.default_rng(8).integers(5, SIZE, (30, 100))
  tokens[:, [0, 39, 40, 59, 60, 89]] = SEP
  batch = {
    "tokens": jnp.asarray(np.where(sequence_ids > 0, tokens, PAD), jnp.int32),
    "sequence_ids": jnp.broadcast_to(jnp.asarray(sequence_ids, jnp.int32), (30, 100)),
    "row": jnp.arange(30),
  }
  corrupted = corrupt(jax.random.key(8), batch, max_sequences=3)
  for row in range(30):
    positions = np.asarray(corrupted.positions[row])[np.asarray(corrupted.weights[row]) > 0]
    assert np.bincount(sequence_ids[positions], minlength=4).tolist() == [0, 6, 3, 4]  # round(.15 × 40, 20, 30)


def test_a_sequence_with_too_few_candidates_reports_its_shortfall():
  tokens = jnp.asarray([[CLS, 9, SEP] + [UNK] * 17], jnp.int32)
  corrupted = corrupt(
    jax.random.key(9), {"tokens": tokens, "sequence_ids": jnp.ones_like(tokens), "row": jnp.arange(1)}
  )
  assert float(corrupted.weights.sum()) == 1
  assert float(corrupted.shortfall[0]) == 2  # the budget of 20 tokens is 3


@pytest.mark.parametrize("fields", [{"rate": 0.0}, {"rate": 1.0}, {"mask": 0.9, "random": 0.2}, {"random": -0.1}])
def test_impossible_rates_are_refused(fields):
  with pytest.raises(ValueError, match=r"objective\.masking"):
    MaskingConfig(**fields)
