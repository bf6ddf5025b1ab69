"""Measures how fast batches are made, on one core, from a corpus of random tokens shaped like Wikipedia.

  python -m benchmarks.pipeline
  python -m benchmarks.pipeline --rounds=10 --json

Sequence lengths 128 and 512 alternate. `tokens_per_s` counts real tokens, padding left out, and is the median over the
rounds; `row_tokens_per_s` counts padding too, as a training step does. `chunks_per_s` is the making of the chunk table,
once for each stage of a run.
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from data import corpus, shards
from data.pipeline import PairSource, batches
from tools import cli

_LENGTHS = {128: 300_000, 512: 1_000_000}  # and how many tokens a second are wanted of one core
_VOCAB_SIZE = 30_522
_SHARDS = 4


class _Tokenizer:
  """The special tokens; the text needs no other."""

  fingerprint = "random"
  pad_id, cls_id, sep_id = 0, 101, 102


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


def measure(opened: corpus.Corpus, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
  """Returns the measurements of each length."""
  _ = opened.sentence_starts, opened.document_starts
  sources = {length: PairSource(opened, _Tokenizer(), length, seed=0) for length in _LENGTHS}
  results = {}
  for length, source in sources.items():
    begin = time.perf_counter()
    chunks = len(source)
    results[length] = {"target": _LENGTHS[length], "chunks_per_s": chunks / (time.perf_counter() - begin)}
  rates = {length: [] for length in _LENGTHS}
  for number in range(arguments.rounds):
    for length, source in sources.items():
      rates[length].append(_rates(source, arguments.batch_size, 1000 * number, arguments.seconds))
  for length, measured in rates.items():
    results[length]["tokens_per_s"], results[length]["row_tokens_per_s"] = map(
      statistics.median, zip(*measured, strict=True)
    )
  return {str(length): values for length, values in results.items()}


def _rates(source: PairSource, batch_size: int, start: int, seconds: float) -> tuple[float, float]:
  """Real tokens and all tokens a second through the iterator that training reads."""
  real = every = 0
  with closing(batches(source, batch_size, start, start + 10**6)) as read:
    next(read)
    begin = time.perf_counter()
    for batch in read:
      real += int(batch["sequence_ids"].sum())
      every += batch["sequence_ids"].size
      if (elapsed := time.perf_counter() - begin) > seconds:
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
  corpus.CorpusIndex(_Tokenizer.fingerprint, _VOCAB_SIZE, splits, dtype).write(folder)


def _records(text: np.ndarray) -> Iterator[bytes]:
  for start in range(0, len(text), corpus.BLOCK):
    yield text[start : start + corpus.BLOCK].tobytes()


def _table(results: dict[str, dict[str, float]]) -> str:
  lines = [f"{'length':>6} {'tokens/s':>12} {'wanted':>12} {'with padding':>14} {'chunks/s':>12}"]
  for length, row in results.items():
    numbers = row["tokens_per_s"], row["target"], row["row_tokens_per_s"], row["chunks_per_s"]
    lines.append("{:>6} {:>12,.0f} {:>12,} {:>14,.0f} {:>12,.0f}".format(length, *numbers))
  return "\n".join(lines)


if __name__ == "__main__":
  cli.run(main)
