"""XLNet's ablations (Yang et al., 2019, table 6), with its denoising baseline.

    python train.py --config=configs/ablations/xlnet.py:no_memory --config.data.corpus=CORPUS --workdir=runs/no_memory
    python train.py --config=configs/ablations/xlnet.py:small/no_memory --workdir=runs/small_no_memory

`dae` is the table's "DAE + Transformer-XL": the same layers, memory, text and targets, hidden as BERT hides them and
predicted by the content stream. `k6` and `k7` are XLNet-base with one in 6 or 7 tokens predicted; the others change
`k6`: `no_memory`, `no_spans` (targets are single words), `one_direction` (no row is read backwards), `nsp` (whether the
second segment is random, too).

Hardware as in configs/xlnet.py. Expected of base on BooksCorpus and Wikipedia, RACE, SQuAD 2.0 F1, MNLI-m, SST-2: dae
65.03, 79.56, 84.88, 92.60; k7 66.05, 81.33, 85.84, 92.66; k6 66.66, 80.98, 85.63, 93.35; no_memory 65.55, 80.15, 85.32,
92.78; no_spans 65.95, 80.61, 85.49, 93.12; one_direction 66.34, 80.65, 85.31, 92.66; nsp 66.76, 79.83, 85.32, 92.89.
The small scale's are in docs/results.md.
"""

from configs import ablations, quickstart, xlnet

ROWS: dict[str, ablations.Row] = {
  "dae": {"objective.words": "dae"},
  "k7": {"objective.num_predict": 512 // 7},
  "k6": {"objective.num_predict": 512 // 6},
  "no_memory": {"model.mem_len": 0},
  "no_spans": {"objective.max_span": 1},
  "one_direction": {"data.bidirectional": False},
  "nsp": {"objective.pair": "nsp"},
}
SMALL_ROWS: dict[str, ablations.Row | None] = {
  "k7": {"objective.num_predict": 64 // 7},
  "k6": {"objective.num_predict": 64 // 6},
}


def get_config(variant: str = "k6"):
  """Returns the config of a row of ROWS, or of "small/ROW"."""
  make = lambda small: quickstart.get_config("xlnet") if small else xlnet.get_config("base")
  return ablations.variant_of("xlnet", ROWS, SMALL_ROWS, variant, make)
