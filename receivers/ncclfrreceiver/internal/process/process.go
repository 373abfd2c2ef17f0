package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/flightrecorder"
)

const (
	// patience is how long a file may take: the largest takes some seconds of a busy
	// processor.
	patience = 20 * time.Second
	// readiness is how long a start may take.
	readiness = 20 * time.Second
	// idle is how long a process is kept for the next file.
	idle = 30 * time.Second
	// mostFiles is how many files one process reads.
	mostFiles = 256
)

// Errors that are not the file's own words.
var (
	// ErrKilled is a file that ended its reader, or took too long.
	ErrKilled = errors.New("the process that read the file ended")
	// ErrNoReader is a process that does not start. No file is to blame.
	ErrNoReader = errors.New("the process that reads dumps does not start")
)

// Reader reads dumps, one at a time, in a process that it starts when there is one
// to read.
type Reader struct {
	limits   flightrecorder.Limits
	patience time.Duration
	idle     time.Duration

	mu      sync.Mutex
	running *running // nil between files that are far apart
	ending  *time.Timer
}

// New makes a Reader. Nothing runs yet.
func New(limits flightrecorder.Limits) *Reader {
	return &Reader{limits: limits, patience: patience, idle: idle}
}

// running is one process.
type running struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     io.ReadCloser
	said    *head
	files   int
}

// Read reads the content of a dump.
func (p *Reader) Read(ctx context.Context, data []byte) (*flightrecorder.Digest, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending != nil {
		p.ending.Stop()
	}
	if p.running == nil {
		r, err := start(ctx, p.limits)
		if err != nil {
			return nil, err
		}
		p.running = r
	}
	r := p.running
	a, err := r.ask(ctx, data, p.patience)
	if err != nil {
		p.running = nil
		detail := r.end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w: %s", ErrKilled, err, detail)
	}
	if r.files++; r.files == mostFiles {
		p.running = nil
		r.end()
	} else {
		p.ending = time.AfterFunc(p.idle, p.Close)
	}
	return a.taken()
}

// Close ends the process, if there is one.
func (p *Reader) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending != nil {
		p.ending.Stop()
	}
	if p.running != nil {
		p.running.end()
		p.running = nil
	}
}

// start starts this program again as the process that reads.
func start(ctx context.Context, limits flightrecorder.Limits) (*running, error) {
	if IsChild() {
		return nil, fmt.Errorf("%w: this process is one already", ErrNoReader)
	}
	text, err := json.Marshal(limits)
	if err != nil {
		return nil, err
	}
	program, err := self()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReader, err)
	}
	r := &running{command: exec.Command(program), said: &head{}}
	r.command.Args = []string{"tracecore-dump-reader"}
	// Nothing of our environment is its business: tokens least of all.
	r.command.Env = []string{variable + "=" + string(text), "GOMAXPROCS=1", "GOTRACEBACK=none"}
	r.command.Stderr = r.said
	if r.in, err = r.command.StdinPipe(); err != nil {
		return nil, err
	}
	if r.out, err = r.command.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := r.command.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoReader, err)
	}
	said := make([]byte, len(greeting))
	err = r.within(ctx, readiness, func() error {
		_, err := io.ReadFull(r.out, said)
		return err
	})
	if err != nil || string(said) != greeting {
		return nil, fmt.Errorf("%w: %s", ErrNoReader, r.end())
	}
	return r, nil
}

// ask hands a file over and waits for the answer.
func (r *running) ask(ctx context.Context, data []byte, patience time.Duration) (a answer, err error) {
	var content []byte
	err = r.within(ctx, patience, func() error {
		if err := writeMessage(r.in, data); err != nil {
			return err
		}
		content, err = readMessage(r.out, mostAnswer)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	return a, decoder.Decode(&a)
}

// within kills the process when something takes longer, or ctx ends: what waits for
// its pipes then goes on.
func (r *running) within(ctx context.Context, most time.Duration, do func() error) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	stop := context.AfterFunc(limited, func() { _ = r.command.Process.Kill() })
	err := do()
	if !stop() {
		return errors.Join(fmt.Errorf("it took longer than %s", most), err)
	}
	return err
}

// end kills the process and says how it ended.
func (r *running) end() string {
	_ = r.in.Close()
	_ = r.command.Process.Kill()
	_ = r.command.Wait() // how it ended is in its state
	return strings.TrimSpace(r.command.ProcessState.String() + ": " + r.said.String())
}

// self is this program, as it was started: its file may have been replaced since.
func self() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// head keeps the first that a process said: the Go runtime says first why it ends.
type head struct {
	mu   sync.Mutex
	text []byte
}

const mostHead = 256

// Write keeps what there is room for.
func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p[:min(len(p), mostHead-len(h.text))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(h.text), "?")), " ")
}
