"""A stand-in for buckets: gs:// is a local folder to etils, and no file there can grow."""

import pathlib
import re

import fsspec
from etils.epath import backend
from fsspec.implementations.dirfs import DirFileSystem


class Bucket(DirFileSystem):
  """Objects in a local folder: written whole, with folders only where objects are."""

  def open(self, path, mode="rb", **kwargs):
    assert not set(mode) & set("a+"), f"{path}: an object cannot grow"
    if "w" in mode:
      self.fs.makedirs(self._parent(self._join(path)), exist_ok=True)
    return super().open(path, mode, **kwargs)

  def _join(self, path):
    return super()._join(re.sub("^gs://", "", str(path)))


def stand_in(folder: pathlib.Path, monkeypatch) -> pathlib.Path:
  """Makes gs://bucket the folder `bucket` in a local one, and returns that."""
  system = Bucket(str(folder), fsspec.filesystem("file"))
  monkeypatch.setattr(backend._FileSystemSpecBackend, "fs", lambda self, path: system)
  (folder / "bucket").mkdir()
  return folder / "bucket"
