//go:build linux && (amd64 || arm64)

package pyexception

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/standin"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// runtimeOfC is a C++ runtime that this program has mapped, and memory for what is thrown. It needs no such library, so every
// kernel runs it.
type runtimeOfC struct {
	*Probe
	*memory
	terminate, rethrow uintptr
}

func newRuntime(t testing.TB, opts Options) *runtimeOfC {
	t.Helper()
	r := &runtimeOfC{Probe: open(t, opts)}
	folder := t.TempDir()
	for name, function := range map[string]struct {
		called string
		at     *uintptr
	}{"libstdc++.so.6.0.33": {terminates, &r.terminate}, "libgcc_s.so.1": {rethrows, &r.rethrow}} {
		file := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(file, standin.Library([]standin.Function{{Name: function.called, Code: standin.Code()}}), 0o755))
		var err error
		*function.at, err = standin.Map(file)
		require.NoError(t, err)
	}
	pages, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(pages)) })
	r.memory = newMemory(pages, ownLayout())
	w, err := r.Watch([]probe.Process{{PID: uint32(os.Getpid())}})
	require.NoError(t, err)
	require.NoError(t, w.Err)
	return r
}

// held is one that is held by another, as std::rethrow_exception makes one.
func (r *runtimeOfC) held(header uint64) uint64 {
	address, at := r.object(headerBytes)
	put(at, 0, header+unwindBytes)
	put(at, headerBytes-unwindBytes, cxx|1)
	return address + headerBytes - unwindBytes
}

// ends calls both functions as the runtime does.
func (r *runtimeOfC) ends(header uint64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none standin.Arguments
	standin.Call(r.terminate, &none)
	r.throwsAgain(header)
}

func (r *runtimeOfC) throwsAgain(header uint64) {
	arguments := standin.Arguments{Registers: [8]uintptr{uintptr(header)}}
	standin.Call(r.rethrow, &arguments)
}

func (r *runtimeOfC) next(t testing.TB) Event {
	t.Helper()
	var e Event
	read := make(chan error, 1)
	go func() { read <- r.Read(&e) }()
	select {
	case err := <-read:
		require.NoError(t, err)
	case <-time.After(hosttest.Patience):
		require.FailNow(t, "no event")
	}
	return e
}

func TestAnExceptionThatTerminatesIsRead(t *testing.T) {
	r := newRuntime(t, Options{})
	text := r.words("[enforce fail at pair.cc:456] 2668 vs 668")
	wide := strings.Repeat("é", 1100)
	for name, tc := range map[string]struct {
		header  uint64
		class   string
		message string
		cut     bool
	}{
		"std::runtime_error":       {r.thrown("St13runtime_error", text), "std::runtime_error", "[enforce fail at pair.cc:456] 2668 vs 668", false},
		"c10::Error":               {r.thrown("N3c105ErrorE", text, 41, 0, 0), "c10::Error", "[enforce fail at pair.cc:456] 2668 vs 668", false},
		"gloo::EnforceNotMet":      {r.thrown("N4gloo13EnforceNotMetE", r.thrown("x"), 0, 0, text), "gloo::EnforceNotMet", "[enforce fail at pair.cc:456] 2668 vs 668", false},
		"held by another":          {r.held(r.thrown("St13runtime_error", text)), "std::runtime_error", "[enforce fail at pair.cc:456] 2668 vs 668", false},
		"a number":                 {r.thrown("i"), "int", "", false},
		"of another class":         {r.thrown("N2my5ErrorE", r.words("\x01\x80")), "my::Error", "", false},
		"words that are not there": {r.thrown("St13runtime_error", 1<<46), "std::runtime_error", "", false},
		"a kernel's address":       {r.thrown("St13runtime_error", 1<<63), "std::runtime_error", "", false},
		"no class at all":          {r.thrown("", text), "", "[enforce fail at pair.cc:456] 2668 vs 668", false},
		"a class of no language":   {r.thrown("N\xff", text), "N�", "[enforce fail at pair.cc:456] 2668 vs 668", false},
		"many words":               {r.thrown("St13runtime_error", r.words(strings.Repeat("x", 5000))), "std::runtime_error", strings.Repeat("x", 2047), true},
		"cut within a character":   {r.thrown("St13runtime_error", r.words(wide)), "std::runtime_error", wide[:2046], true},
		"for a terminal":           {r.thrown("St13runtime_error", r.words("\x1b[2J")), "std::runtime_error", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			r.ends(tc.header)
			e := r.next(t)
			require.True(t, e.Terminates)
			require.EqualValues(t, os.Getpid(), e.PID)
			require.WithinDuration(t, time.Now(), e.Time, hosttest.Patience)
			require.Equal(t, []Exception{{Type: tc.class, Message: tc.message, Cut: tc.cut}}, e.Chain)
		})
	}
}

