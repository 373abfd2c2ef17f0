//go:build linux && (amd64 || arm64)

// Package standin calls functions as C does, and holds one that looks to a uprobe
// as libcuda's do: the probe fires on it to see that it works.
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

// Code is a function that returns its fifth argument: MOVL R8, AX; RET, or MOVW R4,
// R0; RET. It is a leaf without a frame, so its stack cannot move while a return
// probe has replaced its return address.
func Code() []byte { return append([]byte(nil), code...) }

// Entry is the address of such a function in this program.
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

func entry() uintptr

//go:noescape
func callProp(function uintptr, address *uint64, size uint64, prop *Prop, result uintptr) uint32

//go:noescape
func callPitch(function uintptr, address, pitch *uint64, width, rows uint64, result uintptr) uint32
