//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

// mounts are what the probes and their tests find on a real host.
var mounts = []struct{ kind, path string }{
	{"proc", "/proc"},
	{"sysfs", "/sys"},
	{"devtmpfs", "/dev"},
	{"tmpfs", "/tmp"},
	{"tmpfs", "/run"},
	{"cgroup2", "/sys/fs/cgroup"},
	{"bpf", "/sys/fs/bpf"},
	{"tracefs", "/sys/kernel/tracing"},
	{"debugfs", "/sys/kernel/debug"},
	{"securityfs", "/sys/kernel/security"},
}

// setUp makes the bare machine look like a host.
func setUp() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.path, 0o755); err != nil {
			return err
		}
		err := unix.Mount(m.kind, m.path, m.kind, 0, "")
		// A kernel without one of these has no such file system at all;
		// devtmpfs may be mounted by the kernel already.
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	if err := unix.Sethostname([]byte("vmtest")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := enableControllers(); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	return loopbackUp()
}

// enableControllers lets tests make cgroups with limits below the root.
func enableControllers() error {
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory +pids"), 0); err != nil {
		return fmt.Errorf("enable cgroup controllers: %w", err)
	}
	return nil
}

// loadModules loads what the harness has sorted so that each finds what it needs. A driver
// that finds no device of its own does not stay; a test may load it again.
func loadModules() error {
	entries, err := os.ReadDir(guest.ModulesDir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(guest.ModulesDir, entry.Name()))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(file.Fd()), "", 0)
		file.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("load module %s: %w", entry.Name(), err)
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// openPort opens a serial line as a plain byte pipe: no echo, no translation.
func openPort(path string) (*os.File, error) {
	port, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	terminal, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	terminal.Oflag &^= unix.OPOST
	terminal.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, terminal); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return port, nil
}

// sent waits until all that was written to a serial line has left (tcdrain(3)): the kernel keeps some
// KiB, which a machine that powers off takes with it. On a busy host the last lines were lost.
func sent(port *os.File) error {
	if err := unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1); err != nil {
		return fmt.Errorf("%s: %w", port.Name(), err)
	}
	return nil
}

func release() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}
