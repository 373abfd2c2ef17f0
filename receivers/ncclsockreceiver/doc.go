// Package ncclsockreceiver watches the sockets of training ranks from outside and
// says which stopped moving, since when and why.
package ncclsockreceiver

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
//go:generate go tool -modfile=../../tools/go.mod goimports -w internal/metadata
