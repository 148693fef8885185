"""A scripted model, for the demo, tests and attacks. It speaks OpenAI's chat completions and Anthropic's Messages.

A script is YAML:

    model: openai/gpt-5.6-luna     # optional; the name in replies (default: what the request asks for)
    repeat_last: false             # optional; true: the last turn is also every turn after it
    each_question: false           # optional; true: the turns begin anew with each question of a conversation
    strict: false                  # optional; true: refuse what the real APIs refuse in a conversation (HTTP 400)
    turns:
      - message: {content: null, tool_calls: [...]}   # a verbatim reply, in either API's form; role is added
        finish_reason: tool_calls                     # optional, default stop
        usage: {prompt_tokens: 136, completion_tokens: 29, reasoning_tokens: 13}   # optional
        delay: 0.2                                    # optional, seconds before the answer
      - content: [{type: text, text: "..."}]          # or a verbatim reply of Anthropic Messages, for that API alone
        stop_reason: end_turn                         # optional
        usage: {input_tokens: 136, output_tokens: 29} # optional
      - status: 429                                   # or a raw HTTP answer
        headers: {Retry-After: "1"}                   # optional
        body: {"error": {"message": "slow down"}}     # text as it is, anything else as JSON
        delay: 0.2                                    # optional, seconds before the answer
        drip: 0.5                                     # optional, seconds before each byte of the body
      - fault: reset                                  # or a fault: reset or hang_up in place of an answer; with an
                                                      # answer beside it, cut: half of its body
      - [{status: 503}, {message: {content: "..."}}]  # or several: when the same request comes again, the next one

    when:                                             # optional; each comes before any of the turns
      - last: "Shorten it"                            # for a request whose last message holds this text
        message: {content: "..."}                     # and then what a turn has

A reply is streamed when the request asks for that. Which turn is served follows from the conversation: the number of
assistant messages in the request. So any number of sessions can run at once, and a restart in the middle of one does
not matter.
"""

from glasslab.scripted.script import Script, ScriptError, Turn, load_script, parse_script, parse_turn
from glasslab.scripted.server import ScriptedServer

__all__ = ["Script", "ScriptError", "ScriptedServer", "Turn", "load_script", "parse_script", "parse_turn"]
