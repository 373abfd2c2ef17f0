-- incident_id, role, onset and so on of a verdict repeat what its body says, to be found by.
CREATE TABLE verdicts (
	number INTEGER PRIMARY KEY, -- in the order in which they were kept
	verdict_id TEXT NOT NULL,
	revision INTEGER NOT NULL,
	incident_id TEXT NOT NULL,
	latest INTEGER NOT NULL, -- 1: its newest revision
	role TEXT NOT NULL,
	onset INTEGER NOT NULL, -- times are Unix nanoseconds
	updated INTEGER NOT NULL,
	kept INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	sum INTEGER NOT NULL, -- CRC-32C of the body
	body BLOB NOT NULL -- as patterns/verdict/schema.json describes it
) STRICT;
CREATE UNIQUE INDEX verdicts_statement ON verdicts (verdict_id, revision);
CREATE INDEX verdicts_incident ON verdicts (incident_id, latest, role, onset, verdict_id, updated, bytes);

-- One row for each incident, made of its verdicts.
CREATE TABLE incidents (
	incident_id TEXT PRIMARY KEY,
	open INTEGER NOT NULL,
	causes INTEGER NOT NULL, -- 1: its root cause is known for certain, and it is no drill
	onset INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	worth INTEGER NOT NULL, -- whether it gives way early
	owner TEXT NOT NULL, -- whose room it takes: a JSON list of names
	bytes INTEGER NOT NULL,
	sum INTEGER NOT NULL,
	summary BLOB NOT NULL -- as history.Incident
) STRICT;
CREATE INDEX incidents_onset ON incidents (onset);
CREATE INDEX incidents_updated ON incidents (updated);

-- Which jobs and nodes an incident is about.
CREATE TABLE about (
	kind TEXT NOT NULL, -- job or node
	name TEXT NOT NULL,
	incident_id TEXT NOT NULL,
	PRIMARY KEY (kind, name, incident_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX about_incident ON about (incident_id);

-- An incident whose verdicts all belong to another now.
CREATE TABLE moved (
	incident_id TEXT PRIMARY KEY,
	became TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX moved_became ON moved (became);

CREATE TABLE acknowledged (
	incident_id TEXT PRIMARY KEY,
	at INTEGER NOT NULL,
	uid INTEGER NOT NULL,
	note TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Incidents that are not told for a time.
CREATE TABLE muted (
	incident_id TEXT PRIMARY KEY,
	at INTEGER NOT NULL,
	until INTEGER NOT NULL,
	uid INTEGER NOT NULL,
	reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Records around the verdicts of an incident.
CREATE TABLE evidence (
	incident_id TEXT PRIMARY KEY,
	bytes INTEGER NOT NULL,
	sum INTEGER NOT NULL,
	body BLOB NOT NULL -- as Records of internal/incidentview keeps them
) STRICT;

-- Starts of jobs.
CREATE TABLE runs (
	job TEXT NOT NULL,
	domain TEXT NOT NULL,
	trust INTEGER NOT NULL,
	run_id TEXT NOT NULL,
	began INTEGER NOT NULL,
	updated INTEGER NOT NULL,
	open INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	sum INTEGER NOT NULL,
	body BLOB NOT NULL, -- as history.Run
	noted INTEGER NOT NULL, -- when something new was heard of it, by our clock
	told INTEGER NOT NULL, -- 1: its summary has left
	PRIMARY KEY (job, domain, trust, run_id)
) STRICT;
CREATE INDEX runs_began ON runs (began);
CREATE INDEX runs_owner ON runs (trust, domain, updated);
CREATE INDEX runs_ended ON runs (noted) WHERE told = 0 AND open = 0;
