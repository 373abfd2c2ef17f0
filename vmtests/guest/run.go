package guest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Run runs one binary and reports it; its error is send's, never the test's.
func Run(test Test, env []string, send func(Line) error) error {
	if err := send(Line{Kind: Begin, Package: test.Package}); err != nil {
		return err
	}
	end := Line{Kind: End, Package: test.Package}
	ctx, cancel := context.WithTimeout(context.Background(), test.Limit)
	defer cancel()
	command := exec.CommandContext(ctx, test.Path, test.Args...)
	results := filepath.Join(os.TempDir(), fmt.Sprintf("results-%d-%s", os.Getpid(), filepath.Base(test.Path)))
	defer os.Remove(results)
	command.Dir, command.Env = test.Dir, append(slices.Clone(env), ResultsVariable+"="+results)
	output, err := startWithOutput(command)
	if err != nil {
		end.Code, end.Error = 127, err.Error()
		return send(end)
	}
	waited := make(chan error, 1)
	rest := &rest{File: output, left: pipeBytes}
	go func() {
		err := command.Wait()
		rest.begins()
		waited <- err
	}()
	if err := copyLines(send, test.Package, rest); err != nil {
		return err
	}
	end.Code, end.Error = status(<-waited)
	if err := sendResults(send, test.Package, results); err != nil {
		return err
	}
	if ctx.Err() != nil {
		end.Error = fmt.Sprintf("killed after %s", test.Limit)
	}
	return send(end)
}

// pipeBytes is what a pipe holds (pipe(7)).
const pipeBytes = 64 << 10

// rest is the output of a test. Children that outlive it keep the pipe open, and may write
// for ever: when it has ended, what the pipe holds is read, however slowly the report takes
// it, and no more.
type rest struct {
	*os.File
	ended atomic.Bool
	left  int
}

// quiet is how long the pipe is waited for when the test has ended.
const quiet = time.Second

func (r *rest) begins() {
	r.ended.Store(true)
	_ = r.SetReadDeadline(time.Now().Add(quiet)) // of the read that is under way
}

func (r *rest) Read(into []byte) (int, error) {
	if !r.ended.Load() {
		return r.File.Read(into)
	}
	if r.left <= 0 {
		return 0, io.EOF
	}
	if err := r.SetReadDeadline(time.Now().Add(quiet)); err != nil {
		return 0, err
	}
	n, err := r.File.Read(into)
	r.left -= n
	return n, err
}

// startWithOutput joins stdout and stderr in one pipe.
func startWithOutput(command *exec.Cmd) (*os.File, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	command.Stdout, command.Stderr = writer, writer
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, reader.Close())
	}
	return reader, nil
}

// copyLines reports output as it comes, a long line in pieces, until the pipe
// ends or its deadline passes.
func copyLines(send func(Line) error, pkg string, output io.ReadCloser) error {
	defer output.Close()
	reader := bufio.NewReaderSize(output, 16<<10)
	for {
		text, err := reader.ReadSlice('\n')
		if len(text) > 0 {
			if err := send(Line{Kind: Output, Package: pkg, Text: string(text)}); err != nil {
				return err
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
	}
}

// sendResults reports what the test wrote to its results file, if it made one.
func sendResults(send func(Line) error, pkg, name string) error {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if err := send(Line{Kind: Measured, Package: pkg, Text: strings.TrimSpace(line)}); err != nil {
			return err
		}
	}
	return nil
}

// status turns a Wait result into an exit code as a shell would show it.
func status(err error) (int, string) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, ""
	case errors.As(err, &exit):
		if wait, ok := exit.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
			return 128 + int(wait.Signal()), "killed by " + wait.Signal().String()
		}
		return exit.ExitCode(), ""
	default:
		return 126, err.Error()
	}
}
