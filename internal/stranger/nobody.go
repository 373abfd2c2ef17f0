//go:build linux

package stranger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// asNobody attacks with no privilege at all.
func asNobody(texts []string, tell func(Attack)) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := crashes(texts, tell); err != nil {
		return err
	}
	writes(Nobody, texts, tell)
	return startInNamespace(texts, tell)
}

// startInNamespace starts the stranger who is root in a user namespace of its own, where
// the kernel lets nobody make one.
func startInNamespace(texts []string, tell func(Attack)) error {
	ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience)
	defer cancel()
	here := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}}
	done, err := start(ctx, "namespace", &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET, UidMappings: here, GidMappings: here,
	}, texts)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
		tell(Attack{Route: Mount, Refused: err.Error()})
		return nil
	}
	for _, a := range done {
		tell(a)
	}
	return err
}

// inNamespace mounts with each text for an option, a tmpfs and one of the other file systems,
// and gives its name to an interface.
func inNamespace(texts []string, tell func(Attack)) error {
	kinds, err := fileSystems()
	if err != nil {
		return err
	}
	for i, text := range texts {
		for _, kind := range []string{"tmpfs", kinds[i%len(kinds)]} {
			mount(kind, text, tell)
		}
		rename(text, tell)
	}
	return nil
}

// fileSystems are those that need no device.
func fileSystems() ([]string, error) {
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return nil, err
	}
	var kinds []string
	for line := range strings.Lines(string(text)) {
		if kind, found := strings.CutPrefix(strings.TrimSpace(line), "nodev\t"); found {
			kinds = append(kinds, kind)
		}
	}
	return kinds, nil
}

// mount mounts nothing: no file system knows the option. What stands behind a comma is
// another option.
func mount(kind, text string, tell func(Attack)) {
	a := Attack{Route: Mount, PID: uint32(os.Getpid())}
	a.Text, _, _ = strings.Cut(text, ",")
	if err := unix.Mount(text, "/tmp", kind, 0, a.Text); err == nil {
		_ = unix.Unmount("/tmp", 0)
	}
	tell(a)
}

// rename gives the loopback interface of the namespace a name, which the kernel tells.
func rename(text string, tell func(Attack)) {
	a := Attack{Route: Interface, PID: uint32(os.Getpid()), Text: strings.Map(func(r rune) rune {
		if r <= ' ' || r == '/' || r == ':' || r == '%' {
			return -1
		}
		return r
	}, text)}
	a.Text = a.Text[:min(len(a.Text), unix.IFNAMSIZ-1)]
	if err := renameInterface("lo", a.Text); err != nil {
		a.Refused = err.Error()
	} else if err := renameInterface(a.Text, "lo"); err != nil {
		a.Refused = err.Error()
	}
	tell(a)
}

func renameInterface(from, to string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var request [40]byte // struct ifreq: two names
	copy(request[:], from)
	copy(request[unix.IFNAMSIZ:], to)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFNAME, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("rename %s: %w", from, errno)
	}
	return nil
}

// asPowerlessRoot writes to the kernel log as root of a container without capabilities does.
func asPowerlessRoot(texts []string, tell func(Attack)) error {
	runtime.LockOSThread() // which has the capabilities, and writes
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	writes(Write, texts, tell)
	return nil
}

// writes puts each text into the kernel log: plain, and with the level and facility of a driver.
func writes(route string, texts []string, tell func(Attack)) {
	for _, text := range texts {
		for _, prefix := range []string{"", "<6>"} {
			a := Attack{Route: route, Text: text, PID: uint32(os.Getpid())}
			if err := write(prefix + text); err != nil {
				a.Refused = err.Error()
			}
			tell(a)
		}
	}
}

func write(line string) error {
	f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line)
	return err
}
