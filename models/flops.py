"""Floating-point operations of the model's matrix products, by arithmetic: what MFU is measured against.

Two operations a multiply-add. Counted are the products the model defines, once each: neither what a backend computes
again or pads, nor softmax, norms, activations, look-ups and the optimizer. XLA's own count is no substitute: it counts
the body of a scan once.
"""

from models.config import EncoderConfig


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
