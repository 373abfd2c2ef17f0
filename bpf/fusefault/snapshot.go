//go:build linux && (amd64 || arm64)

package fusefault

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// Snapshot fills s with what is in flight now. Call it about once a second. It
// returns probe.ErrClosed after Close.
func (p *Probe) Snapshot(s *Snapshot) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.snapshot(s, p.opts.MinAge); err != nil {
		if errors.Is(err, probe.ErrClosed) {
			return err
		}
		return fmt.Errorf("snapshot of %s: %w", Name, err)
	}
	p.snapshots++
	return nil
}

// snapshot is called with mu held.
func (p *Probe) snapshot(s *Snapshot, minAge time.Duration) error {
	switch {
	case p.closed:
		return probe.ErrClosed
	case p.failed != nil:
		return p.failed
	case p.hooks == nil && !fuseLoaded():
		*s = Snapshot{Time: time.Now()}
		return nil
	case p.hooks == nil:
		if _, err := p.attach(); err != nil {
			p.failed = err
			return err
		}
	}
	picture, err := p.look(minAge)
	if err != nil {
		return err
	}
	offset, err := bootclock.Offset()
	if err != nil {
		return err
	}
	v := picture.judge()
	if err := p.forget(v, picture.unused); err != nil {
		return err
	}
	mounts, err := p.mounts(picture)
	if err != nil {
		return err
	}
	p.sightings.follow(picture, &v, devices(picture, mounts), p.fileDevice)
	waits := v.waits
	slices.SortFunc(waits, func(a, b wait) int { return compare(a.start, b.start, a.ID, b.ID) })
	*s = Snapshot{Time: bootclock.Time(picture.now, offset), InFlight: make([]InFlight, 0, len(waits))}
	for _, w := range waits {
		w.Start = bootclock.Time(w.start, offset)
		s.InFlight = append(s.InFlight, w.InFlight)
	}
	s.Mounts = p.fillMounts(picture, mounts, waits)
	p.count()
	s.Missed = p.missed
	return nil
}

func compare(a, b, idA, idB uint64) int {
	switch {
	case a < b, a == b && idA < idB:
		return -1
	case a == b && idA == idB:
		return 0
	}
	return 1
}

// look reads the maps and, when anything is old, what its threads do.
func (p *Probe) look(minAge time.Duration) (*picture, error) {
	b := &p.buffers
	err := p.hooks.setClock()
	if err != nil {
		return nil, err
	}
	if err := p.addOverlooked(minAge); err != nil {
		return nil, err
	}
	if b.requestKeys, b.requests, err = readAll(p.hooks, tableRequests, b, b.requestKeys, b.requests); err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	if b.faultKeys, b.faults, err = readAll(p.hooks, tableFaults, b, b.faultKeys, b.faults); err != nil {
		return nil, fmt.Errorf("read faults: %w", err)
	}
	now, err := bootNow()
	if err != nil {
		return nil, err
	}
	pic := &picture{now: now, minAge: uint64(minAge), code: p.code, answered: maps.Clone(p.answered)}
	for i, key := range b.requestKeys {
		pic.answered[device(b.requests[i].Device)] += b.requests[i].Answered
		switch r := b.requests[i]; {
		case r.EndedNs == 0:
			pic.requests = append(pic.requests, request{key, r})
		case now > r.EndedNs && now-r.EndedNs > forgetAfter:
			pic.unused = append(pic.unused, request{key, r})
		}
	}
	for i, tid := range b.faultKeys {
		pic.faults = append(pic.faults, fault{tid, b.faults[i]})
	}
	// Read twice, while the map changes, the same key may come twice.
	pic.requests = unique(pic.requests, func(r request) uint64 { return r.key })
	pic.faults = unique(pic.faults, func(f fault) uint32 { return f.tid })
	if !slices.ContainsFunc(pic.requests, func(r request) bool { return pic.old(r.StartNs) }) &&
		!slices.ContainsFunc(pic.faults, func(f fault) bool { return pic.old(f.StartNs) }) {
		return pic, nil
	}
	if err := p.dropEnded(pic); err != nil {
		return nil, err
	}
	pic.threads, err = p.ask(pic.candidates())
	return pic, err
}

