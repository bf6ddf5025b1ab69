"""ALBERT as published (Lan et al., 2020): one layer's parameters for all layers, embeddings of width 128, SOP,
n-grams, LAMB.

    python train.py --config=configs/albert.py:base --config.data.corpus=CORPUS --workdir=runs/albert-base

Variants are a size (base, large, xlarge, xxlarge) with the second release's dropout, none, or SIZE_v1 with the
first's: 0.1, and none in xxlarge. Hardware as published: 64 to 512 TPU v3 chips; batch 4096 × 512 tokens;
BERT-large's 400k steps take the time of xxlarge's 125k (34 and 32 hours). xxlarge fits 512 v3 chips with
--config.accumulate=2 (docs/results.md; tools.compile tells it of any other machine). Text: 16 GB; a
30,000-piece uncased SentencePiece vocabulary. Expected: average of SQuAD, MNLI, SST-2 and RACE 82.3 (base), 85.7
(large), 87.9 (xlarge), 90.9 (xxlarge).
"""

from configs import base
from models.config import ALBERT_SIZES

STEPS = {"base": 10_000_000, "large": 3_000_000, "xlarge": 3_000_000, "xxlarge": 3_000_000}  # of the second release
STEPS_V1 = {"base": 125_000, "large": 125_000, "xlarge": 125_000, "xxlarge": 1_500_000}
VARIANTS = [*ALBERT_SIZES, *(f"{size}_v1" for size in ALBERT_SIZES)]


def get_config(variant: str = "base"):
  """Returns the recipe of a variant: "base", "large", "xlarge", "xxlarge", or one of these with "_v1"."""
  if variant not in VARIANTS:
    raise ValueError(f"configs/albert.py has no variant {variant!r}; use one of {', '.join(VARIANTS)}")
  size, first = variant.removesuffix("_v1"), variant.endswith("_v1")
  c = base.get_config()
  c.steps = (STEPS_V1 if first else STEPS)[size]
  c.batch_size = 4096
  c.length = 512
  c.model.update(ALBERT_SIZES[size])
  c.model.vocab_size = 30_000
  c.model.hidden_dropout = c.model.attention_dropout = 0.1 if first and size != "xxlarge" else 0.0
  c.model.dtype = "bfloat16"
  c.objective.pair = "sop"
  c.objective.masking.whole_word = True
  c.objective.masking.ngram = 3
  c.optimizer.name = "albert_lamb"
  c.optimizer.learning_rate = 0.00176
  c.optimizer.warmup_steps = 3125
  return c
