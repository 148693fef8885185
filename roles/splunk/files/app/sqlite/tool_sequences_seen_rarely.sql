-- Glasslab: tool sequences seen rarely
WITH called AS (
    SELECT * FROM frames WHERE sourcetype = 'agent:toolcall' AND kind = 'toolcall' GROUP BY event_id
),
sequences AS (
    -- A window, not an aggregate: only there is the order of what is joined said.
    SELECT DISTINCT session_id, min(time) OVER whole AS started, count(*) OVER whole AS calls,
        group_concat(event ->> 'tool', ' > ') OVER whole AS sequence
    FROM called WHERE session_id IS NOT NULL
    WINDOW whole AS (PARTITION BY session_id ORDER BY clock ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
),
counted AS (SELECT *, count(*) OVER (PARTITION BY sequence) AS seen FROM sequences)
SELECT moment(started) AS started, session_id, calls, sequence, seen
FROM counted WHERE seen <= :glasslab_rare ORDER BY seen, counted.started DESC
