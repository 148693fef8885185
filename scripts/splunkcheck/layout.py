"""Where a view's panels stand, and what its inputs are."""

from __future__ import annotations

import json

from splunkcheck import studio, values
from splunkcheck.definition import View, objects, part


def layout(view: View) -> None:
    """Say what is wrong with where the panels and inputs of a view stand."""
    place = part(view.definition, "layout")
    for text in [*studio.unknown("layout", place), *studio.options("layout", part(place, "options"))]:
        view.say(f"layout: {text}")
    if place.get("type") not in ("absolute", "grid"):
        view.say(f"layout type {place.get('type')} is neither absolute nor grid")
    inputs, shown = part(view.definition, "inputs"), part(view.definition, "visualizations")
    listed = [name for name in place.get("globalInputs") or () if isinstance(name, str)]
    for name in listed:
        if name not in inputs:
            view.say(f"globalInputs: there is no input {name}")
    width, height = part(place, "options").get("width", 1200), part(place, "options").get("height", 10**6)
    if not isinstance(width, int) or not isinstance(height, int):
        view.say(f"layout: its width {width} and height {height} are no whole numbers")
        width, height = 1200, 10**6
    boxes: list[tuple[str, int, int, int, int]] = []
    for block in objects(place, "structure"):
        name, at = str(block.get("item")), part(block, "position")
        kind = "input" if name in inputs else "block"
        for text in [*studio.unknown("block", block), *studio.unknown("position", at)]:
            view.say(f"layout: {name}: {text}")
        if block.get("type") != kind and (block.get("type") != "line" or name in inputs):
            view.say(f"layout: {name} has type {block.get('type')}; it is {kind}")
        if name not in shown and name not in inputs:
            view.say(f"layout: there is no visualization {name}")
        if not all(isinstance(at.get(side), int) and not isinstance(at[side], bool) for side in "xywh"):
            view.say(f"layout: {name} has no x, y, w and h")
            continue
        x, y, w, h = (at[side] for side in "xywh")
        if x < 0 or y < 0 or w < 1 or h < 1 or x + w > width or y + h > height:
            view.say(f"layout: {name} stands outside of {width} x {height}")
        for other, ox, oy, ow, oh in boxes:
            if x < ox + ow and ox < x + w and y < oy + oh and oy < y + h:
                view.say(f"layout: {name} covers {other}")
        boxes.append((str(name), x, y, w, h))
    placed = {box[0] for box in boxes}
    for name in sorted(set(shown) - placed):
        view.say(f"visualization {name} has no place in the layout")
    for name in sorted(set(inputs) - placed - set(listed)):
        view.say(f"input {name} is not shown: it is neither in globalInputs nor in the layout")


def inputs(view: View) -> None:
    """Say what is wrong with a view's inputs: their options, their default, and one that nothing asks."""
    whole = json.dumps(view.definition)
    tokens: dict[str, str] = {}
    for name, one in part(view.definition, "inputs").items():
        kind, options = str(one.get("type")) if isinstance(one, dict) else "", part(one, "options")
        for text in [*studio.unknown("input", one if isinstance(one, dict) else {}), *studio.options(kind, options)]:
            view.say(f"input {name}: {text}")
        if kind not in studio.INPUTS:
            view.say(f"input {name}: {kind} is no input")
        token = str(options.get("token", ""))
        if not token:
            view.say(f"input {name} sets no token")
        elif f"${token}$" not in whole and f"${token}." not in whole and f"${token}|" not in whole:
            view.say(f"input {name}: nothing asks for its token ${token}$")
        if token and tokens.setdefault(token, name) != name:
            view.say(f"input {name} sets the token {token}, which {tokens[token]} sets too")
        if kind == "input.timerange":
            _timerange(view, name, str(options.get("defaultValue", "")))
        if kind in studio.CHOOSING:
            _choices(view, name, options.get("items"), options.get("defaultValue"))


def _timerange(view: View, name: str, default: str) -> None:
    parts = [each.strip() for each in default.split(",")]
    if len(parts) != 2 or any(values.time(each) for each in parts):
        view.say(f"input {name}: defaultValue {default!r} is not EARLIEST,LATEST")
    elif fault := values.between(*parts):
        view.say(f"input {name}: defaultValue {fault}")


def _choices(view: View, name: str, items: object, default: object) -> None:
    if isinstance(items, str) and items.startswith(">"):
        return
    if (
        not isinstance(items, list)
        or not items
        or not all(isinstance(one, dict) and {"label", "value"} <= set(one) for one in items)
    ):
        view.say(f"input {name}: its items are no list of label and value, and not worked out from a data source (>)")
        return
    known = [one["value"] for one in items]
    for one in default if isinstance(default, list) else [default]:
        if one is not None and one not in (*known, ""):
            view.say(f"input {name}: defaultValue {one!r} is none of its items' values")
