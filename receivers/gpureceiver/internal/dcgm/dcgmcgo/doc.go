// Package dcgmcgo is NVIDIA's Data Center GPU Manager behind the interface of
// package dcgm, by way of go-dcgm, which needs cgo. Built without cgo it says so
// and does nothing.
package dcgmcgo

// Built reports whether this build can load the library.
const Built = built
