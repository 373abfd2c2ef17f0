// Package healthcheckextension answers over HTTP whether the pipelines are up. It has the
// keys of the collector's own extension, with limits: a probe must get its answer while
// somebody holds all the connections that he can.
package healthcheckextension

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
