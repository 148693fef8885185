-- Glasslab: delegated sessions
SELECT moment(time) AS time, session_id, event ->> 'parent_session_id' AS parent_session_id,
    event ->> 'parent_step' AS parent_step, event ->> 'parent_tool_call_id' AS parent_tool_call_id,
    event ->> 'status' AS status, event ->> 'turns' AS turns, event ->> '$.tokens.total' AS tokens,
    event ->> 'cost' AS cost
FROM listed
WHERE sourcetype = 'agent:session' AND kind = 'session.end' AND event ->> 'parent_session_id' IS NOT NULL
GROUP BY event_id ORDER BY listed.time DESC
