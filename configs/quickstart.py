"""A real BERT on real text in minutes, on two CPU cores: 96 Wikipedia articles, 2 layers of width 128.

    make quickstart

or, with the corpus prepared (see the Makefile):

    python train.py --config=configs/quickstart.py:bert --workdir=runs/quickstart-bert
"""

from configs import base


def get_config(family: str = "bert"):
  """Returns the quickstart of a family: "bert"."""
  if family != "bert":
    raise ValueError(f"configs/quickstart.py has no variant {family!r}; use bert")
  c = base.get_config()
  c.steps = 4000
  c.batch_size = 32
  c.length = 64
  c.log_every = 100
  c.eval_every = 1000
  c.eval_batches = 100
  c.checkpoint_every = 1000
  c.data.corpus = "runs/quickstart-corpus"
  c.model.vocab_size = 0
  c.model.hidden_size = 128
  c.model.num_layers = 2
  c.model.num_heads = 2
  c.model.intermediate_size = 512
  c.model.max_length = 64
  c.model.unroll = 0
  c.optimizer.learning_rate = 1e-3
  c.optimizer.warmup_steps = 300
  return c
