//go:build linux && (amd64 || arm64)

package taskstack

import (
	"encoding/binary"
	"math"
	"math/bits"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// record is what the iterator writes about a thread.
func record(change func(*bpfRecord), lines string) []byte {
	r := &bpfRecord{Tid: 43, Tgid: 42, State: 1, Still: 1, Switches: 7}
	change(r)
	return append(unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r)), lines...)
}

func TestKernelFunctionsAreNamedWithTheirModules(t *testing.T) {
	var s Stack
	raw := record(func(r *bpfRecord) { r.KernelFrames = 5 }, `fuse_simple_request.isra.0+0x1f/0x30 [fuse]
nfs_wait_bit_killable+0x1/0x2 [nfs 4c1cdd9de8a5d8a4]
0xffffffffc0123456
x64_sys_call+0x10/0x20
[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e
`)
	require.NoError(t, decode(raw, &s))
	require.Equal(t, []Function{{"fuse_simple_request", "fuse"}, {"nfs_wait_bit_killable", "nfs"}, {"x64_sys_call", ""}, {"entry_SYSCALL_64_after_hwframe", ""}}, s.Kernel)
	require.EqualValues(t, 43, s.TID)
	require.EqualValues(t, 42, s.PID)
	require.EqualValues(t, 7, s.Switches)
	require.True(t, s.Still)
}

func TestStatesAreThoseOfProc(t *testing.T) {
	for state, want := range map[uint32]byte{
		0: 'R', 1: 'S', 0x2001: 'S', 2: 'D', 0x102: 'D', 4: 'T', 0x104: 'T', 8: 't', 0x402: 'I', 0x40: 'P', 0x1000: 'D', 0x8000: 'D', math.MaxUint32: 'D',
	} {
		require.Equal(t, string(want), string(letter(state, false)), "%#x", state)
	}
	require.Equal(t, "Z", string(letter(1, true)))
	var s Stack
	require.NoError(t, decode(record(func(r *bpfRecord) { r.Flags = kernelThread; r.Registers[17] = 0x33 }, ""), &s))
	require.True(t, s.KernelThread)
	require.Zero(t, s.Registers)
}

func TestARecordThatCannotBeIsRefused(t *testing.T) {
	whole := record(func(r *bpfRecord) { r.KernelFrames = 2 }, "a+0x1/0x2\nb+0x1/0x2\n")
	var s Stack
	require.NoError(t, decode(whole, &s))
	for name, raw := range map[string][]byte{
		"nothing":         {},
		"half":            whole[:40],
		"a frame lost":    record(func(r *bpfRecord) { r.KernelFrames = 3 }, "a\nb\n"),
		"a frame more":    record(func(r *bpfRecord) { r.KernelFrames = 1 }, "a\nb\n"),
		"no frame at all": record(func(r *bpfRecord) { r.KernelFrames = math.MaxUint32 }, ""),
	} {
		require.Error(t, decode(raw, &s), name)
	}
}

// sample is a record of perf's ring with registers 1, 2, 3 and so on.
func sample(stack []byte, filled uint64, change func([]uint64)) []byte {
	count := bits.OnesCount64(sampleMask)
	words := []uint64{0, 43<<32 | 42, abi64}
	for i := range count {
		words = append(words, uint64(i+1))
	}
	words = append(words, uint64(len(stack)))
	change(words)
	var raw []byte
	for _, w := range words {
		raw = binary.LittleEndian.AppendUint64(raw, w)
	}
	if raw = append(raw, stack...); len(stack) > 0 {
		raw = binary.LittleEndian.AppendUint64(raw, filled)
	}
	binary.LittleEndian.PutUint32(raw, unix.PERF_RECORD_SAMPLE)
	binary.LittleEndian.PutUint16(raw[6:], uint16(len(raw)))
	return raw
}

func unchanged([]uint64) {}

func TestASampleIsFoundBehindOtherRecords(t *testing.T) {
	lost := make([]byte, 24)
	binary.LittleEndian.PutUint32(lost, unix.PERF_RECORD_LOST)
	binary.LittleEndian.PutUint16(lost[6:], 24)
	var s Stack
	found, err := findSample(append(lost, sample([]byte("12345678abcdefgh"), 8, unchanged)...), &s)
	require.NoError(t, err)
	require.True(t, found)
	require.EqualValues(t, 43, s.TID)
	require.EqualValues(t, 42, s.PID)
	require.Equal(t, "12345678", string(s.Memory), "what was filled")
	require.Equal(t, fromSample([]uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33}[:bits.OnesCount64(sampleMask)]), s.Registers)
	for _, ring := range [][]byte{nil, lost, make([]byte, 64), lost[:23]} {
		found, err = findSample(ring, &s)
		require.NoError(t, err)
		require.False(t, found)
	}
}

func TestASampleThatCannotBeIsRefused(t *testing.T) {
	count := bits.OnesCount64(sampleMask)
	for name, raw := range map[string][]byte{
		"no registers": sample(nil, 0, func(w []uint64) { w[2] = 0 }),
		"32 bit":       sample(nil, 0, func(w []uint64) { w[2] = 1 }),
		"short":        sample(nil, 0, unchanged)[:40],
		"very short":   sample(nil, 0, unchanged)[:16],
		"long stack":   sample(nil, 0, func(w []uint64) { w[3+count] = 1 << 62 }),
		"no size":      sample(nil, 0, func(w []uint64) { w[3+count] = math.MaxUint64 }),
	} {
		require.Error(t, decodeSample(raw, &Stack{}), name)
	}
}

func TestAThreadHeldStillThatDidNotRun(t *testing.T) {
	asleep := Stack{TID: 43, PID: 42, State: 'S', Still: true, Switches: 7}
	require.True(t, asleep.HeldStill(&asleep))
	for name, change := range map[string]func(*Stack){
		"it ran and sleeps again": func(s *Stack) { s.Switches++ },
		"it runs":                 func(s *Stack) { s.Still = false },
		"it waits otherwise":      func(s *Stack) { s.State = 'D' },
		"another has its number":  func(s *Stack) { s.PID++ },
	} {
		later := asleep
		change(&later)
		require.False(t, asleep.HeldStill(&later), name)
		require.False(t, later.HeldStill(&asleep), name)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(record(func(r *bpfRecord) { r.KernelFrames = 1 }, "a+0x1/0x2 [m]\n"))
	f.Add(sample([]byte("12345678"), 8, unchanged))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s Stack
		if decode(raw, &s) == nil {
			require.LessOrEqual(t, len(s.Kernel), len(raw))
			require.NotZero(t, s.State)
		}
		_, _ = findSample(raw, &s)
		_ = decodeSample(raw, &s)
		require.LessOrEqual(t, len(s.Memory), len(raw))
	})
}
