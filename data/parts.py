"""TFDS data sets of text that are written part by part, each part a stream, by several processes.

TFDS's own writer holds up to 1 GB in memory, and where order is kept everything beyond that lands in one bucket that is
sorted in memory.
"""

import abc
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import tensorflow_datasets as tfds
from etils import epath
from tensorflow_datasets.core import dataset_builder

from data import places, shards

FEATURES = tfds.features.FeaturesDict({"id": tfds.features.Text(), "text": tfds.features.Text()})


class Part(Protocol):
  """A piece of a corpus, to be written by one process; it must pickle."""

  def examples(self) -> Iterator[tuple[str, str, str]]:
    """Yields (split, id, text)."""


@contextlib.contextmanager
def alone(target: epath.PathLike) -> Iterator[None]:
  """Lets one process at a time build the data set in the folder `target`; others say that they wait, and do."""
  folder = epath.Path(target).parent
  folder.mkdir(parents=True, exist_ok=True)
  with shards.locked(folder, f"waiting for another command that is building {target}", wait=True):
    yield


class PartsBuilder(dataset_builder.FileReaderBuilder, skip_registration=True):
  """A TFDS builder that writes its parts, in order, as shards.

  Whatever ends a build, the next one goes on with the first part that is not there: parts are written to a folder
  beside the data set's, which goes when the data set is in place and not before.
  """

  VERSION = tfds.core.Version("1.0.0")
  # TFDS 4.9 looks this up with the importlib_resources package, which it does not install.
  code_path = epath.Path(__file__)

  def __init__(self, *, run: shards.Run = shards.run, **kwargs: Any):
    self._run = run
    super().__init__(file_format="array_record", **kwargs)

  @abc.abstractmethod
  def parts(self) -> Sequence[Part]:
    """The pieces of the corpus, in order."""

  @abc.abstractmethod
  def split_names(self) -> Sequence[str]:
    """The splits that the parts' examples are of."""

  @abc.abstractmethod
  def why_empty(self, split: str) -> str:
    """What a person reads when no part has a document for `split`."""

  def build(self) -> None:
    """Builds the data set unless it is there; if another process is at that, waits for it.

    Raises:
      ValueError: a split without documents, or what the parts refuse.
      OSError: the disk is full.
    """
    target = epath.Path(self.data_path)
    if not target.exists() or self._finished.exists():
      with alone(target):
        self.download_and_prepare()
        self._finished.rmtree(missing_ok=True)
    self.info.read_from_directory(target)  # another process may have built it after this one looked

  @property
  def _finished(self) -> epath.Path:
    """Where parts wait: not in `data_path`, which TFDS removes when a build fails."""
    return epath.Path(self.data_path).parent / "unfinished"

  def _info(self) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
      builder=self, description=type(self).__doc__, features=FEATURES, disable_shuffling=True
    )

  def _log_download_bytes(self) -> None:
    """Nothing is downloaded, so TFDS has nothing to say."""

  _log_download_done = _log_download_bytes

  def _download_and_prepare(self, dl_manager: Any, download_config: Any = None) -> None:
    del dl_manager, download_config
    target = epath.Path(self.data_path)
    for killed in target.parent.glob("incomplete.*"):
      if killed != target:
        killed.rmtree()
    self._finished.mkdir(exist_ok=True)
    jobs = [(part, self._finished, number) for number, part in enumerate(self.parts())]
    self._run([shards.Pass("documents", _write_part, jobs)])
    counts = list(places.each(_read_counts, [_counts_file(self._finished, number) for _, _, number in jobs]))
    numbers = {split: [i for i, part in enumerate(counts) if split in part] for split in self.split_names()}
    for split in numbers:
      if not numbers[split]:
        self._finished.rmtree()  # nothing will go on from here
        raise ValueError(f"no documents in the {split} split: {self.why_empty(split)}")
    self.info.set_splits(tfds.core.SplitDict([self._join(split, numbers[split], counts) for split in numbers]))

  def _join(self, split: str, numbers: list[int], counts: list[dict[str, list[int]]]) -> tfds.core.SplitInfo:
    """Makes the parts that have something of a split its shards."""
    template = self._get_filename_template(split)
    targets = {
      _part_file(self._finished, split, number): template.sharded_filepath(shard_index=shard, num_shards=len(numbers))
      for shard, number in enumerate(numbers)
    }
    for _ in places.each(lambda part: _link(part, epath.Path(targets[part])), list(targets)):
      pass
    lengths, sizes = zip(*(counts[i][split] for i in numbers), strict=True)
    return tfds.core.SplitInfo(
      name=split, shard_lengths=list(lengths), num_bytes=sum(sizes), filename_template=template
    )


def _link(source: epath.Path, target: epath.Path) -> None:
  try:
    os.link(source, target)
  except OSError:  # a bucket, or a disk without links: if the build fails from here on, the part is written again
    source.replace(target)


def _part_file(folder: epath.Path, split: str, number: int) -> epath.Path:
  return folder / f"{split}-{number:05d}.array_record"


def _counts_file(folder: epath.Path, number: int) -> epath.Path:
  return folder / f"part-{number:05d}.json"


def _read_counts(path: epath.Path) -> dict[str, list[int]]:
  """{split: [examples, bytes]} of a part that is written."""
  return json.loads(path.read_text())


def _write_part(job: tuple[Part, epath.Path, int]) -> None:
  """Writes one part, unless that was done before."""
  part, folder, number = job
  done = _counts_file(folder, number)
  if done.exists() and all(
    shards.num_records(_part_file(folder, split, number)) == count for split, (count, _) in _read_counts(done).items()
  ):
    return
  serializer = tfds.core.ExampleSerializer(FEATURES.get_serialized_info())
  counts, writers = {}, {}
  with contextlib.ExitStack() as stack:
    for split, key, text in part.examples():
      if split not in writers:
        writers[split] = stack.enter_context(shards.record_writer(_part_file(folder, split, number)))
        counts[split] = [0, 0]
      record = serializer.serialize_example(FEATURES.encode_example({"id": key, "text": text}))
      writers[split](record)
      counts[split][0] += 1
      counts[split][1] += len(record)
  shards.write_json(done, counts)
