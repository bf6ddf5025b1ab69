"""SentencePiece encodes as the originals' preprocess_text and encode_pieces; models survive the disk; bad ones are
named."""

import base64
import json
import random
import unicodedata

import pytest
import sentencepiece as library

from data import sentencepiece, sentencepiece_model
from data.sentencepiece import FAMILIES, SentencePiece, preprocess
from data.sentencepiece_model import CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from data.tokenizers import load_tokenizer
from data.wordpiece import SPECIAL

ALBERT, XLNET = FAMILIES["albert"], FAMILIES["xlnet"]


def model(*pieces: str, family: sentencepiece.Family = ALBERT, exposed: tuple[str, ...] = ()) -> bytes:
  """A model of the family's special pieces, "(" as a symbol, then pieces, of which the longer is always the likelier.

  Args:
    pieces: the ordinary ones.
    family: whose special pieces.
    exposed: special pieces that the model takes for text, as XLNet's released one takes <eop>.
  """
  kinds = dict.fromkeys(family.special, CONTROL) | {"<unk>": UNKNOWN} | dict.fromkeys(exposed, USER_DEFINED)
  entries = [(piece, 0.0, kinds[piece]) for piece in family.special] + [("(", 0.0, USER_DEFINED)]
  entries += [(piece, len(piece) ** 2 / 100 - 10, NORMAL) for piece in pieces]
  return sentencepiece_model.build(entries, b"")


def pieces_of(tokenizer: SentencePiece, text: str) -> list[str]:
  return [tokenizer.pieces[i] for i in tokenizer.encode(text)]


# --- before the library ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ("text", "plain", "as_it_is"),
  [
    ("  Hello \t\n World  ", "hello world", "Hello World"),
    ("a\u00a0b\u3000c\u2028d\x85e\x1ff", "a b c d e f", "a b c d e f"),  # all that Python calls white space
    ("``It's''", '"it\'s"', '"It\'s"'),
    ("'''", "\"'", "\"'"),
    ("H\u00e9llo He\u0301llo", "hello hello", "H\u00e9llo He\u0301llo"),
    ("\ufb01\u00bd\u2460\u2026", "fi1\u204421...", "\ufb01\u00bd\u2460\u2026"),  # compatibility forms
    ("a\u00a8b", "a b", "a\u00a8b"),  # a diaeresis alone is a blank and a combining mark
    ("\u304c\u0915\u093f", "\u304b\u0915\u093f", "\u304c\u0915\u093f"),  # a vowel sign is a mark that does not combine
    ("\u0391\u03a3 \u0130", "\u03b1\u03c2 i", "\u0391\u03a3 \u0130"),
    ("\u00c5\u00f8\u00df", "a\u00f8\u00df", "\u00c5\u00f8\u00df"),  # a stroke is no mark
    ("", "", ""),
  ],
)
def test_preprocessing(text, plain, as_it_is):
  assert preprocess(text, lowercase=True) == plain
  assert preprocess(text, lowercase=False, keep_accents=True) == as_it_is


def test_preprocessing_is_that_of_every_character_alone():
  """The originals normalise a text and go through it character by character; here only what is not ASCII is."""
  rng = random.Random(0)
  every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
  for _ in range(300):
    text = "".join(rng.choice("aB é\u0301'") if rng.random() < 0.5 else rng.choice(every) for _ in range(60))
    expected = " ".join(text.strip().split()).replace("``", '"').replace("''", '"')
    expected = "".join(c for c in unicodedata.normalize("NFKD", expected) if not unicodedata.combining(c))
    assert preprocess(text, lowercase=False) == expected


# --- pieces ------------------------------------------------------------------------------------------------------


COMMAS = ("▁", ",", *"0129a", "▁in", "▁2010,", "▁2010", "20", "10", "0,", "▁0", "▁9", "a,", "1,2,", "▁1", "▁2")


def test_digits_and_comma_by_hand():
  tokenizer = SentencePiece(model(*COMMAS))
  assert pieces_of(tokenizer, "in 2010, a") == ["▁in", "▁2010", ",", "▁", "a"]
  # "0," inside a word: "0" alone would be "▁0", and the blank goes again.
  assert pieces_of(tokenizer, "990,") == ["▁9", "9", "0", ","]
  assert pieces_of(tokenizer, "aa,") == ["▁", "a", "a,"]  # no digit
  # "1,2" alone is "▁1", ",", "2"; without its blank "1", ",", "2".
  assert pieces_of(tokenizer, "91,2,") == ["▁9", "1", ",", "2", ","]
  without = SentencePiece(model("▁", ",", "0", "1", "▁10", "10,", "a"))  # "10" is a piece with a blank only
  assert pieces_of(without, "a10,") == ["▁", "a", "<unk>", ","]


