"""Fixtures for all: certificates, a HEC that can fail, and a home without anybody's settings."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_bench import ANSWER, Bench
from agent_lab import ScriptedModel, scripted_model
from faulty_hec import FaultyHec
from glasslab.collector.store import Store
from glasslab.settings import SearchSettings, ServerSettings, Settings
from glasslab.settings_approvals import OutboxSettings
from loglab import make_certificates


@dataclass
class Certificates:
    """A CA's file, and certificate with key for localhost and 127.0.0.1; `other` is the like of another CA."""

    ca: Path
    server: Path
    other: Path


@pytest.fixture(autouse=True)
def _this_process_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests call `main` in this process, which would then never be allowed a core again, nor its children."""
    monkeypatch.setattr("glasslab.cli.protect", lambda: None)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder / "other")
    return Certificates(make_certificates(folder), folder / "server.pem", folder / "other" / "server.pem")


@pytest.fixture(scope="session")
def running_hec(certificates: Certificates) -> Iterator[FaultyHec]:
    hec = FaultyHec(certificates.server, certificates.other, certificates.ca.with_name("name-gone"))
    yield hec
    hec.stop()


@pytest.fixture
def hec(running_hec: FaultyHec) -> FaultyHec:
    """A HEC that acknowledges everything until `reset` says otherwise."""
    running_hec.reset()
    return running_hec


@pytest.fixture
def clean_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and working directory, and an environment without settings of the lab's."""
    names = {
        field for kind in (Settings, ServerSettings, SearchSettings, OutboxSettings) for field in kind.model_fields
    }
    for name in list(os.environ):
        if name.removesuffix("_FILE").lower() in names or name.startswith("OPENAI_"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedModel]:
    with scripted_model({"turns": [ANSWER]}, tmp_path_factory.mktemp("model")) as model:
        yield model


@pytest.fixture
def bench(hec: FaultyHec, certificates: Certificates, model: ScriptedModel, clean_home: Path) -> Bench:
    return Bench(hec, certificates.ca, model)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of the collector's, with nothing in it."""
    store = Store(tmp_path / "events.sqlite3")
    yield store
    store.close()
