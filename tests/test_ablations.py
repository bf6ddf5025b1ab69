"""The rows of the papers' ablations: every one builds at every scale, and takes a step at the small one; those that the
small one leaves out are traced."""

import functools
import importlib

import jax
import numpy as np
import pytest

import train
from parts import pretraining
from tests.test_configs import MODELS, TINY
from training import metrics, optimizer, settings, state, step

FAMILIES = ("bert", "albert", "xlnet")


def module(family: str):
  return importlib.import_module(f"configs.ablations.{family}")


def variants(family: str) -> list[str]:
  file = module(family)
  small = {**file.ROWS, **file.SMALL_ROWS}
  return [*file.ROWS, *(f"small/{name}" for name, row in small.items() if row is not None)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_row_builds_and_differs_from_the_others(family):
  file, seen = module(family), {}
  for variant in variants(family):
    config = file.get_config(variant)
    settings.check(config)
    MODELS[config.family](**dict(config.model) | {"vocab_size": config.model.vocab_size or 100})
    settings.optimizer_config(config.optimizer, 1000)
    seen.setdefault(config.to_json_best_effort(), []).append(variant)
  # What the paper's tables have in common: the base of one is a row of another.
  twins = {tuple(sorted(name.removeprefix("small/") for name in names)) for names in seen.values() if len(names) > 1}
  assert twins <= BASES[family]
  assert f"python train.py --config=configs/ablations/{family}.py:" in file.__doc__


BASES = {
  "bert": {("12/768/12", "base", "mask_80_10_10"), ("2/128/4", "base", "mask_80_10_10")},
  "albert": {
    ("all", "embedding_128", "sop"), ("all", "embedding_64", "layers_2", "sop", "width_128"),
    ("all_768", "embedding_768"), ("all_128", "embedding_128"), ("layers_3", "width_1024"),
    ("none", "none_embedding_128"), ("none", "none_embedding_64"),
  },
  "xlnet": set(),
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_that_is_not_there(family):
  with pytest.raises(ValueError, match=f"configs/ablations/{family}.py has no row 'small/all_of_it'; use one of "):
    module(family).get_config("small/all_of_it")


# One of each kind, and all that the small scale leaves out: sizes.
PROGRAMS = {
  "bert": ("ltr", "no_nsp", "spans"),
  "albert": ("no_pair", "ffn"),
  "xlnet": ("dae", "k7", "no_memory", "nsp"),
}
LARGE = [(family, row) for family in FAMILIES for row, at in module(family).SMALL_ROWS.items() if at is None]
TRACED = [*((family, row) for family in FAMILIES for row in PROGRAMS[family]), *LARGE]


@pytest.mark.parametrize(("family", "row"), TRACED)
def test_the_papers_size_is_a_program(family, row):
  """Traced, not compiled: the loss of the first stage's step, at the paper's size."""
  config = module(family).get_config(row)
  config.model.vocab_size = config.model.vocab_size or 100
  plan = pretraining.plan(config)
  (shapes,), _ = plan.shapes(plan.stages[0])
  rows = 4
  batch = {name: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype) for name, x in shapes.items()}
  batch["row"] = jax.ShapeDtypeStruct((rows,), np.int32)
  params = jax.eval_shape(plan.objective.init, jax.random.key(0))
  carry = jax.eval_shape(functools.partial(plan.objective.init_carry, rows))
  terms, _, after = jax.eval_shape(plan.objective.loss_fn, params, carry, batch, jax.random.key(0))
  assert jax.tree.map(lambda x: x.shape, after) == jax.tree.map(lambda x: x.shape, carry)
  assert terms.keys() == {config.objective.words, config.objective.pair} - {"none"}


# One of each kind: a whole run of them.
RUN = [
  *(("bert", row) for row in ("no_nsp", "ltr", "mask_0_0_100", "full_sentences", "doc_sentences", "spans")),
  *(("albert", row) for row in ("attention", "ffn", "none", "nsp", "no_pair", "groups_2", "all_128")),
  *(("xlnet", row) for row in ("dae", "k7", "no_memory", "no_spans", "one_direction", "nsp")),
]


@pytest.mark.slow  # compiles a program for each: `make slow`
@pytest.mark.parametrize(("family", "row"), RUN)
def test_it_runs_at_tiny_size(family, row, prepared_corpus, tmp_path, monkeypatch):
  config = module(family).get_config(f"small/{row}")
  devices = jax.devices()[:1]
  monkeypatch.setattr(jax, "devices", lambda: devices)
  tiny = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 32, "initializer_range": 0.02}
  if family == "albert" and config.model.embedding_size:
    tiny["embedding_size"] = 8
  config.model.update(tiny)
  if family == "xlnet":
    config.model.mem_len = min(config.model.mem_len, 8)
    config.objective.update(TINY["xlnet"]["objective"])
    config.data.update(TINY["xlnet"]["data"])
  config.data.corpus = str(prepared_corpus)
  config.steps = config.batch_size = 2
  config.length, config.eval_batches, config.optimizer.learning_rate = 16, 1, 1e-5
  train.train(config, str(tmp_path))
  records = metrics.read(str(tmp_path / "metrics.jsonl"))
  assert [(r["step"], r["split"]) for r in records] == [(0, "eval"), (2, "train"), (2, "eval")]
  assert all(np.isfinite(r["loss"]) for r in records)


SMALL = [(f, name.removeprefix("small/")) for f in FAMILIES for name in variants(f) if name.startswith("small/")]


@pytest.mark.slow  # compiles a program for each: `make slow`
@pytest.mark.parametrize(("family", "row"), [pair for pair in SMALL if pair not in RUN])
def test_it_takes_a_step_at_its_own_size(family, row, prepared_corpus):
  """The other rows of the small scale, whose sizes and shares are what they are about; of two rows of text."""
  config = module(family).get_config(f"small/{row}")
  config.data.corpus, config.batch_size = str(prepared_corpus), 2
  config.model.unroll, config.optimizer.warmup_steps = 1, 0
  parts = pretraining.build(config)
  batches = parts.train_batches(parts.stages[0], 0, lambda rows: slice(None))
  batch = {name: np.array(values) for name, values in next(batches).items()}
  batches.close()
  tx, _ = optimizer.make(settings.optimizer_config(config.optimizer, config.steps), config.steps)

  @jax.jit
  def first_step(batch):
    before = state.init(parts.objective, tx, config.batch_size, seed=0)
    after, values = step.train_step(before, batch, objective=parts.objective, optimizer=tx, seed=0)
    return jax.tree.map(lambda a, b: (a != b).any(), before.params, after.params), values

  moved, values = first_step(batch)
  assert np.isfinite(values["loss"])
  assert {f"{config.objective.words}_loss", f"{config.objective.pair}_loss"} - {"none_loss"} <= values.keys()
  still = [jax.tree_util.keystr(path) for path, moves in jax.tree.leaves_with_path(moved) if not moves]
  assert not still
