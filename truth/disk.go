//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// diskFlag makes this program the daemon of a mount.
const diskFlag = "-serve-disk"

// disk is a FUSE mount of a folder, in a process of its own, with a speed.
type disk struct {
	cmd  *exec.Cmd
	told io.WriteCloser
	at   string // as this program sees it
	name string // as the ranks do
}

// mount mounts a folder at /mnt/NAME of the ranks' root.
func mount(root, folder, name string) (*disk, error) {
	d := &disk{at: filepath.Join(root, "mnt", name), name: "/mnt/" + name}
	for _, f := range []string{d.at, folder} {
		if err := os.MkdirAll(f, 0o700); err != nil {
			return nil, err
		}
	}
	d.cmd = exec.Command("/proc/self/exe", diskFlag, folder, d.at)
	d.cmd.Stderr = os.Stderr
	var err error
	if d.told, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	said, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("mount %s: %w", d.at, err), d.cmd.Wait())
	}
	return d, nil
}

// rate sets how many bytes a second are read or written; 0 is no limit.
func (d *disk) rate(bytes int) error {
	_, err := fmt.Fprintln(d.told, bytes)
	return err
}

func (d *disk) pid() int { return d.cmd.Process.Pid }

// close ends the daemon, and the mount with it.
func (d *disk) close() error {
	_ = d.cmd.Process.Kill() // it may be dead already
	_ = d.cmd.Wait()
	return syscall.Unmount(d.at, syscall.MNT_DETACH)
}

// serveDisk is the daemon.
func serveDisk(folder, at string) error {
	loop, err := fs.NewLoopbackRoot(folder)
	if err != nil {
		return err
	}
	opts := &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "truth", Name: "truth", AllowOther: true, DisableXAttrs: true}}
	s := &slowed{RawFileSystem: fs.NewNodeFS(loop, opts)}
	server, err := fuse.NewServer(s, at, &opts.MountOptions)
	if err != nil {
		return err
	}
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		return err
	}
	fmt.Println("mounted")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		bytes, err := strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		if err != nil {
			return err
		}
		s.rate.Store(bytes)
	}
	return nil
}

// slowed is a file system with a speed.
type slowed struct {
	fuse.RawFileSystem
	rate atomic.Int64
}

func (s *slowed) take(bytes int) {
	if rate := s.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(float64(bytes) / float64(rate) * float64(time.Second)))
	}
}

// Open opens a file that this daemon serves itself.
func (s *slowed) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	status := s.RawFileSystem.Open(cancel, in, out)
	served(out)
	return status
}

// Create is the same for a new one.
func (s *slowed) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	status := s.RawFileSystem.Create(cancel, in, name, out)
	served(&out.OpenOut)
	return status
}

// served has reads and writes come to the daemon: from Linux 6.9 on the kernel would pass them by it,
// to the file below (FOPEN_PASSTHROUGH), at the speed of that.
func served(out *fuse.OpenOut) {
	out.OpenFlags &^= fuse.FOPEN_PASSTHROUGH
	out.BackingID = 0
}

// Read reads at the speed of the disk.
func (s *slowed) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	s.take(len(buf))
	return s.RawFileSystem.Read(cancel, in, buf)
}

// Writev writes at the speed of the disk. The server asks Write where this writes nothing.
func (s *slowed) Writev(cancel <-chan struct{}, in *fuse.WriteIn, data [][]byte) (uint32, fuse.Status) {
	s.take(int(in.Size))
	return s.RawFileSystem.Writev(cancel, in, data)
}
