"""Where arrays live: one named mesh, and one table from parameter paths to partitions."""

import dataclasses
import functools
import re
from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from training.trees import path_name

AXES = ("data", "fsdp", "tensor")
ROWS = ("data", "fsdp")  # the batch is split over both

# Path → partition of an array, for the encoder families and XLNet, whose parameters have names alike. The layer axis of
# stacked parameters is never split, and embeddings are split on width. Attention's kernels and biases are split by
# heads and the feed-forward's by its inner width, so that a layer needs two sums over "tensor" (Megatron-LM, Shoeybi et
# al. 2019, section 3). An axis that is split over both is split over "tensor" first: what is gathered over "fsdp" is
# then one piece. The first match counts; what matches nothing is kept whole on every device.
RULES = (
  (r"embeddings/(word|position|segment)/embedding", P(None, ("tensor", "fsdp"))),
  (r"layers/attention/(query|key|value|position)/kernel", P(None, "fsdp", "tensor")),
  (r"layers/attention/(query|key|value)/bias", P(None, "tensor")),
  (r"layers/attention/(content|position|segment)_bias", P(None, "tensor", None)),  # XLNet: [copies, heads, width]
  (r"layers/attention/segment_embedding", P(None, None, "tensor", None)),
  (r"layers/ffn/intermediate/kernel", P(None, "fsdp", "tensor")),
  (r"layers/ffn/intermediate/bias", P(None, "tensor")),
  (r"layers/attention/output/kernel", P(None, ("tensor", "fsdp"), None)),  # square: split as the others, or re-split
  (r"layers/ffn/output/kernel", P(None, "tensor", "fsdp")),
  (r"(pooler|mlm_head/dense)/kernel", P("fsdp", None)),
)


@dataclasses.dataclass(frozen=True)
class MeshConfig:
  """Devices along each axis. Where devices come in slices (TPU pods over a data-centre network), the first three count
  those of a slice, which fast links join (ICI), and the others count slices (DCN).

  Attributes:
    data: copies of the parameters; each takes a share of the batch. -1 = all that remain.
    fsdp: parts that parameters and optimizer state are split into; the batch is split over them too. -1 likewise.
    tensor: parts that heads and feed-forward width are split into; these devices work on the same rows. -1 likewise.
    dcn_data: slices that hold copies. -1 = all that remain.
    dcn_fsdp: slices that parameters are split over, for models that one slice does not hold.
  """

  data: int = -1
  fsdp: int = 1
  tensor: int = 1
  dcn_data: int = -1
  dcn_fsdp: int = 1


