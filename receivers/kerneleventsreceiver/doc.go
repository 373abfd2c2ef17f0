// Package kerneleventsreceiver turns what drivers write to the kernel log, and
// exits of rank processes, into log records.
package kerneleventsreceiver

//go:generate go run -C ../../tools ./events ../receivers/kerneleventsreceiver
