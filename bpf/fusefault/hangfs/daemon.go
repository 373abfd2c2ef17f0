//go:build linux

package hangfs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// serve mounts and answers until standard input ends.
func serve(opts Options) error {
	if err := os.WriteFile("/proc/self/comm", []byte("hangfs"), 0); err != nil {
		return fmt.Errorf("name the daemon: %w", err)
	}
	g := &gate{open: make(chan struct{})}
	close(g.open)
	cached := time.Hour // names and attributes: a read is then nothing but a READ
	server, err := fs.Mount(opts.Dir, &root{gate: g}, &fs.Options{
		EntryTimeout: &cached,
		AttrTimeout:  &cached,
		MountOptions: fuse.MountOptions{
			DirectMountStrict: true, // no fusermount
			FsName:            opts.Source,
			Name:              opts.Subtype,
			AllowOther:        true,
			DisableXAttrs:     true,
		},
	})
	if err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("%w: this kernel has no FUSE, or its module fuse is not loaded", err)
		}
		return err
	}
	fmt.Println("mounted")
	err = commands(func(command string) error {
		err := g.do(command)
		if err == nil {
			fmt.Println("ok")
		}
		return err
	})
	// No Unmount, which would wait for all that have a file open: the end of this
	// process aborts the connection.
	_ = server
	return err
}

// gate is what every request passes before its answer.
type gate struct {
	mu    sync.Mutex // guards what follows
	open  chan struct{}
	shut  bool
	delay time.Duration
}

func (g *gate) do(command string) error {
	name, argument, _ := strings.Cut(command, " ")
	g.mu.Lock()
	defer g.mu.Unlock()
	switch name {
	case "freeze":
		if !g.shut {
			g.shut, g.open = true, make(chan struct{})
		}
	case "thaw":
		if g.shut {
			g.shut = false
			close(g.open)
		}
	case "delay":
		delay, err := time.ParseDuration(argument)
		g.delay = delay
		return err
	default:
		return fmt.Errorf("no command %q", command)
	}
	return nil
}

// pass takes no notice of an interrupted request: a daemon that hangs does not either.
func (g *gate) pass() {
	g.mu.Lock()
	open, delay := g.open, g.delay
	g.mu.Unlock()
	<-open
	if delay > 0 {
		time.Sleep(delay)
	}
}

// root is the only directory.
type root struct {
	fs.Inode
	gate *gate
}

var (
	_ fs.NodeLookuper  = (*root)(nil)
	_ fs.NodeGetattrer = (*root)(nil)
	_ fs.NodeStatfser  = (*root)(nil)
)

// Lookup finds every name that begins as the files do.
func (r *root) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if !strings.HasPrefix(name, Cached) && !strings.HasPrefix(name, Direct) {
		return nil, syscall.ENOENT // go-fuse looks for a file of its own while it mounts
	}
	r.gate.pass()
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	attr := fs.StableAttr{Mode: syscall.S_IFREG, Ino: uint64(sum.Sum32()) + 2}
	f := &file{gate: r.gate, direct: strings.HasPrefix(name, Direct)}
	f.fill(&out.Attr)
	return r.NewInode(ctx, f, attr), 0
}

// Getattr of the directory.
func (r *root) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	r.gate.pass()
	out.Mode = syscall.S_IFDIR | 0o755
	return 0
}

// Statfs of the file system.
func (r *root) Statfs(context.Context, *fuse.StatfsOut) syscall.Errno {
	r.gate.pass()
	return 0
}

// file is all zeroes, and forgets what is written to it.
type file struct {
	fs.Inode
	gate   *gate
	direct bool
}

var (
	_ fs.NodeGetattrer = (*file)(nil)
	_ fs.NodeSetattrer = (*file)(nil)
	_ fs.NodeOpener    = (*file)(nil)
	_ fs.NodeReader    = (*file)(nil)
	_ fs.NodeWriter    = (*file)(nil)
	_ fs.NodeFsyncer   = (*file)(nil)
)

func (f *file) fill(attr *fuse.Attr) {
	attr.Mode = syscall.S_IFREG | 0o644
	attr.Size = FileBytes
}

// Getattr is asked for when somebody insists (STATX_FORCE_SYNC): attributes are cached.
func (f *file) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.gate.pass()
	f.fill(&out.Attr)
	return 0
}

// Setattr changes nothing.
func (f *file) Setattr(_ context.Context, _ fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f.gate.pass()
	f.fill(&out.Attr)
	return 0
}

// Open of a cached file drops its cache, so that the first read asks the daemon.
func (f *file) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.gate.pass()
	if f.direct {
		return nil, fuse.FOPEN_DIRECT_IO, 0
	}
	return nil, 0, 0
}

// Read gives zeroes.
func (f *file) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.gate.pass()
	if off >= FileBytes {
		return fuse.ReadResultData(nil), 0
	}
	clear(dest)
	return fuse.ReadResultData(dest[:min(int64(len(dest)), FileBytes-off)]), 0
}

// Write takes everything.
func (f *file) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	f.gate.pass()
	return uint32(len(data)), 0
}

// Fsync has nothing to do.
func (f *file) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	f.gate.pass()
	return 0
}
