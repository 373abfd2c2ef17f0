//go:build linux && (amd64 || arm64)

package oomkill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// DefaultDrillLimit is the memory limit of the throw-away cgroup. The child enters it
// when it has started and has its name, so it holds what the child takes, and no more.
const DefaultDrillLimit = 32 << 20

// drillTimeout bounds a drill whose context has no deadline. A large binary
// takes seconds to start under software emulation.
const drillTimeout = 30 * time.Second

// DrillOptions shape the process that is killed.
type DrillOptions struct {
	Env        []string      // its whole environment, as in "RANK=3"
	LimitBytes uint64        // limit of its cgroup, 0: DefaultDrillLimit
	Hold       time.Duration // how long it lives before it takes memory: time to be seen by others
}

// DrillResult is what the drill saw of its own victim.
type DrillResult struct {
	PID        uint32
	Comm       string
	CgroupPath string // as /proc/<pid>/cgroup shows it to the caller
	LimitBytes uint64
	Killed     time.Time // when the caller saw it dead, a little after the kill
}

// Drill makes a real and harmless OOM kill. It makes a memory cgroup with a small
// limit, starts this program again as a child inside it (see DrillChild) and
// lets the child take memory until the kernel kills it. Nothing else lives in that
// cgroup, the child offers itself as first victim and takes no more than twice
// the limit, so nothing else can be hit. Child and cgroup are gone when Drill
// returns, also when it fails. It needs write access to the cgroup file system.
//
// On cgroup v2 the memory controller is switched on for the children of the
// cgroup it uses, where it was off, and stays on: switching it off again could
// take the limits from a cgroup that someone made in the meantime.
func Drill(ctx context.Context, opts DrillOptions) (res DrillResult, err error) {
	if opts.LimitBytes == 0 {
		opts.LimitBytes = DefaultDrillLimit
	}
	ctx, cancel := context.WithTimeout(ctx, drillTimeout+opts.Hold)
	defer cancel()
	group, err := newDrillCgroup(opts.LimitBytes)
	if err != nil {
		return DrillResult{}, fmt.Errorf("make a memory cgroup for the drill: %w", err)
	}
	defer func() { err = errors.Join(err, group.remove()) }()
	return drillIn(ctx, group, opts)
}

// drillIn runs the child in the cgroup and waits for its death.
func drillIn(ctx context.Context, group *drillCgroup, opts DrillOptions) (DrillResult, error) {
	// The parent-death signal follows the thread that forked, so that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	child, err := startDrillChild(ctx, opts)
	if err != nil {
		return DrillResult{}, err
	}
	res := DrillResult{PID: uint32(child.cmd.Process.Pid), Comm: drillComm, LimitBytes: opts.LimitBytes}
	res.CgroupPath, err = place(ctx, group, child, opts.Hold)
	if err != nil {
		// A child that the end of ctx has killed fails in other words.
		return DrillResult{}, errors.Join(ctx.Err(), err, child.kill())
	}
	err = child.waitKilled(ctx)
	res.Killed = time.Now()
	if err == nil {
		err = group.checkOOMKill()
	}
	return res, err
}

// place puts the child into the cgroup, holds it there and lets it take memory.
func place(ctx context.Context, group *drillCgroup, child *drillChild, held time.Duration) (cgroupPath string, err error) {
	if err := group.add(child.cmd.Process.Pid); err != nil {
		return "", err
	}
	if cgroupPath, err = group.pathOf(child.cmd.Process.Pid); err != nil {
		return "", err
	}
	if err := hold(ctx, held); err != nil {
		return "", err
	}
	return cgroupPath, child.release()
}

func hold(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("hold the drill's child: %w", ctx.Err())
	}
}

// drillChild is the re-executed process; it waits for a byte on its standard input.
type drillChild struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stderr bytes.Buffer
}

// startDrillChild returns when the child has the name and the score of a victim: what a
// program takes while it starts could have it killed as something else.
func startDrillChild(ctx context.Context, opts DrillOptions) (*drillChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own binary for the drill: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for the drill: %w", err)
	}
	defer reader.Close()
	c := &drillChild{cmd: exec.CommandContext(ctx, self), stdin: writer}
	c.cmd.Env = append(append([]string{}, opts.Env...), drillLimitVariable+"="+strconv.FormatUint(opts.LimitBytes, 10))
	c.cmd.Stdin = reader
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe for the drill: %w", err), writer.Close())
	}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the drill's child: %w", err), writer.Close())
	}
	if _, err := io.ReadFull(stdout, make([]byte, len(drillReady))); err != nil {
		return nil, errors.Join(ctx.Err(), c.kill(), fmt.Errorf("the drill's child did not get ready: %s", c.said()))
	}
	return c, nil
}

// said is what a child that has ended told of its failure.
func (c *drillChild) said() string { return strings.TrimSpace(c.stderr.String()) }

// release tells the child to take memory.
func (c *drillChild) release() error {
	if _, err := c.stdin.Write([]byte{'\n'}); err != nil {
		return fmt.Errorf("release the drill's child: %w", err)
	}
	return nil
}

// kill ends the child; its exit status does not matter any more.
func (c *drillChild) kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	return errors.Join(err, c.stdin.Close())
}

// waitKilled returns nil when the child died by SIGKILL before the context ended.
func (c *drillChild) waitKilled(ctx context.Context) error {
	defer c.stdin.Close()
	err := c.cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the kernel to kill the drill's child: %w", ctx.Err())
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("the drill's child ended without being killed: %w", err)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("the drill's child ended without being killed (%w): %s", err, c.said())
	}
	return nil
}
