// Package stacksreceiver says where in its code a rank stands still, in log records.
package stacksreceiver

//go:generate go run -C ../../tools ./events ../receivers/stacksreceiver
