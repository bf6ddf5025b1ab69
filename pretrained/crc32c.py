"""CRC-32C (Castagnoli), the checksum of TensorFlow's files, fast enough in NumPy for gigabytes.

The register is linear in the message over GF(2), so the message is cut into lanes of equal length that advance side by
side, two bytes at a time, and neighbouring lanes are joined: the left one's register, as it would be after as many zero
bytes as the right one is long, xor the right one's. Zero bytes before a message do not move a register that is zero,
so the lanes are filled up at the front; and to begin with all ones is to invert the first four bytes.
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reversed
_LANE = 512  # bytes
_LANES = 8192  # that advance together: 4 MiB of the message


def crc32c(data: bytes | np.ndarray) -> int:
  """Returns the checksum of bytes."""
  data = np.frombuffer(data, np.uint8)
  if len(data) < 8:
    register = 0xFFFFFFFF
    for byte in data.tolist():
      register = (register >> 8) ^ int(_byte_table()[(register ^ byte) & 0xFF])
    return register ^ 0xFFFFFFFF
  step = _LANE * _LANES
  first = len(data) % step + (step if len(data) >= step else 0)  # never so short that it lacks four bytes
  register = _joined(_registers(data[:first], inverted=True), _LANE)
  for start in range(first, len(data), step):
    right = _joined(_registers(data[start : start + step], inverted=False), _LANE)
    register = int(_after_zeros(np.array([register], np.uint32), step)[0]) ^ right
  return register ^ 0xFFFFFFFF


def mask(crc: int) -> int:
  """The form in which TensorFlow stores a checksum, so that a checksum of checksums is none of zeros."""
  return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@functools.cache
def _byte_table() -> np.ndarray:
  """uint32 [256]: the register after a byte."""
  table = np.arange(256, dtype=np.uint32)
  for _ in range(8):
    table = (table >> 1) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
  return table


@functools.cache
def _pair_table() -> np.ndarray:
  """uint32 [65536]: the register after two bytes."""
  one = _byte_table()[np.arange(65536) & 0xFF] ^ (np.arange(65536, dtype=np.uint32) >> 8)
  return (one >> 8) ^ _byte_table()[one & 0xFF]


def _registers(data: np.ndarray, inverted: bool) -> np.ndarray:
  """uint32 [lanes]: each lane's register from zero; `inverted`: as if the message's began with all ones."""
  padded = np.zeros(-(-len(data) // _LANE) * _LANE, np.uint8)
  padded[len(padded) - len(data) :] = data
  if inverted:
    padded[len(padded) - len(data) :][:4] ^= 0xFF
  pairs = np.ascontiguousarray(padded.view("<u2").reshape(-1, _LANE // 2).T)
  table, registers = _pair_table(), np.zeros(pairs.shape[1], np.uint32)
  for column in pairs:
    registers = (registers >> 16) ^ table[(registers & 0xFFFF) ^ column]
  return registers


def _joined(registers: np.ndarray, length: int) -> int:
  """The register of the whole message, by those of its parts of `length` bytes."""
  while len(registers) > 1:
    if len(registers) % 2:
      registers = np.concatenate([np.zeros(1, np.uint32), registers])
    registers = _after_zeros(registers[::2], length) ^ registers[1::2]
    length *= 2
  return int(registers[0])


def _after_zeros(registers: np.ndarray, count: int) -> np.ndarray:
  """uint32 [n]: registers after `count` zero bytes, a power of two."""
  return _apply(_zeros_operator(count), registers)


@functools.cache
def _zeros_operator(count: int) -> np.ndarray:
  """uint32 [32]: what `count` zero bytes make of each bit of a register."""
  if count == 1:
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    return (bits >> 8) ^ _byte_table()[bits & 0xFF]
  half = _zeros_operator(count // 2)
  return _apply(half, half)


def _apply(operator: np.ndarray, registers: np.ndarray) -> np.ndarray:
  result = np.zeros_like(registers)
  for bit, image in enumerate(operator):
    result ^= np.where((registers >> np.uint32(bit)) & 1, image, np.uint32(0))
  return result
