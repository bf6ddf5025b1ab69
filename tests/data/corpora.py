"""Tiny prepared corpora for tests."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from array_record.python import array_record_module

from data import corpus


@dataclasses.dataclass(frozen=True)
class Tokenizer:
  """As much of a tokenizer as batches need: five special pieces, then plain ones."""

  fingerprint: str = "0123456789abcdef"
  vocab_size: int = 1000
  pad_id: int = 0
  unk_id: int = 1
  cls_id: int = 2
  sep_id: int = 3
  mask_id: int = 4
  eod_id: int | None = None
  cls_last: bool = False


Documents = Sequence[Sequence[Sequence[int]]]  # documents of sentences of tokens


def write_corpus(
  folder: pathlib.Path, splits: Mapping[str, Documents], *, shards: int = 1, block: int = 16, vocab_size: int = 1000
) -> pathlib.Path:
  """Writes a prepared corpus, documents dealt to the shards in order, and returns its folder."""
  folder.mkdir(parents=True, exist_ok=True)
  dtype = corpus.token_dtype(vocab_size)
  entries = {}
  for split, documents in splits.items():
    entries[split] = []
    for shard, indices in enumerate(np.array_split(np.arange(len(documents)), shards)):
      mine = [documents[i] for i in indices]
      tokens = np.array([token for document in mine for sentence in document for token in sentence], dtype)
      file = corpus.shard_file(split, shard, shards)
      writer = array_record_module.ArrayRecordWriter(str(folder / file), corpus.WRITER_OPTIONS)
      records = range(0, len(tokens), block)
      for start in records:
        writer.write(tokens[start : start + block].tobytes())
      writer.close()
      sentences = sum(len(document) for document in mine)
      entries[split].append(corpus.Shard(file, len(records), len(tokens), len(mine), sentences, bytes=len(tokens)))
    flat = [sentence for document in documents for sentence in document]
    np.save(folder / corpus.sentences_file(split), np.array([len(s) for s in flat], np.uint32))
    np.save(folder / corpus.documents_file(split), np.array([len(d) for d in documents], np.uint32))
    counts = np.bincount([token for sentence in flat for token in sentence], minlength=vocab_size)
    np.save(folder / corpus.counts_file(split), counts.astype(np.int64))
  corpus.CorpusIndex(
    tokenizer=Tokenizer.fingerprint,
    vocab_size=vocab_size,
    splits={split: corpus.Split(tuple(shards)) for split, shards in entries.items()},
    dtype=dtype.name,
    block=block,
  ).write(folder)
  return folder


def numbered(*documents: Sequence[int], first: int = 10) -> list[list[list[int]]]:
  """Documents by the lengths of their sentences, whose tokens count up from `first` and never repeat."""
  result = []
  for lengths in documents:
    result.append([])
    for length in lengths:
      result[-1].append(list(range(first, first + length)))
      first += length
  return result
