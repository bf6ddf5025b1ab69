"""What devices say to one another, read from the compiled step."""

import re

import jax
import numpy as np

from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from objectives import pretraining
from objectives.masking import MaskingConfig
from objectives.vocabulary import Vocabulary
from training import optimizer, programs, sharding
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig

ROWS, LENGTH, VOCAB = 32, 24, 100
COLLECTIVE = r"= (\(?[a-z0-9]+\[.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("


def collectives(data: int, fsdp: int) -> list[tuple[str, str, tuple[int, ...]]]:
  """(kind, element type, shape) of every array that a training step on this mesh sends."""
  config = EncoderConfig(VOCAB, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128)
  ids = np.arange(VOCAB)
  vocabulary = Vocabulary(3, ids < 5, ids >= 5, np.ones(VOCAB, int), np.ones(VOCAB, int))
  recipe = pretraining.PretrainingConfig(MaskingConfig())
  objective = pretraining.make(PretrainingModel(config), recipe, vocabulary)
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-4, 0)), steps=10)
  mesh = sharding.make_mesh(sharding.MeshConfig(data, fsdp), jax.devices()[: data * fsdp])
  rows = np.zeros((ROWS, LENGTH), np.int32)
  batch = {"tokens": rows, "segment_ids": rows, "sequence_ids": rows + 1, "pair_label": rows[:, 0]}
  text = programs.compile_stage(objective, tx, batch, ROWS, mesh, seed=0, accumulate=1).train.as_text()
  return [
    (kind, dtype, tuple(map(int, filter(None, shape.split(",")))))
    for arrays, kind in re.findall(COLLECTIVE, text)
    for dtype, shape in re.findall(r"([a-z]+[0-9]*)\[([0-9,]*)\]", arrays)
  ]


def test_fsdp_gathers_kernels_and_never_the_batchs_activations():
  sent = collectives(data=1, fsdp=4)
  gathered = {shape for kind, _, shape in sent if kind == "all-gather"}
  assert (64, 128) in gathered  # a kernel, whole
  for kind, dtype, shape in sent:
    whole_batch = shape[:2] == (ROWS, LENGTH) or ROWS * LENGTH in shape
    assert not (whole_batch and dtype.startswith(("f", "bf", "pred"))), (kind, dtype, shape)


def test_data_parallel_steps_only_add_up_gradients_and_scalars():
  assert {kind for kind, _, _ in collectives(data=4, fsdp=1)} == {"all-reduce"}
