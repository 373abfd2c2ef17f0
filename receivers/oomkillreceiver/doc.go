// Package oomkillreceiver turns each process that the kernel kills for want of
// memory into a log record.
package oomkillreceiver

// mdatagen 0.159 leaves the imports of a component with events and no metrics
// wrong; goimports sets them right.
//
//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
