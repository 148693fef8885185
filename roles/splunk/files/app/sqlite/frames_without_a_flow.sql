-- Glasslab: frames without a flow
WITH chosen AS (
    SELECT * FROM frames
    WHERE (sourcetype = 'agent:llm' AND kind = 'llm')
    OR (
        sourcetype = 'agent:network' AND kind = 'network.flow' AND event ->> 'verdict' = 'allowed'
        AND event ->> 'flow' IN ('model', 'internet')
    )
    GROUP BY event_id
),
spans AS (
    SELECT id, session_id, kind = 'network.flow' AS is_flow,
        iif(kind = 'network.flow', event ->> 'first' - 2, time - (event ->> 'duration_ms') / 1000.0) AS began,
        iif(kind = 'network.flow', event ->> 'last', time) AS ended
    FROM chosen
),
fresh AS (
    SELECT *, max(ended) OVER (ORDER BY began, is_flow DESC, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        AS before
    FROM spans
),
chained AS (
    SELECT *, sum(before IS NULL OR began - before > 32)
        OVER (ORDER BY began, is_flow DESC, id ROWS UNBOUNDED PRECEDING) AS chain
    FROM fresh
),
counted AS (
    SELECT *, sum(is_flow) OVER (PARTITION BY chain ORDER BY began, is_flow DESC, id ROWS UNBOUNDED PRECEDING) AS flows
    FROM chained
)
SELECT session_id, moment(min(began)) AS first_call, count(*) AS calls FROM counted
WHERE NOT is_flow AND flows = 0 AND session_id IS NOT NULL GROUP BY session_id ORDER BY min(began) DESC
