"""XLNet's rows: what an epoch covers, how rows follow one another, and that a row depends on nothing but its number."""

import hashlib
import itertools
import random

import numpy as np
import pytest
from scipy import stats

from data import philox, text_stream
from data.pipeline import batches, evaluation_batches
from data.streams import StreamSource
from data.text_stream import Text
from tests.data.corpora import Tokenizer
from tests.data.test_text_stream import EOD, LENGTHS, open_corpus, plain_stream

TOKENIZER = Tokenizer(eod_id=EOD)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  return open_corpus(tmp_path_factory.mktemp("corpus"), LENGTHS, shards=3, block=64, vocab_size=50_000)


def source(corpus, length=64, batch_size=8, seed=3, tokenizer=TOKENIZER, reuse_len=None, **options):
  reuse_len = length // 2 if reuse_len is None else reuse_len
  return StreamSource(corpus, tokenizer, length, batch_size, reuse_len, seed, **options)


def equal(a, b):
  assert a.keys() == b.keys()
  for name in a:
    np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def plain_rows(rows, epoch, step):
  """The rows of a step as the original makes them (_create_data, _split_a_and_b of xlnet/data_utils.py), but with the
  random words of `rows`."""
  tokens, sentences, documents = plain_stream(rows._stream(epoch))
  pairs = 1 + rows.bidirectional
  length = len(tokens) // (rows.batch_size // pairs)
  for place in range(rows.batch_size):
    lane, backward = place // pairs, place % pairs
    own = slice(lane * length, (lane + 1) * length)
    data, sents, docs = ([*values[own]][:: -1 if backward else 1] for values in (tokens, sentences, documents))
    number = (epoch * len(rows) + step) * rows.batch_size + place
    bits = [int(word) for word in philox.draw(philox.Key(rows.seed, rows.stage, 3), number, np.arange(3))]
    begin = (step + 1) * rows.reuse_len
    room = rows.length - rows.reuse_len - 3
    known = range(begin - rows.reuse_len - max(rows.length, rows.mem_len), begin + room)
    (a_begin, a_end), (b_begin, b_end), random_b = plain_split(
      sents, begin, room, known, bits, rows.random_rate, backward
    )
    reuse, a, b = slice(begin - rows.reuse_len, begin), slice(a_begin, a_end), slice(b_begin, b_end)
    ids = [docs[i] for part in (reuse, a) for i in range(part.start, part.stop)]
    ids += [ids[-1], *docs[b], docs[b][-1], docs[b][-1]]
    sep = TOKENIZER.sep_id
    yield {
      "tokens": [*data[reuse], *data[a], sep, *data[b], sep, TOKENIZER.cls_id],
      "segment_ids": [0] * (rows.reuse_len + a_end - a_begin + 1) + [1] * (b_end - b_begin + 1) + [2],
      "document_ids": [1 + epoch * len(LENGTHS) + i for i in ids],
      "backward": bool(backward),
      "sequence_ids": [1] * rows.length,
      "pair_label": int(random_b),
    }


def plain_split(sents, begin, room, known, bits, random_rate, backward):
  end, cuts = begin + 1, []
  while end < len(sents):
    if sents[end] != sents[end - 1]:
      if end - begin >= room:
        break
      cuts.append(end)
    end += 1
  cuts = cuts[::-1] if backward else cuts
  a_end = cuts[bits[0] % len(cuts)] if cuts else end
  wanted = max(1, room - (a_end - begin))
  everywhere = range(len(sents) - wanted + 1)
  places = [i for i in everywhere if i + wanted <= known.start or i >= known.stop]
  random_b = bool(places) and (not cuts or (bits[1] >> 11) * 2.0**-53 < random_rate)
  if random_b:
    b_begin = places[bits[2] % len(places)]
    b_end = b_begin + wanted
    while b_begin > 0 and b_begin - 1 not in known and sents[b_begin - 1] == sents[b_begin]:
      b_begin -= 1
    while b_end < len(sents) and b_end not in known and sents[b_end - 1] == sents[b_end]:
      b_end += 1
  else:
    a_end = a_end if cuts else begin + room // 2
    b_begin, b_end = a_end, end
  while a_end - begin + b_end - b_begin > room:
    if a_end - begin > b_end - b_begin:
      a_end -= 1
    else:
      b_end -= 1
  return (begin, a_end), (b_begin, b_end), random_b


