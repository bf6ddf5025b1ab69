"""Accelerators: their peak rates, for model FLOPs utilisation (MFU), and their memory."""

import contextlib
from typing import NamedTuple

import jax


class Tpu(NamedTuple):
  """A generation of TPUs, as one device of JAX: a core on v2 and v3, a chip on later ones.

  Attributes:
    kind: what JAX calls it.
    peak_flops: dense bfloat16 FLOP/s.
    hbm_bytes: what the compiler gives to a program (it says so when one does not fit).
    options: that a description of a topology needs, so that a device is what it is on the machine.
  """

  kind: str
  peak_flops: float
  hbm_bytes: int
  options: dict


_GIB = 2**30
TPUS = {
  "v2": Tpu("TPU v2", 22.5e12, int(7.48 * _GIB), {}),
  "v3": Tpu("TPU v3", 61.5e12, int(15.48 * _GIB), {}),
  "v4": Tpu("TPU v4", 275e12, int(30.75 * _GIB), {"chip_config_name": "megacore"}),
  "v5e": Tpu("TPU v5 lite", 197e12, int(15.75 * _GIB), {}),
  "v5p": Tpu("TPU v5", 459e12, int(95.74 * _GIB), {}),
  "v6e": Tpu("TPU v6 lite", 918e12, int(31.25 * _GIB), {}),
}

# Device kind as JAX names it → peak dense bfloat16 FLOP/s (float16 where a GPU has no bfloat16), by NVIDIA's data
# sheets, which print twice that where they count zeros that the hardware skips.
PEAK_FLOPS = {tpu.kind: tpu.peak_flops for tpu in TPUS.values()} | {
  "TPU v5e": TPUS["v5e"].peak_flops,
  "TPU v5p": TPUS["v5p"].peak_flops,
  "TPU v6e": TPUS["v6e"].peak_flops,
  "Tesla T4": 65e12,
  "Tesla V100-PCIE-16GB": 112e12,
  "Tesla V100-PCIE-32GB": 112e12,
  "Tesla V100-SXM2-16GB": 125e12,
  "Tesla V100-SXM2-32GB": 125e12,
  "NVIDIA A10": 125e12,
  "NVIDIA A40": 149.7e12,
  "NVIDIA A100-PCIE-40GB": 312e12,
  "NVIDIA A100-SXM4-40GB": 312e12,
  "NVIDIA A100 80GB PCIe": 312e12,
  "NVIDIA A100-SXM4-80GB": 312e12,
  "NVIDIA L4": 121e12,
  "NVIDIA L40S": 362e12,
  "NVIDIA H100 PCIe": 756e12,
  "NVIDIA H100 80GB HBM3": 989e12,
  "NVIDIA GH200 480GB": 989e12,
  "NVIDIA H200": 989e12,
  "NVIDIA B200": 2250e12,
}


def peak_flops() -> float | None:
  """Returns the peak FLOP/s of all devices of the run together, or None where one's kind has no entry (a CPU's)."""
  peaks = [PEAK_FLOPS.get(device.device_kind) for device in jax.devices()]
  return None if None in peaks else sum(peaks)


def memory_peak() -> int | None:
  """Returns the most bytes that were in use at once, since the process began, on any one device of this process; None
  where devices do not say (a CPU)."""
  peaks = []
  for device in jax.local_devices():
    with contextlib.suppress(jax.errors.JaxRuntimeError):  # a device that cannot count
      peaks.append((device.memory_stats() or {}).get("peak_bytes_in_use"))
  return max(filter(None, peaks), default=None)