def original_pieces(processor: library.SentencePieceProcessor, text: str) -> list[str]:
  """encode_pieces of the originals, step by step."""
  result = []
  for piece in processor.encode(text, out_type=str):
    if not (len(piece) > 1 and piece.endswith(",") and piece[-2].isdigit()):
      result.append(piece)
      continue
    again = processor.encode(piece[:-1].replace("▁", ""), out_type=str)
    if piece[0] != "▁" and again[0][0] == "▁":
      again = again[1:] if len(again[0]) == 1 else [again[0][1:], *again[1:]]
    result += [*again, ","]
  return result


def test_random_text_is_encoded_by_the_originals_rules():
  rng = random.Random(1)
  parts = ["".join(rng.choices("0123,,a", k=rng.randrange(2, 5))) for _ in range(60)]
  tokenizer = SentencePiece(model(*dict.fromkeys(["▁", *"0123,a", *parts, *("▁" + part for part in parts[::2])])))
  processor = library.SentencePieceProcessor(model_proto=tokenizer.model)
  texts = ["".join(rng.choices("01234, a(", k=rng.randrange(30))) for _ in range(3000)]
  changed = 0
  for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
    expected = original_pieces(processor, text.strip())
    assert ids.tolist() == [processor.piece_to_id(piece) for piece in expected], text
    changed += expected != processor.encode(text.strip(), out_type=str)
  assert changed > 300


def test_one_by_one_is_as_a_batch():
  tokenizer = SentencePiece(model(*COMMAS))
  texts = ["", "in 2010,", "  ", "a", "\x85", "zzz 1,2,"]
  encoded = tokenizer.encode_batch(texts)
  assert [len(ids) for ids in encoded] == [0, 3, 0, 2, 0, 7]
  for text, ids in zip(texts, encoded, strict=True):
    assert ids.dtype == "int32"
    assert ids.flags.writeable
    assert ids.tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_text_that_spells_a_special_piece_is_text(family):
  characters = sorted(set("".join(family.special)))
  for exposed in ((), family.special[-1:]):
    tokenizer = SentencePiece(model("▁", *characters, family=family, exposed=exposed), lowercase=False)
    text = "".join(family.special)
    assert pieces_of(tokenizer, text) == ["▁", *text]
    assert tokenizer.special.tolist() == [True] * len(family.special) + [False] * (2 + len(characters))


# --- what an objective is told -----------------------------------------------------------------------------------


def test_tables_of_the_vocabulary():
  pieces = ("▁", "▁été", "ing", "-", "--", "'s", "23", "é", "I", "€", "<x", "▁a▁b")
  starts = {
    #          (      ▁     ▁été  ing    -     --     's     23     é      I      €     <x    ▁a▁b
    "albert": [True, True, True, False, True, False, True, True, True, False, True, True, True],
    "xlnet": [True, True, True, False, True, False, False, False, False, False, False, True, True],
  }
  for name, family in FAMILIES.items():
    n = len(family.special)
    tokenizer = SentencePiece(model(*pieces, family=family), lowercase=False)
    assert tokenizer.pieces == (*family.special, "(", *pieces)
    assert tokenizer.vocab_size == n + 1 + len(pieces)
    assert tokenizer.word_start.tolist() == [True] * n + starts[name]
    assert tokenizer.num_bytes.tolist() == [1] * n + [1, 1, 5, 3, 1, 2, 2, 2, 2, 1, 3, 2, 2]
    text = "I(see-23"
    assert tokenizer.decode(tokenizer.encode(text)) == "I(<unk>-23"
  ids = lambda t: (t.pad_id, t.unk_id, t.cls_id, t.sep_id, t.mask_id)
  assert ids(SentencePiece(model("a"))) == (0, 1, 2, 3, 4)
  assert ids(SentencePiece(model("a", family=XLNET))) == (5, 0, 3, 4, 6)


def test_fingerprint_tells_models_and_preprocessings_apart():
  one, other = model("a"), model("b")
  every = [SentencePiece(one), SentencePiece(other), SentencePiece(one, lowercase=False)]
  every.append(SentencePiece(one, keep_accents=True))
  assert len({tokenizer.fingerprint for tokenizer in every}) == 4
  assert SentencePiece(one).fingerprint == every[0].fingerprint


