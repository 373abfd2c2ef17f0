//go:build linux && (amd64 || arm64)

// Package taskstack tells where one thread is: its kernel stack and the registers that it
// left user space with. It does not stop the thread.
package taskstack

//go:generate go tool bpf2go -go-package taskstack -tags linux -target amd64,arm64 bpf taskstack.bpf.c

import (
	"fmt"
	"sync"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

// Name of the probe in reports.
const Name = "taskstack"

// Options of the probe; the zero value is right for production.
type Options struct {
	Rung string     // use this rung and no other (see Rungs)
	FS   *procfs.FS // where /proc is read, nil: procfs.Open
}

// source is one rung, in use.
type source interface {
	// read fills s, or returns procfs.ErrGone.
	read(tid uint32, s *Stack) error
	close() error
}

// Probe reads stacks from the moment it is open. Its methods may be called at the same time.
type Probe struct {
	mu     sync.Mutex // guards what follows
	source source
	report probe.Report
	stats  probe.Stats
	closed bool
}

// Open takes the best rung that works on this kernel and was seen to fire: it must find a
// thread of this process in the read that it sleeps in.
func Open(opts Options) (*Probe, error) {
	if opts.FS == nil {
		opts.FS = procfs.Open("")
	}
	src, report, err := ladder.Climb(Name, opts.Rung, rungs(opts.FS))
	if err != nil {
		return nil, err
	}
	return &Probe{source: src, report: report}, nil
}

// Read tells where a thread is. A number is that of the pid namespace of this process. The
// error of a thread that has ended is procfs.ErrGone.
func (p *Probe) Read(tid uint32, s *Stack) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return probe.ErrClosed
	}
	if err := p.source.read(tid, s); err != nil {
		return fmt.Errorf("read stack of thread %d: %w", tid, err)
	}
	p.stats.Events++
	return nil
}

// Stats counts the stacks that were read.
func (p *Probe) Stats() probe.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Report says which rung is in use and why not a better one.
func (p *Probe) Report() probe.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report.Clone()
}

// Close closes the probe. Closing twice is fine.
func (p *Probe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if err := p.source.close(); err != nil {
		return fmt.Errorf("close %s: %w", Name, err)
	}
	return nil
}
