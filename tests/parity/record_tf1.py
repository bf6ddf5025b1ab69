"""Record checkpoints that the original TensorFlow 1 code writes, and what it computes from them.

  python -m tests.parity.record_tf1 bert CHECKOUT     (google-research/bert at eedf5716)
  python -m tests.parity.record_tf1 albert CHECKOUT   (google-research/albert at b772393d)
  python -m tests.parity.record_tf1 xlnet CHECKOUT    (zihangdai/xlnet at bbaa3a6f)

CHECKOUT is a clone of the repository named. Needs tensorflow-cpu and six, in an environment of their own. Their code
runs as it is, on TensorFlow 2's compat.v1 and the few functions of TensorFlow 1 that it lacks, written out below.
Writes tests/fixtures/tf1/FAMILY/: for pretraining and each head a checkpoint of random values with its inputs and
outputs.
"""

import contextlib
import json
import pathlib
import sys
import types
from unittest import mock

import numpy as np
import tensorflow

tf = tensorflow.compat.v1
FOLDER = pathlib.Path(__file__).parent.parent / "fixtures" / "tf1"
ROWS, LENGTH, TARGETS, MEMORY, REUSE = 4, 10, 3, 6, 5
_COMMON = {
  "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 12,
  "initializer_range": 0.02, "intermediate_size": 20, "max_position_embeddings": 16, "num_attention_heads": 3,
  "type_vocab_size": 2, "vocab_size": 40,
}  # fmt: skip
CONFIGS = {
  "bert": _COMMON | {"num_hidden_layers": 2},
  "albert": _COMMON | {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2, "embedding_size": 8},
  "xlnet": {
    "d_head": 4, "d_inner": 20, "d_model": 12, "ff_activation": "gelu", "n_head": 3, "n_layer": 2, "n_token": 40,
    "untie_r": True,
  },
}  # fmt: skip


def _dense(inputs, units, activation=None, use_bias=True, kernel_initializer=None, name=None, reuse=None, **_):
  with tf.variable_scope(name, default_name="dense", reuse=reuse):
    kernel = tf.get_variable("kernel", [inputs.shape[-1], units], initializer=kernel_initializer)
    output = tf.tensordot(inputs, kernel, 1)
    if use_bias:
      output += tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
  return activation(output) if activation else output


def _layer_norm(inputs, begin_norm_axis=-1, begin_params_axis=-1, scope=None, reuse=None):
  with tf.variable_scope(scope, default_name="LayerNorm", reuse=reuse):
    beta = tf.get_variable("beta", [inputs.shape[-1]], initializer=tf.zeros_initializer())
    gamma = tf.get_variable("gamma", [inputs.shape[-1]], initializer=tf.ones_initializer())
    mean, variance = tf.nn.moments(inputs, [-1], keep_dims=True)
    return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)


def as_tensorflow_1(checkout: str) -> None:
  """Makes `import tensorflow` that of version 1, as far as the originals need it."""
  tf.disable_v2_behavior()
  one = types.ModuleType("tensorflow")
  one.__dict__.update(tf.__dict__)
  one.layers = types.SimpleNamespace(dense=_dense, dropout=lambda x, *_, **__: x)
  one.flags, one.estimator, one.contrib = mock.MagicMock(), mock.MagicMock(), mock.MagicMock()
  one.contrib.layers.layer_norm = _layer_norm
  one.compat = types.SimpleNamespace(v1=one)
  modules = {"": one, ".compat": one.compat, ".compat.v1": one, ".contrib": one.contrib}
  sys.modules |= {f"tensorflow{name}": module for name, module in modules.items()}
  sys.modules |= {"tensorflow_hub": mock.MagicMock(), "sentencepiece": mock.MagicMock()}
  albert = types.ModuleType("albert")
  albert.__path__ = [checkout]
  sys.modules["albert"] = albert
  sys.path.insert(0, checkout)


