//go:build linux && (amd64 || arm64)

package pyexception

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// record is a record as the kernel side writes it, changed by change.
func record(change func(*bpfEvent)) []byte {
	r := &bpfEvent{TimeNs: 5, Pid: 42, Thread: 43, Minor: 11, Exceptions: 1}
	for i := range r.Exception {
		r.Exception[i].Levels = 8
	}
	for i := range r.Frame {
		r.Frame[i].Level = uint32(i - 3)
	}
	for _, own := range []int{0, 1, 2, 11, 14} {
		r.Frame[own].Level = noLevel
	}
	copy(r.Exception[0].Type[:], []int8{'E'})
	change(r)
	return unsafe.Slice((*byte)(unsafe.Pointer(r)), unsafe.Sizeof(*r))
}

func TestDecodeRefusesWhatCannotBe(t *testing.T) {
	var e Event
	require.NoError(t, decode(record(func(*bpfEvent) {}), 0, &e))
	require.Equal(t, "E", e.Chain[0].Type)
	for name, change := range map[string]func(*bpfEvent){
		"no process":          func(r *bpfEvent) { r.Pid = 0 },
		"no thread":           func(r *bpfEvent) { r.Thread = 0 },
		"no exception":        func(r *bpfEvent) { r.Exceptions = 0 },
		"many exceptions":     func(r *bpfEvent) { r.Exceptions = 4 },
		"a first of a cause":  func(r *bpfEvent) { r.Exception[0].Relation = 1 },
		"no relation":         func(r *bpfEvent) { r.Exceptions, r.Exception[1].Relation = 2, 9 },
		"many frames":         func(r *bpfEvent) { r.Exception[0].Frames = 9 },
		"a long table":        func(r *bpfEvent) { r.Exception[0].Frames, r.Frame[3].TableSize = 1, 1<<20 },
		"a level beyond all":  func(r *bpfEvent) { r.Frame[0].Level = 8 },
		"levels out of order": func(r *bpfEvent) { r.Frame[0].Level, r.Frame[1].Level = 5, 5 },
		"a long text":         func(r *bpfEvent) { r.Exception[0].Message.Text.Width, r.Exception[0].Message.Text.Size = 1, 4096 },
		"a wide text":         func(r *bpfEvent) { r.Exception[0].Message.Text.Width = 3 },
		"a tail of nothing":   func(r *bpfEvent) { r.Exception[0].TailSize = 5 },
		"a long tail": func(r *bpfEvent) {
			m := &r.Exception[0].Message
			m.Value, m.Text.Width, m.Text.Size, m.Text.Length, r.Exception[0].TailSize = 2, 1, 1024, 1<<40, 3073
		},
		"a tail of more than there is": func(r *bpfEvent) {
			m := &r.Exception[0].Message
			m.Value, m.Text.Width, m.Text.Size, m.Text.Length, r.Exception[0].TailSize = 2, 1, 1024, 1025, 2
		},
		"a strange value": func(r *bpfEvent) { r.Exception[0].Message.Value = 99 },
	} {
		require.Error(t, decode(record(change), 0, &e), name)
	}
	whole := record(func(*bpfEvent) {})
	require.ErrorContains(t, decode(whole[:len(whole)-1], 0, &e), "bytes, want")
	require.Error(t, decode(nil, 0, &e))
}

func FuzzDecode(f *testing.F) {
	f.Add(record(func(*bpfEvent) {}))
	f.Add(record(func(r *bpfEvent) {
		r.Exceptions, r.Exception[1].Relation, r.Exception[0].Frames, r.Frame[3].Line = 2, 1, 8, -1
		r.Exception[0].Message.Value, r.Exception[0].Message.Text.Width, r.Exception[0].Message.Text.Size = 2, 4, 1024
	}))
	f.Add(record(func(r *bpfEvent) {
		m := &r.Exception[0].Message
		m.Value, m.Text.Width, m.Text.Size, m.Text.Length, r.Exception[0].TailSize = 2, 1, 1024, 1<<40, 3072
	}))
	cxx := bpfTerminated{Pid: 42, Thread: 43}
	copy(raw(cxx.Type[:]), "N4gloo13EnforceNotMetE")
	copy(raw(cxx.Fifth[:]), strings.Repeat("é", 2000))
	f.Add(slices.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&cxx)), unsafe.Sizeof(cxx))))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e Event
		if decode(raw, 0, &e) != nil {
			return
		}
		require.NotZero(t, e.PID)
		require.NotEmpty(t, e.Chain)
		for _, x := range e.Chain {
			require.True(t, utf8.ValidString(x.Type+x.Message+x.Tail))
			require.LessOrEqual(t, len([]rune(x.Tail)), 3072)
			require.True(t, x.Cut || x.Tail == "" && !x.Gap)
			for _, f := range x.Frames {
				require.True(t, utf8.ValidString(f.File+f.Function))
				require.GreaterOrEqual(t, f.Line, 0)
			}
		}
	})
}
