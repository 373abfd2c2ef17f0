//go:build linux

// Package hangfs is a FUSE file system that stops answering on command: the
// stand-in for a storage daemon that delays, freezes, is stopped or dies. The
// daemon is a child process, this program started again. So a main or a TestMain
// that uses hangfs begins with
//
//	if hangfs.IsChild() {
//		os.Exit(hangfs.Child())
//	}
//
// Nothing outlives its maker: the children die with it, and a Private mount goes
// with its daemon's mount namespace. A process that is killed may leave an empty folder in
// the temporary folder; the next one removes it.
package hangfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// FileBytes is the size of each file.
const FileBytes = 64 << 20

// Files by the way they are read. Any other name with one of these as its
// beginning exists too ("cached7"), each with an inode of its own.
const (
	Cached = "cached" // through the page cache: background requests, mmap
	Direct = "direct" // FOPEN_DIRECT_IO: each read is a foreground request
)

// Options of a file system; the zero value is right for most uses.
type Options struct {
	// Dir is where it is mounted; "": a temporary directory, removed by Close.
	Dir string
	// Private mounts it in a mount namespace of the daemon's own: nobody else sees
	// it, and it is gone with the daemon and its visitors, whatever happens.
	Private bool
	Source  string // as in mountinfo; "": "hangfs"
	Subtype string // "": "hangfs", so the type in mountinfo is fuse.hangfs
}

// FS is a mounted file system and its daemon.
type FS struct {
	opts    Options
	made    bool // opts.Dir is ours to remove
	daemon  *child
	mount   mountinfo.Info
	aborted bool

	mu       sync.Mutex // guards what follows
	visitors []*Visitor
	closed   bool
}

// Start mounts a file system and waits until it answers.
func Start(opts Options) (_ *FS, err error) {
	f := &FS{opts: opts}
	if f.opts.Source == "" {
		f.opts.Source = "hangfs"
	}
	if f.opts.Subtype == "" {
		f.opts.Subtype = "hangfs"
	}
	if f.opts.Dir == "" {
		if f.opts.Dir, err = makeFolder(); err != nil {
			return nil, fmt.Errorf("make a mount point: %w", err)
		}
		f.made = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	// mountinfo shows the path without symbolic links.
	if f.opts.Dir, err = filepath.EvalSymlinks(f.opts.Dir); err != nil {
		return nil, fmt.Errorf("find the mount point: %w", err)
	}
	role := role{Role: roleDaemon, Options: f.opts}
	if f.daemon, err = startChild(role, nil); err != nil {
		return nil, fmt.Errorf("start the hangfs daemon: %w", err)
	}
	if err := f.daemon.expect("mounted"); err != nil {
		return nil, fmt.Errorf("mount hangfs on %s: %w", f.opts.Dir, err)
	}
	if f.mount, err = findMount(f.daemon.pid(), f.opts.Dir); err != nil {
		return nil, fmt.Errorf("find the mount of hangfs: %w", err)
	}
	return f, nil
}

// dirPrefix begins the name of a mount point, the maker's pid follows.
const dirPrefix = "hangfs-"

// sweep takes away the empty mount points of makers that were killed. Not the young
// ones: a maker in another pid namespace looks dead from here.
func sweep(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*-*"))
	for _, dir := range dirs {
		maker, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(maker)
		info, statErr := os.Lstat(dir)
		if err != nil || statErr != nil || time.Since(info.ModTime()) < time.Hour {
			continue
		}
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.Remove(dir) // fails where something is mounted or in it
		}
	}
}

// findMount asks mountinfo and not the file system, which may not answer.
func findMount(pid int, dir string) (mountinfo.Info, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return mountinfo.Info{}, err
	}
	defer file.Close()
	mounts, err := mountinfo.GetMountsFromReader(file, mountinfo.SingleEntryFilter(dir))
	if err != nil {
		return mountinfo.Info{}, err
	}
	if len(mounts) == 0 {
		return mountinfo.Info{}, fmt.Errorf("%s is no mount point", dir)
	}
	return *mounts[len(mounts)-1], nil
}

// Dir is the mount point, as the daemon and its visitors see it.
func (f *FS) Dir() string { return f.opts.Dir }

// Path is a file's path as this process sees it, also of a Private mount.
func (f *FS) Path(file string) string {
	if f.opts.Private {
		return filepath.Join(fmt.Sprintf("/proc/%d/root", f.PID()), f.opts.Dir, file)
	}
	return filepath.Join(f.opts.Dir, file)
}

// Device is the device number of the mount, as in mountinfo.
func (f *FS) Device() (major, minor uint32) { return uint32(f.mount.Major), uint32(f.mount.Minor) }

// PID is the daemon's.
func (f *FS) PID() int { return f.daemon.pid() }

// Freeze makes the daemon take requests and answer none until Thaw. It returns
// when it is so.
func (f *FS) Freeze() error { return f.tell("freeze") }

// Thaw answers what was kept and goes on.
func (f *FS) Thaw() error { return f.tell("thaw") }

// Delay makes each answer take so long.
func (f *FS) Delay(d time.Duration) error { return f.tell("delay " + d.String()) }

func (f *FS) tell(command string) error {
	if err := f.daemon.tell(command); err != nil {
		return fmt.Errorf("tell the hangfs daemon %q: %w", command, err)
	}
	return nil
}

// Stop stops the daemon (SIGSTOP) and returns when it stands still.
func (f *FS) Stop() error {
	if err := unix.Kill(f.PID(), unix.SIGSTOP); err != nil {
		return fmt.Errorf("stop the hangfs daemon: %w", err)
	}
	// WNOWAIT leaves its end, should it come instead, to Close.
	err := unix.Waitid(unix.P_PID, f.PID(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for the hangfs daemon to stop: %w", err)
	}
	return nil
}

// Continue is the end of Stop.
func (f *FS) Continue() error {
	if err := unix.Kill(f.PID(), unix.SIGCONT); err != nil {
		return fmt.Errorf("continue the hangfs daemon: %w", err)
	}
	return nil
}

// Kill kills the daemon. The kernel then ends every request with an error; the
// mount stays, dead, until Close.
func (f *FS) Kill() error { return f.daemon.kill() }

// Abort is umount -f: it ends the requests in flight and takes the mount away, also
// while files are open. Not for a Private mount, which only its daemon could unmount.
func (f *FS) Abort() error {
	// MNT_FORCE aborts, but fails with EBUSY while files are open; MNT_DETACH succeeds.
	if err := unix.Unmount(f.opts.Dir, unix.MNT_FORCE); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("umount -f %s: %w", f.opts.Dir, err)
	}
	f.aborted = true
	return f.detach()
}

func (f *FS) detach() error {
	err := unix.Unmount(f.opts.Dir, unix.MNT_DETACH)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // not mounted
		return nil
	}
	return err
}

// Close kills daemon and visitors and takes the mount away. Closing twice is fine.
func (f *FS) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var errs []error
	if f.daemon != nil {
		// First: its end is what frees a visitor that nothing else can kill.
		errs = append(errs, f.daemon.kill())
		if !f.opts.Private {
			errs = append(errs, f.detach())
		}
	}
	for _, v := range f.visitors {
		errs = append(errs, v.child.kill())
	}
	if f.made {
		errs = append(errs, os.Remove(f.opts.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close hangfs on %s: %w", f.opts.Dir, err)
	}
	return nil
}

// errLeft is what a child that ended instead of answering is worth.
var errLeft = errors.New("it ended")

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return errLeft
	}
	return err
}
