// Package incidenttracesconnector turns incidents into traces: the root span is the root
// cause, its children are its evidence and its symptoms. It reads the records of verdicts
// and makes one trace of each incident, once it is over. The record of a run that ended
// (job.summary) becomes a trace, too.
package incidenttracesconnector

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
