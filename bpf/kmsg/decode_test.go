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
	order.PutUint32(b[offKind:], kindText)
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

// namesRecord builds a record of names as the kernel side does.
func namesRecord(list map[uint64]string) []byte {
	order := binary.NativeEndian
	b := make([]byte, offNames+len(list)*nameStride)
	order.PutUint32(b[offKind:], kindNames)
	order.PutUint32(b[offCount:], uint32(len(list)))
	entry := b[offNames:]
	for address, name := range list {
		order.PutUint64(entry, address)
		order.PutUint32(entry[offNameSize:], uint32(len(name)+1))
		copy(entry[offName:offName+nameBytes-1], name)
		entry = entry[nameStride:]
	}
	return b
}

// testNames are the functions of a kernel and of a driver.
func testNames() *names {
	known := &names{}
	for address, f := range map[uint64]Function{
		0x1080: {Name: "vprintk_emit"}, 0x2080: {Name: "devkmsg_emit"}, 0x3080: {Name: "handle_irq_event"}, 0x4080: {Name: "_dev_err"},
		0x9100: {Name: "nv_printf", Module: "nvidia"}, 0x9000: {Name: "bpf_prog_1_console_btf", Module: "bpf"},
	} {
		known.learn(address, f)
	}
	return known
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
			raw{pid: 7, comm: "c", stack: []uint64{0x9000, 0x1080, 0x4080, 0x9100}},
			Event{PID: 7, Comm: "c", Writer: WriterKernel, Origin: Function{"nv_printf", "nvidia"}},
		},
		"stack of a write to /dev/kmsg": {
			raw{pid: 7, comm: "c", stack: []uint64{0x9000, 0x1080, 0x2080}},
			Event{PID: 7, Comm: "c", Writer: WriterUserspace, Origin: Function{Name: "devkmsg_emit"}},
		},
		"a writer in interrupt context is not the current task": {
			raw{pid: 7, comm: "c", stack: []uint64{0x1080, 0x9100, 0x3080, 0x2080}},
			Event{Writer: WriterKernel, Origin: Function{"nv_printf", "nvidia"}},
		},
		"a record of facility user that the stack says a driver wrote has no origin": {
			raw{writer: WriterUserspace, stack: []uint64{0x1080, 0x9100}}, Event{Writer: WriterUserspace},
		},
		"a writer without a name": {raw{stack: []uint64{0x1080, 0x7777}}, Event{}},
	} {
		t.Run(name, func(t *testing.T) {
			var got Event
			whole, err := decode(tc.in.bytes(), 1e9, testNames(), &got)
			require.NoError(t, err)
			require.True(t, whole)
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
		"unknown kind":          change(offKind, 3),
		"more names than came":  change(offKind, kindNames),
		"half a name":           namesRecord(map[uint64]string{1: "a"})[:offNames+nameStride-1],
		"text cut short":        whole[:len(whole)-1],
		"text too long":         append(bytes.Clone(whole), 'x'),
		"unknown writer":        change(offWriter, 3),
		"stack of half a frame": change(offStackBytes, 9),
		"stack too deep":        change(offStackBytes+1, 2),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(in, 0, &names{}, &Event{})
			require.Error(t, err)
		})
	}
}

func TestDecodeLearnsNames(t *testing.T) {
	known := &names{}
	record := namesRecord(map[uint64]string{
		1: "vprintk_emit", 2: "nv_printf.isra.0 [nvidia]", 3: "0xffffffffc0001000", 4: strings.Repeat("x", nameBytes) + " [nvidia]",
	})
	whole, err := decode(record, 0, known, &Event{})
	require.NoError(t, err)
	require.False(t, whole)
	require.Equal(t, []Function{{Name: "vprintk_emit"}, {"nv_printf", "nvidia"}, {}, {}}, functions(known.stack([]uint64{1, 2, 3, 4}, time.Time{})))
}

func FuzzDecode(f *testing.F) {
	f.Add(raw{text: "NVRM: Xid (PCI:0000:65:00): 79", stack: []uint64{0x1080, 0x2080}}.bytes(), int64(0))
	f.Add(raw{textBytes: 4000, text: strings.Repeat("\xff", MaxText)}.bytes(), int64(-1))
	f.Add(namesRecord(map[uint64]string{0x1080: "devkmsg_write", 0x7777: "a [b]"}), int64(0))
	f.Fuzz(func(t *testing.T, in []byte, offset int64) {
		var e Event
		before, known := bytes.Clone(in), testNames()
		whole, err := decode(in, offset, known, &e)
		require.Equal(t, before, in)
		require.LessOrEqual(t, len(known.young), 6+maxFrames)
		if err != nil || !whole {
			require.Equal(t, Event{}, e)
			return
		}
		require.True(t, utf8.ValidString(e.Text))
		require.True(t, utf8.ValidString(e.Comm))
		require.LessOrEqual(t, e.Writer, WriterUserspace)
		// Each refused byte becomes a replacement of three.
		require.LessOrEqual(t, len(e.Text), 3*MaxText)
	})
}

func BenchmarkDecode(b *testing.B) {
	in := raw{text: "NVRM: Xid (PCI:0000:65:00): 79, pid=1234, name=python, GPU has fallen off the bus.", stack: []uint64{0x9000, 0x1080, 0x4080, 0x9100, 0x9100, 0x9100, 0x9100, 0x9100, 0x9100, 0x9100, 0x9100}}.bytes()
	b.ReportAllocs()
	known := testNames()
	var e Event
	for b.Loop() {
		if _, err := decode(in, 0, known, &e); err != nil {
			b.Fatal(err)
		}
	}
}
