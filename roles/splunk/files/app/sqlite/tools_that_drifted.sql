-- Glasslab: tools that drifted
WITH drifted AS (
    SELECT * FROM frames
    WHERE (sourcetype = 'agent:session' AND kind = 'tools.drift')
        OR (sourcetype = 'agent:trace' AND instr(raw, '"mcp.tools_drift"') AND kind = 'mcp.tools_drift')
    GROUP BY event_id
)
SELECT moment(min(time)) AS seen, session_id, event ->> 'server' AS server, max(event -> 'changed') AS changed,
    max(event -> 'missing') AS missing, max(event -> 'extra') AS extra,
    max(event -> 'refused_characters') AS refused_characters,
    max(event -> 'instructions_changed') AS instructions_changed, max(event -> 'diff') AS diff
FROM drifted GROUP BY session_id, event ->> 'server' ORDER BY min(time) DESC
