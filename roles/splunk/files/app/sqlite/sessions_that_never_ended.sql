-- Glasslab: sessions that never ended
SELECT moment(min(time)) AS started, session_id, max(event ->> 'model') AS model FROM listed
WHERE sourcetype = 'agent:session' AND kind IN ('session.start', 'session.end') AND session_id IS NOT NULL
GROUP BY session_id
HAVING sum(kind = 'session.start') > 0 AND sum(kind = 'session.end') = 0 AND min(time) < :now - 900
ORDER BY min(time) DESC
