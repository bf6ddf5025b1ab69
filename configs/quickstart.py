"""A real BERT or ALBERT on real text in minutes, on two CPU cores: 96 Wikipedia articles, 2 layers of width 128.

    make quickstart
    make quickstart FAMILY=albert

or, with the corpus prepared (see the Makefile):

    python train.py --config=configs/quickstart.py:bert --workdir=runs/quickstart-bert

Expected after three or four minutes: held-out MLM loss half a nat below what the frequencies of words give, and three
times the accuracy of the most frequent token. Such a model knows which words go together, and no facts.
"""

from configs import base

FAMILIES = ("bert", "albert")


def get_config(family: str = "bert"):
  """Returns the quickstart of a family: "bert" or "albert"."""
  if family not in FAMILIES:
    raise ValueError(f"configs/quickstart.py has no variant {family!r}; use one of {', '.join(FAMILIES)}")
  c = base.get_config()
  c.steps = 4000
  c.batch_size = 32
  c.length = 64
  c.log_every = 100
  c.eval_every = 1000
  c.eval_batches = 100
  c.checkpoint_every = 1000
  c.data.corpus = "runs/quickstart-wordpiece"
  c.model.vocab_size = 0
  c.model.hidden_size = 128
  c.model.num_layers = 2
  c.model.num_heads = 2
  c.model.intermediate_size = 512
  c.model.max_length = 64
  c.model.unroll = 0
  c.optimizer.learning_rate = 1e-3
  c.optimizer.warmup_steps = 300
  if family == "albert":
    c.data.corpus = "runs/quickstart-sentencepiece"
    c.model.sharing = "all"
    c.model.embedding_size = 64
    c.model.hidden_dropout = c.model.attention_dropout = 0.0
    c.objective.pair = "sop"
    c.objective.masking.whole_word = True
    c.objective.masking.ngram = 3
    c.optimizer.name = "albert_lamb"
    c.optimizer.learning_rate = 0.00176
  return c
