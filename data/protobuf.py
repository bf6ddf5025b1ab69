"""Fields of a protocol buffer, read from its bytes without a description of the message."""

from collections.abc import Iterator

_VARINT, _SIZED = 0, 2
_WIDTHS = {1: 8, 5: 4}  # bytes of the wire types of fixed width


def read_varint(data: bytes, position: int) -> tuple[int, int]:
  """Returns the number at `position`, and where it ends: seven bits a byte, the lowest first."""
  value = shift = 0
  while True:
    byte = data[position]
    value |= (byte & 0x7F) << shift
    position, shift = position + 1, shift + 7
    if byte < 0x80:
      return value, position


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
  """Yields the number and the value of each field: an integer, or the bytes of anything else.

  Raises:
    ValueError: a field of a kind that no message has today.
    IndexError: the data ends inside a number.
  """
  position = 0
  while position < len(data):
    tag, position = read_varint(data, position)
    wire = tag & 7
    if wire == _VARINT:
      value, position = read_varint(data, position)
    elif wire == _SIZED or wire in _WIDTHS:
      size, position = read_varint(data, position) if wire == _SIZED else (_WIDTHS[wire], position)
      value, position = data[position : position + size], position + size
    else:
      raise ValueError(f"a field of wire type {wire}")
    yield tag >> 3, value
