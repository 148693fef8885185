"""The sample session's documents and script, to the published counts, sizes and order."""

import json
from typing import Any

import yaml

from glasslab import samples
from glasslab.scripted import load_script

REPORT = samples.DOCUMENTS / "incident-report-2026-09.md"
POLICY = samples.DOCUMENTS / "access-policy.md"


def turns() -> list[dict[str, Any]]:
    script: dict[str, Any] = yaml.safe_load(samples.SCRIPT.read_text(encoding="utf-8"))
    assert script["model"] == "openai/gpt-5.6-luna"
    return list(script["turns"])


def calls(turn: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in turn["message"]["tool_calls"]]


def test_folder_holds_the_two_documents_and_their_list_is_43_characters() -> None:
    names = sorted(path.name for path in samples.DOCUMENTS.iterdir())
    assert names == ["access-policy.md", "incident-report-2026-09.md"]
    assert len("\n".join(names)) == 43


def test_report_is_625_bytes_and_623_characters_with_one_em_dash() -> None:
    data = REPORT.read_bytes()
    text = data.decode("utf-8")
    assert (len(data), len(text)) == (625, 623)
    assert [c for c in text if ord(c) > 127] == ["\N{EM DASH}"]
    for needed in ("allow-list", "supplier", "hidden instructions", "invoice", "outside address"):
        assert needed in text


def test_policy_is_360_bytes_of_ascii() -> None:
    assert len(POLICY.read_bytes().decode("ascii")) == 360


def test_turn_1_lists_the_files() -> None:
    turn = turns()[0]
    assert turn["message"]["content"] is None
    assert calls(turn) == [("list_files", {})]
    assert turn["finish_reason"] == "tool_calls"
    assert turn["usage"]["prompt_tokens"] == 136
    assert turn["usage"]["reasoning_tokens"] == 13


def test_turn_2_reads_both_in_one_reply() -> None:
    turn = turns()[1]
    assert turn["message"]["content"] is None
    assert calls(turn) == [("read_file", {"path": REPORT.name}), ("read_file", {"path": POLICY.name})]
    assert turn["usage"]["prompt_tokens"] == 173


def test_turn_3_is_the_answer_of_217_characters() -> None:
    turn = turns()[2]
    assert "tool_calls" not in turn["message"]
    assert len(turn["message"]["content"]) == 217
    assert "allow-list" in turn["message"]["content"]
    assert turn["finish_reason"] == "stop"
    assert turn["usage"]["prompt_tokens"] == 446


def test_three_turns_with_distinct_tool_ids() -> None:
    assert len(load_script("sample").turns) == 3
    ids = [call["id"] for turn in turns() for call in turn["message"].get("tool_calls", [])]
    assert len(ids) == len(set(ids)) == 3
    assert all(i.startswith("call_") and len(i) == 29 for i in ids)
