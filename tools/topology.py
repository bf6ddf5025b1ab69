"""Devices that are described and not there: programs can be compiled for them, and not run."""

import contextlib
import importlib.util
import os
import re
from typing import NamedTuple

# Before libtpu is loaded: it asks no metadata server for the machine it is on, and guards no TPU, so that several
# programs may be compiled at once.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-1")

import jax
from jax.experimental import topologies

from training.hardware import TPUS


class Topology(NamedTuple):
  """Devices, as a mesh takes them.

  Attributes:
    name: as it was asked for.
    devices: in no order that matters.
    hbm_bytes: memory that a program may use on each; None = not known (a CPU's).
    peak_flops: of each, per second; None likewise.
  """

  name: str
  devices: list
  hbm_bytes: int | None
  peak_flops: float | None


def describe(name: str, slices: int = 1) -> Topology:
  """Returns the devices of `GENERATION:XxY` or `GENERATION:XxYxZ` (chips), or of `cpu:N`, N devices of this host.

  Args:
    name: e.g. v3:8x8, which has 128 cores; v4:4x4x4; v5e:16x16; cpu:8.
    slices: how many of these are joined by a data-centre network.

  Raises:
    ValueError: no such topology, or no libtpu to describe it.
  """
  found = re.fullmatch(r"(\w+):(\d+(?:x\d+){0,2})", name)
  if not found or found[1] not in (*TPUS, "cpu"):
    raise ValueError(
      f"--topology={name} is none: name a generation and chips along its axes, e.g. v3:8x8 (128 cores), v4:4x4x4 or "
      f"v5e:16x16; generations are {', '.join(TPUS)}; cpu:8 is eight devices on this host"
    )
  if slices < 1:
    raise ValueError(f"--slices={slices} must be at least 1")
  if found[1] == "cpu":
    if slices > 1 or not found[2].isdigit() or not int(found[2]):
      raise ValueError(f"--topology={name} --slices={slices}: devices on this host are a number, and one slice")
    return Topology(name, _local(int(found[2])), None, None)
  if importlib.util.find_spec("libtpu") is None:
    raise ValueError(
      f"--topology={name} needs libtpu, which compiles for TPUs: pip install -r requirements-compile.txt"
    )
  tpu = TPUS[found[1]]
  shape = found[2] + "x1" * (2 - found[2].count("x") if found[1] in ("v4", "v5p") else 0)
  options = tpu.options | ({"num_slices": slices} if slices > 1 else {})
  try:
    devices = topologies.get_topology_desc(f"{found[1]}:{shape}", platform="tpu", **options).devices
  except Exception as error:  # of several kinds, by version
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    raise ValueError(f"--topology={name}: libtpu knows no such slice ({reason})") from None
  return Topology(name, list(devices), tpu.hbm_bytes, tpu.peak_flops)


def _local(count: int) -> list:
  if "host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    with contextlib.suppress(RuntimeError):  # JAX is in use already
      jax.config.update("jax_num_cpu_devices", count)
  devices = jax.devices("cpu")
  if not 1 <= count <= len(devices):
    raise ValueError(f"--topology=cpu:{count}: this process has {len(devices)} devices")
  return devices[:count]
