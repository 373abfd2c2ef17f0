//go:build linux

package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/tracecoreai/tracecore/distro/internal/toptest"
)

// glance is how long somebody looks at a screen.
const glance = 20 * time.Second

// BenchmarkTop shows recordings of jobs in tmux, which are drawn each second: CPU in
// percent of one core, once the recording is read.
func BenchmarkTop(b *testing.B) {
	for _, ranks := range []int{8, 64, 1024, 16384} {
		recording := toptest.Checkpoint(ranks).File(b)
		for _, size := range [][2]int{{80, 24}, {200, 60}} {
			b.Run(fmt.Sprintf("%d ranks at %dx%d", ranks, size[0], size[1]), func(b *testing.B) {
				for b.Loop() {
					terminal := toptest.Show(b, tracecore(b, "top", recording), size[0], size[1])
					terminal.Await("enter incident")
					pid := terminal.PID()
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(share(b, pid), "cpu-%-of-home")
					terminal.Press("r", "n")
					terminal.Await("differs")
					b.ReportMetric(share(b, pid), "cpu-%-of-ranks")
					b.ReportMetric(kib(b, pid, "VmRSS")/1024, "rss-MiB")
					terminal.Press("q")
				}
			})
		}
	}
}

// share is what a process takes of one core while it is watched.
func share(b *testing.B, pid int) float64 {
	b.Helper()
	began, before := time.Now(), cpuTime(b, pid)
	time.Sleep(glance)
	return 100 * float64(cpuTime(b, pid)-before) / float64(time.Since(began))
}
