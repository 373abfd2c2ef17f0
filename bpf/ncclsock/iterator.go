//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// iterator is the source on BPF rungs.
type iterator struct {
	objects    bpfMaps
	variables  bpfVariables
	program    *ebpf.Program // open_file
	links      []link.Link   // of the changes
	reader     *ringbuf.Reader
	record     ringbuf.Record // reused by readChange
	perProcess bool
	most       int           // sockets in a snapshot
	tick       time.Duration // one jiffy
	buffer     []byte

	number uint64              // of the last snapshot
	owners map[uint32]struct{} // in the kernel's map
}

// openIterator loads the iterator, for one process at a time or for the whole host,
// and attaches the tracepoints when changes are wanted.
func openIterator(opts Options, perProcess, changes bool) (_ *iterator, err error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("raise the locked-memory limit: %w", err)
	}
	it := &iterator{perProcess: perProcess, most: int(opts.MaxSockets), owners: map[uint32]struct{}{}, buffer: make([]byte, bufferBytes)}
	if it.tick, err = jiffy(); err != nil {
		return nil, err
	}
	programs := []string{bpfProgOpenFile}
	if changes {
		programs = append(programs, bpfProgDestroy, bpfProgSetState, bpfProgRetransmit)
	}
	collection, err := load(opts, programs)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer collection.Close() // closes what it does not take over
	defer func() {
		if err != nil {
			err = errors.Join(err, it.close())
		}
	}()
	if err := it.take(collection); err != nil {
		return nil, err
	}
	for _, name := range programs[1:] {
		l, err := link.AttachTracing(link.TracingOptions{Program: collection.Programs[name]})
		if err != nil {
			return nil, fmt.Errorf("attach %s: %w", name, err)
		}
		it.links = append(it.links, l)
	}
	return it, nil
}

func load(opts Options, programs []string) (*ebpf.Collection, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]*ebpf.ProgramSpec, len(programs))
	for _, name := range programs {
		wanted[name] = spec.Programs[name]
	}
	spec.Programs = wanted
	spec.Maps[bpfMapOwners].MaxEntries = opts.MaxOwners
	spec.Maps[bpfMapSockets].MaxEntries = 2 * opts.MaxSockets
	if opts.RingBytes != 0 {
		spec.Maps[bpfMapEvents].MaxEntries = opts.RingBytes
	}
	if err := errors.Join(
		spec.Variables[bpfVarMaxSockets].Set(opts.MaxSockets),
		spec.Variables[bpfVarVmemmapBaseAddress].Set(opts.pages.vmemmapBase),
		spec.Variables[bpfVarPageOffsetBaseAddress].Set(opts.pages.pageOffsetBase),
	); err != nil {
		return nil, err
	}
	return kerninfo.Load(spec, ebpf.CollectionOptions{})
}

// take moves what the iterator needs out of the collection.
func (it *iterator) take(collection *ebpf.Collection) (err error) {
	var objects struct {
		bpfMaps
		bpfVariables
		OpenFile *ebpf.Program `ebpf:"open_file"`
	}
	if err := collection.Assign(&objects); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	it.objects, it.variables, it.program = objects.bpfMaps, objects.bpfVariables, objects.OpenFile
	if it.reader, err = ringbuf.NewReader(it.objects.Events); err != nil {
		return fmt.Errorf("open the ring of changes: %w", err)
	}
	return nil
}

// jiffy is the kernel's tick. CLOCK_MONOTONIC_COARSE moves once a tick and says so
// (KTIME_LOW_RES, include/linux/hrtimer_defs.h), where /boot/config may not be there.
func jiffy() (time.Duration, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, fmt.Errorf("ask for the length of a jiffy: %w", err)
	}
	return time.Duration(res.Nano()), nil
}

func (it *iterator) snapshot(owners []uint32, s *Snapshot) error {
	if err := it.setOwners(owners); err != nil {
		return fmt.Errorf("tell the kernel whose sockets to show: %w", err)
	}
	if err := it.begin(); err != nil || len(owners) == 0 {
		return err
	}
	if !it.perProcess { // the kernel shows one process after the other: the first come have the room
		over, err := it.within(0, it.most, s)
		s.Over += over
		return err
	}
	return it.walk(owners, s)
}

// begin lets the kernel show every socket again, once.
func (it *iterator) begin() error {
	it.number++
	return it.variables.Snapshot.Set(it.number)
}

