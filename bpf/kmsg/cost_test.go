//go:build linux && (amd64 || arm64)

package kmsg

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// What one write to the kernel log costs without the probe and with it, and in
// prog-ns/op how much of that is the program itself.
func BenchmarkWrite(b *testing.B) {
	word := uniqueWord(b)
	const ordinary = "<6>systemd[1]: Started a service of quite ordinary length, for the probe to look at in vain."
	for _, bench := range []struct {
		name, line string
		open       bool
	}{
		{"without probe", ordinary, false},
		{"unmatched", ordinary, true},
		{"unmatched longest", "<6>" + strings.Repeat("x", 900), true},
		{"matched", "<6>NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus. " + word, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var run func() time.Duration
			if bench.open {
				run = drained(b, openProbe(b, Options{Words: append(DefaultWords(), word)}))
			}
			hosttest.UnlimitKmsg(b)
			log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
			require.NoError(b, err)
			defer log.Close()
			line := []byte(bench.line)
			for b.Loop() {
				if _, err := log.Write(line); err != nil {
					b.Fatal(err)
				}
			}
			if run != nil {
				b.ReportMetric(float64(run().Nanoseconds())/float64(b.N), "prog-ns/op")
			}
		})
	}
}

// drained reads the probe's events in the background and returns how to ask for
// the run time of its program since then.
func drained(b *testing.B, p *Probe) func() time.Duration {
	b.Helper()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	require.NoError(b, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for e := (Event{}); p.Read(&e) == nil; {
		}
	})
	b.Cleanup(func() {
		require.NoError(b, p.Close())
		wg.Wait()
		require.NoError(b, stats.Close())
	})
	return func() time.Duration {
		s, err := p.program.Stats()
		require.NoError(b, err)
		return s.Runtime
	}
}

// The time from a write to the kernel log until Read returns the event.
func BenchmarkWriteToRead(b *testing.B) {
	word := uniqueWord(b)
	p := openProbe(b, Options{Words: []string{word}})
	hosttest.UnlimitKmsg(b)
	log, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	require.NoError(b, err)
	defer log.Close()
	line := []byte("<6>NVRM: Xid " + word) // a more urgent level would measure the serial console
	var e Event
	for b.Loop() {
		if _, err := log.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := p.Read(&e); err != nil {
			b.Fatal(err)
		}
	}
}
