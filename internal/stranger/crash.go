//go:build linux

package stranger

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// instructions that end a program: it writes to address 0, and then, where the kernel
// reports it by another handler, a forbidden instruction, an invalid one, and a return from
// a signal that never came.
var instructions = map[string][]string{
	"amd64": {"\x31\xc0\x88\x00", "\xf4", "\x0f\x0b", "\xb8\x0f\x00\x00\x00\x31\xe4\x0f\x05"},
	"arm64": {"\x00\x00\x80\xd2\x1f\x00\x00\x39", "\x00\x00\x00\x00"},
}[runtime.GOARCH]

// program is the smallest that the kernel starts: a header, one segment, the code.
func program(code string) ([]byte, error) {
	const head, segment, base = 64, 56, 0x400000
	size := uint64(head + segment + len(code))
	h := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: map[string]uint16{"amd64": uint16(elf.EM_X86_64), "arm64": uint16(elf.EM_AARCH64)}[runtime.GOARCH],
		Version: uint32(elf.EV_CURRENT), Entry: base + head + segment, Phoff: head, Ehsize: head, Phentsize: segment, Phnum: 1,
	}
	p := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Paddr: base, Filesz: size, Memsz: size, Align: 0x10000}
	var file bytes.Buffer
	for _, part := range []any{h, p, []byte(code)} {
		if err := binary.Write(&file, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	return file.Bytes(), nil
}

// Job is the job that every process which crashes says it is rank 0 of: a death beside a
// forged line makes a verdict of some.
const Job = "strangers"

// crashes starts, for each text, a program whose file has the text for a name. So has its
// process, in 15 bytes; the kernel prints both. Every text crashes; each other handler has
// its turn.
func crashes(texts []string, tell func(Attack)) error {
	if len(instructions) == 0 {
		return fmt.Errorf("no program that crashes is known for %s", runtime.GOARCH)
	}
	folder, err := os.MkdirTemp("", "stranger")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for i, text := range texts {
		if err := crash(folder, Crash, instructions[0], text, tell); err != nil {
			return err
		}
		if err := crash(folder, Trap, instructions[1+i%(len(instructions)-1)], text, tell); err != nil {
			return err
		}
	}
	return nil
}

func crash(folder, route, code, text string, tell func(Attack)) error {
	const longest = 255 // NAME_MAX
	name := strings.ReplaceAll(text, "/", "|")
	name = name[:min(len(name), longest)]
	file := filepath.Join(folder, name)
	content, err := program(code)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, content, 0o700); err != nil {
		return err
	}
	defer os.Remove(file)
	cmd := &exec.Cmd{Path: file, Args: []string{name}, Dir: folder, Env: []string{"RANK=0", "WORLD_SIZE=8", "JOB_ID=" + Job}}
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.Exited() {
		return fmt.Errorf("%q did not crash: %w", name, err)
	}
	tell(Attack{Route: route, Text: name, PID: uint32(cmd.ProcessState.Pid())})
	return nil
}
