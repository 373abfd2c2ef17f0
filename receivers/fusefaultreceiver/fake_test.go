package fusefaultreceiver

import (
	"sync"

	"github.com/tracecoreai/tracecore/bpf/fusefault"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver/probereceivertest"
)

// Requests of the tests (include/uapi/linux/fuse.h, enum fuse_opcode).
const (
	opRead  = 15
	opWrite = 16
)

var (
	start = probereceivertest.Start
	data  = fusefault.Device{Minor: 52}
)

// fakeSource shows each snapshot that a test gives it once, and the last again.
type fakeSource struct {
	*probereceivertest.Probe
	looked chan struct{} // a word for each snapshot

	mu    sync.Mutex // guards what follows
	queue []fusefault.Snapshot
	shown fusefault.Snapshot
	err   error
}

func newFakeSource() *fakeSource {
	return &fakeSource{Probe: probereceivertest.NewProbe(), looked: make(chan struct{}, 1)}
}

func (f *fakeSource) show(s fusefault.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, s)
}

// fail lets each snapshot fail from now on.
func (f *fakeSource) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeSource) Snapshot(s *fusefault.Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked <- struct{}{}
	if len(f.queue) > 0 {
		f.shown, f.queue = f.queue[0], f.queue[1:]
	}
	*s = f.shown
	return f.err
}

// fakeMachine knows what a test tells it.
type fakeMachine struct {
	mu        sync.Mutex                         // a test tells while the receiver asks
	mounts    map[string]map[uint32]procfs.Mount // by process, by minor number
	processes map[uint32]procfs.Process
	waiting   map[uint32]int64
	starves   bool // each process does
	young     int  // so many looks do not tell yet
}

func newFakeMachine() *fakeMachine {
	return &fakeMachine{
		mounts: map[string]map[uint32]procfs.Mount{}, processes: map[uint32]procfs.Process{},
		waiting: map[uint32]int64{},
	}
}

// mount puts a mount into the table of a process.
func (f *fakeMachine) mount(process string, minor uint32, m procfs.Mount) {
	if f.mounts[process] == nil {
		f.mounts[process] = map[uint32]procfs.Mount{}
	}
	m.SeenBy = process
	f.mounts[process][minor] = m
}

// lives makes a process one that lives.
func (f *fakeMachine) lives(pid uint32, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processes[pid] = procfs.Process{Name: name, State: procfs.Alive}
}

func (f *fakeMachine) Starves(uint32) (starves, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young > 0 {
		f.young--
		return false, false
	}
	return f.starves, true
}

func (f *fakeMachine) Mount(_, minor uint32, processes ...string) (procfs.Mount, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, process := range processes {
		if m, found := f.mounts[process][minor]; found {
			return m, true
		}
	}
	return procfs.Mount{}, false
}

func (f *fakeMachine) Gone(_, minor uint32, process string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	table, readable := f.mounts[process]
	_, there := table[minor]
	return readable && !there
}

func (f *fakeMachine) Process(pid uint32) procfs.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, known := f.processes[pid]; known {
		return p
	}
	return procfs.Process{State: procfs.Gone}
}

func (f *fakeMachine) Ended(pid, _ uint32) bool { return f.Process(pid).State == procfs.Gone }

func (f *fakeMachine) Waiting(_, minor uint32) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting, known := f.waiting[minor]
	return waiting, known
}

func (f *fakeMachine) StuckReads() uint64 { return 7 }

// answers is a histogram of so many requests.
func answers(count uint64) fusefault.Histogram {
	var h fusefault.Histogram
	h.Buckets[9] = count
	h.SumNS = count * 300_000
	return h
}
