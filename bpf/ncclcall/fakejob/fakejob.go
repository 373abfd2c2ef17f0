//go:build linux && (amd64 || arm64)

// Package fakejob is a process that has a stand-in for NCCL mapped and calls it, for
// tests: a library of this package's making, which begins as the true one does and
// chooses its own layout of struct ncclComm. A binary that starts a job begins with
//
//	if fakejob.IsChild() {
//		os.Exit(fakejob.Child())
//	}
package fakejob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
)

// IDBytes is nccl.h's NCCL_UNIQUE_ID_BYTES.
const IDBytes = 128

// Communicator is what the job puts into the memory of one.
type Communicator struct {
	Hash                           uint64
	Rank, Size, Device, NVMLDevice int32
	Capability, Least, Most        int32 // compute capabilities
	BusID                          int64
	// Launches is what the communicator says that it has launched, and counts on; 0: it says
	// nothing.
	Launches uint64
}

// launchesBehindRank is where the memory of a communicator has that counter, about as NCCL
// 2.29 has it.
const launchesBehindRank = 328

// Call is one thing that the job does.
type Call struct {
	// Function as NCCL exports it. "plant" puts Planted into the memory of Comm;
	// "leave" makes that memory, untouched; "become" makes the job that of user Root.
	Function string
	Comm     int // which communicator
	Planted  Communicator

	Count      uint64
	Type       uint32
	Root       int32 // or peer
	Rank, Size int32 // of an init
	Color, Key int32 // of a split
	ID         []byte
	Times      int // 0: once
	// Step is how far apart the communicators lie of a call that is made several times,
	// each time on another; 0: all on one.
	Step uintptr
}

// Answer is what became of it.
type Answer struct {
	Result  uint32
	Address uint64 // of the communicator
	Value   int32  // that ncclCommUserRank and its kin returned
}

// AllReduce is the usual call.
func AllReduce(comm int, count uint64) Call {
	const bf16 = 9
	return Call{Function: "ncclAllReduce", Comm: comm, Count: count, Type: bf16}
}

// variable holds the offset of the rank and the file of the library that a job maps.
const variable = "TRACECORE_FAKE_NCCL_JOB"

// IsChild reports whether this process is a job.
func IsChild() bool { return os.Getenv(variable) != "" }

// Child maps the library and makes the calls it reads, in one thread, until there are no
// more.
func Child() int {
	runtime.LockOSThread()
	if err := child(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func child() error {
	offset, file, _ := strings.Cut(os.Getenv(variable), ":")
	rankOffset, err := strconv.ParseUint(offset, 10, 64)
	if err != nil {
		return err
	}
	base, err := standin.Map(file)
	if err != nil {
		return err
	}
	w := worker{base: base, rankOffset: rankOffset, memory: map[int][]byte{}, counts: map[int]bool{}}
	return standin.Serve(w.do)
}

// worker is the job.
type worker struct {
	base       uintptr
	rankOffset uint64
	memory     map[int][]byte // by communicator
	counts     map[int]bool   // communicators that count their launches
}

func (w *worker) do(c Call) (Answer, error) {
	memory, err := w.communicator(c.Comm)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))}
	switch c.Function {
	case "leave":
		return answer, nil
	case "become":
		return answer, unix.Setuid(int(c.Root))
	case "plant":
		w.counts[c.Comm] = c.Planted.Launches > 0
		binary.LittleEndian.PutUint64(memory[w.rankOffset+launchesBehindRank:], c.Planted.Launches)
		_, err := binary.Encode(memory[w.rankOffset-8:], binary.LittleEndian, struct {
			Hash   uint64
			Ints   [7]int32
			Pad    int32
			BusID  int64
			Behind [8]byte
		}{c.Planted.Hash, [7]int32{
			c.Planted.Rank, c.Planted.Size, c.Planted.Device, c.Planted.NVMLDevice, c.Planted.Capability, c.Planted.Least, c.Planted.Most,
		}, 0, c.Planted.BusID, [8]byte{}})
		return answer, err
	}
	at, err := entry(w.base, c.Function)
	if err != nil {
		return Answer{}, err
	}
	arguments := c.arguments(uintptr(answer.Address), memory)
	for i := range max(c.Times, 1) {
		if c.Step != 0 {
			arguments = c.arguments(uintptr(answer.Address)+uintptr(i)*c.Step, memory)
		}
		answer.Result = standin.Call(at, arguments)
		w.launched(c, memory)
	}
	answer.Value = int32(binary.LittleEndian.Uint32(memory[len(memory)-scratch:]))
	return answer, nil
}

