"""Pretraining speed beside another library's, on this machine, in one run, alternating.

    python -m benchmarks.train_step --family=bert --against=transformers --json

Both take whole training steps of the same shape: masked tokens and next sentence (XLNet: permuted targets, with
--mem_len of memory), dropout on, gradients clipped, AdamW. Ours also chooses and replaces the targets; theirs is given
them. Rates are medians over the rounds; the
machine's own rate is that of a large float32 matrix product, measured in every round too.
"""

import functools
import json
import statistics
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import train_step_xlnet
from benchmarks.contender import Contender
from models.config import ALBERT_SIZES, BERT_SIZES, EncoderConfig
from models.flops import pretraining_flops
from models.pretraining import PretrainingModel
from models.xlnet_config import XLNET_SIZES
from objectives import pretraining
from objectives.masking import MaskingConfig, max_targets
from objectives.vocabulary import Vocabulary
from tools import cli
from training import optimizer, programs, sharding, state
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig


class Family(NamedTuple):
  """What a family's benchmark needs: its sizes, its vocabulary (ids below `first` are special), its pair objective."""

  sizes: dict[str, dict]
  vocab_size: int
  mask_id: int
  first: int
  masking: MaskingConfig
  pair: str
  optimizer: str


FAMILIES = {
  "bert": Family(BERT_SIZES, 30_522, 103, 999, MaskingConfig(), "nsp", "bert_adamw"),
  "albert": Family(ALBERT_SIZES, 30_000, 4, 5, MaskingConfig(whole_word=True, ngram=3), "sop", "albert_lamb"),
}


class Work(NamedTuple):
  """A training step, ready to be taken: what `compile_stage` made, and what it is given."""

  config: EncoderConfig
  program: programs.Programs
  state: state.TrainState
  batch: dict[str, jax.Array]


def pretraining_work(name: str, size: str, rows: int, length: int) -> Work:
  """Returns the pretraining step of a published size, with a fresh state."""
  family = FAMILIES[name]
  config = EncoderConfig(family.vocab_size, **family.sizes[size], activation="gelu_new", unroll=0)
  ids, ones = np.arange(family.vocab_size), np.ones(family.vocab_size, int)
  vocabulary = Vocabulary(family.mask_id, ids < family.first, ids >= family.first, ones, ones)
  recipe = pretraining.PretrainingConfig(family.masking, family.pair)
  objective = pretraining.make(PretrainingModel(config), recipe, vocabulary)
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-4, 0, "constant"), family.optimizer), steps=1000)
  mesh = sharding.make_mesh(sharding.MeshConfig())
  batch = batch_of(family, rows, length)
  program = programs.compile_stage(objective, tx, [programs.shapes_of(batch, rows)], rows, mesh, seed=0, accumulate=1)
  return Work(config, program, state.create(objective, tx, rows, 0, mesh), sharding.put_batch(batch, mesh))


def ours(name: str, size: str, rows: int, length: int) -> tuple[Callable[[], None], float]:
  """Returns (take one step and wait for it, model FLOPs of a step)."""
  work = pretraining_work(name, size, rows, length)
  now = [work.state]

  def step() -> None:
    now[0], values = work.program.train(now[0], work.batch)
    jax.block_until_ready((now[0], values))

  return step, 3 * pretraining_flops(work.config, rows, length, max_targets(length, FAMILIES[name].masking.rate))


def transformers(name: str, size: str, rows: int, length: int) -> tuple[Callable[[], None], float]:
  """Returns what `ours` does, by `transformers` and PyTorch (with AdamW); its FLOPs are not counted."""
  import torch
  import transformers as hf

  family = FAMILIES[name]
  sizes = family.sizes[size]
  config, model = {
    "bert": (hf.BertConfig, hf.BertForPreTraining),
    "albert": (functools.partial(hf.AlbertConfig, embedding_size=128), hf.AlbertForPreTraining),
  }[name]
  config = config(
    vocab_size=family.vocab_size,
    hidden_size=sizes["hidden_size"],
    num_hidden_layers=sizes["num_layers"],
    num_attention_heads=sizes["num_heads"],
    intermediate_size=sizes["intermediate_size"],
    hidden_act="gelu_new",
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
  )
  model = model(config).train()
  adam = torch.optim.AdamW(model.parameters(), lr=1e-4, eps=1e-6, weight_decay=0.01)
  batch = {name: torch.from_numpy(value.astype(np.int64)) for name, value in batch_of(family, rows, length).items()}
  targets = max_targets(length, family.masking.rate)
  labels = torch.full((rows, length), -100)
  labels[:, 1 : 1 + targets] = batch["tokens"][:, 1 : 1 + targets]
  pair = {"nsp": "next_sentence_label", "sop": "sentence_order_label"}[family.pair]

  def step() -> None:
    loss = model(
      input_ids=batch["tokens"],
      token_type_ids=batch["segment_ids"],
      attention_mask=batch["sequence_ids"],
      labels=labels,
      **{pair: batch["pair_label"]},
    ).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    adam.zero_grad()
    float(loss.detach())

  return step, 0.0


