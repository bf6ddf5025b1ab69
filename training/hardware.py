"""Peak rates of accelerators, for model FLOPs utilisation (MFU)."""

import jax

# Device kind as JAX names it → peak dense bfloat16 FLOP/s of one JAX device (a core on v2 and v3, a chip on later
# TPUs).
PEAK_FLOPS = {
  "TPU v2": 22.5e12,
  "TPU v3": 61.5e12,
  "TPU v4": 275e12,
  "TPU v5 lite": 197e12,
  "TPU v5e": 197e12,
  "TPU v5": 459e12,
  "TPU v5p": 459e12,
  "TPU v6 lite": 918e12,
  "TPU v6e": 918e12,
  "NVIDIA A100-SXM4-40GB": 312e12,
  "NVIDIA A100-SXM4-80GB": 312e12,
  "NVIDIA H100 80GB HBM3": 989e12,
  "NVIDIA H200": 989e12,
}


def peak_flops() -> float | None:
  """Returns the peak FLOP/s of all devices of the run together, or None where this kind has no entry (a CPU)."""
  peak = PEAK_FLOPS.get(jax.devices()[0].device_kind)
  return peak and peak * jax.device_count()
