//go:build linux && (amd64 || arm64)

package identity

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// raw lays out an event as the kernel does, with room for an environment.
func raw(r bpfEvent, environ string, room int) []byte {
	b := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&r)), eventBytes)...)
	b = append(b, environ...)
	return append(b, make([]byte, max(0, room-len(environ)))...)
}

func TestEventHeaderIsAsLongAsTheRecordsLeaveRoomFor(t *testing.T) {
	require.Equal(t, 64, eventBytes, "ENVIRON_SMALL and ENVIRON_LARGE in identity.bpf.c take 64 bytes off")
}

func TestDecodeReadsAnExec(t *testing.T) {
	var e event
	r := bpfEvent{Kind: kindExec, TimeNs: 5, StartNs: 3, Pid: 7, ParentPid: 1, EnvironBytes: 4, EnvironCopied: 4}
	copy(r.Comm[:], "python3")
	require.NoError(t, decode(raw(r, "A=1\x00", 4032), &e))
	require.Equal(t, event{
		kind: kindExec, timeNS: 5, startNS: 3, pid: 7, parentPID: 1, comm: "python3", environ: []byte("A=1\x00"), whole: true,
	}, e)

	r.EnvironBytes = 5000
	require.NoError(t, decode(raw(r, "A=1\x00", 4032), &e))
	require.False(t, e.whole, "only the end was copied")
}

func TestDecodeTakesTheWaitStatusApart(t *testing.T) {
	for name, tc := range map[string]struct {
		status       uint32
		code, signal int
		core         bool
	}{
		"returned 7":           {status: 7 << 8, code: 7},
		"returned 255":         {status: 255 << 8, code: 255},
		"killed":               {status: 9, signal: 9},
		"aborted, core dumped": {status: 6 | 0x80, signal: 6, core: true},
		"highest signal":       {status: 64, signal: 64},
	} {
		t.Run(name, func(t *testing.T) {
			var e event
			require.NoError(t, decode(raw(bpfEvent{Kind: kindExit, Status: tc.status, OomVictim: 1}, "", 0), &e))
			require.Equal(t, []any{tc.code, tc.signal, tc.core, true}, []any{e.code(), e.signal(), e.coreDump(), e.oomVictim})
		})
	}
}

func TestDecodeRefusesWhatTheKernelDoesNotSend(t *testing.T) {
	whole := raw(bpfEvent{Kind: kindExit}, "", 0)
	for name, tc := range map[string]struct {
		raw  []byte
		want string
	}{
		"nothing":                  {nil, "0 bytes, one has at least 64"},
		"truncated":                {whole[:63], "63 bytes, one has at least 64"},
		"kind 0":                   {raw(bpfEvent{}, "", 0), "unknown kind 0"},
		"kind 5":                   {raw(bpfEvent{Kind: 5}, "", 0), "unknown kind 5"},
		"signals not there":        {raw(bpfEvent{Kind: kindSignalled}, "", 215), "215 bytes of signals, there are 216"},
		"signals to another":       {raw(bpfEvent{Kind: kindSignalled, StartNs: 7}, "", 216), "signals to a process started at 0"},
		"environment not there":    {raw(bpfEvent{Kind: kindExec, EnvironBytes: 9, EnvironCopied: 9}, "", 8), "9 bytes of environment of 9, the record has room for 8"},
		"more copied than it has":  {raw(bpfEvent{Kind: kindExec, EnvironBytes: 1, EnvironCopied: 9}, "", 9), "9 bytes of environment of 1"},
		"length that would be < 0": {raw(bpfEvent{Kind: kindExec, EnvironBytes: 1 << 31, EnvironCopied: 1 << 31}, "", 8), "2147483648 bytes of environment"},
	} {
		t.Run(name, func(t *testing.T) {
			var e event
			require.ErrorContains(t, decode(tc.raw, &e), tc.want)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(raw(bpfEvent{Kind: kindExec, EnvironBytes: 4, EnvironCopied: 4}, "A=1\x00", 8))
	f.Add(raw(bpfEvent{Kind: kindExit, Status: 6}, "", 0))
	f.Add(raw(bpfEvent{Kind: kindSignalled, Status: 9}, "", 216))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e event
		if decode(b, &e) != nil {
			return
		}
		require.LessOrEqual(t, len(e.environ), len(b)-eventBytes)
		require.LessOrEqual(t, e.code(), 255)
		require.LessOrEqual(t, e.signal(), 127)
		parseEnviron(e.environ)
		if e.signals != nil {
			e.signals.ending(e.signal(), e.timeNS)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	record := raw(bpfEvent{Kind: kindExit, Status: 6}, "", 0)
	b.ReportAllocs()
	for b.Loop() {
		var e event
		if err := decode(record, &e); err != nil {
			b.Fatal(err)
		}
	}
}
