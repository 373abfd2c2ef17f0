package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/procmem"
	"github.com/tracecoreai/tracecore/internal/unwind/unwindtest"
)

func load(t testing.TB, goarch string, machine *arch) *image {
	t.Helper()
	i, err := newImage(sized(unwindtest.Program(goarch)), machine, newLookups())
	require.NoError(t, err)
	return i
}

// names of registers as readelf writes them; ra is the column of the return address.
func names(machine *arch) []string {
	if machine.machine == elf.EM_X86_64 {
		return strings.Fields("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 ra")
	}
	var out []string
	for n := range 31 {
		out = append(out, fmt.Sprintf("x%d", n))
	}
	out[30] = "ra"
	return append(out, "sp", "pc")
}

// said is one row of readelf -wF: "0000000000000574 sp+48 c-8 u c-40" below a line with the
// names of the columns.
type said struct {
	address uint64
	cfa     string
	rules   map[string]string
}

func parseRows(t testing.TB, text []byte) (rows []said) {
	var columns []string
	shared := false
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 3 && (fields[3] == "CIE" || fields[3] == "FDE"):
			shared = fields[3] == "CIE"
		case len(fields) > 1 && fields[0] == "LOC":
			columns = fields[2:]
		case len(fields) > 1 && len(fields[0]) == 16 && !shared && len(fields) == 2+len(columns):
			address, err := strconv.ParseUint(fields[0], 16, 64)
			if err != nil {
				continue
			}
			row := said{address, fields[1], map[string]string{}}
			for n, column := range columns {
				row.rules[column] = fields[2+n]
			}
			rows = append(rows, row)
		}
	}
	require.NoError(t, lines.Err())
	return rows
}

// written is a row as readelf writes it, for the columns that it has there.
func written(machine *arch, r *row, columns map[string]string) (cfa string, rules map[string]string) {
	rules = map[string]string{}
	register := names(machine)
	cfa = "exp"
	if r.cfa.how == isOffset {
		cfa = fmt.Sprintf("%s%+d", register[r.base], r.cfa.value)
	}
	for number, name := range register {
		if _, there := columns[name]; !there {
			continue
		}
		rule := r.rules[number]
		switch rule.how {
		case unsaid, undefined:
			rules[name] = "u"
		case same:
			rules[name] = "s"
		case atOffset:
			rules[name] = fmt.Sprintf("c%+d", rule.value)
		case isOffset:
			rules[name] = fmt.Sprintf("v%+d", rule.value)
		case inRegister:
			rules[name] = register[rule.value]
		case atExpr:
			rules[name] = "exp"
		case isExpr:
			rules[name] = "vexp"
		}
	}
	return cfa, rules
}

// compareRows holds our rows to those of readelf, of binutils.
func compareRows(t *testing.T, i *image, text []byte) int {
	t.Helper()
	rows := parseRows(t, text)
	for n, want := range rows {
		// Two rows of one address: the later one counts, and another function may begin there.
		if n+1 < len(rows) && rows[n+1].address == want.address {
			continue
		}
		got, err := i.row(want.address)
		require.NoError(t, err, "%#x", want.address)
		cfa, rules := written(i.arch, &got, want.rules)
		for name, rule := range want.rules { // readelf writes the return address of arm64 as u where it is still in x30
			require.Equal(t, rule, rules[name], "%s at %#x: %v", name, want.address, want)
		}
		require.Equal(t, want.cfa, cfa, "%#x", want.address)
	}
	return len(rows)
}

// name asks for the function at one address.
func (i *image) name(address, start uint64) (symbol, error) {
	room := maxScan
	err := i.ask([]question{{address, start}}, &room)
	return i.known.names[lookup{i, address}], err
}

func TestRowsAreThoseOfReadelf(t *testing.T) {
	for name, machine := range map[string]*arch{"amd64": amd64(), "arm64": arm64()} {
		t.Run(name, func(t *testing.T) {
			require.Greater(t, compareRows(t, load(t, name, machine), unwindtest.Rows(name)), 20)
		})
	}
}

