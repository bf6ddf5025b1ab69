"""What the files of the papers' ablations have in common: rows of changes, at the paper's scale or at a small one.

A row is what a run changes, by field; a file's ROWS holds its paper's tables. A variant is a row, "no_nsp", or the same
at a scale that two CPU cores do in minutes, "small/no_nsp": there the sizes, the text and the schedule are
configs/quickstart.py's, and what the row asks about is the row's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_flags import config_path

Row = Mapping[str, Any]  # field of the config, with dots → value
SMALL = "small/"


def variant_of(
  file: str, rows: Mapping[str, Row], small_rows: Mapping[str, Row], variant: str, make: Callable[[bool], ConfigDict]
) -> ConfigDict:
  """Returns the config of a variant.

  Args:
    file: the file's name, for the error.
    rows: the changes of every row.
    small_rows: those of the small scale, for the rows that it does in another way, or not at all (None).
    variant: ROW or small/ROW.
    make: whether it is small → the config that rows change.

  Raises:
    ValueError: there is no such row, or not at this scale.
  """
  small = variant.startswith(SMALL)
  row = variant.removeprefix(SMALL)
  changes = {**rows, **small_rows} if small else rows
  if changes.get(row) is None:
    known = [*rows, *(SMALL + name for name in {**rows, **small_rows} if {**rows, **small_rows}[name] is not None)]
    raise ValueError(f"configs/ablations/{file}.py has no row {variant!r}; use one of {', '.join(known)}")
  c = make(small)
  c.lock()  # no row names a field that there is not
  for field, value in changes[row].items():
    config_path.set_value(field, c, value)
  return c.unlock()
