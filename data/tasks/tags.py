"""Tags of entities: IOB1, IOB2 and BIOES (or BILOU) as IOB2.

IOB1 (CoNLL-2003 as first published) begins an entity with I-, and with B- only where it touches another of its type;
IOB2 begins each with B-; BIOES names the last word and single ones too. All three read the same by conlleval's rules of
where an entity begins, so no scheme need be named.
"""

from collections.abc import Sequence

_PREFIXES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S", "M": "I", "W": "S"}


def to_iob2(tags: Sequence[str], wheres: Sequence[str]) -> tuple[str, ...]:
  """Returns the tags of one sentence in IOB2.

  Args:
    tags: one a word.
    wheres: each tag's file and line, for messages.

  Raises:
    ValueError: a tag that is neither O nor a prefix, a hyphen and a type.
  """
  result, before = [], ("O", "")
  for tag, where in zip(tags, wheres, strict=True):
    prefix, hyphen, kind = tag.partition("-")
    if tag == "O":
      before = ("O", "")
      result.append(tag)
      continue
    if not hyphen or not kind or prefix not in _PREFIXES:
      raise ValueError(f"{where}: tag {tag!r} is neither O nor like B-PER (prefixes {', '.join(_PREFIXES)})")
    prefix = _PREFIXES[prefix]
    begins = prefix in "BS" or before[0] in "OES" or before[1] != kind
    result.append(f"{'B' if begins else 'I'}-{kind}")
    before = (prefix, kind)
  return tuple(result)
