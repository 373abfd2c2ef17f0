//go:build linux && (amd64 || arm64)

package pyexception

import (
	"cmp"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/pystack"
)

// standIn is a function of this program as PyErr_Display, with a probe on it, and memory for
// what it displays. It needs no interpreter, so every kernel runs it.
type standIn struct {
	*hooks
	*memory
}

// ownLayout is that of an interpreter that never was.
func ownLayout() *bpfLayout {
	return &bpfLayout{
		Minor: 11, TextLength: 16, TextState: 24, TextAscii: 32, TextCompact: 48, BytesSize: 16, BytesContent: 24,
		CodeFile: 16, CodeName: 24, CodeFirstLine: 32, CodeLines: 40, FrameCode: 16,
		ExceptionTraceback: 32, ExceptionContext: 40, ExceptionCause: 48, ExceptionSuppress: 56, ExceptionMembers: 72, ErrorFile: 88, TupleItems: 24,
	}
}

func newStandIn(t testing.TB, ringBytes uint32) *standIn {
	t.Helper()
	privtest.Require(t)
	h, err := openHooks(ringBytes, true)
	require.NoError(t, err)
	function, err := uprobe.OwnFunction(standin.Entry())
	require.NoError(t, err)
	layout := ownLayout()
	attached, err := h.attach(uprobe.Own, function.Offset, layout)
	require.NoError(t, err)
	pages, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, attached.Close())
		require.NoError(t, h.close())
		require.NoError(t, unix.Munmap(pages))
	})
	return &standIn{h, newMemory(pages, layout)}
}

// display calls the function as an interpreter does.
func (s *standIn) display(kind, value, traceback uint64) {
	var arguments standin.Arguments
	arguments.Registers[0], arguments.Registers[1], arguments.Registers[2] = uintptr(kind), uintptr(value), uintptr(traceback)
	standin.Call(standin.Entry(), &arguments)
}

func (s *standIn) next(t testing.TB) Event {
	t.Helper()
	s.reader.SetDeadline(time.Now().Add(hosttest.Patience))
	record, err := s.reader.Read()
	require.NoError(t, err)
	var e Event
	require.NoError(t, decode(record.RawSample, 0, &e))
	return e
}