// What is thrown again, and caught, ends no process; nor is an exception of another language read as one of C++.
func TestWhatDoesNotTerminateIsNotTold(t *testing.T) {
	r := newRuntime(t, Options{})
	foreign := r.thrown("St13runtime_error", r.words("ours"))
	binary.LittleEndian.PutUint64(at(foreign), 0x1122334455667700)
	mine := r.thrown("St13runtime_error", r.words("mine"))
	for range 1000 {
		r.throwsAgain(mine)
	}
	r.ends(foreign)
	r.ends(1 << 46)
	r.throwsAgain(mine) // the thread has left the handler
	r.ends(r.thrown("St13runtime_error", r.words("the only one")))
	require.Equal(t, "the only one", r.next(t).Chain[0].Message)
	require.Zero(t, r.Stats().Dropped)
}

// A thread may end in the handler, and another one have its number: what that one throws again, and catches, is not told.
func TestTheNextThreadWithTheNumberDoesNotTerminate(t *testing.T) {
	r := newRuntime(t, Options{})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mine := r.thrown("St13runtime_error", r.words("mine"))
	thread := uint64(os.Getpid())<<32 | uint64(unix.Gettid())
	marks := r.hooks.shared[bpfMapTerminating]
	var none standin.Arguments
	for name, change := range map[string]func(*bpfMark){
		"of another thread": func(m *bpfMark) { m.Task++ },
		"of long ago":       func(m *bpfMark) { m.SinceNs -= uint64(61 * time.Second) },
	} {
		standin.Call(r.terminate, &none)
		var mark bpfMark
		require.NoError(t, marks.Lookup(thread, &mark), name)
		change(&mark)
		require.NoError(t, marks.Put(thread, mark))
		r.throwsAgain(mine)
		require.ErrorIs(t, marks.Lookup(thread, &mark), ebpf.ErrKeyNotExist, name)
	}
	r.ends(r.thrown("St13runtime_error", r.words("the only one")))
	require.Equal(t, "the only one", r.next(t).Chain[0].Message)
}

func TestNoMessagesLeavesWordsUnread(t *testing.T) {
	r := newRuntime(t, Options{NoMessages: true})
	r.ends(r.thrown("St13runtime_error", r.words("secret")))
	require.Equal(t, []Exception{{Type: "std::runtime_error"}}, r.next(t).Chain)
}

func TestARecordOfNoThreadIsRefused(t *testing.T) {
	var e Event
	require.ErrorContains(t, decode(make([]byte, binary.Size(bpfTerminated{})), 0, &e), "without a thread")
}

// The oracle is what libstdc++ itself displays.
func TestTheRuntimeOfThisHost(t *testing.T) {
	privtest.Require(t)
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs ", python)
	}
	p := open(t, Options{})
	for _, script := range []string{
		"l._ZSt21__throw_runtime_errorPKc(b'bad batch 3')",
		"l._ZSt20__throw_out_of_rangePKc(b'vector::_M_range_check')",
		"l._ZSt24__throw_invalid_argumentPKc(b'stoi')",
		"l._ZSt19__throw_regex_errorNSt15regex_constants10error_typeE(3)",
		"l._ZSt17__throw_bad_allocv()",
		"import threading; t = threading.Thread(target=lambda: l._ZSt21__throw_runtime_errorPKc(b'of a thread')); t.start(); t.join()",
	} {
		t.Run(script, func(t *testing.T) {
			cmd := exec.Command(python, "-S", "-c", "import sys, ctypes; l = ctypes.CDLL('libstdc++.so.6'); print('ready', flush=True); sys.stdin.readline(); "+script)
			var said bytes.Buffer
			cmd.Stderr, cmd.Env = &said, []string{"LC_ALL=C"}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err, said.String())
			w, err := p.Watch([]probe.Process{{PID: uint32(cmd.Process.Pid)}})
			require.NoError(t, err)
			require.NoError(t, w.Err)
			_, err = io.WriteString(in, "\n")
			require.NoError(t, err)
			require.Error(t, cmd.Wait())
			require.Equal(t, syscall.SIGABRT, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), said.String())
			e := (&runtimeOfC{Probe: p}).next(t)
			require.EqualValues(t, cmd.Process.Pid, e.PID)
			x := e.Chain[0]
			require.Equal(t, strings.Contains(script, "Thread"), e.Thread != e.PID)
			want := fmt.Sprintf("terminate called after throwing an instance of '%s'\n", x.Type)
			require.Equal(t, !strings.Contains(script, "bad_alloc"), x.Message != "")
			if x.Message != "" {
				want += "  what():  " + x.Message + "\n"
			}
			require.True(t, strings.HasPrefix(said.String(), want), "%q of %q", want, said.String())
		})
	}
}