// TestRowsOfTheCLibraryAreThoseOfReadelf: some ten thousand functions, where binutils are there.
func TestRowsOfTheCLibraryAreThoseOfReadelf(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads every row of the C library")
	}
	readelf, err := exec.LookPath("readelf")
	if err != nil {
		t.Skip("the oracle is readelf of binutils")
	}
	const library = "/lib/x86_64-linux-gnu/libc.so.6"
	content, err := os.ReadFile(library)
	if err != nil {
		t.Skip("the C library of this machine is elsewhere")
	}
	text, _ := exec.Command(readelf, "-wF", library).Output() // it fails for want of a debug file, which rows do not need
	i, err := newImage(sized(content), amd64(), newLookups())
	require.NoError(t, err)
	require.Greater(t, compareRows(t, i, text), 10_000)
}

// TestFunctionsOfAnyMachineAreNamed: the symbols of the program's own source.
func TestFunctionsOfAnyMachineAreNamed(t *testing.T) {
	for name, machine := range map[string]*arch{"amd64": amd64(), "arm64": arm64()} {
		i := load(t, name, machine)
		file, err := elf.NewFile(bytes.NewReader(unwindtest.Program(name)))
		require.NoError(t, err)
		symbols, err := file.DynamicSymbols()
		require.NoError(t, err)
		found := 0
		for _, s := range symbols {
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC {
				continue
			}
			found++
			for _, at := range []uint64{s.Value, s.Value + s.Size/2, s.Value + s.Size - 1} {
				got, err := i.name(at, s.Value)
				require.NoError(t, err)
				require.Equal(t, symbol{s.Name, s.Value}, got)
			}
		}
		require.Equal(t, 6, found)
		got, err := i.name(1, 0)
		require.NoError(t, err)
		require.Empty(t, got.name)
		require.NoError(t, file.Close())
	}
}

// machineOf is a stack of made frames of the program in testdata, at a bias.
func walkMade(machine *arch, i *image, stack procmem.Piece, r Registers) Trace {
	const bias = 0x5500_0000_0000
	w := walker{arch: machine, memory: stack, find: func(pc uint64) *code {
		if pc < bias || pc > bias+1<<20 {
			return nil
		}
		return &code{object: "frames", image: i, start: bias, offset: 0}
	}}
	return w.walk(r)
}

// TestAnARM64ThreadIsUnwound: a stack as the program makes it, with signed return addresses.
// The frames follow unwindtest/frames.arm64.rows, which readelf wrote.
func TestAnARM64ThreadIsUnwound(t *testing.T) {
	const bias, base, signature = 0x5500_0000_0000, 0x7fff_0000_0000, 0x00aa << 48
	machine := arm64()
	i := load(t, "arm64", machine)
	at := map[string]uint64{}
	file, err := elf.NewFile(bytes.NewReader(unwindtest.Program("arm64")))
	require.NoError(t, err)
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range symbols {
		at[s.Name] = s.Value
	}
	require.NoError(t, file.Close())
	// Where each function is in the middle of itself: behind its prologue.
	middle := func(name string) (uint64, row) {
		for offset := uint64(0x10); offset < 0xa0; offset += 4 {
			r, err := i.row(at[name] + offset)
			require.NoError(t, err)
			if r.rules[30].how == atOffset && (name == "wait_here" || r.base == 29) {
				return at[name] + offset + 4, r
			}
		}
		t.Fatal(name)
		return 0, row{}
	}
	memory := make([]byte, 4096)
	put := func(address, value uint64) { binary.LittleEndian.PutUint64(memory[address-base:], value) }
	var r Registers
	chain := []string{"wait_here", "with_room", "with_registers", "deep", "deep"}
	sp := uint64(base)
	pc, first := middle(chain[0])
	r.set(31, sp)
	r.set(32, bias+pc)
	r.set(29, 0xdead)
	cfa := sp + uint64(first.cfa.value)
	for n, name := range chain {
		_, row := middle(name)
		var caller, next uint64
		if n+1 < len(chain) {
			pc, _ := middle(chain[n+1])
			caller, next = bias+pc, cfa+64 // x29 of a frame with a pointer lies where its CFA says
		} else {
			caller = bias + i.startOf(t) + 12 // behind the branch to begin
		}
		value := caller
		if row.signed {
			value |= signature
		}
		put(cfa+uint64(row.rules[30].value), value)
		put(cfa+uint64(row.rules[29].value), next)
		if n+1 < len(chain) {
			_, above := middle(chain[n+1])
			cfa = next + uint64(above.cfa.value)
		}
	}
	trace := walkMade(machine, i, procmem.Piece{Start: base, Bytes: memory}, r)
	var got []string
	for _, f := range trace.Frames {
		got = append(got, f.Symbol)
	}
	require.NoError(t, trace.End, "%v", got)
	require.True(t, trace.Whole)
	require.Equal(t, append(chain, "_start"), got)
}

