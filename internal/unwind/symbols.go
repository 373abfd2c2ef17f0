package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// symbol is a dynamic symbol that is a function.
type symbol struct {
	name  string
	start uint64
}

// symbols is where the dynamic symbols of an image lie. They are in no order by address, and
// a library of 400,000 has ten megabytes of them: so they are read anew for each stack that
// has an address that was not asked for before, and not kept.
type symbols struct {
	table, strings, stringsBytes uint64
	count                        uint64
}

// Bounds on symbols.
const (
	maxSymbols = 1 << 21
	maxName    = 512 // C++ names are longer; what is cut says so by its length
	maxDynamic = 1 << 12
	maxChain   = 1 << 12
	symbolSize = 24       // struct Elf64_Sym
	maxScan    = 64 << 20 // bytes of symbols for one stack: those of libtorch_cpu.so and libtorch_cuda.so are 20 MiB
)

// question is an address whose function is asked for, and where its FDE says that it begins.
type question struct{ address, start uint64 }

// ask finds the functions at addresses, in one walk over the symbols, and puts them where
// lookups are kept: the symbol that begins there or that spans the address. A function that has
// no symbol has no name, rather than its neighbour's. It takes the bytes that it reads from room.
func (i *image) ask(all []question, room *int) error {
	var unknown []question
	for _, q := range all {
		if _, ok := i.known.names[lookup{i, q.address}]; !ok {
			unknown = append(unknown, q)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	if i.symbols == nil && i.unnamed == nil {
		i.symbols, i.unnamed = i.findSymbols()
	}
	if i.unnamed != nil {
		return i.unnamed
	}
	if *room -= int(i.symbols.count * symbolSize); *room < 0 {
		return errors.New("its symbols are too many for one stack")
	}
	found, err := i.scan(unknown)
	if err != nil {
		return err
	}
	i.known.room()
	for n, q := range unknown {
		i.known.names[lookup{i, q.address}] = found[n]
	}
	return nil
}

// scan reads all symbols once.
func (i *image) scan(all []question) ([]symbol, error) {
	s := i.symbols
	found, texts := make([]symbol, len(all)), make([]uint64, len(all))
	buffer := make([]byte, min(s.count*symbolSize, 2730*symbolSize)) // 64 KiB
	for next := uint64(0); next < s.count; {
		part := buffer[:min(uint64(len(buffer)), (s.count-next)*symbolSize)]
		if err := i.read(s.table+next*symbolSize, part); err != nil {
			return nil, fmt.Errorf("read dynamic symbols: %w", err)
		}
		next += uint64(len(part) / symbolSize)
		for ; len(part) > 0; part = part[symbolSize:] {
			kind := elf.ST_TYPE(part[4])
			if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC {
				continue
			}
			value, size := binary.LittleEndian.Uint64(part[8:]), binary.LittleEndian.Uint64(part[16:])
			for n, q := range all {
				if q.has(value, size) && value > found[n].start {
					found[n].start, texts[n] = value, uint64(binary.LittleEndian.Uint32(part))
				}
			}
		}
	}
	for n := range found {
		if err := i.text(&found[n], texts[n]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// has reports whether a symbol is of the function that is asked for.
func (q question) has(value, size uint64) bool {
	return value != 0 && value <= q.address && (value == q.start || q.address-value < size)
}

// text reads the name of a symbol that was found.
func (i *image) text(found *symbol, at uint64) error {
	if found.start == 0 || at >= i.symbols.stringsBytes {
		*found = symbol{}
		return nil
	}
	text := make([]byte, min(maxName, i.symbols.stringsBytes-at))
	n, err := i.readSome(i.symbols.strings+at, text)
	if err != nil {
		return fmt.Errorf("read the name of a symbol: %w", err)
	}
	name, _, _ := bytes.Cut(text[:n], []byte{0})
	found.name = string(name)
	return nil
}

// findSymbols reads PT_DYNAMIC. Its addresses are the linker's in the file.
func (i *image) findSymbols() (*symbols, error) {
	raw := make([]byte, min(i.dynamic.Filesz, maxDynamic*16))
	n, err := i.readSome(i.dynamic.Vaddr, raw)
	if len(raw) > 0 && err != nil {
		return nil, fmt.Errorf("read dynamic section: %w", err)
	}
	s, hash, gnuHash := &symbols{}, uint64(0), uint64(0)
	for raw = raw[:n]; len(raw) >= 16; raw = raw[16:] {
		value := binary.LittleEndian.Uint64(raw[8:])
		switch elf.DynTag(binary.LittleEndian.Uint64(raw)) {
		case elf.DT_NULL:
			raw = nil
		case elf.DT_SYMTAB:
			s.table = value
		case elf.DT_STRTAB:
			s.strings = value
		case elf.DT_STRSZ:
			s.stringsBytes = value
		case elf.DT_HASH:
			hash = value
		case elf.DT_GNU_HASH:
			gnuHash = value
		}
		if raw == nil {
			break
		}
	}
	switch {
	case s.table == 0 || s.strings == 0:
		return &symbols{}, nil // a static program
	case hash != 0:
		count, err := i.word32(hash + 4)
		s.count = uint64(count)
		return s.checked(err)
	case gnuHash != 0:
		s.count, err = i.countByHash(gnuHash)
		return s.checked(err)
	}
	return nil, errors.New("dynamic symbols without a hash, which says how many they are")
}

func (s *symbols) checked(err error) (*symbols, error) {
	if err != nil {
		return nil, fmt.Errorf("count dynamic symbols: %w", err)
	}
	if s.count > maxSymbols {
		return nil, fmt.Errorf("%d dynamic symbols", s.count)
	}
	return s, nil
}

// countByHash finds the end of the last chain of DT_GNU_HASH: four words, a bloom filter of
// 64-bit words, buckets, chains. The end of a chain has its lowest bit set.
func (i *image) countByHash(at uint64) (uint64, error) {
	var head [16]byte
	if err := i.read(at, head[:]); err != nil {
		return 0, err
	}
	buckets, offset := uint64(binary.LittleEndian.Uint32(head[:])), uint64(binary.LittleEndian.Uint32(head[4:]))
	bloom := uint64(binary.LittleEndian.Uint32(head[8:]))
	if buckets > maxSymbols || offset > maxSymbols {
		return 0, fmt.Errorf("a hash of %d buckets from symbol %d on", buckets, offset)
	}
	raw := make([]byte, 4*buckets)
	first := at + 16 + 8*bloom
	if len(raw) > 0 {
		if err := i.read(first, raw); err != nil {
			return 0, err
		}
	}
	last := uint64(0)
	for ; len(raw) > 0; raw = raw[4:] {
		last = max(last, uint64(binary.LittleEndian.Uint32(raw)))
	}
	if last < offset {
		return offset, nil // no function has a name
	}
	// The last chain has as many words as its symbols share a bucket: a few.
	for end := last + maxChain; last < end; last++ {
		word, err := i.word32(first + 4*buckets + 4*(last-offset))
		if err != nil {
			return 0, err
		}
		if word&1 != 0 {
			return last + 1, nil
		}
	}
	return 0, errors.New("a chain without an end")
}
