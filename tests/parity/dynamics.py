"""Fifty steps of training, theirs and ours: same weights, same batches, no dropout."""

import functools
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
import torch

from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from objectives import mlm, pair
from objectives.masking import Corrupted
from tests import compilation
from tests.parity import reference
from training import optimizer
from training.schedule import ScheduleConfig

STEPS = 50
PEAK = {"adamw": 2e-3, "bert_adamw": 1e-3}


def batches(vocab_size: int) -> list[dict[str, np.ndarray]]:
  """Five batches ten times over, to be learned by heart: four targets a row, shown as token 3, random pair labels."""
  result = []
  for i in range(5):
    rng = np.random.default_rng(i)
    batch = reference.padded_batch(vocab_size, (32, 32, 20, 12, 32, 27, 9, 32), 32, seed=i)
    batch["pair_label"] = rng.integers(0, 2, 8, np.int32)
    batch["positions"] = np.sort(rng.permuted(np.tile(np.arange(1, 9), (8, 1)), axis=1)[:, :4]).astype(np.int32)
    batch["targets"] = np.take_along_axis(batch["tokens"], batch["positions"], axis=1)
    np.put_along_axis(batch["tokens"], batch["positions"], 3, axis=1)
    result.append(batch)
  return result * (STEPS // 5)


def make_optimizer(name: str):
  """(gradient transformation, schedule)."""
  return optimizer.make(optimizer.OptimizerConfig(ScheduleConfig(PEAK[name], 5, "linear"), name=name), STEPS)


def our_losses(config: EncoderConfig, params: dict, batches: list[dict[str, np.ndarray]], name: str) -> list[float]:
  model = PretrainingModel(config)
  tx, _ = make_optimizer(name)

  @functools.partial(jax.jit, compiler_options=compilation.WELL)
  def step(params, state, batch):
    def loss(params):
      output = model.apply(
        {"params": params},
        batch["tokens"],
        batch["segment_ids"],
        batch["sequence_ids"],
        batch["positions"],
        deterministic=False,
        rngs={"dropout": jax.random.key(0)},
      )
      weights = jnp.ones(batch["targets"].shape)
      corrupted = Corrupted(batch["tokens"], batch["positions"], batch["targets"], weights, jnp.zeros(8))
      terms = mlm.sums(output.mlm_logits, corrupted)[0] | pair.sums("nsp", output.pair_logits, batch)[0]
      return sum(total / weight for total, weight in terms.values())

    value, gradient = jax.value_and_grad(loss)(params)
    updates, state = tx.update(gradient, state, params)
    return jax.tree.map(jnp.add, params, updates), state, value

  state, losses = tx.init(params), []
  for batch in batches:
    params, state, value = step(params, state, {key: jnp.asarray(x) for key, x in batch.items()})
    losses.append(float(value))
  return losses


def their_losses(model, batches: list[dict[str, np.ndarray]], name: str) -> list[float]:
  """Changes `model`."""
  label = "sentence_order_label" if model.config.model_type == "albert" else "next_sentence_label"

  def loss(batch):
    tensors = {key: torch.from_numpy(batch[key]).long() for key in ("tokens", "positions", "targets", "pair_label")}
    labels = torch.full_like(tensors["tokens"], -100).scatter_(1, tensors["positions"], tensors["targets"])
    return model(**reference.arguments(batch), labels=labels, **{label: tensors["pair_label"]}).loss

  return train(model, loss, batches, make_optimizer(name)[1], name)


def train(model, loss: Callable, batches: Iterable, rate: Callable, name: str) -> list[float]:
  """Trains a model of torch and returns its losses.

  Args:
    model: is changed.
    loss: batch → the loss of `model`.
    batches: one a step.
    rate: step → learning rate.
    name: "adamw", torch's own, or "bert_adamw".
  """
  no_decay = [p for n, p in model.named_parameters() if _is_excluded(n)]
  decay = [p for n, p in model.named_parameters() if not _is_excluded(n)]
  groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
  adam, state, losses = torch.optim.AdamW(groups, lr=1.0, eps=1e-6), {}, []
  for step, batch in enumerate(batches):
    value = loss(batch)
    losses.append(float(value.detach()))
    adam.zero_grad()
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    now = float(rate(step))
    if name == "adamw":
      for group in adam.param_groups:
        group["lr"] = now
      adam.step()
    else:
      with torch.no_grad():
        _uncorrected_adam(decay, now, 0.01, state)
        _uncorrected_adam(no_decay, now, 0.0, state)
  return losses


def _is_excluded(name: str) -> bool:
  if name.endswith(("r_w_bias", "r_r_bias", "r_s_bias")):  # XLNet's attention biases decay
    return False
  return name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name


def _uncorrected_adam(parameters, lr: float, weight_decay: float, state: dict) -> None:
  """One update as in BERT's optimization.py: AdamWeightDecayOptimizer, written for torch."""
  for p in parameters:
    m, v = state.setdefault(p, (torch.zeros_like(p), torch.zeros_like(p)))
    m.mul_(0.9).add_(p.grad, alpha=0.1)
    v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
    p.sub_(lr * (m / (v.sqrt() + 1e-6) + weight_decay * p))
