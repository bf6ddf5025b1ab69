"""Orders, targets and masks: the paper's example, the original's matrix, budgets, halves, never a special target."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from objectives import permutation
from objectives.permutation import PermutationConfig
from objectives.vocabulary import Vocabulary

UNK, CLS, SEP, EOD = range(4)
SIZE = 100
SPECIAL = np.arange(SIZE) < 4
CONTINUES = (np.arange(SIZE) >= 4) & (np.arange(SIZE) % 3 == 0)
FUNCTIONAL = np.isin(np.arange(SIZE), [SEP, CLS])
VOCABULARY = Vocabulary(0, SPECIAL, ~CONTINUES, np.ones(SIZE, int), np.arange(SIZE), FUNCTIONAL)
LENGTH, REUSE = 64, 32
CONFIG = {"num_predict": 11, "reuse_len": REUSE, "perm_size": 16}


def rows(count: int, seed: int = 0, length: int = LENGTH, reuse_len: int = REUSE) -> dict:
  """[reuse | A <sep> B <sep> <cls>] with some <unk> and <eod>, every other row backward, the last row padding."""
  rng = np.random.default_rng(seed)
  tokens = rng.integers(4, SIZE, (count, length))
  tokens[rng.random((count, length)) < 0.03] = UNK
  tokens[rng.random((count, length)) < 0.03] = EOD
  tokens[:, (reuse_len + length) // 2] = tokens[:, -2] = SEP
  tokens[:, -1] = CLS
  return {
    "tokens": jnp.asarray(tokens, jnp.int32),
    "sequence_ids": jnp.asarray(np.arange(count) < count - 1, jnp.int32)[:, None] + jnp.zeros((1, length), jnp.int32),
    "backward": jnp.arange(count) % 2 == 1,
    "row": jnp.arange(count, dtype=jnp.int32),
  }


@functools.partial(jax.jit, static_argnames=("config",))
def permute(key, batch, config):
  return permutation.permute(key, batch, VOCABULARY, config)


def permuted(batch, seed=0, **fields) -> permutation.Permuted:
  result = permute(jax.random.key(seed), batch, PermutationConfig(**CONFIG | fields))
  return permutation.Permuted(*map(np.asarray, result))


def masks(order, is_target, ordered, reuse_len):
  """(visible without the diagonal, what each position's query would see), of one row."""
  turn, horizon = permutation.turns(*map(jnp.asarray, (order, is_target, ordered)), reuse_len)
  return np.asarray(turn[None, :] < horizon[:, None]), np.asarray(turn[None, :] < turn[:, None])


def test_the_papers_example():
  """[A, B, C, D] in the order 3, 1, 4, 2 (figure 4): C sees nothing, A sees C, D sees C and A, B sees all others."""
  everything = np.ones(4, bool)
  visible, query = masks(np.array([1, 3, 0, 2]), everything, everything, 4)
  seen = {"A": "C", "B": "ACD", "C": "", "D": "AC"}
  expected = np.array([[other in seen[one] for other in "ABCD"] for one in "ABCD"])
  np.testing.assert_array_equal(query, expected)
  np.testing.assert_array_equal(visible | np.eye(4, dtype=bool), expected | np.eye(4, dtype=bool))


def test_the_originals_matrix():
  """[10, 20, <sep>, 40*, 50*, <sep>] in the order of the text, * = target (zihangdai/xlnet#104; 1 = blocked)."""
  is_target = np.array([0, 0, 0, 1, 1, 0], bool)
  ordered = np.array([0, 0, 1, 1, 1, 1], bool)
  visible, _ = masks(np.arange(6), is_target, ordered, 6)
  blocked = ["001111", "001111", "000111", "000111", "000011", "000000"]
  np.testing.assert_array_equal(~visible, np.array([[c == "1" for c in row] for row in blocked]))


def local_perm(order, is_masked, functional):
  """data_utils.py: _local_perm, given the shuffled index: True = blocked."""
  non_mask = ~is_masked & ~functional
  masked_or_functional = ~non_mask
  rev_index = np.where(non_mask, -1, order)
  target_tokens = masked_or_functional & ~functional
  self_rev_index = np.where(target_tokens, rev_index, rev_index + 1)
  return (self_rev_index[:, None] <= rev_index[None, :]) & masked_or_functional[None, :]


def test_masks_are_the_originals_for_any_order_and_both_halves():
  rng = np.random.default_rng(0)
  for _ in range(20):
    order = np.concatenate([rng.permutation(10), rng.permutation(14)])
    kind = rng.integers(0, 4, 24)
    functional, is_target = kind == 0, kind == 1
    visible, query = masks(order, is_target, functional | is_target, 10)
    blocked = np.zeros((24, 24), bool)
    blocked[:10, :10] = local_perm(order[:10], is_target[:10], functional[:10])
    blocked[10:, 10:] = local_perm(order[10:], is_target[10:], functional[10:])
    blocked[:10, 10:] = True
    np.testing.assert_array_equal(visible, ~blocked)
    np.testing.assert_array_equal(query[is_target], ~blocked[is_target])


@pytest.mark.parametrize("targets", permutation.TARGETS)
def test_each_half_has_its_budget_and_special_pieces_are_never_targets(targets):
  batch = rows(101)
  result = permuted(batch, targets=targets)
  tokens = np.asarray(batch["tokens"])
  positions = result.target_positions
  np.testing.assert_array_equal(result.weights[:-1], 1)
  np.testing.assert_array_equal((positions[:-1] < REUSE).sum(1), 6)
  assert (np.diff(positions[:-1], axis=1) > 0).all()
  np.testing.assert_array_equal(result.targets[:-1], np.take_along_axis(tokens, positions, 1)[:-1])
  assert not SPECIAL[result.targets[:-1]].any()
  for unused in (result.weights, positions, result.targets, result.rank, result.target_visible, result.visible):
    assert not unused[-1].any()  # the row of padding


def test_where_candidates_run_out_slots_stay_unused():
  batch = rows(3)
  tokens = np.asarray(batch["tokens"]).copy()
  tokens[0, 2:REUSE] = EOD  # two pieces remain in the first half
  result = permuted(batch | {"tokens": jnp.asarray(tokens)}, num_predict=20)
  assert (result.weights[0] * (result.target_positions[0] < REUSE)).sum() == (tokens[0, :2] >= 4).sum() <= 2
  assert result.weights[0].sum() == 10 + (tokens[0, :2] >= 4).sum()
  unused = result.weights[0] == 0
  assert not result.target_visible[0, unused].any()
  assert not result.target_positions[0, unused].any()


@pytest.mark.parametrize("targets", permutation.TARGETS)
def test_masks_of_a_batch_say_who_comes_first(targets):
  batch = rows(8)
  result = permuted(batch, targets=targets)
  functional, special = FUNCTIONAL[batch["tokens"]], SPECIAL[batch["tokens"]]
  first = np.arange(LENGTH) < REUSE
  for row in range(7):
    visible, query = result.visible[row], result.target_visible[row]
    positions, rank = result.target_positions[row], result.rank[row]
    is_target = np.isin(np.arange(LENGTH), positions)
    assert not visible[np.ix_(first, ~first)].any()
    assert visible[np.ix_(~first, first)].all()
    np.testing.assert_array_equal(visible[positions] & ~np.eye(LENGTH, dtype=bool)[positions], query)
    assert not query[np.arange(len(positions)), positions].any()
    for half in (first, ~first):
      mine = half[positions]
      assert sorted(rank[mine]) == list(range(mine.sum()))
      sees = query[np.ix_(mine, positions[mine])]
      np.testing.assert_array_equal(sees, rank[mine][None, :] < rank[mine][:, None])
      context = half & ~is_target & ~functional[row]
      if targets == "spans":
        assert query[np.ix_(mine, context)].all()
        assert visible[np.ix_(context, context)].all()
        assert not visible[np.ix_(context, half & ~context)].any()
      else:
        assert not visible[np.ix_(half & ~is_target & ~special[row], positions[mine])].any()  # targets come last
        count = visible[np.ix_(half, half)].sum(1)  # an order: one more seen at each step, targets without themselves
        assert sorted(count - (~is_target[half])) == list(range(half.sum()))


def test_orders_are_shuffled_within_chunks_alike_and_anew_for_each_key():
  orders = np.stack([permutation.draw_order(key, 32, 8) for key in jax.random.split(jax.random.key(0), 400)])
  chunks = orders.reshape(400, 4, 8)
  np.testing.assert_array_equal(chunks - 8 * np.arange(4)[:, None], chunks[:, :1].repeat(4, 1))
  np.testing.assert_array_equal(np.sort(orders, axis=1), np.arange(32)[None].repeat(400, 0))
  counts = np.stack([np.bincount(chunks[:, 0, i], minlength=8) for i in range(8)])
  assert (np.abs(counts - 50) < 4.5 * np.sqrt(50 * 7 / 8)).all()


def test_halves_are_shuffled_apart_and_rows_by_their_number_alone():
  batch = rows(6)
  result = permuted(batch, num_predict=40, targets="last", perm_size=32)
  assert any((r.rank[r.target_positions < REUSE][:20] != r.rank[r.target_positions >= REUSE][:20]).any()
             for r in (permutation.Permuted(*(x[i] for x in result)) for i in range(5)))  # fmt: skip
  part = permuted(jax.tree.map(lambda x: x[2:4], batch), num_predict=40, targets="last", perm_size=32)
  for whole, some in zip(result, part, strict=True):
    np.testing.assert_array_equal(whole[2:4], some)
  other = permuted(batch, seed=1, num_predict=40, targets="last", perm_size=32)
  assert (other.target_positions[:5] != result.target_positions[:5]).any()


@pytest.mark.parametrize("backward", [False, True])
def test_spans_are_words_of_the_text_whichever_way_it_runs(backward):
  """Words of three pieces: spans alone would leave whole words; what is filled in is single pieces."""
  count, length = 300, 240
  place = np.arange(length) % 3
  piece = {0: 4, 1: 6, 2: 9}  # a start, and two pieces that continue it
  text = np.array([piece[i] for i in place])
  tokens = jnp.asarray(np.tile(text[::-1] if backward else text, (count, 1)), jnp.int32)
  batch = {
    "tokens": tokens,
    "sequence_ids": jnp.ones_like(tokens),
    "backward": jnp.full(count, backward),
    "row": jnp.arange(count, dtype=jnp.int32),
  }
  result = permuted(batch, num_predict=12, reuse_len=120, perm_size=120)
  chosen = np.zeros((count, length), bool)
  np.put_along_axis(chosen, result.target_positions, True, 1)
  words = (chosen[:, ::-1] if backward else chosen).reshape(count, -1, 3)
  whole = words.all(2).sum() * 3 / chosen.sum()
  assert whole > 0.9  # of 6 targets a half hold two words; a span of one piece too few leaves at most a word's rest


@pytest.mark.parametrize(("unit", "even"), [("word", 7), ("piece", 9)])
def test_a_largest_span_of_one_gives_single_units_amid_context(unit, even):
  """As many targets as of longer spans, and spread evenly, if for words not to the end of a half: words of 1½ pieces,
  one piece in six a target. `even`: tenths of a half that are."""
  count, half = 300, 120
  tokens = np.random.default_rng(0).integers(4, SIZE, (count, 2 * half))
  tokens[:, ::half] = 4  # a word begins
  starts = ~CONTINUES[tokens]
  batch = {
    "tokens": jnp.asarray(tokens, jnp.int32),
    "sequence_ids": jnp.ones(tokens.shape, jnp.int32),
    "backward": jnp.zeros(count, bool),
    "row": jnp.arange(count, dtype=jnp.int32),
  }

  def drawn(max_span):
    fields = {"num_predict": 2 * half // 6, "reuse_len": half, "perm_size": half, "span_unit": unit}
    result = permuted(batch, max_span=max_span, **fields)
    assert result.weights.all()
    is_target = np.zeros(tokens.shape, bool)
    np.put_along_axis(is_target, result.target_positions, True, 1)
    return is_target

  def singles(is_target):
    """The share of runs of targets that are one unit."""
    edge = np.zeros((count, 1), bool)
    begins = is_target & ~np.concatenate([edge, is_target[:, :-1]], axis=1)
    ends = np.concatenate([is_target[:, 1:], edge], axis=1)
    if unit == "piece":
      return (begins & ~ends).sum() / begins.sum()
    runs = np.cumsum(begins, axis=1) * is_target
    words = [np.bincount(row, start, row.max() + 1)[1:] for row, start in zip(runs, starts, strict=True)]
    return np.mean(np.concatenate(words) == 1)

  one = drawn(1)
  assert singles(one) > 0.9
  assert singles(drawn(5)) < 0.6
  tenths = one.reshape(count * 2, 10, half // 10).mean((0, 2))
  np.testing.assert_allclose(tenths[:even], tenths[:even].mean(), rtol=0.1)
  assert (tenths[-1] < tenths[:even].mean() / 2) == (unit == "word")


def test_every_position_is_a_target_now_and_then():
  result = permuted(rows(1501, seed=3))
  counts = np.bincount(result.target_positions[:-1].ravel(), minlength=LENGTH)
  text = np.ones(LENGTH, bool)
  text[[(REUSE + LENGTH) // 2, LENGTH - 2, LENGTH - 1]] = False
  assert counts[text].min() > 40  # of 1500 rows; 258 on average
  assert not counts[~text].any()


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"num_predict": 1}, "objective.num_predict=1 must be at least 2"),
    ({"perm_size": 0}, "objective.perm_size=0 must be at least 1"),
    ({"beta": 0}, "objective.beta=0 must be at least 1"),
    ({"max_span": 0}, "objective.max_span=0 must be at least 1"),
    ({"alpha": 2, "beta": 3}, "objective.alpha=2 must be at least objective.beta=3"),
    ({"targets": "all"}, "objective.targets='all' is unknown; use one of spans, last"),
    ({"span_unit": "token"}, "objective.span_unit='token' is unknown; use one of word, piece"),
    ({"reuse_len": 0}, "data.reuse_len=0 must be at least 1"),
    ({"reuse_len": 61}, "data.reuse_len=61 leaves no text behind it in rows of length 64; set it to 32"),
    ({"perm_size": 24}, "objective.perm_size=24 does not divide both data.reuse_len=32 and the 32 tokens behind it"),
    ({"perm_size": 64}, "objective.perm_size=64 does not divide"),
    (
      {"num_predict": 60},
      "objective.num_predict=60 asks for 30 targets among the 29 tokens of text in the second half",
    ),
    ({"reuse_len": 16, "num_predict": 40}, "objective.num_predict=40 asks for 20 targets among the 16 tokens"),
  ],
)
def test_fields_that_do_not_fit_are_named_in_one_line(fields, said):
  with pytest.raises(ValueError, match=re.escape(said)) as raised:
    PermutationConfig(**CONFIG | fields).check_length(LENGTH)
  assert len(str(raised.value).splitlines()) == 1
