"""From documents to a prepared corpus (the folder that `data.corpus` describes).

Three passes, each over parts that processes or machines take one by one, and each leaving files that are whole or not
there:

  hash      each shard's documents are hashed: SPLIT-NNNNN.hashes, a piece for each range of hashes
  compare   equal hashes lie in the same range; a range fits in memory, and every document of it but the first of its
            kind is noted: NNNNN.duplicates, a piece for each shard
  tokenize  each shard's other documents become sentences of token ids

Killed at any moment and started again, preparation goes on with the first part that is not there; what it ends with
does not depend on that, nor on who does it: the processes here, or workers of Apache Beam that share nothing but the
folder. Memory holds one batch of documents a process, however large the corpus is. Copies are dropped across splits
too, and the held-out split keeps its own.
"""

import collections
import dataclasses
import functools
import hashlib
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from data import corpus, places, sentences, shards
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
  output: epath.PathLike,
  splits: Mapping[str, Documents],
  tokenizer: Tokenizer,
  sentence_rule: str = "line",
  language: str = "en",
  run: shards.Run = shards.run,
  shard_bytes: int = _SHARD_BYTES,
) -> corpus.CorpusIndex:
  """Prepares a corpus in the folder `output`, or finishes what an earlier call there has begun.

  Args:
    output: a folder, which all workers reach.
    splits: the documents of each split.
    tokenizer: makes the tokens; a copy of it goes into the folder.
    sentence_rule: `line` or `split`, see `data.sentences`.
    language: of the texts, for `split`.
    run: does the passes.
    shard_bytes: text in a shard, about.

  Returns:
    The index, with the report.

  Raises:
    ValueError: the folder holds a preparation of something else, or no document has a token.
    OSError: the disk is full, or another preparation is at work in the folder.
  """
  sentences.splitter(sentence_rule, language)
  folder = places.reach(output)
  plan = _Plan(folder, dict(splits), sentence_rule, language, shard_bytes)
  folder.mkdir(parents=True, exist_ok=True)
  with shards.locked(folder, f"another preparation is at work in {folder}"):
    _claim(plan, tokenizer)
    if not (folder / corpus.INDEX_FILE).exists():
      plan.unfinished.mkdir(exist_ok=True)
      with places.written(folder / corpus.TOKENIZER_FOLDER) as local:
        tokenizer.save(local)
      run(
        [
          shards.Pass("hash", _hash_shard, plan.jobs()),
          shards.Pass("compare", _find_duplicates, [(plan, i) for i in range(plan.num_ranges)]),
          shards.Pass("tokenize", _tokenize_shard, plan.jobs()),
        ]
      )
      _finish(plan, tokenizer)
    plan.unfinished.rmtree(missing_ok=True)
  return corpus.CorpusIndex.read(folder)


