-- Glasslab: lost by the hypervisor
WITH lost AS (
    SELECT * FROM listed WHERE sourcetype = 'agent:network' AND kind = 'network.lost' GROUP BY event_id
)
SELECT event ->> 'what' AS what, event ->> 'reason' AS reason, sum(event ->> 'count') AS lost, count(*) AS times,
    moment(max(time)) AS last_seen
FROM lost GROUP BY 1, 2 ORDER BY max(time) DESC
