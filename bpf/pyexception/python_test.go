//go:build linux && (amd64 || arm64)

package pyexception

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
	"github.com/tracecoreai/tracecore/internal/procfs"
)

var others = flag.String("pythons", "", "interpreters to try beside the host's, by commas: a path, or root:path for one in a root of its own")

// python is an interpreter, and how it is started.
type python struct {
	root, path string // path in its root; root "" for that of the host
}

func pythons(t testing.TB) []python {
	t.Helper()
	privtest.Require(t)
	const host = "/usr/bin/python3"
	var list []python
	if _, err := os.Stat(host); err == nil {
		list = append(list, python{path: host})
	}
	for _, one := range strings.Split(*others, ",") {
		if root, path, found := strings.Cut(one, ":"); found {
			list = append(list, python{root, path})
		} else if one != "" {
			list = append(list, python{path: one})
		}
	}
	if len(list) == 0 {
		t.Skip("needs ", host)
	}
	return list
}

// job is a process that runs a script when it is told to.
type job struct {
	pid    uint32
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
}

const file = "train.py"

// start starts Python and has it wait before the script begins.
func start(t testing.TB, py python, script string) *job {
	t.Helper()
	folder := t.TempDir()
	if py.root != "" {
		folder = filepath.Join(py.root, folder)
		require.NoError(t, os.MkdirAll(folder, 0o755))
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	}
	name := filepath.Join(folder, file)
	require.NoError(t, os.WriteFile(name, []byte("import sys; print('ready', flush=True); sys.stdin.readline()\n"+script), 0o644))
	j := &job{cmd: exec.Command(py.path, "-S", "/"+strings.TrimPrefix(strings.TrimPrefix(name, py.root), "/"))}
	j.cmd.Env = []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1"}
	j.cmd.SysProcAttr, j.cmd.Dir, j.cmd.Stderr = &syscall.SysProcAttr{Chroot: py.root}, "/", &j.stderr
	out, err := j.cmd.StdoutPipe()
	require.NoError(t, err)
	j.stdin, err = j.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, j.cmd.Start())
	t.Cleanup(func() {
		if j.cmd.ProcessState == nil {
			_ = j.cmd.Process.Kill()
			_ = j.cmd.Wait()
		}
	})
	j.pid = uint32(j.cmd.Process.Pid)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "%s", j.stderr.String())
	require.Equal(t, "ready\n", line)
	return j
}

// run lets the script begin and waits until the process has ended.
func (j *job) run(t testing.TB) (status int) {
	t.Helper()
	_, err := io.WriteString(j.stdin, "\n")
	require.NoError(t, err)
	_ = j.cmd.Wait() // its status is what counts
	return j.cmd.ProcessState.ExitCode()
}

func watch(t testing.TB, p *Probe, jobs ...*job) probe.Watched {
	t.Helper()
	list := make([]probe.Process, len(jobs))
	for i, j := range jobs {
		list[i] = probe.Process{PID: j.pid}
	}
	for deadline := time.Now().Add(hosttest.Patience); ; {
		w, err := p.Watch(list)
		require.NoError(t, err)
		if errors.Is(w.Err, procfs.ErrHung) && time.Now().Before(deadline) {
			continue // a host with much other work; the receiver looks again, too
		}
		require.NoError(t, w.Err)
		return w
	}
}

// drain returns the events of what has ended: they are in the ring.
func drain(t testing.TB, p *Probe, pid uint32) (events []Event) {
	t.Helper()
	for {
		p.hooks.reader.SetDeadline(time.Now())
		var e Event
		err := p.Read(&e)
		p.hooks.reader.SetDeadline(time.Time{})
		if err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			return events
		}
		if e.PID == pid {
			events = append(events, e)
		}
	}
}

var frameLine = regexp.MustCompile(`(?m)^  File "(.*)", line (\d+), in (.*)$`)

// displayed are the frames of the last traceback that the process itself displayed.
func (j *job) displayed() (frames []Frame) {
	text := j.stderr.String()
	if at := strings.LastIndex(text, "Traceback (most recent call last):"); at >= 0 {
		text = text[at:]
	}
	for _, m := range frameLine.FindAllStringSubmatch(text, -1) {
		line, _ := strconv.Atoi(m[2])
		frames = append(frames, Frame{File: m[1], Line: line, Function: m[3]})
	}
	return frames
}

