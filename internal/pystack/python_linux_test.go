package pystack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// python is an interpreter, and how it is started.
type python struct {
	name    string
	path    string // in its root
	root    string // "" for that of the host
	env     []string
	spawned syscall.SysProcAttr
}

// hostPython is the interpreter that tools/deps.sh installs.
func hostPython(tb testing.TB) python {
	tb.Helper()
	const path = "/usr/bin/python3"
	if _, err := os.Stat(path); err != nil {
		require.NotEqual(tb, "true", os.Getenv("CI"), "CI must have %s: tools/deps.sh", path)
		tb.Skip("needs ", path)
	}
	return python{name: "host", path: path}
}

// job is a process that runs Python.
type job struct {
	pid     uint32
	threads map[uint64]uint32 // number in its own pid namespace, by the pthread_t
	said    *bufio.Reader
	stdin   io.Writer
	kill    func() // ends it and waits for that
	spins   bool   // its threads never sleep
	dumps   *dumps
}

// start runs a script of testdata with python and waits until it says that it is ready.
func start(tb testing.TB, py python, script string, args ...string) *job {
	tb.Helper()
	folder := tb.TempDir()
	if py.root != "" {
		folder = filepath.Join(py.root, "tmp", strings.ReplaceAll(tb.Name(), "/", "_"))
		require.NoError(tb, os.MkdirAll(folder, 0o755))
	}
	source, err := os.ReadFile(filepath.Join("testdata", script))
	require.NoError(tb, err)
	file := filepath.Join(folder, script)
	require.NoError(tb, os.WriteFile(file, source, 0o644))
	inside := "/" + strings.TrimPrefix(strings.TrimPrefix(file, py.root), "/")
	command := exec.Command(py.path, append([]string{"-S", inside}, args...)...)
	command.Env = append([]string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1"}, py.env...)
	attributes := py.spawned
	attributes.Chroot, attributes.Setpgid = py.root, true
	command.SysProcAttr, command.Dir = &attributes, "/"
	j := &job{threads: map[uint64]uint32{}, dumps: &dumps{}}
	command.Stderr = j.dumps
	out, err := command.StdoutPipe()
	require.NoError(tb, err)
	j.stdin, err = command.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, command.Start())
	j.kill = sync.OnceFunc(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // its children too
		_ = command.Wait()
	})
	tb.Cleanup(j.kill)
	j.pid, j.said = uint32(command.Process.Pid), bufio.NewReader(out)
	j.ready(tb)
	return j
}

// ready reads what the script says of its threads.
func (j *job) ready(tb testing.TB) {
	tb.Helper()
	for {
		line, err := j.said.ReadString('\n')
		require.NoError(tb, err, "%s", j.dumps.text())
		fields := strings.Fields(line)
		if fields[0] == "ready" {
			return
		}
		ident, err := strconv.ParseUint(fields[0], 10, 64)
		require.NoError(tb, err)
		number, err := strconv.ParseUint(fields[1], 10, 32)
		require.NoError(tb, err)
		j.threads[ident] = uint32(number)
	}
}

// dumps collects what faulthandler writes.
type dumps struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*dumps)(nil)

func (d *dumps) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.Write(p)
}

func (d *dumps) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.String()
}

func (d *dumps) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.b.Reset()
}

var (
	threadLine = regexp.MustCompile(`^(?:Current thread|Thread) 0x([0-9a-f]+)`)
	frameLine  = regexp.MustCompile(`^  File (?:"(.*)"|(\?\?\?)), line (\d+|\?\?\?) in (.*)$`)
)

// oracle is what faulthandler says of the threads, by their numbers in their own pid
// namespace. Its signal is sent until a second dump begins: then the first is whole.
func (j *job) oracle(tb testing.TB) map[uint32][]Frame {
	tb.Helper()
	j.dumps.reset()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(hosttest.Patience); time.Now().Before(end); <-again.C {
		require.NoError(tb, syscall.Kill(int(j.pid), syscall.SIGUSR1))
		if first := firstDump(j.dumps.text()); first != "" {
			return j.parse(tb, first)
		}
	}
	require.Fail(tb, "faulthandler does not answer", j.dumps.text())
	return nil
}

// firstDump is the text before a thread's second appearance.
func firstDump(text string) string {
	seen, at := map[string]bool{}, 0
	for line := range strings.Lines(text) {
		if m := threadLine.FindStringSubmatch(line); m != nil {
			if seen[m[1]] {
				return text[:at]
			}
			seen[m[1]] = true
		}
		at += len(line)
	}
	return ""
}

func (j *job) parse(tb testing.TB, text string) map[uint32][]Frame {
	tb.Helper()
	threads, number := map[uint32][]Frame{}, uint32(0)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := threadLine.FindStringSubmatch(line); m != nil {
			ident, err := strconv.ParseUint(m[1], 16, 64)
			require.NoError(tb, err)
			number = j.threads[ident]
			require.NotZero(tb, number, "a thread that did not say its number: %s", line)
			threads[number] = nil
		}
		if m := frameLine.FindStringSubmatch(line); m != nil {
			at, _ := strconv.Atoi(m[3])
			threads[number] = append(threads[number], Frame{File: unescape(tb, m[1]), Line: at, Function: unescape(tb, m[4])})
		}
	}
	return threads
}

// unescape reads faulthandler's ASCII: \xNN, \uNNNN, \UNNNNNNNN.
func unescape(tb testing.TB, text string) string {
	tb.Helper()
	var s strings.Builder
	for len(text) > 0 {
		r, _, rest, err := strconv.UnquoteChar(text, 0)
		require.NoError(tb, err, "%q", text)
		s.WriteRune(r)
		text = rest
	}
	return s.String()
}

// oracleFrames is how many frames of a thread faulthandler writes (MAX_FRAME_DEPTH,
// Python/traceback.c).
const oracleFrames = 100

// differences compares what faulthandler and we say of a thread.
func difference(oracle, ours []Frame) string {
	if len(oracle) == oracleFrames && len(ours) > oracleFrames {
		ours = ours[:oracleFrames]
	}
	if len(oracle) != len(ours) {
		return fmt.Sprintf("%d frames, not %d", len(ours), len(oracle))
	}
	for i, want := range oracle {
		got := ours[i]
		// faulthandler knows no qualified names.
		if got.Function != want.Function && strings.HasSuffix(got.Function, "."+want.Function) {
			got.Function = want.Function
		}
		if got != want {
			return fmt.Sprintf("frame %d is %v, not %v", i, got, want)
		}
	}
	return ""
}
