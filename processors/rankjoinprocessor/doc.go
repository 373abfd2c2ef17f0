// Package rankjoinprocessor joins the Flight Recorder and socket-stall records
// of the ranks of a job and names who keeps a collective from finishing.
package rankjoinprocessor

//go:generate go run -C ../../tools ./events ../processors/rankjoinprocessor