// last is the last line of what it displayed.
func (j *job) last() string {
	lines := strings.Split(strings.TrimSpace(j.stderr.String()), "\n")
	return lines[len(lines)-1]
}

// same compares what was read with what the interpreter displayed.
func same(t testing.TB, j *job, e Event) {
	t.Helper()
	x := e.Chain[0]
	want := strings.TrimPrefix(j.last(), "__main__.") // before 3.11 it says that too
	got := x.Type
	if x.Message != "" {
		got += ": " + x.Message
	}
	require.Equal(t, want, got)
	frames := j.displayed()
	require.NotEmpty(t, frames, "%s", j.stderr.String())
	require.Len(t, x.Frames, min(len(frames), ofFirst.own+ofFirst.innermost))
	level := 0
	for _, got := range x.Frames {
		level += got.Skipped
		want := frames[level]
		level, got.Skipped = level+1, 0
		got.Function = got.Function[strings.LastIndex(got.Function, ".")+1:] // qualified in ours
		require.Equal(t, want, got, "%s", j.stderr.String())
	}
	require.Equal(t, len(frames), x.Levels)
	require.False(t, x.Broken)
}

func TestExceptionIsReadAsTheInterpreterDisplaysIt(t *testing.T) {
	p := open(t, Options{})
	for name, script := range map[string]string{
		"plain":                          "def c():\n\n  raise ValueError('bad batch 3')\ndef b(): c()\nb()\n",
		"no message":                     "raise ValueError\n",
		"empty message":                  "raise ValueError('')\n",
		"wide":                           "raise ValueError('größe ☃ 😀')\n",
		"two bytes":                      "raise ValueError('☃')\n",
		"latin":                          "def größe(): raise ValueError('ö')\ngröße()\n",
		"number":                         "raise ValueError(-7)\n",
		"key":                            "{}['weights']\n",
		"by the interpreter":             "def f(x):\n  return 1/x\nf(0)\n",
		"os error":                       "open('/does/not/exist')\n",
		"os error of a class of its own": "class Lost(OSError): pass\nraise Lost(5, 'Input/output error')\n",
		"import":                         "import no_such_module\n",
		"long function":                  "def f(x):\n" + strings.Repeat("  x += 1; x -= 1; x ^= 1\n", 60) + "  raise ValueError(x)\nf(0)\n",
		"deep":                           "def f(n):\n  if n: return g(n-1)\n  raise ValueError('deep')\ndef g(n): return f(n)\nf(20)\n",
		"method":                         "class A:\n  def f(self): raise ValueError('in a method')\nA().f()\n",
		"interrupt":                      "import os, signal\nraise KeyboardInterrupt('by hand')\n",
		"subclass of str":                "class S(str): pass\nraise ValueError(S('s of a class'))\n",
		"line below":                     "raise ValueError(\n  'x'\n\n)\n",
		"lambda":                         "(lambda: 1/0)()\n",
		"deep in a library":              "import json\nclass A(json.JSONEncoder):\n  def default(self, o):\n    raise ValueError('bad')\ndef save(x):\n  for n in range(10): x = {'x': [x]}\n  json.dumps(x, cls=A, indent=1)\ndef main(): save(object())\nmain()\n",
		"handled first":                  "try: 1/0\nexcept ZeroDivisionError: pass\nraise ValueError('second')\n",
	} {
		for _, py := range pythons(t) {
			t.Run(name+" "+strings.Trim(py.root+py.path, "/"), func(t *testing.T) {
				j := start(t, py, script)
				require.Equal(t, 1, watch(t, p, j).Libraries)
				require.NotZero(t, j.run(t))
				events := drain(t, p, j.pid)
				require.Len(t, events, 1)
				same(t, j, events[0])
				require.Equal(t, j.pid, events[0].Thread)
				require.Contains(t, events[0].Chain[0].Frames[0].File, file)
			})
		}
	}
}

