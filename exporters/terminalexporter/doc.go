// Package terminalexporter prints verdicts for the engineer in front of the
// terminal and ignores every other record.
package terminalexporter

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
