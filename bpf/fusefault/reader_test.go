//go:build linux && (amd64 || arm64)

package fusefault

import (
	"context"
	"maps"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
)

// Who begins to wait is seen, whatever keeps the kernel from running a program for it: a
// reader of the maps that never pauses, and calls of bpf(2) by anybody. Where the kernel
// preempts such a call, it runs no kprobe's program on that CPU and counts nothing.
func TestNothingHidesAWaiter(t *testing.T) {
	const each = 100
	for _, rung := range Rungs() {
		p, ok := tryOpen(t, Options{Rung: rung, MinAge: young.MinAge})
		if !ok {
			continue
		}
		for name, disturb := range map[string]func(*testing.T, *Probe) (stop func()){
			"a reader without pauses": readOn,
			"calls of bpf(2)":         copyOn,
		} {
			t.Run(rung+"/"+name, func(t *testing.T) {
				f := mount(t, hangfs.Options{})
				v := visit(t, f, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: each}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: each})
				require.NoError(t, f.Freeze())
				stop := disturb(t, p)
				require.NoError(t, v.Go())
				until(t, p, f, func(all []InFlight, _ Mount) bool {
					return len(waiters(all)) == 2*each && len(of(all, KindFault)) == each
				})
				stop()
				require.NoError(t, f.Thaw())
				require.NoError(t, v.Wait(t.Context()))
				require.NoError(t, v.Kill())
				<-v.Gone()
				until(t, p, f, gone)
			})
		}
	}
}

// readOn takes snapshots until it is told to stop.
func readOn(t *testing.T, p *Probe) func() {
	return repeat(t, 1, func() error { return p.Snapshot(new(Snapshot)) })
}

// copyOn has each processor copy a megabyte out of a map of somebody else's, again and again.
func copyOn(t *testing.T, _ *Probe) func() {
	const bytes = 1 << 20
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: bytes, MaxEntries: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return repeat(t, runtime.NumCPU(), func() error {
		value := make([]byte, bytes)
		return m.Lookup(uint32(0), &value)
	})
}

// repeat does something, n times at once, until it is told to stop.
func repeat(t *testing.T, n int, do func() error) func() {
	var doing errgroup.Group
	stop, end := context.WithCancel(t.Context())
	for range n {
		doing.Go(func() error {
			for stop.Err() == nil {
				if err := do(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return func() {
		end()
		require.NoError(t, doing.Wait())
	}
}

// Threads that already waited when the probe was opened, and so without a program that was
// told, are seen: each by its own request, with its thread, mount and operation.
func TestWhoWaitedBeforeTheProbeIsSeen(t *testing.T) {
	const each = 20
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			before, ok := tryOpen(t, Options{Rung: rung, MinAge: young.MinAge})
			if !ok {
				return
			}
			f, other := mount(t, hangfs.Options{}), mount(t, hangfs.Options{})
			v := visit(t, f, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: each}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: each},
				hangfs.Access{How: hangfs.Stat, File: hangfs.Cached}, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached + "2", Threads: each, SamePage: true})
			elsewhere := visit(t, other, hangfs.Access{How: hangfs.Write, File: hangfs.Direct})
			require.NoError(t, f.Freeze())
			require.NoError(t, other.Freeze())
			require.NoError(t, v.Go())
			require.NoError(t, elsewhere.Go())
			all := func(inFlight []InFlight, _ Mount) bool {
				return len(waiters(inFlight)) == 3*each+1 && len(of(inFlight, KindFault)) == 2*each
			}
			until(t, before, f, all)

			p, ok := tryOpen(t, Options{Rung: rung, MinAge: young.MinAge})
			require.True(t, ok)
			seen, m := until(t, p, f, func(inFlight []InFlight, m Mount) bool {
				told, _ := look(t, before, f)
				return all(inFlight, m) && maps.Equal(waiters(told), waiters(inFlight)) && maps.Equal(asked(told), asked(inFlight))
			})
			require.EqualValues(t, f.PID(), m.DaemonPID)
			again, _ := until(t, p, f, all)
			require.Equal(t, ids(seen), ids(again), "they are the same ones")
			one, _ := until(t, p, other, func(inFlight []InFlight, _ Mount) bool { return len(waiters(inFlight)) == 1 })
			require.EqualValues(t, elsewhere.PID(), one[0].PID)

			require.NoError(t, f.Thaw())
			require.NoError(t, other.Thaw())
			require.NoError(t, v.Wait(t.Context()))
			require.NoError(t, elsewhere.Wait(t.Context()))
			_, m = until(t, p, f, gone)
			require.GreaterOrEqual(t, m.Answered, uint64(each), "an end may be missed too")
			until(t, p, other, gone)
		})
	}
}

// asked is what requests in the foreground ask for, by thread.
func asked(inFlight []InFlight) map[uint32][2]uint64 {
	by := map[uint32][2]uint64{}
	for _, i := range of(inFlight, KindRequest) {
		by[i.TID] = [2]uint64{uint64(i.Opcode), i.Inode}
	}
	return by
}

func ids(inFlight []InFlight) map[uint64]bool {
	all := map[uint64]bool{}
	for _, i := range inFlight {
		all[i.ID] = true
	}
	return all
}
