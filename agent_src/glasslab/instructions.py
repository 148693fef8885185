"""Instructions in data: what in a text reads like orders to a model. Heuristics, to be recorded, not to rely on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from glasslab.guardrails import smuggled_characters

_AI: Final = r"(?:ai|llm|language model|chat ?bot|(?:ai |virtual )?assistant|(?:ai|llm) (?:agent|model)|agent)s?"


def _words(most: int) -> str:
    return rf"\W+(?:[\w'-]+\W+){{0,{most}}}"


# Every repetition has a bound: the time is that of one pass over the text, whatever it holds.
RULES: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "override": rf"\b(?:ignore|disregard|forget|override|bypass|discard){_words(3)}"
        rf"(?:previous|prior|above|earlier|preceding|foregoing|all|any|your|system|these|those|other){_words(2)}"
        r"(?:instruction|prompt|rule|direction|guideline|command|directive|constraint|restriction)s?\b"
        r"|\b(?:previous|prior|earlier) (?:instructions|rules|prompts) (?:no longer|do not|don't) apply"
        r"|\bnew (?:system )?(?:instructions|prompt)\s?:",
        "role": r"\byou are now (?:a|an|in|the|my|no longer)\b|\bfrom now on,? you (?:are|must|will|shall|should)\b"
        r"|\bpretend (?:that )?you(?: are|'re)\b|\b(?:enter|enable|activate) (?:developer|jailbreak|dan|god) mode\b",
        "markup": r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|>"
        r"|\[/?inst\]|<</?sys>>"
        r"|</?(?:system|system_prompt|instructions|tool_result|tool_call|function_calls?|untrusted)>"
        r"|\bsystem (?:prompt|message|override)\s?:"
        r"|(?:^|\n)\W{0,4}(?:system|assistant|developer)\s?:\s?(?:you |ignore|disregard|please |call |send |do not )",
        "conceal": rf"\b(?:do not|don't|never|must not|without){_words(2)}"
        rf"(?:tell|inform|mention|reveal|alert|notify|show|disclose|telling|informing|mentioning|alerting|notifying)"
        rf"{_words(5)}(?:users?|humans?|operators?|administrators?|person asking)\b",
        "addressed": rf"\b(?:note|message|instructions?|attention|notice|important|reminder)(?: to| for|,|:)"
        rf"(?: the| all| any| every| our| this)? ?{_AI}\b(?= ?[:,!.]| (?:must|should|reading|processing|that reads))"
        rf"|\bif you are an? {_AI}\b|\b{_AI} (?:reading|processing|summari[sz]ing|that reads?) this\b",
        "exfiltrate": rf"\b(?:send|forward|post|upload|e-?mail|transmit|exfiltrate|leak|copy|append){_words(6)}"
        r"(?:contents?|conversation|chat history|credentials?|passwords?|secrets?|api keys?|tokens?|system prompt"
        rf"|(?:all|these|the|every) (?:files?|documents?|messages?|invoices?)){_words(6)}"
        r"(?:https?://|[\w.+-]{1,64}@[\w-]{1,63}\.|to (?:this|the following) (?:address|url|e-?mail|endpoint))",
        "tool": rf"\b(?:you must|you should|you need to|now|immediately|first|then|next|please),? (?:also )?"
        rf"(?:call|invoke|use|run|execute) (?:the )?[`'\"]?[\w.-]{{2,64}}[`'\"]? (?:tool|function)\b{_words(4)}"
        r"(?:with|before|after|to|and|on|for)\b",
        "leak": r"\b(?:reveal|print|repeat|output|display|disclose|recite|leak)\W+(?:[\w'-]+\W+){0,4}"
        r"(?:system prompt|your (?:instructions|prompt|rules|guidelines)|(?:instructions|text|words|prompt) above)\b",
    }.items()
}
HIDDEN: Final = "hidden_characters"
# A text without any of these words cannot meet the rule: looking for them costs a hundredth of what the rule costs.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "override": ("instruction", "prompt", "rule", "direct", "guideline", "command", "constraint", "restriction"),
    "role": ("you are", "you must", "you will", "you shall", "you should", "you're", " mode"),
    "markup": ("<", "[", "system", "assistant", "developer"),
    "conceal": ("not", "n't", "never", "without"),
    "addressed": ("ai", "llm", "language model", "chat", "assistant", "agent"),
    "exfiltrate": ("send", "forward", "post", "upload", "mail", "transmit", "exfiltrate", "leak", "copy", "append"),
    "tool": ("tool", "function"),
    "leak": ("prompt", "your ", "above"),
}


def instructions_in(text: str) -> list[str]:
    """Return the rules that a text meets, sorted; HIDDEN when it holds characters that smuggle text past the eye."""
    plain = _plain(text)
    found = [n for n, rule in RULES.items() if any(word in plain for word in _NEEDED[n]) and rule.search(plain)]
    return sorted(found + ([HIDDEN] if smuggled_characters(text) else []))


def _plain(text: str) -> str:
    """Return a text as a model would read it anyway: compatible forms, one case, nothing hidden, single blanks."""
    read = text
    if not text.isascii():
        tags = {0xE0000 + number: chr(number) for number in range(0x20, 0x7F)}  # letters that are drawn as nothing
        read = unicodedata.normalize("NFKC", text.translate(tags)).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    hidden = [letter for letter in set(read) if letter not in "\n\t" and unicodedata.category(letter) in ("Cf", "Cc")]
    return re.sub(r"[ \t]{1,1000}", " ", read.casefold().translate(dict.fromkeys(map(ord, hidden))))
