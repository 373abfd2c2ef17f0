// Package cudaoomreceiver turns GPU memory that the CUDA driver refuses to a
// process, for good, into log records.
package cudaoomreceiver

//go:generate go run -C ../../tools ./events ../receivers/cudaoomreceiver
