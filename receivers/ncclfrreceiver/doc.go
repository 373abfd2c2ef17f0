// Package ncclfrreceiver reads the dumps of PyTorch's Flight Recorder and emits
// one log record for each process group of a dump.
package ncclfrreceiver

// mdatagen 0.159 leaves the imports of a component with events and no metrics
// wrong; goimports sets them right.
//
//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
