-- Glasslab: failed model calls
WITH failed AS (
    SELECT * FROM frames WHERE sourcetype = 'agent:llm' AND kind = 'llm.failed' GROUP BY event_id
)
SELECT event ->> 'model' AS model, event ->> 'reason' AS reason, count(*) AS attempts,
    count(event ->> 'wait_seconds') AS retried, count(DISTINCT session_id) AS sessions, moment(max(time)) AS last_seen
FROM failed GROUP BY 1, 2 ORDER BY attempts DESC
