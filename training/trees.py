"""Names for the leaves of parameter trees."""


def path_name(path: tuple) -> str:
  """Returns a tree path as text, e.g. `encoder/layers/attention/query/kernel`."""
  return "/".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path)
