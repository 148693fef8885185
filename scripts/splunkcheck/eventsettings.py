"""What the .conf files may hold on how events are kept and read (see reference.py): indexes, props, transforms."""

from __future__ import annotations

from typing import Final

from splunkcheck.settingtypes import ALIAS, EVAL, NAMES, POSITIVE, REGEX, SED, TEXT, UNSIGNED, Keys, keys

# What a transform may write: nothing else is a key of an event on its way into an index.
_WRITTEN: Final = (
    "_raw|_meta|_time|queue|linecount|MetaData:Host|MetaData:Source|MetaData:Sourcetype|_MetaData:Index"
    "|_TCP_ROUTING|_SYSLOG_ROUTING|_HTTPOUT_ROUTING|INDEX_AND_FORWARD_ROUTING"
)
INDEX: Final = keys(
    boolean="disabled enableDataIntegrityControl enableTsidxReduction",
    unsigned="""
        maxWarmDBCount maxHotIdleSecs homePath.maxDataSizeMB coldPath.maxDataSizeMB quarantinePastSecs
        quarantineFutureSecs rotatePeriodInSecs timePeriodInSecBeforeTsidxReduction
    """,
    positive="frozenTimePeriodInSecs maxTotalDataSizeMB",
    place="homePath coldPath thawedPath tstatsHomePath coldToFrozenDir",
    text="coldToFrozenScript",
    choices={
        "datatype": "event|metric",
        "journalCompression": "gzip|lz4|zstd",
        "maxDataSize": f"{POSITIVE} auto auto_high_volume",
        "maxHotBuckets": f"{POSITIVE} auto",
        "maxHotSpanSecs": "integer 3600 4294967295",
        "minHotIdleSecsBeforeForceRoll": f"{UNSIGNED} auto",
        "repFactor": "0|auto",
        "tsidxWritingLevel": "integer 1 4",
    },
)
PROPS: Final = keys(
    boolean="""
        AUTO_KV_JSON SHOULD_LINEMERGE KV_TRIM_SPACES EVENT_BREAKER_ENABLE NO_BINARY_CHECK pulldown_type
        ANNOTATE_PUNCT CHECK_FOR_HEADER BREAK_ONLY_BEFORE_DATE
    """,
    unsigned="LINE_BREAKER_LOOKBEHIND TRUNCATE MATCH_LIMIT DEPTH_LIMIT priority",
    positive="MAX_EVENTS",
    times="TIME_FORMAT",
    zone="TZ",
    charset="CHARSET",
    some="rename",
    text="SEGMENTATION category description",
    regex="LINE_BREAKER TIME_PREFIX EVENT_BREAKER BREAK_ONLY_BEFORE MUST_BREAK_AFTER",
    choices={
        "KV_MODE": "none|auto|auto_escaped|multi|json|xml",
        "ADD_EXTRA_TIME_FIELDS": "none|subseconds|all|true|false",
        "INDEXED_EXTRACTIONS": "csv|tsv|psv|w3c|json|hec",
        "DATETIME_CONFIG": "CURRENT|NONE|/etc/datetime.xml",
        "MAX_DAYS_AGO": "integer 0 10951",
        "MAX_DAYS_HENCE": "integer 0 10950",
        "MAX_TIMESTAMP_LOOKAHEAD": "integer -1 4294967295",
    },
)
PROPS_CLASSES: Final[Keys] = {
    r"EVAL-[A-Za-z_][\w.{}]*": EVAL, r"EXTRACT-[\w-]+": REGEX, r"REPORT-[\w-]+": NAMES, r"TRANSFORMS-[\w-]+": NAMES,
    r"FIELDALIAS-[\w-]+": ALIAS, r"LOOKUP-[\w-]+": TEXT, r"SEDCMD-[\w-]+": SED,
}  # fmt: skip
TRANSFORMS: Final = keys(
    boolean="""
        case_sensitive_match batch_index_query allow_caching check_permission WRITE_META MV_ADD CLEAN_KEYS
        KEEP_EMPTY_VALS CAN_OPTIMIZE REPEAT_MATCH replicate
    """,
    unsigned="min_offset_secs max_offset_secs LOOKAHEAD MATCH_LIMIT DEPTH_LIMIT",
    text="""
        filename collection external_cmd default_match time_field filter FORMAT DELIMS FIELDS DEFAULT_VALUE
    """,
    times="time_format",
    match="match_type",
    regex="REGEX",
    evals="INGEST_EVAL",
    fields="fields_list",
    choices={
        "external_type": "python|executable|kvstore|geo|geo_hex",
        "max_matches": "integer 1 1000",
        "min_matches": "integer 0 1000",
        "DEST_KEY": _WRITTEN,
        "SOURCE_KEY": "source key",
    },
)
