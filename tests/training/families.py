"""A tiny model of each family with its objective, and a batch for it: what compiles soon and has every parameter."""

import dataclasses

import jax
import numpy as np

from models.config import EncoderConfig
from models.head_config import HeadConfig
from models.pretraining import PretrainingModel
from models.primitives import ModelConfig
from models.tasks import TaskModel
from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives import dae, plm, pretraining, tasks
from objectives.masking import MaskingConfig
from objectives.objective import Batch, Objective
from objectives.vocabulary import Vocabulary
from training import optimizer, programs, sharding
from training.optimizer import OptimizerConfig
from training.programs import Steps
from training.schedule import ScheduleConfig

LENGTH, VOCAB = 24, 100
SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "intermediate_size": 128}
FAMILIES = ("bert", "albert", "xlnet")


def config(family: str, **fields) -> ModelConfig:
  """Returns the model; `fields` change it."""
  if family in ("xlnet", "dae"):
    return XLNetConfig(VOCAB, **SIZES, mem_len=16, **fields)
  own = {"sharing": "all", "embedding_size": 32} if family == "albert" else {}
  return EncoderConfig(VOCAB, **SIZES, **own, **fields)


def build(family: str, rows: int, **fields) -> tuple[Objective, Batch]:
  """Returns (objective, clean rows); `fields` change the model. "bilstm" is one on the layers of a frozen BERT, "dae"
  an XLNet that is trained as one, and with pairs."""
  ids, one = np.arange(VOCAB), np.ones(VOCAB, int)
  vocabulary = Vocabulary(3, ids < 5, ids >= 5, one, one, (ids == 1) | (ids == 4))
  tokens = np.random.default_rng(0).integers(5, VOCAB, (rows, LENGTH), dtype=np.int32)
  tokens[:, -1] = 4
  same = np.ones((rows, LENGTH), np.int32)
  batch = {"tokens": tokens, "segment_ids": same, "sequence_ids": same}
  model = config(family, **fields)
  if family == "bilstm":
    head = HeadConfig("tagging", ("O", "B"), features="weighted_sum_all", lstm_width=32, freeze=True)
    slots = same[:, :2]
    batch |= {"targets": same, "cls_positions": slots, "sequences": slots}
    return tasks.make(TaskModel(model, head)), batch
  batch["pair_label"] = np.arange(rows, dtype=np.int32) % 2
  if family in ("xlnet", "dae"):
    batch |= {"document_ids": same, "backward": np.arange(rows) % 2 == 1}
    recipe = plm.PLMConfig(num_predict=4, reuse_len=12, perm_size=12, memory_reset="document")
    if family == "xlnet":
      return plm.make(PermutationLM(model), recipe, vocabulary), batch
    recipe = dataclasses.replace(recipe, words="dae", pair="nsp")
    return dae.make(PermutationLM(model, pair=True), recipe, vocabulary), batch
  recipe = pretraining.PretrainingConfig(MaskingConfig(), "sop" if family == "albert" else "nsp")
  return pretraining.make(PretrainingModel(model), recipe, vocabulary), batch


def lower(objective: Objective, rows: int, mesh: jax.sharding.Mesh, accumulate: int = 1) -> Steps:
  """Returns its steps on a mesh."""
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-3, 0)), steps=10)
  return programs.lower_stage(objective, tx, rows, mesh, seed=0, accumulate=accumulate)


def mesh(data: int = 1, fsdp: int = 1, tensor: int = 1, devices: list | None = None) -> jax.sharding.Mesh:
  """Returns a mesh over the first devices."""
  devices = (jax.devices() if devices is None else devices)[: data * fsdp * tensor]
  return sharding.make_mesh(sharding.MeshConfig(data, fsdp, tensor), devices)
