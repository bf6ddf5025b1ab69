"""Where arrays live: one named mesh, and one table from parameter paths to partitions."""

import dataclasses
import re

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from training.trees import path_name

ROWS = ("data", "fsdp")  # the batch is split over both

# Path → partition of an array, for the encoder families and XLNet, whose parameters have names alike. The layer axis of
# stacked parameters is never split, and embeddings are split on width. The first match counts; what matches nothing is
# kept whole on every device.
RULES = (
  (r"embeddings/(word|position|segment)/embedding", P(None, "fsdp")),
  (r"layers/.*kernel", P(None, "fsdp", None)),
  (r"(pooler|mlm_head/dense)/kernel", P("fsdp", None)),
)


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Devices along each axis; -1 once takes all that remain.

  Attributes:
    data: copies of the parameters; each takes a share of the batch.
    fsdp: parts that parameters and optimizer state are split into; the batch is split over them too.
  """

  data: int = -1
  fsdp: int = 1


def make_mesh(config: MeshConfig, devices: list | None = None) -> Mesh:
  """Returns a mesh with axes "data" and "fsdp" over `devices` (default: all).

  Raises:
    ValueError: the sizes do not multiply to the number of devices.
  """
  devices = jax.devices() if devices is None else devices
  sizes = [config.data, config.fsdp]
  if sizes.count(-1) == 1:
    known = int(np.prod([size for size in sizes if size != -1]))
    sizes[sizes.index(-1)] = max(len(devices) // known, 1)
  if min(sizes) < 1 or np.prod(sizes) != len(devices):
    raise ValueError(
      f"mesh.data={config.data} × mesh.fsdp={config.fsdp} does not make {len(devices)} devices; "
      "set them to sizes whose product is the number of devices (-1 takes what remains)"
    )
  # Not jax.make_mesh's Explicit axes: here GSPMD places the communication.
  return jax.make_mesh(tuple(sizes), ROWS, axis_types=(AxisType.Auto,) * 2, devices=devices)


def check_rows(name: str, rows: int, mesh: Mesh, accumulate: int = 1) -> None:
  """Raises ValueError if `rows` rows do not divide over the mesh and the micro-batches."""
  parts = mesh.size * accumulate
  if rows % parts:
    raise ValueError(
      f"{name}={rows} is not divisible by {mesh.size} devices × accumulate={accumulate}; "
      f"use a multiple of {parts}, e.g. {max(parts, rows // parts * parts)}"
    )


def replicated(mesh: Mesh) -> NamedSharding:
  """Whole on every device."""
  return NamedSharding(mesh, P())


def by_row(mesh: Mesh) -> NamedSharding:
  """Split along the first axis over all devices."""
  return NamedSharding(mesh, P(ROWS))


def partition(path: str, shape: tuple[int, ...], mesh: Mesh, rules=RULES) -> P:
  """Returns the partition of one array by the first rule that matches; an axis that does not divide is not split."""
  for pattern, spec in rules:
    if re.search(pattern, path):
      axes = [axis if axis and shape[i] % mesh.shape[axis] == 0 else None for i, axis in enumerate(spec[: len(shape)])]
      return P(*axes)
  return P()


def tree_shardings(tree, mesh: Mesh, rules=RULES):
  """Returns a sharding for each leaf. Optimizer state carries its parameter's path at its end, so the same rules
  place it."""

  def leaf(path, x):
    return NamedSharding(mesh, partition(path_name(path), np.shape(x), mesh, rules))

  return jax.tree.map_with_path(leaf, tree)


def local_rows(rows: int) -> slice:
  """Returns the slice of a global batch of `rows` rows that this process reads."""
  share = rows // jax.process_count()
  return slice(jax.process_index() * share, (jax.process_index() + 1) * share)


def put_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
  """Places this process's rows of a batch on the mesh, split by row."""
  sharding = by_row(mesh)
  return {name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()}
