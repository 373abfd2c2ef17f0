//go:build linux && (amd64 || arm64)

// Package fakejob is a process that has a libcuda mapped and calls it, for tests: a
// library file of this package's making, with the symbols of the true one, whose
// functions return what the test says. A binary that starts a job begins with
//
//	if fakejob.IsChild() {
//		os.Exit(fakejob.Child())
//	}
package fakejob

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
)

// Results of a call, cuda.h.
const (
	Success      = 0
	InvalidValue = 1
	OutOfMemory  = 2
)

// Prop is the beginning of cuda.h's struct CUmemAllocationProp_st.
type Prop = standin.Prop

// Call is one call of the library.
type Call struct {
	Function string // as libcuda exports it
	// Size is the second argument; of cuMemAllocPitch_v2 the third, whose fourth
	// is Rows.
	Size, Rows uint64
	Prop       *Prop  // third argument of cuMemCreate
	Result     uint32 // what the function returns
	// Threads makes the call in so many threads of its own, which live on if they Stay.
	Threads int
	Stay    bool
}

// Malloc is what cudaMalloc comes to.
func Malloc(bytes uint64, result uint32) Call {
	return Call{Function: "cuMemAlloc_v2", Size: bytes, Result: result}
}

// Create is what PyTorch's expandable segments call.
func Create(bytes uint64, device int32, result uint32) Call {
	const pinned, onDevice = 1, 1 // CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE
	return Call{
		Function: "cuMemCreate", Size: bytes, Result: result,
		Prop: &Prop{Type: pinned, LocationType: onDevice, LocationID: device},
	}
}

// variable holds the file of the library that a job maps.
const variable = "TRACECORE_FAKE_CUDA_JOB"

// IsChild reports whether this process is a job.
func IsChild() bool { return os.Getenv(variable) != "" }

// Child maps the library and makes the calls it reads, in one thread, until there
// are no more.
func Child() int {
	runtime.LockOSThread()
	base, err := standin.Map(os.Getenv(variable))
	if err == nil {
		err = serve(base)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(base uintptr) error {
	return standin.Serve(func(c Call) (uint32, error) {
		at, err := c.entry(base)
		if err != nil {
			return 0, err
		}
		return c.do(at), nil
	})
}

func (c Call) do(at uintptr) uint32 {
	if c.Threads > 0 {
		return c.doInThreads(at)
	}
	if c.Function == "cuMemAllocPitch_v2" {
		return standin.AllocPitch(at, c.Size, c.Rows, c.Result)
	}
	return standin.Alloc(at, c.Size, c.Prop, c.Result)
}

// doInThreads makes the call in one thread after the other.
func (c Call) doInThreads(at uintptr) (result uint32) {
	one := c
	one.Threads = 0
	called := make(chan uint32)
	for range c.Threads {
		go func() {
			runtime.LockOSThread() // a goroutine that ends so ends its thread
			called <- one.do(at)
			if c.Stay {
				select {}
			}
		}()
		result = <-called
	}
	return result
}

// Job is a running job.
type Job struct{ *standin.Job[Call, uint32] }

// Start starts this program as a job with a library and this environment, and waits
// until it has the library mapped. Close ends it.
func Start(library string, environment ...string) (*Job, error) {
	started, err := standin.StartJob[Call, uint32](append([]string{variable + "=" + library}, environment...)...)
	if err != nil {
		return nil, err
	}
	j := &Job{started}
	if err := j.Do(Malloc(1, Success)); err != nil {
		return nil, errors.Join(fmt.Errorf("start a job: %w", err), j.Close())
	}
	return j, nil
}

// Do makes calls, waiting for each.
func (j *Job) Do(calls ...Call) error {
	for _, c := range calls {
		result, err := j.Ask(c)
		if err != nil {
			return err
		}
		if result != c.Result {
			return fmt.Errorf("%s returned %d, was told to return %d", c.Function, result, c.Result)
		}
	}
	return nil
}