# --- on disk -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_saved_model_loads_as_it_was(tmp_path, family):
  content = model("▁", "a", "B", family=family, exposed=family.special[-1:])
  for lowercase, keep_accents in ((True, False), (False, False), (False, True)):
    tokenizer = SentencePiece(content, lowercase, keep_accents)
    folder = tmp_path / f"{lowercase}{keep_accents}"
    tokenizer.save(folder)
    assert load_tokenizer(folder) == tokenizer
    assert load_tokenizer(folder / "spiece.model") == tokenizer
    assert (folder / "spiece.model").read_bytes() == content  # what was hidden from text is hidden in memory only
    assert load_tokenizer(folder).fingerprint == tokenizer.fingerprint


def test_casing_is_seen_in_a_model_that_comes_alone(tmp_path):
  for piece, lowercase in (("▁Paris", False), ("▁paris", True)):
    (tmp_path / "30k.model").write_bytes(model(piece))
    assert load_tokenizer(tmp_path / "30k.model").lowercase is lowercase


def test_a_folder_with_tokenizer_json_alone(tmp_path):
  """What transformers writes has no kinds of pieces, and less likely ones where a digit and a comma end them."""
  content = model(*COMMAS, "▁x", ".")
  processor = library.SentencePieceProcessor(model_proto=content)
  vocabulary = [[processor.id_to_piece(i), processor.get_score(i)] for i in range(processor.vocab_size())]
  lowered = [[piece, score - 100 * (piece[-2:] in ("0,", "2,"))] for piece, score in vocabulary]
  saved = {
    "added_tokens": [{"id": i, "content": piece, "special": True} for i, piece in enumerate(ALBERT.special)],
    "normalizer": {
      "type": "Sequence",
      "normalizers": [
        {"type": "Lowercase"},
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"").decode()},
      ],
    },
    "model": {"unk_id": 1, "vocab": lowered},
  }
  (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
  tokenizer, expected = load_tokenizer(tmp_path), SentencePiece(content)
  assert tokenizer.pieces == expected.pieces
  assert tokenizer.special.tolist() == expected.special.tolist()
  for text in ("in 2010, a", "91,2, x(x.x", "[MASK]", ""):
    assert tokenizer.encode(text).tolist() == expected.encode(text).tolist()


@pytest.mark.parametrize(
  ("files", "message"),
  [
    ({"spiece.model": b""}, "spiece.model: no SentencePiece model"),
    ({"spiece.model": "\n".join(SPECIAL)}, "spiece.model: no SentencePiece model"),
    ({"spiece.model": model("a")[:-30]}, "spiece.model: no SentencePiece model"),
    ({"spiece.model": model("a", "a")}, "spiece.model: no SentencePiece model"),
    (
      {
        "spiece.model": sentencepiece_model.build([("<unk>", 0, UNKNOWN), ("<pad>", 0, CONTROL), ("a", 0, NORMAL)], b"")
      },
      r"no \[MASK\] piece \(albert\) and no <mask> piece \(xlnet\); it is of another kind of model",
    ),
    (
      {
        "spiece.model": sentencepiece_model.build(
          [("<unk>", 0, UNKNOWN), ("[MASK]", 0, CONTROL), ("a", 0, NORMAL)], b""
        )
      },
      "spiece.model: the vocabulary has no <pad> piece, which AlbertTokenizer needs",
    ),
    ({"spiece.model": model("a"), "tokenizer_config.json": "{"}, "tokenizer_config.json: not JSON"),
    (
      {"spiece.model": model("a"), "tokenizer_config.json": '{"remove_space": false}'},
      "remove_space=false is not supported",
    ),
    ({"spiece.model": model("a"), "vocab.txt": "\n".join(SPECIAL)}, "holds vocab.txt and a SentencePiece vocabulary"),
    ({"tokenizer.json": '{"model": {"vocab": [["a", 0]]}}'}, r"tokenizer.json: the vocabulary has no \[MASK\] piece"),
    (
      {"tokenizer.json": '{"model": {"vocab": [["[MASK]", 0]]}, "added_tokens": [{"content": "<x>"}]}'},
      "pieces beside the vocabulary are not supported: <x>",
    ),
  ],
)
def test_a_bad_model_is_named(tmp_path, files, message):
  for name, content in files.items():
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
  with pytest.raises(ValueError, match=message) as caught:
    load_tokenizer(tmp_path)
  assert str(tmp_path) in str(caught.value)
  assert "\n" not in str(caught.value)


def test_nothing_at_the_path(tmp_path):
  with pytest.raises(FileNotFoundError, match=r"no such tokenizer; give a folder with vocab\.txt or spiece\.model"):
    load_tokenizer(tmp_path / "30k-clean.model")
