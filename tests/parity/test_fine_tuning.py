"""Fine-tuning beside `transformers`, live: a hundred steps of their models and torch's Adam, and a run of ours.

Both begin from one folder, read the same texts in the same order, and have no dropout, which has a test of its own.
Ours reads packed rows, theirs a sequence a row.
"""

import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
# ruff: noqa: E402

from objectives.objective import mean_loss
from parts import finetuning
from parts.parts import Parts
from tests import compilation, tasks
from tests.parity import dynamics
from training import optimizer, settings, state, step

pytestmark = pytest.mark.parity

STEPS = 100
CLASSES = {
  "classification": "ForSequenceClassification",
  "regression": "ForSequenceClassification",
  "tagging": "ForTokenClassification",
  "span": "ForQuestionAnswering",
  "choice": "ForMultipleChoice",
}
PREFIX = {"bert": "Bert", "albert": "Albert", "xlnet": "XLNet"}
# Low enough that rounding does not grow into a difference: an ALBERT reads its layers' weights several times.
RATES = {"bert": 1e-3, "albert": 2e-4, "xlnet": 1e-3}
CASES = [*(("bert", kind) for kind in CLASSES), ("albert", "classification"), ("xlnet", "classification")]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
  """Their operations are too small to be shared."""
  before = torch.get_num_threads()
  torch.set_num_threads(1)
  yield
  torch.set_num_threads(before)


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_hundred_steps(family, kind, tmp_path):
  theirs = their_model(family, kind, tmp_path / "model")
  folder, source = str(tmp_path / "model"), tasks.write(tmp_path / "files", kind)
  fields = {"init_from": folder, "steps": STEPS, "optimizer__name": "adamw", "optimizer__learning_rate": RATES[family]}
  config = tasks.config(source, kind, family, **fields, **tasks.STILL)
  parts = finetuning.build(config)
  batches = list(parts.train_batches(parts.stages[0], 0, np.arange))
  assert any((batch["sequences"] >= 0).sum(axis=1).max() > 1 for batch in batches)
  tx, rate = optimizer.make(settings.optimizer_config(config.optimizer, STEPS), STEPS)
  ours = our_losses(parts, tx, batches)
  expected = dynamics.train(theirs, lambda batch: their_loss(theirs, kind, sequences(batch)), batches, rate, "adamw")
  assert len(ours) == len(expected) == STEPS
  assert np.mean(ours[-10:]) < 0.8 * np.mean(ours[:10])
  np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-4)


def our_losses(parts: Parts, tx, batches: list[dict[str, np.ndarray]]) -> list[float]:
  """Those of the real training step, on one device."""
  now = initial(parts, tx)
  take = jax.jit(functools.partial(step.train_step, objective=parts.objective, optimizer=tx, seed=0))
  losses = []
  for batch in batches:
    now, values = take(now, batch)
    losses.append(float(values["loss"]))
  return losses


def initial(parts: Parts, tx) -> state.TrainState:
  """The state before the first step, on one device; all weights are the folder's."""
  shapes = jax.eval_shape(lambda: state.init(parts.objective, tx, rows=0, seed=0))
  now = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return now.replace(params=parts.initial(now.params))


DRAWS = 500
RATE = 0.3
# Their fields and ours. Dropout on attention's probabilities, nearly uniform here, would drown in the rest of BERT's.
DROPOUT = {
  "bert": (("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"), tasks.STILL),
  "bert, attention": (("attention_probs_dropout_prob",), ("model__attention_dropout",)),
  "albert": (("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"), tasks.STILL),
  "xlnet": (("dropout", "summary_last_dropout"), tasks.STILL),
}


@pytest.mark.parametrize("where", DROPOUT)
def test_dropout_moves_the_loss_as_theirs_does(where, tmp_path):
  """A dropout that is missing, doubled or elsewhere would change the mean or the deviation of the loss over draws."""
  family = where.split(",")[0]
  their_fields, our_fields = DROPOUT[where]
  never = dict.fromkeys(DROPOUT[family][0], 0.0)
  theirs = their_model(family, "classification", tmp_path / "model", **never | dict.fromkeys(their_fields, RATE))
  source = tasks.write(tmp_path / "files", "classification")
  fields = {"init_from": str(tmp_path / "model"), "steps": 1} | tasks.STILL | dict.fromkeys(our_fields, RATE)
  config = tasks.config(source, "classification", family, **fields)
  parts = finetuning.build(config)
  batch = next(iter(parts.train_batches(parts.stages[0], 0, np.arange)))
  tx, _ = optimizer.make(settings.optimizer_config(config.optimizer, 1), 1)
  ours = loss_of_draws(parts, initial(parts, tx).params, batch)
  with torch.no_grad():
    theirs.train()
    torch.manual_seed(0)
    expected = np.array([float(their_loss(theirs, "classification", sequences(batch))) for _ in range(DRAWS)])
  error = np.hypot(ours.std(), expected.std()) / DRAWS**0.5
  assert expected.std() > 0.1
  assert abs(ours.mean() - expected.mean()) < 4 * error
  assert abs(ours.std() / expected.std() - 1) < 4 / DRAWS**0.5  # 1/√draws is the error of a ratio of normal draws' two


