-- Glasslab: approvals
WITH asked AS (
    SELECT * FROM listed
    WHERE sourcetype = 'agent:session' AND kind IN ('approval.request', 'approval.decision')
    GROUP BY event_id
)
SELECT moment(min(time)) AS asked_at, session_id, group_concat(DISTINCT event ->> 'tool') AS tool,
    group_concat(DISTINCT event ->> 'server') AS server, group_concat(DISTINCT event ->> 'class') AS class,
    max(event -> 'arguments') AS asked, group_concat(DISTINCT event ->> 'caller') AS caller,
    coalesce(group_concat(DISTINCT event ->> 'decision'), 'none yet') AS decision,
    group_concat(DISTINCT event ->> 'how') AS how, group_concat(DISTINCT event ->> 'by') AS decided_by,
    group_concat(DISTINCT event ->> 'why') AS why, max(event ->> 'waited_seconds') AS waited_seconds,
    iif(count(DISTINCT event ->> 'sha256') > 1, 'what was decided on is NOT what was asked', '') AS changed
FROM asked GROUP BY session_id, event ->> 'tool_call_id' ORDER BY min(time) DESC
