// Package pyexceptionreceiver turns exceptions that the Python interpreter of a rank
// displays into log records.
package pyexceptionreceiver

//go:generate go run -C ../../tools ./events ../receivers/pyexceptionreceiver
