"""What `tools.extract_features` writes: one record a line of text, as NPZ, JSON lines or ArrayRecord.

A record is a dictionary of arrays. In the NPZ file each name holds the records' arrays one after another, which for
arrays of a length of their own is said by `offsets`: those of line i are offsets[i] : offsets[i + 1].
"""

import io
import itertools
import json
import pathlib
import zipfile
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from data import shards

Record = dict[str, np.ndarray]
_LARGE = ("embeddings", "hidden_rep")  # written as they come; the rest waits for the end
_EACH_LINE = ("embeddings", "cls_head")  # one vector a line


def write_npz(path: pathlib.Path, records: Iterable[Record], layers: Sequence[int], total: int) -> None:
  """Writes an uncompressed NPZ file in one pass; `total` is the number of rows of the large array, in all records."""
  waiting, sizes = {}, []
  with shards.file_writer(path) as write, zipfile.ZipFile(_Stream(write), "w") as archive:
    records = iter(records)
    first = next(records)
    [large] = [name for name in _LARGE if name in first]
    with archive.open(f"{large}.npy", "w", force_zip64=True) as member:
      shape = first[large].shape[-1:] if large in _EACH_LINE else first[large].shape[1:]
      description = {"descr": "<f4", "fortran_order": False, "shape": (total, *shape)}
      np.lib.format.write_array_header_1_0(member, description)
      for record in itertools.chain([first], records):
        member.write(np.ascontiguousarray(record[large], "<f4").tobytes())
        sizes.append(len(record[large]))
        for name in record.keys() - {large}:
          waiting.setdefault(name, []).append(record[name])
    arrays = {name: (np.stack if name in _EACH_LINE else np.concatenate)(parts) for name, parts in waiting.items()}
    if large not in _EACH_LINE:
      arrays["offsets"] = np.concatenate([[0], np.cumsum(sizes)])
    arrays["layers"] = np.array(layers, np.int32)
    for name, array in arrays.items():
      with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)


class _Stream:
  """A file that can only be written, as zipfile likes it."""

  def __init__(self, write: Callable[[bytes], None]):
    self._write = write

  def write(self, data: bytes) -> int:
    self._write(data)
    return len(data)

  def flush(self) -> None:
    pass


def write_jsonl(path: pathlib.Path, records: Iterable[Record], layers: Sequence[int], total: int) -> None:
  """Writes JSON lines: with tokens' vectors as the original's extract_features.py does, six decimals."""
  del total
  lines = (json.dumps(_json(i, record, layers), ensure_ascii=False) for i, record in enumerate(records))
  shards.write_bytes(path, (f"{line}\n".encode() for line in lines))


def _json(index: int, record: Record, layers: Sequence[int]) -> dict:
  result = {"linex_index": index}  # the original's spelling
  if "hidden_rep" not in record:
    return result | {"embeddings": _rounded(record["embeddings"])}
  tokens = record["words" if "words" in record else "pieces"]
  result["features"] = [
    {
      "token": str(token),
      "layers": [{"index": i, "values": _rounded(x)} for i, x in zip(layers, states, strict=True)],
    }
    for token, states in zip(tokens, record["hidden_rep"], strict=True)
  ]
  return result | ({"cls_head": _rounded(record["cls_head"])} if "cls_head" in record else {})


def _rounded(vector: np.ndarray) -> list[float]:
  return [round(x, 6) for x in vector.tolist()]


def write_array_record(path: pathlib.Path, records: Iterable[Record], layers: Sequence[int], total: int) -> None:
  """Writes one record a line of text, each the bytes of an NPZ file: `np.load(io.BytesIO(record))`."""
  del total
  with shards.record_writer(path) as write:
    for record in records:
      buffer = io.BytesIO()
      np.savez(buffer, **record, layers=np.array(layers, np.int32))
      write(buffer.getvalue())


FORMATS = {".npz": write_npz, ".jsonl": write_jsonl, ".array_record": write_array_record}
