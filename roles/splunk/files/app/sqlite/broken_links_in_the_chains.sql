-- Glasslab: broken links in the chains
WITH hashed AS (
    SELECT time, session_id, component, seq, kind, event ->> 'prev' AS prev, frame_hash(raw) AS hash FROM chains
),
versions AS (
    SELECT min(time) AS time, session_id, component, seq, kind, prev, hash FROM hashed
    GROUP BY session_id, component, seq, hash
),
linked AS (
    SELECT *, lag(hash) OVER one_chain AS expected, lag(seq) OVER one_chain AS before FROM versions
    WINDOW one_chain AS (PARTITION BY session_id, component ORDER BY seq)
)
SELECT moment(time) AS time, session_id, component, seq, kind, prev, expected FROM linked
WHERE (seq = 1 AND prev != :glasslab_genesis) OR (seq = before + 1 AND prev != expected)
ORDER BY session_id, component, seq
