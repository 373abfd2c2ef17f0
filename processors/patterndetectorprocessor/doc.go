// Package patterndetectorprocessor runs the pattern engine inside the
// collector: one engine for the logs and metrics pipelines that name the same
// component, its state kept through the storage extension, its verdicts sent
// down the logs pipeline.
package patterndetectorprocessor

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
