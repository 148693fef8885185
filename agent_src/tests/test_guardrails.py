"""Guardrails: what is found in a text, and what is not."""

from glasslab.guardrails import hidden_characters


def test_hidden_characters_are_found_and_ordinary_text_is_not() -> None:
    assert hidden_characters("Zwölf Bücher – 十二, 12 €\n\tнорма") == []
    assert hidden_characters("a\u200bb\u202ec\u200b\U000e0041\ud800") == ["U+200B", "U+202E", "U+D800", "U+E0041"]
