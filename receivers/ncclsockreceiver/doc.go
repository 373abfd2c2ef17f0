// Package ncclsockreceiver watches the sockets of training ranks from outside and
// says which stopped moving, since when and why.
package ncclsockreceiver

//go:generate go run -C ../../tools ./events ../receivers/ncclsockreceiver
