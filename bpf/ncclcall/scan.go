//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/tracecoreai/tracecore/bpf/internal/bootclock"
	"github.com/tracecoreai/tracecore/bpf/internal/counter"
	"github.com/tracecoreai/tracecore/bpf/internal/room"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Scan reads where all communicators stand, and forgets those of processes that have
// ended. Where a process calls more often than is good for it, Scan has its calls left
// uncounted for a while: see Limit.
func (p *Probe) Scan() (*Scan, error) {
	var s *Scan
	err := p.WhileOpen(func() error {
		found, err := p.scan()
		if err != nil {
			return fmt.Errorf("scan %s: %w", Name, err)
		}
		s = found
		return nil
	})
	return s, err
}

func (p *Probe) scan() (*Scan, error) {
	offset, err := bootclock.Offset()
	if err != nil {
		return nil, err
	}
	s := &Scan{Time: time.Now(), Graphs: map[uint32]Launches{}}
	if s.Refused, err = counter.Sum(p.hooks.collection.Maps[bpfMapRefused], 0); err != nil {
		return nil, err
	}
	p.forgetIncomplete(s.Time)
	gone := p.ended()
	var lost error
	err = each(p.hooks.collection.Maps[bpfMapCommunicators], p.hooks.forgetCommunicator, func(key *bpfCommunicatorKey, value *bpfCommunicator) bool {
		if gone(key.Pid) {
			return false
		}
		c := communicator(key, value, offset)
		c.Exact = p.counted(&c) && p.births.seen(c.PID, c.Hash, value.RefusedNs)
		p.align(&c, key, value)
		depth, failed := p.hooks.openGroups(c.PID, value.GroupThread, c.slot)
		c.GroupDepth, lost = depth, errors.Join(lost, failed)
		s.Communicators = append(s.Communicators, c)
		return true
	})
	if err = errors.Join(err, lost); err != nil {
		return nil, err
	}
	err = each(p.hooks.collection.Maps[bpfMapGraphs], p.hooks.forgetLaunches, func(pid *uint32, launches *bpfLaunches) bool {
		if gone(*pid) {
			return false
		}
		s.Graphs[*pid] = Launches{launches.Count, bootclock.Time(launches.LastNs, offset)}
		return true
	})
	p.forgetLaunches(s.Communicators)
	for _, pid := range p.births.pids() {
		if gone(pid) {
			p.births.forget(pid)
		}
	}
	if err != nil {
		return nil, err
	}
	return s, p.restrict(s, gone)
}

// align says how many launches there were before the first call that was counted, where the
// communicator's own counter is known.
func (p *Probe) align(c *Communicator, key *bpfCommunicatorKey, value *bpfCommunicator) {
	if c.Exact || c.Identity != Known || c.PointToPoint() > 0 || value.WindowNumber == 0 || value.WindowNumber > c.Collectives {
		return
	}
	l := p.launches[*key]
	if l == nil {
		l = &launches{slot: c.slot}
		p.launches[*key] = l
	}
	c.Before, c.Aligned = l.learn(value.WindowNumber-1, slices.Clone(value.Window[:]))
}

// forgetLaunches forgets communicators that are no more.
func (p *Probe) forgetLaunches(there []Communicator) {
	if len(p.launches) == 0 {
		return
	}
	known := make(map[bpfCommunicatorKey]bool, len(there))
	for i := range there {
		known[bpfCommunicatorKey{Pid: there[i].PID, Address: there[i].Address}] = true
	}
	maps.DeleteFunc(p.launches, func(k bpfCommunicatorKey, _ *launches) bool { return !known[k] })
}

// forgetIncomplete forgets what was made by libraries from which the probe was detached: only
// what is made from then on is known from its beginning.
func (p *Probe) forgetIncomplete(now time.Time) {
	for _, slot := range p.hooks.takeGaps() {
		p.births.clear(slot, now)
		maps.DeleteFunc(p.launches, func(_ bpfCommunicatorKey, l *launches) bool { return l.slot == slot })
	}
}

// counted reports whether the collectives of a communicator are counted now.
func (p *Probe) counted(c *Communicator) bool {
	return max(p.spared[c.PID], p.limits.libraryLimit(c.slot)) < NoCalls
}

// restrict leaves uncounted what is called too often, and counts it again when its time is
// over.
func (p *Probe) restrict(s *Scan, gone func(pid uint32) bool) error {
	slots := p.hooks.slots()
	p.limits.judge(s.Time, s.Communicators, slots, gone)
	s.Limited = p.limits.limited(s.Communicators, slots)
	errs := []error{p.spare(s.Time)}
	for slot := range slots {
		errs = append(errs, p.hooks.restrict(slot, p.limits.libraryLimit(slot)))
	}
	return errors.Join(errs...)
}

// spare tells BPF whose calls to skip. What such a process makes is not known from its
// beginning, also afterwards.
func (p *Probe) spare(now time.Time) error {
	spared := p.hooks.collection.Maps[bpfMapSpared]
	for pid, limit := range p.spared {
		if its := p.limits.processes[pid]; its != nil && its.limit == limit {
			continue
		}
		if err := spared.Delete(pid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("count the calls of a process again: %w", err)
		}
		p.notKnown(pid, now)
		delete(p.spared, pid)
	}
	for pid, its := range p.limits.processes {
		if _, known := p.spared[pid]; known || its.limit == Unlimited {
			continue
		}
		if err := spared.Put(pid, uint32(its.limit)); err != nil {
			return fmt.Errorf("leave the calls of a process uncounted: %w", err)
		}
		p.notKnown(pid, now)
		p.spared[pid] = its.limit
	}
	return nil
}

func (p *Probe) notKnown(pid uint32, now time.Time) {
	p.births.clearProcess(pid, now)
	maps.DeleteFunc(p.launches, func(k bpfCommunicatorKey, _ *launches) bool { return k.Pid == pid })
}

// ended asks once for each process whether it is gone. One that cannot be asked is not.
func (p *Probe) ended() func(pid uint32) bool {
	known := map[uint32]bool{}
	return func(pid uint32) bool {
		is, asked := known[pid]
		if !asked {
			stat, err := p.proc.Stat(pid)
			is = errors.Is(err, procfs.ErrGone) || err == nil && stat.Ended()
			known[pid] = is
		}
		return is
	}
}

// batch is how many entries are read at a time.
const batch = 128

// each reads a map and has the entries deleted that keep does not want.
func each[K, V any](m *ebpf.Map, forget func(*K) error, keep func(*K, *V) bool) error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, batch), make([]V, batch)
	var over []K
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			if !keep(&keys[i], &values[i]) {
				over = append(over, keys[i])
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return err
		}
	}
	for i := range over {
		if err := forget(&over[i]); err != nil {
			return err
		}
	}
	return nil
}

// The programs delete, for they keep count of what owners hold.

func (h *hooks) forgetCommunicator(key *bpfCommunicatorKey) error {
	_, err := room.Forget(h.collection.Programs[bpfProgForgetCommunicator], uint64(key.Pid), key.Address)
	return err
}

func (h *hooks) forgetLaunches(pid *uint32) error {
	_, err := room.Forget(h.collection.Programs[bpfProgForgetLaunches], uint64(*pid))
	return err
}
