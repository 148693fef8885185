"""What text may hide: small pure functions. They report; nothing is changed in silence."""

from __future__ import annotations

import unicodedata
from typing import Final

# Drawn as nothing although their category says letter or mark; all of category Cf (bidi controls, zero width, tags) is
# found by category.
_BLANKS: Final = frozenset(
    [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]
)
_HIDDEN_CATEGORIES: Final = ("Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def hidden_characters(text: str) -> list[str]:
    """Return the invisible, bidirectional and control characters of a text, as `U+202E` names, each once, sorted."""
    found = set()
    for character in text:
        category = unicodedata.category(character)
        control = category == "Cc" and character not in "\n\t\r"
        if control or category in _HIDDEN_CATEGORIES or ord(character) in _BLANKS:
            found.add(f"U+{ord(character):04X}")
    return sorted(found)
