// Package k8snodeexporter sets conditions of Kubernetes nodes from verdicts and
// writes Events about them, so that what already drains nodes can act.
package k8snodeexporter

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
