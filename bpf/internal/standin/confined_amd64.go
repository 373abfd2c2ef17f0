//go:build linux

package standin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// sysExitGroup is the one system call that the child may make.
const sysExitGroup = unix.SYS_EXIT_GROUP

// Confined lets a child of this process call Entry with a size, refused for want
// of memory, under a seccomp filter that ends it at any other system call
// than the last. It reports whether the child survived: since Linux 6.11
// (ff474a78cef5) a return probe makes a system call in the process on x86-64, and
// only since 6.14 (cf6cb56ef244, and its backports) do filters let it pass. An
// error says that the child could not be made or confined: ErrNoFilters, where
// nothing on this machine can be.
func Confined(size uint64) (survived bool, err error) { return ConfinedCall(Entry(), size) }

// ConfinedCall is Confined with another function in place of Entry.
func ConfinedCall(function uintptr, size uint64) (survived bool, err error) {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: sysExitGroup},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
	filter := &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	pid := confined(function, size, filter)
	if pid < 0 {
		return false, fmt.Errorf("start a child: %w", unix.Errno(-pid))
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("wait for the child: %w", err)
	case status.Exited() && unix.Errno(status.ExitStatus()) == unix.EINVAL: // prctl(2), PR_SET_SECCOMP
		return false, ErrNoFilters
	case status.Exited() && status.ExitStatus() != 0:
		return false, fmt.Errorf("confine a child by a seccomp filter: %w", unix.Errno(status.ExitStatus()))
	}
	return status.Exited(), nil
}

// confined starts the child; a negative pid is an error number. The child ends
// with the error number of a filter that was refused, else with 0.
//
//go:noescape
func confined(function uintptr, size uint64, filter *unix.SockFprog) (pid int)
