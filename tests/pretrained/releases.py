"""Tiny checkpoints as the original code writes them: every variable by its own name and shape, spelled out.

Source: modeling.py and run_*.py of google-research/bert, google-research/albert and zihangdai/xlnet.
"""

import io
import json
import pathlib

import numpy as np
import sentencepiece

from tests.pretrained import bundles

CONFIGS = {
  # As bert_config.json of the multilingual and Chinese releases.
  "bert": {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 12,
    "initializer_range": 0.02,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 40,
  },
  "albert": {
    "attention_probs_dropout_prob": 0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0,
    "embedding_size": 8,
    "hidden_size": 12,
    "initializer_range": 0.02,
    "intermediate_size": 20,
    "max_position_embeddings": 16,
    "num_attention_heads": 3,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "inner_group_num": 2,
    "down_scale_factor": 1,
    "layers_to_keep": [],
    "type_vocab_size": 2,
    "vocab_size": 40,
  },
  "xlnet": {
    "d_head": 4,
    "d_inner": 20,
    "d_model": 12,
    "ff_activation": "gelu",
    "n_head": 3,
    "n_layer": 2,
    "n_token": 40,
    "untie_r": True,
  },
}
PREFIXES = {"bert": "bert_model.ckpt", "albert": "model.ckpt-best", "xlnet": "xlnet_model.ckpt"}
WIDTH, INNER, VOCABULARY, POSITIONS = 12, 20, 40, 16


