-- Glasslab: tool baseline and drift
-- Those that differ; Splunk's search lists those that are as pinned as well.
WITH entries AS (
    -- What is no object is no definition, and ->> on it would end the query.
    SELECT frames.time, frames.session_id, CASE WHEN entry.type = 'object' THEN entry.value END AS definition
    FROM frames, json_each(frames.event, '$.tools') AS entry
    WHERE frames.sourcetype = 'agent:trace' AND instr(frames.raw, '"mcp.tools_list"') AND frames.kind = 'mcp.tools_list'
),
listed AS (
    SELECT time, session_id, definition ->> 'name' AS tool, definition ->> 'description_sha256' AS description_hash,
        definition ->> 'definition_sha256' AS definition_hash
    FROM entries
),
seen AS (
    SELECT min(time) AS first_seen, max(time) AS last_seen, count(DISTINCT session_id) AS sessions,
        tool, description_hash, definition_hash
    FROM listed WHERE tool IS NOT NULL AND description_hash IS NOT NULL AND definition_hash IS NOT NULL
    GROUP BY tool, description_hash, definition_hash
)
SELECT seen.tool,
    CASE WHEN pinned.tool IS NULL THEN 'not in the baseline'
        WHEN description_hash != description_sha256 THEN 'the description differs'
        ELSE 'the definition differs' END AS drift,
    sessions, moment(first_seen) AS first_seen, moment(last_seen) AS last_seen, description_hash, definition_hash
FROM seen LEFT JOIN glasslab_tools AS pinned ON pinned.tool = seen.tool
WHERE pinned.tool IS NULL OR description_hash != description_sha256 OR definition_hash != definition_sha256
ORDER BY seen.last_seen DESC
