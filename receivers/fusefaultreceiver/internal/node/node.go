//go:build linux

// Package node reads what only the machine itself can tell about a FUSE mount and
// the processes around it: mount tables, process states, the connection's own
// counter. It never touches the mount, which would hang like everybody else, and
// each of its reads is bounded in size and time.
package node

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// A read of /proc takes locks that a stuck process may hold. It cannot be taken
// back, so after patience it is left behind, and while maxStuck are left behind
// nothing more is read.
const (
	patience = 500 * time.Millisecond
	maxStuck = 4
)

// Bounds on what is read of one file.
const (
	maxStat       = 4 << 10
	maxMountinfo  = 16 << 20
	maxMountLine  = 1 << 20
	maxConnection = 64
)

// Node reads one machine.
type Node struct {
	proc, sys string
	slots     chan struct{} // one token per read under way
	patience  time.Duration
	// foreign is true when proc shows another pid namespace than the initial one,
	// in which the probe counts: a number there is somebody else.
	foreign bool
	stuck   atomic.Uint64
}

// Open takes the machine below proc and sys; empty means HOST_PROC and HOST_SYS
// from the environment, else /proc and /sys.
func Open(proc, sys string) *Node {
	n := &Node{
		proc: first(proc, os.Getenv("HOST_PROC"), "/proc"), sys: first(sys, os.Getenv("HOST_SYS"), "/sys"),
		slots: make(chan struct{}, maxStuck), patience: patience,
	}
	n.foreign = n.isForeign()
	return n
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// initialNamespace is the initial pid namespace (PROC_PID_INIT_INO, 0xEFFFFFFC,
// include/linux/proc_ns.h).
const initialNamespace = "pid:[4026531836]"

// isForeign looks at the namespace of process 1. Where that cannot be read, the
// numbers are taken to be the kernel's.
func (n *Node) isForeign() bool {
	namespace, err := os.Readlink(filepath.Join(n.proc, "1", "ns", "pid"))
	return err == nil && namespace != initialNamespace
}

// Foreign reports whether this /proc numbers processes otherwise than the kernel,
// so that nothing can be read of them; Root is where it is.
func (n *Node) Foreign() bool { return n.foreign }

// Root is where processes are read.
func (n *Node) Root() string { return n.proc }

// StuckReads counts the reads that were given up.
func (n *Node) StuckReads() uint64 { return n.stuck.Load() }

var (
	errStuck   = errors.New("the kernel does not answer")
	errForeign = errors.New("its process numbers are not the kernel's")
)

// patiently runs read in a goroutine of its own and gives up on it in time.
func patiently[T any](n *Node, read func() (T, error)) (T, error) {
	var none T
	select {
	case n.slots <- struct{}{}:
	default:
		n.stuck.Add(1)
		return none, errStuck
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read()
		<-n.slots
		done <- result{value, err}
	}()
	timer := time.NewTimer(n.patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		n.stuck.Add(1)
		return none, errStuck
	}
}

// Waiting is the connection's own count of requests that wait to be read by the
// daemon or to be answered (Documentation/filesystems/fuse.rst, "waiting").
// fusectl names a connection by the device number of its file system as one
// number (fs/fuse/control.c, fuse_ctl_add_conn(): fc->dev).
func (n *Node) Waiting(major, minor uint32) (int64, bool) {
	connection := uint64(major)<<20 | uint64(minor) // MKDEV(), include/linux/kdev_t.h
	file := filepath.Join(n.sys, "fs/fuse/connections", strconv.FormatUint(connection, 10), "waiting")
	waiting, err := patiently(n, func() (int64, error) {
		content, err := read(file, maxConnection)
		if err != nil {
			return 0, err
		}
		return parseCount(content)
	})
	return waiting, err == nil
}

func parseCount(content []byte) (int64, error) {
	if n := len(content); n > 0 && content[n-1] == '\n' {
		content = content[:n-1]
	}
	return strconv.ParseInt(string(content), 10, 64)
}

// read reads at most limit bytes.
func read(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}
