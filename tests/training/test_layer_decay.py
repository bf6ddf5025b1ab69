"""Layer-wise decay of the rate: stacked layers beside separate ones, embeddings below all, heads at the full rate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config import EncoderConfig
from models.head_config import HeadConfig
from models.tasks import parameter_shapes
from tests.models import tiny_xlnet
from training import optimizer
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig

DECAY = 0.5
LAYERS = 3


def steps(params: dict, gradients: list[dict], name: str, decay: float, rate: float = 0.1) -> dict:
  """Returns the parameters after a step for each of the gradients, none of which is clipped."""
  schedule = ScheduleConfig(peak=rate, warmup_steps=0, decay="constant")
  tx, _ = optimizer.make(OptimizerConfig(schedule, name=name, clip=0.0, layer_decay=decay), steps=10)
  opt_state = tx.init(params)
  for g in gradients:
    updates, opt_state = tx.update(g, opt_state, params)
    params = jax.tree.map(jnp.add, params, updates)
  return params


@pytest.mark.parametrize("name", list(optimizer.OPTIMIZERS))
def test_each_layer_of_a_stack_moves_as_alone_at_its_own_rate(name):
  """Three steps, so that moments and decay are those of the slower layer too."""
  rng = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
  tree = lambda: {
    "encoder": {
      "embeddings": {"word": {"embedding": draw(5, 4)}},
      "layers": {"dense": {"kernel": draw(LAYERS, 4, 4), "bias": draw(LAYERS, 4)}},
    },
    "pooler": {"kernel": draw(4, 4)},
    "classifier": {"kernel": draw(4, 2), "bias": draw(2)},
  }
  params, gradients = tree(), [tree() for _ in range(3)]
  moved = steps(params, gradients, name, DECAY)

  def alone(part, rate):
    return steps(part(params), [part(g) for g in gradients], name, 1.0, rate)

  def assert_close(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)

  for i in range(LAYERS):
    layer = lambda tree, i=i: {f"layer_{i}": jax.tree.map(lambda x: x[i], tree["encoder"]["layers"])}
    assert_close(layer(moved), alone(layer, 0.1 * DECAY ** (LAYERS - 1 - i)))
  embeddings = lambda tree: tree["encoder"]["embeddings"]
  assert_close(embeddings(moved), alone(embeddings, 0.1 * DECAY**LAYERS))
  heads = lambda tree: {name: tree[name] for name in ("pooler", "classifier")}
  assert_close(heads(moved), alone(heads, 0.1))


ENCODER = {"vocab_size": 7, "hidden_size": 4, "num_heads": 2, "intermediate_size": 8, "num_layers": LAYERS}


@pytest.mark.parametrize("config", [EncoderConfig(**ENCODER), tiny_xlnet.CONFIG], ids=["bert", "xlnet"])
def test_every_parameter_of_a_model_has_its_factor(config):
  """By the paths of the real models."""
  updates = {}
  for path, shape in parameter_shapes(config, HeadConfig("regression")).items():
    updates[path] = jnp.ones(shape)
  scaled, _ = optimizer.scale_by_depth(DECAY).update(updates, None)
  layers = config.num_layers
  of_layers = DECAY ** np.arange(layers - 1, -1, -1)
  seen = set()
  for path, x in scaled.items():
    if "layers/" in path:
      seen.add("layers")
      expected = of_layers.reshape(-1, *[1] * (x.ndim - 1))
    elif path.startswith(("encoder/", "xlnet/")):
      seen.add("below")
      expected = DECAY**layers
    else:
      assert path.split("/")[0] in ("pooler", "summary", "classifier")
      seen.add("heads")
      expected = 1.0
    np.testing.assert_allclose(x, np.broadcast_to(expected, x.shape), rtol=1e-6, err_msg=path)
  assert seen == {"layers", "below", "heads"}
