-- Glasslab: runs that hit a limit
SELECT moment(time) AS time, session_id, event ->> 'status' AS status, event ->> 'reason' AS reason,
    event ->> 'turns' AS turns, event ->> '$.tokens.total' AS tokens, event ->> 'cost' AS cost
FROM listed
WHERE sourcetype = 'agent:session' AND kind = 'session.end'
    AND event ->> 'status' IN (SELECT value FROM json_each(:glasslab_limits))
GROUP BY event_id ORDER BY listed.time DESC