def rows(left: bool = False) -> dict[str, np.ndarray]:
  """Two segments and padding, behind them or (`left`) before them."""
  random = np.random.default_rng(0)
  lengths = np.array([10, 7, 9, 5])
  place = np.arange(LENGTH)[None]
  place = place - (LENGTH - lengths)[:, None] if left else np.broadcast_to(place, (ROWS, LENGTH))
  real = (place >= 0) & (place < lengths[:, None])
  tokens = np.where(real, random.integers(5, 40, (ROWS, LENGTH)), 0)
  return {
    "tokens": tokens,
    "segment_ids": (real & (place > lengths[:, None] // 2)).astype(int),
    "real": real.astype(int),
  }


@contextlib.contextmanager
def recording(family: str, name: str, inputs: dict[str, np.ndarray]):
  """Yields (tensors of the inputs, a dict for the outputs); writes NAME.index, NAME.data-… and NAME.npz."""
  with tf.Graph().as_default(), tf.Session() as session:
    outputs = {}
    yield {key: tf.constant(x, tf.float32 if x.dtype.kind == "f" else tf.int32) for key, x in inputs.items()}, outputs
    random = np.random.default_rng(1)
    for variable in tf.global_variables():
      mean = 1.0 if "gamma" in variable.name else 0.0
      variable.load(random.normal(mean, 0.2, variable.shape).astype(np.float32), session)
    folder = FOLDER / family
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{family}_config.json").write_text(json.dumps(CONFIGS[family], indent=2) + "\n")
    tf.train.Saver().save(session, str(folder / name), write_meta_graph=False, write_state=False)
    np.savez_compressed(folder / f"{name}.npz", **inputs, **session.run(outputs))


def bert() -> None:
  import modeling
  import run_classifier
  import run_pretraining
  import run_squad

  config = modeling.BertConfig.from_dict(CONFIGS["bert"])
  pretraining("bert", modeling.BertModel, config, run_pretraining, run_pretraining.get_next_sentence_output)
  with recording("bert", "classification", rows()) as (x, outputs):
    labels = tf.zeros([ROWS], tf.int32)
    outputs["logits"] = run_classifier.create_model(
      config, False, x["tokens"], x["real"], x["segment_ids"], labels, 3, False
    )[2]
  with recording("bert", "span", rows()) as (x, outputs):
    start, end = run_squad.create_model(config, False, x["tokens"], x["real"], x["segment_ids"], False)
    outputs["logits"] = tf.stack([start, end], axis=-1)


def albert() -> None:
  from albert import modeling, run_pretraining, squad_utils

  config = modeling.AlbertConfig.from_dict(CONFIGS["albert"])
  pretraining("albert", modeling.AlbertModel, config, run_pretraining, run_pretraining.get_sentence_order_output)
  batch = rows()
  batch["p_mask"] = 1.0 - batch["real"]
  with recording("albert", "conditional_span", batch) as (x, outputs):
    outputs |= squad_utils.create_v2_model(
      config, False, x["tokens"], x["real"], x["segment_ids"], False, x, LENGTH, 3, 2, 0.1, None
    )


def pretraining(family, model, config, heads, pair_head) -> None:
  """BERT's and ALBERT's heads have the same form."""
  positions = np.random.default_rng(2).integers(0, 5, (ROWS, TARGETS))
  with recording(family, "pretraining", rows() | {"positions": positions}) as (x, outputs):
    body = model(config, False, x["tokens"], x["real"], x["segment_ids"])
    outputs["hidden"] = tf.stack(body.get_all_encoder_layers())
    ones = tf.ones([ROWS, TARGETS])
    outputs["mlm_log_p"] = heads.get_masked_lm_output(
      config, body.get_sequence_output(), body.get_embedding_table(), x["positions"], x["positions"], ones
    )[2]
    outputs["pair_log_p"] = pair_head(config, body.get_pooled_output(), tf.zeros([ROWS], tf.int32))[2]


def xlnet() -> None:
  import function_builder
  import modeling
  import xlnet

  file = FOLDER / "xlnet" / "xlnet_config.json"
  flags = types.SimpleNamespace(
    **CONFIGS["xlnet"], model_config_path=str(file), use_tpu=False, use_bfloat16=False, dropout=0.0, dropatt=0.0,
    init="normal", init_range=0.1, init_std=0.02, clamp_len=-1, mem_len=MEMORY, reuse_len=REUSE, bi_data=False,
    same_length=False, summary_type="last", use_summ_proj=True, cls_scope=None, task_name="MNLI", start_n_top=3,
    end_n_top=2,
  )  # fmt: skip
  random = np.random.default_rng(3)
  batch = rows() | {
    "positions": np.stack([random.permutation(5)[:TARGETS] for _ in range(ROWS)]),
    "allowed": random.integers(0, 2, (ROWS, LENGTH, LENGTH)),
    "memory": random.normal(size=(2, ROWS, MEMORY, 12)).astype(np.float32),
  }
  with recording("xlnet", "pretraining", batch) as (x, outputs):
    mapping = tf.one_hot(x["positions"], LENGTH)
    model = xlnet.XLNetModel(
      xlnet.XLNetConfig(FLAGS=flags),
      xlnet.create_run_config(False, False, flags),
      input_ids=tf.transpose(x["tokens"]),
      seg_ids=tf.transpose(x["segment_ids"]),
      input_mask=tf.transpose(tf.cast(1 - x["real"], tf.float32)),
      mems=[tf.transpose(x["memory"][i], [1, 0, 2]) for i in range(2)],
      perm_mask=tf.transpose(tf.cast(1 - x["allowed"], tf.float32), [1, 2, 0]),
      target_mapping=tf.transpose(mapping, [1, 2, 0]),
      inp_q=tf.transpose(tf.reduce_sum(mapping, 1)),
    )
    targets = tf.transpose(tf.gather(x["tokens"], x["positions"], batch_dims=1))
    with tf.variable_scope("model", reuse=tf.AUTO_REUSE):
      loss = modeling.lm_loss(
        model.get_sequence_output(), targets, 40, 12, model.get_initializer(), model.get_embedding_table(), True, True
      )
    outputs["query"] = tf.transpose(model.get_sequence_output(), [1, 0, 2])
    outputs["loss"] = tf.transpose(loss)
    outputs["kept"] = tf.transpose(tf.stack(model.get_new_memory()), [0, 2, 1, 3])

  def features(x):
    mask = tf.cast(1 - x["real"], tf.float32)
    return {"input_ids": x["tokens"], "segment_ids": x["segment_ids"], "input_mask": mask, **x}

  with recording("xlnet", "classification", rows(left=True)) as (x, outputs):
    batch = features(x) | {"label_ids": tf.zeros([ROWS], tf.int32)}
    outputs["logits"] = function_builder.get_classification_loss(flags, batch, 3, False)[2]
  batch = rows()
  batch |= {"p_mask": 1.0 - batch["real"], "cls_index": batch["real"].sum(1) - 1}
  with recording("xlnet", "conditional_span", batch) as (x, outputs):
    outputs |= function_builder.get_qa_outputs(flags, features(x), False)


if __name__ == "__main__":
  if len(sys.argv) != 3 or sys.argv[1] not in CONFIGS:
    sys.exit(__doc__)
  as_tensorflow_1(sys.argv[2])
  {"bert": bert, "albert": albert, "xlnet": xlnet}[sys.argv[1]]()
