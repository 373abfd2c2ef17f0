//go:build linux && (amd64 || arm64)

package ncclsock

import (
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/again"
	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/internal/taskiter"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// iterator is the source on BPF rungs.
type iterator struct {
	objects    bpfMaps
	variables  bpfVariables
	program    *ebpf.Program            // open_file
	links      []link.Link              // of the changes
	changes    map[string]*ebpf.Program // what they run
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
	it := &iterator{perProcess: perProcess, most: int(opts.MaxSockets), owners: map[uint32]struct{}{}, changes: map[string]*ebpf.Program{}, buffer: make([]byte, bufferBytes)}
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
		it.links, it.changes[name] = append(it.links, l), collection.Programs[name]
		delete(collection.Programs, name) // it closes it
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
		spec.Variables[bpfVarVmemmapBaseAddress].Set(opts.pages.vmemmapBase),
		spec.Variables[bpfVarPageOffsetBaseAddress].Set(opts.pages.pageOffsetBase),
		room.ShareRing(spec, room.NewSalt()),
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
	s.Tick = it.tick
	if err := it.setOwners(owners); err != nil {
		return fmt.Errorf("tell the kernel whose sockets to show: %w", err)
	}
	if err := it.begin(); err != nil || len(owners) == 0 {
		return err
	}
	many, _, err := it.share(owners, s)
	if err != nil || len(many) == 0 {
		return err
	}
	// What is left is for those that have more than their part. They are read anew.
	s.Sockets = slices.DeleteFunc(s.Sockets, func(k Socket) bool { return slices.Contains(many, k.PID) })
	if err := it.begin(); err != nil {
		return err
	}
	_, over, err := it.share(many, s)
	s.Over += over
	return err
}

// begin lets the kernel show every socket again, once.
func (it *iterator) begin() error {
	it.number++
	return it.variables.Snapshot.Set(it.number)
}

// share reads the sockets of processes, of each as many as its part of the room that is
// left. It returns the processes that have more, and how many sockets had no room.
func (it *iterator) share(pids []uint32, s *Snapshot) (many []uint32, over int, err error) {
	if it.perProcess {
		err = it.readEach(pids, s)
	} else {
		err = it.readAll(pids, s)
	}
	if err != nil {
		return nil, 0, err
	}
	for _, pid := range pids {
		var o bpfPart
		if err := it.objects.Owners.Lookup(pid, &o); err != nil {
			return nil, 0, err
		}
		if o.Over > 0 {
			many, over = append(many, pid), over+int(o.Over)
		}
	}
	return many, over, nil
}

// readEach reads one process after the other: what one leaves is for those that come.
func (it *iterator) readEach(pids []uint32, s *Snapshot) error {
	for i, pid := range pids {
		if err := it.give(pid, (it.most-len(s.Sockets))/(len(pids)-i)); err != nil {
			return err
		}
		if err := it.read(pid, s); err != nil {
			return err
		}
	}
	return nil
}

// readAll reads some owners in one walk over the host, which meets the others too.
func (it *iterator) readAll(pids []uint32, s *Snapshot) error {
	for pid := range it.owners {
		if err := it.give(pid, 0); err != nil {
			return err
		}
	}
	for _, pid := range pids {
		if err := it.give(pid, (it.most-len(s.Sockets))/len(pids)); err != nil {
			return err
		}
	}
	return it.read(0, s)
}

func (it *iterator) give(pid uint32, room int) error {
	return it.objects.Owners.Put(pid, bpfPart{Room: uint32(max(room, 0))})
}

// recordBytes is the size of one record in what the iterator writes.
const recordBytes = int(unsafe.Sizeof(bpfSocketRecord{}))

// bufferBytes takes what the kernel gives at once: 8 pages (bpf_seq_read,
// kernel/bpf/bpf_iter.c), of up to 64 KiB.
const bufferBytes = 512 << 10

// read runs the iterator over one process, or over the host for pid 0.
func (it *iterator) read(pid uint32, s *Snapshot) error {
	fd, err := taskiter.Start(it.program, taskiter.Bound{PID: pid})
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

// lost is how many changes found the ring full, and how many the kernel ran no program for;
// of the first, those of owners who had more than their share of the ring.
func (it *iterator) lost() (dropped uint64, crowded room.Crowded, err error) {
	full, err := counter.Sum(it.objects.Dropped, 0)
	if err != nil {
		return 0, crowded, err
	}
	crowded, err = room.ReadCrowded(it.objects.Crowded)
	return full + again.Missed(it.changes), crowded, err
}

func (it *iterator) close() error {
	var errs []error
	for _, l := range it.links {
		errs = append(errs, l.Close())
	}
	for _, p := range it.changes {
		errs = append(errs, p.Close())
	}
	if it.reader != nil {
		errs = append(errs, it.reader.Close())
	}
	if it.program != nil {
		errs = append(errs, it.program.Close())
	}
	return errors.Join(append(errs, it.objects.Close())...)
}