func TestNamesOfClassesAreWrittenAsInC(t *testing.T) {
	for mangled, want := range map[string]string{
		"i":                            "int",
		"PKc":                          "char const*",
		"St13runtime_error":            "std::runtime_error",
		"N3c1016DistBackendErrorE":     "c10::DistBackendError",
		"N12_GLOBAL__N_16OddityE":      "(anonymous namespace)::Oddity",
		"NSt8ios_base7failureB5cxx11E": "std::ios_base::failure[abi:cxx11]",
		"NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE":                                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
		"N5boost16exception_detail10clone_implINS0_19error_info_injectorISt11logic_errorEEEE": "boost::exception_detail::clone_impl<boost::exception_detail::error_info_injector<std::logic_error> >",
		"1AIJicELi3ELin4ELb1ELj5ELN1b1cE4EE":                                                  "A<int, char, 3, -4, true, 5u, (b::c)4>",
		"N1aIiE1bIS0_EE":                                                                      "a<int>::b<a<int> >",
		"N1a1b1cIS0_S_EE":                                                                     "a::b::c<a::b, a>",
		// What is not read stays as it is.
		"":            "",
		"NE":          "NE",
		"N1aIiE":      "N1aIiE",
		"9short":      "9short",
		"0":           "0",
		"S_":          "S_",
		"1AIS9_E":     "1AIS9_E",
		"1AIL":        "1AIL",
		"1AILiE":      "1AILiE",
		"1A1B":        "1A1B",
		"Z4mainE3Foo": "Z4mainE3Foo",
		"W3A00":       "W3A00",
	} {
		require.Equal(t, want, typeOf(mangled), mangled)
	}
}

// A class may have any name. One that a reader with second thoughts reads twice in each part, and what refers to itself in each
// part twice: 255 bytes would take a processor for hours, or all memory.
func TestNoNameOfAClassTakesLong(t *testing.T) {
	grows := "1XI1AIiE"
	for i := 1; i < 20; i++ {
		of := strings.ToUpper(strconv.FormatInt(int64(i), 36))
		grows += "S0_IS" + of + "_S" + of + "_E"
	}
	for _, mangled := range []string{
		strings.Repeat("NcvT_I", 42), strings.Repeat("NcvT_I", 31) + "i" + strings.Repeat("EE", 31),
		strings.Repeat("P", 255), strings.Repeat("1AI", 85), strings.Repeat("N1a", 85), strings.Repeat("1AIJ", 63), grows + "E",
		"N1aI" + strings.Repeat("S_S0_", 50) + "E",
	} {
		done := make(chan string, 1)
		go func() { done <- typeOf(mangled) }()
		select {
		case name := <-done:
			require.Equal(t, mangled, name)
		case <-time.After(hosttest.Patience):
			require.FailNow(t, "it takes long", mangled)
		}
	}
}

// Whatever a process calls its class, its name is short, printable text, and reading it ends.
func FuzzTypeOf(f *testing.F) {
	for _, mangled := range []string{"", "i", "St13runtime_error", "N4gloo13EnforceNotMetE", "N3c105ErrorE", "PFvPFvPFvvEEE", "St6vectorISsSaISsEE", "NSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEE", "W3A00", "\xff"} {
		f.Add(mangled)
	}
	f.Fuzz(func(t *testing.T, mangled string) {
		if len(mangled) > 255 || strings.ContainsRune(mangled, 0) {
			return
		}
		name := typeOf(strings.ToValidUTF8(mangled, "�"))
		require.True(t, utf8.ValidString(name))
		require.LessOrEqual(t, len(name), 3*256)
	})
}
