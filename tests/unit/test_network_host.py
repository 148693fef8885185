"""What the preflight refuses of a host's packet filter."""

from __future__ import annotations

from pathlib import Path

import pytest

import preflight

PREFLIGHT = Path(__file__).resolve().parents[2] / "roles" / "network" / "files" / "preflight.py"
TOOLS = ("ifreload", "iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save", "nft", "ip")


@pytest.mark.parametrize("family", ["iptables", "ip6tables"])
def test_legacy_iptables_is_refused_with_the_remedy(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for tool in TOOLS:
        variant = "legacy" if tool == f"{family}-save" else "nf_tables"
        (tmp_path / tool).write_text(f"#!/bin/sh\necho '{tool} v1.8.11 ({variant})'\n", encoding="utf-8")
        (tmp_path / tool).chmod(0o755)
    assert preflight.tool_problems() == [
        f"{family}-save is the legacy variant, whose rules cannot be watched: "
        f"update-alternatives --set {family} /usr/sbin/{family}-nft"
    ]
