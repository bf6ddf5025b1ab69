"""A stream of documents is the list of their tokens in the epoch's order, found without making it."""

import itertools

import numpy as np
import pytest
from scipy import stats

from data import philox, text_stream
from data.corpus import Corpus
from data.text_stream import Stream, Text
from tests.data.corpora import numbered, write_corpus

EOD = 7
RNG = np.random.default_rng(1)
LENGTHS = [RNG.integers(1, 25, RNG.integers(1, 25)).tolist() for _ in range(60)] + [[1], [1], [90], [200, 3]] * 3
KEY = philox.Key(3, 0, 0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
  folder = tmp_path_factory.mktemp("corpus")
  return open_corpus(folder, LENGTHS, shards=3, block=64, vocab_size=50_000)


def open_corpus(folder, lengths, **options):
  return Corpus.open(write_corpus(folder, {"train": numbered(*lengths)}, **options), "train")


def plain_stream(stream: Stream) -> tuple[list[int], list[int], list[int]]:
  """The whole stream as lists: tokens, the number of each one's sentence (any, but its own), and of its document."""
  documents = [(number, lengths) for number, lengths in enumerate(LENGTHS)]
  size = -(-len(documents) // text_stream.MAX_BLOCKS)
  blocks = [documents[at : at + size] for at in range(0, len(documents), size)]
  first = [10 + sum(map(sum, LENGTHS[:number])) for number in range(len(LENGTHS))]
  tokens, sentences, owners = [], [], []
  for number, lengths in itertools.chain.from_iterable(blocks[place] for place in stream.order):
    token = first[number]
    for length in lengths:
      tokens += range(token, token + length)
      sentences += [(sentences[-1] if sentences else 0) + 1] * length
      token += length
    if stream.text.eod:
      tokens.append(EOD)
      sentences.append(sentences[-1])  # it ends the last sentence (xlnet, _create_data)
    owners += [number] * (sum(lengths) + stream.text.eod)
  return tokens, sentences, owners


@pytest.fixture(params=[(None, 1 << 16), (EOD, 1 << 16), (EOD, 9)], ids=["no eod", "eod", "blocks"])
def stream(request, corpus, monkeypatch):
  eod_id, blocks = request.param
  monkeypatch.setattr(text_stream, "MAX_BLOCKS", blocks)
  return Text(corpus, eod_id).stream(KEY, 5)


def test_spans_of_the_stream(stream):
  tokens, sentences, documents = plain_stream(stream)
  assert stream.text.num_tokens == len(tokens)
  ends = np.sort(np.random.default_rng(0).integers(0, len(tokens) + 1, (300, 2)))
  ends[:3] = [0, len(tokens)], [0, 1], [len(tokens) - 1, len(tokens)]
  ends = ends[ends[:, 0] < ends[:, 1]]
  starts, lengths = ends[:, 0], ends[:, 1] - ends[:, 0]
  read, owners = stream.read(starts, lengths)
  assert read.tolist() == [token for a, b in ends for token in tokens[a:b]]
  assert owners.tolist() == [document for a, b in ends for document in documents[a:b]]
  begins = np.flatnonzero(np.diff(sentences, prepend=0))
  expected = [(span, at) for span, (a, b) in enumerate(ends) for at in begins[(a <= begins) & (begins < b)]]
  assert list(zip(*map(np.ndarray.tolist, stream.borders(starts, lengths)), strict=True)) == expected


def test_sentences_of_the_stream(stream):
  _, sentences, _ = plain_stream(stream)
  starts, ends = stream.sentences(np.arange(len(sentences)))
  numbers = np.array(sentences)
  assert (starts == np.searchsorted(numbers, numbers)).all()
  assert (ends == np.searchsorted(numbers, numbers, side="right")).all()


def test_every_epoch_orders_blocks_anew(corpus, monkeypatch):
  monkeypatch.setattr(text_stream, "MAX_BLOCKS", 30)
  text = Text(corpus, EOD)
  orders = [text.stream(key, epoch).order for key in (KEY, KEY._replace(stage=1)) for epoch in range(3)]
  assert len(orders[0]) == 24  # 72 documents, three in each
  for order in orders:
    assert sorted(order.tolist()) == list(range(24))
  for one, other in itertools.combinations([*orders, np.arange(24)], 2):
    assert (one == other).mean() < 0.3


def test_a_stream_of_a_few_blocks_takes_every_order_alike(tmp_path):
  text = Text(open_corpus(tmp_path, [[3], [4], [5]]), None)
  counts = np.bincount([int("".join(map(str, text.stream(KEY, e).order))) for e in range(3000)], minlength=211)
  orders = counts[counts > 0]
  assert len(orders) == 6
  assert stats.chisquare(orders).pvalue > 0.01
