//go:build linux && (amd64 || arm64)

package cudaoom

import (
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// record is a record as the kernel side writes it, changed by change.
func record(change func(*bpfEvent)) []byte {
	r := &bpfEvent{TimeNs: 5, SizeBytes: gib, Pid: 42, Thread: 43, Device: -1, Function: uint16(bpfFunctionFUNCTION_MEM_ALLOC)}
	copy(r.Comm[:], []int8{'p', 't', '_', 'a', 'u', 't', 'o'})
	change(r)
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func TestDecodeReadsARecord(t *testing.T) {
	var e Event
	require.NoError(t, decode(record(func(*bpfEvent) {}), int64(time.Hour), &e))
	require.Equal(t, Event{
		Time: time.Unix(3600, 5), PID: 42, Thread: 43, Comm: "pt_auto", Function: MemAlloc, SizeBytes: gib, Device: DeviceUnknown,
	}, e)
	require.NoError(t, decode(record(func(r *bpfEvent) {
		r.Outcome, r.Device, r.Function = uint16(bpfOutcomeOUTCOME_SUCCEEDED), 7, uint16(bpfFunctionFUNCTION_MEM_CREATE)
	}), 0, &e))
	require.True(t, e.Succeeded)
	require.EqualValues(t, 7, e.Device)
	require.Equal(t, MemCreate, e.Function)
}

func TestEveryFunctionHasAName(t *testing.T) {
	for f := bpfFunctionFUNCTION_MEM_ALLOC; f < bpfFunctionFUNCTIONS; f++ {
		require.NotEqual(t, FunctionUnknown, functionOf(f))
		require.NotEqual(t, "unknown", functionOf(f).String())
	}
	require.Equal(t, "unknown", functionOf(bpfFunctionFUNCTION_UNKNOWN).String())
}

func TestDecodeRefusesWhatCannotBe(t *testing.T) {
	var e Event
	for name, change := range map[string]func(*bpfEvent){
		"no process":  func(r *bpfEvent) { r.Pid = 0 },
		"no thread":   func(r *bpfEvent) { r.Thread = 0 },
		"no function": func(r *bpfEvent) { r.Function = uint16(bpfFunctionFUNCTIONS) },
		"no outcome":  func(r *bpfEvent) { r.Outcome = 2 },
	} {
		require.Error(t, decode(record(change), 0, &e), name)
	}
	whole := record(func(*bpfEvent) {})
	require.ErrorContains(t, decode(whole[:len(whole)-1], 0, &e), "bytes, want")
	require.Error(t, decode(nil, 0, &e))
}

func FuzzDecode(f *testing.F) {
	f.Add(record(func(*bpfEvent) {}))
	f.Add(record(func(r *bpfEvent) { r.Device = -1 << 31; r.Comm[0] = -1 }))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e Event
		if decode(raw, 0, &e) != nil {
			return
		}
		require.NotZero(t, e.PID)
		require.GreaterOrEqual(t, e.Device, int32(DeviceUnknown))
		require.True(t, utf8.ValidString(e.Comm))
	})
}

func BenchmarkDecode(b *testing.B) {
	raw := record(func(*bpfEvent) {})
	var e Event
	b.ReportAllocs()
	for b.Loop() {
		if err := decode(raw, 0, &e); err != nil {
			b.Fatal(err)
		}
	}
}
