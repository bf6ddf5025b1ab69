r"""BERT's feature-based approach: a frozen body, and a BiLSTM on its layers (Devlin et al., 2019, section 5.3).

    python train.py --config=configs/finetune/features.py:concat_last_four --config.init_from=CHECKPOINT \
        --config.data.source=CONLL2003 --workdir=runs/features

The argument is a row of table 7; a two-layer BiLSTM of width 768 reads it. Expected of a cased base, F1 on CoNLL-2003's
dev set: concat_last_four 96.1, weighted_sum_last_four 95.9, second_to_last 95.6, weighted_sum_all 95.5, last 94.9,
embeddings 91.0. The paper has neither rate nor epochs for it: those here are a usual LSTM's.

`ltr_bilstm` is another matter, the paper's "LTR & BiLSTM" (table 5): a new BiLSTM on a left-to-right model, and both
are trained. The paper says no more of it; here it is one layer of width 768, at a rate that is one of the paper's for
GLUE. Any task will do (--config.data.task=sst2); configs/ablations/bert.py has the model and what to expect:

    python train.py --config=configs/finetune/features.py:ltr_bilstm --config.init_from=runs/ltr \
        --config.data.source=GLUE --workdir=runs/ltr_bilstm
"""

from configs import base
from models.features import KINDS

ROWS = (*KINDS, "ltr_bilstm")


def get_config(row: str = "concat_last_four"):
  """Returns the recipe for a row of the table: a key of models.features.KINDS; or for "ltr_bilstm".

  Raises:
    ValueError: there is no such row.
  """
  if row not in ROWS:
    raise ValueError(f"configs/finetune/features.py has no row {row!r}; use one of {', '.join(ROWS)}")
  c = base.get_config("task")
  if row == "ltr_bilstm":
    c.data.task = "mrpc"
    c.head.features, c.head.lstm_layers = "last", 1
    return c
  c.data.task = "conll2003"
  c.head.features = row
  c.head.freeze = True
  c.epochs = 10.0
  c.optimizer.name = "adamw"
  c.optimizer.learning_rate = 1e-3
  return c
