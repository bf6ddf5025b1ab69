"""Measures how fast batches are made, on one core, from a corpus of random tokens shaped like Wikipedia.

  python -m benchmarks.pipeline
  python -m benchmarks.pipeline --rounds=10 --json

Pairs of segments (BERT, ALBERT) and contiguous rows in both directions (XLNet), at lengths 128 and 512, alternate.
`tokens_per_s` counts real tokens, padding left out, and is the median over the rounds; `row_tokens_per_s` counts
padding too, as a training step does. `ready_s` passes before the first row, once for each stage of a run: the table of
chunks (`chunks_per_s`), or the documents' places and the order of an epoch. `seek_ms` is the time to a batch
a billion steps on, whose epoch was not read before.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from data import corpus, shards
from data.pipeline import PairSource, Source, batches
from data.streams import StreamSource
from tools import cli

_LENGTHS = {128: 300_000, 512: 1_000_000}  # and how many tokens a second are wanted of one core
_ROWS = ("pairs", "streams")
_FAR = 10**9  # steps
_VOCAB_SIZE = 30_522
_SHARDS = 4


class Tokenizer:
  """The special tokens; the text needs no other."""

  fingerprint = "random"
  pad_id, cls_id, sep_id, eod_id = 0, 101, 102, 7


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--tokens", type=int, default=20_000_000, help="in the corpus (default: %(default)s)")
  parser.add_argument("--batch_size", type=int, default=256, help="rows of a batch (default: %(default)s)")
  parser.add_argument("--rounds", type=int, default=5, help="of each length, alternating (default: %(default)s)")
  parser.add_argument("--seconds", type=float, default=2.0, help="of a round (default: %(default)s)")
  parser.add_argument("--json", action="store_true", help="print one JSON object")
  arguments = parser.parse_args()
  if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
  with tempfile.TemporaryDirectory() as folder:
    write_corpus(pathlib.Path(folder), arguments.tokens)
    results = measure(corpus.Corpus.open(folder, "train"), arguments)
  print(json.dumps(results) if arguments.json else _table(results))


def measure(opened: corpus.Corpus, arguments: argparse.Namespace) -> list[dict[str, Any]]:
  """Returns the measurements of each kind of rows at each length."""
  _ = opened.sentence_starts, opened.document_starts
  batch_size = arguments.batch_size
  sources, results = {}, []
  for rows in _ROWS:
    for length, target in _LENGTHS.items():
      begin = time.perf_counter()
      if rows == "pairs":
        source = PairSource(opened, Tokenizer(), length, seed=0)
      else:
        source = StreamSource(opened, Tokenizer(), length, batch_size, length // 2, seed=0)
        source.rows(np.zeros(1, int))
      count = source.num_rows
      ready = time.perf_counter() - begin
      result = {"rows": rows, "length": length, "target": target, "ready_s": ready}
      results.append(result | ({"chunks_per_s": count / ready} if rows == "pairs" else {}))
      sources[rows, length] = source
  rates = {key: [] for key in sources}
  for number in range(arguments.rounds):
    for key, source in sources.items():
      rates[key].append(speed(source, batch_size, 1000 * number, arguments.seconds))
  for result, (key, source) in zip(results, sources.items(), strict=True):
    result["tokens_per_s"], result["row_tokens_per_s"] = map(statistics.median, zip(*rates[key], strict=True))
    begin = time.perf_counter()
    source.rows(_FAR * batch_size + np.arange(batch_size))
    result["seek_ms"] = 1000 * (time.perf_counter() - begin)
  return results


def speed(
  source: Source,
  batch_size: int,
  start: int,
  seconds: float,
  rows: slice | np.ndarray = slice(None),
  clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
  """Real tokens and all tokens a second of `clock` through the iterator that training reads; `rows`: of a batch."""
  real = every = 0
  with closing(batches(source, batch_size, start, start + 10**6, rows)) as read:
    next(read)
    begin = clock()
    for batch in read:
      real += int(batch["sequence_ids"].sum())
      every += batch["sequence_ids"].size
      if (elapsed := clock() - begin) > seconds:
        break
  return real / elapsed, every / elapsed


def write_corpus(folder: pathlib.Path, tokens: int) -> None:
  """Writes documents of 25 sentences of 24 tokens on average, both widely spread, in which common tokens are common."""
  rng = np.random.default_rng(0)
  entries, sentence_lengths, document_lengths = [], [], []
  for shard in range(_SHARDS):
    lengths = np.maximum(rng.lognormal(3.0, 0.6, tokens // _SHARDS // 24), 1).astype(np.uint32)
    text = (_VOCAB_SIZE * rng.random(lengths.sum()) ** 3).astype(corpus.token_dtype(_VOCAB_SIZE))
    ends = np.unique(np.append(rng.integers(1, len(lengths), len(lengths) // 25), len(lengths)))
    file = corpus.shard_file("train", shard, _SHARDS)
    with shards.record_writer(folder / file, corpus.WRITER_OPTIONS) as write:
      for record in _records(text):
        write(record)
    records = -(-len(text) // corpus.BLOCK)
    entries.append(corpus.Shard(file, records, len(text), len(ends), len(lengths), bytes=4 * len(text)))
    sentence_lengths.append(lengths)
    document_lengths.append(np.diff(ends, prepend=0).astype(np.uint32))
  np.save(folder / corpus.sentences_file("train"), np.concatenate(sentence_lengths))
  np.save(folder / corpus.documents_file("train"), np.concatenate(document_lengths))
  splits = {"train": corpus.Split(tuple(entries))}
  dtype = corpus.token_dtype(_VOCAB_SIZE).name
  corpus.CorpusIndex(Tokenizer.fingerprint, _VOCAB_SIZE, splits, dtype).write(folder)


def _records(text: np.ndarray) -> Iterator[bytes]:
  for start in range(0, len(text), corpus.BLOCK):
    yield text[start : start + corpus.BLOCK].tobytes()


def _table(results: list[dict[str, Any]]) -> str:
  columns = {  # field: heading, format
    "rows": ("rows", "<8"),
    "length": ("length", ">6"),
    "tokens_per_s": ("tokens/s", ">12,.0f"),
    "target": ("wanted", ">10,"),
    "row_tokens_per_s": ("with padding", ">13,.0f"),
    "ready_s": ("ready, s", ">9.2f"),
    "seek_ms": ("seek, ms", ">9.1f"),
  }
  lines = [" ".join(format(heading, form.split(",")[0].split(".")[0]) for heading, form in columns.values())]
  lines += [" ".join(format(row[field], form) for field, (_, form) in columns.items()) for row in results]
  return "\n".join(lines)


if __name__ == "__main__":
  cli.run(main)
