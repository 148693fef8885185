"""The Splunk app: it has no fault, what is made from it is up to date, and the checker finds a fault of each kind."""

import re
import shutil
from pathlib import Path

import pytest

from glasslab.statuses import EXIT_CODES
from splunkcheck import app, docs
from splunkcheck.conffile import read

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "roles/splunk/files/app"
SAVED = "default/savedsearches.conf"
VIEW = "default/data/ui/views/session.xml"
OVERVIEW = "default/data/ui/views/overview.xml"
NAV = "default/data/ui/nav/default.xml"
PROPS = "default/props.conf"
ROLES = "default/authorize.conf"
META = "metadata/default.meta"
MACROS = "default/macros.conf"
TABLES = "default/transforms.conf"
TYPES = "default/eventtypes.conf"
TECHNIQUES = "lookups/glasslab_techniques.csv"
DETECTIONS = "lookups/glasslab_detections.csv"
# The file, what stands there, what stands there instead, and what the checker says.
FAULTS = {
    "unknown key": (SAVED, "dispatch.latest_time = now", "dispatch.latest_tiem = now", "dispatch.latest_tiem is no setting"),
    "key in another case": (PROPS, "KV_MODE = json", "kv_mode = json", "it is written KV_MODE"),
    "no such choice": (PROPS, "KV_MODE = json", "KV_MODE = jsn", "is none of none, auto"),
    "boolean": (PROPS, "SHOULD_LINEMERGE = false", "SHOULD_LINEMERGE = flase", "is no boolean"),
    "number": (PROPS, "TRUNCATE = 1048576", "TRUNCATE = 1MB", "is no whole number"),
    "frames cut": (PROPS, "TRUNCATE = 1048576", "TRUNCATE = 10000", "cuts a trace frame"),
    "regex": (PROPS, r"([\r\n]+)", r"([\r\n+)", "is no regular expression"),
    "regex without its group": (PROPS, r"([\r\n]+)", r"[\r\n]+", "has no group"),
    "eval in props": (PROPS, "strftime(_time,", "strftime((_time,", "is no expression"),
    "sourcetype nobody writes": (PROPS, "[agent:llm]", "[agent:lm]", "is no sourcetype of the vocabulary"),
    "sourcetype without props": (PROPS, "[agent:llm]", "[agent:lm]", "sourcetype agent:llm of the vocabulary has no stanza"),
    "time": (SAVED, "dispatch.earliest_time = -25h", "dispatch.earliest_time = 25 hours", "is no time modifier"),
    "stanza twice": (SAVED, "[Glasslab: receipts]", "[Glasslab: denied]", "is there twice"),
    "stanza not closed": (SAVED, "[Glasslab: receipts]", "[Glasslab: receipts", "bracket is not closed"),
    "no assignment": (SAVED, "dispatch.latest_time = now", "dispatch.latest_time now", "sets nothing"),
    "blank behind a backslash": (SAVED, "| dedup event_id \\\n", "| dedup event_id \\ \n", "a blank behind a backslash"),
    "bracket": (SAVED, "count(eval(kind=\"llm\"))", "count(eval(kind=\"llm\")", "is not closed"),
    "bracket too many": (SAVED, "mvjoin(tools, \" > \")", "mvjoin(tools, \" > \"))", "closes nothing"),
    "pipe without command": (SAVED, "| dedup event_id", "| | dedup event_id", "a pipe has no command"),
    "quote": (SAVED, "kind=\"guardrail\"", "kind=\"guardrail", "quote is not closed"),
    "command": (SAVED, "| streamstats ", "| streamstat ", "streamstat is no command"),
    "function": (SAVED, "tostring(", "to_string(", "to_string() is no function"),
    "arguments of a function": (SAVED, "sha256(_raw)", "sha256(_raw, 1)", "takes 1 arguments, not 2"),
    "case without its last value": (SAVED, "true(), 0)", "true())", "pairs of a condition and a value"),
    "aggregate": (SAVED, "dc(session_id)", "dcount(session_id)", "dcount() is no aggregate function"),
    "option": (SAVED, "current=f", "curent=f", "has no option curent"),
    "two operators": (SAVED, "open<=0", "open<=", "where a value is due"),
    "field": (SAVED, "prompt_tokens", "prompt_token", "there is no field prompt_token"),
    "field of another kind": (SAVED, "stage action tool found", "stage action verdict found", "there is no field verdict"),
    "field inside a field": (SAVED, "tokens.total", "tokens.totals", "there is no totals in tokens"),
    "field that was left out": (SAVED, "| sort 0 seen - started", "| sort 0 seen - clock", "there is no field clock left"),
    "kind": (SAVED, "kind=\"guardrail\"", "kind=\"gardrail\"", "kind is never 'gardrail'"),
    "kind in an expression": (SAVED, "case(kind=\"session.start\"", "case(kind=\"session.begin\"", "kind is never"),
    "kind of another sourcetype": (SAVED, "sourcetype=\"agent:toolcall\" kind=\"toolcall\"", "sourcetype=\"agent:llm\" kind=\"toolcall\"",
                                   "are not of sourcetype agent:llm"),
    "status": (TYPES, "max_cost_reached", "max_costs_reached", "status is never"),
    "no index": (SAVED, "search `glasslab_index` clock=*", "search clock=*", "names no index"),
    "index that is not there": (SAVED, "index=agents", "index=agent", "there is no index agent"),
    "bare word": (SAVED, "kind=\"guardrail\"", "guardrail", "is a bare word"),
    "and in small letters": (SAVED, "\"resolver*\")) OR", "\"resolver*\")) or", "write OR"),
    "macro": (SAVED, "`glasslab_rare`", "`glasslab_seldom`", "macro glasslab_seldom does not exist"),
    "macro's arguments": (SAVED, "`glasslab_time(first_seen)`", "`glasslab_time`", "there is glasslab_time(1)"),
    "macro's own arguments": (MACROS, "args = field", "args = field, form", "takes 1 arguments and args names 2"),
    "macro nobody uses": (MACROS, "[glasslab_genesis]", "[glasslab_genes]", "[glasslab_genes] no search uses it"),
    "lookup": (SAVED, "| lookup glasslab_tools ", "| lookup glasslab_tool ", "there is no lookup glasslab_tool"),
    "column": (SAVED, "OUTPUT description_sha256", "OUTPUT description_hash", "has no column description_hash"),
    "lookup's file": (TABLES, "glasslab_tools.csv", "glasslab_tool.csv", "there is no lookups/glasslab_tool.csv"),
    "values in a row": (TECHNIQUES, "LLM03,OWASP LLM 2025,Supply Chain", "LLM03,Supply Chain", "2 values under 3 columns"),
    "row twice": (TECHNIQUES, "LLM04,OWASP LLM 2025,Data and Model Poisoning", "LLM05,OWASP LLM 2025,Improper Output Handling", "the same as line"),
    "technique": (DETECTIONS, "refused paths,ASI02", "refused paths,ASI22", "ASI22 is no technique"),
    "detection": (DETECTIONS, "Glasslab: refused paths,LLM06", "Glasslab: refused path,LLM06", "is no saved search"),
    "pipe in an event type": (TYPES, "kind=\"guardrail\"", "kind=\"guardrail\" | head 1", "has no pipe"),
    "token nobody told of": (SAVED, "session_id=\"...\"\n", "session=\"...\"\n", "$session_id$ is not told of"),
    "JSON": (VIEW, "\"visualizations\": {", "\"visualizations\": {,", "no JSON"),
    "XML": (VIEW, "</label>", "</labl>", "no XML"),
    "data source": (VIEW, "\"primary\": \"ds_frames\"", "\"primary\": \"ds_frame\"", "there is no data source ds_frame"),
    "data source for nobody": (VIEW, "\"primary\": \"ds_frames\"", "\"primary\": \"ds_calls\"", "ds_frames feeds nothing"),
    "visualization": (VIEW, "splunk.scatter", "splunk.scater", "splunk.scater is no visualization"),
    "layout": (VIEW, "\"item\": \"viz_frames\"", "\"item\": \"viz_frame\"", "there is no visualization viz_frame"),
    "panels over each other": (VIEW, "\"y\": 170", "\"y\": 100", "covers"),
    "token without an input": (VIEW, "$session_id$", "$session$", "$session$ is set by no input"),
    "saved search of a view": (OVERVIEW, "Glasslab: cost by session", "Glasslab: costs by session", "there is no saved search"),
    "view of a drilldown": (OVERVIEW, "\"dashboard\": \"session\"", "\"dashboard\": \"sessions\"", "leads to view glasslab/sessions"),
    "token of a drilldown": (OVERVIEW, "\"token\": \"session_id\"", "\"token\": \"session\"", "has no input for"),
    "row of a drilldown": (OVERVIEW, "row.session_id.value", "row.session.value", "takes session of a row"),
    "query of a view": (OVERVIEW, "sum(tokens.total)", "sum(token.total)", "there is no field token.total"),
    "view in the navigation": (NAV, "name=\"receipts\"", "name=\"receipt\"", "it leads to view receipt"),
    "view left out": (NAV, "  <view name=\"receipts\"/>\n", "", "view receipts is not in the navigation"),
    "capability": (ROLES, "get_typeahead = enabled", "get_typeaheads = enabled", "get_typeaheads is no setting, and no capability"),
    "capability too strong": (ROLES, "get_typeahead = enabled", "edit_user = enabled", "no capability that a role here may have"),
    "capability disabled": (ROLES, "get_typeahead = enabled", "get_typeahead = disabled", "a capability is enabled, or not there"),
    "role": (ROLES, "importRoles = glasslab_viewer", "importRoles = glasslab_view", "which does not exist"),
    "role too strong": (ROLES, "importRoles = glasslab_viewer", "importRoles = power", "may do more than it needs"),
    "every index": (ROLES, "srchIndexesAllowed = agents", "srchIndexesAllowed = *", "is more than it needs"),
    "role in the metadata": (META, "glasslab_analyst ]", "glasslab_annalist ]", "there is no role glasslab_annalist"),
    "export": (META, "export = none", "export = global", "is neither none nor system"),
    "version": ("default/app.conf", "version = 0.1.0", "version = 0.1", "is not MAJOR.MINOR.PATCH"),
    "place of an index": ("default/indexes.conf", "thawedPath = ", "thawPath = ", "[agents] has no thawedPath"),
    "retention": ("default/indexes.conf", "frozenTimePeriodInSecs = 31536000", "frozenTimePeriodInSecs = 0", "keeps nothing"),
}  # fmt: skip


