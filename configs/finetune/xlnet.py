r"""XLNet on the tasks of its paper (Yang et al., 2019, second version, appendix A.4) and of the released scripts.

    python train.py --config=configs/finetune/xlnet.py:race --config.init_from=CHECKPOINT --config.data.source=RACE \
        --workdir=runs/race

Hardware as published: TPU v3-8 to v3-32, or four to eight GPUs. STS-B's and IMDB's rows are the released scripts', for
large; STS-B there trains 1200 steps. Layer-wise decay scales the rate here (the original's scales gradients, which Adam
undoes). Expected of large as released: RACE 81.75, SQuAD 2.0 86.1 EM and 88.8 F1, SQuAD 1.1 89.0 and 94.5, MNLI 89.8,
STS-B 91.8, IMDB error 3.79, Yelp-5 error 27.8; options of RACE are independent here (`data/tasks/sequences.py`).
"""

from typing import NamedTuple

from configs.finetune import recipe


class Row(NamedTuple):
  learning_rate: float
  batch_size: int
  steps: int
  warmup_steps: int
  length: int = 512
  layer_decay: float = 1.0


TASKS = {
  "race": Row(2e-5, 32, 12000, 1000),
  "squad1": Row(3e-5, 48, 8000, 1000, layer_decay=0.75),
  "squad2": Row(3e-5, 48, 8000, 1000, layer_decay=0.75),
  "mnli": Row(2e-5, 128, 10000, 1000, 128),
  "yelp5": Row(1e-5, 128, 10000, 1000),
  "stsb": Row(5e-5, 32, 1200, 120, 128),
  "imdb": Row(2e-5, 32, 4000, 500),
}


def get_config(task: str = "race"):
  """Returns the recipe of a task: a key of TASKS."""
  c, row = recipe("xlnet", TASKS, task)
  c.steps = row.steps
  c.optimizer.warmup_steps, c.optimizer.warmup_rate = row.warmup_steps, 0.0
  c.optimizer.shifted = True
  c.optimizer.layer_decay = row.layer_decay
  if task in ("squad1", "squad2"):
    c.head.kind = "conditional_span"
    c.data.n_best, c.data.max_answer_length = 5, 64  # run_squad.py's
  return c
