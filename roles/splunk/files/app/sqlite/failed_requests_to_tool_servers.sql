-- Glasslab: failed requests to tool servers
WITH failed AS (
    SELECT * FROM frames WHERE sourcetype = 'agent:toolcall' AND kind = 'mcp.failed' GROUP BY event_id
)
SELECT event ->> 'server' AS server, event ->> 'request' AS request, count(*) AS attempts,
    count(DISTINCT session_id) AS sessions, moment(max(time)) AS last_seen
FROM failed GROUP BY 1, 2 ORDER BY attempts DESC
