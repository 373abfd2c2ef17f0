// Package filestorageextension keeps what must survive a restart in files that are
// checked when they are read. Damage costs the damaged part, a full disk costs the
// state; neither keeps the collector from starting.
package filestorageextension

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
