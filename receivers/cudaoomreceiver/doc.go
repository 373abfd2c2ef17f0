// Package cudaoomreceiver turns GPU memory that the CUDA driver refuses to a
// process, for good, into log records.
package cudaoomreceiver

// mdatagen 0.159 leaves the imports of a component with events and no metrics
// wrong; goimports sets them right.
//
//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
