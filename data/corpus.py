"""A prepared corpus: the folder that preparation writes and batches are read from.

  corpus.json                            the index (`CorpusIndex`); written last, so a folder without it is unfinished
  tokenizer/                             the tokenizer that made the tokens
  SPLIT-00003-of-00008.array_record      the documents' tokens end to end, no special tokens between them, cut into
                                         records of exactly `block` tokens (the last of a shard is shorter)
  SPLIT.sentences.npy                    uint32 [sentences]: tokens of each sentence, never 0
  SPLIT.documents.npy                    uint32 [documents]: sentences of each document, never 0
  SPLIT.counts.npy                       int64 [vocab_size]: how often each token occurs

No document crosses a shard. Any span of tokens therefore lies in neighbouring records of one shard, and reading it
costs one or two small records however long its document is.
"""

import dataclasses
import functools
import io
import itertools
import json
from collections.abc import Mapping
from concurrent import futures
from typing import Any

import numpy as np
from array_record.python import array_record_module
from etils import epath

from data.places import out_of_reach, reach
from data.ragged import ranges
from data.tokenizers import Tokenizer

FORMAT = 1
BLOCK = 4096  # tokens in a record
INDEX_FILE = "corpus.json"
TOKENIZER_FOLDER = "tokenizer"
# One record a chunk of the file, or a random read would decompress its neighbours too.
WRITER_OPTIONS = "group_size:1"
_READER_OPTIONS = "readahead_buffer_size:0"
_READER_BUFFER = 1 << 15  # bytes; its default, 1 MiB, is read for every single record
_REMOTE_READERS = 16


def shard_file(split: str, shard: int, shards: int) -> str:
  """The name of a shard's file of tokens, an ArrayRecord."""
  return f"{split}-{shard:05d}-of-{shards:05d}.array_record"


def sentences_file(split: str) -> str:
  """The name of the split's file of tokens by sentence."""
  return f"{split}.sentences.npy"


def documents_file(split: str) -> str:
  """The name of the split's file of sentences by document."""
  return f"{split}.documents.npy"


def counts_file(split: str) -> str:
  """The name of the split's file of occurrences by token."""
  return f"{split}.counts.npy"


def token_dtype(vocab_size: int) -> np.dtype:
  """The narrowest type that holds every token id, little-endian as on disk."""
  return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


@dataclasses.dataclass(frozen=True)
class Shard:
  """One file of tokens, and what preparation counted in it; `bytes` are those of the text in UTF-8."""

  file: str
  records: int
  tokens: int
  documents: int
  sentences: int
  bytes: int


@dataclasses.dataclass(frozen=True)
class Split:
  """The shards of one split, in order; a total over them is the sum of the field of that name."""

  shards: tuple[Shard, ...]

  def total(self, field: str) -> int:
    return sum(getattr(shard, field) for shard in self.shards)


_TOTALS = tuple(field.name for field in dataclasses.fields(Shard) if field.name != "file")


@dataclasses.dataclass(frozen=True)
class CorpusIndex:
  """The contents of corpus.json.

  Attributes:
    tokenizer: fingerprint of the tokenizer that made the tokens.
    vocab_size: its number of pieces; every token is below it.
    splits: 'train', 'heldout', …
    dtype: 'uint16' or 'uint32', the type of the tokens in the records.
    block: tokens in a record.
    report: what preparation tells the person who ran it; nothing reads it back.
  """

  tokenizer: str
  vocab_size: int
  splits: Mapping[str, Split]
  dtype: str
  block: int = BLOCK
  report: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def write(self, folder: epath.PathLike) -> None:
    """Writes corpus.json at once or not at all. Call it when every other file is in place."""
    splits = {
      name: {
        **{field: split.total(field) for field in _TOTALS},
        "shards": [dataclasses.asdict(s) for s in split.shards],
      }
      for name, split in self.splits.items()
    }
    fields = {"format": FORMAT, "tokenizer": self.tokenizer, "vocab_size": self.vocab_size, "dtype": self.dtype}
    text = json.dumps({**fields, "block": self.block, "splits": splits, "report": dict(self.report)}, indent=1) + "\n"
    partial = epath.Path(folder) / f"{INDEX_FILE}.partial"
    partial.write_text(text)
    partial.replace(epath.Path(folder) / INDEX_FILE)

  @classmethod
  def read(cls, folder: epath.PathLike) -> "CorpusIndex":
    """Reads FOLDER/corpus.json.

    Raises:
      FileNotFoundError: there is no such folder, or its preparation has not finished.
      ValueError: the file is damaged, or of another format than this code reads; or nothing here reaches the folder.
    """
    path = reach(folder) / INDEX_FILE
    if not path.exists():
      if not path.parent.exists():
        raise FileNotFoundError(f"{folder}: no such corpus; prepare it with `python -m tools.prepare_corpus`")
      raise FileNotFoundError(
        f"{folder} holds no {INDEX_FILE}: its preparation has not finished; run `python -m tools.prepare_corpus` again"
      )
    try:
      fields = json.loads(path.read_text())
      version = fields.pop("format")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
      raise ValueError(f"{path} is damaged ({error}); prepare the corpus again") from None
    if version != FORMAT:
      raise ValueError(f"{path} has format {version}, this code reads format {FORMAT}; prepare the corpus again")
    try:
      fields["splits"] = {
        name: Split(tuple(Shard(**shard) for shard in split["shards"])) for name, split in fields["splits"].items()
      }
      return cls(**fields)
    except (KeyError, TypeError, AttributeError) as error:
      raise ValueError(f"{path} is damaged ({error}); prepare the corpus again") from None


