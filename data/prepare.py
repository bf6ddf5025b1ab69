"""From documents to a prepared corpus (the folder that `data.corpus` describes).

Three passes, each over parts that processes take one by one, and each leaving files that are whole or not there:

  hash      each shard's documents are hashed: SPLIT-NNNNN.hashes.npy, sorted by hash
  compare   equal hashes lie in the same range of all those files; a range fits in memory, and every document of it but
            the first of its kind is noted: NNNNN.duplicates.npy
  tokenize  each shard's other documents become sentences of token ids

Killed at any moment and started again, preparation goes on with the first part that is not there; what it ends with
does not depend on that, nor on the number of processes. Memory holds one batch of documents a process, however large
the corpus is. Copies are dropped across splits too, and the held-out split keeps its own.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from data import corpus, sentences, shards
from data.corpora import HELDOUT, Documents
from data.tokenizers import Tokenizer, load_tokenizer

PLAN_FILE = "preparation.json"
_SHARD_BYTES = 64 << 20  # text in a shard
_BATCH_CHARS = 1 << 18  # text tokenized at a time
_RANGE_DOCUMENTS = 1 << 20  # documents compared at a time
_REPORTED = (
  "documents",
  "duplicates",
  "empty",
  "sentences",
  "tokens",
  "bytes",
  "one_sentence_documents",
  "one_sentence_tokens",
)
_HASH = np.dtype([("high", "<u8"), ("low", "<u8"), ("document", "<u8")])


def prepare(
  output: str | pathlib.Path,
  splits: Mapping[str, Documents],
  tokenizer: Tokenizer,
  sentence_rule: str = "line",
  language: str = "en",
  processes: int = 1,
  shard_bytes: int = _SHARD_BYTES,
) -> corpus.CorpusIndex:
  """Prepares a corpus in the folder `output`, or finishes what an earlier call there has begun.

  Args:
    output: a local folder.
    splits: the documents of each split.
    tokenizer: makes the tokens; a copy of it goes into the folder.
    sentence_rule: `line` or `split`, see `data.sentences`.
    language: of the texts, for `split`.
    processes: how many work side by side.
    shard_bytes: text in a shard, about.

  Returns:
    The index, with the report.

  Raises:
    ValueError: the folder holds a preparation of something else, or no document has a token.
    OSError: the disk is full, or another preparation is at work in the folder.
  """
  sentences.splitter(sentence_rule, language)
  if "://" in str(output):
    raise ValueError(f"{output} is remote: prepare on a local disk, then copy the folder")
  folder = pathlib.Path(output)
  plan = _Plan(folder, dict(splits), sentence_rule, language, shard_bytes)
  folder.mkdir(parents=True, exist_ok=True)
  with shards.locked(folder, f"another preparation is at work in {folder}"):
    _claim(plan, tokenizer)
    if not (folder / corpus.INDEX_FILE).exists():
      plan.unfinished.mkdir(exist_ok=True)
      tokenizer.save(folder / corpus.TOKENIZER_FOLDER)
      shards.run(_hash_shard, plan.jobs(), processes, "hash")
      shards.run(_find_duplicates, [(plan, i) for i in range(plan.num_ranges)], processes, "compare")
      counted = shards.run(_tokenize_shard, plan.jobs(), processes, "tokenize")
      _finish(plan, tokenizer, counted)
    shutil.rmtree(plan.unfinished, ignore_errors=True)
  return corpus.CorpusIndex.read(folder)


@dataclasses.dataclass(frozen=True)
class _Plan:
  """What a preparation is made from, and how that is cut into parts."""

  folder: pathlib.Path
  splits: Mapping[str, Documents]
  sentence_rule: str
  language: str
  shard_bytes: int

  @property
  def unfinished(self) -> pathlib.Path:
    return self.folder / "unfinished"

  @property
  def num_ranges(self) -> int:
    return -(-sum(map(len, self.splits.values())) // _RANGE_DOCUMENTS)

  def duplicates_file(self, number: int) -> pathlib.Path:
    return self.unfinished / f"{number:05d}.duplicates.npy"

  def num_shards(self, split: str) -> int:
    documents = self.splits[split]
    return min(len(documents), -(-int(len(documents) * documents.example_bytes) // self.shard_bytes) or 1)

  def jobs(self) -> list["_Job"]:
    return [_Job(self, split, shard) for split in self.splits for shard in range(self.num_shards(split))]

  def first_number(self, split: str) -> int:
    """Documents are numbered through all splits, the held-out ones first: they are the ones that are kept."""
    order = sorted(self.splits, key=lambda name: name != HELDOUT)
    return sum(len(self.splits[name]) for name in order[: order.index(split)])

  def inputs(self, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
      "documents": {split: str(documents) for split, documents in self.splits.items()},
      "tokenizer": tokenizer.fingerprint,
      "sentences": self.sentence_rule,
      "language": self.language,
      "shard_bytes": self.shard_bytes,
      "block": corpus.BLOCK,
      "format": corpus.FORMAT,
    }


@dataclasses.dataclass(frozen=True)
class _Job:
  """One shard of one split."""

  plan: _Plan
  split: str
  shard: int

  @property
  def range(self) -> tuple[int, int]:
    """Its documents, as positions in the split."""
    count, shards_ = len(self.plan.splits[self.split]), self.plan.num_shards(self.split)
    return count * self.shard // shards_, count * (self.shard + 1) // shards_

  @property
  def first_number(self) -> int:
    """The number of its first document, see `_Plan.first_number`."""
    return self.plan.first_number(self.split) + self.range[0]

  @property
  def shard_file(self) -> str:
    return corpus.shard_file(self.split, self.shard, self.plan.num_shards(self.split))

  def file(self, kind: str) -> pathlib.Path:
    return self.plan.unfinished / f"{self.split}-{self.shard:05d}.{kind}"

  def texts(self) -> Iterator[str]:
    return self.plan.splits[self.split].read(*self.range)


def _claim(plan: _Plan, tokenizer: Tokenizer) -> None:
  """Notes what the folder is prepared from, or checks that it is this."""
  inputs, path = plan.inputs(tokenizer), plan.folder / PLAN_FILE
  if path.exists():
    before = json.loads(path.read_text())
    if differing := [name for name in inputs if inputs[name] != before.get(name)]:
      raise ValueError(
        f"{plan.folder} holds a preparation with other {', '.join(differing)}; delete it or choose another --output"
      )
  elif (plan.folder / corpus.INDEX_FILE).exists():
    raise ValueError(f"{plan.folder} holds a corpus but no {PLAN_FILE}; delete it or choose another --output")
  else:
    shards.write_json(path, inputs)


def _hash_shard(job: _Job) -> None:
  path = job.file("hashes.npy")
  if path.exists():
    return
  digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in job.texts())
  table = np.empty(len(digests) // 16, _HASH)
  table["high"], table["low"] = np.frombuffer(digests, "<u8").reshape(-1, 2).T
  table["document"] = np.arange(len(table)) + job.first_number
  _save(path, table[np.argsort(table["high"], kind="stable")])


def _find_duplicates(job: tuple[_Plan, int]) -> None:
  """Notes the documents in one range of hashes that repeat one of a lower number."""
  plan, number = job
  path = plan.duplicates_file(number)
  if path.exists():
    return
  first, last = ((2**64 - 1) * i // plan.num_ranges for i in (number, number + 1))
  pieces = []
  for shard in plan.jobs():
    table = np.load(shard.file("hashes.npy"), mmap_mode="r")
    start = np.searchsorted(table["high"], np.uint64(first), "right") if number else 0
    pieces.append(np.array(table[start : np.searchsorted(table["high"], np.uint64(last), "right")]))
  table = np.concatenate(pieces)
  table = table[np.lexsort((table["document"], table["low"], table["high"]))]
  again = (table["high"][1:] == table["high"][:-1]) & (table["low"][1:] == table["low"][:-1])
  _save(path, np.sort(table["document"][1:][again]))


def _is_duplicate(job: _Job) -> np.ndarray:
  """bool [documents of the shard]."""
  start, stop = job.range
  result = np.zeros(stop - start, bool)
  for number in range(job.plan.num_ranges):
    found = np.load(job.plan.duplicates_file(number), mmap_mode="r")
    bounds = np.array([job.first_number, job.first_number + len(result)], found.dtype)
    a, b = np.searchsorted(found, bounds)
    result[(found[a:b] - bounds[0]).astype(np.int64)] = True
  return result


def _tokenize_shard(job: _Job) -> dict[str, Any]:
  """Writes one shard's tokens, and what will be joined of its sentences, documents and counts; returns its totals."""
  done = job.file("json")
  if done.exists():
    return json.loads(done.read_text())
  tokenizer = _tokenizer(job.plan.folder / corpus.TOKENIZER_FOLDER)
  split = sentences.splitter(job.plan.sentence_rule, job.plan.language)
  dtype = corpus.token_dtype(tokenizer.vocab_size)
  duplicate = _is_duplicate(job)
  texts = (text for text, drop in zip(job.texts(), duplicate, strict=True) if not drop)
  totals = collections.Counter(duplicates=int(duplicate.sum()))
  frequencies = np.zeros(tokenizer.vocab_size, np.int64)
  lengths, counts = [], []
  with shards.record_writer(job.plan.folder / job.shard_file, corpus.WRITER_OPTIONS) as write:
    pending = np.zeros(0, dtype)
    for batch in _batches(texts):
      tokens, sentence_lengths, sentence_counts = _encode([split(text) for text in batch], tokenizer)
      lengths.append(sentence_lengths)
      counts.append(sentence_counts)
      frequencies += np.bincount(tokens, minlength=len(frequencies))
      totals.update(
        tokens=len(tokens),
        documents=len(sentence_counts),
        sentences=len(sentence_lengths),
        empty=len(batch) - len(sentence_counts),
        bytes=sum(len(text.encode()) for text in batch),
      )
      pending = np.concatenate([pending, tokens.astype(dtype)])
      whole = len(pending) - len(pending) % corpus.BLOCK
      for record in pending[:whole].reshape(-1, corpus.BLOCK):
        write(record.tobytes())
      pending = pending[whole:]
    if len(pending):
      write(pending.tobytes())
  lengths, counts = (np.concatenate([np.zeros(0, np.uint32), *arrays]) for arrays in (lengths, counts))
  alone = lengths[(np.cumsum(counts, dtype=np.int64) - counts)[counts == 1]]
  totals.update(one_sentence_documents=len(alone), one_sentence_tokens=int(alone.sum()))
  for kind, array in (("sentences.npy", lengths), ("documents.npy", counts), ("counts.npy", frequencies)):
    _save(job.file(kind), array)
  shards.write_json(done, totals)
  return totals


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
  batch, size = [], 0
  for text in texts:
    batch.append(text)
    size += len(text)
    if size >= _BATCH_CHARS:
      yield batch
      batch, size = [], 0
  if batch:
    yield batch