def dense(scope: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
  return {f"{scope}/kernel": (inputs, outputs), f"{scope}/bias": (outputs,)}


def norm(scope: str, width: int = WIDTH) -> dict[str, tuple[int, ...]]:
  return {f"{scope}/gamma": (width,), f"{scope}/beta": (width,)}


def _around(embedding: int) -> dict[str, tuple[int, ...]]:
  """Embeddings, pooler and heads of BERT and ALBERT."""
  return {
    "bert/embeddings/word_embeddings": (VOCABULARY, embedding),
    "bert/embeddings/token_type_embeddings": (2, embedding),
    "bert/embeddings/position_embeddings": (POSITIONS, embedding),
    **norm("bert/embeddings/LayerNorm", embedding),
    **dense("bert/pooler/dense", WIDTH, WIDTH),
    **dense("cls/predictions/transform/dense", WIDTH, embedding),
    **norm("cls/predictions/transform/LayerNorm", embedding),
    "cls/predictions/output_bias": (VOCABULARY,),
    "cls/seq_relationship/output_weights": (2, WIDTH),
    "cls/seq_relationship/output_bias": (2,),
  }


def bert() -> dict[str, tuple[int, ...]]:
  shapes = _around(WIDTH)
  for layer in ("bert/encoder/layer_0", "bert/encoder/layer_1"):
    shapes |= {
      **dense(f"{layer}/attention/self/query", WIDTH, WIDTH),
      **dense(f"{layer}/attention/self/key", WIDTH, WIDTH),
      **dense(f"{layer}/attention/self/value", WIDTH, WIDTH),
      **dense(f"{layer}/attention/output/dense", WIDTH, WIDTH),
      **norm(f"{layer}/attention/output/LayerNorm"),
      **dense(f"{layer}/intermediate/dense", WIDTH, INNER),
      **dense(f"{layer}/output/dense", INNER, WIDTH),
      **norm(f"{layer}/output/LayerNorm"),
    }
  return shapes


def albert() -> dict[str, tuple[int, ...]]:
  shapes = _around(8) | dense("bert/encoder/embedding_hidden_mapping_in", 8, WIDTH)
  for group in (0, 1):
    for block in (0, 1):
      scope = f"bert/encoder/transformer/group_{group}/inner_group_{block}"
      shapes |= {
        **dense(f"{scope}/attention_1/self/query", WIDTH, WIDTH),
        **dense(f"{scope}/attention_1/self/key", WIDTH, WIDTH),
        **dense(f"{scope}/attention_1/self/value", WIDTH, WIDTH),
        **dense(f"{scope}/attention_1/output/dense", WIDTH, WIDTH),
        **norm(f"{scope}/LayerNorm"),
        **dense(f"{scope}/ffn_1/intermediate/dense", WIDTH, INNER),
        **dense(f"{scope}/ffn_1/intermediate/output/dense", INNER, WIDTH),
        **norm(f"{scope}/LayerNorm_1"),
      }
  return shapes


def xlnet() -> dict[str, tuple[int, ...]]:
  shapes = {
    "model/transformer/r_w_bias": (2, 3, 4),
    "model/transformer/r_r_bias": (2, 3, 4),
    "model/transformer/r_s_bias": (2, 3, 4),
    "model/transformer/seg_embed": (2, 2, 3, 4),
    "model/transformer/word_embedding/lookup_table": (VOCABULARY, WIDTH),
    "model/transformer/mask_emb/mask_emb": (1, 1, WIDTH),
    "model/lm_loss/bias": (VOCABULARY,),
  }
  for layer in ("model/transformer/layer_0", "model/transformer/layer_1"):
    shapes |= {
      **{f"{layer}/rel_attn/{name}/kernel": (WIDTH, 3, 4) for name in "qkvro"},
      **norm(f"{layer}/rel_attn/LayerNorm"),
      **dense(f"{layer}/ff/layer_1", WIDTH, INNER),
      **dense(f"{layer}/ff/layer_2", INNER, WIDTH),
      **norm(f"{layer}/ff/LayerNorm"),
    }
  return shapes


def conditional_span() -> dict[str, tuple[int, ...]]:
  """XLNet's function_builder.py: get_qa_outputs; ALBERT's squad_utils.py: create_v2_model."""
  return {
    **dense("start_logits/dense", WIDTH, 1),
    **dense("end_logits/dense_0", 2 * WIDTH, WIDTH),
    **norm("end_logits/LayerNorm"),
    **dense("end_logits/dense_1", WIDTH, 1),
    **dense("answer_class/dense_0", 2 * WIDTH, WIDTH),
    "answer_class/dense_1/kernel": (WIDTH, 1),
  }


def classifier(labels: int) -> dict[str, tuple[int, ...]]:
  """BERT's and ALBERT's: outside every scope."""
  return {"output_weights": (labels, WIDTH), "output_bias": (labels,)}


SQUAD = {"cls/squad/output_weights": (2, WIDTH), "cls/squad/output_bias": (2,)}
SUMMARY = dense("model/sequnece_summary/summary", WIDTH, WIDTH)
# (family, kind of head): its variables.
HEADS = {
  ("bert", "classification"): classifier(3),
  ("bert", "span"): SQUAD,
  ("albert", "classification"): classifier(3),
  ("albert", "regression"): classifier(1),
  ("albert", "span"): SQUAD,
  ("albert", "conditional_span"): conditional_span(),
  ("xlnet", "classification"): SUMMARY | dense("model/classification_mnli/logit", WIDTH, 3),
  ("xlnet", "regression"): SUMMARY | dense("model/regression_sts-b/logit", WIDTH, 1),
  ("xlnet", "choice"): SUMMARY | dense("logits/dense", WIDTH, 1),
  ("xlnet", "conditional_span"): conditional_span(),
}
SHAPES = {"bert": bert(), "albert": albert(), "xlnet": xlnet()}


def values(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
  """Random values, no two alike."""
  random = np.random.default_rng(seed)
  return {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def slots(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """What the originals' optimizers leave in a checkpoint."""
  kept = {f"{name}/{slot}": x for name, x in tensors.items() for slot in ("adam_m", "adam_v")}
  counters = {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.999)}
  return kept | {"global_step": np.array(7, np.int64)} | {name: np.array(x) for name, x in counters.items()}


def fine_tuned(family: str, kind: str) -> dict[str, tuple[int, ...]]:
  """What is left of a release, and a head: XLNet's code makes no mask embedding then."""
  lost = ("cls/", "model/lm_loss", "model/transformer/mask_emb")
  return {name: x for name, x in SHAPES[family].items() if not name.startswith(lost)} | HEADS[family, kind]


def write_vocabulary(family: str, folder: pathlib.Path) -> pathlib.Path:
  folder.mkdir(parents=True, exist_ok=True)
  if family == "bert":
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnop", "paris", "is", "##s"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder / "vocab.txt"
  model = io.BytesIO()
  symbols = {
    "albert": {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]},
    "xlnet": {
      "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>"],
      "user_defined_symbols": ["<eop>"],
    },
  }
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["a cat sat", "paris is the capital of france"] * 9), model_writer=model, vocab_size=30,
    normalization_rule_name="identity", hard_vocab_limit=False, minloglevel=2, **symbols[family],
  )  # fmt: skip
  file = folder / {"albert": "30k-clean.model", "xlnet": "spiece.model"}[family]
  file.write_bytes(model.getvalue())
  return file


def write(family: str, folder: pathlib.Path, tensors: dict[str, np.ndarray] | None = None, **fields) -> pathlib.Path:
  """Writes a whole release; returns its prefix."""
  tensors = values(SHAPES[family]) if tensors is None else tensors
  write_vocabulary(family, folder)
  (folder / f"{family}_config.json").write_text(json.dumps(CONFIGS[family] | fields))
  return bundles.write(folder / PREFIXES[family], tensors)
