-- Glasslab: frames cut off
SELECT moment(min(time)) AS started, session_id, group_concat(DISTINCT component) AS writers,
    max(clock) - count(DISTINCT clock) AS missing
FROM chains WHERE clock IS NOT NULL AND component IN ('agent', 'mcp')
GROUP BY session_id HAVING max(clock) > count(DISTINCT clock) ORDER BY min(time) DESC
