// Package machine packs an initramfs and boots it under qemu.
package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// The file types of a cpio entry, as in stat(2).
const (
	typeDirectory = 0o040000
	typeRegular   = 0o100000
	typeSymlink   = 0o120000
	typeCharacter = 0o020000
)

// cpio writes the "newc" archive that the kernel unpacks into its first root
// file system (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpio struct {
	w     io.Writer
	inode int
	made  map[string]bool // folders already written
	err   error           // first error; later calls do nothing
}

func newCPIO(w io.Writer) *cpio { return &cpio{w: w, made: map[string]bool{}} }

// folder writes a folder and those above it, once each.
func (c *cpio) folder(name string) {
	name = path.Clean("/" + name)
	if name == "/" || c.made[name] {
		return
	}
	c.folder(path.Dir(name))
	c.made[name] = true
	c.header(name, typeDirectory|0o755, 0, 0, 0)
}

// file writes a regular file from memory.
func (c *cpio) file(name string, mode int, content []byte) {
	c.folder(path.Dir(path.Clean("/" + name)))
	c.header(name, typeRegular|mode, int64(len(content)), 0, 0)
	c.write(content)
	c.pad(int64(len(content)))
}

// copy writes a regular file from disk without holding it in memory.
func (c *cpio) copy(name, from string) {
	if c.err != nil {
		return
	}
	file, err := os.Open(from)
	if err != nil {
		c.err = err
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		c.err = err
		return
	}
	c.folder(path.Dir(path.Clean("/" + name)))
	c.header(name, typeRegular|int(info.Mode().Perm()), info.Size(), 0, 0)
	if c.err != nil {
		return
	}
	if _, err := io.CopyN(c.w, file, info.Size()); err != nil {
		c.err = fmt.Errorf("pack %s: %w", from, err)
	}
	c.pad(info.Size())
}

func (c *cpio) symlink(name, target string) {
	c.folder(path.Dir(path.Clean("/" + name)))
	c.header(name, typeSymlink|0o777, int64(len(target)), 0, 0)
	c.write([]byte(target))
	c.pad(int64(len(target)))
}

func (c *cpio) characterDevice(name string, mode, major, minor int) {
	c.folder(path.Dir(path.Clean("/" + name)))
	c.header(name, typeCharacter|mode, 0, major, minor)
}

// close writes the trailer and returns the first error of all.
func (c *cpio) close() error {
	c.inode = -1 // the trailer has inode 0
	c.raw("TRAILER!!!", 0, 0, 0, 0)
	return c.err
}

func (c *cpio) header(name string, mode int, size int64, major, minor int) {
	if size > 1<<32-1 {
		c.err = errors.Join(c.err, fmt.Errorf("pack %s: %d bytes, newc ends at 4 GiB", name, size))
	}
	c.raw(path.Clean("/" + name)[1:], mode, size, major, minor)
}

// raw writes the 110-byte header of hexadecimal fields and the name, padded to
// four bytes together.
func (c *cpio) raw(name string, mode int, size int64, major, minor int) {
	c.inode++
	fields := []int64{int64(c.inode), int64(mode), 0, 0, 1, 0, size, 0, 0, int64(major), int64(minor), int64(len(name) + 1), 0}
	header := "070701"
	for _, f := range fields {
		header += fmt.Sprintf("%08X", f)
	}
	header += name + "\x00"
	c.write([]byte(header))
	c.pad(int64(len(header)))
}

func (c *cpio) pad(size int64) { c.write(make([]byte, (4-size%4)%4)) }

func (c *cpio) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
}
