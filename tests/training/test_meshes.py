"""The same losses on every mesh: copies, split parameters, split layers, and mixtures, dropout on."""

import functools

import jax
import numpy as np
import pytest

from tests.training import families
from training import optimizer, sharding, state
from training.optimizer import OptimizerConfig
from training.programs import shapes_of
from training.schedule import ScheduleConfig

ROWS = 8
# (data, fsdp, tensor), remat; what one device without remat computes.
MESHES = [((4, 1, 1), "full"), ((1, 4, 1), "dots"), ((1, 1, 4), "none"), ((2, 2, 2), "full"), ((2, 1, 2), "none")]
FAST = ("xlnet", (2, 2, 2), "full")  # the others compile for minutes: `make slow`


@functools.cache
def losses(family: str, sizes: tuple[int, int, int], remat: str, accumulate: int = 1, dropout: float = 0.1):
  """(loss, norm of the gradient) of three steps."""
  fields = {"hidden_dropout": dropout, "attention_dropout": dropout}
  objective, batch = families.build(family, ROWS, remat=remat, **fields)
  mesh = families.mesh(*sizes)
  step = families.lower(objective, ROWS, mesh, accumulate).train(shapes_of(batch, ROWS)).compile()
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-3, 0)), steps=10)
  now, found = state.create(objective, tx, ROWS, 0, mesh), []
  for _ in range(3):
    now, values = step(now, sharding.put_batch(batch, mesh))
    found.append((float(values["loss"]), float(values["gradient_norm"])))
  return np.array(found)


CASES = [
  pytest.param(
    family, *mesh, marks=() if (family, *mesh) == FAST else pytest.mark.slow, id=f"{family}-{mesh[0]}-{mesh[1]}"
  )
  for family in families.FAMILIES
  for mesh in MESHES
] + [pytest.param("dae", *FAST[1:], marks=pytest.mark.slow)]


@pytest.mark.parametrize(("family", "sizes", "remat"), CASES)
def test_losses_are_those_of_one_device(family, sizes, remat):
  alone = losses(family, (1, 1, 1), "none")
  assert alone[0, 0] > alone[2, 0]  # it learns
  np.testing.assert_allclose(losses(family, sizes, remat), alone, rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", families.FAMILIES)
def test_micro_batches_on_a_mesh_are_those_of_one_device(family):
  """With dropout, whose masks belong to a micro-batch wherever its rows are."""
  split = losses(family, (2, 1, 1), "none", accumulate=2)
  np.testing.assert_allclose(split, losses(family, (1, 1, 1), "none", accumulate=2), rtol=2e-4)
  assert abs(split - losses(family, (1, 1, 1), "none")).max() > 1e-4


@pytest.mark.parametrize("sizes", [(2, 2, 2)])
def test_state_is_placed_at_creation(sizes):
  """No device has more than its share of what is split, and nothing was ever in one place."""
  objective, _ = families.build("xlnet", ROWS)
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-3, 0)), steps=10)
  now = state.create(objective, tx, ROWS, 0, families.mesh(*sizes))
  kernel = now.params["xlnet"]["layers"]["ffn"]["intermediate"]["kernel"]
  assert {shard.data.shape for shard in kernel.addressable_shards} == {(2, 32, 64)}
  moments = [x for x in jax.tree.leaves(now.opt_state) if x.shape == kernel.shape]
  assert moments
  assert all(x.sharding == kernel.sharding for x in moments)
  assert {shard.data.shape for shard in now.carry["memory"].addressable_shards} == {(ROWS // 4, 2, 16, 64)}
