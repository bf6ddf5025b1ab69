"""Writes TensorFlow checkpoint files (format V2), from the format's description, for the tests of the reader."""

import pathlib
import struct

import numpy as np

from pretrained.crc32c import crc32c, mask

KINDS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bool": 10, "bfloat16": 14, "float16": 19}
_RESTART = 16  # entries between two keys that are written whole
_BLOCK = 512  # bytes, so that even a small table has several


def varint(value: int) -> bytes:
  out = b""
  while value >= 0x80:
    out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
  return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
  """A field of a protocol buffer."""
  if isinstance(value, int):
    return varint(number << 3) + varint(value)
  return varint(number << 3 | 2) + varint(len(value)) + value


def entry(array: np.ndarray, offset: int) -> bytes:
  """A BundleEntryProto."""
  data = array.tobytes()
  shape = b"".join(field(2, field(1, size)) for size in array.shape)
  checksum = varint(6 << 3 | 5) + struct.pack("<I", mask(crc32c(data)))
  return field(1, KINDS[array.dtype.name]) + field(2, shape) + field(4, offset) + field(5, len(data)) + checksum


def table(records: dict[bytes, bytes]) -> bytes:
  """A sorted table with several blocks."""
  out, handles, pending = b"", [], []

  def finish(entries):
    nonlocal out
    block, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(entries):
      shared = 0
      if i % _RESTART:
        while shared < min(len(key), len(last)) and key[shared] == last[shared]:
          shared += 1
      else:
        restarts.append(len(block))
      block += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
      last = key
    restarts = restarts or [0]
    block += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    handle = varint(len(out)) + varint(len(block))
    out += block + b"\0" + struct.pack("<I", mask(crc32c(block + b"\0")))
    return handle

  for key in sorted(records):
    pending.append((key, records[key]))
    if sum(len(k) + len(v) for k, v in pending) > _BLOCK:
      handles.append((key, finish(pending)))
      pending = []
  if pending:
    handles.append((pending[-1][0], finish(pending)))
  metaindex = finish([])
  footer = metaindex + finish(handles)
  return out + footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write(prefix: pathlib.Path, tensors: dict[str, np.ndarray], extra: dict[str, bytes] | None = None) -> pathlib.Path:
  """Writes PREFIX.index and PREFIX.data-00000-of-00001; `extra` are records of the index as they are."""
  prefix.parent.mkdir(parents=True, exist_ok=True)
  records, data = {b"": field(1, 1) + field(3, field(1, 1))}, b""
  for name in sorted(tensors):
    records[name.encode()] = entry(tensors[name], len(data))
    data += tensors[name].tobytes()
  records |= {name.encode(): record for name, record in (extra or {}).items()}
  prefix.with_name(prefix.name + ".index").write_bytes(table(records))
  prefix.with_name(prefix.name + ".data-00000-of-00001").write_bytes(data)
  return prefix
