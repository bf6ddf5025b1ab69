r"""BERT's ablations (Devlin et al., 2019: tables 5, 6 and 8, figure 5), and what RoBERTa and SpanBERT changed.

    python train.py --config=configs/ablations/bert.py:no_nsp --config.data.corpus=CORPUS --workdir=runs/no_nsp
    python train.py --config=configs/ablations/bert.py:small/no_nsp --workdir=runs/small_no_nsp

Table 5: `base` is MLM and NSP, `no_nsp` MLM alone, `ltr` left to right without NSP. Its last line, a BiLSTM over that,
is a matter of fine-tuning: configs/finetune/features.py:ltr_bilstm. Table 6: `3/768/12` is layers, width and heads.
Table 8: `mask_80_10_10` is the share of targets shown as [MASK], as they are, and as a random token.

Figure 5 is `base` and `ltr`, fine-tuned from the checkpoints of several steps. Those must stay: five of them, and room
for what SIGTERM saves between:

    for ROW in base ltr; do
      python train.py --config=configs/ablations/bert.py:$ROW --config.data.corpus=CORPUS --workdir=runs/$ROW \
          --config.checkpoint_every=200000 --config.keep_last=10
      for STEP in 200000 400000 600000 800000 1000000; do
        python train.py --config=configs/finetune/bert.py:mnli --config.init_from=runs/$ROW@$STEP \
            --config.data.source=GLUE --workdir=runs/$ROW-$STEP-mnli
      done
    done

RoBERTa (Liu et al., 2019, §4.2): `full_sentences` is rows filled with sentences, across documents, and no NSP (masks
are fresh each time in any run here); `doc_sentences` stays in a document. SpanBERT (Joshi et al., 2020, §3.1): `spans`.
Both papers' rows have 512 tokens from the first step, --config.stages='()' --config.length=512; these have BERT's.

Hardware, text and time as in configs/bert.py. Expected, dev scores of the paper's table 5 on MNLI-m, QNLI, MRPC, SST-2
and SQuAD F1: 84.4, 88.4, 86.7, 92.7, 88.5; without NSP 83.9, 84.9, 86.5, 92.6, 87.9; left to right 82.1, 84.3, 77.5,
92.1, 77.8; with BiLSTM 82.1, 84.1, 75.7, 91.6, 84.9. The small scale's are in docs/results.md.
"""

from configs import ablations, bert, quickstart


def _size(layers: int, width: int, heads: int) -> ablations.Row:
  sizes = {"num_layers": layers, "hidden_size": width, "num_heads": heads, "intermediate_size": 4 * width}
  return {f"model.{name}": size for name, size in sizes.items()}


def _shown(mask: int, same: int, random: int) -> tuple[str, ablations.Row]:
  """A row of table 8, by per cents."""
  row = {"objective.masking.mask": mask / 100, "objective.masking.random": random / 100}
  return f"mask_{mask}_{same}_{random}", row


_ALONE = {"objective.pair": "none"}
_ONE_SEGMENT = _ALONE | {"data.short_rate": 0.0, "data.single_sentence": ""}
_SPANS = {"whole_word": True, "ngram": 10, "ngram_favor": "geometric", "replace": "span"}
ROWS: dict[str, ablations.Row] = {
  "base": {},
  "no_nsp": _ALONE,
  "ltr": _ALONE | {"objective.words": "ltr", "model.causal": True},
  **{f"{layers}/{width}/{heads}": _size(layers, width, heads) for layers, width, heads in (
    (3, 768, 12), (6, 768, 3), (6, 768, 12), (12, 768, 12), (12, 1024, 16), (24, 1024, 16)
  )},
  **dict(_shown(*x) for x in ((80, 10, 10), (100, 0, 0), (80, 0, 20), (80, 20, 0), (0, 20, 80), (0, 0, 100))),
  "full_sentences": _ONE_SEGMENT | {"data.rows": "full_sentences"},
  "doc_sentences": _ONE_SEGMENT | {"data.rows": "doc_sentences"},
  "spans": _ONE_SEGMENT | {"data.rows": "doc_sentences"} | {f"objective.masking.{k}": v for k, v in _SPANS.items()},
}  # fmt: skip
# Layers, width and heads around the quickstart's 2/128/4, instead of table 6's.
_TABLE_6 = [name for name in ROWS if name.count("/") == 2]
SMALL_ROWS: dict[str, ablations.Row | None] = dict.fromkeys(_TABLE_6) | {
  f"{layers}/{width}/{heads}": _size(layers, width, heads)
  for layers, width, heads in ((1, 128, 4), (2, 64, 4), (2, 128, 1), (2, 128, 4), (4, 128, 4), (2, 256, 4))
}


def get_config(variant: str = "base"):
  """Returns the config of a row of ROWS, or of "small/ROW"."""
  make = lambda small: quickstart.get_config("bert") if small else bert.get_config("base")
  return ablations.variant_of("bert", ROWS, SMALL_ROWS, variant, make)