def make_mesh(config: MeshConfig, devices: Sequence | None = None) -> Mesh:
  """Returns a mesh with the axes AXES over `devices` (default: all), placed so that neighbours have fast links.

  Raises:
    ValueError: the sizes do not multiply to the number of devices.
  """
  # Auto, not Explicit, axes: here GSPMD places the communication.
  devices = placed(config, list(jax.devices() if devices is None else devices))
  return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def placed(config: MeshConfig, devices: list) -> np.ndarray:
  """Returns the devices in the mesh's order, [data, fsdp, tensor]; raises as `make_mesh`."""
  # Only TPUs are joined by two networks that differ so; elsewhere a size counts devices of the whole run.
  slices = {getattr(device, "slice_index", None) for device in devices if device.platform == "tpu"} or {None}
  ici = _filled(config, AXES, len(devices) // len(slices), "devices of a slice" if len(slices) > 1 else "devices")
  dcn = *_filled(config, ("dcn_data", "dcn_fsdp"), len(slices), "slices"), 1
  place = functools.partial(mesh_utils.create_device_mesh, ici)
  if np.prod(dcn) > 1:
    place = functools.partial(mesh_utils.create_hybrid_device_mesh, ici, dcn)
  try:
    return place(devices)
  except NotImplementedError:  # a size that whole axes of the physical mesh do not make
    return place(devices, allow_split_physical_axes=True)


def _filled(config: MeshConfig, names: Sequence[str], count: int, what: str) -> list[int]:
  """Returns the sizes of these fields, with what remains of `count` in the place of -1."""
  sizes = [getattr(config, name) for name in names]
  if sizes.count(-1) == 1:
    known = int(np.prod([size for size in sizes if size != -1]))
    sizes[sizes.index(-1)] = max(count // known, 1) if known else 1
  if min(sizes) < 1 or np.prod(sizes) != count:
    said = " × ".join(f"mesh.{name}={getattr(config, name)}" for name in names)
    raise ValueError(
      f"{said} does not make {count} {what}; set them to sizes whose product is the number of {what} "
      "(-1 takes what remains)"
    )
  return sizes


def row_parts(mesh: Mesh) -> int:
  """Returns how many parts the batch is split into."""
  return int(np.prod([mesh.shape[axis] for axis in ROWS]))


def check_rows(name: str, rows: int, mesh: Mesh, accumulate: int = 1) -> None:
  """Raises ValueError if `rows` rows do not divide over the mesh and the micro-batches."""
  parts = row_parts(mesh) * accumulate
  if rows % parts:
    over = " (mesh.data × mesh.fsdp)" if mesh.shape["tensor"] > 1 else ""
    raise ValueError(
      f"{name}={rows} is not divisible by {row_parts(mesh)} devices{over} × accumulate={accumulate}; "
      f"use a multiple of {parts}, e.g. {max(parts, rows // parts * parts)}"
    )


def check_model(heads: int, inner: int, mesh: Mesh) -> None:
  """Raises ValueError if `heads` attention heads or a feed-forward width of `inner` do not divide over "tensor"."""
  tensor = mesh.shape["tensor"]
  for name, size in (("num_heads", heads), ("intermediate_size", inner)):
    if size % tensor:
      fits = [n for n in range(1, tensor) if heads % n == 0 and inner % n == 0]
      raise ValueError(
        f"config.mesh.tensor={tensor} does not divide config.model.{name}={size}; use a divisor of it, e.g. {fits[-1]}"
      )


def replicated(mesh: Mesh) -> NamedSharding:
  """Whole on every device."""
  return NamedSharding(mesh, P())


def by_row(mesh: Mesh) -> NamedSharding:
  """Split along the first axis over "data" and "fsdp"."""
  return NamedSharding(mesh, P(ROWS))


def partition(path: str, shape: tuple[int, ...], mesh: Mesh, rules=RULES) -> P:
  """Returns the partition of one array by the first rule that matches; an axis that does not divide is not split."""
  for pattern, spec in rules:
    if re.search(pattern, path):
      return P(*(_dividing(axes, size, mesh) for axes, size in zip(spec, shape, strict=False)))
  return P()


def _dividing(axes: str | tuple[str, ...] | None, size: int, mesh: Mesh):
  """Returns the mesh axes, of those named, that together divide `size`."""
  kept = ()
  for axis in (axes,) if isinstance(axes, str) else axes or ():
    if size % np.prod([mesh.shape[name] for name in (*kept, axis)]) == 0:
      kept += (axis,)
  return kept[0] if len(kept) == 1 else kept or None


def tree_shardings(tree, mesh: Mesh, rules=RULES):
  """Returns a sharding for each leaf. Optimizer state carries its parameter's path at its end, so the same rules
  place it."""

  def leaf(path, x):
    return NamedSharding(mesh, partition(path_name(path), np.shape(x), mesh, rules))

  return jax.tree.map_with_path(leaf, tree)


def local_rows(mesh: Mesh, rows: int) -> np.ndarray:
  """Returns the rows of a global batch of `rows` rows that this process reads: those its devices hold, ascending.

  They need not be neighbours: the mesh lies as the links do, and not as processes are numbered. Processes whose devices
  differ along "tensor" alone read the same rows.
  """
  held = by_row(mesh).addressable_devices_indices_map((rows,)).values()
  return np.unique(np.concatenate([np.arange(rows)[index] for index in held]))


def put_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
  """Places this process's rows of a batch, as `local_rows` numbers them, on the mesh, split by row."""
  sharding = by_row(mesh)
  return {name: jax.make_array_from_process_local_data(sharding, rows) for name, rows in batch.items()}
