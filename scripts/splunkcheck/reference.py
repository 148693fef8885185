"""The settings that a .conf file may hold, written from Splunk's public reference of its configuration files (10.x).

Not all of them: those of the files and stanzas that an app like this one, or this lab's role, writes. What is missing
here and right is added here, with its type; that is the moment at which somebody looks it up.
"""

from __future__ import annotations

import re
from typing import Final

from splunkcheck import eventsettings, serversettings
from splunkcheck.settingtypes import BOOL, DURATION, MAIL, MESSAGE, RELOAD, TEXT, TTL, UNSIGNED, URL, Keys
from splunkcheck.settingtypes import keys as _keys

_SAVED: Final = _keys(
    boolean="""
        disabled enableSched is_visible is_scheduled realtime_schedule run_on_startup restart_on_searchpeer_add
        dispatch.lookups dispatch.spawn_process dispatch.indexedRealtime dispatch.rt_backfill alert.digest_mode
        alert.suppress auto_summarize
    """,
    unsigned="""
        run_n_times dispatch.max_count dispatch.max_time dispatch.buckets dispatch.auto_cancel quantity
    """,
    positive="max_concurrent dispatch.sample_ratio",
    some="description",
    text="vsid alert.managedBy",
    ttl="dispatch.ttl",
    skew="allow_skew",
    duration="alert.expires alert.suppress.period",
    spl="search alert_condition",
    name="request.ui_dispatch_app request.ui_dispatch_view displayview",
    names="actions",
    time="dispatch.earliest_time dispatch.latest_time dispatch.index_earliest dispatch.index_latest",
    cron="cron_schedule",
    fields="alert.suppress.fields",
    choices={
        "alert.severity": "integer 1 6",
        "schedule_window": f"{UNSIGNED} auto",
        "schedule_priority": "default|higher|highest",
        "counttype": "number of events|number of hosts|number of sources|custom|always",
        "relation": "greater than|less than|equal to|not equal to|drops by|rises by",
        "alert.track": "true|false|1|0|auto",
    },
)
# The actions that Splunk brings itself.
_ACTION_NAMES: Final = "email logevent lookup output_telemetry populate_lookup rss script summary_index webhook"
ACTIONS: Final = tuple(_ACTION_NAMES.split())
_CHARTS: Final = "line|area|column|bar|pie|scatter|bubble|radialGauge|fillerGauge|markerGauge"
_SAVED_CLASSES: Final[Keys] = {
    r"action\.email\.(?:format|reportPaperSize)": "table|plain|html|raw|csv|a2|a3|a4|a5|letter|legal|ledger",
    r"action\.email\.priority": "integer 1 5", r"action\.email\.(?:to|cc|bcc|from)": MAIL,
    r"action\.email\.(?:send\w+|inline|use_ssl|use_tls|include\.\w+)": BOOL, r"action\.webhook\.param\.url": URL,
    r"action\.email\.(?:subject|message)(?:\.\w+)?": MESSAGE, r"action\.\w+\.maxresults": UNSIGNED,
    r"action\.\w+\.(?:maxtime|forwarded_time)": DURATION, r"action\.\w+\.track_alert": BOOL, r"action\.\w+\.ttl": TTL,
    rf"action\.(?:{'|'.join(ACTIONS)})": BOOL, rf"action\.(?:{'|'.join(ACTIONS)})\.[\w.]+": TEXT,
    r"display\.visualizations\.charting\.chart": _CHARTS,
    r"display\.visualizations\.charting\.legend\.placement": "right|left|top|bottom|none",
    r"display\.visualizations\.charting\.chart\.stackMode": "default|stacked|stacked100",
    r"display\.visualizations\.charting\.chart\.nullValueMode": "gaps|zero|connect",
    r"display\.visualizations\.charting\.chart\.showDataValues": "none|all|minmax",
    r"display\.visualizations\.charting\.axisTitle\w+\.visibility": "visible|collapsed",
    r"display\.visualizations\.charting\.axisY2?\.scale": "linear|log|inherit",
    r"display\.visualizations\.(?:show|trellis\.enabled)": BOOL,
    r"display\.visualizations\.type": "charting|singlevalue|mapping|custom",
    r"display\.general\.type": "events|statistics|visualizations",
    r"display\.(?:general|visualizations|statistics|events|page)\.[\w.]+": TEXT,
    r"args\.[A-Za-z_]\w*": TEXT,
}  # fmt: skip
_ROLE: Final = _keys(
    boolean="srchFilterSelecting",
    unsigned="srchDiskQuota srchJobsQuota rtSrchJobsQuota cumulativeSrchJobsQuota cumulativeRTSrchJobsQuota",
    text="srchFilter",
    listed="""
        importRoles grantableRoles srchIndexesAllowed srchIndexesDefault srchIndexesDisallowed
        deleteIndexesAllowed fieldFilterExemption
    """,
    choices={
        "srchTimeWin": "integer -1 4294967295",
        "srchTimeEarliest": "integer -1 4294967295",
        "srchMaxTime": DURATION,
    },
)
# file -> stanza's name (a pattern) -> keys; the first pattern that matches counts.
REFERENCE: Final[dict[str, list[tuple[str, Keys]]]] = {
    **serversettings.SETTINGS,
    "app.conf": [
        (
            "install",
            _keys(
                boolean="is_configured state_change_requires_restart allows_disable",
                integer="build",
                text="install_source_checksum",
                choices={
                    "state": "enabled|disabled",
                },
            ),
        ),
        (
            "launcher",
            _keys(
                boolean="remote_tab",
                text="author description version",
            ),
        ),
        (
            "package",
            _keys(
                boolean="check_for_updates show_upgrade_notification",
                text="docs_section_override",
                name="id",
            ),
        ),
        (
            "id",
            _keys(
                text="group version",
                name="name",
            ),
        ),
        (
            "ui",
            _keys(
                boolean="is_visible is_manageable show_in_nav",
                text="label docs_section_override attribution_link",
                name="setup_view",
                choices={
                    "supported_themes": "light|dark|light,dark",
                },
            ),
        ),
        ("triggers", {}),
    ],
    "indexes.conf": [
        (
            r"volume:[\w.-]+",
            _keys(place="path", positive="maxVolumeDataSizeMB", choices={"storageType": "local|remote"}),
        ),
        ("default", eventsettings.INDEX),
        (r"(?!.*kvstore)[a-z0-9_][a-z0-9_-]{0,79}", eventsettings.INDEX),
    ],
    "props.conf": [
        (r"(?:source|host)::.+|[\w:. -]+", eventsettings.PROPS),
    ],
    "transforms.conf": [
        (r"[\w-]+", eventsettings.TRANSFORMS),
    ],
    "macros.conf": [
        (
            r"[\w-]+(?:\(\d+\))?",
            _keys(
                boolean="iseval",
                some="definition",
                text="errormsg description",
                evals="validation",
                fields="args",
            ),
        ),
    ],
    "eventtypes.conf": [
        (
            r"[\w-]+",
            _keys(
                boolean="disabled",
                text="description tags",
                spl="search",
                choices={
                    "priority": "integer 1 10",
                    "color": "none|et_blue|et_green|et_magenta|et_orange|et_purple|et_red|et_sky|et_teal|et_yellow",
                },
            ),
        ),
    ],
    "tags.conf": [
        (r"[\w.:-]+=.+", {}),
    ],
    "savedsearches.conf": [
        (r"[^\[\]]+", _SAVED),
    ],
    "authorize.conf": [
        ("tokens_auth", _keys(boolean="disabled", text="expiration ephemeralExpiration")),
        (r"role_[a-z0-9_.-]+", _ROLE),
    ],
}
CLASSES: Final[dict[str, Keys]] = {
    "props.conf": eventsettings.PROPS_CLASSES, "savedsearches.conf": _SAVED_CLASSES,
    "app.conf": {r"reload\.[\w.-]+": RELOAD},
    "tags.conf": {r"[\w.:-]+": "enabled|disabled"},
}  # fmt: skip
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "macros.conf": ("definition",),
    "eventtypes.conf": ("search",), "savedsearches.conf": ("search", "description"),
}  # fmt: skip
# Capabilities that a role of people who search may have; none of them changes anybody else's things.
_CAPABILITIES: Final = """
accelerate_search change_own_password dispatch_rest_to_indexers edit_own_objects edit_search_schedule_priority
edit_search_schedule_window embed_report export_results_is_visible get_metadata get_typeahead input_file list_inputs
list_metrics_catalog list_settings list_tokens_own output_file pattern_detect read_internal_libraries_settings
request_remote_tok rest_apps_view rest_properties_get rest_properties_set rtsearch run_walklex schedule_rtsearch
schedule_search search search_process_config_refresh upload_lookup_files
"""
CAPABILITIES: Final = frozenset(_CAPABILITIES.split())
BUILT_IN_ROLES: Final = frozenset(("admin", "power", "user", "can_delete", "sc_admin", "*"))
BUILT_IN_INDEXES: Final = frozenset(("main", "history", "summary", "*", "_internal", "_audit", "_introspection", "_*"))


def keys_of(file: str, stanza: str) -> Keys | None:
    """Return what a stanza may hold, or None when the file has no such stanza."""
    for pattern, keys in REFERENCE.get(file, []):
        if re.fullmatch(pattern, stanza):
            return keys
    return eventsettings.PROPS if file == "props.conf" and stanza == "default" else None


def type_of(file: str, keys: Keys, key: str) -> str | None:
    """Return how a key's value is checked, or None when there is no such key."""
    if key in keys:
        return keys[key]
    return next((kind for pattern, kind in CLASSES.get(file, {}).items() if re.fullmatch(pattern, key)), None)
