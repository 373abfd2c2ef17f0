// Package fusefaultreceiver names the FUSE mounts whose requests and page faults
// are stuck, while they are stuck, and measures how long all of them take.
package fusefaultreceiver

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