func (s *standIn) none(t testing.TB) {
	t.Helper()
	s.reader.SetDeadline(time.Now())
	_, err := s.reader.Read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// at is memory of this program by its address.
func at(address uint64) []byte { return unsafe.Slice((*byte)(pointer(address)), 8) }

// pointer keeps vet from taking memory that is not Go's for that.
func pointer(address uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

func TestStandInIsReadWhole(t *testing.T) {
	s := newStandIn(t, 0)
	class := s.class("ValueError", flagException)
	inner := s.traceback(0, s.frame("/app/model.py", "Model.forward"), 77, 0)
	outer := s.traceback(inner, s.frame("/app/train.py", "step"), 5, 0)
	value := s.exception(class, outer, s.text("bad batch 3"))
	s.display(class, value, outer)
	e := s.next(t)
	require.EqualValues(t, os.Getpid(), e.PID)
	require.Equal(t, 11, e.Minor)
	require.False(t, e.More)
	require.Equal(t, []Exception{{
		Type: "ValueError", Message: "bad batch 3", Levels: 2,
		Frames: []Frame{{File: "/app/train.py", Line: 5, Function: "step"}, {File: "/app/model.py", Line: 77, Function: "Model.forward"}},
	}}, e.Chain)
}

func TestStandInsLieAndAreBounded(t *testing.T) {
	s := newStandIn(t, 0)
	class := s.class("Lie", flagException)
	frame := s.frame("/app/train.py", "f")
	for name, tc := range map[string]struct {
		display func()
		check   func(t *testing.T, x Exception, e Event)
	}{
		"no value":            {func() { s.display(class, 0, 0) }, func(t *testing.T, x Exception, _ Event) { require.Equal(t, "Lie", x.Type) }},
		"nothing":             {func() { s.display(0, 0, 0) }, func(t *testing.T, x Exception, _ Event) { require.Empty(t, x.Type) }},
		"addresses of kernel": {func() { s.display(1<<63, 1<<63, 1<<63) }, func(t *testing.T, x Exception, _ Event) { require.True(t, x.Broken) }},
		"a traceback that leads back": {func() {
			a := s.traceback(0, frame, 1, 0)
			put(at(a+16), 0, a)
			s.display(class, s.exception(class, a, s.text("x")), a)
		}, func(t *testing.T, x Exception, _ Event) {
			require.Equal(t, 1100, x.Levels)
			require.Len(t, x.Frames, ofFirst.own+ofFirst.innermost)
		}},
		"a traceback that is not there": {func() {
			a := s.traceback(1<<46, frame, 1, 0)
			s.display(class, s.exception(class, a, s.text("x")), a)
		}, func(t *testing.T, x Exception, _ Event) {
			require.True(t, x.Broken)
			require.Equal(t, []Frame{{File: "/app/train.py", Line: 1, Function: "f"}}, x.Frames)
		}},
		"a text of 2^62 characters": {func() {
			text := s.text("beginning")
			put(at(text+16), 0, 1<<62)
			s.display(class, s.exception(class, 0, text), 0)
		}, func(t *testing.T, x Exception, _ Event) {
			require.True(t, x.Cut)
			require.Len(t, []rune(x.Message), 1024)
			require.True(t, strings.HasPrefix(x.Message, "beginning"))
			require.Empty(t, x.Tail, "its end is nowhere")
		}},
		"a message that is not there": {func() { s.display(class, s.exception(class, 0, 1<<46), 0) }, func(t *testing.T, x Exception, _ Event) {
			require.True(t, x.Unread)
			require.Empty(t, x.Message)
		}},
		"its own cause": {func() {
			value := s.exception(class, 0, s.text("x"))
			put(at(value+48), 0, value)
			s.display(class, value, 0)
		}, func(t *testing.T, _ Exception, e Event) {
			require.Len(t, e.Chain, 3)
			require.True(t, e.More)
		}},
		"arguments that are none": {func() {
			value := s.exception(class, 0)
			put(at(value+24), 0, 1<<46)
			s.display(class, value, 0)
		}, func(t *testing.T, x Exception, _ Event) { require.Empty(t, x.Message) }},
		"a line table of 2^62 bytes": {func() {
			code, table := frameCode(s, frame), s.text("")
			put(at(table+16), 0, 1<<62)
			put(at(code+40), 0, table)
			a := s.traceback(0, frame, 1<<32-1, 2)
			s.display(class, s.exception(class, a, s.text("x")), a)
		}, func(t *testing.T, x Exception, _ Event) { require.Zero(t, x.Frames[0].Line) }},
	} {
		t.Run(name, func(t *testing.T) {
			tc.display()
			e := s.next(t)
			tc.check(t, e.Chain[0], e)
			s.none(t)
		})
	}
}

// Of a message beyond what is read of its beginning, its end is read, too: whole where both fit.
func TestStandInKeepsTheEndOfALongMessage(t *testing.T) {
	s := newStandIn(t, 0)
	class := s.class("ProcessRaisedException", flagException)
	const head, most = 1024, 3072
	for name, tc := range map[string]struct {
		length int
		tail   int
		gap    bool
	}{
		"short":            {length: 5},
		"as much as fits":  {length: head},
		"one more":         {length: head + 1, tail: 1},
		"both whole":       {length: head + most, tail: most},
		"one between them": {length: head + most + 1, tail: most, gap: true},
		"much more":        {length: 200_000, tail: most, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Repeat("ab", tc.length/2) + strings.Repeat("z", tc.length%2)
			s.display(class, s.exception(class, 0, s.text(text)), 0)
			x := s.next(t).Chain[0]
			require.Equal(t, text[:min(tc.length, head)], x.Message)
			require.Equal(t, text[tc.length-tc.tail:], x.Tail)
			require.Equal(t, []bool{tc.length > head, tc.gap}, []bool{x.Cut, x.Gap})
		})
	}
}

// Of a traceback of so many levels the lines that are no library's are kept, wherever they are.
func TestStandInKeepsItsOwnLines(t *testing.T) {
	s := newStandIn(t, 0)
	class := s.class("ValueError", flagException)
	const torch = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
	long := "/" + strings.Repeat("d/", 200)
	for name, tc := range map[string]struct {
		own     string
		library string
		at      []int // of its levels, from the outermost on, those of its own
		levels  int
		want    []int
	}{
		"one":                         {at: []int{4}, levels: 40, want: []int{4}},
		"the outermost":               {at: []int{0}, levels: 40, want: []int{0}},
		"two":                         {at: []int{0, 9}, levels: 40, want: []int{0, 9}},
		"many":                        {at: []int{1, 3, 5, 7, 20}, levels: 40, want: []int{1, 7, 20}},
		"none":                        {levels: 40},
		"one of those that are kept":  {at: []int{35}, levels: 40},
		"1,000 levels farther out":    {at: []int{3, 4, 5}, levels: 1009, want: []int{3, 4, 5}},
		"python -c":                   {own: "<string>", at: []int{2}, levels: 12, want: []int{2}},
		"standard input":              {own: "<stdin>", at: []int{2}, levels: 12, want: []int{2}},
		"a name in pointed brackets":  {own: "<stdout>", at: []int{2}, levels: 12},
		"packages":                    {own: "/app/mysite-packages/train.py", at: []int{2}, levels: 12, want: []int{2}},
		"python3":                     {own: "/opt/python3/train.py", at: []int{2}, levels: 12, want: []int{2}},
		"a long name":                 {own: long + "train.py", at: []int{2}, levels: 12, want: []int{2}},
		"a frozen library":            {library: "<frozen runpy>", at: []int{2}, levels: 12, want: []int{2}},
		"an __init__":                 {library: "__init__", at: []int{2}, levels: 12, want: []int{2}},
		"Debian's packages":           {library: "/usr/lib/python3/dist-packages/torch/_ops.py", at: []int{2}, levels: 12, want: []int{2}},
		"Debian's packages elsewhere": {library: "/srv/dist-packages/torch/_ops.py", at: []int{2}, levels: 12, want: []int{2}},
		"Fedora's library":            {library: "/usr/lib64/python3.11/runpy.py", at: []int{2}, levels: 12, want: []int{2}},
		"a zipped library":            {library: "/app/lib/python311.zip/runpy.py", at: []int{2}, levels: 12, want: []int{2}},
		"a cache of a compiler":       {library: "/tmp/torchinductor_root/ab/x.py", at: []int{2}, levels: 12, want: []int{2}},
		"another":                     {library: "/root/.triton/cache/x.py", at: []int{2}, levels: 12, want: []int{2}},
		"a long name of a library":    {library: long + "site-packages/" + strings.Repeat("e", 180) + ".py", at: []int{2}, levels: 12, want: []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, pystack.Library(cmp.Or(tc.library, torch)))
			require.Equal(t, tc.own == "<stdout>", pystack.Library(cmp.Or(tc.own, "/app/train.py")))
			own, library := s.frame(cmp.Or(tc.own, "/app/train.py"), "own"), s.frame(cmp.Or(tc.library, torch), "library")
			traceback := uint64(0)
			for level := tc.levels - 1; level >= 0; level-- {
				frame := library
				if slices.Contains(tc.at, level) {
					frame = own
				}
				traceback = s.traceback(traceback, frame, uint32(level), 0)
			}
			s.display(class, s.exception(class, traceback, s.text("x")), traceback)
			x := s.next(t).Chain[0]
			for level := tc.levels - ofFirst.innermost; level < tc.levels; level++ {
				tc.want = append(tc.want, level)
			}
			require.Equal(t, tc.want, levelsOf(t, &x))
			require.Equal(t, tc.levels, x.Levels)
		})
	}
}

