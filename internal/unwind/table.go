package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// search is the table of .eh_frame_hdr: functions by where they begin (Linux Standard Base,
// 10.6.2). Both columns are 32-bit and relative to the section; other forms no linker writes.
type search struct {
	base  uint64 // of the section
	first uint64 // address of the first entry
	count int
}

const tableEncoding = 0x3b // DW_EH_PE_datarel | DW_EH_PE_sdata4

var (
	errNoTable  = errors.New("it has no unwind table")
	errNotFound = errors.New("its unwind table does not have the address")
)

func (i *image) search() (*search, error) {
	if i.searched != nil {
		return i.searched, nil
	}
	if i.table.Filesz < 12 {
		return nil, errNoTable
	}
	head := make([]byte, min(i.table.Filesz, 64))
	if err := i.read(i.table.Vaddr, head); err != nil {
		return nil, fmt.Errorf("read unwind table: %w", err)
	}
	c := cursor{bytes: head, address: i.table.Vaddr, at: 4}
	if head[0] != 1 || head[3] != tableEncoding {
		return nil, fmt.Errorf("unwind table of version %d and encoding %#x", head[0], head[3])
	}
	c.pointer(head[1])
	count := c.pointer(head[2])
	s := &search{base: i.table.Vaddr, first: i.table.Vaddr + uint64(c.at)}
	if most := (i.table.Filesz - uint64(c.at)) / 8; c.bad || count > most {
		return nil, fmt.Errorf("unwind table of %d entries in %d bytes", count, i.table.Filesz)
	}
	s.count = int(count)
	i.searched = s
	return s, nil
}

// entry finds the FDE of the function that has an address, by its own address.
func (i *image) entry(address uint64) (uint64, error) {
	s, err := i.search()
	if err != nil {
		return 0, err
	}
	column := func(at uint64) uint64 {
		value, problem := i.word32(at)
		err = errors.Join(err, problem)
		return s.base + uint64(int64(int32(value)))
	}
	after := sort.Search(s.count, func(n int) bool { return err == nil && column(s.first+uint64(n)*8) > address })
	if err != nil {
		return 0, fmt.Errorf("read unwind table: %w", err)
	}
	if after == 0 {
		return 0, errNotFound
	}
	fde := column(s.first + uint64(after-1)*8 + 4)
	return fde, err
}

// record reads a CIE or an FDE: its length, then what is behind.
func (i *image) record(address uint64) (cursor, error) {
	length, err := i.word32(address)
	if err != nil {
		return cursor{}, err
	}
	if length < 4 || length > maxEntry {
		return cursor{}, fmt.Errorf("unwind entry of %d bytes", length)
	}
	content := make([]byte, length)
	if err := i.read(address+4, content); err != nil {
		return cursor{}, err
	}
	return cursor{bytes: content, address: address + 4}, nil
}

// cie is what the FDEs of many functions share.
type cie struct {
	codeAlign uint64
	dataAlign int64
	returns   uint64 // the register, or the column, of the return address
	encoding  byte   // of addresses in its FDEs
	augmented bool   // its FDEs have augmentation data
	signal    bool   // its functions are frames that the kernel makes for a signal
	program   cursor
}

func (i *image) cie(address uint64) (*cie, error) {
	c, err := i.record(address)
	if err != nil {
		return nil, fmt.Errorf("read CIE: %w", err)
	}
	if id := c.fixed(4); id != 0 {
		return nil, fmt.Errorf("CIE of id %d", id)
	}
	version := c.byte()
	if version != 1 && version != 3 {
		return nil, fmt.Errorf("CIE of version %d", version)
	}
	end := bytes.IndexByte(c.bytes[c.at:], 0)
	if end < 0 {
		return nil, errors.New("CIE without an end of its augmentation")
	}
	augmentation := string(c.skip(uint64(end)))
	c.skip(1)
	e := &cie{codeAlign: c.uleb(), dataAlign: c.sleb()}
	if version == 1 {
		e.returns = uint64(c.byte())
	} else {
		e.returns = c.uleb()
	}
	if augmentation != "" {
		if err := e.augment(augmentation, &c); err != nil {
			return nil, err
		}
	}
	if c.bad {
		return nil, errors.New("CIE is cut short")
	}
	e.program = c
	return e, nil
}

// augment reads the data that the letters announce (Linux Standard Base, 10.6.1.1.1; B is
// arm64's: return addresses are signed with the second key).
func (e *cie) augment(letters string, c *cursor) error {
	if letters[0] != 'z' {
		return fmt.Errorf("CIE with augmentation %q", letters)
	}
	data := *c
	length := data.uleb()
	c.uleb()
	c.skip(length)
	for _, letter := range letters[1:] {
		switch letter {
		case 'R':
			e.encoding = data.byte()
		case 'P':
			data.pointer(data.byte() &^ 0x80) // indirect: it is not followed
		case 'L':
			data.byte()
		case 'S':
			e.signal = true
		case 'B':
		default:
			return fmt.Errorf("CIE with augmentation %q", letters)
		}
	}
	e.augmented = true
	c.bad = c.bad || data.bad
	return nil
}

// function is an FDE: where a function lies and how its frames are left.
type function struct {
	*cie
	start, length uint64
	steps         cursor
}

func (i *image) function(address uint64) (*function, error) {
	at, err := i.entry(address)
	if err != nil {
		return nil, err
	}
	c, err := i.record(at)
	if err != nil {
		return nil, fmt.Errorf("read FDE: %w", err)
	}
	back := uint64(binary.LittleEndian.Uint32(c.bytes))
	shared, err := i.cie(at + 4 - back)
	if err != nil {
		return nil, err
	}
	c.at = 4
	f := &function{cie: shared, start: c.pointer(shared.encoding &^ 0x80), length: c.pointer(shared.encoding & 0xf)}
	if shared.augmented {
		c.skip(c.uleb())
	}
	switch {
	case c.bad:
		return nil, errors.New("FDE is cut short")
	case address < f.start || address-f.start >= f.length:
		return nil, errNotFound
	}
	f.steps = c
	return f, nil
}
