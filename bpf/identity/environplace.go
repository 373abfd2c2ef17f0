//go:build linux && (amd64 || arm64)

package identity

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/procfs"
	"github.com/tracecoreai/tracecore/internal/procmem"
)

// Bounds on what a process has in its memory, and on the files that it has mapped.
const (
	maxVariables = 2048 // of an environment
	maxVariable  = 512  // bytes of one that are read
	maxPlaces    = 64   // files whose symbols are remembered
	pageBytes    = 4096 // the smallest page
)

// errNoEnviron says that nobody knows where a process keeps its environment.
var errNoEnviron = errors.New("neither its program nor its C library exports environ")

// environPlace is where a process keeps its environment.
type environPlace struct {
	variable uint64 // address of environ(7), 0 when not known yet
	pointers uint64 // hash of what it pointed to at the last look
	block    []byte // and what that said
}

// current reads the environment that a process has now, from its memory.
func (r *reader) current(pid uint32, at *environPlace) (block []byte, err error) {
	if at.variable == 0 {
		if at.variable, err = r.environVariable(pid); err != nil {
			return nil, err
		}
	}
	memory, err := procmem.Open(r.FS, pid)
	if err != nil {
		return nil, err
	}
	defer func() { _ = memory.Close() }() // it was read
	pointers, err := pointersAt(memory, at.variable)
	if err != nil {
		return nil, err
	}
	hash := fnv.New64a()
	_ = binary.Write(hash, binary.LittleEndian, pointers)
	if hash.Sum64() == at.pointers {
		return at.block, nil
	}
	for _, p := range pointers {
		if entry := entryAt(memory, p); index(nameOf(entry)) != none {
			block = append(append(block, entry...), 0)
		}
	}
	at.pointers, at.block = hash.Sum64(), block
	return block, nil
}

func nameOf(entry []byte) []byte {
	name, _, _ := bytes.Cut(entry, []byte{'='})
	return name
}

// pointersAt reads the array that environ points to, up to its end.
func pointersAt(memory procmem.Memory, variable uint64) ([]uint64, error) {
	array, err := procmem.Word(memory, variable)
	if err != nil || array == 0 {
		return nil, err
	}
	var pointers []uint64
	for len(pointers) < maxVariables {
		page := make([]byte, pageBytes-array%pageBytes)
		if len(page)%8 != 0 || len(page) == 0 {
			return nil, errNoEnviron // no array of pointers
		}
		if err := memory.Read(array, page); err != nil {
			return nil, err
		}
		for ; len(page) > 0; page = page[8:] {
			p := binary.LittleEndian.Uint64(page)
			if p == 0 {
				return pointers, nil
			}
			pointers = append(pointers, p)
		}
		array += pageBytes - array%pageBytes
	}
	return pointers, nil
}

// entryAt reads one string; nil where it is not in memory or too long.
func entryAt(memory procmem.Memory, at uint64) []byte {
	var entry []byte
	for len(entry) < maxVariable {
		part := make([]byte, min(pageBytes-at%pageBytes, uint64(maxVariable-len(entry))))
		if memory.Read(at, part) != nil {
			return nil
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return append(entry, part[:end]...)
		}
		entry = append(entry, part...)
		at += uint64(len(part))
	}
	return nil
}

// environVariable finds environ in the program of a process, where it may be a copy, or else
// in its C library.
func (r *reader) environVariable(pid uint32) (uint64, error) {
	program, err := r.Program(pid)
	if err != nil {
		return 0, err
	}
	found, err := r.Code(pid, func(m procfs.Mapping) bool { return m.Path == program || isLibc(path.Base(m.Path)) })
	if err != nil {
		return 0, err
	}
	var inLibrary uint64
	for _, m := range found {
		s, err := r.environSymbol(pid, m)
		if err != nil || s.value == 0 {
			continue
		}
		address := m.Start - m.Offset + s.value - s.bias
		if m.Path == program {
			return address, nil
		}
		inLibrary = address
	}
	if inLibrary == 0 {
		return 0, errNoEnviron
	}
	return inLibrary, nil
}

// isLibc reports whether a file is the C library: glibc's, or musl's, which is its loader.
func isLibc(name string) bool {
	return strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "libc-2") || strings.HasPrefix(name, "ld-musl")
}

// environSymbol is where a file has environ, and what its code's addresses are ahead of its
// offsets. No value: it has none.
type environSymbol struct{ value, bias uint64 }

type environFile struct {
	procfs.Version
	offset uint64
}

func (r *reader) environSymbol(pid uint32, m procfs.Mapping) (environSymbol, error) {
	file, err := r.OpenMapped(pid, m)
	if err != nil {
		return environSymbol{}, err
	}
	s, err := r.environIn(file, m)
	return s, cmp.Or(err, r.Close(file))
}

// environIn reads each file once. One that is written, or has the inode of another, is another.
func (r *reader) environIn(file *os.File, m procfs.Mapping) (environSymbol, error) {
	version, err := r.Version(file, m.Inode)
	if err != nil {
		return environSymbol{}, err
	}
	key := environFile{version, m.Offset}
	if s, known := r.symbols[key]; known {
		return s, nil
	}
	s, err := procfs.Patiently(r.FS, file.Name(), func() (environSymbol, error) { return readEnviron(file, m.Offset) })
	if err != nil {
		return s, err
	}
	if len(r.symbols) >= maxPlaces {
		clear(r.symbols)
	}
	r.symbols[key] = s
	return s, nil
}

// readEnviron finds environ in an ELF file whose code is mapped from that offset on.
func readEnviron(file io.ReaderAt, offset uint64) (s environSymbol, err error) {
	s.value, s.bias, err = uprobe.Variable(file, offset, pageBytes, "environ", "__environ")
	return s, err
}
