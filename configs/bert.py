"""BERT as published (Devlin et al., 2019), and the smaller sizes of Turc et al. (2019).

    python train.py --config=configs/bert.py:base --config.data.corpus=CORPUS --workdir=runs/bert-base

Hardware and time as published: base on 16 TPU chips, large on 64, four days each (v2 and v3 chips of 2018). Text:
BooksCorpus and English Wikipedia, 3.3 G words; a 30,522-piece uncased WordPiece vocabulary.
Expected: held-out MLM of base about 1.4 nats (perplexity 4.0, google-research/bert#90); GLUE average 79.6 (base),
82.1 (large).
"""

from ml_collections import ConfigDict

from configs import base
from models.config import BERT_SIZES


def get_config(size: str = "base"):
  """Returns the recipe of a size: "base", "large", "tiny", "mini", "small", "medium", or "LAYERS/WIDTH" such as
  "4/256"."""
  if size not in BERT_SIZES:
    raise ValueError(f"configs/bert.py has no size {size!r}; use one of {', '.join(BERT_SIZES)}")
  c = base.get_config()
  c.model.update(BERT_SIZES[size])
  c.model.dtype = "bfloat16"
  c.stages = (  # §A.2: 90 % of the steps at length 128, the rest at 512
    ConfigDict({"steps": 900_000, "length": 128}),
    ConfigDict({"steps": 100_000, "length": 512}),
  )
  return c
