r"""BERT's feature-based approach: a frozen body, and a BiLSTM on its layers (Devlin et al., 2019, section 5.3).

    python train.py --config=configs/finetune/features.py:concat_last_four --config.init_from=CHECKPOINT \
        --config.data.source=CONLL2003 --workdir=runs/features

The argument is a row of table 7; a two-layer BiLSTM of width 768 reads it. Expected of a cased base, F1 on CoNLL-2003's
dev set: concat_last_four 96.1, weighted_sum_last_four 95.9, second_to_last 95.6, weighted_sum_all 95.5, last 94.9,
embeddings 91.0. The paper has neither rate nor epochs for it: those here are a usual LSTM's.

BERT's "LTR & BiLSTM" (table 5) is `last` with --config.head.freeze=False and a left-to-right checkpoint; any task will
do (--config.data.task=mrpc), at a rate for fine-tuning (--config.optimizer.learning_rate=5e-5).
"""

from configs import base
from models.features import KINDS


def get_config(features: str = "concat_last_four"):
  """Returns the recipe for a row of the table: a key of models.features.KINDS.

  Raises:
    ValueError: there is no such row.
  """
  if features not in KINDS:
    raise ValueError(f"configs/finetune/features.py has no row {features!r}; use one of {', '.join(KINDS)}")
  c = base.get_config("task")
  c.data.task = "conll2003"
  c.head.features = features
  c.head.freeze = True
  c.epochs = 10.0
  c.optimizer.name = "adamw"
  c.optimizer.learning_rate = 1e-3
  return c
