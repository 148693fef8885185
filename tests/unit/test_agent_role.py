"""The agent's role: it gives every setting of glasslab's or leaves it out for a reason, and each arrives as meant."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template

from glasslab.settings import ServerSettings, Settings

ROLE = Path(__file__).parents[2] / "roles/agent"
REQUIRED = {
    "agent_model_base_url": "https://model.example/v1",
    "agent_model_api_key": "k",
    "agent_hec_url": "https://10.10.10.20:8088",
    "agent_hec_tokens": {"agent": "a", "mcp": "m"},
    "agent_hec_ca": "/ca.crt",
    "agent_verify_keys": "/keys",
    "ansible_managed": "Ansible managed",
}
# Settings that the role gives to no unit, and why.
LEFT_OUT = {
    "HEC_TOKEN_MCP": "the tool server's own, which the agent must not have",
    "SIGNING_KEY": "keys are made by the role and given as files that exist",
    "SIGNING_KEY_MCP": "the tool server's own",
    "SIGNING_KEY_MCP_FILE": "the tool server's own",
    "LAB_DOCUMENTS": "the tool server's own: the agent has no documents",
    "LAB_NOTES": "the notes server's own",
    "LAB_SPANS": "spans would be a further way out of the appliance, and their SDK is not in its lock",
    "LAB_OUTBOX": "the outbox's own",
    "MAX_TOOLS": "for `glasslab pin`, which runs in a checkout",
    "TOOL_MIX": "for `glasslab pin`, which runs in a checkout",
}


def loaded(name: str) -> dict[str, Any]:
    values = DataLoader().load_from_file(str(ROLE / name), trusted_as_template=True)
    return dict(values)


def variables(**given: Any) -> dict[str, Any]:
    return {**loaded("defaults/main.yml"), **loaded("vars/main.yml"), **REQUIRED, **given}


def rendered(template: str, **given: Any) -> str:
    loader = DataLoader()
    loader.set_basedir(str(ROLE / "templates"))
    templar = Templar(loader=loader, variables={**variables(**given), "playbook_dir": str(ROLE / "templates")})
    templar = templar.copy_with_new_env(searchpath=[str(ROLE / "templates")])
    text = (ROLE / "templates" / template).read_text(encoding="utf-8")
    return str(templar.template(trust_as_template(text), escape_backslashes=False))


def environment(unit: str) -> dict[str, str]:
    """What systemd makes of a unit's Environment= lines: quotes, C escapes, and %% for %."""
    found = {}
    for line in unit.splitlines():
        if not line.startswith("Environment="):
            continue
        for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line.removeprefix("Environment=")):
            text = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), quoted) if quoted else plain
            name, _, value = text.replace("%d/", "/credentials/").replace("%%", "%").partition("=")
            found[name] = value
    return found


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Settings]:
    """Load the settings as the agent's unit would."""

    def loading(**given: Any) -> Settings:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        for name in Settings.model_fields:
            monkeypatch.delenv(name.upper(), raising=False)
        for name, value in environment(rendered("glasslab-agent.service.j2", **given)).items():
            if name not in ("HEC_CA", "MODEL_CA") and not name.endswith("_FILE"):  # files of the machine's
                monkeypatch.setenv(name, value)
        return Settings.load(hec_token="t", model_api_key="k")

    return loading


def test_every_setting_is_given_or_left_out_for_a_reason() -> None:
    more = {"agent_approval_rules": [{"then": "ask"}], "agent_mcp_servers": {"x": {"url": "https://x.example"}}}
    given = (
        variables(**more)["agent_environment"].keys()
        | environment(rendered("glasslab-agent.service.j2", **more)).keys()
    )
    given = {name.removesuffix("_FILE") if name != "SIGNING_KEY_FILE" else name for name in given}
    settings = {name.upper() for name in Settings.model_fields}
    assert settings - given == LEFT_OUT.keys()
    assert given - settings == set(), "a name that glasslab does not know"


def test_the_tool_server_gets_all_of_its_settings() -> None:
    given = environment(rendered("glasslab-files.service.j2"))
    names = {name.upper() for name in ServerSettings.model_fields} - {"SIGNING_KEY_MCP"}
    assert {name.replace("TOKEN_MCP_FILE", "TOKEN_MCP") for name in given} == names


def test_the_roles_defaults_are_glasslabs(load: Callable[..., Settings]) -> None:
    made = load()
    for name, field in Settings.model_fields.items():
        if not field.is_required() and name.upper() not in {
            *LEFT_OUT,
            "HEC_CA",
            "MODEL_CA",
            "MCP_SERVER",
            "SIGNING_KEY_FILE",
        }:
            expected = "k" if name == "model_api_key" else field.default
            found = made.model_api_key.get_secret_value() if name == "model_api_key" else getattr(made, name)
            assert found == expected, name