@pytest.mark.parametrize("blocks", [1 << 16, 9])
@pytest.mark.parametrize(
  "options",
  [
    {},
    {"reuse_len": 20, "length": 50, "batch_size": 6, "stage": 2},
    {"bidirectional": False, "batch_size": 5, "length": 32, "reuse_len": 27},
    {"tokenizer": Tokenizer(), "random_rate": 1.0, "length": 200},
    {"batch_size": 2, "random_rate": 0.0, "length": 9, "reuse_len": 2},
    {"batch_size": 4, "random_rate": 1.0, "length": 24, "mem_len": 100},
  ],
)
def test_rows_are_the_originals(corpus, monkeypatch, options, blocks):
  monkeypatch.setattr(text_stream, "MAX_BLOCKS", blocks)
  rows = source(corpus, **options)
  for epoch in (0, 3):
    for step in {0, 1, 2, len(rows) // 2, len(rows) - 1}:
      made = rows.batch(epoch * len(rows) + step)
      for place, expected in enumerate(plain_rows(rows, epoch, step)):
        for name, values in expected.items():
          assert made[name][place].tolist() == values, (name, epoch, step, place)
  # Another step would not fit: the lane's rest is shorter than a row.
  length = rows._text.num_tokens // rows.lanes
  assert rows.length <= length - (len(rows) - 1) * rows.reuse_len < rows.length + rows.reuse_len


def test_types(corpus):
  made = source(corpus).batch(2)
  assert {name: (values.dtype.name, values.shape) for name, values in made.items()} == {
    "tokens": ("int32", (8, 64)),
    "segment_ids": ("int32", (8, 64)),
    "document_ids": ("int32", (8, 64)),
    "backward": ("bool", (8,)),
    "sequence_ids": ("int32", (8, 64)),
    "pair_label": ("int32", (8,)),
  }


def epoch_of(rows, epoch=0):
  """{name: [steps, rows, …]} of an epoch."""
  steps = [rows.batch(epoch * len(rows) + step) for step in range(len(rows))]
  return {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def test_an_epoch_takes_every_token_once_in_each_direction(corpus):
  rows = source(corpus)
  reuse = epoch_of(rows, 1)["tokens"][..., :32]
  tokens, *_ = plain_stream(rows._stream(1))
  length, read = len(tokens) // 4, len(rows) * 32
  assert length - read < 64 + 32  # what no row advances over
  for lane in range(4):
    text = tokens[lane * length : (lane + 1) * length]
    assert reuse[:, 2 * lane].ravel().tolist() == text[:read]
    assert reuse[:, 2 * lane + 1].ravel().tolist() == text[::-1][:read]
  forward = reuse[:, ::2]
  assert np.unique(forward[forward != EOD], return_counts=True)[1].max() == 1


def test_documents_keep_their_ids_from_step_to_step_and_change_them_between_epochs(corpus):
  rows, before = source(corpus), set()
  for epoch in range(3):
    made = epoch_of(rows, epoch)
    ids, tokens = made["document_ids"], made["tokens"]
    assert ids.min() >= 1
    id_of = {}
    for token, document in zip(tokens.ravel().tolist(), ids.ravel().tolist(), strict=True):
      if token >= 10:
        assert id_of.setdefault(token, document) == document
    assert len(set(id_of.values())) > 60
    assert not set(id_of.values()) & before
    before = set(id_of.values())


def test_document_ids_stay_in_range_and_apart_after_many_epochs(corpus):
  rows = source(corpus)
  ids = [set(rows.batch(epoch * len(rows))["document_ids"].ravel().tolist()) for epoch in range(10**9, 10**9 + 3)]
  assert min(map(min, ids)) >= 1
  assert max(map(max, ids)) < 1 << 31
  for one, other in itertools.pairwise(ids):
    assert not one & other


def test_half_of_the_rows_read_backwards(corpus):
  made = epoch_of(source(corpus))
  assert (made["backward"] == ([False, True] * 4)).all()
  ordinary = (made["tokens"] >= 10) & (np.roll(made["tokens"], -1, axis=-1) >= 10)
  ordinary &= made["document_ids"] == np.roll(made["document_ids"], -1, axis=-1)
  steps = (np.roll(made["tokens"], -1, axis=-1) - made["tokens"])[..., :31]
  assert (steps[:, ::2][ordinary[:, ::2, :31]] == 1).all()
  assert (steps[:, 1::2][ordinary[:, 1::2, :31]] == -1).all()


def parts(made):
  """Takes rows apart: [(A, B)] as arrays of tokens."""
  for tokens, segments in zip(made["tokens"], made["segment_ids"], strict=True):
    yield tokens[32 : np.sum(segments == 0) - 1], tokens[segments == 1][:-1]


@pytest.mark.parametrize(("rate", "backward"), [(0.5, 0), (0.5, 1), (0.2, 0), (0.0, 1)])
def test_rate_of_random_segments(tmp_path, rate, backward):
  # Sentences of one token: any cut is a border, and what follows fits exactly, so contiguous rows are plain to see.
  rows = source(open_corpus(tmp_path, [[1] * 40_000], vocab_size=50_000), random_rate=rate, bidirectional=True)
  numbers = 8 * np.arange(800) + 2 + backward
  made = rows.rows(numbers)
  assert (made["backward"] == backward).all()
  contiguous, cuts = [], []
  for a, b in parts(made):
    assert len(a) + len(b) == 64 - 32 - 3
    contiguous.append(b[0] == a[-1] + (-1 if backward else 1))
    cuts.append(len(a))
  np.testing.assert_array_equal(made["pair_label"] == 0, contiguous)
  assert stats.binomtest(int(np.sum(contiguous)), 800, 1 - rate).pvalue > 0.01
  assert stats.chisquare(np.bincount(cuts, minlength=29)[1:]).pvalue > 0.01


def test_random_segments_come_from_all_of_the_lane(tmp_path):
  rows = source(open_corpus(tmp_path, [[2] * 20_000], vocab_size=50_000), random_rate=1.0, batch_size=2)
  made = rows.rows(2 * np.arange(1000))
  assert made["pair_label"].all()
  begins = np.array([b[0] - 10 for _, b in parts(made)])
  assert (begins % 2 == 0).all()  # with a sentence
  assert stats.kstest(begins / 40_000, "uniform").pvalue > 0.01


# Sentences of a token, of a few, and longer than the room for A and B: one then reaches over any edge.
SENTENCES = {"of a token": [1] * 400, "short": [7, 3, 11, 2] * 17, "longer than the room": [90, 45, 2, 120, 31, 5, 107]}


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("mem_len", [0, 96])
@pytest.mark.parametrize("lengths", SENTENCES.values(), ids=SENTENCES)
def test_random_segments_are_neither_the_rows_text_nor_in_memory(tmp_path, lengths, mem_len, backward):
  corpus = open_corpus(tmp_path, [lengths])
  rows = source(corpus, random_rate=1.0, batch_size=2, mem_len=mem_len, tokenizer=Tokenizer())
  numbers = np.arange(backward, 400 * len(rows), 2)
  found = []
  for number, (a, b) in zip(numbers, parts(rows.rows(numbers)), strict=True):
    assert len(a) + len(b) == 29
    place = (9 + sum(lengths) - b if backward else b - 10) - number // 2 % len(rows) * 32  # from the row's first token
    assert ((place < -max(64, mem_len)) | (place >= 61)).all()
    found += place.tolist()
  assert 61 in found
  assert -1 - max(64, mem_len) in found or max(lengths) > 29  # a longer one loses its right end


@pytest.mark.parametrize("lengths", [[1] * 64, [30, 34], [33, 2, 29], [64]], ids=str)
@pytest.mark.parametrize("backward", [0, 1])
def test_a_lane_with_nothing_else_gives_what_follows(tmp_path, lengths, backward):
  rows = source(open_corpus(tmp_path, [lengths]), random_rate=1.0, batch_size=2, tokenizer=Tokenizer())
  assert len(rows) == 1
  made = rows.rows(np.arange(backward, 400, 2))
  for (a, b), label in zip(parts(made), made["pair_label"], strict=True):
    a, b = (73 - a, 73 - b) if backward else (a - 10, b - 10)
    assert a[0] == 32
    # The row's own text is 61 tokens, so three others are left in the lane.
    assert b[0] >= 61 if label else b[0] == a[-1] + 1


@pytest.mark.parametrize("change", [{"seed": 4}, {"stage": 1}])
def test_seeds_and_stages_are_independent(corpus, change):
  one, other = (epoch_of(source(corpus, **options))["tokens"] for options in ({}, change))
  assert (one == other)[..., :32].mean() < 0.05


# --- a function of the number alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_neither_processes_nor_the_start_change_a_row(corpus, processes):
  rows = source(corpus)
  stop = 2 * len(rows)
  share = 8 // processes
  for process in range(processes):
    mine = slice(process * share, (process + 1) * share)
    read = batches(source(corpus), 8, len(rows) - 2, stop, mine)
    for step in range(len(rows) - 2, len(rows) + 3):
      equal(next(read), {name: values[mine] for name, values in rows.batch(step).items()})
    read.close()


def test_any_rows_in_any_order(corpus):
  rows = source(corpus)
  numbers = [*range(0, 16 * len(rows), 37), 10**12]
  random.Random(0).shuffle(numbers)
  together = rows.rows(np.array(numbers))
  for place, number in enumerate(numbers[:50]):
    step, row = divmod(number, 8)
    equal(
      {name: values[place] for name, values in together.items()},
      {name: values[row] for name, values in rows.batch(step).items()},
    )


def test_batches_stay_what_they_were(corpus):
  # A workdir may be continued under another version of anything below: these values must not move.
  rows = source(corpus).rows(np.arange(0, 5000, 7))
  names = ("backward", "document_ids", "segment_ids", "sequence_ids", "tokens")
  digest = hashlib.sha256(b"".join(rows[name].astype("<i4").tobytes() for name in names))
  assert digest.hexdigest()[:16] == "fb2e6dad01c30965"


# --- evaluation ---------------------------------------------------------------------------------------------------


def test_evaluation_takes_fewer_lanes_of_more_steps(corpus):
  rows = source(corpus, batch_size=96, partial=True)
  assert rows.lanes == rows._text.num_tokens // (64 + 7 * 32) < 48
  assert len(rows) >= 8
  read = list(evaluation_batches(rows, 96))
  assert len(read) == len(rows)
  for step, batch in enumerate(read):
    equal(batch, rows.batch(step))
    assert batch["tokens"].shape == (96, 64)
    real = batch["sequence_ids"].all(axis=1)
    assert real.tolist() == [True] * 2 * rows.lanes + [False] * (96 - 2 * rows.lanes)
    for name, values in batch.items():
      assert (values[~real] == 0).all(), name
    assert batch["document_ids"][real].min() >= 1
  assert len(list(evaluation_batches(rows, 96, 3))) == 3


def test_evaluation_with_text_enough_has_no_padding(corpus):
  equal(source(corpus, partial=True).batch(5), source(corpus).batch(5))


def test_evaluation_on_any_number_of_processes(corpus):
  rows = source(corpus, batch_size=96, partial=True)
  halves = [list(evaluation_batches(rows, 96, 2, part)) for part in (slice(0, 24), slice(24, 96))]
  for step, whole in enumerate(evaluation_batches(rows, 96, 2)):
    equal(whole, {name: np.concatenate([half[step][name] for half in halves]) for name in whole})


def test_evaluation_of_very_little_text(tmp_path):
  rows = source(open_corpus(tmp_path, [[30, 30], [9]]), batch_size=8, partial=True)
  assert (rows.lanes, len(rows)) == (1, 1)
  assert rows.batch(0)["sequence_ids"].any(axis=1).tolist() == [True, True] + [False] * 6


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("options", "message"),
  [
    ({"reuse_len": 60}, r"reuse_len=60 does not fit length=64: .* it lies in 1 … 59$"),
    ({"reuse_len": 0}, "reuse_len=0 does not fit"),
    ({"reuse_len": -1}, "reuse_len=-1 does not fit"),
    ({"length": 8}, "reuse_len=4 does not fit length=8"),
    ({"batch_size": 7}, "batch_size=7 is odd"),
    ({"batch_size": 0}, "batch_size=0 must be at least 1"),
    ({"seed": 1 << 32}, "must lie in"),
    ({"random_rate": -0.5}, "random_rate=-0.5 must lie"),
    (
      {"length": 1024, "batch_size": 1000},
      r"split 'train' has \d+ tokens, too few for .*; batch_size=1[0-9] would fit",
    ),
    ({"length": 1 << 20}, "prepare more text, or use shorter rows"),
    ({"length": 1 << 20, "partial": True}, "prepare more text, or use shorter rows"),
    ({"tokenizer": Tokenizer(fingerprint="another")}, "another tokenizer"),
  ],
)
def test_fields_out_of_range(corpus, options, message):
  with pytest.raises(ValueError, match=message) as caught:
    source(corpus, **options)
  assert "\n" not in str(caught.value)


def test_the_batch_size_that_would_fit_fits(corpus):
  tokens = Text(corpus, EOD).num_tokens
  fits = tokens // 64 * 2
  assert len(source(corpus, batch_size=fits)) >= 1
  with pytest.raises(ValueError, match=f"batch_size={fits} would fit"):
    source(corpus, batch_size=fits + 2)
