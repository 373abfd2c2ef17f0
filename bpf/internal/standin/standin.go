//go:build linux && (amd64 || arm64)

// Package standin calls functions as C does, and holds one that looks to a uprobe as
// those of libcuda and NCCL do: probes fire on it to see that they work.
package standin

import "errors"

// ErrNoFilters says that the kernel is built without seccomp filters: no process
// is under one.
var ErrNoFilters = errors.New("this kernel has no seccomp filters")

// Prop is the beginning of cuda.h's struct CUmemAllocationProp_st.
type Prop struct {
	Type, RequestedHandleTypes uint32
	LocationType               uint32
	LocationID                 int32
}

// Code is a function that returns its fifth argument. On amd64 it begins as compilers
// begin one (endbr64; push). It calls nothing, so its stack cannot move while a return
// probe has replaced its return address.
func Code() []byte { return append([]byte(nil), code...) }

// DriverCode does the same and begins as the functions of libcuda do.
func DriverCode() []byte { return append([]byte(nil), driver...) }

// Entry is the address of the function Code in this program.
func Entry() uintptr { return entry() }

// Alloc calls a function of the shape of cuMemAlloc_v2, cuMemAllocAsync and
// cuMemCreate. What is no argument of the function is not looked at by it; result
// comes after them.
func Alloc(function uintptr, size uint64, prop *Prop, result uint32) uint32 {
	var address uint64
	return callProp(function, &address, size, prop, uintptr(result))
}

// AllocPitch calls a function of the shape of cuMemAllocPitch_v2.
func AllocPitch(function uintptr, width, rows uint64, result uint32) uint32 {
	var address, pitch uint64
	return callPitch(function, &address, &pitch, width, rows, uintptr(result))
}

// Arguments are those of a call. They must not point into a stack of Go, which may move.
type Arguments struct {
	// Registers are the first ones: six on amd64, eight on arm64.
	Registers [8]uintptr
	// Stack are those on the stack of amd64, from the first on; there is none on arm64.
	Stack [20]uintptr
}

// Call calls a function and returns its result, an int.
func Call(function uintptr, a *Arguments) uint32 { return call(function, &a.Registers, &a.Stack) }

//go:noescape
func call(function uintptr, registers *[8]uintptr, stack *[20]uintptr) uint32

func entry() uintptr

//go:noescape
func callProp(function uintptr, address *uint64, size uint64, prop *Prop, result uintptr) uint32

//go:noescape
func callPitch(function uintptr, address, pitch *uint64, width, rows uint64, result uintptr) uint32
