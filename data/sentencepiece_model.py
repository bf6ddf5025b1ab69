"""The bytes of a SentencePiece `.model` file, as far as they must be changed or made.

A model is a protocol buffer: field 1, repeated, is a piece (1 its text, 2 its score, 3 its type), field 3 how text is
normalised (2 a table of replacements). The library's Python classes for it are not used because they ask for a newer
protobuf than Apache Beam allows.
"""

import struct
from collections.abc import Iterable

from data.protobuf import fields, read_varint

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4


def build(pieces: Iterable[tuple[str, float, int]], replacements: bytes) -> bytes:
  """Returns a unigram model of (text, score, type), with the library's defaults for all else.

  Args:
    pieces: in order of their ids.
    replacements: the normalisation's `precompiled_charsmap`; empty leaves text as it is.
  """
  result = bytearray()
  for text, score, kind in pieces:
    result += _field(1, _field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))
  return bytes(result + _field(2, b"") + _field(3, _field(2, replacements)))


def as_control(model: bytes, pieces: set[str]) -> bytes:
  """Returns the model with the type of these pieces changed to control symbol."""
  result = bytearray()
  for number, body in fields(model):
    if number == 1 and _text(body) in pieces:
      body += bytes([0x18, CONTROL])  # of a field that occurs twice the last one counts
    result += _field(number, body)
  return bytes(result)


def replacements(model: bytes) -> bytes:
  """Returns the `precompiled_charsmap` of the model's normalisation; empty where it has none."""
  for number, body in fields(model):
    if number == 3:
      return next((value for field, value in fields(body) if field == 2 and isinstance(value, bytes)), b"")
  return b""


def scores(model: bytes) -> list[float]:
  """Returns each piece's score."""
  result = []
  for number, body in fields(model):
    if number == 1:
      found = [value for field, value in fields(body) if field == 2]
      result.append(struct.unpack("<f", found[-1])[0] if found else 0.0)
  return result


def _text(piece: bytes) -> str:
  size, position = read_varint(piece, 1)
  return piece[position : position + size].decode()


def _field(number: int, value: bytes) -> bytes:
  """A field of the kind that has a length."""
  return bytes([number << 3 | 2, *_varint(len(value))]) + value


def _varint(value: int) -> list[int]:
  return [value] if value < 0x80 else [value & 0x7F | 0x80, *_varint(value >> 7)]
