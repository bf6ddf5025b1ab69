"""XLNet as published (Yang et al., 2019): permutation language modelling, two streams, memory, spans of words.

    python train.py --config=configs/xlnet.py:large --config.data.corpus=CORPUS --workdir=runs/xlnet-large

Variants are a size (base, large) with the hyper-parameters of the paper's second version (batch 8192, rate 4e-4,
warm-up 40k); SIZE_v1 with those of its first (2048, 1e-5, 20k); or SIZE_code with those of the released code (2048,
1e-4, 20k), which counts a span's pieces rather than words and never resets the memory. Hardware as published: 512 TPU
v3 chips for 2.5 days (first version) or 5.5 days (second); large fits them with --config.model.remat=full
(docs/results.md; tools.compile tells it of any other machine). Text: 32.9 billion pieces of a 32,000-piece
cased SentencePiece vocabulary (`tools.train_tokenizer --kind=sentencepiece --family=xlnet --cased`). Expected, large
on BooksCorpus and Wikipedia alone: SQuAD 2.0 F1 87.8, RACE 77.4, MNLI 88.4.
"""

from typing import NamedTuple

from configs import base
from models.xlnet_config import XLNET_SIZES


class Schedule(NamedTuple):
  batch_size: int
  learning_rate: float
  warmup_steps: int
  ffn_dropout: float


SCHEDULES = {
  "": Schedule(8192, 4e-4, 40_000, 0.0),
  "_v1": Schedule(2048, 1e-5, 20_000, 0.1),
  "_code": Schedule(2048, 1e-4, 20_000, 0.1),
}
VARIANTS = {size + suffix: (size, schedule) for size in XLNET_SIZES for suffix, schedule in SCHEDULES.items()}


def get_config(variant: str = "base"):
  """Returns the recipe of a variant: "base" or "large", alone or with "_v1" or "_code"."""
  if variant not in VARIANTS:
    raise ValueError(f"configs/xlnet.py has no variant {variant!r}; use one of {', '.join(VARIANTS)}")
  size, schedule = VARIANTS[variant]
  c = base.get_config("xlnet")
  c.steps = 500_000
  c.batch_size = schedule.batch_size
  c.length = 512
  c.model.update(XLNET_SIZES[size])
  c.model.dtype = "bfloat16"
  c.model.ffn_dropout = schedule.ffn_dropout
  c.optimizer.learning_rate = schedule.learning_rate
  c.optimizer.warmup_steps = schedule.warmup_steps
  c.optimizer.shifted = True
  if variant.endswith("_code"):
    c.objective.memory_reset = "never"
    c.objective.span_unit = "piece"
    c.optimizer.final = 0.001
  return c
