-- Glasslab: what glasslab verify found
-- Of each session its last check: beside max(), the other columns are those of that row.
WITH checked AS (
    SELECT max(time) AS time, event ->> 'verified_session' AS session_id, event -> 'whole' AS whole,
        event ->> 'found' AS found, event ->> 'problems' AS problems
    FROM listed
    WHERE sourcetype = 'agent:session' AND kind = 'session.verified'
    GROUP BY event ->> 'verified_session'
)
SELECT moment(time) AS time, session_id, found, problems FROM checked WHERE whole = 'false' ORDER BY time DESC