@dataclasses.dataclass(frozen=True)
class _Plan:
  """What a preparation is made from, and how that is cut into parts."""

  folder: epath.Path
  splits: Mapping[str, Documents]
  sentence_rule: str
  language: str
  shard_bytes: int

  @property
  def unfinished(self) -> epath.Path:
    return self.folder / "unfinished"

  @property
  def num_ranges(self) -> int:
    return -(-sum(map(len, self.splits.values())) // _RANGE_DOCUMENTS)

  def duplicates_file(self, number: int) -> epath.Path:
    return self.unfinished / f"{number:05d}.duplicates"

  @property
  def order(self) -> list[str]:
    """The splits as their documents are numbered: the held-out ones first, which are the ones that are kept."""
    return sorted(self.splits, key=lambda name: name != HELDOUT)

  def num_shards(self, split: str) -> int:
    documents = self.splits[split]
    return min(len(documents), -(-int(len(documents) * documents.example_bytes) // self.shard_bytes) or 1)

  def jobs(self) -> list["_Job"]:
    """All shards, as their documents are numbered."""
    return [_Job(self, split, shard) for split in self.order for shard in range(self.num_shards(split))]

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
    """The number of its first document."""
    splits = self.plan.splits
    return sum(len(splits[name]) for name in self.plan.order[: self.plan.order.index(self.split)]) + self.range[0]

  @property
  def position(self) -> int:
    """Its position in `_Plan.jobs()`."""
    return sum(map(self.plan.num_shards, self.plan.order[: self.plan.order.index(self.split)])) + self.shard

  @property
  def shard_file(self) -> str:
    return corpus.shard_file(self.split, self.shard, self.plan.num_shards(self.split))

  def file(self, kind: str) -> epath.Path:
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
  path = job.file("hashes")
  if path.exists():
    return
  digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in job.texts())
  table = np.empty(len(digests) // 16, _HASH)
  table["high"], table["low"] = np.frombuffer(digests, "<u8").reshape(-1, 2).T
  table["document"] = np.arange(len(table)) + job.first_number
  table = table[np.argsort(table["high"], kind="stable")]
  limits = [2**64 * i // job.plan.num_ranges for i in range(1, job.plan.num_ranges)]
  _save_pieces(path, table, np.searchsorted(table["high"], np.array(limits, np.uint64)))


def _find_duplicates(job: tuple[_Plan, int]) -> None:
  """Notes the documents in one range of hashes that repeat one of a lower number."""
  plan, number = job
  path = plan.duplicates_file(number)
  if path.exists():
    return
  jobs = plan.jobs()
  read = functools.partial(_read_piece, number=number, pieces=plan.num_ranges, dtype=_HASH)
  table = np.concatenate(list(places.each(read, [shard.file("hashes") for shard in jobs])))
  table = table[np.lexsort((table["document"], table["low"], table["high"]))]
  again = (table["high"][1:] == table["high"][:-1]) & (table["low"][1:] == table["low"][:-1])
  repeated = np.sort(table["document"][1:][again])
  limits = [shard.first_number for shard in jobs[1:]]
  _save_pieces(path, repeated, np.searchsorted(repeated, np.array(limits, np.uint64)))


def _is_duplicate(job: _Job) -> np.ndarray:
  """bool [documents of the shard]."""
  plan, (start, stop) = job.plan, job.range
  read = functools.partial(_read_piece, number=job.position, pieces=len(plan.jobs()), dtype=np.dtype("<u8"))
  result = np.zeros(stop - start, bool)
  for found in places.each(read, [plan.duplicates_file(number) for number in range(plan.num_ranges)]):
    result[found.astype(np.int64) - job.first_number] = True
  return result


def _save_pieces(path: epath.Path, rows: np.ndarray, limits: np.ndarray) -> None:
  """Writes a file whose pieces `_read_piece` reads one by one; `limits` are where all but the first of them begin."""
  bounds = np.array([0, *limits, len(rows)], "<i8")
  shards.write_bytes(path, [bounds.tobytes(), rows.tobytes()])


def _read_piece(path: epath.Path, number: int, pieces: int, dtype: np.dtype) -> np.ndarray:
  with path.open("rb") as file:
    file.seek(8 * number)
    start, stop = np.frombuffer(file.read(16), "<i8").tolist()
    file.seek(8 * (pieces + 1) + start * dtype.itemsize)
    return np.frombuffer(file.read((stop - start) * dtype.itemsize), dtype)


def _tokenize_shard(job: _Job) -> None:
  """Writes one shard's tokens, and what will be joined of its sentences, documents, counts and totals."""
  done = job.file("json")
  if done.exists():
    return
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
def _tokenizer(folder: epath.Path) -> Tokenizer:
  with places.local_copy(folder) as local:
    return load_tokenizer(local)


def _finish(plan: _Plan, tokenizer: Tokenizer) -> None:
  """Joins what the shards left and writes corpus.json."""
  splits, report = {}, {}
  for split in plan.splits:
    jobs = [job for job in plan.jobs() if job.split == split]
    totals = list(places.each(_totals, [job.file("json") for job in jobs]))
    summed = collections.Counter()
    for total in totals:
      summed.update(total)
    if not summed["tokens"]:
      raise ValueError(f"no document of the {split} split has a token")
    for kind, file in (("sentences", corpus.sentences_file), ("documents", corpus.documents_file)):
      _join(plan.folder / file(split), [job.file(f"{kind}.npy") for job in jobs], summed[kind])
    frequencies = sum(places.each(_load, [job.file("counts.npy") for job in jobs]))
    _save(plan.folder / corpus.counts_file(split), frequencies)
    splits[split] = corpus.Split(tuple(itertools.starmap(_entry, zip(jobs, totals, strict=True))))
    report[split] = {
      **{name: summed[name] for name in _REPORTED},
      "bytes_per_token": round(summed["bytes"] / summed["tokens"], 4),
      "unknown_rate": round(int(frequencies[tokenizer.unk_id]) / summed["tokens"], 6),
    }
  for killed in plan.folder.glob(f"*{shards.PARTIAL}"):
    killed.unlink(missing_ok=True)
  dtype = corpus.token_dtype(tokenizer.vocab_size).name
  index = corpus.CorpusIndex(tokenizer.fingerprint, tokenizer.vocab_size, splits, dtype, corpus.BLOCK, report)
  index.write(plan.folder)


def _entry(job: _Job, totals: Mapping[str, int]) -> corpus.Shard:
  fields = {name: totals.get(name, 0) for name in ("tokens", "documents", "sentences", "bytes")}
  return corpus.Shard(job.shard_file, records=-(-fields["tokens"] // corpus.BLOCK), **fields)


def _totals(path: epath.Path) -> dict[str, int]:
  return json.loads(path.read_text())


def _save(path: epath.Path, array: np.ndarray) -> None:
  buffer = io.BytesIO()
  np.save(buffer, array)
  shards.write_bytes(path, [buffer.getvalue()])


def _load(path: epath.Path) -> np.ndarray:
  return np.load(io.BytesIO(path.read_bytes()))


def _join(path: epath.Path, parts: Sequence[epath.Path], length: int) -> None:
  """Concatenates .npy files of uint32 [n], few in memory at a time; `length` is the sum of n."""
  # Not a memory map: on a full disk that ends the process instead of raising.
  header = io.BytesIO()
  description = {"descr": np.dtype("<u4").str, "fortran_order": False, "shape": (length,)}
  np.lib.format.write_array_header_1_0(header, description)
  arrays = places.each(_load, parts)
  shards.write_bytes(path, itertools.chain([header.getvalue()], (array.tobytes() for array in arrays)))