// startOf is where the program begins.
func (i *image) startOf(t *testing.T) uint64 {
	var header elf.Header64
	require.NoError(t, binary.Read(bytes.NewReader(i.file.(sized)), binary.LittleEndian, &header))
	return header.Entry
}

// TestAFileThatLiesIsBounded: numbers of 2^62 where sizes and addresses stand.
func TestAFileThatLiesIsBounded(t *testing.T) {
	whole := unwindtest.Program("amd64")
	for at := 0; at+8 <= 64+8*56; at += 2 {
		for _, lie := range []uint64{1 << 62, math.MaxUint64, 1<<63 - 1, 0} {
			content := bytes.Clone(whole)
			binary.LittleEndian.PutUint64(content[at:], lie)
			tryAll(content, amd64())
		}
	}
	for _, name := range []string{"empty", "short", "not ELF", "32 bit", "big endian", "another machine"} {
		content := bytes.Clone(whole)
		switch name {
		case "empty":
			content = nil
		case "short":
			content = content[:63]
		case "not ELF":
			content[0] = 'X'
		case "32 bit":
			content[elf.EI_CLASS] = 1
		case "big endian":
			content[elf.EI_DATA] = 2
		case "another machine":
			content[18] = byte(elf.EM_AARCH64)
		}
		_, err := newImage(sized(content), amd64(), newLookups())
		require.Error(t, err, name)
	}
}

// tryAll asks a file for everything, and unwinds a stack in it.
func tryAll(content []byte, machine *arch) {
	i, err := newImage(sized(content), machine, newLookups())
	if err != nil {
		return
	}
	for address := uint64(0x300); address < 0x700; address += 7 {
		r, err := i.row(address)
		if err == nil {
			_, _ = i.name(address, r.start)
		}
	}
	memory := make([]byte, 4096)
	for n := range len(memory) / 8 {
		binary.LittleEndian.PutUint64(memory[8*n:], 0x5500_0000_0000+0x300+uint64(n)%0x400)
	}
	var r Registers
	for n := range r.Values {
		r.set(n, 0x7fff_0000_0000+uint64(8*n))
	}
	r.set(machine.pc, 0x5500_0000_0000+0x400)
	walkMade(machine, i, procmem.Piece{Start: 0x7fff_0000_0000, Bytes: memory}, r)
}

// circle is memory in which every word points to the same place.
type circle uint64

func (c circle) Read(_ uint64, into []byte) error {
	for n := range len(into) / 8 {
		binary.LittleEndian.PutUint64(into[8*n:], uint64(c))
	}
	return nil
}