func TestChainsAndGroups(t *testing.T) {
	p := open(t, Options{})
	for name, tc := range map[string]struct {
		script string
		since  int
		want   []Exception
		more   bool
	}{
		"cause":            {script: "try: 1/0\nexcept Exception as e: raise RuntimeError('outer') from e\n", want: []Exception{{Type: "RuntimeError", Message: "outer"}, {Relation: Cause, Type: "ZeroDivisionError", Message: "division by zero"}}},
		"context":          {script: "try: 1/0\nexcept Exception: raise RuntimeError('outer')\n", want: []Exception{{Type: "RuntimeError", Message: "outer"}, {Relation: Context, Type: "ZeroDivisionError", Message: "division by zero"}}},
		"suppressed":       {script: "try: 1/0\nexcept Exception: raise RuntimeError('outer') from None\n", want: []Exception{{Type: "RuntimeError", Message: "outer"}}},
		"long":             {script: "def f(n):\n  try:\n    if n: f(n-1)\n    else: 1/0\n  except Exception as e: raise RuntimeError(n) from e\nf(5)\n", want: []Exception{{Type: "RuntimeError", Message: "5"}, {Relation: Cause, Type: "RuntimeError", Message: "4"}, {Relation: Cause, Type: "RuntimeError", Message: "3"}}, more: true},
		"its own cause":    {script: "e = ValueError('x')\ne.__cause__ = e\nraise e\n", want: []Exception{{Type: "ValueError", Message: "x"}, {Relation: Cause, Type: "ValueError", Message: "x"}, {Relation: Cause, Type: "ValueError", Message: "x"}}, more: true},
		"failures":         {script: "class CheckpointException(BaseException):\n  def __init__(self, msg, failures): super().__init__(msg, failures)\nraise CheckpointException('write', {3: (OSError(28, 'No space left on device'), [])})\n", want: []Exception{{Type: "CheckpointException", Message: "write"}, {Relation: Member, Type: "OSError", Message: "[Errno 28] No space left on device"}}},
		"failures by name": {script: "raise BaseException('write', {'a': OSError(28, 'No space left on device')})\n", want: []Exception{{Type: "BaseException", Message: "write"}, {Relation: Member, Type: "OSError", Message: "[Errno 28] No space left on device"}}},
		"many failures":    {script: "raise BaseException('write', {n: (OSError(n, 'x'), []) for n in range(7, 2000)})\n", want: []Exception{{Type: "BaseException", Message: "write"}, {Relation: Member, Type: "OSError", Message: "[Errno 7] x"}}},
		"no failures":      {script: "raise BaseException('write', {})\n", want: []Exception{{Type: "BaseException", Message: "write"}}},
		"other values":     {script: "raise BaseException('write', {1: (2, 3)})\n", want: []Exception{{Type: "BaseException", Message: "write"}}},
		"group":            {since: 11, script: "raise ExceptionGroup('two', [ValueError('first'), TypeError('second')])\n", want: []Exception{{Type: "ExceptionGroup", Message: "two (2 sub-exceptions)"}, {Relation: Member, Type: "ValueError", Message: "first"}}},
		"group of one":     {since: 11, script: "raise ExceptionGroup('one', [ValueError('first')])\n", want: []Exception{{Type: "ExceptionGroup", Message: "one (1 sub-exception)"}, {Relation: Member, Type: "ValueError", Message: "first"}}},
	} {
		for _, py := range pythons(t) {
			t.Run(name+" "+strings.Trim(py.root+py.path, "/"), func(t *testing.T) {
				j := start(t, py, tc.script)
				watch(t, p, j)
				require.Equal(t, 1, j.run(t))
				events := drain(t, p, j.pid)
				require.Len(t, events, 1)
				if events[0].Minor < tc.since {
					return // such an interpreter knows no groups: NameError
				}
				var got []Exception
				for _, x := range events[0].Chain {
					got = append(got, Exception{Relation: x.Relation, Type: x.Type, Message: x.Message})
				}
				require.Equal(t, tc.want, got)
				require.Equal(t, tc.more, events[0].More)
			})
		}
	}
}

