// Package ncclfrreceiver reads the dumps of PyTorch's Flight Recorder and emits
// one log record for each process group of a dump.
package ncclfrreceiver

//go:generate go run -C ../../tools ./events ../receivers/ncclfrreceiver
