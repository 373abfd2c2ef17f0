package uprobe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"

	"github.com/tracecoreai/tracecore/internal/elfhead"
)

// Function is a function of a library, by its places in the file.
type Function struct {
	// Offset is where a breakpoint goes: the first instruction, or on x86 the one
	// behind instructions that cost more under a breakpoint and change neither stack nor
	// arguments.
	Offset uint64
	// Stepped: the kernel executes the instruction there out of line, which on x86 takes
	// ten times as long as to emulate it. On arm64 nearly every function begins so.
	Stepped bool
	// Entry is where the function begins, and Size its length in bytes.
	Entry, Size uint64
}

// Instructions of x86 (Intel SDM). Neither changes the stack or a register, so behind
// them arguments and return address are where they are before.
var (
	// endbr64 begins the functions of programs built with -fcf-protection.
	endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	// compare is CMPL $imm32, disp32(%rip), which begins each function of libcuda, with
	// a conditional jump behind it (550.163.01, Debian, 2026-11-23). Only the flags change.
	compare = []byte{0x81, 0x3d}
)

const compareBytes = 10

// cheapest is how many bytes of a function a breakpoint is best put behind, and whether
// the kernel steps over what is there (arch/x86/kernel/uprobes.c: it emulates push, jumps,
// conditional jumps and nops). It emulates calls, too, and none of them is taken: to a user's
// shadow stack (Linux 6.6) the return address is written since branch_emulate_op has shstk_push
// only, and before that the program ends when the function returns.
func cheapest(code []byte) (skip int, stepped bool) {
	const call = 0xe8
	if behind, found := bytes.CutPrefix(code, endbr64); found && (len(behind) == 0 || behind[0] != call) {
		skip = len(endbr64)
	}
	if rest := code[skip:]; bytes.HasPrefix(rest, compare) && len(rest) > compareBytes && conditionalJump(rest[compareBytes:]) {
		skip += compareBytes
	}
	return skip, !emulated(code[skip:])
}

func conditionalJump(code []byte) bool {
	return code[0]&0xf0 == 0x70 || len(code) > 1 && code[0] == 0x0f && code[1]&0xf0 == 0x80
}

// emulated reports whether code begins with PUSH r64, a jump or NOP.
func emulated(code []byte) bool {
	const rexB, nop, jump, jumpShort = 0x41, 0x90, 0xe9, 0xeb
	if len(code) > 1 && code[0] == rexB {
		return code[1]&0xf8 == 0x50
	}
	if len(code) == 0 {
		return false
	}
	switch code[0] {
	case nop, jump, jumpShort:
		return true
	}
	return code[0]&0xf8 == 0x50 || conditionalJump(code)
}

// Image is the symbols of a library that a probe asked for.
type Image struct {
	Machine elf.Machine
	file    io.ReaderAt
	found   map[string]Function
}

// Read finds functions that a file defines, by their names in its symbol tables.
func Read(file io.ReaderAt, names []string) (*Image, error) {
	f, err := readHeaders(file)
	if err != nil {
		return nil, err
	}
	if err := f.bounded(); err != nil {
		return nil, err
	}
	image := &Image{Machine: f.Machine, file: file, found: make(map[string]Function, len(names))}
	for _, table := range symbolTables() {
		functions, err := f.functions(table, names)
		if err != nil {
			return nil, err
		}
		for name, s := range functions {
			if entry, ok := f.codeOffset(s.Value); ok {
				image.found[name] = function(file, f.Machine, entry, s.Size)
			}
		}
	}
	return image, nil
}

// Function returns one of the functions that were asked for, if the file defines it.
func (i *Image) Function(name string) (Function, bool) {
	f, found := i.found[name]
	return f, found
}

// Code is the code of a function, at most so many bytes of it; none where the file ends
// before.
func (i *Image) Code(name string, most uint64) []byte {
	f, found := i.found[name]
	if !found {
		return nil
	}
	code := make([]byte, min(f.Size, most))
	n, _ := i.file.ReadAt(code, int64(f.Entry)) // what is there is looked at
	return code[:n]
}

// function is one that begins there.
func function(file io.ReaderAt, machine elf.Machine, entry, size uint64) Function {
	f := Function{Offset: entry, Entry: entry, Size: size}
	const first = 32 // bytes
	code := make([]byte, first)
	n, _ := file.ReadAt(code, int64(entry)) // what is there is looked at
	switch machine {
	case elf.EM_X86_64:
		skip, stepped := cheapest(code[:n])
		f.Offset, f.Stepped = entry+uint64(skip), stepped
	case elf.EM_AARCH64:
		f.Stepped = n < 4 || !simulated(binary.LittleEndian.Uint32(code))
	}
	return f
}

// simulated reports whether the kernel of arm64 does without stepping what an instruction
// does (arch/arm64/kernel/probes/decode-insn.c: branches, ADR, loads of a literal). What
// functions begin with, PACIASP, BTI, STP and SUB of the stack, is none of these. NOP is
// since Linux 6.13 only.
func simulated(instruction uint32) bool {
	for _, is := range []struct{ mask, value uint32 }{
		{0xff000010, 0x54000000},                           // B.cond
		{0x7f000000, 0x34000000}, {0x7f000000, 0x35000000}, // CBZ, CBNZ
		{0x7f000000, 0x36000000}, {0x7f000000, 0x37000000}, // TBZ, TBNZ
		{0x1f000000, 0x10000000},                                                     // ADR, ADRP
		{0x7c000000, 0x14000000},                                                     // B, BL
		{0xfffffc1f, 0xd61f0000}, {0xfffffc1f, 0xd63f0000}, {0xfffffc1f, 0xd65f0000}, // BR, BLR, RET
		{0xbf000000, 0x18000000}, {0xff000000, 0x98000000}, // LDR and LDRSW of a literal
	} {
		if instruction&is.mask == is.value {
			return true
		}
	}
	return false
}

// codeOffset turns the address of a function into its place in the file. At 0 no code is: the header is there. And who is asked for a
// breakpoint there (cilium/ebpf, link.Executable) reads the file for a symbol, as a whole.
func (f *object) codeOffset(address uint64) (uint64, bool) {
	p := f.Loaded(address)
	if p == nil || !elfhead.Executed(p) {
		return 0, false
	}
	offset := address - p.Vaddr + p.Off
	return offset, offset != 0
}
