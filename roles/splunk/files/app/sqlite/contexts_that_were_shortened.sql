-- Glasslab: contexts that were shortened
SELECT moment(time) AS time, session_id, event ->> 'step' AS step, event ->> 'how' AS how, event ->> 'before' AS before,
    event ->> 'after' AS after, event ->> 'limit' AS "limit", event ->> 'replaced_count' AS replaced_count,
    event ->> 'reason' AS reason
FROM listed WHERE sourcetype = 'agent:session' AND kind = 'context.reduced'
GROUP BY event_id ORDER BY listed.time DESC
