"""XLNet of `transformers` with random weights, batches with explicit masks for it, and what it computes."""

import numpy as np
import torch
import transformers

TINY = {"vocab_size": 90, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 48, "initializer_range": 0.2}
BASE = {"vocab_size": 32_000, "d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}
ROWS, LENGTH, TARGETS = 4, 14, 5


def random_model(fields: dict, tied: bool = False, **more):
  """A model without dropout whose biases and norms are random too."""
  torch.manual_seed(0)
  config = transformers.XLNetConfig(**fields, dropout=0.0, summary_last_dropout=0.0, use_mems_eval=True, **more)
  model = transformers.XLNetLMHeadModel(config).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if parameter.std() == 0 or parameter.ndim == 1 or "bias" in name:
        parameter.add_(0.1 * torch.randn_like(parameter))
      if tied and name.split(".")[-1] in ("r_w_bias", "r_r_bias", "r_s_bias"):
        parameter.copy_(dict(model.named_parameters())[name.replace(f".{name.split('.')[2]}.", ".0.")])
  return model


def batch(vocab_size: int, length: int = LENGTH, padded: bool = False, seed: int = 0) -> dict[str, np.ndarray]:
  """Rows with a random order: targets see what comes before them, the rest sees the rest; padding to the left."""
  rng = np.random.default_rng(seed)
  positions = np.stack([rng.permutation(np.arange(5, length))[:TARGETS] for _ in range(ROWS)])
  rank = np.zeros((ROWS, length), int)
  np.put_along_axis(rank, positions, 1 + np.arange(TARGETS)[None], axis=1)
  allowed = (rank[:, None, :] < rank[:, :, None]) | (rank == 0)[:, None, :]
  real = np.arange(length)[None] >= np.array([0, 5, 0, 2])[:, None] if padded else np.ones((ROWS, length), bool)
  segments = np.where(np.arange(length) < length // 2, 0, 1) + (np.arange(length) == length - 1)
  return {
    "tokens": rng.integers(0, vocab_size, (ROWS, length)),
    "segment_ids": np.broadcast_to(segments, (ROWS, length)).copy(),
    "positions": positions,
    "allowed": allowed,
    "real": real,
  }


def theirs(model, batch, memory, targets: bool):
  """(content states, query states or None, logits, new memory [rows, layers, kept, width])."""
  tensor = lambda x, kind=torch.long: torch.from_numpy(np.ascontiguousarray(x)).to(kind)
  length = batch["tokens"].shape[1]
  mapping = tensor(np.eye(length)[batch["positions"]], torch.float32) if targets else None
  with torch.no_grad():
    output = model(
      input_ids=tensor(batch["tokens"]),
      token_type_ids=tensor(batch["segment_ids"]),
      perm_mask=tensor(~batch["allowed"], torch.float32),
      attention_mask=tensor(batch["real"], torch.float32),
      target_mapping=mapping,
      mems=None if memory is None else [tensor(x, torch.float32) for x in memory.transpose(1, 2, 0, 3)],
      output_hidden_states=True,
      use_mems=True,
    )
  states = output.hidden_states
  if targets:  # content and query by turns
    content, query = states[0::2], states[1::2]
  else:
    content, query = states, None
  stack = lambda xs: None if xs is None else np.stack([x.numpy() for x in xs])
  kept = np.stack([x.numpy() for x in output.mems]).transpose(2, 0, 1, 3) if output.mems else None
  return stack(content), stack(query), output.logits.numpy(), kept
