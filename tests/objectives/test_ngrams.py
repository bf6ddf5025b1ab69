"""N-gram masking: how long spans are, that the rounds are the original's walk, and what bounds a span."""

import dataclasses
import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from objectives import masking, ngrams
from objectives.masking import MaskingConfig
from tests.objectives.test_masking import CLS, CONTINUES, SEP, SIZE, SPECIAL, UNK, VOCABULARY, rows, targets_of

TRIGRAMS = MaskingConfig(whole_word=True, ngram=3)
SPANS = MaskingConfig(whole_word=True, ngram=10, ngram_favor="geometric", replace="span")  # SpanBERT's
GEOMETRIC = 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10)  # p = 0.2, cut at 10 and renormalised


@functools.partial(jax.jit, static_argnames=("config", "max_sequences"))
def corrupt(key, batch, config=TRIGRAMS, max_sequences=1):
  return masking.corrupt(key, batch, VOCABULARY, config, max_sequences)


@functools.partial(jax.jit, static_argnames="config")
def choose(keys, tokens, sequence_ids, config):
  def row(key, tokens, sequence_ids):
    units = masking.unit_starts(tokens, sequence_ids, VOCABULARY, config.whole_word)
    return masking.choose(key, units, sequence_ids, config)

  return jax.vmap(row)(keys, tokens, sequence_ids)


