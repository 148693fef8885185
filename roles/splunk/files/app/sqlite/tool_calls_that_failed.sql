-- Glasslab: tool calls that failed
SELECT moment(time) AS time, session_id, event ->> 'step' AS step, event ->> 'tool' AS tool,
    event -> 'arguments' AS asked, event -> 'refused' AS refused, event -> 'is_error' AS is_error,
    event ->> 'duration_ms' AS duration_ms
FROM frames
WHERE sourcetype = 'agent:toolcall' AND kind = 'toolcall'
    AND (event -> 'is_error' = 'true' OR event -> 'refused' = 'true')
GROUP BY event_id ORDER BY frames.time DESC
