"""Our side of the comparisons, and how close the two must be."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from pretrained import hf


def read(model, folder: pathlib.Path) -> tuple[EncoderConfig, dict]:
  """Our configuration and parameters of a `transformers` model, by way of a folder."""
  model.save_pretrained(folder)
  config, params, _ = hf.read_folder(folder)
  return config, params


def ours(config: EncoderConfig, params: dict, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """As reference.outputs, as far as `params` has the heads."""
  rows = [jnp.asarray(batch[name]) for name in ("tokens", "segment_ids", "sequence_ids")]
  every = jnp.broadcast_to(jnp.arange(rows[0].shape[1])[None], rows[0].shape)
  model = PretrainingModel(config)

  @jax.jit
  def run(params):
    hidden = model.apply({"params": params}, *rows, method="hidden")
    result = {"hidden": hidden}
    if "pooler" in params:
      result["pooled"] = model.apply({"params": params}, hidden[-1], method="pool")
    if "mlm_head" in params:
      result["mlm_logits"] = model.apply({"params": params}, hidden[-1], every, method="mlm_logits")
    if "pair_head" in params:
      result["pair_logits"] = model.apply({"params": params}, *rows, every).pair_logits
    return result

  return jax.tree.map(np.asarray, run(params))


def assert_close(result: dict[str, np.ndarray], expected: dict[str, np.ndarray], batch: dict[str, np.ndarray]) -> None:
  """Within 1e-4 at every real position."""
  real = batch["sequence_ids"] > 0
  for name in result:
    a, b = result[name], expected[name]
    if name == "hidden":
      a, b = a[:, real], b[:, real]
    elif name == "mlm_logits":
      a, b = a[real], b[real]
    np.testing.assert_allclose(a, b, atol=1e-4, rtol=0, err_msg=name)
