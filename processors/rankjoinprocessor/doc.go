// Package rankjoinprocessor joins what the ranks of a job show: calls of NCCL, stacks, dumps of
// the Flight Recorder and sockets that stall. It names the ranks that keep a collective from
// finishing.
package rankjoinprocessor

//go:generate go run -C ../../tools ./events ../processors/rankjoinprocessor
