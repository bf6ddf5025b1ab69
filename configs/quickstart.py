"""A real BERT, ALBERT or XLNet on real text in minutes, on two CPU cores: 96 Wikipedia articles, 2 layers of width 128.

    make quickstart
    make quickstart FAMILY=albert

or, with the corpus prepared (see the Makefile):

    python train.py --config=configs/quickstart.py:bert --workdir=runs/quickstart-bert

Expected after five minutes: the loss on tokens hidden by [MASK] has left the word frequencies behind (masked_loss below
masked_unigram_loss), and the next sentence is told better than by chance; XLNet's plm_loss is below unigram_loss. Such
a model knows which words go together, and no facts.
"""

from configs import base

FAMILIES = ("bert", "albert", "xlnet")


def get_config(family: str = "bert"):
  """Returns the quickstart of a family: "bert", "albert" or "xlnet"."""
  if family not in FAMILIES:
    raise ValueError(f"configs/quickstart.py has no variant {family!r}; use one of {', '.join(FAMILIES)}")
  c = base.get_config("xlnet" if family == "xlnet" else "encoder")
  c.steps = 3600
  c.batch_size = 128
  c.length = 32  # positions are few, so that attention soon tells neighbours apart
  c.log_every = 100
  c.eval_every = 600
  c.eval_batches = 20
  c.checkpoint_every = 600
  c.model.vocab_size = 0
  c.model.hidden_size = 128
  c.model.num_layers = 2
  c.model.num_heads = 4
  c.model.intermediate_size = 512
  c.model.hidden_dropout = c.model.attention_dropout = 0.0  # minutes are too short to overfit
  c.model.initializer_range = 0.1  # about 1/√width; at 0.02, meant for width 768, attention stays flat for long
  c.model.unroll = 0
  c.optimizer.name = "adamw"
  c.optimizer.b2 = 0.98  # follows the gradient's size within 50 steps
  c.optimizer.learning_rate = 1e-3
  c.optimizer.warmup_steps = 100
  CHANGES[family](c)
  return c


def _bert(c) -> None:
  c.data.corpus = "runs/quickstart-wordpiece"
  c.data.single_sentence = "split"  # at this length most rows are one sentence; so labels stay half and half
  c.model.max_length = 32


def _albert(c) -> None:
  _bert(c)
  c.data.corpus = "runs/quickstart-albert-sentencepiece"
  c.model.sharing = "all"
  c.model.embedding_size = 64
  c.objective.pair = "sop"
  c.objective.masking.whole_word = True
  c.objective.masking.ngram = 3


def _xlnet(c) -> None:
  c.batch_size = 64
  c.length = 64
  c.data.corpus = "runs/quickstart-xlnet-sentencepiece"
  c.data.reuse_len = 32
  c.model.mem_len = 32
  c.model.ffn_dropout = 0.0
  c.objective.perm_size = 32
  c.objective.num_predict = 10  # of 64: K = 6


CHANGES = {"bert": _bert, "albert": _albert, "xlnet": _xlnet}
