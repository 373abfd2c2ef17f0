//go:build linux && (amd64 || arm64)

package fusefault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
)

// fireTimeout is for a very slow machine: what Fire makes is seen at once.
const fireTimeout = time.Minute

// lookEvery is the pace at which Fire looks for what it made.
const lookEvery = 5 * time.Millisecond

// Fire makes a small FUSE file system in a mount namespace of its own, lets a child
// hang in a request and in a page fault on it, looks for both, lets them go and sees
// them end. Report then says whether it was so. The program must be one whose
// main asks IsDrillChild. An error of the file system itself leaves the report as
// it was. Everything is gone when Fire returns, also when it fails.
func (p *Probe) Fire(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, fireTimeout)
	defer cancel()
	drill, err := prepareDrill(DrillOptions{})
	if err != nil {
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	defer func() { err = errors.Join(err, drill.Close()) }()
	// Where the mount has just brought FUSE into the kernel, this attaches.
	if err := p.Snapshot(&Snapshot{}); err != nil {
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	if err := errors.Join(drill.fs.Freeze(), drill.victim.Go()); err != nil {
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	err = p.await(ctx, drill, "seen", func(request, fault bool) bool { return request && fault })
	if err == nil {
		if err := errors.Join(drill.fs.Thaw(), drill.victim.Wait(ctx)); err != nil {
			return fmt.Errorf("fire %s: %w", Name, err)
		}
		err = p.await(ctx, drill, "seen to end", func(request, fault bool) bool { return !request && !fault })
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	p.fired(err)
	if err != nil {
		return fmt.Errorf("fire %s: %w", Name, err)
	}
	return nil
}

// await looks until what the drill's victim waits for is as wanted.
func (p *Probe) await(ctx context.Context, drill *Drill, what string, wanted func(request, fault bool) bool) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		request, fault, err := p.waits(drill)
		switch {
		case err != nil:
			return err
		case wanted(request, fault):
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("a hanging request (now seen: %t) and fault (%t) were not %s within %s: %w",
				request, fault, what, fireTimeout, ladder.ErrSilent)
		}
	}
}

func (p *Probe) waits(drill *Drill) (request, fault bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s Snapshot
	if err := p.snapshot(&s, 0); err != nil {
		return false, false, err
	}
	is := func(kind Kind) bool {
		return slices.ContainsFunc(s.InFlight, func(f InFlight) bool {
			return f.Kind == kind && f.PID == drill.VictimPID && f.Device == drill.Device && !f.Background
		})
	}
	return is(KindRequest), is(KindFault), nil
}

// fired writes the outcome into the report.
func (p *Probe) fired(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := &p.report.Attempts[len(p.report.Attempts)-1]
	if err != nil && !errors.Is(err, probe.ErrClosed) {
		*last = ladder.Classify(last.Rung, err)
		return
	}
	last.Fired = err == nil
}

// hangs is what a drill's victim does.
func hangs() []hangfs.Access {
	return []hangfs.Access{{How: hangfs.Read, File: hangfs.Direct}, {How: hangfs.Fault, File: hangfs.Cached}}
}
