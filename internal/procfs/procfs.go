// Package procfs reads processes from /proc, bounded in size and time.
//
// A read of /proc may hang for as long as its process is stuck. The kernel takes the
// lock of a process's memory map for environ, maps and map_files (access_remote_vm(),
// mm/memory.c; fs/proc/task_mmu.c), and a process in a page fault on a dead FUSE or
// NFS mount holds that lock until the mount answers. mountinfo waits for the mount
// table's lock (fs/proc_namespace.c), which an unmount in progress may hold. Even stat
// takes a reference to the memory (fs/proc/array.c), and the process that drops the last
// reference tears the memory down and may wait for its files. Such a read cannot be taken
// back. So every read runs in a goroutine of its own, and one that does not return in
// time is left behind:
//
//   - what it waits for is not read again until the read has returned: the memory of its
//     process, or the file. One stuck process costs one thread however often and for what
//     it is asked, and still tells what needs no memory;
//   - tenants share the room for those that are left behind (Tenant).
package procfs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Why something cannot be read. Every error of this package is one of these, or says
// that the content is not what the kernel writes.
var (
	ErrGone    = errors.New("the process is gone")
	ErrDenied  = errors.New("permission denied: run as root, with CAP_SYS_PTRACE, or with hostPID")
	ErrHung    = errors.New("the kernel does not answer")
	ErrForeign = errors.New("its process numbers are not the kernel's: set hostPID, or mount the host's /proc and set HOST_PROC")
)

// ErrNoPlainFile says that a name leads to something that must not be opened.
var ErrNoPlainFile = errors.New("it is no plain file")

// patience is how long a read may take.
var patience = 500 * time.Millisecond

// FS is one mount of proc. Its methods may be called at the same time.
type FS struct {
	root     string
	sys      string // where sysfs is mounted
	patience time.Duration
	foreign  atomic.Bool
	hung     atomic.Uint64

	mu   sync.Mutex // guards left
	left []*behind  // reads that were given up, and have not returned
}

// Open takes the mount at root, else HOST_PROC from the environment, else /proc.
func Open(root string) *FS {
	for _, choice := range []string{os.Getenv("HOST_PROC"), "/proc"} {
		if root == "" {
			root = choice
		}
	}
	return &FS{root: filepath.Clean(root), sys: cmp.Or(os.Getenv("HOST_SYS"), "/sys"), patience: patience}
}

// WithPatience sets how long a read may take, before the first.
func (f *FS) WithPatience(patience time.Duration) *FS {
	f.patience = patience
	return f
}

// Root is where processes are read.
func (f *FS) Root() string { return f.root }

// Hung counts the reads that were given up, and those that were not begun.
func (f *FS) Hung() uint64 { return f.hung.Load() }

// Left counts the reads left behind that have not returned.
func (f *FS) Left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.left)
}

// SetForeign says whether this mount numbers processes otherwise than the caller:
// then a number is somebody else here, and no process is read.
func (f *FS) SetForeign(foreign bool) { f.foreign.Store(foreign) }

// Foreign is what SetForeign said.
func (f *FS) Foreign() bool { return f.foreign.Load() }

// initialNamespace is the initial pid namespace (PROC_PID_INIT_INO, 0xEFFFFFFC,
// include/linux/proc_ns.h), in which the kernel's programs count.
const initialNamespace = 0xEFFFFFFC

// OtherNamespace reports whether this mount shows another pid namespace than the
// initial one. Where process 1 does not show its own, the answer is no.
func (f *FS) OtherNamespace() bool {
	namespace, err := f.Namespace(1, "pid")
	return err == nil && namespace != initialNamespace
}

// Patiently runs read, which reads file, and gives it up when it takes too long. The
// goroutine of a read that was given up goes on: read must not touch what others use.
func Patiently[T any](f *FS, file string, read func() (T, error)) (T, error) {
	of := f.subjectOf(file)
	return patiently(f, file, of, func() string { return f.ownerOf(of) }, read)
}

// PatientlyOf does so with a file that a process has given, and that does not lie in its folder: it
// is read for others, too, while the process itself hangs.
func PatientlyOf[T any](f *FS, pid uint32, file string, read func() (T, error)) (T, error) {
	of := subject{pid, file}
	return patiently(f, file, of, func() string { return f.ownerOf(of) }, read)
}

func patiently[T any](f *FS, file string, of subject, owner func() string, read func() (T, error)) (T, error) {
	var none T
	if !f.mayRead(of, owner) {
		f.hung.Add(1)
		return none, fmt.Errorf("read %s: %w", file, ErrHung)
	}
	type result struct {
		value T
		err   error
	}
	done, over := make(chan result, 1), false // over is guarded by f.mu
	var left *behind                          // as well
	go func() {
		value, err := read()
		f.mu.Lock()
		defer f.mu.Unlock()
		if over {
			if late, is := any(value).(io.Closer); is && err == nil {
				go late.Close() // nobody waits for it
			}
			f.left = slices.DeleteFunc(f.left, func(one *behind) bool { return one == left })
		}
		over = true
		done <- result{value, err}
	}()
	timer := time.NewTimer(f.patience)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, explain(file, r.err)
	case <-timer.C:
	}
	f.mu.Lock()
	if over { // it has just returned
		f.mu.Unlock()
		r := <-done
		return r.value, explain(file, r.err)
	}
	over, left = true, f.leave(of)
	f.hung.Add(1)
	f.mu.Unlock()
	whose := owner()
	f.mu.Lock()
	defer f.mu.Unlock()
	left.owner = whose
	return none, fmt.Errorf("read %s: %w", file, ErrHung)
}

// explain says which of the errors of this package one is.
func explain(file string, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrForeign):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("read %s: %w", file, ErrGone)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("read %s: %w", file, ErrDenied)
	}
	return fmt.Errorf("read %s: %w", file, err)
}

// path is the file of a process.
func (f *FS) path(pid uint32, parts ...string) string {
	return filepath.Join(append([]string{f.root, strconv.FormatUint(uint64(pid), 10)}, parts...)...)
}

// File is what was read of a file.
type File struct {
	Content []byte
	Cut     bool // there is more of it
}

// ReadFile reads at most limit bytes of a file, of proc or of sysfs.
func (f *FS) ReadFile(file string, limit int) (File, error) {
	return Patiently(f, file, func() (File, error) { return readFile(file, limit) })
}

func readFile(file string, limit int) (File, error) {
	opened, err := open(file)
	if err != nil {
		return File{}, err
	}
	defer opened.Close()
	return readAll(opened, limit)
}

func readAll(from io.Reader, limit int) (File, error) {
	content := make([]byte, 0, min(limit+1, 2048))
	for len(content) <= limit {
		if len(content) == cap(content) {
			content = slices.Grow(content, len(content))
		}
		n, err := from.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return File{}, err
		}
	}
	return File{Content: content[:min(len(content), limit)], Cut: len(content) > limit}, nil
}

// of reads a file of a process.
func (f *FS) of(pid uint32, limit int, parts ...string) (File, error) {
	file := f.path(pid, parts...)
	if f.Foreign() {
		return File{}, fmt.Errorf("read %s: %w", file, ErrForeign)
	}
	return f.ReadFile(file, limit)
}