// levelsOf are the levels of its frames, whose lines say the same.
func levelsOf(t *testing.T, x *Exception) (levels []int) {
	level := 0
	for _, f := range x.Frames {
		level += f.Skipped
		require.Equal(t, f.Line, level)
		levels = append(levels, level)
		level++
	}
	return levels
}

// Of what it came from one such line is kept.
func TestStandInKeepsALineOfItsOwnOfACause(t *testing.T) {
	s := newStandIn(t, 0)
	class := s.class("ValueError", flagException)
	own, library := s.frame("/app/train.py", "own"), s.frame("<frozen runpy>", "library")
	traceback := uint64(0)
	for level := uint32(30); level > 0; level-- {
		frame := library
		if level <= 3 {
			frame = own
		}
		traceback = s.traceback(traceback, frame, level-1, 0)
	}
	value := s.exception(class, 0, s.text("x"))
	put(at(value+48), 0, s.exception(class, traceback, s.text("y")))
	s.display(class, value, 0)
	require.Equal(t, []int{2, 28, 29}, levelsOf(t, &s.next(t).Chain[1]))
}

func frameCode(s *standIn, frame uint64) uint64 {
	return *(*uint64)(pointer(frame + uint64(s.layout.FrameCode)))
}

// A page that was never touched is told as absent, and stays untouched.
func TestNoPageIsFaultedIn(t *testing.T) {
	s := newStandIn(t, 0)
	page := os.Getpagesize()
	cold, err := unix.Mmap(-1, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(cold)) }()
	class := s.class("ValueError", flagException)
	s.display(class, s.exception(class, 0, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(cold))))), 0)
	require.True(t, s.next(t).Chain[0].Unread)
	resident := make([]byte, 1)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(cold))), uintptr(page), uintptr(unsafe.Pointer(unsafe.SliceData(resident))))
	require.Zero(t, errno)
	require.Zero(t, resident[0]&1)
}

