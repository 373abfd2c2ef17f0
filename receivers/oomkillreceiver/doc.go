// Package oomkillreceiver turns each process that the kernel kills for want of
// memory into a log record.
package oomkillreceiver

//go:generate go run -C ../../tools ./events ../receivers/oomkillreceiver
