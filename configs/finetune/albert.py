r"""ALBERT on the tasks of its paper (Lan et al., 2020, table 14).

    python train.py --config=configs/finetune/albert.py:sst2 --config.init_from=CHECKPOINT --config.data.source=GLUE \
        --workdir=runs/sst2

RTE, STS-B and MRPC start from a checkpoint fine-tuned on MNLI, whose classifier is left behind:

    python train.py --config=configs/finetune/albert.py:rte --config.init_from=runs/mnli --config.data.source=GLUE \
        --workdir=runs/rte

The rates are those of xxlarge in the paper. With the second release, RACE takes a rate of 1e-5 and no dropout:
--config.optimizer.learning_rate=1e-5 --config.model.hidden_dropout=0.0 --config.model.attention_dropout=0.0
--config.head.dropout=0.0. Hardware as published: TPU v3. Expected of base, second release: MNLI 84.6, SST-2 92.9, SQuAD
1.1 83.2 EM and 90.2 F1, SQuAD 2.0 79.3 and 82.1, RACE 66.8.
"""

from typing import NamedTuple

from configs.finetune import recipe


class Row(NamedTuple):
  learning_rate: float
  batch_size: int
  dropout: float  # of the body
  head_dropout: float
  steps: int
  warmup_steps: int
  length: int = 512


TASKS = {
  "cola": Row(1e-5, 16, 0.0, 0.1, 5336, 320),
  "stsb": Row(2e-5, 16, 0.0, 0.1, 3598, 214),
  "sst2": Row(1e-5, 32, 0.0, 0.1, 20935, 1256),
  "mnli": Row(3e-5, 128, 0.0, 0.1, 10000, 1000),
  "qnli": Row(1e-5, 32, 0.0, 0.1, 33112, 1986),
  "qqp": Row(5e-5, 128, 0.1, 0.1, 14000, 1000),
  "rte": Row(3e-5, 32, 0.1, 0.1, 800, 200),
  "mrpc": Row(2e-5, 32, 0.0, 0.1, 800, 200),
  "wnli": Row(2e-5, 16, 0.1, 0.1, 2000, 250),
  "squad1": Row(5e-5, 48, 0.0, 0.1, 3649, 365, 384),
  "squad2": Row(3e-5, 48, 0.0, 0.1, 8144, 814),
  "race": Row(2e-5, 32, 0.1, 0.1, 12000, 1000),
}


def get_config(task: str = "sst2"):
  """Returns the recipe of a task: a key of TASKS."""
  c, row = recipe("albert", TASKS, task)
  c.steps = row.steps
  c.model.hidden_dropout = c.model.attention_dropout = row.dropout
  c.head.dropout = row.head_dropout
  c.optimizer.warmup_steps, c.optimizer.warmup_rate = row.warmup_steps, 0.0
  if task == "squad2":
    c.head.kind = "conditional_span"
  return c