// TestAStackThatGoesRoundEnds, wherever all of its words point to.
func TestAStackThatGoesRoundEnds(t *testing.T) {
	const bias = 0x5500_0000_0000
	for name, machine := range map[string]*arch{"amd64": amd64(), "arm64": arm64()} {
		i := load(t, name, machine)
		for address := uint64(0x330); address < 0x800; address += 4 {
			w := walker{arch: machine, memory: circle(bias + address), find: func(pc uint64) *code {
				if pc < bias || pc > bias+1<<20 {
					return nil
				}
				return &code{object: "frames", image: i, start: bias}
			}}
			var r Registers
			for n := range r.Values {
				r.set(n, bias+address)
			}
			trace := w.walk(r)
			require.LessOrEqual(t, len(trace.Frames), maxFrames)
			if trace.Whole {
				require.NoError(t, trace.End)
				continue
			}
			require.Error(t, trace.End)
		}
	}
}

func TestWhatIsNotKnownIsNotGuessed(t *testing.T) {
	machine := amd64()
	i := load(t, "amd64", machine)
	trace := walkMade(machine, i, procmem.Piece{}, Registers{})
	require.ErrorIs(t, trace.End, errLost)
	var r Registers
	r.set(16, 0x1234)
	require.ErrorContains(t, walkMade(machine, i, procmem.Piece{}, r).End, "no code at 0x1234")
	r.set(16, 0x5500_0000_0400)
	trace = walkMade(machine, i, procmem.Piece{}, r)
	require.ErrorIs(t, trace.End, errLost, "the stack pointer")
	require.Len(t, trace.Frames, 1)
	r.set(7, 64)
	require.ErrorIs(t, walkMade(machine, i, procmem.Piece{}, r).End, procmem.ErrAbsent)
}

// TestARegisterWhosePlaceWasLeftIsUnknown: an epilogue of amd64 has popped rbx, and its table still
// says that it lies below the stack pointer, where the copy of a sample begins.
func TestARegisterWhosePlaceWasLeftIsUnknown(t *testing.T) {
	const sp = 0x7fff_0000_1000
	stack := procmem.Piece{Start: sp, Bytes: binary.LittleEndian.AppendUint64(nil, 0x1234)}
	epilogue := row{base: 7, cfa: rule{how: isOffset, value: 8}, column: 16}
	epilogue.rules[16] = rule{how: atOffset, value: -8}
	epilogue.rules[3] = rule{how: atOffset, value: -16}
	epilogue.rules[6] = rule{how: same}
	var r Registers
	r.set(7, sp)
	r.set(3, 0xb)
	r.set(6, 0xbb)
	w := walker{arch: amd64(), memory: stack}
	next, more, err := w.caller(&epilogue, &r)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, uint64(1<<6|1<<7|1<<16), next.Known)
	require.EqualValues(t, 0x1234, next.Values[16])
	require.EqualValues(t, sp+8, next.Values[7])

	w.memory = procmem.Piece{}
	_, _, err = w.caller(&epilogue, &r)
	require.ErrorIs(t, err, procmem.ErrAbsent, "a return address is needed")
}

// TestAProgramBeginsWhereItsFileSays, though no unwind table has that function, and nowhere else.
func TestAProgramBeginsWhereItsFileSays(t *testing.T) {
	const bias = 0x5500_0000_0000
	for name, machine := range map[string]*arch{"amd64": amd64(), "arm64": arm64()} {
		i := load(t, name, machine)
		outside := uint64(0) // code that no table has
		for address := uint64(0x300); address < 0x1000 && outside == 0; address += 4 {
			_, err := i.row(address)
			if _, later := i.row(address + 52); errors.Is(err, errNotFound) && errors.Is(later, errNotFound) {
				outside = address
			}
		}
		require.NotZero(t, outside)
		var r Registers
		r.set(machine.sp, 64)
		r.set(machine.pc, bias+outside+52)
		r.set(int(machine.fp), 0)
		for _, tc := range []struct {
			entry, fp uint64
			whole     bool
		}{{outside, 0, true}, {outside, 8, false}, {outside + 56, 0, false}, {outside - 12, 0, false}, {0, 0, false}} {
			i.begin = tc.entry
			r.set(int(machine.fp), tc.fp)
			trace := walkMade(machine, i, procmem.Piece{}, r)
			require.Equal(t, tc.whole, trace.Whole, "%s %+v: %v", name, tc, trace.End)
			require.Equal(t, tc.whole, trace.End == nil)
			require.Len(t, trace.Frames, 1)
		}
	}
}

