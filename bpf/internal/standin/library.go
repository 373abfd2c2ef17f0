//go:build linux && (amd64 || arm64)

package standin

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Function is one of a library that a test makes.
type Function struct {
	Name  string
	Place int    // among the library's functions
	Code  []byte // at most Stride bytes
}

// The file is one page of headers and tables, and one of code, which a linker
// would map elsewhere than at its place in the file: so does this.
const (
	pageBytes = 64 << 10 // the largest page of any kernel it runs on
	codeAt    = pageBytes
	codeMoved = 2 * pageBytes // what address it has more than offset
	// CodeAt is where in the file its functions begin: a place that can be mapped.
	CodeAt = codeAt
	// Stride is from one function to the next.
	Stride = 64
)

// Library is the content of a shared object with these functions, whose symbols are in
// its dynamic table alone, as of a library that was stripped.
func Library(functions []Function) []byte {
	names, symbols := []byte{0}, []elf.Sym64{{}}
	code := make([]byte, pageBytes)
	for _, f := range functions {
		copy(code[f.Place*Stride:(f.Place+1)*Stride], f.Code)
		symbols = append(symbols, elf.Sym64{
			Name: uint32(len(names)), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 3,
			Value: uint64(codeAt + codeMoved + f.Place*Stride), Size: uint64(len(f.Code)),
		})
		names = append(append(names, f.Name...), 0)
	}
	return append(headers(names, symbols), code...)
}

// headers are the page before the code: file header, one segment, three sections.
func headers(names []byte, symbols []elf.Sym64) []byte {
	const header, segment, section, symbol = 64, 56, 64, 24 // bytes, System V ABI
	tables := uint64(header + segment + 4*section)
	namesAt := tables + uint64(len(symbols))*symbol
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	file := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: header, Shoff: header + segment, Ehsize: header,
		Phentsize: segment, Phnum: 1, Shentsize: section, Shnum: 4, Shstrndx: 2,
	}
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X),
		Off: codeAt, Vaddr: codeAt + codeMoved, Filesz: pageBytes, Memsz: pageBytes, Align: pageBytes,
	}
	sections := [4]elf.Section64{
		1: {Type: uint32(elf.SHT_DYNSYM), Off: tables, Size: namesAt - tables, Link: 2, Info: 1, Entsize: symbol},
		2: {Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names))},
		3: {Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: codeAt + codeMoved, Off: codeAt, Size: pageBytes},
	}
	var out bytes.Buffer
	for _, part := range []any{file, load, sections, symbols, names} {
		_ = binary.Write(&out, binary.LittleEndian, part) // a buffer takes everything
	}
	return append(out.Bytes(), make([]byte, codeAt-out.Len())...)
}

// Map maps the code of a library as a linker does and returns where its functions begin.
func Map(name string) (uintptr, error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	code, err := unix.Mmap(int(file.Fd()), codeAt, pageBytes, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return 0, fmt.Errorf("map %s: %w", name, err)
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(code))), nil
}