// addOverlooked has the kernel note what threads wait for and no hook told of. Once in
// minAge is enough: what is younger is not told.
func (p *Probe) addOverlooked(minAge time.Duration) error {
	now, err := bootNow()
	if err != nil || now-p.searched < uint64(minAge) {
		return err
	}
	p.searched = now
	if _, err := run(p.hooks.overlooked.Open()); err != nil {
		return fmt.Errorf("look for threads that wait: %w", err)
	}
	return nil
}

// dropEnded asks the kernel about the old background requests, for which no thread
// can be asked: the end of one may have been missed.
func (p *Probe) dropEnded(pic *picture) error {
	lasting := pic.requests[:0]
	for _, r := range pic.requests {
		if r.Background != 0 && pic.old(r.StartNs) {
			lasts, err := p.hooks.lasts.Run(&ebpf.RunOptions{Context: []uint64{r.key}})
			if err != nil {
				return fmt.Errorf("ask about a request: %w", err)
			}
			if lasts == 0 {
				pic.unused = append(pic.unused, r)
				continue
			}
		}
		lasting = append(lasting, r)
	}
	pic.requests = lasting
	return nil
}

func unique[T any, K comparable](list []T, key func(T) K) []T {
	seen := make(map[K]bool, len(list))
	return slices.DeleteFunc(list, func(t T) bool {
		k := key(t)
		was := seen[k]
		seen[k] = true
		return was
	})
}

func bootNow() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// ask runs the iterator over threads for some of them.
func (p *Probe) ask(tids []uint32) (map[uint32]thread, error) {
	if err := p.hooks.ask(tids); err != nil {
		return nil, fmt.Errorf("ask about threads: %w", err)
	}
	raw, err := run(p.hooks.threads.Open())
	if err != nil {
		return nil, fmt.Errorf("iterate over threads: %w", err)
	}
	threads, err := decodeThreads(raw)
	if err != nil {
		p.invalid++
	}
	return threads, err
}

// ask leaves marked, of all threads, these: a bit each (asked in fusefault.bpf.c).
func (h *hooks) ask(tids []uint32) error {
	words := map[uint32]uint64{}
	for _, tid := range h.marked {
		words[tid/64] = 0
	}
	for _, tid := range tids {
		words[tid/64] |= 1 << (tid % 64)
	}
	h.marked = tids
	memory, err := h.maps.Asked.Memory()
	if err != nil {
		return err
	}
	for at, word := range words {
		if _, err := memory.WriteAt(binary.NativeEndian.AppendUint64(nil, word), int64(at)*8); err != nil {
			return fmt.Errorf("mark threads %d to %d: %w", at*64, at*64+63, err)
		}
	}
	return nil
}

func run(iteration io.ReadCloser, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer iteration.Close()
	return io.ReadAll(iteration)
}

// forget takes out what ended without a hook telling, after another look: the
// kernel may have used the key again.
func (p *Probe) forget(v verdicts, unused []request) error {
	for _, r := range append(v.endedRequests, unused...) {
		var now bpfRequest
		if err := p.hooks.maps.Requests.Lookup(r.key, &now); err != nil || now != r.bpfRequest {
			continue
		}
		done, err := room.Forget(p.hooks.forgets.request, r.key, r.StartNs)
		if err != nil {
			return fmt.Errorf("forget a request: %w", err)
		}
		if done {
			p.answered[device(r.Device)] += r.Answered
		}
	}
	for _, f := range v.endedFaults {
		var now bpfFault
		if err := p.hooks.maps.Faults.Lookup(f.tid, &now); err == nil && now == f.bpfFault {
			if _, err := room.Forget(p.hooks.forgets.fault, uint64(f.tid), f.StartNs); err != nil {
				return fmt.Errorf("forget a fault: %w", err)
			}
		}
	}
	return nil
}