def loss_of_draws(parts: Parts, params, batch: dict[str, np.ndarray]) -> np.ndarray:
  """Our training loss of the batch with dropout, drawn DRAWS times."""
  numbered = step.number_rows(jax.tree.map(jnp.asarray, batch))
  loss = lambda key: mean_loss(parts.objective.loss_fn(params, {}, numbered, key)[0])
  keys = jax.random.split(jax.random.key(1), DRAWS)
  return np.asarray(jax.jit(lambda: jax.lax.map(loss, keys, batch_size=20), compiler_options=compilation.WELL)())


def their_model(family: str, kind: str, folder, **more):
  """The fixture's body with a fresh head, saved to `folder` with the tokenizer."""
  name = PREFIX[family] + CLASSES[kind] + ("Simple" if (family, kind) == ("xlnet", "span") else "")
  torch.manual_seed(0)
  if kind == "regression":
    more["problem_type"] = "regression"
  if family == "xlnet":
    more["bi_data"] = False  # half of a batch backwards, a matter of pretraining
  model = getattr(transformers, name).from_pretrained(
    tasks.FIXTURES / family, num_labels={"regression": 1, "tagging": 3}.get(kind, 2), **more
  )
  model.save_pretrained(folder)
  for file in ("vocab.txt", "spiece.model", "tokenizer_config.json"):
    if (tasks.FIXTURES / family / file).exists():
      shutil.copy(tasks.FIXTURES / family / file, folder)
  return model.eval()


def sequences(batch: dict[str, np.ndarray]) -> list[dict]:
  """The sequences of a packed batch, one by one, in the order of their numbers (a question's options together)."""
  found = []
  for row, slot in np.argwhere(batch["sequences"] >= 0):
    own = np.flatnonzero(batch["sequence_ids"][row] == slot + 1)
    by_token = {name: batch[name][row, own] for name in ("tokens", "segment_ids", "targets") if name in batch}
    by_slot = {name: batch[name][row, slot] for name in ("sequences", "weights", "labels", "groups") if name in batch}
    places = {name: batch[name][row, slot] - own[0] for name in ("start_positions", "end_positions") if name in batch}
    found.append(by_token | by_slot | places)
  return sorted(found, key=lambda one: (one.get("groups", 0), one["sequences"]))


def their_loss(model, kind: str, found: list[dict]):
  """Their own loss of the sequences."""
  if kind == "span":  # their softmax includes padding: a row at a time has none
    ends = lambda one: {name: torch.tensor([one[name]]) for name in ("start_positions", "end_positions")}
    return sum(model(**padded(model, [one]), **ends(one)).loss for one in found) / len(found)
  inputs = padded(model, found)
  if kind == "tagging":
    labels = torch.full_like(inputs["input_ids"], -100)
    labels[inputs["attention_mask"] > 0] = torch.tensor(np.concatenate([one["targets"] for one in found])).long()
  elif kind == "choice":
    inputs = {name: x.reshape(-1, 3, x.shape[-1]) for name, x in inputs.items()}
    labels = torch.tensor([one["weights"] for one in found]).reshape(-1, 3).argmax(-1)
  else:
    labels = torch.tensor(np.array([one["labels"] for one in found]))
    labels = labels.float() if kind == "regression" else labels.long()
  return model(**inputs, labels=labels).loss


def padded(model, found: list[dict]) -> dict:
  """A sequence a row: XLNet's padding is at the left, for <cls> stands last."""
  length = max(len(one["tokens"]) for one in found)
  left = model.config.model_type == "xlnet"

  def stack(rows, fill):
    wide = [(length - len(row), 0) if left else (0, length - len(row)) for row in rows]
    rows = [np.pad(row, width, constant_values=fill) for row, width in zip(rows, wide, strict=True)]
    return torch.from_numpy(np.stack(rows)).long()

  return {
    "input_ids": stack([one["tokens"] for one in found], model.config.pad_token_id),
    "token_type_ids": stack([one["segment_ids"] for one in found], 0),
    "attention_mask": stack([np.ones_like(one["tokens"]) for one in found], 0),
  }