def batch_of(family: Family, rows: int, length: int) -> dict[str, np.ndarray]:
  """Full rows of random tokens."""
  rng = np.random.default_rng(0)
  shape = (rows, length)
  return {
    "tokens": rng.integers(family.first, family.vocab_size, shape, dtype=np.int32),
    "segment_ids": np.broadcast_to((np.arange(length) >= length // 2).astype(np.int32), shape).copy(),
    "sequence_ids": np.ones(shape, np.int32),
    "pair_label": rng.integers(0, 2, rows, dtype=np.int32),
  }


SIZES = {name: family.sizes for name, family in FAMILIES.items()} | {"xlnet": XLNET_SIZES}


def matmul() -> tuple[Callable[[], None], float]:
  """Returns (one large float32 matrix product, its FLOPs): the most that this machine gives."""
  a, b = jnp.ones((1024, 768)), jnp.ones((768, 3072))
  product = jax.jit(lambda a, b: a @ b)
  return lambda: product(a, b).block_until_ready(), 2.0 * 1024 * 768 * 3072


def main() -> None:
  parser = cli.parser(__doc__)
  parser.add_argument("--family", choices=[*SIZES], default="bert")
  parser.add_argument("--against", choices=["transformers", "nothing"], default="transformers")
  parser.add_argument("--size", choices=sorted({size for sizes in SIZES.values() for size in sizes}), default="base")
  parser.add_argument("--rows", type=int, default=8)
  parser.add_argument("--length", type=int, default=128)
  parser.add_argument("--mem_len", type=int, default=0, help="positions of memory (XLNet)")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--json", action="store_true", help="print one JSON object")
  flags = parser.parse_args()

  if flags.size not in SIZES[flags.family]:
    raise ValueError(f"--size={flags.size}: {flags.family} has {', '.join(SIZES[flags.family])}")
  if flags.mem_len and flags.family != "xlnet":
    raise ValueError(f"--mem_len={flags.mem_len}: {flags.family} has no memory")
  shape = flags.size, flags.rows, flags.length
  if flags.family == "xlnet":
    our, their, shape = train_step_xlnet.ours, train_step_xlnet.transformers, (*shape, flags.mem_len)
  else:
    our, their, shape = ours, transformers, (flags.family, *shape)
  contenders = {"ours": Contender(our, *shape), "matmul": Contender(matmul)}
  if flags.against == "transformers":
    contenders["theirs"] = Contender(their, *shape, ours=False)
  seconds = {name: [] for name in contenders}
  for _ in range(flags.rounds):
    for name, contender in contenders.items():
      seconds[name].append(contender.seconds(50 if name == "matmul" else 1))
  for contender in contenders.values():
    contender.close()
  median = {name: statistics.median(values) for name, values in seconds.items()}
  flops, product_flops = contenders["ours"].known, contenders["matmul"].known

  tokens = flags.rows * flags.length
  matmul_rate = product_flops / median["matmul"]
  result = {
    "shape": f"{flags.family}-{flags.size}, {flags.rows}×{flags.length}"
    + (f", memory {flags.mem_len}" if flags.mem_len else ""),
    "tokens_per_s": tokens / median["ours"],
    "gflop_per_s": flops / median["ours"] / 1e9,
    "matmul_gflop_per_s": matmul_rate / 1e9,
    "share_of_matmul": flops / median["ours"] / matmul_rate,
  }
  if "theirs" in median:
    result |= {"theirs_tokens_per_s": tokens / median["theirs"], "ratio": median["theirs"] / median["ours"]}
    result["ratios"] = [round(b / a, 3) for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)]
  if flags.json:
    print(json.dumps({name: round(value, 4) if isinstance(value, float) else value for name, value in result.items()}))
  else:
    for name, value in result.items():
      print(f"{name:>22}  {value:,.3f}" if isinstance(value, float) else f"{name:>22}  {value}")


if __name__ == "__main__":
  cli.run(main)
