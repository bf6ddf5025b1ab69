"""Floating-point operations of the model's matrix products, by arithmetic: what MFU is measured against.

Two operations a multiply-add. Counted are the products the model defines, once each: neither what a backend computes
again or pads, nor softmax, norms, activations, look-ups and the optimizer. XLA's own count is no substitute: it counts
the body of a scan once.
"""

import dataclasses

from models.config import EncoderConfig
from models.features import KINDS, width_of
from models.head_config import HeadConfig
from models.primitives import ModelConfig
from models.xlnet_config import XLNetConfig


def encoder_flops(config: EncoderConfig, batch: int, length: int) -> int:
  """Forward pass of the encoder over `batch` rows of `length` tokens, padding included."""
  width, tokens = config.hidden_size, batch * length
  projections = 4 * width * width + 2 * width * config.intermediate_size  # query, key, value, output; FFN
  attention = 2 * length * width  # scores, and their sum over values
  embedding = config.embedding_width * width if config.embedding_width != width else 0
  return 2 * tokens * (config.num_layers * config.inner_groups * (projections + attention) + embedding)


def pretraining_flops(config: EncoderConfig, batch: int, length: int, targets: int) -> int:
  """Forward pass of PretrainingModel with `targets` target slots a row; a training step costs three times this."""
  width, embedding = config.hidden_size, config.embedding_width
  mlm_head = targets * (width * embedding + embedding * config.vocab_size)
  pair_head = width * width + 2 * width
  return encoder_flops(config, batch, length) + 2 * batch * (mlm_head + pair_head)


def xlnet_flops(
  config: XLNetConfig, batch: int, length: int, targets: int = 0, *, query: bool = True, pair: bool = False
) -> int:
  """Forward pass of PermutationLM over `batch` rows of `length` tokens and a full memory.

  Args:
    targets: target slots a row; where there are any, the last layer computes nothing else. 0 = the content stream
      alone, everywhere and without the head.
    query: each target is a vector of the query stream; else it is read from the content.
    pair: with the pair head, for which the last layer computes the content of one position more.
  """
  width, features = config.hidden_size, config.num_heads * config.head_width
  keys = length + config.mem_len
  distances = keys + length  # scored by every query, and projected once for all rows
  a_query = 2 * width * features + 2 * width * config.intermediate_size + features * (2 * keys + distances)
  below = length + (targets if query else 0)  # vectors of the layers below the last
  queries = (config.num_layers - 1) * below + (targets or length) + pair
  heads = targets * width * config.vocab_size + pair * (width * width + 2 * width)
  a_row = queries * a_query + config.num_layers * keys * 2 * width * features + heads
  return 2 * (batch * a_row + config.num_layers * distances * width * features)


def task_flops(config: ModelConfig, head: HeadConfig, batch: int, length: int) -> int:
  """A training step of TaskModel over `batch` rows of `length` tokens; of heads, only a BiLSTM counts.

  Three times the forward pass, but for what has no gradient: a frozen body, and what it gives a BiLSTM.
  """
  if isinstance(config, XLNetConfig):
    body = xlnet_flops(dataclasses.replace(config, mem_len=0), batch, length)
  else:
    body = encoder_flops(config, batch, length)
  if head.features == "embeddings":  # no layer of it is run
    body = 0
  total = body if head.freeze else 3 * body
  if head.features:
    a_feature = 2 * batch * length * 8 * head.lstm_width  # the gates of both directions
    features = width_of(head.features, config.hidden_size)
    inputs = features + (head.lstm_layers - 1) * 2 * head.lstm_width
    total += 3 * a_feature * (inputs + head.lstm_layers * head.lstm_width)
    if head.freeze and KINDS[head.features].joined != "sum":  # whose weights are learned
      total -= a_feature * features
  return total
