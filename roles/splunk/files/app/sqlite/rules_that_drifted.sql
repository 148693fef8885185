-- Glasslab: rules that drifted
SELECT moment(time) AS time, event ->> 'drift' AS drift, event ->> 'count' AS count
FROM listed WHERE sourcetype = 'agent:network' AND kind = 'network.drift'
GROUP BY event_id ORDER BY listed.time DESC
