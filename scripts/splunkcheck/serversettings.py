"""What the .conf files of a Splunk itself may hold, of those that this lab's role writes (see reference.py)."""

from __future__ import annotations

from typing import Final

from splunkcheck.settingtypes import Keys
from splunkcheck.settingtypes import keys as _keys

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

SETTINGS: Final[dict[str, list[tuple[str, Keys]]]] = {
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
