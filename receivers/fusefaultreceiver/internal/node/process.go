//go:build linux

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process looks at a process. Its state is Unknown when it cannot be read.
func (n *Node) Process(pid uint32) Process {
	p, err := n.stat(PID(pid))
	return p.or(err)
}

// Ended reports whether a thread is known to be gone.
func (n *Node) Ended(pid, tid uint32) bool {
	p, err := n.thread(pid, tid)
	return p.or(err).State == Gone
}

func (n *Node) thread(pid, tid uint32) (Process, error) {
	return n.stat(filepath.Join(PID(pid), "task", PID(tid)))
}

// or turns an error into a state: a process that is not there is gone.
func (p Process) or(err error) Process {
	switch {
	case err == nil:
		return p
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return Process{State: Gone}
	default:
		return Process{State: Unknown}
	}
}

func (n *Node) stat(directory string) (Process, error) {
	if n.foreign {
		return Process{}, errForeign
	}
	return patiently(n, func() (Process, error) {
		line, err := read(filepath.Join(n.proc, directory, "stat"), maxStat)
		if err != nil {
			return Process{}, err
		}
		return parseStat(string(line))
	})
}

// Flag and fields of a stat line, proc_pid_stat(5), counted from the state.
const (
	fieldState   = 0
	fieldThreads = 17
	fieldStart   = 19
)

// parseStat reads a stat line. The name in parentheses may contain anything,
// parentheses and spaces too, so the fields begin after the last one.
func parseStat(line string) (Process, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return Process{}, errors.New("stat line without a name")
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) <= fieldStart || len(fields[fieldState]) != 1 {
		return Process{}, fmt.Errorf("stat line with %d fields", len(fields))
	}
	start, err := strconv.ParseUint(fields[fieldStart], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("start time: %w", err)
	}
	return Process{
		Name: text(line[open+1 : end]), StartTicks: start, State: stateOf(fields[fieldState][0], fields[fieldThreads]),
	}, nil
}

// stateOf reads the state letter. A leader that has ended while its threads live
// on is a zombie too (kernel/exit.c), but its process answers.
func stateOf(letter byte, threads string) State {
	switch {
	case letter == 'T' || letter == 't':
		return Stopped
	case letter == 'X' || letter == 'x', letter == 'Z' && (threads == "0" || threads == "1"):
		return Gone
	default:
		return Alive
	}
}
