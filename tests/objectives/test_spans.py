"""Span targets: the original's walk step by step, sizes, budgets, borders, and words in either direction."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from objectives import ngrams, spans

LENGTH = 60


def texts(count: int, length: int = LENGTH, seed: int = 0, joined: float = 0.4, special: float = 0.05):
  """(starts, candidate), bool [count, length]: words of a few pieces, and some special pieces, which stand alone."""
  rng = np.random.default_rng(seed)
  candidate = rng.random((count, length)) >= special
  return (rng.random((count, length)) >= joined) | ~candidate, candidate


def draw(starts, candidate, goal, seed=0, **fields):
  keys = jax.random.split(jax.random.key(seed), starts.shape[0])
  one = lambda key, starts, candidate: spans.draw(key, starts, candidate, goal, **fields)
  return np.asarray(jax.jit(jax.vmap(one))(keys, jnp.asarray(starts), jnp.asarray(candidate)))


def walk(key, starts, candidate, goal, unit, max_span, alpha, beta):
  """data_utils.py: _sample_mask as a loop over the same draws; shortened to what fits, candidates counted alone."""
  length = len(starts)
  turns = -(-length // (1 + alpha // beta))
  size_key, place_key = jax.random.split(key)
  sizes = np.asarray(ngrams.draw(size_key, jnp.full(turns, max_span), max_span, "short"))
  places = np.asarray(jax.random.uniform(place_key, (turns,)))
  mask, left, here, turn = np.zeros(length, bool), goal, 0, 0
  while here < length and left > 0:
    n = min(int(sizes[turn]), left)
    context = n * alpha // beta
    before = int(np.floor(places[turn] * np.float32(context)))
    turn += 1
    begin = here + before
    while begin < length and not starts[begin]:
      begin += 1
    if begin >= length:
      break
    for size in range(n, 0, -1):
      end, seen = begin + 1, 1
      while end < length:
        if unit == "piece" or starts[end]:
          seen += 1
          if seen > size:
            break
        end += 1
      if candidate[begin:end].sum() <= left:
        break
    else:
      break
    if end >= length:
      break
    mask[begin:end] = True
    left -= candidate[begin:end].sum()
    here = end + context - before
  return mask


@pytest.mark.parametrize("unit", spans.UNITS)
@pytest.mark.parametrize(("goal", "alpha", "beta", "max_span"), [(10, 6, 1, 5), (30, 3, 2, 3), (4, 6, 1, 5)])
def test_spans_are_those_of_the_loop(unit, goal, alpha, beta, max_span):
  starts, candidate = texts(40)
  drawn = draw(starts, candidate, goal, seed=3, unit=unit, max_span=max_span, alpha=alpha, beta=beta)
  keys = jax.random.split(jax.random.key(3), 40)
  walked = [walk(*row, goal, unit, max_span, alpha, beta) for row in zip(keys, starts, candidate, strict=True)]
  np.testing.assert_array_equal(drawn, walked)
  assert (drawn & candidate).sum(1).max() <= goal
  assert drawn.any(1).mean() > 0.9


def runs(mask: np.ndarray) -> list[tuple[int, int, int]]:
  """(row, begin, end) of each run of True."""
  edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(int), axis=1)
  rows, begins = np.nonzero(edges > 0)
  return list(zip(rows, begins, np.nonzero(edges < 0)[1], strict=True))


def test_sizes_are_drawn_with_probability_one_over_n():
  sizes = np.asarray(ngrams.draw(jax.random.key(0), jnp.full(20000, 5), 5, "short"))
  expected = 1 / np.arange(1, 6) / (1 / np.arange(1, 6)).sum()
  counts = np.bincount(sizes, minlength=6)[1:]
  assert len(counts) == 5
  assert (np.abs(counts - 20000 * expected) < 4 * np.sqrt(20000 * expected * (1 - expected))).all()


def test_a_span_is_whole_words_and_a_piece_span_is_n_pieces():
  starts, candidate = texts(300, special=0)
  found = runs(draw(starts, candidate, 12))
  assert all(starts[row, begin] and starts[row, end] for row, begin, end in found)
  assert max(end - begin for _, begin, end in found) > 5  # five words have more pieces
  found = runs(draw(starts, candidate, 12, unit="piece"))
  assert all(starts[row, begin] for row, begin, end in found)
  assert any(not starts[row, end] for row, begin, end in found)  # cuts words
  single = [(row, b, e) for row, b, e in runs(draw(starts, candidate, 12, unit="piece", max_span=1, alpha=2))]
  assert {e - b for _, b, e in single} <= {1, 2, 3}  # windows may touch
  assert np.mean([e - b == 1 for _, b, e in single]) > 0.6


def test_every_span_stands_amid_its_context():
  """One unit amid two pieces of context, all words of one piece: turns begin 3 apart, the span 0 or 1 behind each."""
  starts = np.ones((200, LENGTH), bool)
  drawn = draw(starts, starts, LENGTH, max_span=1, alpha=2)
  turns = drawn.reshape(200, LENGTH // 3, 3)
  np.testing.assert_array_equal(turns.sum(2), 1)
  assert not turns[:, :, 2].any()
  share = turns[:, :, 0].mean()
  assert abs(share - 0.5) < 4 * np.sqrt(0.25 / turns[:, :, 0].size)


def test_in_a_half_of_the_paper_most_targets_come_from_spans_and_some_do_not():
  """originals.md's simulation of the released code: about 35 to 36 of 43 targets of 256 tokens, pieces as units."""
  starts, candidate = texts(400, length=256, joined=0.3, special=0)
  found = draw(starts, candidate, 43, unit="piece").sum(1)
  assert 34.5 < found.mean() < 36.5
  assert (found < 43).mean() > 0.95
  words = draw(starts, candidate, 43).sum(1)
  assert found.mean() < words.mean() <= 43


def test_pieces_that_are_no_candidates_do_not_count():
  starts = np.ones((50, LENGTH), bool)
  candidate = np.zeros((50, LENGTH), bool)
  assert draw(starts, candidate, 5).any(1).all()  # walked over, none counted: the walk runs to the end
  candidate[:, ::2] = True
  drawn = draw(starts, candidate, 5)
  assert (drawn & candidate).sum(1).max() == 5


def test_the_lowest_scores_are_found_in_the_order_of_the_row():
  scores = jnp.asarray([3.0, -1, jnp.inf, 0.5, jnp.inf, 2])
  assert spans.lowest(scores, 3).tolist() == [1, 3, 5]
  assert spans.lowest(scores, 6).tolist() == [0, 1, 3, 5, 6, 6]
