"""The attention of a sentence on a report's page: a small map for each head, and a large one with the tokens."""

import base64
import io
from collections.abc import Sequence

import numpy as np

from tools import report_html as h
from tools.report_looks import Attention

_COLOUR = (31, 137, 208)  # shows on white and on black; how much, is its opacity

# Puts the map that is clicked into the large one beside it.
_SCRIPT = """<script>
for (const button of document.querySelectorAll(".maps button")) button.addEventListener("click", () => {
  const box = button.closest(".heads");
  box.querySelector(".map").src = button.querySelector("img").src;
  box.querySelector(".which").textContent = button.title;
  box.querySelectorAll(".maps button").forEach(one => one.setAttribute("aria-pressed", one === button));
});
</script>"""


def attention(names: Sequence[str], sentence: str, found: Sequence[Attention | str | None]) -> str:
  """Returns the section's HTML.

  Args:
    names: of the groups, as HTML.
    sentence: what is read.
    found: by group: the attention, or why there is none.
  """
  note = (
    "Each small map is a head, of the first seed of each group: a row is a token, its columns the tokens that it sees, "
    "the more colour the more (the square root of the probability). Choose a head to see it with its tokens."
  )
  cards = [
    f'<article class="card" style="margin-bottom:16px"><h3>{name}</h3>{_maps(one)}</article>'
    for name, one in zip(names, found, strict=True)
  ]
  return f'<p class="text-of">{h.text(sentence)}</p><p class="note">{note}</p>{"".join(cards)}{_SCRIPT}'


def _maps(found: Attention | str | None) -> str:
  if not isinstance(found, Attention):
    return f'<p class="note">{h.text(found or "")}</p>'
  layers, heads, length, _ = found.probabilities.shape
  cells = ["<span></span>", *(f"<span>{head + 1}</span>" for head in range(heads))]
  for layer in range(layers):
    cells.append(f"<span>{layer + 1}</span>")
    for head in range(heads):
      pressed = "true" if (layer, head) == (0, 0) else "false"
      cells.append(
        f'<button type="button" title="layer {layer + 1}, head {head + 1}" aria-pressed="{pressed}">'
        f'<img alt="" src="{picture(found.probabilities[layer, head])}"></button>'
      )
  tokens = "".join(f"<span>{h.text(piece)}</span>" for piece in found.pieces)
  small = "76px" if heads <= 8 else "46px"
  return (
    f'<div class="heads"><div class="grid"><p class="note" style="margin:6px 0">layers down, heads across</p>'
    f'<div class="maps" style="--heads:{heads};--small:{small}">{"".join(cells)}</div></div>'
    f'<figure class="large" style="--n:{length}"><figcaption class="which">layer 1, head 1</figcaption>'
    f'<div class="labelled"><div class="across">{tokens}</div><div class="down">{tokens}</div>'
    f'<img class="map" alt="attention" src="{picture(found.probabilities[0, 0])}"></div></figure></div>'
  )


def picture(probabilities: np.ndarray) -> str:
  """Returns a map, float [tokens, tokens], as the data of a PNG with a pixel a pair."""
  from matplotlib.image import imsave

  colour = np.broadcast_to(np.array(_COLOUR, np.uint8), (*probabilities.shape, 3))
  opacity = np.round(255 * np.sqrt(probabilities)).astype(np.uint8)
  written = io.BytesIO()
  imsave(written, np.dstack([colour, opacity]), format="png", metadata={"Software": None})
  return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
