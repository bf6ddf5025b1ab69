"""Our side of the comparisons with XLNet elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np

from models.xlnet import PermutationLM, XLNetOutput
from models.xlnet_config import XLNetConfig


def ours(
  config: XLNetConfig, params: dict, batch: dict[str, np.ndarray], memory, backward, targets: bool, reuse_len: int
) -> tuple[XLNetOutput, np.ndarray]:
  """(states of every layer and new memory, logits) for a batch as xlnet_reference.batch makes it."""
  seen = batch["allowed"] & batch["real"][:, None, :]
  options = {"visible": jnp.asarray(seen), "reuse_len": reuse_len}
  if targets:
    options["target_positions"] = jnp.asarray(batch["positions"], jnp.int32)
    options["target_visible"] = jnp.asarray(np.take_along_axis(seen, batch["positions"][:, :, None], axis=1))
  if memory is not None:
    options["memory"] = jnp.asarray(memory)
  if backward is not None:
    options["backward"] = jnp.asarray(backward)
  rows = [jnp.asarray(batch[name], jnp.int32) for name in ("tokens", "segment_ids")]
  model = PermutationLM(config)

  @jax.jit
  def run(params):
    output = model.apply({"params": params}, *rows, **options, every_layer=True, method="hidden")
    return output, model.apply({"params": params}, *rows, **options)[0]

  return jax.tree.map(np.asarray, run(params))