// walk shares the room for sockets between the owners: one that has more than its part
// of what is left is read when all others were, and what is left then is its own.
func (it *iterator) walk(owners []uint32, s *Snapshot) error {
	var many []uint32
	for i, pid := range owners {
		before := len(s.Sockets)
		over, err := it.within(pid, (it.most-before)/(len(owners)-i), s)
		if err != nil {
			return err
		}
		if over > 0 {
			many, s.Sockets = append(many, pid), s.Sockets[:before]
		}
	}
	if len(many) == 0 {
		return nil
	}
	if err := it.begin(); err != nil {
		return err
	}
	for i, pid := range many {
		over, err := it.within(pid, (it.most-len(s.Sockets))/(len(many)-i), s)
		if err != nil {
			return err
		}
		s.Over += over
	}
	return nil
}

// within reads at most so many sockets of a process, or of the host for pid 0, and returns
// how many there was no room for.
func (it *iterator) within(pid uint32, room int, s *Snapshot) (over int, err error) {
	if err := errors.Join(
		it.variables.Written.Set(uint32(it.most-max(room, 0))),
		it.variables.Over.Set(uint32(0)),
	); err != nil {
		return 0, err
	}
	if err := it.read(pid, s); err != nil {
		return 0, err
	}
	var left uint32
	err = it.variables.Over.Get(&left)
	return int(min(left, math.MaxInt32)), err
}

// recordBytes is the size of one record in what the iterator writes.
const recordBytes = int(unsafe.Sizeof(bpfSocketRecord{}))

// bufferBytes takes what the kernel gives at once: 8 pages (bpf_seq_read,
// kernel/bpf/bpf_iter.c), of up to 64 KiB.
const bufferBytes = 512 << 10

// read runs the iterator over one process, or over the host for pid 0.
func (it *iterator) read(pid uint32, s *Snapshot) error {
	fd, err := it.start(pid)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	have := 0
	for {
		n, err := unix.Read(fd, it.buffer[have:])
		switch {
		// After a million files the kernel asks to be called again (MAX_ITER_OBJECTS).
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("read sockets: %w", err)
		case n == 0:
			return nil
		}
		have = it.decode(have+n, s)
	}
}

// decode takes the whole records from the first have bytes of the buffer, moves the
// rest to its front and returns how much that is.
func (it *iterator) decode(have int, s *Snapshot) int {
	at := 0
	for ; have-at >= recordBytes; at += recordBytes {
		var socket Socket
		if err := decodeSocket((*bpfSocketRecord)(unsafe.Pointer(&it.buffer[at])), it.tick, &socket); err != nil {
			s.Unreadable++
			continue
		}
		s.Sockets = append(s.Sockets, socket)
	}
	return copy(it.buffer, it.buffer[at:have])
}

func (it *iterator) readChange(c *Change) error {
	if err := it.reader.ReadInto(&it.record); err != nil {
		if errors.Is(err, ringbuf.ErrClosed) {
			return probe.ErrClosed
		}
		return err
	}
	offset, err := bootclock.Offset()
	if err != nil {
		return err
	}
	return decodeChange(it.record.RawSample, offset, c)
}

func (it *iterator) setDeadline(t time.Time) { it.reader.SetDeadline(t) }

func (it *iterator) forget() error {
	if err := it.setOwners(nil); err != nil {
		return err
	}
	var keys []uint64
	var key uint64
	var value bpfKnown
	entries := it.objects.Sockets.Iterate()
	for entries.Next(&key, &value) {
		keys = append(keys, key)
	}
	for _, key := range keys {
		if err := it.objects.Sockets.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
	// Sockets that die meanwhile may cut the walk short; they are gone then.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	return it.drain()
}

// drain reads what is in the ring and throws it away.
func (it *iterator) drain() error {
	if err := it.reader.Flush(); err != nil {
		return err
	}
	for {
		if err := it.reader.ReadInto(&it.record); errors.Is(err, ringbuf.ErrFlushed) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (it *iterator) dropped() (uint64, error) { return counter.Sum(it.objects.Dropped, 0) }

func (it *iterator) close() error {
	var errs []error
	for _, l := range it.links {
		errs = append(errs, l.Close())
	}
	if it.reader != nil {
		errs = append(errs, it.reader.Close())
	}
	if it.program != nil {
		errs = append(errs, it.program.Close())
	}
	return errors.Join(append(errs, it.objects.Close())...)
}
