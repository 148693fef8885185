"""What is asked of the agent at once: a question, the session that it goes on with, and what stands beside it.

Put together from a command line, or from the JSON in which the service takes it, and checked before anything happens:
whoever may ask is not yet to be believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from glasslab.queries import session_search
from glasslab.statuses import MAX_QUESTION_CHARACTERS, question_problem

MAX_RESOURCES: Final = 20
MAX_ARGUMENTS: Final = 50
_SHOWN: Final = 60  # characters of what is quoted


class InquiryError(ValueError):
    """What is asked cannot be understood or is too large; the text is one line with the remedy."""


@dataclass(frozen=True, slots=True)
class Attached:
    """A prompt, as NAME or SERVER/NAME, with its arguments; resources, as URI or SERVER/URI."""

    prompt: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    resources: Sequence[str] = ()

    @property
    def named(self) -> dict[str, Any]:
        """What a session's first frames say of it; nothing when nothing is attached."""
        prompt = {"prompt": self.prompt, "prompt_arguments": dict(self.arguments)} if self.prompt else {}
        return prompt | ({"resources": list(self.resources)} if self.resources else {})


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question (it may be empty beside a prompt), the id of the session that it goes on with, what is attached."""

    question: str
    session: str | None = None
    attached: Attached = field(default_factory=Attached)

    @property
    def problem(self) -> str | None:
        """Why the question cannot be asked, as one line with the remedy, or None."""
        return question_problem(self.question) if self.question or not self.attached.prompt else None

    def __post_init__(self) -> None:
        """Raises InquiryError for an id that cannot be one."""
        if self.session is not None:
            try:
                session_search(self.session)
            except ValueError as error:
                raise InquiryError(str(error)) from None

    def as_json(self) -> dict[str, Any]:
        """Return it as the service takes it (`inquiry`)."""
        beside = self.attached
        prompt = {"prompt": {"name": beside.prompt, "arguments": dict(beside.arguments)}} if beside.prompt else {}
        resources = {"resources": list(beside.resources)} if beside.resources else {}
        session = {"session": self.session} if self.session is not None else {}
        return {"question": self.question, **session, **prompt, **resources}


def attached(prompt: Sequence[str] | None, resources: Sequence[str]) -> Attached:
    """Return what the command line attaches: NAME KEY=VALUE ..., and URIs. Raises InquiryError."""
    name, *words = prompt or [""]
    arguments: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise InquiryError(f"--prompt: {word[:_SHOWN]!r} is no KEY=VALUE; put the question before --prompt")
        if key in arguments:
            raise InquiryError(f"--prompt: {key[:_SHOWN]!r} is given twice; keep one")
        arguments[key] = value
    return _checked(Attached(name if prompt else None, arguments, tuple(resources)))


def inquiry(request: Mapping[str, Any]) -> Inquiry:
    """Return what a JSON object asks.

    `question` is text; beside it may stand `session` (an id), `prompt` (an object with `name` and `arguments`, texts by
    their names) and `resources` (a list of addresses). Raises InquiryError.
    """
    question, session = request.get("question", ""), request.get("session")
    prompt, resources = request.get("prompt"), request.get("resources", [])
    if not isinstance(question, str) or not isinstance(session, str | None):
        raise InquiryError("question and session are texts; send them so")
    if not isinstance(resources, list) or not all(isinstance(uri, str) for uri in resources):
        raise InquiryError('resources is a list of addresses; send "resources": ["..."]')
    if prompt is None:
        return Inquiry(question, session, _checked(Attached(resources=tuple(resources))))
    name, arguments = (prompt.get("name"), prompt.get("arguments", {})) if isinstance(prompt, dict) else (None, None)
    texts = isinstance(arguments, dict) and all(isinstance(value, str) for value in arguments.values())
    if not isinstance(name, str) or not texts:
        raise InquiryError('prompt is an object; send "prompt": {"name": "...", "arguments": {"...": "..."}}')
    return Inquiry(question, session, _checked(Attached(name, arguments or {}, tuple(resources))))


def _checked(given: Attached) -> Attached:
    texts = [given.prompt or "", *given.arguments, *given.arguments.values(), *given.resources]
    if any("\ud800" <= character <= "\udfff" for text in texts for character in text):
        raise InquiryError("a prompt and resources are valid UTF-8; check the terminal's encoding")
    if given.prompt is not None and not given.prompt.strip():
        raise InquiryError("a prompt needs a name; `glasslab pin` shows the prompts of the servers")
    if len(given.arguments) > MAX_ARGUMENTS:
        raise InquiryError(f"a prompt takes at most {MAX_ARGUMENTS} arguments, not {len(given.arguments)}; give fewer")
    if len(given.resources) > MAX_RESOURCES or not all(given.resources):
        many = f"{len(given.resources)} resources are given, or an empty one"
        raise InquiryError(f"{many}; give 1 to {MAX_RESOURCES} addresses")
    if (size := sum(map(len, texts))) > MAX_QUESTION_CHARACTERS:
        raise InquiryError(
            f"the prompt with its arguments and the resources' addresses have {size} characters; "
            f"at most {MAX_QUESTION_CHARACTERS}: put the rest in a document"
        )
    return given
