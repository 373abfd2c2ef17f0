// Package process runs the helper program and passes on what it says.
package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/protocol"
)

// grace is how long a helper may take to end by itself, and to be gone when it
// was killed. One whose thread sits in the driver cannot even be killed.
const grace = 2 * time.Second

// Session is a helper that runs: the program, or a test's fake.
type Session interface {
	// Messages are closed when no more can come.
	Messages() <-chan protocol.Message
	// Poll asks for a snapshot.
	Poll() error
	// Close ends the helper; detail is what it said last.
	Close() (detail string)
	// Gone is closed when the process is no more.
	Gone() <-chan struct{}
}

// name is the program that `make build` puts beside the collector.
const name = "tracecore-gpu"

// ErrNoHelper is the error for a helper that is not installed.
var ErrNoHelper = errors.New("no helper program")

// helper is the running program.
type helper struct {
	command  *exec.Cmd
	commands io.WriteCloser
	output   io.ReadCloser
	said     tail
	messages chan protocol.Message
	closing  chan struct{}
	gone     chan struct{}
	problem  error // of reading; set before messages is closed
}

// Start starts the program, or the file configured, with these arguments and
// additions to its environment.
func Start(configured string, arguments, environment []string) (Session, error) {
	path, err := find(configured)
	if err != nil {
		return nil, err
	}
	h := &helper{messages: make(chan protocol.Message), closing: make(chan struct{}), gone: make(chan struct{})}
	h.command = exec.Command(path, arguments...)
	h.command.Env = append(os.Environ(), environment...)
	h.command.Stderr = &h.said
	h.command.WaitDelay = grace
	if h.commands, err = h.command.StdinPipe(); err != nil {
		return nil, err
	}
	if h.output, err = h.command.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := h.command.Start(); err != nil {
		return nil, fmt.Errorf("%w: start %s: %w", ErrNoHelper, path, err)
	}
	go h.read()
	return h, nil
}

// find finds the program: the file configured, the one beside this
// program, the one in PATH.
func find(configured string) (string, error) {
	if configured != "" {
		if _, err := os.Stat(configured); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoHelper, err)
		}
		return configured, nil
	}
	if own, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(own), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: %s is neither beside this program nor in PATH: build it with a C compiler (make build)", ErrNoHelper, name)
	}
	return path, nil
}

// read passes messages on until there are no more, then waits for the end of
// the process.
func (h *helper) read() {
	messages := protocol.NewReader(h.output)
	for {
		m, err := messages.Read()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				h.problem = err
			}
			break
		}
		select {
		case h.messages <- m:
			continue
		case <-h.closing:
		}
		break
	}
	close(h.messages)
	_ = h.command.Wait() // how it ended is in its state
	close(h.gone)
}

func (h *helper) Messages() <-chan protocol.Message { return h.messages }

func (h *helper) Gone() <-chan struct{} { return h.gone }

func (h *helper) Poll() error {
	_, err := io.WriteString(h.commands, protocol.Poll+"\n")
	return err
}

// Close lets the helper end, then ends it. It does not wait for one that cannot
// be killed.
func (h *helper) Close() string {
	close(h.closing)
	_ = h.commands.Close()
	if !wait(h.gone, grace) {
		_ = h.command.Process.Kill()
		_ = h.output.Close() // a process stuck in the driver keeps its end open
		if !wait(h.gone, grace) {
			return "the helper is stuck in the driver and cannot be killed"
		}
	}
	parts := []string{h.command.ProcessState.String()}
	if h.problem != nil {
		parts = append(parts, h.problem.Error())
	}
	if said := h.said.String(); said != "" {
		parts = append(parts, said)
	}
	return strings.Join(parts, ": ")
}

func wait(gone <-chan struct{}, atMost time.Duration) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		return false
	}
}

// tail keeps the last that a process said.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 512

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailSize; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(t.text)), "?")
}
