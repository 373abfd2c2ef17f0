// Package fusefaultreceiver names the FUSE mounts whose requests and page faults
// are stuck, while they are stuck, and measures how long all of them take.
package fusefaultreceiver

//go:generate go run -C ../../tools ./events ../receivers/fusefaultreceiver