func TestFullRingIsCounted(t *testing.T) {
	s := newStandIn(t, 128<<10) // room for one
	class := s.class("ValueError", flagException)
	value := s.exception(class, 0, s.text("x"))
	for range 5 {
		s.display(class, value, 0)
	}
	require.Equal(t, "x", s.next(t).Chain[0].Message)
	s.none(t)
	lost, err := s.hooks.lost()
	require.NoError(t, err)
	require.EqualValues(t, 4, lost)
}

// A user whose programs display without end fills the ring for himself alone.
func TestAFloodOfExceptionsLosesItsOwn(t *testing.T) {
	s := newStandIn(t, 0)
	class := s.class("ValueError", flagException)
	const stranger, flood = 12345, 200
	runtime.LockOSThread() // which has the user, for a while
	defer runtime.UnlockOSThread()
	as := func(user int) {
		_, _, errno := unix.RawSyscall(unix.SYS_SETREUID, uintptr(user), ^uintptr(0), 0)
		require.Zero(t, errno)
	}
	value := s.exception(class, 0, s.text("flood"))
	as(stranger)
	for range flood {
		s.display(class, value, 0)
	}
	as(0)
	s.display(class, s.exception(class, 0, s.text("x")), 0)
	told := 0
	for s.next(t).Chain[0].Message == "flood" {
		told++
	}
	crowded, err := s.crowded()
	require.NoError(t, err)
	require.EqualValues(t, flood, uint64(told)+crowded.Records)
	require.EqualValues(t, stranger, crowded.User)
}

// BenchmarkDisplay is what an exception costs its process: the breakpoint, what the program
// reads, and the record.
func BenchmarkDisplay(b *testing.B) {
	s := newStandIn(b, 0)
	class := s.class("ValueError", flagException)
	traceback := uint64(0)
	for range 20 {
		traceback = s.traceback(traceback, s.frame("/app/train.py", "step"), 5, 0)
	}
	value := s.exception(class, traceback, s.text(strings.Repeat("x", 500)))
	put(at(value+48), 0, s.exception(class, traceback, s.text("y")))
	for b.Loop() {
		s.display(class, value, traceback)
		b.StopTimer()
		s.next(b)
		b.StartTimer()
	}
}

func BenchmarkDecode(b *testing.B) {
	s := newStandIn(b, 0)
	class := s.class("ValueError", flagException)
	traceback := s.traceback(0, s.frame("/app/train.py", "step"), 5, 0)
	s.display(class, s.exception(class, traceback, s.text("bad batch 3")), traceback)
	s.reader.SetDeadline(time.Now().Add(hosttest.Patience))
	record, err := s.reader.Read()
	require.NoError(b, err)
	for b.Loop() {
		var e Event
		require.NoError(b, decode(record.RawSample, 0, &e))
	}
}