def test_the_app_has_no_fault() -> None:
    assert [str(finding) for finding in app.check(APP)] == []


def test_what_is_made_from_it_is_up_to_date() -> None:
    assert docs.stale(ROOT, APP) == []


@pytest.mark.parametrize(("file", "old", "new", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found(file: str, old: str, new: str, said: str, tmp_path: Path) -> None:
    shutil.copytree(APP, tmp_path / "app")
    place = tmp_path / "app" / file
    text = place.read_text(encoding="utf-8")
    assert old in text
    place.write_text(text.replace(old, new), encoding="utf-8")
    found = [str(finding) for finding in app.check(tmp_path / "app")]
    assert any(line.startswith(file) and said in line for line in found), found


def test_the_limits_are_those_that_end_a_session_with_exit_code_3() -> None:
    definition = read(APP / MACROS, MACROS)[0].stanzas["glasslab_limits"].get("definition")
    assert set(re.findall(r'"(\w+)"', definition)) == {status for status, code in EXIT_CODES.items() if code == 3}


def test_the_published_search_is_there_word_by_word() -> None:
    saved = read(APP / SAVED, SAVED)[0].stanzas["Glasslab: rebuild a session"]
    assert saved.get("search") == 'search index=agents session_id="$session_id$" | sort 0 _time'


def test_every_search_is_in_the_page() -> None:
    page = (ROOT / "docs/searches.md").read_text(encoding="utf-8")
    names = read(APP / SAVED, SAVED)[0].stanzas
    assert [name for name in names if f"### {name.removeprefix('Glasslab: ')}\n" not in page] == []
