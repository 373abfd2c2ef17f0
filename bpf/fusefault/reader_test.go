//go:build linux && (amd64 || arm64)

package fusefault

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/fusefault/hangfs"
)

// Whoever begins to wait while the maps are read is seen too: with a reader that never
// pauses, and is preempted for each of them.
func TestReadingHidesNoWaiter(t *testing.T) {
	const each = 100
	for _, rung := range Rungs() {
		t.Run(rung, func(t *testing.T) {
			p, ok := tryOpen(t, Options{Rung: rung, MinAge: young.MinAge})
			if !ok {
				return
			}
			f := mount(t, hangfs.Options{})
			v := visit(t, f, hangfs.Access{How: hangfs.Fault, File: hangfs.Cached, Threads: each}, hangfs.Access{How: hangfs.Read, File: hangfs.Direct, Threads: each})
			require.NoError(t, f.Freeze())
			stop, stopped := make(chan struct{}), make(chan error)
			go func() {
				var s Snapshot
				for {
					select {
					case <-stop:
						stopped <- nil
						return
					default:
					}
					if err := p.Snapshot(&s); err != nil {
						stopped <- err
						return
					}
				}
			}()
			require.NoError(t, v.Go())
			until(t, p, f, func(all []InFlight, _ Mount) bool {
				counted := min(int(p.Stats().Dropped), each/10) // see again.h
				return len(waiters(all))+counted >= 2*each && len(of(all, KindFault))+counted >= each
			})
			close(stop)
			require.NoError(t, <-stopped)
			require.NoError(t, f.Thaw())
			require.NoError(t, v.Wait(t.Context()))
			require.NoError(t, v.Kill())
			<-v.Gone()
			until(t, p, f, gone)
		})
	}
}
