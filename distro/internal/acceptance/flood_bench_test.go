//go:build linux

package acceptance

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/encoding"

	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// BenchmarkXidBesideAFlood measures from before the write of an Xid 79 until an agent with
// the memory of the chart has printed the verdict, while a flood comes again and again.
func BenchmarkXidBesideAFlood(b *testing.B) {
	hosttest.UnlimitKmsg(b)
	besideFloods(b, func(b *testing.B) (flooded, func(gpu string)) {
		return startFlooded(b, agentLimit), func(gpu string) { writeKmsg(b, lostXid(gpu)) }
	})
}

// BenchmarkGatewayBesideAFlood measures the same of a gateway, from before an agent tells it of a
// lost GPU, while another agent, which is believed, sends a flood.
func BenchmarkGatewayBesideAFlood(b *testing.B) {
	besideFloods(b, func(b *testing.B) (flooded, func(gpu string)) {
		f := startFlooded(b, gatewayLimit, "--config="+filepath.Join("testdata", "gateway.yaml"))
		agent := dial(b, f)
		return f, func(gpu string) { tell(b, agent, lostGPU(gpu)) }
	})
}

// besideFloods measures how long verdicts take beside each flood. The senders are a process of
// their own, with what the others leave of the processors: a flood comes from other machines, or
// from a container with a share of its own.
func besideFloods(b *testing.B, start func(b *testing.B) (f flooded, fault func(gpu string))) {
	privtest.Require(b)
	for i, one := range append([]flood{{name: "no flood"}}, floods...) {
		b.Run(one.name, func(b *testing.B) {
			f, fault := start(b)
			if one.send != nil {
				f.floodFrom(b, i-1)
			}
			f.measure(b, fault)
		})
	}
}

// measure reports how long verdicts take.
func (f flooded) measure(b *testing.B, fault func(gpu string)) {
	b.Helper()
	var delays []time.Duration
	for i := 0; b.Loop(); i++ {
		delays = append(delays, f.named(b, i, fault))
		time.Sleep(10 * time.Millisecond) // faults of different GPUs are not one burst
	}
	f.alive(b)
	commandtest.ReportDelays(b, delays)
}

// lostXid is what the driver says of a lost GPU.
func lostXid(gpu string) string {
	return "NVRM: Xid (PCI:" + gpu + "): 79, GPU has fallen off the bus."
}

// BenchmarkXidBesideQuotedLines measures the same while a user without privileges, in a namespace of
// his own, has the kernel write lines that quote a driver's words, as many as it can.
func BenchmarkXidBesideQuotedLines(b *testing.B) {
	privtest.Require(b)
	hosttest.UnlimitKmsg(b)
	for console, level := range map[string]string{"console as usual": "4", "console quiet": "1"} { // a slow console slows the kernel down
		b.Run(console, func(b *testing.B) {
			hosttest.SetSysctl(b, "kernel/printk", level)
			f := startFlooded(b, agentLimit)
			nobody := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}}
			another(b, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: nobody, GidMappings: nobody}, nil, quotedVariable+"=1")
			f.measure(b, func(gpu string) { writeKmsg(b, lostXid(gpu)) })
		})
	}
}

// quotedVariable makes the test binary mount what no file system knows, without end.
const quotedVariable = "TRACECORE_TEST_QUOTED"

// playQuoted is the life of that process; it ends with its maker.
func playQuoted() {
	if os.Getenv(quotedVariable) == "" {
		return
	}
	for range 4 {
		go func() {
			for {
				_ = unix.Mount("x", "/tmp", "tmpfs", 0, "x\nNVRM: Xid (PCI:0000:01:00): 79")
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// floodVariable makes the test binary send a flood: its number, and the addresses.
const floodVariable = "TRACECORE_TEST_FLOOD"

// floodFrom lets a process of its own send a flood until the test ends.
func (f flooded) floodFrom(b *testing.B, number int) {
	b.Helper()
	another(b, nil, []string{"nice", "-n", "19"}, floodVariable+"="+strings.Join([]string{strconv.Itoa(number), f.grpc, f.http, f.Health, f.metrics}, " "))
}

// another starts the test binary as somebody else, by another program if one is named, until the
// test ends.
func another(b *testing.B, as *syscall.SysProcAttr, by []string, environment string) {
	b.Helper()
	self, err := os.Executable()
	require.NoError(b, err)
	line := slices.Concat(by, []string{self})
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env, cmd.SysProcAttr, cmd.Stderr = append(os.Environ(), environment), as, os.Stderr
	hold, err := cmd.StdinPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = hold.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// playFlood is the life of that process; it ends with its maker.
func playFlood() {
	said := strings.Fields(os.Getenv(floodVariable))
	if len(said) != 5 {
		return
	}
	number, err := strconv.Atoi(said[0])
	if err != nil || number < 0 || number >= len(floods) {
		os.Exit(2)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	encoding.RegisterCompressor(asItIs{"zstd"})
	f := flooded{grpc: said[1], http: said[2], agent: agent{Running: &commandtest.Running{Health: said[3]}, metrics: said[4]}}
	for {
		floods[number].send(sender{}, f)
	}
}

// sender stands for the test in a process that has none.
type sender struct{ testing.TB }

func (sender) Helper()                  {}
func (sender) Context() context.Context { return context.Background() }
func (sender) Error(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}
func (s sender) Errorf(format string, args ...any) { s.Error(fmt.Sprintf(format, args...)) }

// named has the i-th GPU fall off the bus, and returns how long its verdict took.
func (f flooded) named(b *testing.B, i int, fault func(gpu string)) time.Duration {
	b.Helper()
	gpu := fmt.Sprintf("%04x:%02x:%02x", 1+i>>13, i>>5&0xff, i&0x1f)
	before := f.Stdout.Len()
	began := time.Now()
	fault(gpu)
	for time.Since(began) < hosttest.Patience {
		if strings.Contains(f.Stdout.From(before), gpu) {
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	require.FailNow(b, "no verdict", "about %s; it said:\n%s", gpu, f.Stderr)
	return 0
}
