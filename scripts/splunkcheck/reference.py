"""The settings that a .conf file may hold, written from Splunk's public reference of its configuration files (10.x).

Not all of them: those of the files and stanzas that an app like this one, or this lab's role, writes. What is missing
here and right is added here, with its type; that is the moment at which somebody looks it up.
"""

from __future__ import annotations

import re
from typing import Final

# How a value is checked (values.py). Others are a fixed choice: "a|b|c".
BOOL, INT, TEXT, REGEX, EVAL, SPL = "boolean", "integer", "text", "regex", "eval", "spl"
NAME, NAMES, TIME, CRON, FIELDS = "name", "names", "time", "cron", "fields"

Keys = dict[str, str]


def _keys(choices: Keys | None = None, **named: str) -> Keys:
    """Return keys by their types: `_keys(boolean="disabled useACK", choices={"KV_MODE": "none|json"})`."""
    found = {key: "eval" if kind == "evals" else kind for kind, keys in named.items() for key in keys.split()}
    return found | (choices or {})


_INDEX: Final = _keys(
    boolean="disabled enableDataIntegrityControl enableTsidxReduction",
    integer="""
        frozenTimePeriodInSecs maxTotalDataSizeMB maxWarmDBCount maxHotSpanSecs maxHotIdleSecs
        homePath.maxDataSizeMB coldPath.maxDataSizeMB quarantinePastSecs quarantineFutureSecs rotatePeriodInSecs
        tsidxWritingLevel timePeriodInSecBeforeTsidxReduction
    """,
    text="""
        homePath coldPath thawedPath maxDataSize maxHotBuckets tstatsHomePath coldToFrozenDir coldToFrozenScript
        repFactor minHotIdleSecsBeforeForceRoll
    """,
    choices={
        "datatype": "event|metric",
        "journalCompression": "gzip|lz4|zstd",
    },
)
_PROPS: Final = _keys(
    boolean="""
        AUTO_KV_JSON SHOULD_LINEMERGE KV_TRIM_SPACES EVENT_BREAKER_ENABLE NO_BINARY_CHECK pulldown_type
        ANNOTATE_PUNCT
    """,
    integer="""
        LINE_BREAKER_LOOKBEHIND TRUNCATE MAX_EVENTS MAX_TIMESTAMP_LOOKAHEAD MAX_DAYS_AGO MAX_DAYS_HENCE
        MATCH_LIMIT DEPTH_LIMIT
    """,
    text="CHARSET TIME_FORMAT TZ DATETIME_CONFIG SEGMENTATION category description rename",
    regex="LINE_BREAKER TIME_PREFIX EVENT_BREAKER",
    choices={
        "KV_MODE": "none|auto|auto_escaped|multi|json|xml",
        "ADD_EXTRA_TIME_FIELDS": "none|subseconds|all|true|false",
        "INDEXED_EXTRACTIONS": "csv|tsv|psv|w3c|json|hec",
    },
)
_PROPS_CLASSES: Final[Keys] = {
    r"EVAL-[A-Za-z_][\w.{}]*": EVAL, r"EXTRACT-[\w-]+": REGEX, r"REPORT-[\w-]+": NAMES, r"TRANSFORMS-[\w-]+": NAMES,
    r"FIELDALIAS-[\w-]+": TEXT, r"LOOKUP-[\w-]+": TEXT, r"SEDCMD-[\w-]+": TEXT,
}  # fmt: skip
_TRANSFORMS: Final = _keys(
    boolean="""
        case_sensitive_match batch_index_query allow_caching check_permission WRITE_META MV_ADD CLEAN_KEYS
        KEEP_EMPTY_VALS CAN_OPTIMIZE REPEAT_MATCH replicate
    """,
    integer="max_matches min_matches max_offset_secs min_offset_secs LOOKAHEAD MATCH_LIMIT DEPTH_LIMIT",
    text="""
        filename collection external_cmd external_type default_match match_type time_field time_format filter
        FORMAT DEST_KEY SOURCE_KEY DELIMS FIELDS DEFAULT_VALUE
    """,
    regex="REGEX",
    evals="INGEST_EVAL",
    fields="fields_list",
)
_SAVED: Final = _keys(
    boolean="""
        disabled enableSched is_visible is_scheduled realtime_schedule run_on_startup restart_on_searchpeer_add
        dispatch.lookups dispatch.spawn_process dispatch.indexedRealtime dispatch.rt_backfill alert.digest_mode
        alert.suppress auto_summarize
    """,
    integer="""
        max_concurrent run_n_times dispatch.max_count dispatch.max_time dispatch.buckets dispatch.auto_cancel
        dispatch.sample_ratio quantity alert.severity
    """,
    text="""
        description schedule_window vsid allow_skew dispatch.ttl alert_condition alert_type alert_comparator
        alert_threshold alert.expires alert.suppress.period alert.managedBy
    """,
    spl="search",
    name="request.ui_dispatch_app request.ui_dispatch_view displayview",
    names="actions",
    time="dispatch.earliest_time dispatch.latest_time dispatch.index_earliest dispatch.index_latest",
    cron="cron_schedule",
    fields="alert.suppress.fields",
    choices={
        "schedule_priority": "default|higher|highest",
        "counttype": "number of events|number of hosts|number of sources|custom|always",
        "relation": "greater than|less than|equal to|not equal to|drops by|rises by",
        "alert.track": "true|false|1|0|auto",
    },
)
_SAVED_CLASSES: Final[Keys] = {
    r"action\.[a-z_]+": BOOL, r"action\.[a-z_]+\.[\w.]+": TEXT, r"display\.[\w.]+": TEXT, r"args\.[A-Za-z_]\w*": TEXT,
}  # fmt: skip
_ROLE: Final = _keys(
    boolean="srchFilterSelecting",
    integer="""
        srchTimeWin srchTimeEarliest srchDiskQuota srchJobsQuota rtSrchJobsQuota cumulativeSrchJobsQuota
        cumulativeRTSrchJobsQuota
    """,
    text="srchFilter srchMaxTime",
    names="""
        importRoles grantableRoles srchIndexesAllowed srchIndexesDefault srchIndexesDisallowed
        deleteIndexesAllowed fieldFilterExemption
    """,
)
_HTTP_TOKEN: Final = _keys(
    boolean="disabled useACK allowQueryStringAuth",
    text="token host source sourcetype description s2s_indexes_validation outputgroup queueSize",
    name="index",
    names="indexes",
    choices={
        "connection_host": "ip|dns|proxied_ip|none",
    },
)
_HTTP: Final = _keys(
    boolean="""
        disabled enableSSL requireClientCert useDeploymentServer ackIdleCleanup sendStrictTransportSecurityHeader
    """,
    integer="port dedicatedIoThreads maxSockets maxThreads maxIdleTime max_content_length keepAliveIdleTimeout",
    text="""
        host source sourcetype outputgroup serverCert sslPassword sslVersions cipherSuite caCertFile acceptFrom
        crossOriginSharingPolicy
    """,
    name="index",
)

