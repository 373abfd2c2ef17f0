package kmsg

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// raw builds a ring record as the kernel side does.
type raw struct {
	time      uint64
	cpu, pid  uint32
	textBytes uint32 // 0: len(text)
	writer    Writer
	comm      string
	stack     []uint64
	text      string
}

func (r raw) bytes() []byte {
	order := binary.NativeEndian
	b := make([]byte, offText, offText+len(r.text))
	order.PutUint64(b[offTime:], r.time)
	order.PutUint32(b[offCPU:], r.cpu)
	order.PutUint32(b[offPID:], r.pid)
	order.PutUint32(b[offTextBytes:], max(r.textBytes, uint32(len(r.text))))
	order.PutUint32(b[offStackBytes:], uint32(8*len(r.stack)))
	b[offWriter] = byte(r.writer)
	copy(b[offComm:offComm+commBytes], r.comm)
	for i, address := range r.stack {
		order.PutUint64(b[offStack+8*i:], address)
	}
	return append(b, r.text...)
}

// testCode lays vprintk_emit, devkmsg_emit and handle_irq_event out in a row.
var testCode = kernelCode{
	printsText:  {{Start: 0x1000, End: 0x1100}},
	fromDevKmsg: {{Start: 0x2000, End: 0x2100}},
	interrupts:  {{Start: 0x3000, End: 0x3100}},
}

func TestDecode(t *testing.T) {
	long := strings.Repeat("x", MaxText)
	for name, tc := range map[string]struct {
		in   raw
		want Event
	}{
		"record of a driver": {
			raw{time: 5e9, cpu: 3, pid: 42, writer: WriterKernel, comm: "nvidia", text: "NVRM: Xid"},
			Event{CPU: 3, PID: 42, Writer: WriterKernel, Comm: "nvidia", Text: "NVRM: Xid"},
		},
		"trailing newlines go": {raw{text: "a\nb\n\n"}, Event{Text: "a\nb"}},
		"empty text":           {raw{}, Event{}},
		"longest text":         {raw{text: long}, Event{Text: long}},
		"longer text is cut":   {raw{text: long, textBytes: MaxText + 1}, Event{Text: long, Truncated: true}},
		"comm without a NUL":   {raw{comm: "0123456789abcdef"}, Event{Comm: "0123456789abcdef"}},
		"bytes that are not UTF-8 are replaced": {
			raw{comm: "a\xffb", text: "x\xc3\x28\x00\x1b[2J"}, Event{Comm: "a�b", Text: "x�(\x00\x1b[2J"},
		},
		"stack of a kernel writer": {
			raw{pid: 7, comm: "c", stack: []uint64{0x9000, 0x1080, 0x9100}}, Event{PID: 7, Comm: "c", Writer: WriterKernel},
		},
		"stack of a write to /dev/kmsg": {
			raw{pid: 7, comm: "c", stack: []uint64{0x9000, 0x1080, 0x2080}}, Event{PID: 7, Comm: "c", Writer: WriterUserspace},
		},
		"a writer in interrupt context is not the current task": {
			raw{pid: 7, comm: "c", stack: []uint64{0x1080, 0x9100, 0x3080, 0x2080}}, Event{Writer: WriterKernel},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got Event
			require.NoError(t, decode(tc.in.bytes(), 1e9, testCode, &got))
			tc.want.Time = time.Unix(0, int64(tc.in.time)+1e9)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestDecodeRefusesWhatTheKernelSideDoesNotWrite(t *testing.T) {
	whole := raw{text: "NVRM: Xid", stack: []uint64{1}}.bytes()
	change := func(offset int, value byte) []byte {
		b := bytes.Clone(whole)
		b[offset] = value
		return b
	}
	for name, in := range map[string][]byte{
		"nothing":               nil,
		"part of the header":    whole[:offText-1],
		"text cut short":        whole[:len(whole)-1],
		"text too long":         append(bytes.Clone(whole), 'x'),
		"unknown writer":        change(offWriter, 3),
		"stack of half a frame": change(offStackBytes, 9),
		"stack too deep":        change(offStackBytes+1, 2),
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, decode(in, 0, nil, &Event{}))
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(raw{text: "NVRM: Xid (PCI:0000:65:00): 79", stack: []uint64{0x1080, 0x2080}}.bytes(), int64(0))
	f.Add(raw{textBytes: 4000, text: strings.Repeat("\xff", MaxText)}.bytes(), int64(-1))
	f.Fuzz(func(t *testing.T, in []byte, offset int64) {
		var e Event
		before := bytes.Clone(in)
		if err := decode(in, offset, testCode, &e); err != nil {
			require.Equal(t, Event{}, e)
			return
		}
		require.Equal(t, before, in)
		require.True(t, utf8.ValidString(e.Text))
		require.True(t, utf8.ValidString(e.Comm))
		require.LessOrEqual(t, e.Writer, WriterUserspace)
		// Each refused byte becomes a replacement of three.
		require.LessOrEqual(t, len(e.Text), 3*MaxText)
	})
}

func BenchmarkDecode(b *testing.B) {
	in := raw{text: "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.", stack: make([]uint64, 16)}.bytes()
	b.ReportAllocs()
	var e Event
	for b.Loop() {
		if err := decode(in, 0, testCode, &e); err != nil {
			b.Fatal(err)
		}
	}
}
