"""The walls are not too tight: questions are answered, and nothing that the agent's machine does for them is denied.

Ten questions by default; with GLASSLAB_SOAK=1 as many as go into ten minutes. What is denied is counted by the rules
themselves: every DROP of ours has a counter.
"""

from __future__ import annotations

import json
import os
import re
import time

from isolationtools import pve
from labtools import ask
from logsigns import Witness

SECONDS = 600 if os.environ.get("GLASSLAB_SOAK") else 0
AT_LEAST = 10
QUESTION = "What was the root cause of the September incident?"


def denied() -> dict[str, int]:
    """Packets that each denying rule of ours has met, of frames with the guests' own addresses."""
    found: dict[str, int] = {}
    for tool in ("iptables", "ip6tables"):
        for line in pve(f"{tool}-save -c").splitlines():
            if rule := re.match(r"\[(\d+):\d+\] (-A GLASSLAB-\S+.* -j DROP)$", line):
                found[f"{tool} {rule[2]}"] = int(rule[1])
    assert found, "no denying rule is there"
    return found


def test_no_question_meets_a_denying_rule() -> None:
    """And the bridge's own rules, which count nothing, wrote no line of a denied frame.

    But of IPv6: the guests' own kernels announce themselves now and then, whether anybody asks a question or not.
    """
    log = "cat /var/log/glasslab/flows.json.1 /var/log/glasslab/flows.json 2>/dev/null"
    lines = f"{log} | grep '\"glasslab denied bridge\"' | grep -vc '\"oob.protocol\": 34525' || :"
    Witness.settled()  # what was denied before is written a moment later
    before, written = denied(), int(pve(lines))
    until, answered = time.monotonic() + SECONDS, 0
    while answered < AT_LEAST or time.monotonic() < until:
        done, result = ask(QUESTION)
        assert done.returncode == 0, f"after {answered} answers: {done.stderr}"
        assert result["status"] == "answered", json.dumps(result)
        answered += 1
    Witness.settled()
    after = denied()
    print(f"{answered} questions answered in {time.monotonic() - until + SECONDS:.0f} s, nothing denied")
    assert {rule: after[rule] - count for rule, count in before.items() if after.get(rule) != count} == {}
    assert int(pve(lines)) == written
