// Package slurmexporter drains nodes of a Slurm cluster because of verdicts, and brings
// them back when the verdicts are over.
package slurmexporter

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
