//go:build linux

package acceptance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// BenchmarkXidBesideAFlood measures from before the write of an Xid 79 until an agent with
// the memory of the chart has printed the verdict, while a flood comes again and again. The
// senders of the flood take their part of the processors too.
func BenchmarkXidBesideAFlood(b *testing.B) {
	privtest.Require(b)
	hosttest.UnlimitKmsg(b)
	encoding.RegisterCompressor(asItIs{"zstd"})
	quiet := flood{name: "no flood", send: func(testing.TB, flooded) { time.Sleep(time.Millisecond) }}
	for _, one := range append([]flood{quiet}, floods...) {
		b.Run(one.name, func(b *testing.B) {
			f := startFlooded(b, agentLimit)
			over, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for {
					select {
					case <-over:
						return
					default:
						one.send(b, f)
					}
				}
			}()
			var delays []time.Duration
			for i := 0; b.Loop(); i++ {
				delays = append(delays, f.named(b, i))
				time.Sleep(10 * time.Millisecond) // faults of different GPUs are not one burst
			}
			close(over)
			<-ended
			f.alive(b)
			commandtest.ReportDelays(b, delays)
		})
	}
}

// named has the i-th GPU fall off the bus, and returns how long its verdict took.
func (f flooded) named(b *testing.B, i int) time.Duration {
	b.Helper()
	gpu := fmt.Sprintf("%04x:%02x:%02x", 1+i>>13, i>>5&0xff, i&0x1f)
	before := f.Stdout.Len()
	began := time.Now()
	writeKmsg(b, "NVRM: Xid (PCI:"+gpu+"): 79, GPU has fallen off the bus.")
	for time.Since(began) < hosttest.Patience {
		if strings.Contains(f.Stdout.From(before), gpu) {
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	require.FailNow(b, "no verdict", "about %s; it said:\n%s", gpu, f.Stderr)
	return 0
}
