"""ALBERT's ablations (Lan et al., 2020, §4.4 to §4.6 and appendix A.1).

    python train.py --config=configs/ablations/albert.py:attention --config.data.corpus=CORPUS --workdir=runs/attention
    python train.py --config=configs/ablations/albert.py:small/attention --workdir=runs/small_attention

Embedding sizes: `embedding_64` … `embedding_768`, all layers shared, and `none_embedding_64` … with none. Sharing, at
an embedding size of 128: `all`, `attention`, `ffn`, `none`, and with `_768` at 768; `groups_2` … share in groups of
layers. Sentence tasks: `sop`, `nsp`, `no_pair`. Depth of ALBERT-large: `layers_1` … `layers_48`, each from
random weights (the paper's start from the depth before); its width: `width_1024` … `width_6144`, at 3 layers.

Hardware as in configs/albert.py; every row takes 125k steps of 4,096 rows with the first release's dropout. Expected,
the average of SQuAD 1.1, SQuAD 2.0, MNLI, SST-2 and RACE: embeddings of 64, 128, 256, 768: 79.0, 80.1, 79.6, 79.8, and
unshared 81.3, 81.7, 81.8, 82.3; shared all 80.1, attention 81.7, ffn 80.2, none 81.6 (at 128). Accuracies on the tasks
themselves: without a task MLM 54.9, NSP 52.4, SOP 53.3; with NSP 54.5, 90.5, 52.0; with SOP 54.0, 78.9, 86.5. The small
scale's are in docs/results.md.
"""

from configs import ablations, albert, quickstart

_LARGE = {"model.hidden_size": 1024, "model.num_heads": 16, "model.intermediate_size": 4096, "model.num_layers": 24}


def _embeddings(sizes: tuple[int, ...], width: int) -> dict[str, ablations.Row]:
  """Sizes with everything shared, and with nothing; as wide as the layers, embeddings are not projected."""
  return {
    f"{prefix}embedding_{size}": {"model.sharing": sharing, "model.embedding_size": size % width}
    for prefix, sharing in (("", "all"), ("none_", "none"))
    for size in sizes
  }


def _unfactorised(width: int) -> dict[str, ablations.Row]:
  """What is shared, with embeddings as wide as the layers (of `none`, see _embeddings)."""
  return {
    f"{sharing}_{width}": {"model.sharing": sharing, "model.embedding_size": 0}
    for sharing in ("all", "attention", "ffn")
  }


ROWS: dict[str, ablations.Row] = {
  **_embeddings((64, 128, 256, 768), 768),
  **{sharing: {"model.sharing": sharing} for sharing in ("all", "attention", "ffn", "none")},
  **_unfactorised(768),
  **{f"groups_{groups}": {"model.num_groups": groups} for groups in (2, 4, 6)},
  **{row: {"objective.pair": pair} for row, pair in (("sop", "sop"), ("nsp", "nsp"), ("no_pair", "none"))},
  **{f"layers_{layers}": _LARGE | {"model.num_layers": layers} for layers in (1, 3, 6, 12, 24, 48)},
  **{
    f"width_{width}": {
      "model.num_layers": 3, "model.hidden_size": width, "model.num_heads": width // 64,
      "model.intermediate_size": 4 * width,
    }
    for width in (1024, 2048, 4096, 6144)
  },
}  # fmt: skip
# Around the quickstart's 2 layers of width 128; rows that speak of the large model's sizes are left out.
_LARGER = ("layers_", "width_", "embedding_", "none_embedding_", "groups_")
SMALL_ROWS: dict[str, ablations.Row | None] = {
  **dict.fromkeys(name for name in ROWS if name.startswith(_LARGER) or name.endswith("_768")),
  **_embeddings((16, 32, 64, 128), 128),
  **_unfactorised(128),
  "groups_2": {"model.num_groups": 2, "model.num_layers": 4},
  **{f"layers_{layers}": {"model.num_layers": layers} for layers in (1, 2, 4, 8)},
  **{
    f"width_{width}": {
      "model.hidden_size": width, "model.num_heads": width // 32, "model.intermediate_size": 4 * width
    }
    for width in (64, 128, 256, 512)
  },
}  # fmt: skip


def get_config(variant: str = "all"):
  """Returns the config of a row of ROWS, or of "small/ROW"."""
  make = lambda small: quickstart.get_config("albert") if small else albert.get_config("base_v1")
  return ablations.variant_of("albert", ROWS, SMALL_ROWS, variant, make)
