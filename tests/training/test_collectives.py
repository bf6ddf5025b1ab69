"""What devices say to one another, read from the compiled step."""

import re

import jax
import numpy as np

from models.config import EncoderConfig
from models.pretraining import PretrainingModel
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives import plm, pretraining
from objectives.masking import MaskingConfig
from objectives.objective import Objective
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
  rows = np.zeros((ROWS, LENGTH), np.int32)
  batch = {"tokens": rows, "segment_ids": rows, "sequence_ids": rows + 1, "pair_label": rows[:, 0]}
  return sent_by(pretraining.make(PretrainingModel(config), recipe, vocabulary), batch, data, fsdp)


def sent_by(objective: Objective, batch: dict[str, np.ndarray], data: int, fsdp: int):
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-4, 0)), steps=10)
  mesh = sharding.make_mesh(sharding.MeshConfig(data, fsdp), jax.devices()[: data * fsdp])
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


def xlnet_collectives(data: int, fsdp: int) -> list[tuple[str, str, tuple[int, ...]]]:
  """As `collectives`, of XLNet with memory."""
  config = XLNetConfig(VOCAB, hidden_size=80, num_layers=2, num_heads=4, intermediate_size=160, mem_len=16)
  ids = np.arange(VOCAB)
  vocabulary = Vocabulary(0, ids < 5, ids >= 5, np.ones(VOCAB, int), np.ones(VOCAB, int), (ids == 3) | (ids == 4))
  recipe = plm.PLMConfig(num_predict=4, reuse_len=12, perm_size=12, memory_reset="document")
  rows = np.ones((ROWS, LENGTH), np.int32)
  batch = dict.fromkeys(("tokens", "segment_ids", "sequence_ids", "document_ids"), rows)
  batch["backward"] = np.arange(ROWS) % 2 == 1
  return sent_by(plm.make(PermutationLM(config), recipe, vocabulary), batch, data, fsdp)


def test_xlnets_memory_and_streams_stay_where_their_rows_are():
  sent = xlnet_collectives(data=2, fsdp=2)
  gathered = {shape for kind, _, shape in sent if kind == "all-gather"}
  assert (80, 160) in gathered  # a kernel, whole
  for kind, dtype, shape in sent:  # never as much as the query stream of the batch: 4 targets a row, 80 wide
    is_matrix = len(shape) <= 2
    assert is_matrix or np.prod(shape) < ROWS * 4 * 80, (kind, dtype, shape)