// What is not displayed by the main thread as its end, and what lies or is out of bounds.
func TestHostileAndHandledExceptions(t *testing.T) {
	p := open(t, Options{})
	for name, tc := range map[string]struct {
		script string
		events int
		check  func(t *testing.T, e Event)
	}{
		"of a thread":         {script: "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start(); t.join()\n"},
		"printed and handled": {script: "import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()\n"},
		"unraisable":          {script: "class A:\n  def __del__(self): 1/0\nA()\n"},
		"exit":                {script: "raise SystemExit(1)\n"},
		"a hook of its own":   {script: "sys.excepthook = lambda *a: print('mine')\nraise ValueError('x')\n"},
		"a hook that passes on": {events: 1, script: "sys.excepthook = lambda *a: sys.__excepthook__(*a)\nraise ValueError('x')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, "x", e.Chain[0].Message)
		}},
		"displayed by hand, and on": {events: 2, script: "try: 1/0\nexcept Exception: sys.excepthook(*sys.exc_info())\nraise ValueError('the end')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, "the end", e.Chain[0].Message)
		}},
		"surrogates": {events: 1, script: "raise ValueError('a\\udc80b')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, "a�b", e.Chain[0].Message)
		}},
		"zero bytes and escapes": {events: 1, script: "raise ValueError('a\\0b\\x1b[31m\\n')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, "a\x00b\x1b[31m\n", e.Chain[0].Message)
		}},
		"10 MB": {events: 1, script: "raise ValueError('x' * 10_000_000)\n", check: func(t *testing.T, e Event) {
			require.Equal(t, strings.Repeat("x", 1024), e.Chain[0].Message)
			require.True(t, e.Chain[0].Cut)
			require.Equal(t, strings.Repeat("x", 3072), e.Chain[0].Tail)
			require.True(t, e.Chain[0].Gap)
		}},
		"100 MB of wide characters": {events: 1, script: "raise ValueError('😀' * 25_000_000 + 'the end')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, strings.Repeat("😀", 256), e.Chain[0].Message)
			require.Equal(t, strings.Repeat("😀", 761)+"the end", e.Chain[0].Tail)
		}},
		"the traceback of another": {events: 1, script: "raise ValueError('-- Process 0\\n' + 'é☃' * 1000 + '\\nValueError: bad batch 3\\n')\n", check: func(t *testing.T, e Event) {
			x := e.Chain[0]
			require.Equal(t, "-- Process 0\n"+strings.Repeat("é☃", 1000)+"\nValueError: bad batch 3\n", x.Message+x.Tail)
			require.False(t, x.Gap)
		}},
		"the end of a file's error": {events: 1, script: "raise OSError(5, 'x' * 5000, 'y' * 5000)\n", check: func(t *testing.T, e Event) {
			require.Empty(t, e.Chain[0].Tail)
		}},
		"a class whose name lies": {events: 1, script: "E = type('ValueError\\n\\x1b[0mKilled by Xid 79', (Exception,), {})\nraise E('x')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, "ValueError\n\x1b[0mKilled by Xid 79", e.Chain[0].Type)
		}},
		"a long name": {events: 1, script: "raise type('E' * 5000, (Exception,), {})('x')\n", check: func(t *testing.T, e Event) {
			require.Equal(t, strings.Repeat("E", 127), e.Chain[0].Type)
		}},
		"recursion": {events: 1, script: "def f(): f()\nf()\n", check: func(t *testing.T, e Event) {
			require.Equal(t, "RecursionError", e.Chain[0].Type)
			require.Len(t, e.Chain[0].Frames, ofFirst.own+ofFirst.innermost)
			require.Greater(t, e.Chain[0].Levels, 900)
		}},
		"no arguments left": {events: 1, script: "class E(Exception):\n  def __init__(self, a): pass\n  def __str__(self): return 'made'\nraise E({})\n", check: func(t *testing.T, e Event) {
			require.Empty(t, e.Chain[0].Message)
			require.True(t, e.Chain[0].Unread)
		}},
	} {
		for _, py := range pythons(t) {
			t.Run(name+" "+strings.Trim(py.root+py.path, "/"), func(t *testing.T) {
				j := start(t, py, tc.script)
				watch(t, p, j)
				j.run(t)
				events := drain(t, p, j.pid)
				require.Len(t, events, tc.events, "%s", j.stderr.String())
				if tc.check != nil {
					tc.check(t, events[len(events)-1])
				}
			})
		}
	}
}

func TestMessagesAreLeftUnread(t *testing.T) {
	for _, py := range pythons(t) {
		p := open(t, Options{NoMessages: true})
		j := start(t, py, "raise ValueError('secret')\n")
		watch(t, p, j)
		require.Equal(t, 1, j.run(t))
		events := drain(t, p, j.pid)
		require.Len(t, events, 1)
		require.NotContains(t, fmt.Sprintf("%+v", events), "secret")
		require.Equal(t, "ValueError", events[0].Chain[0].Type)
		require.Len(t, events[0].Chain[0].Frames, 1)
	}
}
