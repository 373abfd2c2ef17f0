//go:build linux && (amd64 || arm64)

package ncclcall

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/bpf/ncclcall/fakejob"
)

// library is an image of a library for a machine whose three functions have this code.
func library(t testing.TB, machine elf.Machine, codes ...[]byte) *uprobe.Image {
	t.Helper()
	var functions []standin.Function
	for i, name := range []string{userRank, count, cuDevice}[:len(codes)] {
		functions = append(functions, standin.Function{Name: name, Place: i, Code: codes[i]})
	}
	file := standin.Library(functions)
	binary.LittleEndian.PutUint16(file[18:], uint16(machine)) // e_machine
	image, err := uprobe.Read(bytes.NewReader(file), names())
	require.NoError(t, err)
	return image
}

// eachField makes the code of the three functions of one offset.
func eachField(code func(at uint32) []byte, offset uint32) [][]byte {
	return [][]byte{code(offset), code(offset + 4), code(offset + 8)}
}

func x86(text string) func(uint32) []byte {
	return func(at uint32) []byte {
		raw, _ := hex.DecodeString(fmt.Sprintf(text, binary.LittleEndian.AppendUint32(nil, at)))
		return raw
	}
}

func arm(high, low uint32) func(uint32) []byte {
	return func(at uint32) []byte {
		var code []byte
		for _, w := range []uint32{0xd503233f, high | at>>12<<10, 0xf9400041, low | at&0xfff/4<<10, 0xd65f03c0} {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		return code
	}
}

// The loads as compilers wrote them in true libraries (objdump of Debian's packages,
// 2026-11-22).
func TestRankOffsetOfTrueCode(t *testing.T) {
	for name, tc := range map[string]struct {
		machine elf.Machine
		code    func(uint32) []byte
		offset  uint32
	}{
		"NCCL 2.29.7 amd64: mov d(%r12),%eax":                        {elf.EM_X86_64, x86("f30f1efa418b8424%xc3"), 0x1206d8},
		"RCCL 5.4.3 amd64: mov d(%rdi),%eax":                         {elf.EM_X86_64, x86("558b87%xc3"), 0x17b0},
		"a register with a prefix: mov d(%r13),%r9d":                 {elf.EM_X86_64, x86("f30f1efa458b8d%xc3"), 0x1000},
		"NCCL 2.29.7 arm64: add x,x,#0x120,lsl#12; ldr w,[x,#0x6d8]": {elf.EM_AARCH64, arm(0x91400000|1<<5|2, 0xb9400000|2<<5|3), 0x1206d8},
	} {
		at, err := rankOffset(library(t, tc.machine, eachField(tc.code, tc.offset)...))
		require.NoError(t, err, name)
		require.EqualValues(t, tc.offset, at, name)
	}
}

func TestRankOffsetIsNeverGuessed(t *testing.T) {
	load := x86("8b87%xc3")
	two := func(at uint32) []byte { return append(load(at), load(at+0x1000)...) }
	other := func(at uint32) []byte { return append(load(at), load(at+0x1004)...) } // not a multiple of eight
	for name, tc := range map[string]struct {
		codes [][]byte
		want  error
	}{
		"two candidates":          {eachField(two, 0x2000), errAmbiguous},
		"fields not side by side": {[][]byte{load(0x2000), load(0x2004), load(0x2010)}, errNoLayout},
		"odd place":               {eachField(load, 0x2004), errNoLayout},
		"no room for a hash":      {eachField(load, 0), errNoLayout},
		"beyond any structure":    {eachField(load, 0x7ffffff0), errNoLayout},
		"a wrapper":               {[][]byte{{0xff, 0x25, 1, 2, 3, 4}, {0xff, 0x25}, {0xe9}}, errNoLayout},
		"no code":                 {[][]byte{{}, {}, {}}, errNoLayout},
		"a function is missing":   {eachField(load, 0x2000)[:2], errNoFunctions},
	} {
		_, err := rankOffset(library(t, elf.EM_X86_64, tc.codes...))
		require.ErrorIs(t, err, tc.want, name)
	}
	at, err := rankOffset(library(t, elf.EM_X86_64, eachField(other, 0x2000)...))
	require.NoError(t, err)
	require.EqualValues(t, 0x2000, at, "one of two is none")
	_, err = rankOffset(library(t, elf.EM_RISCV, eachField(load, 0x2000)...))
	require.ErrorIs(t, err, errNoLayout, "another machine")
}

// A library whose code lies: what is found is a possible place, or nothing.
func FuzzRankOffset(f *testing.F) {
	for _, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		code := x86("f30f1efa418b8424%xc3")
		if machine == elf.EM_AARCH64 {
			code = arm(0x91400000|1<<5|2, 0xb9400000|2<<5|3)
		}
		f.Add(machine == elf.EM_X86_64, code(0x1206d8), code(0x1206dc), code(0x1206e0))
	}
	f.Fuzz(func(t *testing.T, amd64 bool, a, b, c []byte) {
		machine := elf.EM_AARCH64
		if amd64 {
			machine = elf.EM_X86_64
		}
		at, err := rankOffset(library(t, machine, a, b, c))
		if err != nil {
			require.Zero(t, at)
			return
		}
		require.Zero(t, at%8)
		require.GreaterOrEqual(t, at, uint64(8))
		require.LessOrEqual(t, at, uint64(maxLayout))
	})
}

// The stand-in has what the probe attaches to, name by name.
func TestStandInHasTheFunctionsOfTheProbe(t *testing.T) {
	image, err := uprobe.Read(bytes.NewReader(fakejob.Library{RankOffset: offset2297}.Content()), names())
	require.NoError(t, err)
	for _, f := range functions() {
		if _, there := image.Function(f.name); f.class != graphs {
			require.True(t, there, f.name)
		}
	}
	require.Len(t, traced(image), len(functions())-2)
}

// The vectors are of the same in C (bitops.h of NCCL 2.29), compiled.
func TestHashesAreNCCLs(t *testing.T) {
	require.Equal(t, []uint64{0x36a9595c9e7b8826, 0x45a2e88c4b80781a}, idHashes(uniqueID(1)))
	require.Equal(t, uint64(0x6cf7ecc45fd6cdcd), splitHash(0x36a9595c9e7b8826, 1, 3))
	require.True(t, split{0x36a9595c9e7b8826, 3}.makes(0x6cf7ecc45fd6cdcd))
	require.False(t, split{0x36a9595c9e7b8826, 4}.makes(0x6cf7ecc45fd6cdcd))
}
