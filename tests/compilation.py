"""How the tests' programs are compiled: they are small, and their time is the compiler's."""

# LLVM's passes, and the code generator that makes fusions faster to run than to make, take two thirds of it.
QUICKLY = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
EIGHT_DEVICES = "--xla_force_host_platform_device_count=8"
WELL = {"xla_backend_optimization_level": 2, "xla_cpu_use_fusion_emitters": True}  # jax.jit's compiler_options
