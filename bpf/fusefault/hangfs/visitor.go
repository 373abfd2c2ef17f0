//go:build linux

package hangfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// visitorComm is the name of the visitor and of each thread that touches a file.
const visitorComm = "hangfs-visitor"

// The ways to touch a file.
const (
	Read  = "read"  // pread(2) of one page
	Fault = "fault" // a load from a mapping, in user mode
	Copy  = "copy"  // write(2) from a mapping to a pipe: a fault within a system call
	Stat  = "stat"  // statx(2): GETATTR
	Write = "write" // pwrite(2) of one page
	Fsync = "fsync"
)

// Access is something that a visitor does, by threads of its own.
type Access struct {
	How     string
	File    string
	Threads int // 0: one
	// SamePage lets all threads touch the first page; otherwise each has one of its
	// own, far from the others (their number may then not exceed FileBytes / 64 KiB).
	SamePage bool
}

// Visit is what a visitor is: an environment, as in "RANK=3", and what it does.
type Visit struct {
	Env      []string `json:"-"`
	Accesses []Access
	User     uint32 // who the visitor is; 0: root
}

// Visitor is a child process that has opened and mapped its files and waits to be
// told to touch them.
type Visitor struct {
	child *child
	back  chan struct{} // closed when every thread has come back, or the visitor ended
	err   error         // why it did not come back, once back is closed
}

// Visit starts a visitor in the mount namespace of the file system. The files are
// open and mapped when it returns, so the daemon must answer until then. It ends
// with the file system at the latest.
func (f *FS) Visit(v Visit) (*Visitor, error) {
	r := role{Role: roleVisitor, Options: f.opts, Visit: v}
	if f.opts.Private {
		r.Namespace = f.PID()
	}
	// The Go runtime interrupts a thread that computes for long by a signal, and takes
	// one that waits in a page fault for such.
	c, err := startChild(r, append([]string{"GODEBUG=asyncpreemptoff=1"}, v.Env...))
	if err != nil {
		return nil, fmt.Errorf("start a visitor of hangfs: %w", err)
	}
	visitor := &Visitor{child: c, back: make(chan struct{})}
	f.mu.Lock()
	f.visitors = append(f.visitors, visitor)
	f.mu.Unlock()
	if err := c.expect("ready"); err != nil {
		return nil, fmt.Errorf("prepare a visitor of hangfs: %w", err)
	}
	return visitor, nil
}

// PID is the visitor's.
func (v *Visitor) PID() int { return v.child.pid() }

// Go lets the threads touch their files, once; it does not wait for them.
func (v *Visitor) Go() error {
	if err := v.child.tell("go"); err != nil {
		return fmt.Errorf("let a visitor of hangfs go: %w", err)
	}
	go func() {
		v.err = v.child.expect("done")
		close(v.back)
	}()
	return nil
}

// Wait waits, after Go, until every thread has come back, with or without data.
func (v *Visitor) Wait(ctx context.Context) error {
	select {
	case <-v.back:
		return v.err
	case <-ctx.Done():
		return fmt.Errorf("wait for a visitor of hangfs: %w", ctx.Err())
	}
}

// Kill sends SIGKILL and does not wait: what the kernel lets nobody interrupt ends
// later.
func (v *Visitor) Kill() error { return v.child.cmd.Process.Kill() }

// Gone is closed when the visitor is.
func (v *Visitor) Gone() <-chan struct{} { return v.child.gone }

// visit is the visitor's own life.
func visit(r role) error {
	if r.Namespace != 0 {
		return enter(r.Namespace)
	}
	// A thread in a page fault keeps its processor of the Go runtime, and a garbage
	// collection would wait for it.
	debug.SetGCPercent(-1)
	threads := 0
	for _, a := range r.Visit.Accesses {
		threads += max(a.Threads, 1)
	}
	runtime.GOMAXPROCS(threads + 4)

	// A process that entered a namespace has the name of a file descriptor.
	if err := os.WriteFile("/proc/self/comm", []byte(visitorComm), 0); err != nil {
		return fmt.Errorf("name the visitor: %w", err)
	}
	if user := r.Visit.User; user != 0 {
		if err := syscall.Setuid(int(user)); err != nil {
			return fmt.Errorf("become user %d: %w", user, err)
		}
	}
	visitorThread := append([]byte(visitorComm), 0)
	begin := make(chan struct{})
	var ready, done sync.WaitGroup
	for _, a := range r.Visit.Accesses {
		for i := range max(a.Threads, 1) {
			touch, err := prepare(filepath.Join(r.Options.Dir, a.File), a, i)
			if err != nil {
				return err
			}
			ready.Add(1)
			done.Go(func() {
				runtime.LockOSThread()
				_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&visitorThread[0])), 0, 0, 0)
				ready.Done()
				<-begin
				touch()
			})
		}
	}
	ready.Wait()
	fmt.Println("ready")
	told := false
	return commands(func(string) error {
		if told {
			return errors.New("a visitor goes once")
		}
		told = true
		fmt.Println("ok")
		close(begin)
		go func() {
			done.Wait()
			fmt.Println("done")
		}()
		return nil
	})
}

// enter starts this process again inside the mount namespace of another. The
// thread that changes the namespace is the one that the new program gets.
func enter(pid int) error {
	runtime.LockOSThread()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return fmt.Errorf("enter the mount namespace: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Opened before, because the namespace may hide the path.
	binary, err := os.Open(self)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter the mount namespace: %w", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace: %w", err)
	}
	env, err := entered(os.Environ())
	if err != nil {
		return err
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", binary.Fd()), os.Args, env)
}

// prepare opens and maps what one thread will touch.
func prepare(path string, a Access, thread int) (func(), error) {
	if a.How == Stat {
		return func() {
			var st unix.Statx_t
			_ = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &st)
		}, nil
	}
	const apart = 64 << 10
	offset := int64(thread) * apart
	if a.SamePage {
		offset = 0
	}
	if offset+apart > FileBytes {
		return nil, fmt.Errorf("a file of hangfs has room for %d threads", FileBytes/apart)
	}
	flags := unix.O_RDONLY
	if a.How == Write || a.How == Fsync {
		flags = unix.O_RDWR
	}
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	page := make([]byte, os.Getpagesize())
	switch a.How {
	case Read:
		return func() { _, _ = unix.Pread(fd, page, offset) }, nil
	case Write:
		return func() { _, _ = unix.Pwrite(fd, page, offset) }, nil
	case Fsync:
		return func() { _ = unix.Fsync(fd) }, nil
	case Fault, Copy:
		return mapped(fd, offset, a.How)
	}
	return nil, fmt.Errorf("no way %q to touch a file", a.How)
}

func mapped(fd int, offset int64, how string) (func(), error) {
	memory, err := unix.Mmap(fd, offset, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a file of hangfs: %w", err)
	}
	// No readahead: it would make one thread fill the page of another.
	if err := unix.Madvise(memory, unix.MADV_RANDOM); err != nil {
		return nil, fmt.Errorf("map a file of hangfs: %w", err)
	}
	if how == Fault {
		return func() {
			// The daemon's end makes the load a SIGBUS, which debug makes a panic.
			debug.SetPanicOnFault(true)
			defer func() { _ = recover() }()
			runtime.KeepAlive(memory[0])
		}, nil
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	return func() { _, _ = unix.Write(pipe[1], memory) }, nil
}
