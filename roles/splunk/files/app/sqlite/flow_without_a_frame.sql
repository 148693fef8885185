-- Glasslab: flow without a frame
WITH chosen AS (
    SELECT * FROM listed
    WHERE (
        sourcetype = 'agent:network' AND kind = 'network.flow' AND event ->> 'verdict' = 'allowed'
        AND coalesce(event ->> 'flow', '') != 'log' AND coalesce(event ->> 'flow', '') NOT LIKE 'resolver%'
    )
    OR (sourcetype = 'agent:session' AND kind IN ('session.start', 'session.end', 'service.start'))
    GROUP BY event_id
),
placed AS (
    SELECT *, iif(kind = 'network.flow', event ->> 'last', time) AS at,
        CASE kind WHEN 'session.start' THEN 1 WHEN 'session.end' THEN -1 ELSE 0 END AS change,
        CASE kind WHEN 'session.end' THEN time + 2 WHEN 'service.start' THEN time + 10 END AS ended
    FROM chosen
),
around AS (
    SELECT *, sum(change) OVER so_far AS open, max(ended) OVER so_far AS last_ended FROM placed
    WINDOW so_far AS (ORDER BY at, change DESC ROWS UNBOUNDED PRECEDING)
)
SELECT moment(at) AS time, event ->> 'flow' AS flow, event ->> 'source' AS source_address,
    event ->> 'source_port' AS source_port, event ->> 'destination' AS destination,
    event ->> 'destination_port' AS destination_port, event ->> 'count' AS count
FROM around
WHERE kind = 'network.flow' AND open <= 0 AND (last_ended IS NULL OR at > last_ended) ORDER BY at DESC
