-- Glasslab: duplicates in the chains
WITH hashed AS (SELECT time, session_id, component, seq, kind, frame_hash(raw) AS hash FROM chains)
SELECT moment(min(time)) AS first_time, session_id, component, seq, count(*) AS copies,
    count(DISTINCT hash) AS versions, group_concat(DISTINCT kind) AS kinds,
    iif(count(DISTINCT hash) = 1, 'the same frame twice', 'two frames under one number') AS meaning
FROM hashed GROUP BY session_id, component, seq
HAVING count(DISTINCT hash) > 1 OR (count(*) > 1 AND component != 'hypervisor')
ORDER BY min(time) DESC
