package cudaoom

import "time"

// Function is one of the driver's calls that take memory of a GPU. Variants of
// one call (…_ptsz, for the default stream of a thread) count as that call.
type Function uint8

// The functions.
const (
	FunctionUnknown Function = iota
	MemAlloc
	MemAllocPitch
	MemAllocManaged
	MemAllocAsync
	MemAllocFromPoolAsync
	MemCreate
)

// String is the function's name as the CUDA driver API documents it.
func (f Function) String() string {
	switch f {
	case MemAlloc:
		return "cuMemAlloc"
	case MemAllocPitch:
		return "cuMemAllocPitch"
	case MemAllocManaged:
		return "cuMemAllocManaged"
	case MemAllocAsync:
		return "cuMemAllocAsync"
	case MemAllocFromPoolAsync:
		return "cuMemAllocFromPoolAsync"
	case MemCreate:
		return "cuMemCreate"
	default:
		return "unknown"
	}
}

// DeviceUnknown stands where a call does not name its GPU: it is that of the
// thread's current context.
const DeviceUnknown = -1

// Event is one allocation that the driver refused for want of memory, or the
// first one afterwards that it granted to the same thread.
type Event struct {
	Time      time.Time
	PID       uint32 // thread group id in the initial pid namespace
	Thread    uint32
	Comm      string // of the thread
	Function  Function
	SizeBytes uint64
	// Device is the ordinal among the GPUs that the process sees (after
	// CUDA_VISIBLE_DEVICES), as PyTorch's messages say it, or DeviceUnknown. Only
	// cuMemCreate names its GPU.
	Device int32
	// Succeeded: the driver granted at least half of what it had last refused to
	// this thread. False: it refused.
	Succeeded bool
}
