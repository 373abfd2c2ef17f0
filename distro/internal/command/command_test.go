package command

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asTracecore marks a re-execution of the test binary as the command itself: the
// tests run the real command line in a process of its own, without building it.
const asTracecore = "TRACECORE_TEST_RUN_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asTracecore) != "" {
		os.Exit(Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// outcome is how a command ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// tracecore prepares a process of the command, with a state folder of its own.
func tracecore(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asTracecore+"=1", "TRACECORE_STATE_DIR="+t.TempDir())
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); !exited {
		require.NoError(t, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestExitCodes(t *testing.T) {
	badConfig := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(badConfig, []byte("receivers: {otlp: {protocls: {}}}\n"), 0o600))
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"version":                     {[]string{"--version"}, exitOK, ""},
		"help":                        {[]string{"--help"}, exitOK, ""},
		"components":                  {[]string{"components"}, exitOK, ""},
		"the default is valid":        {[]string{"validate"}, exitOK, ""},
		"unknown command":             {[]string{"nosuch"}, exitUsage, "see tracecore --help"},
		"unknown flag":                {[]string{"--nosuch"}, exitUsage, "see tracecore --help"},
		"unknown flag of a command":   {[]string{"validate", "--nosuch"}, exitUsage, "see tracecore validate --help"},
		"too many arguments":          {[]string{"validate", "more"}, exitUsage, "see tracecore validate --help"},
		"a --set without value":       {[]string{"validate", "--set=nothing"}, exitUsage, "equal sign"},
		"a file that is not there":    {[]string{"--config", "/nosuch.yaml"}, exitInternal, "/nosuch.yaml"},
		"a key nobody knows":          {[]string{"validate", "--config", badConfig}, exitInternal, "protocls"},
		"a key over the default":      {[]string{"validate", "--set=receivers.otlp.protocls=1"}, exitInternal, "protocls"},
		"a default that is not there": {[]string{"validate", "--config", "tracecore:nosuch"}, exitInternal, "tracecore:default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := finish(t, tracecore(t, tt.args...))
			require.Equal(t, tt.code, got.code, "%s%s", got.stdout, got.stderr)
			require.Contains(t, got.stderr, tt.says)
		})
	}
}

// ports moves everything that the default listens on to ports of its own, so
// that a test can run beside a real tracecore.
func ports(t *testing.T) []string {
	t.Helper()
	return []string{
		"--set=receivers.otlp.protocols.grpc.endpoint=" + freeAddress(t),
		"--set=receivers.otlp.protocols.http.endpoint=" + freeAddress(t),
		"--set=extensions.health_check.endpoint=" + freeAddress(t),
		"--set=service.telemetry.metrics.level=none",
	}
}

func TestPortsInUseEndWithWhatToDo(t *testing.T) {
	l := listen(t)
	defer l.Close()
	args := append(ports(t), "--set=extensions.health_check.endpoint="+l.Addr().String())
	got := finish(t, tracecore(t, args...))
	require.Equal(t, exitInternal, got.code, got.stderr)
	require.Contains(t, got.stderr, "address already in use; another program")
}

func TestStateFolderThatCannotBeMade(t *testing.T) {
	cmd := tracecore(t, ports(t)...)
	cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR=/proc/nosuch")
	got := finish(t, cmd)
	require.Equal(t, exitInternal, got.code)
	require.Contains(t, got.stderr, "TRACECORE_STATE_DIR")
}

func TestASecondProcessOnTheSameStateIsRefused(t *testing.T) {
	state := t.TempDir()
	first := startDefault(t, tracecore(t, ports(t)...), state)
	second := tracecore(t, ports(t)...)
	second.Env = append(second.Env, "TRACECORE_STATE_DIR="+state)
	got := finish(t, second)
	require.Equal(t, exitInternal, got.code)
	require.Contains(t, got.stderr, "another tracecore (pid ")
	require.Equal(t, exitOK, first.stop(t, syscall.SIGTERM), first.stderr.String())
}

func TestSignalsShutDownCleanly(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			run := startDefault(t, tracecore(t, ports(t)...), t.TempDir())
			require.Equal(t, exitOK, run.stop(t, signal), run.stderr.String())
		})
	}
}

// TestWithoutPrivilegesTheRestWorks runs the default as a user who may do
// nothing: it becomes healthy and says what is missing.
func TestWithoutPrivilegesTheRestWorks(t *testing.T) {
	cmd := tracecore(t, ports(t)...)
	state := dropPrivileges(t, cmd)
	run := startDefault(t, cmd, state)
	info, err := os.Stat(state)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.Equal(t, exitOK, run.stop(t, syscall.SIGTERM), run.stderr.String())
}

// dropPrivileges makes a command run as nobody (65534) where we are root, from
// a copy of the test binary that nobody can reach, and returns a state folder
// that does not exist yet below one that nobody may write.
func dropPrivileges(t *testing.T, cmd *exec.Cmd) (state string) {
	t.Helper()
	const nobody = 65534
	dir, err := os.MkdirTemp("", "tracecore-nobody-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	cmd.Path = filepath.Join(dir, "tracecore")
	require.NoError(t, os.WriteFile(cmd.Path, binary, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755))
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(home, nobody, nobody))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Dir = dir
	return filepath.Join(home, "state")
}

// running is a tracecore that has become healthy.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr *syncBuffer
	exited         chan struct{} // closed once cmd.ProcessState is set
}

// startDefault starts the command and waits until its health endpoint answers.
func startDefault(t *testing.T, cmd *exec.Cmd, state string) *running {
	t.Helper()
	r := &running{cmd: cmd, stdout: &syncBuffer{}, stderr: &syncBuffer{}, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.stdout, r.stderr
	cmd.Env = append(cmd.Env, "TRACECORE_STATE_DIR="+state)
	require.NoError(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(r.exited) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-r.exited })
	require.Eventually(t, func() bool { return healthy(healthAddress(cmd.Args)) }, 60*time.Second, 10*time.Millisecond,
		"not healthy; it said:\n%s", r.stderr)
	return r
}

// stop sends a signal and returns the exit code.
func (r *running) stop(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	require.NoError(t, r.cmd.Process.Signal(signal))
	select {
	case <-r.exited:
	case <-time.After(30 * time.Second):
		require.Fail(t, "it does not end", "after %s; it said:\n%s", signal, r.stderr)
	}
	return r.cmd.ProcessState.ExitCode()
}

func healthAddress(args []string) string {
	for _, arg := range args {
		if address, ok := strings.CutPrefix(arg, "--set=extensions.health_check.endpoint="); ok {
			return address
		}
	}
	return "127.0.0.1:13133"
}