def packed(count: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows of up to three sequences of [CLS] text [SEP], some [UNK] in the text, some rows full to the last position."""
  rng = np.random.default_rng(seed)
  tokens = rng.integers(5, SIZE, (count, length))
  tokens[rng.random((count, length)) < 0.03] = UNK
  sequence_ids = np.zeros((count, length), int)
  for row in range(count):
    ends = np.sort(rng.choice(np.arange(8, length + 1), rng.integers(1, 4), replace=False))
    if row % 3 == 0:
      ends[-1] = length
    for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True), start=1):
      sequence_ids[row, begin:end] = number
      tokens[row, begin] = CLS
      if row % 2:  # in the others a word may end the row
        tokens[row, end - 1] = SEP
  return np.where(sequence_ids > 0, tokens, 0), sequence_ids


def words_of(tokens, sequence_ids, whole_word: bool) -> list[list[int]]:
  """The positions of each word of a row, found in one pass over it."""
  words = []
  for position, (token, sequence) in enumerate(zip(tokens.tolist(), sequence_ids.tolist(), strict=True)):
    if sequence == 0 or SPECIAL[token]:
      continue
    follows = position > 0 and not SPECIAL[tokens[position - 1]]
    if whole_word and CONTINUES[token] and follows:
      words[-1].append(position)
    else:
      words.append([position])
  return words


def walk(words, sequence_ids, order, wanted, rate) -> set[int]:
  """The original's loop over shuffled starts, with spans ended by gaps between words and a budget a sequence."""
  left = {s: max(1, round(rate * int((sequence_ids == s).sum()))) for s in set(sequence_ids.tolist()) - {0}}
  covered: set[int] = set()
  for start in order:
    sequence = int(sequence_ids[words[start][0]])
    for n in range(wanted[start], 0, -1):
      span = [position for word in words[start : start + n] for position in word]
      if len(span) <= left[sequence]:
        break
    else:
      continue
    if covered.isdisjoint(span):
      covered |= set(span)
      left[sequence] -= len(span)
  return covered


def room_after(words, sequence_ids) -> list[int]:
  """How many words could be taken from each on: up to a gap, the sequence's end or the row's."""
  room = [1] * len(words)
  for i in range(len(words) - 2, -1, -1):
    here, after = words[i][-1], words[i + 1][0]
    if after == here + 1 and sequence_ids[here] == sequence_ids[after]:
      room[i] = room[i + 1] + 1
  return room


@pytest.mark.parametrize(
  "config",
  [
    TRIGRAMS,
    MaskingConfig(whole_word=True, ngram=3, ngram_favor="long"),
    MaskingConfig(ngram=3, rate=0.6),
    MaskingConfig(whole_word=True, ngram=2, rate=0.4),
    MaskingConfig(whole_word=True, ngram=6, ngram_favor="long", rate=0.9),
    SPANS,
  ],
)
def test_the_rounds_are_the_one_by_one_walk(config):
  count, length = 120, 96
  tokens, sequence_ids = packed(count, length, seed=3)
  keys = jax.random.split(jax.random.key(3), count)
  chosen, shortfall = map(np.asarray, choose(keys, jnp.asarray(tokens), jnp.asarray(sequence_ids), config))
  order_keys, length_keys = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
  scores = np.asarray(jax.vmap(lambda key: jax.random.uniform(key, (length,)))(order_keys))
  words = [words_of(*row, config.whole_word) for row in zip(tokens, sequence_ids, strict=True)]
  room = [room_after(*row) for row in zip(words, sequence_ids, strict=True)]
  padded = jnp.asarray([x + [0] * (length - len(x)) for x in room])
  draw = functools.partial(ngrams.draw, ngram=config.ngram, favor=config.ngram_favor)
  wanted = np.asarray(jax.vmap(draw)(length_keys, padded))
  for row in range(count):
    order = np.argsort(scores[row, : len(words[row])], kind="stable").tolist()
    expected = walk(words[row], sequence_ids[row], order, wanted[row].tolist(), config.rate)
    assert set(np.flatnonzero(chosen[row]).tolist()) == expected
    allowed = sum(max(1, round(config.rate * n)) for n in np.bincount(sequence_ids[row])[1:].tolist())
    assert shortfall[row] == allowed - len(expected) >= 0


@pytest.mark.parametrize(
  ("ngram", "favor", "available", "expected"),
  [
    (3, "short", 3, [6 / 11, 3 / 11, 2 / 11]),
    (3, "long", 3, [2 / 11, 3 / 11, 6 / 11]),
    (3, "short", 9, [6 / 11, 3 / 11, 2 / 11]),
    (3, "short", 2, [2 / 3, 1 / 3, 0]),
    (3, "long", 2, [2 / 5, 3 / 5, 0]),
    (3, "long", 1, [1, 0, 0]),
    (3, "short", 0, [1, 0, 0]),
    (2, "short", 2, [2 / 3, 1 / 3]),
    (10, "geometric", 3, [25 / 61, 20 / 61, 16 / 61, *[0] * 7]),
  ],
)
def test_lengths_are_drawn_in_their_proportions(ngram, favor, available, expected):
  count = 100_000
  drawn = ngrams.draw(jax.random.key(0), jnp.full(count, available), ngram, favor)
  shares = np.bincount(drawn, minlength=ngram + 1)[1:] / count
  assert (np.abs(shares - expected) <= 3 * np.sqrt(np.multiply(expected, 1 - np.array(expected)) / count)).all()


def test_spans_of_the_paper_are_as_long_as_it_says():
  assert np.arange(1, 11) @ GEOMETRIC == pytest.approx(3.8, abs=0.05)  # SpanBERT §3.1
  drawn = ngrams.draw(jax.random.key(7), jnp.full(100_000, 40), 10, "geometric")
  counts, expected = np.bincount(drawn, minlength=11)[1:], 100_000 * GEOMETRIC
  assert ((counts - expected) ** 2 / expected).sum() < 9 + 3 * np.sqrt(2 * 9)  # chi-square, nine degrees of freedom


@pytest.mark.parametrize(
  ("favor", "expected"),
  [
    # Three targets a row, a token a word. The first span is as drawn; what is left bounds those that follow: after a
    # span of one, a drawn two or three takes both.
    ("short", {(3,): 2 / 11, (1, 2): 3 / 11 + 6 / 11 * 5 / 11, (1, 1, 1): (6 / 11) ** 2}),
    ("long", {(3,): 6 / 11, (1, 2): 3 / 11 + 2 / 11 * 9 / 11, (1, 1, 1): (2 / 11) ** 2}),
  ],
)
def test_spans_in_a_row_are_as_long_as_the_draws_and_the_budget_say(favor, expected):
  count, length = 3000, 400
  batch = {
    "tokens": jnp.full((count, length), 7),
    "sequence_ids": jnp.ones((count, length), jnp.int32),
    "row": jnp.arange(count),
  }
  corrupted = corrupt(
    jax.random.key(1), batch, MaskingConfig(whole_word=True, ngram=3, ngram_favor=favor, rate=3 / 400)
  )
  np.testing.assert_array_equal(corrupted.weights.sum(1), 3)
  found = dict.fromkeys(expected, 0)
  for positions in np.asarray(corrupted.positions):
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    found[tuple(sorted(len(run) for run in runs))] += 1
  for pattern, share in expected.items():
    # Two spans that happen to touch look like one: about 2 × 3/400 of rows.
    assert abs(found[pattern] / count - share) < 3 * np.sqrt(share * (1 - share) / count) + 0.015


def test_spans_are_as_long_as_the_geometric_draws_and_the_budget_say():
  """Ten targets of 500 a row, a token a word: every span is as drawn, or what the spans before it left."""
  expected = np.zeros((11, 11))  # spans of n, of a budget b
  for budget in range(1, 11):
    for n, p in enumerate(GEOMETRIC, start=1):
      taken = min(n, budget)
      expected[budget] += p * expected[budget - taken]
      expected[budget, taken] += p
  count = 4000
  tokens, sequence_ids = jnp.full((count, 500), 7), jnp.ones((count, 500), jnp.int32)
  config = MaskingConfig(whole_word=True, ngram=10, ngram_favor="geometric", rate=10 / 500)
  spans, _ = choose(jax.random.split(jax.random.key(4), count), tokens, sequence_ids, config)
  found = np.zeros(11)
  for row in np.asarray(spans):
    lengths = np.unique(row[row > 0], return_counts=True)[1]
    assert lengths.sum() == 10
    np.add.at(found, lengths, 1)
  # A long draw meets a taken span more often; that is about 2 % of draws here. Ten counts, nine of them free.
  deviation = (found[1:] - count * expected[10, 1:]) ** 2 / (count * expected[10, 1:])
  assert deviation.sum() < 9 + 4 * np.sqrt(2 * 9) + 10


def spans_of_walk(key, batch) -> list[np.ndarray]:
  """The number of the span of each token of a row, 0 of one that is no target."""
  keys = jax.vmap(lambda row: jax.random.split(jax.random.fold_in(key, row), 3)[0])(batch["row"])
  return list(np.asarray(choose(keys, batch["tokens"], batch["sequence_ids"], SPANS)[0]))


def spans_of_words(key, batch) -> list[np.ndarray]:
  """The number of the word of each token of a row."""
  del key
  rows = []
  for row in zip(*(np.asarray(batch[name]) for name in ("tokens", "sequence_ids")), strict=True):
    rows.append(np.zeros(len(row[0]), int))
    for number, word in enumerate(words_of(*row, whole_word=True), start=1):
      rows[-1][word] = number
  return rows


@pytest.mark.parametrize(
  ("config", "spans_of"), [(SPANS, spans_of_walk), (dataclasses.replace(SPANS, ngram=1), spans_of_words)]
)
def test_what_stands_for_a_target_is_decided_once_for_its_span(config, spans_of):
  lengths = np.random.default_rng(5).integers(60, 97, 120)
  batch = rows(120, 96, lengths=lengths)
  key = jax.random.key(5)
  corrupted = corrupt(key, batch, config)
  found = targets_of(batch, corrupted)
  budget = np.round(lengths * 0.15).sum()
  assert len(found) + corrupted.shortfall.sum() == budget
  assert 0.95 * budget < len(found)
  numbers = spans_of(key, batch)
  spans, kinds = {}, {}
  for row, position, clean, shown in found:
    kind = "mask" if shown == VOCABULARY.mask_id else "same" if shown == clean else "random"
    spans.setdefault((row, numbers[row][position]), []).append(kind)
    kinds[row, position] = kind
  assert all(number > 0 for _, number in spans)
  assert max(map(len, spans.values())) > 4
  assert all(len({kind == "mask" for kind in span}) == 1 for span in spans.values())
  touching = [
    (kind, kinds[row, at + 1])
    for (row, at), kind in kinds.items()
    if (row, at + 1) in kinds and numbers[row][at] != numbers[row][at + 1]
  ]
  assert any(kind != other for kind, other in touching)  # two spans that touch are two
  # A random token is the clean one, one time in 195.
  assert np.mean([{"same", "random"} <= set(span) for span in spans.values()]) < 0.01
  for kind, share in (("mask", 0.8), ("same", 0.1), ("random", 0.1)):
    drawn = np.mean([span[0] == kind for span in spans.values()])
    assert abs(drawn - share) < 3 * np.sqrt(share * (1 - share) / len(spans))
  others = {shown for *_, clean, shown in found if shown not in (clean, VOCABULARY.mask_id)}
  assert len(others) > 60  # the tokens of a random span are drawn one by one


def test_targets_are_whole_words_and_never_special():
  lengths = np.random.default_rng(2).integers(10, 129, 300)
  batch = rows(300, 128, lengths=lengths)
  corrupted = corrupt(jax.random.key(2), batch)
  found = targets_of(batch, corrupted)
  assert not any(SPECIAL[clean] or (SPECIAL[shown] and shown != VOCABULARY.mask_id) for _, _, clean, shown in found)
  tokens = np.asarray(batch["tokens"])
  chosen = {(row, position) for row, position, _, _ in found}
  for row in range(300):
    for word in words_of(tokens[row], np.asarray(batch["sequence_ids"][row]), whole_word=True):
      assert len({(row, position) in chosen for position in word}) == 1
  count = len(found)
  assert count + corrupted.shortfall.sum() == np.maximum(1, np.round(lengths * 0.15)).sum()
  masked = np.mean([shown == VOCABULARY.mask_id for *_, shown in found])
  assert abs(masked - 0.8) < 3 * np.sqrt(0.8 * 0.2 / count)


def test_targets_come_in_spans():
  """Compared with single words, a target's right neighbour is a target more often."""
  batch = rows(300, 128)

  def neighbours(config):
    chosen = np.zeros((300, 130), bool)
    for row, position, _, _ in targets_of(batch, corrupt(jax.random.key(3), batch, config)):
      chosen[row, position] = True
    return (chosen[:, :-1] & chosen[:, 1:]).sum() / chosen.sum()

  single, short = neighbours(MaskingConfig()), neighbours(MaskingConfig(ngram=3))
  long = neighbours(MaskingConfig(ngram=3, ngram_favor="long"))
  # A span of n holds n - 1 such pairs: (3 + 2 × 2) / 18 of tokens at 6:3:2, (3 + 2 × 6) / 26 at 2:3:6. Chance adds the
  # rate for each span's last token, and long spans find less room: wide bounds.
  assert single < 0.2
  assert 0.3 < short < 0.55
  assert 0.5 < long < 0.75


def test_a_budget_that_words_cannot_fill_is_reported():
  # Words of three pieces: [CLS] and eight of them and [SEP] have a budget of 4 of 26, so one word is taken.
  tokens = jnp.asarray([[CLS, *[7, 9, 12] * 8, SEP]])
  batch = {"tokens": tokens, "sequence_ids": jnp.ones_like(tokens), "row": jnp.arange(1)}
  for seed in range(5):
    corrupted = corrupt(jax.random.key(seed), batch)
    assert float(corrupted.weights.sum()) == 3
    assert float(corrupted.shortfall[0]) == 1
    assert int(corrupted.positions[0, 0]) % 3 == 1


def test_a_row_without_words_has_no_targets():
  tokens = jnp.asarray([[CLS, UNK, SEP, 0, 0]])
  corrupted = corrupt(
    jax.random.key(0), {"tokens": tokens, "sequence_ids": (tokens > 0).astype(jnp.int32), "row": jnp.arange(1)}
  )
  assert float(corrupted.weights.sum()) == 0
  assert float(corrupted.shortfall[0]) == 1
  np.testing.assert_array_equal(corrupted.tokens, tokens)


def test_a_row_is_corrupted_the_same_in_any_batch():
  batch = rows(16, 64)
  whole = corrupt(jax.random.key(6), batch)
  part = corrupt(jax.random.key(6), {name: value[5:9] for name, value in batch.items()})
  for a, b in zip(whole, part, strict=True):
    np.testing.assert_array_equal(a[5:9], b)


@pytest.mark.parametrize(
  ("config", "expected"),
  [
    (MaskingConfig(), "9cf848750d9c6630"),
    (MaskingConfig(whole_word=True), "a13adba714635616"),
    (TRIGRAMS, "f5c08b4936f1bf95"),
    (SPANS, "31753019be1e3880"),
  ],
  ids=["tokens", "words", "ngrams", "spans"],
)
def test_masks_stay_what_they_were(config, expected):
  # A workdir may be continued under another version of anything below: these values must not move.
  batch = rows(64, 128, lengths=np.random.default_rng(3).integers(10, 129, 64))
  corrupted = corrupt(jax.random.key(3), batch, config)
  digest = hashlib.sha256(b"".join(np.asarray(x).astype("<i4").tobytes() for x in corrupted))
  assert digest.hexdigest()[:16] == expected


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"ngram": 0}, r"objective\.masking\.ngram=0 must be at least 1"),
    ({"ngram_favor": "both"}, r"objective\.masking\.ngram_favor='both' is unknown; use one of short, long, geometric"),
    ({"replace": "word"}, r"objective\.masking\.replace='word' is unknown; use one of token, span"),
  ],
)
def test_impossible_fields_are_refused(fields, said):
  with pytest.raises(ValueError, match=said):
    MaskingConfig(**fields)