@dataclasses.dataclass(frozen=True, eq=False)
class Corpus:
  """Random access to the tokens of one split, as one array of tokens with sentences and documents marked on it."""

  folder: epath.Path
  split: str
  index: CorpusIndex

  @classmethod
  def open(cls, folder: epath.PathLike, split: str) -> "Corpus":
    """Opens a split and checks that every shard holds the records that corpus.json promises.

    Raises:
      FileNotFoundError: the corpus is not there or not finished, or one of its files is missing.
      ValueError: an unknown or empty split, or a file that disagrees with corpus.json.
    """
    corpus = cls(epath.Path(folder), split, CorpusIndex.read(folder))
    if split not in corpus.index.splits:
      fix = "; prepare it again with --heldout=0.05, in another --output" if split == "heldout" else ""
      raise ValueError(f"{folder} has no split {split!r}; it has {', '.join(sorted(corpus.index.splits))}{fix}")
    if not corpus.num_tokens:
      raise ValueError(f"{folder}: split {split!r} is empty")
    # A missing or cut file opens as an empty one, so nothing but the count would tell.
    for shard, reader in zip(corpus._shards, corpus._readers, strict=True):
      path = corpus.folder / shard.file
      if (found := reader.num_records()) != shard.records:
        if not path.exists():
          raise FileNotFoundError(f"{path} is missing; copy the whole corpus folder or prepare it again")
        try:
          reader.close()  # only here does the library say what went wrong
        except RuntimeError as error:
          if out_of_reach(error):
            raise ConnectionError(f"{path} cannot be read just now ({error})") from None
        raise ValueError(
          f"{path} holds {found} records, {INDEX_FILE} says {shard.records}: the file is damaged; "
          "copy it or prepare the corpus again"
        )
    return corpus

  @property
  def num_tokens(self) -> int:
    return self.index.splits[self.split].total("tokens")

  @functools.cached_property
  def sentence_starts(self) -> np.ndarray:
    """int64 [sentences + 1]: where in the split's tokens each sentence begins; the last entry is their number."""
    return self._starts(sentences_file(self.split), self.num_tokens, "tokens")

  @functools.cached_property
  def document_starts(self) -> np.ndarray:
    """int64 [documents + 1]: the first sentence of each document; the last entry is the number of sentences."""
    return self._starts(documents_file(self.split), self.index.splits[self.split].total("sentences"), "sentences")

  def counts(self) -> np.ndarray:
    """int64 [vocab_size]: how often each token occurs in the split."""
    return self._array(counts_file(self.split))

  def require_tokenizer(self, tokenizer: Tokenizer) -> None:
    """Raises ValueError unless the corpus was prepared with this very tokenizer."""
    if tokenizer.fingerprint != self.index.tokenizer:
      raise ValueError(
        f"{self.folder} was prepared with another tokenizer ({self.index.tokenizer[:12]}, not "
        f"{tokenizer.fingerprint[:12]}): use {self.folder / TOKENIZER_FOLDER} or prepare the corpus again"
      )

  def tokens(self, start: int, stop: int) -> np.ndarray:
    """int32 [stop - start]: the tokens of one span, which must lie inside a shard (all of a document always does)."""
    return self.spans(np.array([start]), np.array([stop - start]))

  def spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int32 [sum of lengths]: the tokens of many spans one after another, every record they need read once.

    Args:
      starts: int [spans], where each span begins in the split's tokens.
      lengths: int [spans], its number of tokens, at least 1.

    Raises:
      ValueError: an empty span, one outside the split or over the end of a shard, or a record that cannot be read.
    """
    block = self.index.block
    shards = np.searchsorted(self._shard_tokens, starts, side="right") - 1
    ends = self._shard_tokens[np.minimum(shards + 1, len(self._shards))]
    if ((starts < 0) | (lengths < 1) | (starts + lengths > ends)).any():
      raise ValueError(f"{self.folder}: a span of tokens is empty or leaves its shard of split {self.split!r}")
    # Number the tokens as if every record were full: a span is one interval in these numbers too.
    starts = starts - self._shard_tokens[shards] + self._shard_records[shards] * block
    first, last = starts // block, (starts + lengths - 1) // block
    wanted = np.unique(ranges(first, last - first + 1))
    tokens = self._records(wanted)
    # The records of a span are neighbours in `wanted` as well, so one shift finds all of it.
    starts += (np.searchsorted(wanted, first) - first) * block
    pieces = [tokens[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return np.concatenate([np.zeros(0, tokens.dtype), *pieces], dtype=np.int32)

  def _records(self, wanted: np.ndarray) -> np.ndarray:
    """[len(wanted) * block]: records by their number over all shards (sorted), each filled up to `block` tokens."""
    shards = np.searchsorted(self._shard_records, wanted, side="right") - 1
    bounds = np.flatnonzero(np.diff(shards, prepend=-1, append=-1))
    groups = [wanted[a:b] for a, b in itertools.pairwise(bounds)]
    # Only remote files are worth threads: a local read is a few microseconds.
    apply = self._pool.map if self._pool and len(groups) > 1 else map
    records = b"".join(apply(self._shard_bytes, shards[bounds[:-1]].tolist(), groups))
    return np.frombuffer(records, np.dtype(self.index.dtype).newbyteorder("<"))

  def _shard_bytes(self, shard: int, wanted: np.ndarray) -> bytes:
    entry = self._shards[shard]
    positions = wanted - self._shard_records[shard]
    width = np.dtype(self.index.dtype).itemsize
    sizes = np.minimum(self.index.block, entry.tokens - positions * self.index.block) * width
    try:
      records = self._readers[shard].read(positions.tolist())
    except (RuntimeError, ValueError, IndexError) as error:
      if out_of_reach(error):
        raise ConnectionError(f"{self.folder / entry.file} cannot be read just now ({error})") from None
      raise ValueError(f"{self.folder / entry.file} cannot be read ({error}); prepare the corpus again") from None
    if [len(record) for record in records] != sizes.tolist():
      raise ValueError(f"{self.folder / entry.file} does not hold the tokens {INDEX_FILE} says; prepare it again")
    return b"".join(record.ljust(self.index.block * width, b"\0") for record in records)

  @property
  def _shards(self) -> tuple[Shard, ...]:
    return self.index.splits[self.split].shards

  @functools.cached_property
  def _shard_tokens(self) -> np.ndarray:
    return np.cumsum([0] + [shard.tokens for shard in self._shards])

  @functools.cached_property
  def _shard_records(self) -> np.ndarray:
    return np.cumsum([0] + [shard.records for shard in self._shards])

  @functools.cached_property
  def _readers(self) -> list[array_record_module.ArrayRecordReader]:
    def reader(shard: Shard) -> array_record_module.ArrayRecordReader:
      return array_record_module.ArrayRecordReader(
        str(self.folder / shard.file), options=_READER_OPTIONS, file_reader_buffer_size=_READER_BUFFER
      )

    return list((self._pool.map if self._pool else map)(reader, self._shards))

  @functools.cached_property
  def _pool(self) -> futures.ThreadPoolExecutor | None:
    return futures.ThreadPoolExecutor(_REMOTE_READERS) if "://" in str(self.folder) else None

  def _array(self, file: str) -> np.ndarray:
    path = self.folder / file
    try:
      if self._pool:
        return np.load(io.BytesIO(path.read_bytes()))
      return np.load(str(path), mmap_mode="r")
    except FileNotFoundError:
      raise FileNotFoundError(f"{path} is missing; copy the whole corpus folder or prepare it again") from None
    except (ValueError, EOFError) as error:
      raise ValueError(f"{path} is damaged ({error}); prepare the corpus again") from None

  def _starts(self, file: str, total: int, unit: str) -> np.ndarray:
    lengths = self._array(file)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=starts[1:])
    if starts[-1] != total or (len(lengths) and not lengths.min()):
      raise ValueError(
        f"{self.folder / file} counts {starts[-1]} {unit}, {INDEX_FILE} says {total}: the file is damaged; "
        "copy it or prepare the corpus again"
      )
    return starts
