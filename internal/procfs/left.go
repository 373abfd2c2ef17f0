package procfs

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds on the reads that are left behind, each with a thread, of those that wait for the memory
// of a process, and of the others.
const (
	maxLeft = 64
	// leftOfOne is the share of a tenant: a node has eight GPUs, so eight ranks that one dead mount
	// can stop at once, and as many helpers.
	leftOfOne = maxLeft / 4
	// leftForNew is kept for tenants that have none left behind.
	leftForNew = maxLeft / 4
)

// nobody owns what is of no process, and unknown the reads of processes that do not tell whose they are.
const (
	nobody  = ""
	unknown = "unknown"
)

// subject is what a read waits for: the memory of a process, whatever file of it is read, or the
// file alone. A rank whose memory does not answer still tells where it sleeps.
type subject struct {
	pid  uint32 // 0: no process
	file string // "": its memory
}

// mapped is what waits for the memory of a process and for a mount of its: the way to files that it
// has. One on a dead mount hides neither its memory nor its environment.
const mapped = "files"

// behind is a read that was left behind.
type behind struct {
	subject
	owner string
}

func (s subject) memory() bool { return s.file == "" || s.file == mapped }

// held reports whether a read cannot end before one of o does.
func (s subject) held(o subject) bool {
	return s == o || s.file == mapped && o == subject{pid: s.pid}
}

// subjectOf tells what a read of a file waits for.
func (f *FS) subjectOf(file string) subject {
	below, _ := strings.CutPrefix(file, f.root+"/")
	number, name, _ := strings.Cut(below, "/")
	pid, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return subject{file: file}
	}
	switch name, _, _ = strings.Cut(name, "/"); name {
	case "environ", "cmdline", "maps", "pagemap":
		return subject{pid: uint32(pid)}
	case "map_files", "root", "cwd":
		return subject{uint32(pid), mapped}
	}
	return subject{uint32(pid), file}
}

// mayRead reports whether a read may begin, if it is the owner's.
func (f *FS) mayRead(of subject, owner func() string) bool {
	if again, crowded := f.stands(of); again || !crowded {
		return !again
	}
	whose := owner() // not before: it takes two more reads
	f.mu.Lock()
	defer f.mu.Unlock()
	his, all := f.leftLike(of, whose)
	return all < maxLeft-leftForNew && his < leftOfOne || his == 0 && all < maxLeft
}

// stands reports whether a read of the same is left behind, and whether so many are that it matters
// whose it is.
func (f *FS) stands(of subject) (again, crowded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.left {
		again = again || of.held(one.subject)
	}
	return again, len(f.left) >= leftOfOne
}

// leftLike counts, with mu held, the reads left behind that wait for the same kind of thing.
func (f *FS) leftLike(of subject, owner string) (his, all int) {
	for _, one := range f.left {
		if one.memory() != of.memory() {
			continue
		}
		all++
		if one.owner == owner {
			his++
		}
	}
	return his, all
}

// leave leaves a read behind, with mu held.
func (f *FS) leave(of subject) *behind {
	one := &behind{of, unknown}
	f.left = append(f.left, one)
	return one
}

// ownerOf is who owns a read. It is asked with the patience of any read, and what hangs there is
// nobody's that is known.
func (f *FS) ownerOf(of subject) string {
	if of.pid == 0 {
		return nobody
	}
	file := f.path(of.pid, "cgroup")
	whose, err := patiently(f, file, subject{of.pid, file}, func() string { return unknown }, func() (string, error) {
		cgroup, err := readFile(file, maxCgroup)
		if err != nil {
			return "", err
		}
		status, err := readFile(f.path(of.pid, "status"), maxStat)
		if err != nil {
			return "", err
		}
		user, err := userIn(status.Content)
		if err != nil {
			return "", fmt.Errorf("process %d: %w", of.pid, err)
		}
		return tenant(cgroup.Content, user), nil
	})
	if err != nil {
		return unknown
	}
	return whose
}
