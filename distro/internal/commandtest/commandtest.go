// Package commandtest runs the tracecore command line in processes of its own
// for tests and benchmarks, by starting the test binary again: no go command is
// needed, and the same test runs on a bare virtual machine.
package commandtest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver"
)

// variable marks a process that is to be the command.
const variable = "TRACECORE_TEST_RUN_AS_COMMAND"

// IsCommand reports whether this process is to be the command: a TestMain asks
// it first and then only runs the command.
func IsCommand() bool { return os.Getenv(variable) != "" || ncclfrreceiver.IsReader() }

// New prepares a process of the command with a state folder of its own.
func New(tb testing.TB, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), variable+"=1", "TRACECORE_STATE_DIR="+tb.TempDir())
	return cmd
}

// Outcome is how a command ended.
type Outcome struct {
	Code           int
	Stdout, Stderr string
}

// Finish runs a prepared command to its end.
func Finish(tb testing.TB, cmd *exec.Cmd) Outcome {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		require.NoError(tb, err)
	}
	return Outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// health is the flag that moves the health endpoint.
const health = "--set=extensions.health_check.endpoint="

// Ports moves everything that the default listens on to free ports, so that a
// test can run beside a real tracecore. What earlier tests made the kernel say is not
// read back from its log.
func Ports(tb testing.TB) []string {
	tb.Helper()
	return []string{
		"--set=receivers.otlp.protocols.grpc.endpoint=" + hosttest.FreeAddress(tb),
		"--set=receivers.otlp.protocols.http.endpoint=" + hosttest.FreeAddress(tb),
		health + hosttest.FreeAddress(tb),
		"--set=extensions.history.http.endpoint=" + hosttest.FreeAddress(tb),
		"--set=service.telemetry.metrics.level=none",
		"--set=receivers.kernelevents.storage=null",
	}
}

// Running is a tracecore that has become healthy.
type Running struct {
	Cmd            *exec.Cmd
	Stdout, Stderr *Output
	Health         string        // address that answers whether it is well
	exited         chan struct{} // closed once Cmd.ProcessState is set
}

// Start starts a prepared command that was given Ports, and waits until its
// health endpoint answers. The test's end kills it.
func Start(tb testing.TB, cmd *exec.Cmd) *Running {
	tb.Helper()
	return StartBy(tb, cmd, (*exec.Cmd).Start)
}

// StartBy is Start for a process that somebody else starts, as a cgroup does.
func StartBy(tb testing.TB, cmd *exec.Cmd, start func(*exec.Cmd) error) *Running {
	tb.Helper()
	r := &Running{Cmd: cmd, Stdout: NewOutput(tb), Stderr: NewOutput(tb), Health: healthAddress(cmd.Args), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.Stdout.File(), r.Stderr.File()
	require.NoError(tb, start(cmd))
	go func() { _ = cmd.Wait(); close(r.exited) }()
	tb.Cleanup(r.Kill)
	deadline := time.Now().Add(hosttest.Patience)
	for !healthy(r.Health) {
		select {
		case <-r.exited:
			require.FailNow(tb, "tracecore ended", "with %s; it said:\n%s", cmd.ProcessState, r.Stderr)
		case <-time.After(5 * time.Millisecond):
			if time.Now().After(deadline) {
				require.FailNow(tb, "not healthy", "%s", r.hung())
			}
		}
	}
	return r
}

// Stop sends a signal and returns the exit code.
func (r *Running) Stop(tb testing.TB, signal syscall.Signal) int {
	tb.Helper()
	require.NoError(tb, r.Cmd.Process.Signal(signal))
	select {
	case <-r.exited:
	case <-time.After(hosttest.Patience):
		require.FailNow(tb, "it does not end", "after %s; it said:\n%s", signal, r.Stderr)
	}
	return r.Cmd.ProcessState.ExitCode()
}

// Kill ends it as a crash would and returns when it is gone.
func (r *Running) Kill() {
	_ = r.Cmd.Process.Kill()
	<-r.exited
}

// Ended reports whether the process is gone.
func (r *Running) Ended() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

func healthAddress(args []string) string {
	for _, arg := range args {
		if address, ok := strings.CutPrefix(arg, health); ok {
			return address
		}
	}
	return "127.0.0.1:13133"
}

func healthy(address string) bool {
	resp, err := http.Get("http://" + address + "/")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Output is what a process has written so far. It is a file: what the process wrote before it
// answered somebody can be read once the answer is there. Through a pipe it would come a moment later.
type Output struct{ file *os.File }

// NewOutput makes one, until the test ends.
func NewOutput(tb testing.TB) *Output {
	tb.Helper()
	file, err := os.CreateTemp(tb.TempDir(), "output")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = file.Close() })
	return &Output{file}
}

// File is what the process is to write to.
func (o *Output) File() *os.File { return o.file }

// String returns all of it.
func (o *Output) String() string { return o.From(0) }

// From returns all behind the first so many bytes.
func (o *Output) From(bytes int64) string {
	text, _ := io.ReadAll(io.NewSectionReader(o.file, bytes, math.MaxInt64-bytes)) // it is open until the test ends
	return string(text)
}

// Len is how many bytes it has.
func (o *Output) Len() int64 {
	info, err := o.file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
