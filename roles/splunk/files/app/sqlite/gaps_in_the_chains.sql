-- Glasslab: gaps in the chains
WITH numbers AS (
    SELECT min(time) AS time, session_id, component, seq, kind FROM chains GROUP BY session_id, component, seq
),
compared AS (
    SELECT *, coalesce(lag(seq) OVER (PARTITION BY session_id, component ORDER BY seq), 0) + 1 AS expected FROM numbers
)
SELECT moment(time) AS time, session_id, component,
    CASE WHEN seq = expected + 1 THEN expected ELSE expected || ' to ' || (seq - 1) END AS missing, kind
FROM compared WHERE seq > expected ORDER BY session_id, component, seq
