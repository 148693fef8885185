"""Each secret also comes from a file, whether it has to be there or not."""

from pathlib import Path

import pytest

from glasslab.settings import SearchSettings, ServerSettings, Settings, VerifierSettings
from glasslab.settings_sources import LabSettings, is_secret

READERS: list[type[LabSettings]] = [Settings, ServerSettings, SearchSettings, VerifierSettings]
SECRETS = [(reader, name) for reader in READERS for name, field in reader.model_fields.items() if is_secret(field)]


def test_the_secrets_are_these() -> None:
    names = {"model_api_key", "hec_token", "hec_token_mcp", "hec_token_verify", "splunk_token"}
    assert {name for _, name in SECRETS} == names


@pytest.mark.parametrize(("reader", "secret"), SECRETS)
def test_a_secret_comes_from_its_file(
    reader: type[LabSettings], secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "HOME": str(tmp_path),
        "HEC_URL": "https://127.0.0.1:8088",
        "HEC_TOKEN": "t",
        "HEC_TOKEN_MCP": "t",
        "HEC_TOKEN_VERIFY": "t",
        "MODEL_BASE_URL": "https://127.0.0.1/v1",
        "MODEL": "m",
        "SPLUNK_URL": "https://127.0.0.1:8089",
        "SPLUNK_TOKEN": "t",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(secret.upper(), raising=False)
    (tmp_path / "secret").write_text("from-the-file\n")
    (tmp_path / "secret").chmod(0o600)
    monkeypatch.setenv(f"{secret.upper()}_FILE", str(tmp_path / "secret"))
    value = getattr(reader.load(), secret)
    assert value.get_secret_value() == "from-the-file"
