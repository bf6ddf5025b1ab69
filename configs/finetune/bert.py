r"""BERT on the tasks of its paper (Devlin et al., 2019, section 4 and appendix A.3).

    python train.py --config=configs/finetune/bert.py:mrpc --config.init_from=CHECKPOINT --config.data.source=GLUE \
        --workdir=runs/mrpc

CHECKPOINT is a workdir, a folder in Hugging Face layout, hf:ORG/NAME or a TF1 checkpoint; GLUE the folder over the
tasks' folders. The paper takes GLUE's rate by the dev score, and the best of several random restarts; here it is 2e-5,
and `python -m tools.sweep … --grid=glue --seeds=5 --output=runs/mrpc-sweep` with the other arguments above does that.
Hardware as published: a Cloud TPU for an hour at most, or a GPU for a few hours. Expected on dev, base: MNLI-m 84.4,
QNLI 88.4, MRPC accuracy 86.7, SST-2 92.7, SQuAD 1.1 80.8 EM and 88.5 F1, SWAG 81.6, CoNLL-2003 96.4 F1; large:
SQuAD 1.1 84.1 and 90.9, SQuAD 2.0 78.7 and 81.9, SWAG 86.6, CoNLL-2003 96.6.

SQuAD after TriviaQA (section 4.2); the span head goes on. TRIVIAQA holds train-v1.1.json and dev-v1.1.json, which
TriviaQA's own utils/convert_to_squad_format.py (of mandarjoshi90/triviaqa; --triviaqa_file=qa/wikipedia-train.json
--squad_file=… --wikipedia_dir=evidence/wikipedia --web_dir=evidence/web) writes. It keeps questions whose answer its
excerpt of the text does not hold, with an empty list of answers; leave those out:

    jq -c '.data[].paragraphs[].qas |= map(select(.answers != []))' converted.json > TRIVIAQA/train-v1.1.json

    python train.py --config=configs/finetune/bert.py:squad1 --config.init_from=CHECKPOINT \
        --config.data.source=TRIVIAQA --workdir=runs/triviaqa
    python train.py --config=configs/finetune/bert.py:squad1 --config.init_from=runs/triviaqa \
        --config.data.source=SQUAD --workdir=runs/squad1
"""

from typing import NamedTuple

from configs.finetune import recipe


class Row(NamedTuple):
  learning_rate: float = 2e-5
  batch_size: int = 32
  epochs: float = 3.0
  length: int = 128


TASKS = dict.fromkeys(("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "conll2003"), Row()) | {
  "squad1": Row(5e-5, 32, 3.0, 384),
  "squad2": Row(5e-5, 48, 2.0, 384),
  "swag": Row(2e-5, 16, 3.0, 128),
}

# What the paper and its code search, for tools.sweep.
GRIDS = {
  "glue": {"optimizer.learning_rate": (5e-5, 4e-5, 3e-5, 2e-5)},  # section 4.1
  "appendix": {"batch_size": (16, 32), "optimizer.learning_rate": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)},  # A.3
  "small": {  # README, "smaller BERT models"
    "batch_size": (8, 16, 32, 64, 128),
    "optimizer.learning_rate": (3e-4, 1e-4, 5e-5, 3e-5),
    "epochs": (4,),
  },
}


def get_config(task: str = "mrpc"):
  """Returns the recipe of a task: a key of TASKS."""
  c, row = recipe("bert", TASKS, task)
  c.epochs = row.epochs
  return c
