package uprobe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/tracecoreai/tracecore/internal/elfhead"
)

// Bounds on what is read of a file of which all that is known is its name.
const (
	// maxSymbolBytes bounds the symbol tables. Those of libcuda have some 100 KiB, those of
	// PyTorch's libtorch_cuda more than 64 MiB (wheel 2.11, CUDA 13.0). The most take 0.5 MB of
	// memory and 0.06 s, and 0.5 s where they are made to take long (BenchmarkRead, AMD EPYC,
	// Linux 6.18, 2026-11-26).
	maxSymbolBytes = 256 << 20
	// maxPlaces bounds how often the names that are looked for may be in a table.
	maxPlaces = 1 << 12
	// maxNeeded bounds the entries of a dynamic section, and the length of a name there.
	maxNeeded, maxNeededName = 1 << 12, 256
)

const (
	symbolBytes  = 24                  // Elf64_Sym
	dynamicBytes = 16                  // Elf64_Dyn
	pieceBytes   = 10922 * symbolBytes // of a table, read at a time: 256 KiB
)

// object is what the headers of a file say.
type object struct {
	*elfhead.File
	sections []elf.Section64
}

func readHeaders(file io.ReaderAt) (*object, error) {
	f, err := elfhead.Read(file)
	if err != nil {
		return nil, err
	}
	sections, err := f.Sections()
	if err != nil {
		return nil, err
	}
	return &object{f, sections}, nil
}

// section returns the first section of a type, and the string table that goes with it.
func (f *object) section(kind elf.SectionType) (section, names elf.Section64, there bool) {
	for _, s := range f.sections {
		if elf.SectionType(s.Type) == kind && elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED == 0 && uint64(s.Link) < uint64(len(f.sections)) {
			return s, f.sections[s.Link], true
		}
	}
	return section, names, false
}

// Needs reports whether a file is linked against a library whose name begins so (DT_NEEDED).
func Needs(file io.ReaderAt, prefixes ...string) (bool, error) {
	f, err := readHeaders(file)
	if err != nil {
		return false, err
	}
	dynamic, names, there := f.section(elf.SHT_DYNAMIC)
	if !there {
		return false, nil
	}
	entries := make([]elf.Dyn64, min(dynamic.Size/dynamicBytes, maxNeeded))
	if err := binary.Read(f.Part(dynamic.Off, dynamic.Size), binary.LittleEndian, entries); err != nil {
		return false, fmt.Errorf("read its dynamic section: %w", err)
	}
	text := make([]byte, maxNeededName)
	for _, e := range entries {
		if elf.DynTag(e.Tag) == elf.DT_NULL {
			break
		}
		if elf.DynTag(e.Tag) != elf.DT_NEEDED || e.Val >= names.Size {
			continue
		}
		n, _ := f.Part(names.Off, names.Size).ReadAt(text, int64(e.Val)) //nolint:gosec // below Size; what is there is looked at
		for _, prefix := range prefixes {
			if strings.HasPrefix(string(text[:n]), prefix) {
				return true, nil
			}
		}
	}
	return false, nil
}

// bounded refuses symbol tables that are too large to be read.
func (f *object) bounded() error {
	var total uint64
	for _, kind := range symbolTables() {
		if symbols, names, there := f.section(kind); there {
			total += min(symbols.Size, maxSymbolBytes+1) + min(names.Size, maxSymbolBytes+1)
		}
	}
	if total > maxSymbolBytes {
		return fmt.Errorf("its symbol tables have more than %d bytes", maxSymbolBytes)
	}
	return nil
}

// symbolTables are where functions are looked for; the last that defines one counts.
func symbolTables() []elf.SectionType { return []elf.SectionType{elf.SHT_DYNSYM, elf.SHT_SYMTAB} }

// functions returns the functions of these names that a symbol table defines; of several of
// one name the last.
func (f *object) functions(kind elf.SectionType, wanted []string) (map[string]elf.Sym64, error) {
	return f.defined(kind, func(is elf.SymType) bool { return is == elf.STT_FUNC }, wanted)
}

func (f *object) defined(kind elf.SectionType, are func(elf.SymType) bool, wanted []string) (map[string]elf.Sym64, error) {
	symbols, names, there := f.section(kind)
	if !there {
		return nil, nil
	}
	places, err := f.places(names, wanted)
	if err != nil || len(places) == 0 {
		return nil, err
	}
	found := map[string]elf.Sym64{}
	err = pieces(f.Part(symbols.Off, symbols.Size-symbols.Size%symbolBytes), 0, func(piece []byte, _ uint64) error {
		for ; len(piece) > 0; piece = piece[symbolBytes:] {
			info, section := piece[4], binary.LittleEndian.Uint16(piece[6:])
			if !are(elf.ST_TYPE(info)) || elf.SectionIndex(section) == elf.SHN_UNDEF {
				continue
			}
			if name, there := places[binary.LittleEndian.Uint32(piece)]; there {
				found[name] = elf.Sym64{Value: binary.LittleEndian.Uint64(piece[8:]), Size: binary.LittleEndian.Uint64(piece[16:])}
			}
		}
		return nil
	})
	return found, err
}

// places are where in a string table names are. A linker lets a name be the tail of a longer
// one, so that only its end shows.
func (f *object) places(table elf.Section64, wanted []string) (map[uint32]string, error) {
	shortest, longest := math.MaxInt, 0
	byEnd := [256][]string{}
	for _, name := range wanted {
		shortest, longest = min(shortest, len(name)), max(longest, len(name))
		byEnd[name[len(name)-1]] = append(byEnd[name[len(name)-1]], name)
	}
	found := map[uint32]string{}
	next := uint64(shortest) // where an end can be
	err := pieces(f.Part(table.Off, table.Size), longest, func(piece []byte, at uint64) error {
		for next < at+uint64(len(piece)) {
			n := bytes.IndexByte(piece[next-at:], 0)
			if n < 0 {
				next = at + uint64(len(piece))
				break
			}
			end := next - at + uint64(n)
			for _, name := range byEnd[piece[end-1]] {
				if bytes.HasSuffix(piece[:end], []byte(name)) {
					found[uint32(at+end-uint64(len(name)))] = name //nolint:gosec // tables are bounded
				}
			}
			if len(found) > maxPlaces {
				return errors.New("its names of functions are there too often")
			}
			next = at + end + 1 + uint64(shortest)
		}
		return nil
	})
	return found, err
}

// pieces reads a table. Each piece begins with the last bytes, keep at most, of the one before:
// take is told where in the table it begins.
func pieces(table *io.SectionReader, keep int, take func(piece []byte, at uint64) error) error {
	buffer := make([]byte, keep+pieceBytes)
	old := 0
	for at, left := uint64(0), table.Size(); left > 0; {
		fresh := int(min(left, pieceBytes))
		if _, err := io.ReadFull(table, buffer[old:old+fresh]); err != nil {
			return fmt.Errorf("read its symbols: %w", err)
		}
		piece := buffer[:old+fresh]
		if err := take(piece, at); err != nil {
			return err
		}
		kept := min(keep, len(piece))
		copy(buffer, piece[len(piece)-kept:])
		at, left, old = at+uint64(len(piece)-kept), left-int64(fresh), kept
	}
	return nil
}
