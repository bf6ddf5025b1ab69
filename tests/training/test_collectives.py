"""What devices say to one another, read from the compiled step."""

import re

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from models.config import EncoderConfig
from models.head_config import HeadConfig
from models.pretraining import PretrainingModel
from models.tasks import TaskModel
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives import plm, pretraining, tasks
from objectives.masking import MaskingConfig
from objectives.objective import Batch, Objective
from objectives.vocabulary import Vocabulary
from training import optimizer, programs, sharding
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig

PRIME = 11  # rows of a device, and of nothing else: an axis of activations is a multiple, one of parameters is not
ROWS, LENGTH, VOCAB = 4 * PRIME, 24, 100
COLLECTIVE = r"= (\(?[a-z0-9]+\[.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("


def encoder(**fields) -> tuple[Objective, Batch]:
  config = EncoderConfig(VOCAB, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128, **fields)
  ids = np.arange(VOCAB)
  vocabulary = Vocabulary(3, ids < 5, ids >= 5, np.ones(VOCAB, int), np.ones(VOCAB, int))
  recipe = pretraining.PretrainingConfig(MaskingConfig())
  rows = np.zeros((ROWS, LENGTH), np.int32)
  batch = {"tokens": rows, "segment_ids": rows, "sequence_ids": rows + 1, "pair_label": rows[:, 0]}
  return pretraining.make(PretrainingModel(config), recipe, vocabulary), batch


def xlnet() -> tuple[Objective, Batch]:
  """With memory."""
  config = XLNetConfig(VOCAB, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128, mem_len=16)
  ids = np.arange(VOCAB)
  vocabulary = Vocabulary(0, ids < 5, ids >= 5, np.ones(VOCAB, int), np.ones(VOCAB, int), (ids == 3) | (ids == 4))
  recipe = plm.PLMConfig(num_predict=4, reuse_len=12, perm_size=12, memory_reset="document")
  rows = np.ones((ROWS, LENGTH), np.int32)
  batch = dict.fromkeys(("tokens", "segment_ids", "sequence_ids", "document_ids"), rows)
  batch["backward"] = np.arange(ROWS) % 2 == 1
  return plm.make(PermutationLM(config), recipe, vocabulary), batch


def bilstm() -> tuple[Objective, Batch]:
  """On the layers of a frozen BERT."""
  config = EncoderConfig(VOCAB, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128)
  head = HeadConfig("tagging", ("O", "B"), features="weighted_sum_all", lstm_width=32, freeze=True)
  rows = np.ones((ROWS, LENGTH), np.int32)
  names = ("tokens", "segment_ids", "sequence_ids", "targets")
  return tasks.make(TaskModel(config, head)), dict.fromkeys(names, rows) | {
    "cls_positions": rows[:, :2],
    "sequences": rows[:, :2],
  }


FAMILIES = {
  "bert": encoder,
  "albert": lambda: encoder(sharing="all", embedding_size=32),
  "xlnet": xlnet,
  "bilstm": bilstm,
}


@pytest.fixture
def always_compiled():
  """A program that comes from the cache of programs has no warnings."""
  jax.config.update("jax_enable_compilation_cache", False)
  compilation_cache.reset_cache()
  yield
  jax.config.update("jax_enable_compilation_cache", True)
  compilation_cache.reset_cache()


def collectives(family: str, data: int, fsdp: int) -> list[tuple[str, str, tuple[int, ...]]]:
  """(kind, element type, shape) of every array that a training step on this mesh sends."""
  objective, batch = FAMILIES[family]()
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-4, 0)), steps=10)
  mesh = sharding.make_mesh(sharding.MeshConfig(data, fsdp), jax.devices()[: data * fsdp])
  shapes = [programs.shapes_of(batch, ROWS)]
  (program,) = programs.compile_stage(objective, tx, shapes, ROWS, mesh, seed=0, accumulate=1).train.programs.values()
  return [
    (kind, dtype, tuple(map(int, filter(None, shape.split(",")))))
    for arrays, kind in re.findall(COLLECTIVE, program.as_text())
    for dtype, shape in re.findall(r"([a-z]+[0-9]*)\[([0-9,]*)\]", arrays)
  ]


@pytest.mark.usefixtures("always_compiled")
@pytest.mark.parametrize(("family", "data", "fsdp"), [("bert", 1, 4), *((family, 2, 2) for family in FAMILIES)])
def test_fsdp_gathers_kernels_and_never_sends_activations(family, data, fsdp, capfd):
  sent = collectives(family, data, fsdp)
  assert (64, 128) in {shape for kind, _, shape in sent if kind == "all-gather"}  # a kernel, whole
  for kind, dtype, shape in sent:
    assert not any(size % PRIME == 0 for size in shape), (kind, dtype, shape)
  warnings = capfd.readouterr().err
  assert "rematerialization" not in warnings, warnings  # XLA's word for an array that goes whole to every device


@pytest.mark.parametrize("family", FAMILIES)
def test_data_parallel_steps_only_add_up_gradients_and_scalars(family):
  assert {kind for kind, _, _ in collectives(family, data=4, fsdp=1)} == {"all-reduce"}
