"""The HEC contract, tests/splunk/hec_contract.yml, against the collector. (`make verify-splunk`: a live Splunk.)"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loglab import ACK_TOKEN, AGENT_TOKEN, DISABLED_TOKEN, Lab, start_lab

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "splunk"))

from contract import PUBLISHED, Stored, Target, cases, faults_of_stored, run  # found by the line above

CASES = cases()
TOKENS = {"agent": AGENT_TOKEN, "ack": ACK_TOKEN, "disabled": DISABLED_TOKEN}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start_lab(tmp_path_factory.mktemp("contract") / "splunk")
    yield lab
    lab.stop()


def test_the_contract_is_of_published_behaviour() -> None:
    bases = Counter(case["basis"] for case in CASES)
    assert set(bases) == {*PUBLISHED, "inferred"}
    assert sum(bases[basis] for basis in PUBLISHED) >= 60
    assert len({case["name"] for case in CASES}) == len(CASES)


def test_what_a_case_stores_is_found_by_its_mark() -> None:
    for case in CASES:
        assert all("{m}" in str(item) for item in case.get("stored", [])), case["name"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(lab: Lab, case: dict[str, Any]) -> None:
    before = len(lab.rows())
    target = Target(lab.hec_url, TOKENS, "agents", str(lab.ca), is_collector=True)
    done = run(case, target, f"mark{before}")
    found = [Stored(*row) for row in lab.rows('raw, time, host, source, sourcetype, "index"')[before:]]
    assert done.faults + faults_of_stored(done, found) == []