def test_values_arrive_as_they_were_meant(load: Callable[..., Settings]) -> None:
    prompt = 'Say "100 %", \\ and $HOME.\nNothing else; %d stays. # no comment'
    made = load(
        agent_system_prompt=prompt,
        agent_model_prices="m=0.25/2, *=3/15",
        agent_max_cost=0.5,
        agent_max_tool_calls=0,
        agent_delegate_tools=["list_files", "read_file"],
        agent_tool_classes={"a/b": "pay", "c/*": "read"},
        agent_outbox=True,
        agent_outbox_recipients=["*@lab.example", "anna@other.example"],
        agent_approvers=["root"],
        agent_mark_results=False,
    )
    assert made.system_prompt == prompt
    assert (made.max_cost, made.max_tool_calls, made.model_prices) == (0.5, 0, "m=0.25/2, *=3/15")
    assert (made.tool_classes, made.delegate_tools) == ("a/b=pay, c/*=read", "list_files,read_file")
    assert (made.outbox_server, made.weather_server) == ("unix:/run/glasslab-outbox/mcp.sock", "off")
    assert (made.outbox_recipients, made.mark_results) == ("*@lab.example,anna@other.example", "no")
    assert made.approver_ids >= {0}


def test_secrets_and_rules_are_credentials() -> None:
    unit = rendered(
        "glasslab-agent.service.j2",
        agent_approval_rules=[{"then": "ask"}],
        agent_mcp_servers={"notes": {"url": "https://x.example"}},
        agent_mcp_credentials={"notes": "geheim"},
    )
    for name in ("model_api_key", "hec_token", "signing_key", "approval_rules", "mcp_servers", "mcp_notes"):
        assert f"LoadCredential={name}:/etc/glasslab/agent/{name}\n" in unit
    assert "APPROVAL_RULES=%d/approval_rules\n" in unit
    assert "geheim" not in unit
    assert "PrivateUsers=yes" not in unit, "who asks and who approves would be nobody"


@pytest.mark.parametrize(("name", "network"), [("notes", False), ("outbox", False), ("weather", True)])
def test_a_tool_server_is_a_user_of_its_own_with_no_more_network_than_it_needs(name: str, network: bool) -> None:
    unit = rendered("glasslab-tool@.service.j2", item=name, agent_outbox_recipients=["*@lab.example"])
    assert f"User=glasslab-{name}\n" in unit
    assert f"ExecStart=/opt/glasslab/venv/bin/glasslab-mcp {name} --stdio\n" in unit
    assert ("PrivateNetwork=yes" in unit) is not network
    # It answers openat2 with ENOSYS, by which the notes are opened.
    assert ("\nRestrictSUIDSGID=yes\n" in unit) is (name != "notes")
    assert "TOKEN" not in unit
    assert "LoadCredential" not in unit
    door = rendered("glasslab-tool.socket.j2", item=name)
    assert {"SocketUser=glasslab-agent", "SocketGroup=root", "SocketMode=0600"} <= set(door.splitlines())


def test_what_is_off_by_default_is_off() -> None:
    defaults = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    assert [defaults[f"agent_{name}"] for name in ("notes", "outbox", "weather")] == [False] * 3


@pytest.mark.parametrize("inventory", ["local", "proxmox"])
def test_the_weathers_flow_is_there_and_off(inventory: str) -> None:
    folder = ROLE.parents[1] / "inventories" / inventory / "group_vars"
    loader = DataLoader()
    flows = loader.load_from_file(str(folder / "hypervisor.yml"), trusted_as_template=True)["network_flows"]
    (flow,) = [one for one in flows if one["name"] == "weather"]
    assert (flow["names"], flow["ports"]) == (["geocoding-api.open-meteo.com", "api.open-meteo.com"], [443])
    for on, modes in ((False, []), (True, ["allowlist", "open"])):
        assert Templar(loader=loader, variables={"lab_weather": on}).template(flow["modes"]) == modes
    place = folder / ("all.yml" if inventory == "local" else "all/main.yml")
    assert loader.load_from_file(str(place))["lab_weather"] is False