// launched counts as NCCL does, behind the begin of the call.
func (w *worker) launched(c Call, memory []byte) {
	if at := memory[w.rankOffset+launchesBehindRank:]; w.counts[c.Comm] && c.Count > 0 {
		binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)+1)
	}
}

// scratch at the end of a communicator's memory is where functions put their results.
const scratch = 512

// communicator is the memory of one, untouched at first.
func (w *worker) communicator(number int) ([]byte, error) {
	if memory := w.memory[number]; memory != nil {
		return memory, nil
	}
	const behind = 128 << 10
	memory, err := unix.Mmap(-1, 0, int(w.rankOffset)+behind, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	w.memory[number] = memory
	// A huge page would make all of it resident at the first touch.
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: a kernel without them
		return nil, err
	}
	return memory, nil
}

// arguments puts them where the function has them (nccl.h).
func (c *Call) arguments(comm uintptr, memory []byte) *standin.Arguments {
	a := new(standin.Arguments)
	r := &a.Registers
	switch c.Function {
	case "ncclAllReduce", "ncclReduceScatter", "ncclBroadcast", "ncclBcast", "ncclGather", "ncclScatter":
		r[2], r[3], r[4], r[5] = uintptr(c.Count), uintptr(c.Type), uintptr(uint32(c.Root)), comm
	case "ncclReduce":
		r[2], r[3], r[5] = uintptr(c.Count), uintptr(c.Type), uintptr(uint32(c.Root))
		reduce(a, comm)
	case "ncclAllGather", "ncclAlltoAll":
		r[2], r[3], r[4] = uintptr(c.Count), uintptr(c.Type), comm
	case "ncclSend", "ncclRecv":
		r[1], r[2], r[3], r[4] = uintptr(c.Count), uintptr(c.Type), uintptr(uint32(c.Root)), comm
	case "ncclCommInitRank", "ncclCommInitRankConfig":
		r[1] = uintptr(uint32(c.Size))
		id(a, c.copied(memory), c.Rank)
	case "ncclCommInitRankScalable":
		r[1], r[2], r[3] = uintptr(uint32(c.Size)), uintptr(uint32(c.Rank)), 1
		r[4] = uintptr(unsafe.Pointer(unsafe.SliceData(c.copied(memory))))
	case "ncclCommInitAll":
		r[1] = uintptr(uint32(c.Size))
	case "ncclCommSplit":
		r[0], r[1], r[2] = comm, uintptr(uint32(c.Color)), uintptr(uint32(c.Key))
	case "ncclCommShrink":
		r[0], r[2] = comm, uintptr(uint32(c.Size))
	case "ncclCommGrow":
		r[0], r[1], r[3] = comm, uintptr(uint32(c.Size)), uintptr(uint32(c.Rank))
	default:
		r[0], r[1] = comm, uintptr(unsafe.Pointer(&memory[len(memory)-scratch]))
	}
	return a
}

// copied is the unique id at a place that does not move.
func (c *Call) copied(memory []byte) []byte {
	place := memory[len(memory)-scratch/2:][:IDBytes]
	copy(place, c.ID)
	return place
}

// Job is a running job.
type Job struct {
	*standin.Job[Call, Answer]
}

// Start starts this program as a job with a library that was installed, and waits until
// it has it mapped. Close ends it.
func (l Library) Start(file string, environment ...string) (*Job, error) {
	setting := fmt.Sprintf("%s=%d:%s", variable, max(l.RankOffset, 8), file)
	started, err := standin.StartJob[Call, Answer](append([]string{setting}, environment...)...)
	if err != nil {
		return nil, err
	}
	j := &Job{started}
	if _, err := j.Ask(Call{Function: "leave"}); err != nil {
		return nil, errors.Join(fmt.Errorf("start a job: %w", err), j.Close())
	}
	return j, nil
}

// Do makes calls, waiting for each.
func (j *Job) Do(calls ...Call) error {
	for _, c := range calls {
		if _, err := j.Ask(c); err != nil {
			return fmt.Errorf("%s: %w", c.Function, err)
		}
	}
	return nil
}