# file -> stanza's name (a pattern) -> keys; the first pattern that matches counts.
REFERENCE: Final[dict[str, list[tuple[str, Keys]]]] = {
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
        (r"[a-z0-9_][a-z0-9_-]*", _INDEX),
    ],
    "props.conf": [
        (r"(?:source|host)::.+|[\w:. -]+", _PROPS),
    ],
    "transforms.conf": [
        (r"[\w-]+", _TRANSFORMS),
    ],
    "macros.conf": [
        (
            r"[\w-]+(?:\(\d+\))?",
            _keys(
                boolean="iseval",
                text="definition errormsg description",
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
                integer="priority",
                text="description tags color",
                spl="search",
            ),
        ),
    ],
    "savedsearches.conf": [
        (r"[^\[\]]+", _SAVED),
    ],
    "authorize.conf": [
        ("tokens_auth", _keys(boolean="disabled", text="expiration ephemeralExpiration")),
        (r"role_[a-z0-9_.-]+", _ROLE),
    ],
    "limits.conf": [
        (
            "kv",
            _keys(
                integer="""
                    maxchars limit maxcols max_mem_usage_mb avg_extractor_time max_extractor_time indexed_kv_limit
                """,
            ),
        ),
        (
            "spath",
            _keys(
                boolean="extract_all",
                integer="extraction_cutoff",
            ),
        ),
        (
            "http_input",
            _keys(
                integer="""
                    max_content_length max_number_of_tokens max_number_of_acked_requests_pending_query
                    max_number_of_ack_channel max_number_of_acked_requests_pending_query_per_ack_channel
                    metrics_report_interval
                """,
            ),
        ),
    ],
    "inputs.conf": [
        ("http", _HTTP),
        (r"http://[\w.-]+", _HTTP_TOKEN),
    ],
    "server.conf": [
        (
            "sslConfig",
            _keys(
                boolean="""
                    enableSplunkdSSL sslVerifyServerCert sslVerifyServerName requireClientCert cliVerifyServerName
                """,
                text="serverCert sslRootCAPath sslPassword sslVersions",
            ),
        ),
        (
            "general",
            _keys(
                text="serverName sessionTimeout pass4SymmKey trustedIP",
                choices={
                    "allowRemoteLogin": "always|never|requireSetPassword",
                    "listenOnIPv6": "yes|no|only",
                },
            ),
        ),
        (
            "diskUsage",
            _keys(
                integer="pollingFrequency pollingTimerFrequency",
                text="minFreeSpace",
            ),
        ),
        (
            "httpServer",
            _keys(
                boolean="disableDefaultPort",
                integer="max_content_length",
                text="acceptFrom mgmtMode",
            ),
        ),
        (
            "license",
            _keys(
                text="manager_uri",
                choices={
                    "active_group": "Enterprise|Trial|Forwarder|Free",
                },
            ),
        ),
    ],
    "web.conf": [
        (
            "settings",
            _keys(
                boolean="enableSplunkWebSSL startwebserver enable_insecure_login",
                integer="httpport tools.sessions.timeout",
                text="""
                    mgmtHostPort serverCert privKeyPath server.socket_host login_content updateCheckerBaseURL
                    acceptFrom
                """,
            ),
        ),
    ],
}
CLASSES: Final[dict[str, Keys]] = {
    "props.conf": _PROPS_CLASSES, "savedsearches.conf": _SAVED_CLASSES, "app.conf": {r"reload\.[\w.-]+": TEXT},
}  # fmt: skip
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "indexes.conf": ("homePath", "coldPath", "thawedPath"), "macros.conf": ("definition",),
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
    return _PROPS if file == "props.conf" and stanza == "default" else None


def type_of(file: str, keys: Keys, key: str) -> str | None:
    """Return how a key's value is checked, or None when there is no such key."""
    if key in keys:
        return keys[key]
    return next((kind for pattern, kind in CLASSES.get(file, {}).items() if re.fullmatch(pattern, key)), None)
