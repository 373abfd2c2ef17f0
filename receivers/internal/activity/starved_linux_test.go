package activity

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/socketstall"
)

// What the test binary does as a rank that has hardly a CPU.
const (
	mainComputes   = "main thread computes"
	threadComputes = "another thread computes"
	childComputes  = "a child computes"
	programs       = "one program after the other computes"
)

// standIns are what a rank does on its first thread, for ever.
var standIns = map[string]func(){
	mainComputes:   func() { compute(time.Hour) },
	threadComputes: func() { go compute(time.Hour); <-make(chan int) },
	childComputes:  func() { program(mainComputes) },
	programs: func() {
		for {
			program(moment)
		}
	},
	pretends: pretend,
	moment:   func() { compute(200 * time.Microsecond); os.Exit(0) },
}

const moment = "computes for a moment"

func compute(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		continue
	}
}

func program(does string) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"="+does)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	_ = cmd.Run()
}

// TestWhatHasHardlyACPU: a cgroup keeps a rank and its children from the CPUs for seconds at a time,
// however idle or busy this machine is. What wants to compute is never at rest for long.
func TestWhatHasHardlyACPU(t *testing.T) {
	hosttest.Require(t, "it limits the CPU of processes")
	for _, does := range []string{mainComputes, threadComputes, childComputes, programs} {
		t.Run(does, func(t *testing.T) {
			t.Parallel()
			g, ok := hosttest.NewCPUCgroup(t)
			if !ok {
				t.Skip("no cgroup has a CPU limit")
			}
			rank := standIn(t, does)
			g.Add(t, rank.PID)
			r := New(thisProc())
			var before Usage
			var at, last time.Time
			look := func() {
				now := time.Now()
				r.Begin()
				p := r.Read(rank, false)
				r.Inspect(&p, func(uint32) bool { return false })
				how, _ := p.Does(before, now.Sub(at), 0)
				if t.Logf("%v %s %+v", now.Sub(at).Round(time.Millisecond), how, *p.Inside); how != socketstall.Idle || last.IsZero() || !p.Inside.Compared {
					last = now
				}
				before, at = p.Usage(), now
			}
			for range 4 { // it does by now what it does
				look()
				time.Sleep(250 * time.Millisecond)
			}
			require.NoError(t, g.Starve())
			for end := time.Now().Add(4 * asleep); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				look()
				require.Less(t, at.Sub(last), asleep, "it was told to rest")
			}
		})
	}
}
