// Package nvmlcgo is NVIDIA's library behind the interface of package nvml, by way
// of go-nvml, which needs cgo. Built without cgo it says so and does nothing.
package nvmlcgo

// Built reports whether this build can load the library.
const Built = built
