// Package identityextension owns the one identity probe of the process and lets
// receivers ask it who a process is.
package identityextension

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
