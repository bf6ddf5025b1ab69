"""A tokenizer's folder holds what was saved or nothing that loads, whatever goes wrong on the way."""

import errno
import os

import pytest

from data import sentencepiece_model, shards
from data.sentencepiece import FAMILIES, UNK, SentencePiece
from data.sentencepiece_model import CONTROL, NORMAL, UNKNOWN
from data.tokenizers import load_tokenizer
from data.wordpiece import SPECIAL, WordPiece


def sentencepiece(*pieces: str, **kwargs) -> SentencePiece:
  special = [(piece, 0.0, UNKNOWN if piece == UNK else CONTROL) for piece in FAMILIES["albert"].special]
  return SentencePiece(sentencepiece_model.build([*special, *((p, -1.0, NORMAL) for p in pieces)], b""), **kwargs)


# Each has other pieces and another casing than the next: what is half one and half the other is neither.
TOKENIZERS = {
  "vocab.txt": (WordPiece((*SPECIAL, "a", "b")), WordPiece((*SPECIAL, "a", "b", "c"), lowercase=False)),
  "spiece.model": (sentencepiece("a", "b"), sentencepiece("a", "b", "c", lowercase=False)),
}


@pytest.mark.parametrize("file", TOKENIZERS)
@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (os, "replace")])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_no_wrong_vocabulary(tmp_path, monkeypatch, file, owner, name, failing):
  before, after = TOKENIZERS[file]
  before.save(tmp_path)
  original, calls = getattr(owner, name), []

  def fail(*args):
    calls.append(args)
    if len(calls) == failing:
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return original(*args)

  monkeypatch.setattr(owner, name, fail)
  with pytest.raises(OSError, match="No space left on device") as caught:
    after.save(tmp_path)
  if name == "fsync":
    written = ("tokenizer_config.json", file)[failing - 1]
    assert str(caught.value).startswith(
      f"{tmp_path}/{written}: No space left on device; free some space and run the same command again"
    )
  with pytest.raises(FileNotFoundError):
    load_tokenizer(tmp_path)
  assert {path.name for path in tmp_path.iterdir()} <= {"tokenizer_config.json"}
  monkeypatch.undo()
  after.save(tmp_path)
  assert load_tokenizer(tmp_path) == after


@pytest.mark.parametrize("file", TOKENIZERS)
def test_saving_again_writes_nothing(tmp_path, monkeypatch, file):
  TOKENIZERS[file][0].save(tmp_path)
  monkeypatch.setattr(shards, "write_bytes", None)
  TOKENIZERS[file][0].save(tmp_path)


@pytest.mark.parametrize("tokenizer", [pair[1] for pair in TOKENIZERS.values()] + [sentencepiece("▁", "▁a")])
def test_every_piece_stands_for_a_byte(tokenizer):
  assert (tokenizer.num_bytes >= 1).all()
