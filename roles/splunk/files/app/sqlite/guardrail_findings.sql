-- Glasslab: guardrail findings
SELECT moment(time) AS time, session_id, event ->> 'step' AS step, event ->> 'stage' AS stage,
    event ->> 'action' AS action, event ->> 'tool' AS tool, event -> 'findings' AS found
FROM listed WHERE sourcetype = 'agent:session' AND kind = 'guardrail'
GROUP BY event_id ORDER BY listed.time DESC
