// Package k8seventsreceiver watches the events and node conditions of a cluster
// and turns those that matter to a training job into log records.
package k8seventsreceiver

//go:generate go run -C ../../tools ./events ../receivers/k8seventsreceiver
