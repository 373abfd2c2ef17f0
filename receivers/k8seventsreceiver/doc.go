// Package k8seventsreceiver watches the events and node conditions of a cluster
// and turns those that matter to a training job into log records.
package k8seventsreceiver

// mdatagen 0.159 leaves the imports of a component with events and no metrics
// wrong; goimports sets them right.
//
//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