// offsetOf is where the file has an address.
func (i *image) offsetOf(address uint64) uint64 {
	for _, l := range i.loads {
		if address >= l.Vaddr && address-l.Vaddr < l.Filesz {
			return l.Off + address - l.Vaddr
		}
	}
	return 0
}

// TestAStubOfThePLTIsCrossed: of python3.9 3.9.2-1 for arm64 (bullseye), and one with bti and pointer
// authentication.
func TestAStubOfThePLTIsCrossed(t *testing.T) {
	const bias, sp = 0x5500_0000_0000, 0x7fff_0000_0000
	for name, code := range map[string][]uint32{
		"plain":    {0xf00025b0, 0xf940aa11, 0x91054210, 0xd61f0220},
		"with bti": {0xd503245f, 0xd00022f0, 0xf9405e11, 0x9102e210, 0xd503219f, 0xd61f0220},
	} {
		machine := arm64()
		i := load(t, "arm64", machine)
		content := bytes.Clone(i.file.(sized))
		i.file = sized(content)
		at := uint64(0)
		for address := uint64(0x300); address < 0x1000 && at == 0; address += 4 {
			_, err := i.row(address)
			if _, later := i.row(address + 24); errors.Is(err, errNotFound) && errors.Is(later, errNotFound) {
				at = address
			}
		}
		require.NotZero(t, at)
		for n, word := range code {
			binary.LittleEndian.PutUint32(content[i.offsetOf(at)+4*uint64(n):], word)
		}
		var r Registers
		r.set(machine.sp, sp)
		r.set(30, bias+i.startOf(t)+12)
		r.set(int(machine.fp), 0)
		for n := range code {
			r.set(machine.pc, bias+at+4*uint64(n))
			trace := walkMade(machine, i, procmem.Piece{}, r)
			require.NoError(t, trace.End, "%s %d: %+v", name, n, trace)
			require.Equal(t, "_start", trace.Frames[1].Symbol)
		}
		r.set(machine.pc, bias+at+4*uint64(len(code)))
		require.ErrorIs(t, walkMade(machine, i, procmem.Piece{}, r).End, errNotFound, "behind it")
		clear(content[i.offsetOf(at):][:8])
		r.set(machine.pc, bias+at+4*uint64(len(code)-1))
		require.ErrorIs(t, walkMade(machine, i, procmem.Piece{}, r).End, errNotFound, "a branch alone is no stub")
	}
}

// FuzzImage changes a whole file in places: each patch is an offset of two bytes and a value.
// (Of files as inputs the fuzzer would try a few a second.)
func FuzzImage(f *testing.F) {
	f.Add([]byte{}, uint16(0xffff), true)
	f.Add([]byte{0x20, 0, 0xff, 0x27, 0, 0x40}, uint16(0x900), false)
	f.Add([]byte("$\x06\x0f"), uint16(2424), false) // an offset for a CFA that an expression says
	f.Fuzz(func(_ *testing.T, patches []byte, length uint16, arm bool) {
		machine, content := amd64(), bytes.Clone(unwindtest.Program("amd64"))
		if arm {
			machine, content = arm64(), bytes.Clone(unwindtest.Program("arm64"))
		}
		for ; len(patches) >= 3; patches = patches[3:] {
			if at := int(binary.LittleEndian.Uint16(patches)); at < len(content) {
				content[at] = patches[2]
			}
		}
		tryAll(content[:min(len(content), int(length))], machine)
	})
}

func FuzzExpression(f *testing.F) {
	f.Add([]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}) // of a PLT
	f.Add([]byte{0x77, 0xa0, 1, 0x06})                                        // of a signal
	f.Fuzz(func(t *testing.T, expr []byte) {
		var r Registers
		r.set(7, 0x7fff_0000_0000)
		_, _ = evaluate(expr, []uint64{1}, &r, circle(5))
	})
}
