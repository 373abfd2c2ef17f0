//go:build linux && (amd64 || arm64)

package standin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Job is a process that makes the calls C that a test tells it, and answers each with R.
type Job[C, R any] struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  *os.File
	calls   *json.Encoder
	answers *json.Decoder
}

// patience is within what a job answers and ends, on a busy emulated machine too. A job that somebody
// stopped does neither.
const patience = 3 * time.Minute

// StartJob starts this program as a job with this environment, whose first setting makes
// it one. Close ends it.
func StartJob[C, R any](environment ...string) (*Job[C, R], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	j := &Job[C, R]{cmd: exec.Command(self)}
	j.cmd.Env = environment
	j.cmd.Stderr = os.Stderr
	if j.stdin, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	answers, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	j.cmd.Stdout = theirs
	if err := j.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start a job: %w", err), answers.Close())
	}
	j.stdout = answers
	j.calls, j.answers = json.NewEncoder(j.stdin), json.NewDecoder(bufio.NewReader(answers))
	return j, nil
}

// PID is the job's process.
func (j *Job[C, R]) PID() uint32 { return uint32(j.cmd.Process.Pid) }

// Ask has the job make a call and waits for the answer. A job that gives none for some minutes,
// as one that is stopped, is asked no more: os.ErrDeadlineExceeded.
func (j *Job[C, R]) Ask(call C) (answer R, err error) {
	return j.ask(call, patience)
}

func (j *Job[C, R]) ask(call C, within time.Duration) (answer R, err error) {
	if err := j.stdout.SetReadDeadline(time.Now().Add(within)); err != nil {
		return answer, err
	}
	if err := j.calls.Encode(call); err != nil {
		return answer, err
	}
	return answer, j.answers.Decode(&answer)
}

// Close lets the job end, as by exit(0), and waits for it. A job that does not end is killed, which is an error.
func (j *Job[C, R]) Close() error {
	return j.close(patience)
}

func (j *Job[C, R]) close(within time.Duration) error {
	ended := j.stdin.Close()
	late := time.AfterFunc(within, func() { _ = j.cmd.Process.Kill() })
	defer late.Stop()
	return errors.Join(ended, j.cmd.Wait(), j.stdout.Close())
}

// Serve is what a job does: it makes the calls that it reads until there are no more.
func Serve[C, R any](do func(C) (R, error)) error {
	calls, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var c C
		if err := calls.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := do(c)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}
