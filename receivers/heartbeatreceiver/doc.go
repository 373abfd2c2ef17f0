// Package heartbeatreceiver says each minute that this agent watches its machine: which of
// its receivers work, how its probes are attached, and what it lost since the last time.
// Without such a record, a gateway cannot tell a machine on which nothing broke from a machine that
// nobody watches.
package heartbeatreceiver

//go:generate go run -C ../../tools ./events ../receivers/heartbeatreceiver
