package pystack

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"github.com/tracecoreai/tracecore/internal/elfhead"
)

// symbols finds what a file exports the way the dynamic linker does: by the tables that
// PT_DYNAMIC names. Section headers, which a stripped file need not have, are not asked.
type symbols struct {
	file            *elfhead.File
	names, entries  uint64 // DT_STRTAB, DT_SYMTAB
	gnu, sysv       uint64 // DT_GNU_HASH, DT_HASH
	buckets, chains uint64 // of gnu: addresses
	count, first    uint32
}

// Bounds on tables that may lie.
const (
	maxDynamic = 256 // entries: an interpreter has some thirty
	maxChain   = 256 // symbols in one bucket: a few
	maxSymbol  = 64  // bytes of a name
)

func dynamicSymbols(f *elfhead.File) (*symbols, error) {
	s := &symbols{file: f}
	for i := range f.Segments {
		if elf.ProgType(f.Segments[i].Type) != elf.PT_DYNAMIC {
			continue
		}
		var entry [16]byte
		entries := f.Content(&f.Segments[i])
		for range maxDynamic {
			if n, _ := entries.Read(entry[:]); n < len(entry) {
				break
			}
			tag, value := elf.DynTag(binary.LittleEndian.Uint64(entry[:])), binary.LittleEndian.Uint64(entry[8:])
			if tag == elf.DT_NULL {
				break
			}
			s.tell(tag, value)
		}
	}
	if s.gnu == 0 {
		return s, nil
	}
	// nbuckets, symoffset, bloom_size, bloom_shift; then the filter of bloom_size words, the
	// buckets and the chains (https://flapenguin.me/elf-dt-gnu-hash).
	var head [16]byte
	if err := s.read(s.gnu, head[:]); err != nil {
		return nil, err
	}
	s.count, s.first = binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	s.buckets = s.gnu + 16 + 8*uint64(binary.LittleEndian.Uint32(head[8:]))
	s.chains = s.buckets + 4*uint64(s.count)
	return s, nil
}

func (s *symbols) tell(tag elf.DynTag, value uint64) {
	switch tag {
	case elf.DT_STRTAB:
		s.names = value
	case elf.DT_SYMTAB:
		s.entries = value
	case elf.DT_GNU_HASH:
		s.gnu = value
	case elf.DT_HASH:
		s.sysv = value
	}
}

var errNotLoaded = errors.New("an address is in no segment of the file")

// read reads what the file has at an address.
func (s *symbols) read(address uint64, b []byte) error {
	p := s.file.Loaded(address)
	if p == nil {
		return errNotLoaded
	}
	if n, err := s.file.Content(p).ReadAt(b, int64(address-p.Vaddr)); n < len(b) { //nolint:gosec // below its size
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	return nil
}

func (s *symbols) word(address uint64) (uint32, error) {
	var b [4]byte
	err := s.read(address, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// address is where a symbol is, 0 when it is not exported.
func (s *symbols) address(name string) uint64 {
	if s.gnu != 0 {
		return s.byGNUHash(name)
	}
	if s.sysv != 0 {
		return s.bySystemVHash(name)
	}
	return 0
}

func (s *symbols) byGNUHash(name string) uint64 {
	if s.count == 0 {
		return 0
	}
	hash := uint32(5381)
	for _, c := range []byte(name) {
		hash = hash*33 + uint32(c)
	}
	index, err := s.word(s.buckets + 4*uint64(hash%s.count))
	if err != nil || index < s.first {
		return 0
	}
	for range maxChain {
		chain, err := s.word(s.chains + 4*uint64(index-s.first))
		if err != nil {
			return 0
		}
		if chain|1 == hash|1 {
			if value := s.symbol(index, name); value != 0 {
				return value
			}
		}
		if chain&1 != 0 {
			return 0
		}
		index++
	}
	return 0
}

// bySystemVHash: nbucket, nchain, buckets, chains (System V ABI, chapter 5).
func (s *symbols) bySystemVHash(name string) uint64 {
	count, err := s.word(s.sysv)
	if err != nil || count == 0 {
		return 0
	}
	hash := uint32(0)
	for _, c := range []byte(name) {
		hash = hash<<4 + uint32(c)
		high := hash & 0xf0000000
		hash = (hash ^ high>>24) &^ high
	}
	index, err := s.word(s.sysv + 8 + 4*uint64(hash%count))
	for range maxChain {
		if err != nil || index == 0 {
			return 0
		}
		if value := s.symbol(index, name); value != 0 {
			return value
		}
		index, err = s.word(s.sysv + 8 + 4*uint64(count) + 4*uint64(index))
	}
	return 0
}

// symbol is the value of an Elf64_Sym if it has that name and is defined here.
func (s *symbols) symbol(index uint32, name string) uint64 {
	var entry [24]byte // st_name 4, st_info 1, st_other 1, st_shndx 2, st_value 8, st_size 8
	if s.read(s.entries+24*uint64(index), entry[:]) != nil || binary.LittleEndian.Uint16(entry[6:]) == 0 {
		return 0
	}
	var text [maxSymbol]byte
	got := text[:len(name)+1]
	if s.read(s.names+uint64(binary.LittleEndian.Uint32(entry[:])), got) != nil || string(got) != name+"\x00" {
		return 0
	}
	return binary.LittleEndian.Uint64(entry[8:])
}
