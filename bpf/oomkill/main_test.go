//go:build linux && (amd64 || arm64)

package oomkill

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/ladder"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// TestMain lets the test binary be the processes that the tests need.
func TestMain(m *testing.M) {
	if IsDrillChild() {
		os.Exit(DrillChild())
	}
	switch role, argument, _ := strings.Cut(os.Getenv(roleVariable), ":"); role {
	case "":
		os.Exit(m.Run())
	case "take":
		os.Exit(exitCode(takeAndWait(argument)))
	case "drill":
		os.Exit(exitCode(drillOnce()))
	}
	os.Exit(2)
}

// roleVariable makes the test binary play "take:<bytes>:<oom_score_adj>" or "drill".
const roleVariable = "TRACECORE_OOMKILL_TEST_ROLE"

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// takeAndWait waits for a line, takes memory, prints a line and waits until its
// standard input ends.
func takeAndWait(argument string) error {
	sizeText, adjustment, _ := strings.Cut(argument, ":")
	size, err := strconv.Atoi(sizeText)
	if err != nil {
		return err
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(adjustment), 0); err != nil {
		return err
	}
	line := make([]byte, 1)
	if _, err := os.Stdin.Read(line); err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	fmt.Println("taken")
	_, _ = os.Stdin.Read(line)
	return unix.Munmap(memory)
}

// drillOnce waits for a line, runs a drill where this process stands and prints the
// victim's cgroup.
func drillOnce() error {
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	result, err := Drill(context.Background(), DrillOptions{})
	if err == nil {
		fmt.Println(result.CgroupPath)
	}
	return err
}

// open opens the probe, or skips the test where this kernel has not the rung.
func open(t *testing.T, opts Options) *Probe {
	t.Helper()
	privtest.Require(t)
	p, err := Open(opts)
	var none *ladder.NoRung
	if opts.Rung != "" && errors.As(err, &none) {
		attempt := none.Report.Attempts[0]
		if attempt.Outcome == probe.Denied || attempt.Outcome == probe.Unsupported {
			t.Skipf("this kernel has not the rung %s: %s", opts.Rung, attempt.Reason)
		}
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// next returns the event of one process and fails when none comes.
func next(t *testing.T, p *Probe, pid uint32) Event {
	t.Helper()
	e, err := p.await(pid, hosttest.Patience)
	require.NoError(t, err)
	return e
}

// player is the test binary in another role, held by its standard input.
type player struct {
	*exec.Cmd
	stdin  *os.File
	stdout *bufio.Reader
}

// play starts the test binary in a role; it ends with the test at the latest.
func play(t *testing.T, role string) *player {
	t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer reader.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &player{Cmd: exec.Command(self), stdin: writer}
	p.Env = []string{roleVariable + "=" + role}
	p.Stdin, p.Stderr = reader, os.Stderr
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	p.stdout = bufio.NewReader(stdout)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = writer.Close()
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// tell releases one step of the player.
func (p *player) tell(t *testing.T) {
	t.Helper()
	_, err := p.stdin.WriteString("\n")
	require.NoError(t, err)
}

// setOOMScore sets how willingly the kernel kills this process, for the time of a test.
func setOOMScore(t *testing.T, score int) {
	t.Helper()
	const file = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(score)), 0))
	t.Cleanup(func() { require.NoError(t, os.WriteFile(file, bytes.TrimSpace(before), 0)) })
}

// line waits for a line of the player.
func (p *player) line(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(line)
}

// cgroup makes a memory cgroup for the test, inside another one or near the root.
func cgroup(t *testing.T, parent *drillCgroup, limit uint64) *drillCgroup {
	t.Helper()
	var group *drillCgroup
	var err error
	if parent == nil {
		group, err = newDrillCgroup(limit)
	} else {
		group, err = makeDrillCgroup(parent.dir, parent.v2, limit)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, group.remove()) })
	return group
}
