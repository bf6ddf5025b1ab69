"""Corpora of text: TFDS data sets with a document a record, kept as ArrayRecord, in order, without TensorFlow.

Three ways in (Wikipedia articles that come with a package, files of text, any TFDS data set by its name), and one way
out: each split as `Documents`, a random-access sequence of texts.
"""

import bz2
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import json
import pathlib
import re
from collections.abc import Iterator, Sequence

import tensorflow_datasets as tfds
from etils import epath
from google.protobuf import message
from tensorflow_datasets.proto import tf_example_pb2

from data import documents, parts, places, shards

TRAIN, HELDOUT = "train", "heldout"

_PART_BYTES = 64 << 20
_FETCH_BYTES = 4 << 20  # text fetched at a time

_MISSING = {  # what it means that TFDS lacks a package
  "tensorflow": "; TFDS writes such examples with TensorFlow alone: install it, or use the data set's own files",
  "apache_beam": "; TFDS makes it on Apache Beam: pip install -r requirements-beam.txt, in an environment of its own",
}

_WIKIPEDIA_FILE = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
_MIN_ARTICLE_WORDS = 100  # less is a list of links to other articles
_MIN_LINE_WORDS = 8  # less is a caption or the cell of a table


@dataclasses.dataclass(frozen=True)
class Documents:
  """A random-access sequence of documents: examples `start` to `stop` of one split of a TFDS data set.

  Attributes:
    name: the data set's name, configuration and version.
    folder: where TFDS keeps it.
    split: a split in TFDS's notation, for example `train` or `train[:10%]`.
    field: the feature that holds the text.
    example_bytes: mean size of an example.
  """

  name: str
  folder: str
  split: str
  field: str
  start: int
  stop: int
  example_bytes: float

  def __len__(self) -> int:
    return self.stop - self.start

  def __str__(self) -> str:
    return f"{self.field} of {self.name} {self.split} {self.start}:{self.stop}, {self.example_bytes:.3f} bytes each"

  def read(self, start: int, stop: int) -> Iterator[str]:
    """Yields the texts of documents `start` to `stop` of this sequence."""
    start, stop = self.start + start, self.start + stop
    builder = tfds.builder_from_directory(self.folder)
    if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
      examples = builder.as_dataset(split=self.split).skip(start).take(stop - start)
      yield from (example[self.field].decode() for example in examples.as_numpy_iterator())
      return
    # The records as they are: letting TFDS decode them costs more than all else with short documents.
    source = builder.as_data_source(split=self.split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
    step = int(min(max(_FETCH_BYTES / self.example_bytes, 1), 2048))  # one by one costs six times as much
    for first in range(start, stop, step):
      yield from self._texts(source, range(first, min(first + step, stop)))

  def _texts(self, source: Sequence[bytes], wanted: range) -> list[str]:
    try:
      # A cut file yields empty records.
      examples = map(tf_example_pb2.Example.FromString, source.__getitems__(wanted))
      return [example.features.feature[self.field].bytes_list.value[0].decode() for example in examples]
    except (RuntimeError, ValueError, IndexError, message.DecodeError):
      raise ValueError(
        f"{self.folder}: the documents cannot be read, a file is missing or damaged; delete the folder and run the "
        "same command again, which builds it anew"
      ) from None

  def parts(self, part_bytes: int, sample_bytes: int = 0) -> list[tuple[int, int]]:
    """Returns (start, stop) of parts of about `part_bytes`, in order.

    They cover the sequence, or with `sample_bytes` only about so much of it, spread evenly.
    """
    count = max(1, round(len(self) * self.example_bytes / part_bytes))
    bounds = [len(self) * i // count for i in range(count + 1)]
    taken = min(count, -(-sample_bytes // part_bytes)) if sample_bytes else count
    return [(bounds[i], bounds[i + 1]) for i in (j * count // taken for j in range(taken))]


def wikipedia_sample(data_dir: str | None = None) -> dict[str, Documents]:
  """The 96 Wikipedia articles that the gensim package carries; the 9th, 19th, … are held out, 10 % of the text.

  Raises:
    ValueError: gensim is not installed.
  """
  return _built(WikipediaSample(data_dir=data_dir))


def text_files(
  files: Sequence[str],
  fmt: documents.Format,
  heldout: float = 0.0,
  heldout_files: Sequence[str] = (),
  data_dir: str | None = None,
  run: shards.Run = shards.run,
) -> dict[str, Documents]:
  """Documents from files of text.

  Args:
    files: globs.
    fmt: how bytes become documents.
    heldout: the fraction of documents held out. A hash of the text decides, so equal documents stay on one side.
    heldout_files: globs of files to hold out instead.
    data_dir: where TFDS keeps its data sets (None: where it always does).
    run: does the reading and writing; the result does not depend on it.

  Raises:
    FileNotFoundError, ValueError: what `data.documents` refuses, or a split without documents.
  """
  _check_fraction(heldout)
  if heldout and heldout_files:
    raise ValueError("give either a fraction to hold out or files to hold out")
  config = TextFilesConfig.of(documents.find_files(files), fmt, heldout, heldout_files)
  return _built(TextFiles(config=config, data_dir=data_dir, run=run))


def tfds_corpus(
  name: str,
  field: str = "text",
  train_split: str = "train",
  heldout_split: str = "",
  heldout: float = 0.0,
  data_dir: str | None = None,
  download: tfds.download.DownloadConfig | None = None,
) -> dict[str, Documents]:
  """Any TFDS data set with a text feature, by name; downloaded and prepared as ArrayRecord if it is not there yet.

  Args:
    name: for example `lm1b` or `wikipedia/20230601.en`.
    field: its feature that holds the text.
    train_split: in TFDS's notation.
    heldout_split: likewise; "" holds out the last `heldout` of `train_split` instead.
    heldout: a fraction.
    data_dir: where TFDS keeps its data sets (None: where it always does).
    download: how TFDS prepares the data set if it has to.

  Raises:
    ValueError: an unknown data set, split or field, a fraction that is none, or TFRecord files without TensorFlow.
  """
  _check_fraction(heldout)
  builder = prepared(name, data_dir, download)
  texts = [key for key, feature in builder.info.features.items() if isinstance(feature, tfds.features.Text)]
  if field not in texts:
    raise ValueError(f"{name} has no text feature {field!r}; its text features: {', '.join(texts) or 'none'}")
  train = _documents(builder, train_split, field)
  if heldout_split and heldout:
    raise ValueError("give either a fraction to hold out or a split")
  if heldout_split:
    return {TRAIN: train, HELDOUT: _documents(builder, heldout_split, field)}
  return _hold_out_last(train, heldout)


def prepared(
  name: str, data_dir: str | None = None, download: tfds.download.DownloadConfig | None = None
) -> tfds.core.DatasetBuilder:
  """Any TFDS data set by name, downloaded and prepared as ArrayRecord if it is not there yet.

  Raises:
    ValueError: an unknown data set, one that cannot be prepared, or TFRecord files without TensorFlow.
  """
  try:
    builder = find_builder(name, data_dir)
  except (tfds.core.DatasetNotFoundError, ValueError) as error:
    raise ValueError(f"TFDS has no data set {name!r}: {_first_line(error)}") from None
  if not builder.is_prepared():
    try:
      with parts.alone(builder.data_path):
        builder.download_and_prepare(file_format="array_record", download_config=download)
      builder = tfds.builder(name, data_dir=data_dir)  # another process may have built what this one had not found
    except Exception as error:  # whatever the data set's own code raises
      missing = str(error) if isinstance(error, ModuleNotFoundError) else ""
      hint = next((hint for package, hint in _MISSING.items() if package in missing), "")
      raise ValueError(f"TFDS cannot prepare {name}: {type(error).__name__}: {_first_line(error)}{hint}") from error
  if builder.info.file_format == tfds.core.FileFormat.TFRECORD and not importlib.util.find_spec("tensorflow"):
    raise ValueError(
      f"{builder.data_dir} holds TFRecord files: install tensorflow to read them, or delete the folder to have it "
      "prepared again as ArrayRecord"
    )
  return builder


def find_builder(name: str, data_dir: str | None) -> tfds.core.DatasetBuilder:
  """The data set of that name, whether its files are there or not.

  Raises:
    DatasetNotFoundError, ValueError: TFDS does not know it.
  """
  try:
    return tfds.builder(name, data_dir=data_dir)
  except tfds.core.DatasetNotFoundError:
    importlib.import_module("tensorflow_datasets.text")  # GLUE and others are known only then
    return tfds.builder(name, data_dir=data_dir)


def _check_fraction(heldout: float) -> None:
  if not 0 <= heldout < 1:
    raise ValueError(f"heldout={heldout} is no fraction of the documents; it lies in [0, 1)")


def _hold_out_last(train: Documents, fraction: float) -> dict[str, Documents]:
  if not fraction:
    return {TRAIN: train}
  cut = train.stop - max(1, round(len(train) * fraction))
  if cut == train.start:
    raise ValueError(f"{train.split} is too small for --heldout={fraction}; give a smaller one, or --heldout_split")
  return {TRAIN: dataclasses.replace(train, stop=cut), HELDOUT: dataclasses.replace(train, start=cut)}


def _built(builder: parts.PartsBuilder) -> dict[str, Documents]:
  builder.build()
  return {split: _documents(builder, split, "text") for split in builder.info.splits}


def _documents(builder: tfds.core.DatasetBuilder, split: str, field: str) -> Documents:
  try:
    count = builder.info.splits[split].num_examples
    whole = builder.info.splits[split.split("[")[0]]
  except (KeyError, ValueError) as error:
    raise ValueError(f"{builder.info.full_name} has no split {split!r}: {_first_line(error)}") from None
  if not count:
    raise ValueError(f"{builder.info.full_name}: split {split!r} is empty")
  mean = whole.num_bytes / whole.num_examples if whole.num_bytes else 2048.0
  return Documents(builder.info.full_name, str(builder.data_dir), split, field, 0, count, mean)


def _first_line(error: Exception) -> str:
  return next(iter(str(error).strip().strip("'\"").splitlines()), "")


@dataclasses.dataclass(frozen=True)
class _TextPart:
  pieces: tuple[documents.Part, ...]
  fmt: documents.Format
  heldout: float  # a fraction: 0 leaves all in train, 1 puts all in heldout

  def examples(self) -> Iterator[tuple[str, str, str]]:
    for piece in self.pieces:
      for key, text in documents.read(piece, self.fmt):
        place = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
        yield (HELDOUT if place < self.heldout else TRAIN), key, text


@dataclasses.dataclass
class TextFilesConfig(tfds.core.BuilderConfig):
  """What a corpus of text files is made from; its name is a hash of that, of the files' sizes and times too."""

  files: Sequence[str] = ()
  fmt: documents.Format = dataclasses.field(default_factory=documents.Format)
  heldout: float = 0.0
  heldout_files: Sequence[str] = ()

  @classmethod
  def of(
    cls, files: Sequence[str], fmt: documents.Format, heldout: float, heldout_globs: Sequence[str]
  ) -> "TextFilesConfig":
    heldout_files = documents.find_files(heldout_globs) if heldout_globs else []
    files = [file for file in files if file not in heldout_files]
    everything = [*files, *heldout_files]
    stats = places.each(lambda file: epath.Path(file).stat(), everything)
    found = [(file, stat.length, stat.mtime) for file, stat in zip(everything, stats, strict=True)]
    identity = [found, len(files), dataclasses.asdict(fmt), heldout, _PART_BYTES]
    name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return cls(name=name, files=files, fmt=fmt, heldout=heldout, heldout_files=heldout_files)


class TextFiles(parts.PartsBuilder):
  """Documents from files of text."""

  def parts(self) -> Sequence[parts.Part]:
    config = self.builder_config
    groups = functools.partial(documents.cut, fmt=config.fmt, part_bytes=_PART_BYTES)
    return [
      *(_TextPart(pieces, config.fmt, config.heldout) for pieces in groups(config.files)),
      *(_TextPart(pieces, config.fmt, 1.0) for pieces in groups(config.heldout_files)),
    ]

  def split_names(self) -> Sequence[str]:
    return (TRAIN, HELDOUT) if self.builder_config.heldout or self.builder_config.heldout_files else (TRAIN,)

  def why_empty(self, split: str) -> str:
    config = self.builder_config
    if config.heldout_files:
      files, flag = (config.heldout_files, "--heldout_input") if split == HELDOUT else (config.files, "--input")
      return f"{_named(files)} ({flag}) hold no text" if files else "--heldout_input matches all files of --input"
    if config.heldout:
      return (
        f"{_named(config.files)} hold no text, or so few documents that none is left for it with "
        f"--heldout={config.heldout:g}; give more text or another --heldout"
      )
    return f"{_named(config.files)} hold no text"


def _named(files: Sequence[str]) -> str:
  return ", ".join(files) if len(files) <= 3 else f"{files[0]}, {files[1]} and {len(files) - 2} more files"


@dataclasses.dataclass(frozen=True)
class _WikipediaPart:
  file: str

  def examples(self) -> Iterator[tuple[str, str, str]]:
    from gensim.corpora import wikicorpus

    count = 0
    with bz2.open(self.file) as dump:
      for title, markup, page in wikicorpus.extract_pages(dump, filter_namespaces=("0",)):
        text = _prose(wikicorpus.filter_wiki(markup))
        if re.match(r"\s*#\s*redirect", markup, re.IGNORECASE) or len(text.split()) < _MIN_ARTICLE_WORDS:
          continue
        count += 1
        yield (HELDOUT if count % 10 == 9 else TRAIN), f"{page} {title}", text


def _prose(text: str) -> str:
  """Paragraphs only: no headings, lists, tables, captions, nor the quotes that mark bold and italics."""
  lines = (re.sub("'{2,}", "", line).strip() for line in text.split("\n"))
  return "\n".join(line for line in lines if line[:1] not in "=|!{}*#:;" and len(line.split()) >= _MIN_LINE_WORDS)


class WikipediaSample(parts.PartsBuilder):
  """Articles of the English Wikipedia that the gensim package carries for its tests, without their markup."""

  def parts(self) -> Sequence[parts.Part]:
    gensim = importlib.util.find_spec("gensim")
    if gensim is None:
      raise ValueError(
        "wikipedia_sample comes with gensim, which is missing: pip install -r requirements-quickstart.txt"
      )
    return [_WikipediaPart(str(pathlib.Path(gensim.origin).parent / _WIKIPEDIA_FILE))]

  def split_names(self) -> Sequence[str]:
    return TRAIN, HELDOUT

  def why_empty(self, split: str) -> str:
    return f"gensim's {_WIKIPEDIA_FILE} is damaged; install gensim again"
