"""Optimizers and schedules against the originals' arithmetic, written out by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import base
from training import optimizer, settings
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig, learning_rate


def constant(rate: float) -> ScheduleConfig:
  return ScheduleConfig(peak=rate, warmup_steps=0, decay="constant")


def test_the_originals_schedule_falls_from_step_0_and_drops_when_warm_up_ends():
  schedule = learning_rate(ScheduleConfig(peak=1.0, warmup_steps=10), steps=100)
  # optimization.py: step/warmup below 10, then 1 - step/100.
  np.testing.assert_allclose(
    [schedule(s) for s in (0, 5, 9, 10, 55, 99, 100)], [0, 0.5, 0.9, 0.9, 0.45, 0.01, 0], atol=1e-7
  )


@pytest.mark.parametrize(("decay", "middle"), [("linear", 0.55), ("cosine", 0.55), ("constant", 1.0)])
def test_a_share_of_the_peak_may_be_left_at_the_end(decay, middle):
  schedule = learning_rate(ScheduleConfig(1.0, 0, decay, final=0.1), steps=100)
  end = 1.0 if decay == "constant" else 0.1
  np.testing.assert_allclose([schedule(s) for s in (0, 50, 100, 120)], [1, middle, end, end], atol=1e-6)
  quarter = {"linear": 0.775, "cosine": 0.1 + 0.9 * 0.5 * (1 + np.sqrt(0.5)), "constant": 1.0}[decay]
  assert schedule(25) == pytest.approx(quarter, abs=1e-6)


def test_the_shifted_schedule_falls_from_the_end_of_warm_up():
  schedule = learning_rate(ScheduleConfig(peak=1.0, warmup_steps=10, shifted=True), steps=100)
  np.testing.assert_allclose([schedule(s) for s in (0, 5, 10, 55, 100)], [0, 0.5, 1.0, 0.5, 0], atol=1e-6)


def test_bert_adamw_is_the_originals_three_steps_by_hand():
  rng = np.random.default_rng(0)
  w, b = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
  params = {"dense": {"kernel": jnp.asarray(w), "bias": jnp.asarray(b)}}
  tx, _ = optimizer.make(OptimizerConfig(constant(0.1), clip=1.0), steps=10)
  state = tx.init(params)
  moments = {name: (np.zeros_like(x), np.zeros_like(x)) for name, x in (("kernel", w), ("bias", b))}
  expected = {"kernel": w.copy(), "bias": b.copy()}
  for _ in range(3):
    gradients = {name: 3 * rng.standard_normal(x.shape).astype(np.float32) for name, x in expected.items()}
    updates, state = tx.update({"dense": jax.tree.map(jnp.asarray, gradients)}, state, params)
    params = jax.tree.map(jnp.add, params, updates)
    norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
    for name, g in gradients.items():
      g = g / max(norm, 1.0)
      m, v = moments[name]
      m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
      moments[name] = m, v
      update = m / (np.sqrt(v) + 1e-6) + (0.01 * expected[name] if name == "kernel" else 0)
      expected[name] = expected[name] - 0.1 * update
  for name, value in expected.items():
    np.testing.assert_allclose(params["dense"][name], value, rtol=2e-5, atol=1e-6)


def test_the_first_step_without_bias_correction_is_3_16_times_that_with_it():
  params, gradients = {"kernel": jnp.zeros(3)}, {"kernel": jnp.full(3, 0.01)}
  sizes = {}
  for name in ("bert_adamw", "adamw"):
    tx, _ = optimizer.make(OptimizerConfig(constant(1.0), name=name, clip=0.0, weight_decay=0.0, eps=1e-12), steps=10)
    updates, _ = tx.update(gradients, tx.init(params), params)
    sizes[name] = float(-updates["kernel"][0])
  assert sizes["adamw"] == pytest.approx(1.0, rel=1e-4)
  assert sizes["bert_adamw"] == pytest.approx(0.1 / np.sqrt(0.001), rel=1e-4)


def test_layer_norms_and_biases_do_not_decay_and_embeddings_do():
  params = {
    "encoder": {
      "embeddings": {"word": {"embedding": 0}, "norm": {"scale": 0, "bias": 0}},
      "layers": {
        "attention": {"query": {"kernel": 0, "bias": 0}, "content_bias": 0},
        "attention_norm": {"scale": 0, "bias": 0},
      },
    },
    "mlm_head": {"dense": {"kernel": 0, "bias": 0}, "norm": {"scale": 0, "bias": 0}, "bias": 0},
  }
  mask = optimizer.decay_mask(params, optimizer.NO_DECAY)
  decays = [jax.tree_util.keystr(path) for path, value in jax.tree.leaves_with_path(mask) if value]
  assert decays == [
    "['encoder']['embeddings']['word']['embedding']",
    "['encoder']['layers']['attention']['content_bias']",  # XLNet's, as in the original
    "['encoder']['layers']['attention']['query']['kernel']",
    "['mlm_head']['dense']['kernel']",
  ]


@pytest.mark.parametrize("name", ["albert_lamb", "lamb"])
def test_lamb_is_the_originals_two_steps_by_hand(name):
  rng = np.random.default_rng(2)
  values = {"kernel": rng.standard_normal((3, 4)), "bias": rng.standard_normal(4), "zeros": np.zeros((2, 2))}
  values = {key: value.astype(np.float32) for key, value in values.items()}
  params = {"dense": jax.tree.map(jnp.asarray, values)}
  tx, _ = optimizer.make(OptimizerConfig(constant(0.1), name=name, clip=0.0), steps=10)
  state = tx.init(params)
  m, v = ({key: np.zeros_like(value) for key, value in values.items()} for _ in range(2))
  for t in (1, 2):
    gradients = {key: rng.standard_normal(value.shape).astype(np.float32) for key, value in values.items()}
    updates, state = tx.update({"dense": jax.tree.map(jnp.asarray, gradients)}, state, params)
    params = jax.tree.map(jnp.add, params, updates)
    for key, g in gradients.items():
      m[key], v[key] = 0.9 * m[key] + 0.1 * g, 0.999 * v[key] + 0.001 * g**2
      corrected = (m[key], v[key]) if name == "albert_lamb" else (m[key] / (1 - 0.9**t), v[key] / (1 - 0.999**t))
      update = corrected[0] / (np.sqrt(corrected[1]) + 1e-6) + (0.01 * values[key] if key != "bias" else 0)
      weight = np.linalg.norm(values[key])
      ratio = weight / np.linalg.norm(update) if key != "bias" and weight > 0 else 1.0
      values[key] = values[key] - 0.1 * ratio * update
  for key, value in values.items():
    np.testing.assert_allclose(params["dense"][key], value, rtol=1e-4, atol=1e-6)


def test_optaxs_trust_ratio_takes_a_stack_for_one_layer():
  """Why ours is our own: with layers of unlike norms the two differ, so the stacked test below can fail."""
  stacked = {"layers": {"kernel": jnp.stack([jnp.ones((2, 2)), 100 * jnp.ones((2, 2))])}}
  update = jax.tree.map(jnp.ones_like, stacked)
  ours, _ = optimizer.scale_by_trust_ratio("none").update(update, optax.EmptyState(), stacked)
  theirs, _ = optax.scale_by_trust_ratio().update(update, optax.ScaleByTrustRatioState(), stacked)
  np.testing.assert_allclose(ours["layers"]["kernel"][:, 0, 0], [1, 100])
  assert float(theirs["layers"]["kernel"][0, 0, 0]) > 50


@pytest.mark.parametrize("name", list(optimizer.OPTIMIZERS))
def test_stacked_layers_move_as_separate_ones(name):
  rng = np.random.default_rng(1)
  stacked = {"layers": {"kernel": jnp.asarray(rng.standard_normal((5, 3, 4)), jnp.float32)}}
  separate = {f"layer_{i}": {"kernel": stacked["layers"]["kernel"][i]} for i in range(5)}
  tx, _ = optimizer.make(OptimizerConfig(constant(0.1), name=name), steps=10)
  states = tx.init(stacked), tx.init(separate)
  for _ in range(3):
    g = jnp.asarray(rng.standard_normal((5, 3, 4)), jnp.float32)
    a, state_a = tx.update({"layers": {"kernel": g}}, states[0], stacked)
    b, state_b = tx.update({f"layer_{i}": {"kernel": g[i]} for i in range(5)}, states[1], separate)
    states = state_a, state_b
    stacked, separate = jax.tree.map(jnp.add, stacked, a), jax.tree.map(jnp.add, separate, b)
  for i in range(5):
    np.testing.assert_allclose(stacked["layers"]["kernel"][i], separate[f"layer_{i}"]["kernel"], rtol=1e-5, atol=1e-7)


def test_an_unknown_name_is_refused_with_the_choices():
  with pytest.raises(ValueError, match=r"optimizer\.name='sgd'.*bert_adamw, adamw, albert_lamb, lamb"):
    OptimizerConfig(constant(1.0), name="sgd")
  with pytest.raises(ValueError, match=r"optimizer\.decay='exponential'.*linear, cosine, constant"):
    ScheduleConfig(peak=1.0, warmup_steps=0, decay="exponential")


@pytest.mark.parametrize(
  ("field", "values"),
  [
    ("b1", (-0.1, 1.0, math.nan)),
    ("b2", (-0.1, 1.0, math.nan)),
    ("eps", (0.0, -1e-6, math.inf, math.nan)),
    ("weight_decay", (-0.01, math.inf, math.nan)),
    ("clip", (-1.0, math.inf, math.nan)),
    ("learning_rate", (-1e-4, math.inf, math.nan)),
    ("warmup_steps", (-1,)),
  ],
)
def test_a_number_out_of_range_is_refused_by_name(field, values):
  for value in values:
    section = base.get_config().optimizer
    section[field] = value
    with pytest.raises(ValueError, match=rf"^config\.optimizer\.{field}={value} must be"):
      settings.optimizer_config(section, 100)
