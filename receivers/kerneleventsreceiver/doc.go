// Package kerneleventsreceiver turns what drivers write to the kernel log, and
// exits of rank processes, into log records.
package kerneleventsreceiver

// mdatagen 0.159 leaves the imports of a component with events and no metrics
// wrong; goimports sets them right.
//
//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
