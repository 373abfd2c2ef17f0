// Package ncclcallreceiver says which rank stopped calling the collectives of NCCL or
// RCCL, in log records.
package ncclcallreceiver

//go:generate go run -C ../../tools ./events ../receivers/ncclcallreceiver
