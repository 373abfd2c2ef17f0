//go:build linux && (amd64 || arm64)

package oomkill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
)

// fireTimeout is how long after the kill its event may take to arrive: it is in
// the ring before the victim is dead, so this is for a very slow machine.
const fireTimeout = 5 * time.Second

// Fire makes a real, harmless OOM kill (see Drill) and waits for its event, which
// must carry what this rung promises. Report then says whether it did. Events of
// other processes that come in between are lost, so call it before the reading
// begins, not beside it. An error of Drill itself leaves the report as it was.
func (p *Probe) Fire(ctx context.Context) (Event, error) {
	drill, err := Drill(ctx, DrillOptions{})
	if err != nil {
		return Event{}, fmt.Errorf("fire oomkill: %w", err)
	}
	event, err := p.await(drill.PID, fireTimeout)
	if err == nil {
		err = p.promised(event, drill)
	}
	p.fired(err)
	if err != nil {
		return event, fmt.Errorf("fire oomkill: %w", err)
	}
	return event, nil
}

// await reads until the victim's event or the deadline.
func (p *Probe) await(pid uint32, timeout time.Duration) (Event, error) {
	p.hooks.reader.SetDeadline(time.Now().Add(timeout))
	defer p.hooks.reader.SetDeadline(time.Time{})
	for {
		var e Event
		err := p.Read(&e)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return Event{}, fmt.Errorf("no event of process %d within %s: %w", pid, timeout, ladder.ErrSilent)
		case err != nil:
			return Event{}, err
		case e.PID == pid:
			return e, nil
		}
	}
}

// promised compares an event with what the drill knows and the rung claims.
func (p *Probe) promised(e Event, drill DrillResult) error {
	want := map[string]Source{
		RungFentry: SourceOOMControl, RungKprobe: SourceOOMControl, RungStack: SourceStack, RungVictim: SourceNone,
	}[p.Report().Rung]
	switch {
	case e.Source != want:
		return fmt.Errorf("the constraint came from source %d instead of %d: %w", e.Source, want, ladder.ErrSilent)
	case e.AnonRSSBytes == 0 || e.Comm != drill.Comm:
		return fmt.Errorf("the victim reads as %q with %d bytes of anonymous memory", e.Comm, e.AnonRSSBytes)
	// The drill's cgroup has a name of its own, whatever namespace shows its path.
	case path.Base(e.CgroupPath) != path.Base(drill.CgroupPath):
		return fmt.Errorf("the victim's cgroup reads as %q, it was in %q", e.CgroupPath, drill.CgroupPath)
	case want != SourceNone && (e.Constraint != ConstraintCgroup || e.LimitBytes != drill.LimitBytes || e.LimitCgroup != e.CgroupPath):
		return fmt.Errorf("the limit reads as %d bytes of %q, it was %d of %q", e.LimitBytes, e.LimitCgroup, drill.LimitBytes, drill.CgroupPath)
	}
	return nil
}

// fired writes the outcome into the report.
func (p *Probe) fired(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := &p.report.Attempts[len(p.report.Attempts)-1]
	if err != nil {
		*last = ladder.Classify(last.Rung, err)
		return
	}
	last.Fired = true
}
