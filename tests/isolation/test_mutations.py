"""Every part of the walls matters: taken away, or widened, it is noticed, or another layer is shown to hold.

A sample by default, at least one mutant of each kind and as many as fit into its seconds; its seed is printed, and
GLASSLAB_SEED repeats it. GLASSLAB_SOAK=1: all of them, in two modes.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterable

import pytest

import firewalls
from isolationtools import LOADER, pve
from modes import hypervisor_in
from mutationbench import TOPOLOGIES, Bench, Result
from mutations import Mutant, enumerate_mutants

SOAK = bool(os.environ.get("GLASSLAB_SOAK"))
SECONDS = 20.0


def sample(mutants: list[Mutant], seed: int) -> list[Mutant]:
    """All in a random order that begins with one of each kind."""
    shuffled = random.Random(seed).sample(mutants, len(mutants))
    first = list({mutant.kind: mutant for mutant in shuffled}.values())
    return [*first, *(mutant for mutant in shuffled if mutant not in first)]


def judged(bench: Bench, mutants: Iterable[Mutant], until: float) -> list[Result]:
    """What became of them, topology by topology, as far as the time goes; of each kind the first in any case."""
    results: list[Result] = []
    chosen = list(mutants)
    kinds = len({mutant.kind for mutant in chosen})
    with bench.prepared():
        for wave, deadline in ((chosen[:kinds], float("inf")), (chosen[kinds:], until)):
            for topology in TOPOLOGIES:
                here = [mutant for mutant in wave if mutant.topology == topology]
                if not here or time.monotonic() > deadline:
                    continue
                with bench.topology(topology):
                    for mutant in here:
                        if time.monotonic() < deadline:
                            results.append(bench.judge(mutant))
    return results


@pytest.mark.parametrize("mode", ["allowlist", "open"] if SOAK else ["allowlist"])
def test_each_part_matters(mode: str) -> None:
    seed = int(os.environ.get("GLASSLAB_SEED") or time.time())
    with hypervisor_in(mode):
        firewalls.carry_over()
        mutants = enumerate_mutants()
        order = mutants if SOAK else sample(mutants, seed)
        results = judged(Bench(mode), order, float("inf") if SOAK else time.monotonic() + SECONDS)
        pve(f"rm -rf {firewalls.THERE}")
        assert pve(f"{LOADER} check") == "as loaded\n"
    counts = Counter(result.verdict for result in results)
    print(f"mode {mode}, seed {seed}: {len(results)} of {len(mutants)} mutants: {dict(counts)}")
    print("\n".join(result.line() for result in results))
    assert {mutant.kind for mutant in mutants} == {result.mutant.kind for result in results}
    assert counts["caught"] >= len(results) // 3
    survivors = [result.line() for result in results if result.verdict == "survived"]
    assert survivors == []