@pytest.mark.parametrize(
    ("key", "token", "refused"),
    [
        ("sk-or-v1-0", "0123-abcd", []),
        ("", "0123-abcd\n", []),
        ("the key's own words", "0123-abcd", ["agent_model_api_key"]),
        ("sk-\u00e4", "0123 abcd", ["agent_model_api_key", "agent_hec_tokens.agent"]),
        ("k", "", ["agent_hec_tokens.agent"]),
    ],
)
def test_a_secret_that_no_header_can_carry_is_told_by_its_name_alone(key: str, token: str, refused: list[str]) -> None:
    check = yaml.safe_load((ROLE / "tasks/credentials.yml").read_text(encoding="utf-8"))[0]
    assert check["ansible.builtin.assert"]["that"] == "item.fits"
    given = variables(agent_model_api_key=key, agent_hec_tokens={"agent": token, "mcp": "m"})
    templar = Templar(loader=DataLoader(), variables=given)
    rows = {one["name"]: templar.template(trust_as_template(one["fits"])) for one in check["loop"]}
    assert [name for name, fits in rows.items() if not fits] == refused
    # What is shown of a row that does not fit holds no secret.
    assert all(set(one) == {"name", "fits"} for one in check["loop"])


@functools.cache
def find_lookups() -> None:
    """As ansible-playbook does when it begins; a second time would be warned of."""
    init_plugin_loader()


def files(name: str, **given: Any) -> dict[str, dict[str, Any]]:
    """A list of files that the role puts on the machine, by their places."""
    find_lookups()
    where = {"role_path": str(ROLE), "ansible_search_path": [str(ROLE)]}
    templar = Templar(loader=DataLoader(), variables={**variables(**given), **where})
    listed = templar.template(trust_as_template(f"{{{{ {name} }}}}"))
    assert len({one["dest"] for one in listed}) == len(listed)
    return {one["dest"]: one for one in listed}


def test_secrets_and_settings_arrive_as_roots_files() -> None:
    rules, servers = [{"then": "ask"}], {"notes": {"url": "https://x.example"}}
    made = files(
        "agent_secret_files",
        agent_approval_rules=rules,
        agent_mcp_servers=servers,
        agent_mcp_credentials={"notes": "geheim"},
    )
    assert {one["mode"] for one in made.values()} == {"0600"}
    assert all(one["content"].endswith("\n") for one in made.values())
    held = {dest.removeprefix("/etc/glasslab/"): one["content"].rstrip("\n") for dest, one in made.items()}
    assert json.loads(held.pop("agent/approval_rules")) == {"rules": rules}
    assert json.loads(held.pop("agent/mcp_servers")) == {"mcpServers": servers}
    assert held == {
        "agent/model_api_key": "k",
        "agent/hec_token": "a",
        "mcp/hec_token": "m",
        "agent/mcp_notes": "geheim",
    }


def test_what_is_not_given_is_no_file() -> None:
    assert files("agent_secret_files").keys() == {
        "/etc/glasslab/agent/model_api_key",
        "/etc/glasslab/agent/hec_token",
        "/etc/glasslab/mcp/hec_token",
    }
    assert files("agent_tool_files") == {}


def test_a_ca_that_serves_both_is_installed_once(tmp_path: Path) -> None:
    (tmp_path / "hec.crt").write_text("the log's\n")
    (tmp_path / "model.crt").write_text("the model's\n")
    log, model = str(tmp_path / "hec.crt"), str(tmp_path / "model.crt")

    def held(**given: str) -> dict[str, str]:
        made = files("agent_ca_files", **given)
        assert {one["mode"] for one in made.values()} == {"0644"}
        return {dest: one["content"] for dest, one in made.items()}

    assert held(agent_hec_ca=log, agent_model_ca="") == {"/etc/glasslab/ca/hec.crt": "the log's\n"}
    assert held(agent_hec_ca=log, agent_model_ca=log) == {"/etc/glasslab/ca/hec.crt": "the log's\n"}
    assert held(agent_hec_ca=log, agent_model_ca=model) == {
        "/etc/glasslab/ca/hec.crt": "the log's\n",
        "/etc/glasslab/ca/model.crt": "the model's\n",
    }


def test_the_units_are_the_templates() -> None:
    units = ["glasslab-agent.service", "glasslab-files.service", "glasslab-files.socket"]
    made = files("agent_unit_files")
    assert {dest.removeprefix("/etc/systemd/system/") for dest in made} == set(units)
    for name in units:
        one = made[f"/etc/systemd/system/{name}"]
        assert one["mode"] == "0644"
        assert one["content"].splitlines()[1:] == rendered(f"{name}.j2").splitlines()[1:], "but for ansible_managed"


def test_each_tool_server_that_is_on_has_a_socket_and_a_service_of_its_own() -> None:
    made = files("agent_tool_files", agent_notes=True, agent_weather=True)
    places = [
        f"/etc/systemd/system/glasslab-{name}{kind}"
        for name in ("notes", "weather")
        for kind in (".socket", "@.service")
    ]
    assert list(made) == places
    assert "ListenStream=/run/glasslab-notes/mcp.sock\n" in made[places[0]]["content"]
    assert "glasslab-mcp weather --stdio\n" in made[places[3]]["content"]
    assert {one["mode"] for one in made.values()} == {"0644"}
