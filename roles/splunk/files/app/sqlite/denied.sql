-- Glasslab: denied
WITH denied AS (
    SELECT * FROM listed
    WHERE sourcetype = 'agent:network' AND kind = 'network.flow' AND event ->> 'verdict' = 'denied'
    GROUP BY event_id
)
SELECT event ->> 'flow' AS flow, event ->> 'source' AS source_address, event ->> 'source_mac' AS source_mac,
    event ->> 'destination' AS destination, event ->> 'destination_port' AS destination_port,
    event ->> 'protocol' AS protocol, sum(event ->> 'count') AS packets, moment(min(event ->> 'first')) AS first,
    moment(max(event ->> 'last')) AS last
FROM denied GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY packets DESC
