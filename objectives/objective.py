"""The contract between what is predicted and how it is trained.

An objective turns parameters and a clean batch into sums and weights. Nothing here divides: the training step does,
with weights counted over the global batch, so that neither micro-batches nor devices change the loss.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Params = Any  # a tree of float32 arrays
Carry = Any  # a tree of arrays whose first axis is the row of the batch; {} where nothing is carried
Batch = dict[str, Array]  # clean rows from `data`, and "row": each row's number in the global batch
Sums = dict[str, tuple[Array, Array]]  # name → (sum, weight), both float32 scalars
Outputs = dict[str, Array]  # what the host makes predictions of; the first axis is the row of the batch
LossFn = Callable[[Params, Carry, Batch, Array], tuple[Sums, Sums, Carry]]
EvalFn = Callable[[Params, Carry, Batch, Array], tuple[Sums, Sums, Carry, Outputs]]
PRNG = ("threefry2x32", "rbg", "unsafe_rbg")  # generators of dropout masks


class Objective(NamedTuple):
  """What is predicted.

  Attributes:
    init: key → parameters, with no data needed.
    init_carry: number of rows → the carry before the first step.
    loss_fn: (params, carry, batch, key) → (terms, metrics, carry), with dropout. The loss is Σ over terms of
      sum/weight. Corruption is a pure function of (key, clean batch): rows draw from keys folded with `batch["row"]`.
    eval_fn: the same without dropout; gives outputs besides, {} where the host has nothing to score.
    frozen: modules of the parameters (names at the top of the tree) that stay as they are: no gradient with respect to
      them is taken, and the optimizer knows nothing of them.
    rows_apart: whether all that `loss_fn` does with a row, up to the sums, is of that row alone, wherever the others
      are.
  """

  init: Callable[[Array], Params]
  init_carry: Callable[[int], Carry]
  loss_fn: LossFn
  eval_fn: EvalFn
  frozen: tuple[str, ...] = ()
  rows_apart: bool = True

  def moving(self, params: Params) -> Params:
    """Returns the parameters that are trained."""
    return {name: tree for name, tree in params.items() if name not in self.frozen} if self.frozen else params


def ratio(total: Array, weight: Array) -> Array:
  """Returns total/weight, and 0 where nothing was counted."""
  return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), 0)


def mean_loss(terms: Sums) -> Array:
  """Returns Σ over terms of sum/weight."""
  return sum((ratio(total, weight) for total, weight in terms.values()), jnp.float32(0))


def row_keys(key: Array, rows: Array) -> Array:
  """Returns one key a row, so that a row's draws depend on its global number alone, however the batch is split."""
  return jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)


def dropout_rngs(key: Array, rows: Array, prng: str) -> dict[str, Array]:
  """Returns the generator of a micro-batch's dropout masks, of a kind in PRNG.

  A micro-batch is known by its first row, wherever that is; the generator may be another than the one that seeds it.
  """
  shares = tuple(jax.sharding.get_abstract_mesh().manual_axes)  # that rows are split into by hand
  first = jax.lax.pmin(rows[0], shares) if shares else rows[0]
  return {"dropout": jax.random.key(jax.random.bits(jax.random.fold_in(key, first)), impl=prng)}


def check_prng(prng: str) -> None:
  """Raises ValueError if `prng` is not in PRNG."""
  if prng not in PRNG:
    raise ValueError(f"objective.dropout_prng={prng!r} is unknown; use one of {', '.join(PRNG)}")


def no_carry(rows: int) -> Carry:
  """The carry of an objective that carries nothing from step to step."""
  del rows
  return {}