def _encode(documents: list[list[str]], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns int32 tokens, uint32 [sentences] their lengths, uint32 [documents] their sentences; empty ones left out."""
  # In batches again: one document may be a library, and an encoded text takes a hundred times its tokens.
  batches = _batches(itertools.chain.from_iterable(documents))
  encoded = [tokens for batch in batches for tokens in tokenizer.encode_batch(batch)]
  lengths = np.array([len(tokens) for tokens in encoded], np.uint32)
  ends = np.cumsum([0, *map(len, documents)])
  filled = np.cumsum([0, *(lengths > 0)])  # sentences with a token before each sentence
  counts = np.diff(filled[ends]).astype(np.uint32)
  return np.concatenate([np.zeros(0, np.int32), *encoded]), lengths[lengths > 0], counts[counts > 0]


@functools.lru_cache(maxsize=1)
def _tokenizer(folder: pathlib.Path) -> Tokenizer:
  return load_tokenizer(folder)


def _finish(plan: _Plan, tokenizer: Tokenizer, totals: list[dict[str, int]]) -> None:
  """Joins what the shards left and writes corpus.json."""
  splits, report = {}, {}
  for split in plan.splits:
    jobs = [job for job in plan.jobs() if job.split == split]
    mine = [total for job, total in zip(plan.jobs(), totals, strict=True) if job.split == split]
    summed = collections.Counter()
    for total in mine:
      summed.update(total)
    if not summed["tokens"]:
      raise ValueError(f"no document of the {split} split has a token")
    _join(plan.folder / corpus.sentences_file(split), [job.file("sentences.npy") for job in jobs])
    _join(plan.folder / corpus.documents_file(split), [job.file("documents.npy") for job in jobs])
    frequencies = sum(np.load(job.file("counts.npy")) for job in jobs)
    _save(plan.folder / corpus.counts_file(split), frequencies)
    splits[split] = corpus.Split(tuple(itertools.starmap(_entry, zip(jobs, mine, strict=True))))
    report[split] = {
      **{name: summed[name] for name in _REPORTED},
      "bytes_per_token": round(summed["bytes"] / summed["tokens"], 4),
      "unknown_rate": round(int(frequencies[tokenizer.unk_id]) / summed["tokens"], 6),
    }
  dtype = corpus.token_dtype(tokenizer.vocab_size).name
  index = corpus.CorpusIndex(tokenizer.fingerprint, tokenizer.vocab_size, splits, dtype, corpus.BLOCK, report)
  index.write(plan.folder)


def _entry(job: _Job, totals: Mapping[str, int]) -> corpus.Shard:
  fields = {name: totals.get(name, 0) for name in ("tokens", "documents", "sentences", "bytes")}
  return corpus.Shard(job.shard_file, records=-(-fields["tokens"] // corpus.BLOCK), **fields)


def _save(path: pathlib.Path, array: np.ndarray) -> None:
  buffer = io.BytesIO()
  np.save(buffer, array)
  shards.write_bytes(path, [buffer.getvalue()])


def _join(path: pathlib.Path, parts: list[pathlib.Path]) -> None:
  """Concatenates one-dimensional .npy files, one in memory at a time."""
  # Not a memory map: on a full disk that ends the process instead of raising.
  arrays = [np.load(part, mmap_mode="r") for part in parts]
  header = io.BytesIO()
  description = {"descr": arrays[0].dtype.str, "fortran_order": False, "shape": (sum(map(len, arrays)),)}
  np.lib.format.write_array_header_1_0(header, description)
  shards.write_bytes(path, itertools.chain([header.getvalue()], (array.tobytes() for array in arrays)))
