"""What text may hide from the eye: small pure functions. They report, or escape; nothing is changed in silence."""

from __future__ import annotations

import unicodedata
from typing import Final

# Drawn as nothing although their category says letter or mark; all of category Cf (bidi controls, zero width, tags) is
# found by category.
_BLANKS: Final = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
)
_HIDDEN_CATEGORIES: Final = ("Cf", "Cs", "Co", "Cn", "Zl", "Zp")
# They shape letters and emoji of honest texts and move nothing on a terminal: soft hyphen, non-joiner, joiner.
_JOINERS: Final = "\N{SOFT HYPHEN}\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def hidden_characters(text: str) -> list[str]:
    """Return the invisible, bidirectional and control characters of a text, as `U+202E` names, each once, sorted."""
    found = set()
    for character in set(text):
        category = unicodedata.category(character)
        control = category == "Cc" and character not in "\n\t\r"
        if control or category in _HIDDEN_CATEGORIES or ord(character) in _BLANKS:
            found.add(f"U+{ord(character):04X}")
    return sorted(found)


def escaped(character: str) -> str:
    """Return a character, or its escape when it is a control, format, private or unassigned one, or a surrogate."""
    category = unicodedata.category(character)
    if category != "Cc" and category not in _HIDDEN_CATEGORIES:
        return character
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"


def visible_text(text: str) -> str:
    """Return a text that a terminal only shows and never obeys: line ends and tabs stay, what is hidden is escaped."""
    kept = f"\n\t{_JOINERS}"
    return "".join(letter if letter in kept else escaped(letter) for letter in text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    """Return a text as one line without anything hidden: for messages that quote what others sent."""
    return "".join(escaped(letter) for letter in " ".join(text.split()))


# What writes or joins letters and emoji in honest text: joiners, variation selectors, marks of a direction, byte order.
_ORDINARY: Final = frozenset([0x00AD, 0x200C, 0x200D, 0x200E, 0x200F, 0x061C, 0xFEFF, *range(0xFE00, 0xFE10)])


def smuggled_characters(text: str) -> list[str]:
    """Return what hides text or turns its direction and writes no language: tags, overrides, zero width, controls."""
    return [name for name in hidden_characters(text) if int(name[2:], 16) not in _ORDINARY]
