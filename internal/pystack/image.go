package pystack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"github.com/tracecoreai/tracecore/internal/elfhead"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// image is what the file of an interpreter says. Addresses are those of the file: those in
// a process are them and one bias.
type image struct {
	segments []segment
	runtime  uint64 // _PyRuntime
	// runtimeAt is where the file has the beginning of it; 0 where it has none.
	runtimeAt uint64
	codeType  uint64 // PyCode_Type; 0 when it is not exported
	typeType  uint64 // PyType_Type
	version   uint64 // content of Py_Version, which is exported from 3.11 on; 0 where it is not
	minor     int    // by what it exports, where there is no Py_Version
}

// segment is a part of the file that is loaded as code.
type segment struct {
	offset, address, size uint64
}

// bias is what is added to the addresses of the file in a process that has mapped code of
// it from this place in the file on.
func (m *image) bias(start, offset uint64) (uint64, error) {
	for _, s := range m.segments {
		// A mapping begins at a page, and pages have up to 64 KiB.
		if offset >= s.offset&^0xffff && offset < s.offset+s.size {
			return start - (s.address + (offset - s.offset)), nil
		}
	}
	return 0, errors.New("its code is mapped from no segment of the file")
}

// since are functions of the stable ABI and the minor version that added each
// (Doc/data/stable_abi.dat; Doc/c-api), the newest first. From 3.11 on the variable
// Py_Version says the version.
var since = []struct {
	minor  int
	symbol string
}{
	{10, "Py_NewRef"},
	{9, "PyThreadState_GetInterpreter"},
	{8, "PyCode_NewWithPosOnlyArgs"},
}

// readImage finds the interpreter in an ELF file. An image without a runtime is of a file
// that has none.
func readImage(file io.ReaderAt) (m *image, err error) {
	f, err := elfhead.Read(file)
	if err != nil {
		return nil, err
	}
	m = &image{}
	for i := range f.Segments {
		if p := &f.Segments[i]; elfhead.Executed(p) {
			m.segments = append(m.segments, segment{p.Off, p.Vaddr, p.Filesz})
		}
	}
	symbols, err := dynamicSymbols(f)
	if err != nil {
		return nil, err
	}
	m.runtime, m.codeType, m.typeType = symbols.address("_PyRuntime"), symbols.address("PyCode_Type"), symbols.address("PyType_Type")
	if err := m.findVersion(symbols); err != nil {
		return nil, err
	}
	if m.runtime == 0 {
		m.runtime = findCookie(f)
	}
	if p := f.Loaded(m.runtime); p != nil && p.Filesz-(m.runtime-p.Vaddr) >= tableSize {
		m.runtimeAt = p.Off + m.runtime - p.Vaddr
	}
	return m, nil
}

func (m *image) findVersion(symbols *symbols) error {
	if at := symbols.address("Py_Version"); at != 0 { // a constant: it is in the file
		var b [8]byte
		err := symbols.read(at, b[:])
		m.version = binary.LittleEndian.Uint64(b[:])
		return err
	}
	for _, s := range since {
		if symbols.address(s.symbol) != 0 {
			m.minor = s.minor
			return nil
		}
	}
	return nil
}

// layout is the layout of an interpreter whose _PyRuntime begins with these bytes.
func (m *image) layout(head []byte) (layout, error) {
	if string(head[:len(cookie)]) == cookie {
		return ownLayout(head)
	}
	minor := m.minor
	if m.version != 0 {
		var err error
		if minor, err = minorOf(m.version); err != nil {
			return layout{}, err
		}
	}
	if m.codeType == 0 { // the cookie was what made it an interpreter
		return layout{}, errMisplaced
	}
	l, known := layouts[minor]
	switch {
	case known:
		return l, nil
	case minor == 0:
		return layout{}, &UnknownVersionError{"CPython 3.7 or older"}
	}
	return layout{}, &UnknownVersionError{versionName(minor)}
}

// Bounds on what a scan for the cookie reads: the writable data of an interpreter has some
// 2 MiB, and that of a program with others in it a multiple.
const (
	maxScan   = 64 << 20
	scanBlock = 64 << 10
)

// findCookie finds the beginning of _PyRuntime of 3.13 and newer in data that is writable:
// an interpreter whose symbols are gone has it in its file.
func findCookie(f *elfhead.File) uint64 {
	left := uint64(maxScan)
	block := make([]byte, scanBlock)
	for i := range f.Segments {
		p := &f.Segments[i]
		if elf.ProgType(p.Type) != elf.PT_LOAD || elf.ProgFlag(p.Flags)&elf.PF_W == 0 {
			continue
		}
		content, size := f.Content(p), min(p.Filesz, left)
		left -= size
		for at := uint64(0); at < size; at += scanBlock {
			n, _ := content.ReadAt(block[:min(scanBlock, size-at)], int64(at)) // what is cut short was no interpreter
			for b, from := block[:n], uint64(0); ; {
				i := bytes.Index(b[from:], []byte(cookie))
				if i < 0 {
					break
				}
				from += uint64(i)
				if address := p.Vaddr + at + from; address%8 == 0 {
					return address
				}
				from++
			}
		}
	}
	return 0
}

// images remembers files by device and inode.
type images struct {
	list  fairlru.List[entry]
	files map[fileID]*fairlru.Element[entry]
}

type fileID struct {
	device string
	inode  uint64
}

type entry struct {
	id    fileID
	image *image
}

const maxImages = 64

// get returns what is remembered of a file.
func (c *images) get(id fileID) *image {
	e := c.files[id]
	if e == nil {
		return nil
	}
	c.list.Touch(e, fairlru.Little)
	return e.Value.image
}

func (c *images) put(id fileID, one *image) {
	if c.files == nil {
		c.files = map[fileID]*fairlru.Element[entry]{}
	}
	c.forget(id)
	for c.list.Len() >= maxImages {
		victim, _ := c.list.Victim()
		c.forget(victim.Value.id)
	}
	c.files[id] = c.list.Add(entry{id, one}, fairlru.Little)
}

func (c *images) forget(id fileID) {
	if e := c.files[id]; e != nil {
		c.list.Remove(e)
		delete(c.files, id)
	}
}
