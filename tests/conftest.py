"""Settings that every test shares: CPU with eight virtual devices, a compilation cache, and checked shapes."""

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
from jaxtyping import install_import_hook

_CACHE = pathlib.Path(__file__).parent.parent / ".cache" / "xla"
jax.config.update("jax_compilation_cache_dir", str(_CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
jax.config.update("jax_numpy_rank_promotion", "raise")

install_import_hook(["models", "objectives"], "beartype.beartype")
