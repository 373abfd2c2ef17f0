//go:build linux && (amd64 || arm64)

package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// script is a source that tells what a test puts into it.
type script struct {
	events  chan event
	drops   atomic.Uint64
	flushed chan struct{}
	closed  chan struct{}
	noExits bool
}

func newScript() *script {
	return &script{events: make(chan event, 4096), flushed: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (s *script) next(e *event, deadline time.Time) error {
	select {
	case *e = <-s.events:
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case *e = <-s.events:
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	case <-s.flushed:
		return errFlushed
	case <-s.closed:
		return os.ErrClosed
	}
}

func (s *script) flush() bool {
	select {
	case s.flushed <- struct{}{}:
	default:
	}
	return true
}

func (s *script) dropped() uint64  { return s.drops.Load() }
func (s *script) tellsExits() bool { return !s.noExits }

func (s *script) signalsTo(uint32, uint64) *signals { return nil }

func (s *script) tidy(uint64, func(uint32, uint64) bool) {}
func (s *script) unnoted() uint64                        { return 0 }

func (s *script) close() error { close(s.closed); return nil }

// fakeProc is a directory that looks like /proc.
type fakeProc struct {
	testing.TB
	root string
}

func newFakeProc(t testing.TB) fakeProc { return fakeProc{t, t.TempDir()} }

// add enters a process that began at a boot-clock time.
func (p fakeProc) add(pid, parent uint32, startNS uint64, comm, cgroup string, environ ...string) {
	p.Helper()
	p.write(pid, "stat", statLine(pid, parent, startNS, comm))
	p.write(pid, "cgroup", "0::"+cgroup+"\n")
	p.write(pid, "status", "Name:\t"+comm+"\nUid:\t1000\t0\t0\t0\n")
	p.write(pid, "environ", string(block(environ...)))
}

// write changes a file at once: the Tracker may read it meanwhile.
func (p fakeProc) write(pid uint32, file, content string) {
	p.Helper()
	dir := filepath.Join(p.root, strconv.Itoa(int(pid)))
	require.NoError(p, os.MkdirAll(dir, 0o755))
	whole := filepath.Join(dir, file+".whole")
	require.NoError(p, os.WriteFile(whole, []byte(content), 0o600))
	require.NoError(p, os.Rename(whole, filepath.Join(dir, file)))
}

func (p fakeProc) remove(pid uint32) {
	require.NoError(p, os.RemoveAll(filepath.Join(p.root, strconv.Itoa(int(pid)))))
}

func statLine(pid, parent uint32, startNS uint64, comm string) string {
	return fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 %d 1000 0\n", pid, comm, parent, startNS/uint64(tick))
}

// scripted is a Tracker over a fake kernel and a fake /proc.
type scripted struct {
	*Tracker
	testing.TB
	script *script
	proc   fakeProc
	exits  <-chan Exit
	base   uint64 // a minute ago on the boot clock, or half its time
}

func newScripted(t testing.TB, opts Options, prepare func(*Tracker, fakeProc, uint64)) *scripted {
	t.Helper()
	proc := newFakeProc(t)
	opts.ProcRoot = proc.root
	opts, err := opts.withDefaults()
	require.NoError(t, err)
	now := bootNow()
	s := &scripted{TB: t, script: newScript(), proc: proc, base: now - min(now/2, uint64(time.Minute))}
	s.Tracker = newTracker(opts, s.script, newReader(proc.root), probe.Report{})
	s.Tracker.proc.WithPatience(hosttest.Patience)
	if prepare != nil {
		prepare(s.Tracker, proc, s.base)
	}
	s.exits = watch(t, s.Tracker)
	s.start()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// ns is a boot-clock time, given in seconds after the base.
func (s *scripted) ns(second float64) uint64 { return s.base + uint64(int64(second*1e9)) } // arm64 makes 0 of a negative float

// at is the wall-clock time of that.
func (s *scripted) at(second float64) time.Time { return wall(s.ns(second)) }

func (s *scripted) exec(pid, parent uint32, start, now float64, environ ...string) {
	b := block(environ...)
	s.script.events <- event{
		kind: kindExec, pid: pid, parentPID: parent, startNS: s.ns(start), timeNS: s.ns(now), comm: "python", environ: b, whole: true,
	}
}

func (s *scripted) exit(pid, parent uint32, start, now float64, status uint32) {
	s.script.events <- event{
		kind: kindExit, pid: pid, parentPID: parent, startNS: s.ns(start), timeNS: s.ns(now), comm: "worker", status: status,
	}
}

// settle waits until the Tracker has handled what was put into the script.
func (s *scripted) settle() {
	s.Helper()
	const sentinel = 1 << 30
	before := s.Counters().Execs
	s.exec(sentinel, 0, 0, 0)
	require.Eventually(s, func() bool { return s.Counters().Execs > before && len(s.script.events) == 0 }, hosttest.Patience, time.Millisecond)
	require.Eventually(s, func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return s.table.exact(sentinel, s.ns(0)) != nil
	}, hosttest.Patience, time.Millisecond)
}

func (s *scripted) lookup(pid, parent uint32, second float64) Process {
	s.Helper()
	p, ok := s.Lookup(pid, parent, s.at(second))
	require.True(s, ok, "process %d is known", pid)
	return p
}
