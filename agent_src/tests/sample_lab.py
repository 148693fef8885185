"""The sample session as its tests run it: scripted model, files server and a log that fails on purpose."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from agent_lab import QUESTION, ScriptedModel, make_agent, make_settings, never, unix_toolbox
from faulty_hec import FaultyHec
from glasslab import pins, samples
from glasslab.agent import Outcome
from glasslab.scripted import load_script
from opens import Opens, opens_in
from tool_servers import running_parent

SAMPLES = Path(samples.__file__).parent
REPORT, POLICY = "incident-report-2026-09.md", "access-policy.md"

TRACE_FRAMES = """agent.start server.start mcp.{agreed} mcp.tools_list llm.request llm.response agent.decision
mcp.call_tool.request server.list_files mcp.call_tool.result llm.request llm.response agent.decision
mcp.call_tool.request server.path_check server.read_file mcp.call_tool.result mcp.call_tool.request server.path_check
server.read_file mcp.call_tool.result llm.request llm.response agent.decision agent.final"""

COMMITS = [
    "agent.start session.start",
    "server.start",
    "mcp.{agreed} mcp.tools_list llm.request",
    "llm.response llm agent.decision mcp.call_tool.request",
    "server.list_files",
    "mcp.call_tool.result toolcall llm.request",
    "llm.response llm agent.decision mcp.call_tool.request",
    "server.path_check",
    "server.read_file",
    "mcp.call_tool.result toolcall mcp.call_tool.request",
    "server.path_check",
    "server.read_file",
    "mcp.call_tool.result toolcall llm.request",
    "llm.response llm agent.decision agent.final session.end",
]
SUMMARY_COMMITS = ["session.start", "llm", "toolcall", "llm", "toolcall", "toolcall", "llm session.end"]


@dataclass
class Lab:
    """Model, files servers and log; `ask` puts the sample question. `url` is the log's, as both writers know it."""

    hec: FaultyHec
    model: ScriptedModel
    opens: Opens
    folder: Path
    ca: Path
    url: str

    def ask(self, trace: str, revision: str = "auto", deadline: float = 20.0, provider: str = "openai") -> Outcome:
        settings = make_settings(
            self.hec,
            self.ca,
            self.model.url,
            hec_url=self.url,
            lab_trace=trace,
            hec_deadline=deadline,
            model_provider=provider,
        )
        name = f"{trace}-{deadline:g}.sock"
        agent = make_agent(settings, unix_toolbox(self.folder / name, revision), pins.read_lock())
        try:
            return agent.ask(QUESTION, never())
        finally:
            agent.close()

    def forget(self) -> None:
        """Begin the records of model and documents anew."""
        self.model.forget()
        self.opens.names()

    @contextmanager
    def serving(self, trace: str, deadline: float = 20.0, program: str = "") -> Iterator[None]:
        """Run the files server for `ask` with the same two."""
        environment = {
            "HEC_URL": self.url,
            "HEC_CA": str(self.ca),
            "HEC_TOKEN_MCP": "token-of-the-server",
            "HEC_DEADLINE": str(deadline),
            "LAB_DOCUMENTS": str(self.folder / "documents"),
            "LAB_TRACE": trace,
            "SIGNING_KEY_MCP": str(self.folder / "mcp.pem"),
        }
        with running_parent(self.folder / f"{trace}-{deadline:g}.sock", environment, program=program):
            yield


@contextmanager
def sample_lab(folder: Path, hec: FaultyHec, ca: Path, host: str = "127.0.0.1") -> Iterator[Lab]:
    """A lab without a files server yet; its documents are its own, so that nobody else opens them."""
    shutil.copytree(SAMPLES / "documents", folder / "documents")
    load_script("sample")  # its own check of the file
    model = ScriptedModel(yaml.safe_load((SAMPLES / "sample.yml").read_text()), folder)
    opens = opens_in(folder / "documents")
    try:
        yield Lab(hec, model, opens, folder, ca, hec.url.replace("127.0.0.1", host))
    finally:
        opens.close()
        model.stop()
