"""The state of a run: created in place, split over the mesh, never first built on one device."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from objectives.objective import Carry, Objective, Params
from training import sharding


@flax.struct.dataclass
class TrainState:
  """Everything that a step reads and writes.

  Attributes:
    step: int32 scalar, optimizer steps done.
    params: float32 parameters.
    opt_state: the optimizer's, of the parameters that are trained.
    carry: the objective's, split by row with the batch.
  """

  step: jax.Array
  params: Params
  opt_state: Any
  carry: Carry


def init(objective: Objective, optimizer: optax.GradientTransformation, rows: int, seed: int) -> TrainState:
  """Returns the state before the first step, for batches of `rows` rows. Traceable."""
  params = objective.init(jax.random.fold_in(jax.random.key(seed), 0))
  return TrainState(jnp.int32(0), params, optimizer.init(objective.moving(params)), objective.init_carry(rows))


def shardings(abstract: TrainState, mesh: Mesh) -> TrainState:
  """Returns the sharding of every leaf of a state."""
  return TrainState(
    step=sharding.replicated(mesh),
    params=sharding.tree_shardings(abstract.params, mesh),
    opt_state=sharding.tree_shardings(abstract.opt_state, mesh),
    carry=jax.tree.map(lambda _: sharding.by_row(mesh), abstract.carry),
  )


def abstract(objective: Objective, optimizer: optax.GradientTransformation, rows: int, mesh: Mesh) -> TrainState:
  """Returns shapes, types and shardings of a state, with nothing computed."""
  shapes = jax.eval_shape(lambda: init(objective, optimizer, rows, seed=0))
  places = shardings(shapes, mesh)
  return jax.tree.map(lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), shapes, places)


def create(
  objective: Objective, optimizer: optax.GradientTransformation, rows: int, seed: int, mesh: Mesh
) -> TrainState:
  """Returns a fresh state placed on the mesh."""
  places = jax.tree.map(lambda x: x.sharding, abstract(objective, optimizer, rows, mesh))
  return jax.jit(lambda: init(objective, optimizer, rows, seed), out_shardings=places)()
