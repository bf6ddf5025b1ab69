"""XLNet's side of benchmarks.train_step: ours and theirs, with the same targets, memory and directions."""

from collections.abc import Callable

import jax
import numpy as np

from models.flops import xlnet_flops
from models.xlnet import PermutationLM
from models.xlnet_config import XLNET_SIZES, XLNetConfig
from objectives import plm
from objectives.vocabulary import Vocabulary
from training import optimizer, programs, sharding, state
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig

VOCAB_SIZE, CLS, SEP, FIRST = 32_000, 3, 4, 9  # ids below FIRST are special
K = 6  # one token in K is a target (the paper's section 2.3)


def ours(size: str, rows: int, length: int, mem_len: int) -> tuple[Callable[[], None], float]:
  """Returns (take one step and wait for it, model FLOPs of a step)."""
  config = XLNetConfig(VOCAB_SIZE, **XLNET_SIZES[size], mem_len=mem_len, unroll=0)
  ids, ones = np.arange(VOCAB_SIZE), np.ones(VOCAB_SIZE, int)
  vocabulary = Vocabulary(6, ids < FIRST, ids % 3 > 0, ones, ones, np.isin(ids, [CLS, SEP]))
  recipe = plm.PLMConfig(num_predict=length // K, reuse_len=length // 2, perm_size=length // 2)
  objective = plm.make(PermutationLM(config), recipe, vocabulary)
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-4, 0, "constant"), "bert_adamw"), steps=1000)
  mesh = sharding.make_mesh(sharding.MeshConfig())
  batch = batch_of(rows, length)
  program = programs.compile_stage(objective, tx, [programs.shapes_of(batch, rows)], rows, mesh, seed=0, accumulate=1)
  now = [state.create(objective, tx, rows, 0, mesh)]

  def step() -> None:
    now[0], values = program.train(now[0], sharding.put_batch(batch, mesh))
    jax.block_until_ready((now[0], values))

  return step, 3 * xlnet_flops(config, rows, length, recipe.num_predict)


def transformers(size: str, rows: int, length: int, mem_len: int) -> tuple[Callable[[], None], float]:
  """Returns what `ours` does, by `transformers` and PyTorch (with AdamW); its FLOPs are not counted.

  Targets and masks are given: as many targets, each of which sees the context and the targets before it.
  """
  import torch
  import transformers as hf

  sizes = XLNET_SIZES[size]
  config = hf.XLNetConfig(
    vocab_size=VOCAB_SIZE,
    d_model=sizes["hidden_size"],
    n_layer=sizes["num_layers"],
    n_head=sizes["num_heads"],
    d_inner=sizes["intermediate_size"],
    ff_activation="gelu_new",
    dropout=0.1,
    bi_data=rows % 2 == 0,
    mem_len=mem_len,
    reuse_len=length // 2,
  )
  model = hf.XLNetLMHeadModel(config).train()
  adam = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01)
  batch = batch_of(rows, length)
  rng = np.random.default_rng(1)
  positions = np.stack([rng.permutation(length - 3)[: length // K] for _ in range(rows)])
  rank = np.zeros((rows, length), int)
  np.put_along_axis(rank, positions, 1 + np.arange(length // K)[None], axis=1)
  hidden = (rank[:, None, :] > 0) & (rank[:, None, :] >= rank[:, :, None])
  tokens = torch.from_numpy(batch["tokens"]).long()
  arguments = {
    "input_ids": tokens,
    "token_type_ids": torch.from_numpy(batch["segment_ids"]).long(),
    "perm_mask": torch.from_numpy(hidden).float(),
    "target_mapping": torch.nn.functional.one_hot(torch.from_numpy(positions), length).float(),
    "labels": tokens.gather(1, torch.from_numpy(positions)),
    "use_mems": mem_len > 0,
  }
  zeros = torch.zeros(mem_len, rows, sizes["hidden_size"])
  memory = [[zeros] * sizes["num_layers"] if mem_len else None]

  def step() -> None:
    output = model(**arguments, mems=memory[0])
    memory[0] = output.mems
    output.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    adam.zero_grad()
    float(output.loss.detach())

  return step, 0.0


def batch_of(rows: int, length: int) -> dict[str, np.ndarray]:
  """Full rows of random tokens, [reuse | A <sep> B <sep> <cls>], every other one read backwards."""
  tokens = np.random.default_rng(0).integers(FIRST, VOCAB_SIZE, (rows, length), dtype=np.int32)
  border = length * 3 // 4
  tokens[:, [border, length - 2]], tokens[:, length - 1] = SEP, CLS
  segments = np.where(np.arange(length) <= border, 0, 1)
  segments[-1] = 2
  ones = np.ones((rows, length), np.int32)
  return {
    "tokens": tokens,
    "segment_ids": np.broadcast_to(segments.astype(np.int32), (rows, length)).copy(),
    "sequence_ids": ones,
    "document_ids": ones,
    "backward": np.arange(rows) % 2 == 1,
  }
