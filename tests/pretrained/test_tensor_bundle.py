"""Reading TensorFlow's checkpoint files, and the checksum in them."""

import ml_dtypes
import numpy as np
import pytest

from pretrained.crc32c import crc32c, mask
from pretrained.tensor_bundle import TensorBundle
from tests.pretrained import bundles

TENSORS = {
  **{f"bert/encoder/layer_{i}/output/dense/kernel": np.full((3, 5), i, np.float32) for i in range(40)},
  "bert/embeddings/word_embeddings": np.random.default_rng(0).normal(size=(999, 7)).astype(np.float32),
  "bert/half": np.arange(6, dtype=np.float16).reshape(2, 3),
  "bert/brain": np.arange(6).astype(ml_dtypes.bfloat16),
  "bert/empty": np.zeros((0, 4), np.float32),
  "global_step": np.array(1_000_000, np.int64),
}
# The two files of a checkpoint that TensorFlow 2.21 wrote (compat.v1.train.Saver).
INDEX = (
  "00000608011a02080100160f626572742f706f6f6c65722f64656e73652f6269617308011204120208022808359a251ac61206156b6572"
  "6e656c08011208120208021202080220082810354c289874000b0d676c6f62616c5f73746570080912002018280835670e715600000000"
  "0100000000b2d1a744000000000100000000c0f2a1b0000102680072000000000100000000876132e6770884010e000000000000000000"
  "000000000000000000000000000000000000000000000000000057fb808b247547db"
)
DATA = "0000003f0000c0bf0000803f000000400000404000008040d204000000000000"


def by_hand(data: bytes) -> int:
  """The definition, bit by bit."""
  register = 0xFFFFFFFF
  for byte in data:
    register ^= byte
    for _ in range(8):
      register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
  return register ^ 0xFFFFFFFF


def test_checksums_of_the_standard():
  """The check value of the CRC catalogue, and the vectors of RFC 3720, B.4."""
  assert crc32c(b"123456789") == 0xE3069283
  assert crc32c(bytes(32)) == 0x8A9136AA
  assert crc32c(b"\xff" * 32) == 0x62A8AB43
  assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("length", [0, 1, 7, 8, 511, 512, 513, 1535, 5000])
def test_checksums_of_any_length(length):
  data = np.random.default_rng(length).bytes(length)
  assert crc32c(data) == by_hand(data)


@pytest.mark.parametrize("length", [4095, 4096, 4099, 8192, 12288, 13001])
def test_checksums_of_long_data(length, monkeypatch):
  """Data that is longer than what is taken at once."""
  monkeypatch.setattr("pretrained.crc32c._LANES", 8)
  data = np.random.default_rng(length).bytes(length)
  assert crc32c(data) == by_hand(data)


def test_the_masked_form():
  """TensorFlow's crc32c.h: rotated right by 15 bits, plus a constant."""
  assert mask(0) == 0xA282EAD8
  assert mask(0x8000) == 0xA282EAD9
  assert mask(1) == 0xA284EAD8


def test_tensors_come_back(tmp_path):
  bundle = TensorBundle(bundles.write(tmp_path / "model.ckpt", TENSORS))
  assert bundle.names == tuple(sorted(TENSORS))
  for name, array in TENSORS.items():
    read = bundle.read(name)
    assert (read.shape, read.dtype, bundle.shape(name)) == (array.shape, array.dtype, array.shape)
    np.testing.assert_array_equal(read, array)


def test_a_checkpoint_that_tensorflow_wrote(tmp_path):
  prefix = tmp_path / "model.ckpt"
  prefix.with_name("model.ckpt.index").write_bytes(bytes.fromhex(INDEX))
  prefix.with_name("model.ckpt.data-00000-of-00001").write_bytes(bytes.fromhex(DATA))
  bundle = TensorBundle(prefix)
  assert bundle.names == ("bert/pooler/dense/bias", "bert/pooler/dense/kernel", "global_step")
  np.testing.assert_array_equal(bundle.read("bert/pooler/dense/bias"), np.array([0.5, -1.5], np.float32))
  np.testing.assert_array_equal(bundle.read("bert/pooler/dense/kernel"), np.array([[1, 2], [3, 4]], np.float32))
  assert bundle.read("global_step") == 1234


@pytest.mark.parametrize(
  ("damage", "message"),
  [
    (
      lambda index: index[:-20],
      r"model\.ckpt\.index: not a whole index .* does not end with the format's magic number",
    ),
    (lambda index: b"", "not a whole index"),
    (lambda index: index[:20] + b"\xff" + index[21:], "a block does not fit its checksum"),
    (lambda index: index[:-48] + b"\xff" * 40 + index[-8:], "not a whole index"),
    (lambda index: b"PK" * 40, "does not end with"),
  ],
)
def test_a_damaged_index(tmp_path, damage, message):
  bundles.write(tmp_path / "model.ckpt", TENSORS)
  file = tmp_path / "model.ckpt.index"
  file.write_bytes(damage(file.read_bytes()))
  with pytest.raises(ValueError, match=message):
    TensorBundle(tmp_path / "model.ckpt")


def test_damaged_or_missing_data(tmp_path):
  bundle = TensorBundle(bundles.write(tmp_path / "model.ckpt", {"a": np.ones(4, np.float32), "b": np.ones(4, "f4")}))
  file = tmp_path / "model.ckpt.data-00000-of-00001"
  whole = file.read_bytes()
  file.write_bytes(whole[:1] + b"\x01" + whole[2:])
  with pytest.raises(ValueError, match=r"00001: the bytes of tensor a do not fit their checksum"):
    bundle.read("a")
  np.testing.assert_array_equal(bundle.read("b"), np.ones(4))
  file.write_bytes(whole[:-1])
  with pytest.raises(ValueError, match="ends within tensor b"):
    bundle.read("b")
  file.unlink()
  with pytest.raises(FileNotFoundError, match=r"data-00000-of-00001: no such file; it belongs to model\.ckpt\.index"):
    bundle.read("a")
  (tmp_path / "model.ckpt.index").unlink()
  with pytest.raises(FileNotFoundError, match=r"model\.ckpt\.index: no such file"):
    TensorBundle(tmp_path / "model.ckpt")


def test_what_cannot_be_read_is_named_when_it_is_asked_for(tmp_path):
  shape = bundles.field(2, bundles.field(2, bundles.field(1, 3)))
  extra = {
    "text": bundles.field(1, 7) + shape,
    "part": bundles.field(1, 1) + shape + bundles.field(7, b""),
    "far": bundles.field(1, 1) + shape + bundles.field(4, 2**64 - 8) + bundles.field(5, 12),
    "short": bundles.field(1, 1) + shape + bundles.field(5, 11),
  }
  bundle = TensorBundle(bundles.write(tmp_path / "model.ckpt", {"a": np.ones(2, np.float32)}, extra))
  np.testing.assert_array_equal(bundle.read("a"), [1, 1])
  for name, message in [
    ("text", "TensorFlow's type 7 is not supported"),
    ("part", "partitioned variables are not supported"),
    ("far", "12 bytes at -8 are no float32"),
    ("short", r"11 bytes at 0 are no float32 of shape \(3,\)"),
  ]:
    with pytest.raises(ValueError, match=f"tensor {name}: {message}"):
      bundle.read(name)
