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
)

// Job is a process that makes the calls C that a test tells it, and answers each with R.
type Job[C, R any] struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	calls   *json.Encoder
	answers *json.Decoder
}

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
	stdout, err := j.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := j.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a job: %w", err)
	}
	j.calls, j.answers = json.NewEncoder(j.stdin), json.NewDecoder(bufio.NewReader(stdout))
	return j, nil
}

// PID is the job's process.
func (j *Job[C, R]) PID() uint32 { return uint32(j.cmd.Process.Pid) }

// Ask has the job make a call and waits for the answer.
func (j *Job[C, R]) Ask(call C) (answer R, err error) {
	if err := j.calls.Encode(call); err != nil {
		return answer, err
	}
	return answer, j.answers.Decode(&answer)
}

// Close lets the job end, as by exit(0), and waits for it.
func (j *Job[C, R]) Close() error {
	return errors.Join(j.stdin.Close(), j.cmd.Wait())
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
