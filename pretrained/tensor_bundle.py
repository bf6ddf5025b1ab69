"""Reads TensorFlow's checkpoint files (format V2, a "tensor bundle") without TensorFlow.

PREFIX.index is a sorted table as in LevelDB: blocks of prefix-compressed keys, each block with a checksum, and a footer
that points to the block of blocks. The key "" holds the header, every other key is a tensor's name and holds a
BundleEntryProto: type, shape, shard, offset, size, checksum. PREFIX.data-00000-of-00001 is the tensors' bytes.
Nothing in these files is code.

Source: tensorflow/core/util/tensor_bundle, tensorflow/core/lib/io/{format,block}.cc, tensor_bundle.proto.
"""

import dataclasses
import pathlib
import struct
from collections.abc import Iterator

import ml_dtypes
import numpy as np

from data import protobuf
from data.protobuf import read_varint
from pretrained.crc32c import crc32c, mask

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48  # bytes: two block handles, filled up to 40, and the magic number
# tensorflow.DataType, for those that variables have.
_DTYPES = {
  1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 14: ml_dtypes.bfloat16, 17: "<u2",
  19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Entry:
  """Where a tensor lies. `problem` says why it cannot be read, if it cannot."""

  dtype: np.dtype
  shape: tuple[int, ...]
  shard: int
  offset: int
  size: int
  checksum: int
  problem: str = ""


class TensorBundle:
  """The tensors of one checkpoint, read when they are asked for.

  Raises:
    FileNotFoundError: PREFIX.index is missing.
    ValueError: it is no such table, or is damaged.
  """

  def __init__(self, prefix: str | pathlib.Path):
    self._prefix = pathlib.Path(prefix)
    self._index = self._prefix.with_name(self._prefix.name + ".index")
    try:
      records = dict(_read_table(self._index.read_bytes()))
      header = _fields(records.pop(b""))
      if header.get(2):
        raise ValueError("written on a big-endian machine")
      self._shards = header.get(1, 0)
      self._entries = {key.decode(): _entry(value) for key, value in records.items()}
    except FileNotFoundError:
      raise FileNotFoundError(f"{self._index}: no such file; a TF1 checkpoint is .index and .data files") from None
    except (KeyError, IndexError, TypeError, struct.error):
      raise ValueError(f"{self._index}: not a whole index of a TensorFlow checkpoint") from None
    except ValueError as error:
      raise ValueError(f"{self._index}: not a whole index of a TensorFlow checkpoint ({error})") from None

  @property
  def names(self) -> tuple[str, ...]:
    """All tensors' names, sorted."""
    return tuple(self._entries)

  def shape(self, name: str) -> tuple[int, ...]:
    return self._entries[name].shape

  def read(self, name: str) -> np.ndarray:
    """Returns a tensor.

    Raises:
      FileNotFoundError: the file with its bytes is missing.
      ValueError: a type or layout that is not supported, a file that is too short, or bytes that do not fit their
        checksum.
    """
    entry = self._entries[name]
    file = self._prefix.with_name(f"{self._prefix.name}.data-{entry.shard:05d}-of-{self._shards:05d}")
    if entry.problem:
      raise ValueError(f"{self._index}: tensor {name}: {entry.problem}")
    if not file.exists():
      raise FileNotFoundError(f"{file}: no such file; it belongs to {self._index.name}")
    if file.stat().st_size < entry.offset + entry.size:
      raise ValueError(f"{file}: ends within tensor {name}; the file is not whole")
    with file.open("rb") as stream:
      stream.seek(entry.offset)
      data = stream.read(entry.size)
    if mask(crc32c(data)) != entry.checksum:
      raise ValueError(f"{file}: the bytes of tensor {name} do not fit their checksum; the file is damaged")
    return np.frombuffer(data, entry.dtype).reshape(entry.shape)


def _entry(record: bytes) -> _Entry:
  """Reads a BundleEntryProto."""
  fields = _fields(record)
  if 7 in fields:
    return _Entry(np.dtype("?"), (), 0, 0, 0, 0, "partitioned variables are not supported; save them whole")
  shape = tuple(_signed(_fields(dimension).get(1, 0)) for dimension in _repeated(fields.get(2, b""), 2))
  kind = fields.get(1, 0)
  place = *(_signed(fields.get(number, 0)) for number in (3, 4, 5)), int.from_bytes(fields.get(6, b""), "little")
  if kind not in _DTYPES:
    return _Entry(np.dtype("?"), shape, *place, f"TensorFlow's type {kind} is not supported")
  dtype = np.dtype(_DTYPES[kind])
  if min(shape, default=0) < 0 or place[1] < 0 or place[2] != int(np.prod(shape, dtype=object)) * dtype.itemsize:
    return _Entry(dtype, shape, *place, f"{place[2]} bytes at {place[1]} are no {dtype} of shape {shape}")
  return _Entry(dtype, shape, *place)


def _read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
  """Yields (key, value) of a sorted table."""
  if len(data) < _FOOTER or struct.unpack("<Q", data[-8:])[0] != _MAGIC:
    raise ValueError("it does not end with the format's magic number")
  _, at = _handle(data, len(data) - _FOOTER)  # of the filters, of which there are none
  index, _ = _handle(data, at)
  for _, value in _read_block(data, *index):
    yield from _read_block(data, *_handle(value, 0)[0])


def _read_block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
  """Yields (key, value) of a block: each key shares a prefix with the one before it."""
  block = data[offset : offset + size + 1]  # and the byte that says how it is compressed
  if len(block) <= size or mask(crc32c(block)) != struct.unpack_from("<I", data, offset + size + 1)[0]:
    raise ValueError("a block does not fit its checksum")
  if block[size]:
    raise ValueError("compressed blocks are not supported")
  restarts = struct.unpack_from("<I", block, size - 4)[0]
  at, end, key = 0, size - 4 * (restarts + 1), b""
  while at < end:
    shared, at = read_varint(block, at)
    fresh, at = read_varint(block, at)
    length, at = read_varint(block, at)
    key = key[:shared] + block[at : at + fresh]
    at += fresh
    yield key, block[at : at + length]
    at += length


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
  """Returns ((offset, size) of a block, where its handle ends)."""
  offset, at = read_varint(data, at)
  size, at = read_varint(data, at)
  return (offset, size), at


def _fields(data: bytes) -> dict[int, int | bytes]:
  """The last value of each field."""
  return dict(protobuf.fields(data))


def _repeated(data: bytes, field: int) -> list[bytes]:
  return [value for number, value in protobuf.fields(data) if number == field]


def _signed(value: int) -> int:
  return value - (1 << 64) if value >> 63 else value
