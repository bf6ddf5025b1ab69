"""Names for the leaves of parameter trees."""

import jax


def path_name(path: tuple) -> str:
  """Returns a tree path as text, e.g. `encoder/layers/attention/query/kernel`."""
  return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)


def path_names(tree) -> list[str]:
  """Returns the path of every leaf of a tree, in leaf order."""
  return [path_name(path) for path, _ in jax.tree.leaves_with_path(tree)]
