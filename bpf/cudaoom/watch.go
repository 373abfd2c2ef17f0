//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// library is one file that processes have mapped as libcuda. Containers have their
// own: the NVIDIA container toolkit mounts the host's into them (the same inode),
// an image may bring another.
type library struct {
	device string // major:minor, as maps shows it
	inode  uint64
}

// looked is what is known of one process.
type looked struct {
	start     time.Time
	libraries []library // once it has some, it is not looked at again
	looks     int
	next      int // round of the next look
}

// attached is one library with its probes.
type attached struct {
	links []link.Link // none where attaching failed
	retry int         // then the round to try it again
}

// A process without libcuda is looked at again in each of the first rounds, then
// ever more rarely: it loads the library when it first uses a GPU. A library that
// could not be attached is tried again after the longest pause.
const (
	eagerLooks = 12
	maxPause   = 12
)

// Watch attaches the probe to the libcuda that these processes have mapped, each
// file once, and detaches it from files that none of them has any more. A uprobe
// belongs to a file: other processes that map it are seen too, also those that
// begin to. Call it again now and then.
func (p *Probe) Watch(processes []Process) (Watched, error) {
	var w Watched
	wanted, err := p.look(processes, &w)
	if err != nil {
		w.Err = err
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return w, probe.ErrClosed
	}
	for l, at := range wanted {
		if err := p.attachTo(l, at, &w); err != nil {
			w.Err = errors.Join(w.Err, err)
		}
	}
	return w, p.settle(wanted, &w)
}

// found is where a library can be opened: in one of the processes that map it.
// The mapping is zero where all of them were looked at in an earlier round.
type found struct {
	pid uint32
	procfs.Mapping
}

// look brings what is known of the processes up to date and returns the libraries
// they use.
func (p *Probe) look(processes []Process, w *Watched) (map[library]found, error) {
	p.round++
	wanted := map[library]found{}
	there := make(map[uint32]bool, len(processes))
	var errs error
	for _, process := range processes {
		there[process.PID] = true
		known := p.processes[process.PID]
		if known == nil || !known.start.Equal(process.Start) {
			known = &looked{start: process.Start}
			p.processes[process.PID] = known
		}
		if err := p.lookAt(process.PID, known, wanted); err != nil {
			w.Unreadable++
			errs = err // one says enough of many
		}
		for _, l := range known.libraries {
			if _, ok := wanted[l]; !ok {
				wanted[l] = found{}
			}
		}
	}
	for pid := range p.processes {
		if !there[pid] {
			delete(p.processes, pid)
		}
	}
	return wanted, errs
}

func (p *Probe) lookAt(pid uint32, known *looked, wanted map[library]found) error {
	if len(known.libraries) > 0 || p.round < known.next {
		return nil
	}
	mappings, err := p.libcuda(pid)
	if err != nil {
		return err
	}
	known.looks++
	known.next = p.round + min(1+known.looks/eagerLooks, maxPause)
	for _, m := range mappings {
		l := library{device: m.Device, inode: m.Inode}
		known.libraries = append(known.libraries, l)
		wanted[l] = found{pid, m}
	}
	return nil
}

// libcuda finds the driver's library of a process; none, where the process is gone.
func (p *Probe) libcuda(pid uint32) ([]procfs.Mapping, error) {
	found, err := p.proc.Libraries(pid, "libcuda.so")
	if errors.Is(err, procfs.ErrGone) {
		return nil, nil
	}
	return found, err
}

// attachTo attaches to a library that is not yet.
func (p *Probe) attachTo(l library, at found, w *Watched) error {
	p.mu.Lock()
	known := p.libraries[l]
	full := len(p.libraries) >= p.max
	p.mu.Unlock()
	switch {
	case known != nil && (len(known.links) > 0 || p.round < known.retry):
		return nil
	case at.Path == "":
		p.forget(l) // the next round finds where it can be opened
		return nil
	case known == nil && full:
		p.forget(l) // and when there is room
		w.Over++
		return nil
	}
	links, err := p.open(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.Join(err, detach(links))
	}
	p.libraries[l] = &attached{links: links, retry: p.round + maxPause}
	if err != nil {
		return fmt.Errorf("watch %s of process %d: %w", at.Path, at.pid, err)
	}
	return nil
}

// forget has the users of a library looked at again in the next round.
func (p *Probe) forget(l library) {
	for _, known := range p.processes {
		for _, its := range known.libraries {
			if its == l {
				known.libraries, known.next = nil, 0
				break
			}
		}
	}
}

func (p *Probe) open(at found) ([]link.Link, error) {
	file, err := p.proc.OpenMapped(at.pid, at.Mapping)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	places, err := offsets(file, functions())
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return nil, errors.New("it exports none of the driver's allocation functions")
	}
	// The kernel takes a path; this one leads to the file that was read.
	return p.hooks.attach(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), places)
}

// settle detaches what nobody uses and counts the rest.
func (p *Probe) settle(wanted map[library]found, w *Watched) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return probe.ErrClosed
	}
	var errs []error
	for l, a := range p.libraries {
		if _, used := wanted[l]; !used {
			errs = append(errs, detach(a.links))
			delete(p.libraries, l)
			continue
		}
		if len(a.links) == 0 {
			w.Failed++
			continue
		}
		w.Libraries++
	}
	return errors.Join(errs...)
}
