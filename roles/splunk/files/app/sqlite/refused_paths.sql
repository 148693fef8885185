-- Glasslab: refused paths
WITH refused AS (
    SELECT * FROM frames
    WHERE (sourcetype = 'agent:trace' AND instr(raw, '"server.path_check"') AND kind = 'server.path_check'
            AND event -> 'inside_sandbox' = 'false')
        OR (sourcetype = 'agent:toolcall' AND kind = 'toolcall.refused')
    GROUP BY event_id
)
SELECT moment(min(time)) AS refused, session_id, group_concat(DISTINCT event ->> 'tool') AS tool,
    event ->> 'requested_path' AS requested_path, group_concat(DISTINCT event ->> 'resolved_path') AS resolved_path,
    group_concat(DISTINCT event ->> 'reason') AS reason, count(*) AS frames
FROM refused GROUP BY session_id, event ->> 'requested_path' ORDER BY min(time) DESC
