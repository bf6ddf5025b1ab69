"""The mesh, the table of partitions, and which rows a process reads."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from training import sharding


def test_mesh_sizes_must_make_all_devices():
  devices = jax.devices()[:4]
  assert dict(sharding.make_mesh(sharding.MeshConfig(-1, 2), devices).shape) == {"data": 2, "fsdp": 2, "tensor": 1}
  assert dict(sharding.make_mesh(sharding.MeshConfig(1, 2, 2), devices).shape) == {"data": 1, "fsdp": 2, "tensor": 2}
  for sizes in ((3, 1), (-1, 8), (0, 1), (-1, 0), (-1, -1), (1, 1, 2), (-1, 1, 1, 2), (-1, 1, 1, 1, 2)):
    with pytest.raises(ValueError, match=r"does not make (4 devices|1 slices); set them to sizes whose product is"):
      sharding.make_mesh(sharding.MeshConfig(*sizes), devices)


@dataclasses.dataclass(frozen=True)
class Device:
  """A core of a TPU v5e in a pod of slices of four, in two processes each."""

  id: int
  slice_index: int
  process_index: int
  coords: tuple[int, int, int]
  core_on_chip: int = 0
  device_kind: str = "TPU v5 lite"
  platform: str = "tpu"


def test_slices_are_joined_along_the_axes_that_say_so():
  """Along "tensor" and the inner part of the others a device's neighbours are of its own slice."""
  devices = [Device(i, i // 4, i // 2, (i % 2, i % 4 // 2, 0)) for i in range(16)]
  placed = lambda **sizes: sharding.placed(sharding.MeshConfig(**sizes), devices)
  slices = lambda **sizes: [[row[0].slice_index for row in rows] for rows in placed(**sizes)]
  assert placed().shape == (16, 1, 1)
  assert slices() == [[i // 4] for i in range(16)]
  assert slices(fsdp=2) == [[i // 2, i // 2] for i in range(8)]
  assert slices(fsdp=4, dcn_fsdp=2) == [[0, 0, 0, 0, 1, 1, 1, 1], [2, 2, 2, 2, 3, 3, 3, 3]]
  assert placed(tensor=4).shape == (4, 1, 4)
  assert all(len({device.slice_index for device in row}) == 1 for (row,) in placed(tensor=4))
  with pytest.raises(
    ValueError, match=r"mesh.data=16 × mesh.fsdp=1 × mesh.tensor=1 does not make 4 devices of a slice"
  ):
    placed(data=16)
  with pytest.raises(ValueError, match=r"mesh.dcn_data=2 × mesh.dcn_fsdp=1 does not make 4 slices"):
    placed(dcn_data=2)


def test_heads_and_feed_forward_width_must_divide():
  mesh = sharding.make_mesh(sharding.MeshConfig(1, 1, 4), jax.devices()[:4])
  sharding.check_model(8, 64, mesh)
  with pytest.raises(ValueError, match=r"config.mesh.tensor=4 does not divide config.model.num_heads=6; .* e.g. 2$"):
    sharding.check_model(6, 64, mesh)
  with pytest.raises(ValueError, match=r"mesh.tensor=4 does not divide config.model.intermediate_size=66; .* e.g. 2$"):
    sharding.check_model(8, 66, mesh)


def test_rows_divide_over_data_and_fsdp_but_not_tensor():
  mesh = sharding.make_mesh(sharding.MeshConfig(2, 2, 2), jax.devices()[:8])
  sharding.check_rows("batch_size", 8, mesh, accumulate=2)
  with pytest.raises(ValueError, match=r"batch_size=12 is not divisible by 4 devices .* × accumulate=2.*e.g. 8"):
    sharding.check_rows("batch_size", 12, mesh, accumulate=2)


@pytest.mark.parametrize("sizes", [(8, 1, 1), (2, 2, 2), (1, 2, 4)])
def test_a_process_reads_the_rows_its_devices_hold_wherever_they_lie(monkeypatch, sizes):
  """Of a mesh that runs across processes, as that of a pod does."""
  devices = np.array(jax.devices()[:8])[[0, 4, 1, 5, 2, 6, 3, 7]].reshape(sizes)
  mesh = Mesh(devices, sharding.AXES)
  parts, read = sharding.row_parts(mesh), []
  for mine in (devices.ravel()[[0, 2, 4, 6]], devices.ravel()[[1, 3, 5, 7]]):
    held = [row for row, group in enumerate(devices.reshape(parts, -1)) if set(group) & set(mine)]
    indices = {d: i for d, i in sharding.by_row(mesh).devices_indices_map((16,)).items() if d in mine}
    monkeypatch.setattr(NamedSharding, "addressable_devices_indices_map", lambda self, shape, i=indices: i)
    rows = sharding.local_rows(mesh, 16)
    np.testing.assert_array_equal(rows.reshape(-1, 16 // parts)[:, 0], 16 // parts * np.array(held))
    read.append(rows)
  assert set(np.concatenate(read)) == set(range(16))


@pytest.mark.parametrize(
  ("path", "shape", "spec"),
  [
    ("encoder/embeddings/word/embedding", (30522, 768), P(None, ("tensor", "fsdp"))),  # on width
    ("opt_state/1/mu/encoder/embeddings/word/embedding", (30522, 768), P(None, ("tensor", "fsdp"))),
    ("encoder/layers/attention/query/kernel", (12, 768, 768), P(None, "fsdp", "tensor")),  # never the layer axis
    ("encoder/layers/attention/query/bias", (12, 768), P(None, "tensor")),
    ("encoder/layers/attention/output/kernel", (12, 768, 768), P(None, ("tensor", "fsdp"), None)),
    ("encoder/layers/attention/output/bias", (12, 768), P()),  # of the sum over "tensor"
    ("encoder/layers/ffn/intermediate/kernel", (12, 768, 3072), P(None, "fsdp", "tensor")),
    ("encoder/layers/ffn/intermediate/bias", (12, 3072), P(None, "tensor")),
    ("encoder/layers/ffn/output/kernel", (1, 3072, 768), P(None, "tensor", "fsdp")),  # shared by all layers
    ("encoder/layers/attention_norm/scale", (12, 768), P()),
    ("xlnet/layers/attention/position/kernel", (12, 768, 768), P(None, "fsdp", "tensor")),
    ("xlnet/layers/attention/position_bias", (1, 12, 64), P(None, "tensor", None)),  # by heads
    ("xlnet/layers/attention/segment_embedding", (12, 2, 12, 64), P(None, None, "tensor", None)),
    ("encoder/layers/attention/query/kernel", (12, 6, 768), P(None, None, "tensor")),  # does not divide: kept whole
    ("encoder/embeddings/word/embedding", (30522, 12), P(None, "tensor")),  # divides by one of two
  ],
)
def test_the_table_of_partitions(path, shape, spec):
  mesh = sharding.make_mesh(sharding.MeshConfig(1, 4, 2), jax.devices()[:8])
  assert sharding.partition(path, shape, mesh) == spec
