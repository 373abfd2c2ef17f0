//go:build linux

package hangfs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// roleVariable marks a child of this package and says, as JSON, what it is.
const roleVariable = "TRACECORE_HANGFS_ROLE"

const (
	roleDaemon  = "daemon"
	roleVisitor = "visitor"
)

// role is what a child is told about itself.
type role struct {
	Role    string
	Options Options
	Visit   Visit `json:",omitzero"`
	// Namespace is the process whose mount namespace a visitor enters, 0: none.
	Namespace int `json:",omitempty"`
}

// IsChild reports whether this process was started by this package.
func IsChild() bool { return os.Getenv(roleVariable) != "" }

// Child is the whole life of such a process; it returns the exit code.
func Child() int {
	var r role
	if err := json.Unmarshal([]byte(os.Getenv(roleVariable)), &r); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", roleVariable, err)
		return 2
	}
	var err error
	switch r.Role {
	case roleDaemon:
		err = serve(r.Options)
	case roleVisitor:
		err = visit(r)
	default:
		err = fmt.Errorf("%s: no role %q", roleVariable, r.Role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a process held by its standard input and heard by its standard output.
type child struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *bufio.Reader
	stderr bytes.Buffer
	gone   chan struct{} // closed when it is reaped

	talk sync.Mutex // one command and its answer at a time
}

// startChild starts this program again. The parent-death signal follows the thread
// that forks, so a thread is kept for as long as the child lives.
func startChild(r role, env []string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the own binary: %w", err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	c := &child{cmd: exec.Command(self), stdin: writer, gone: make(chan struct{})}
	c.cmd.Env = append(append([]string{}, env...), roleVariable+"="+string(text))
	c.cmd.Stdin, c.cmd.Stderr = reader, &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if r.Role == roleDaemon && r.Options.Private {
		c.cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	c.stdout = bufio.NewReader(stdout)
	if err := c.start(); err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	return c, nil
}

func (c *child) start() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			// Not cmd.Wait, which closes stdout under a reader.
			_, _ = c.cmd.Process.Wait()
			close(c.gone)
		}
	}()
	return <-started
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// tell sends one command and waits until it is done.
func (c *child) tell(command string) error {
	c.talk.Lock()
	defer c.talk.Unlock()
	if _, err := c.stdin.WriteString(command + "\n"); err != nil {
		return c.explain(err)
	}
	return c.hear("ok")
}

// expect waits for a line.
func (c *child) expect(line string) error {
	c.talk.Lock()
	defer c.talk.Unlock()
	return c.hear(line)
}

func (c *child) hear(want string) error {
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		return c.explain(err)
	}
	if line = strings.TrimSpace(line); line != want {
		return fmt.Errorf("it said %q instead of %q", line, want)
	}
	return nil
}

// explain adds what a child that ended wrote to its standard error.
func (c *child) explain(err error) error {
	if err = ended(err); !errors.Is(err, errLeft) {
		return err
	}
	<-c.gone
	if text := strings.TrimSpace(c.stderr.String()); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// kill ends the child and waits until it is gone. Killing twice is fine.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.gone
	_ = c.stdin.Close()
	return nil
}

// commands reads lines until standard input ends, which is when the maker is gone.
// It is for do to answer "ok".
func commands(do func(command string) error) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := do(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// entered is the environment of a visitor that is in its mount namespace now.
func entered(env []string) ([]string, error) {
	var r role
	if err := json.Unmarshal([]byte(os.Getenv(roleVariable)), &r); err != nil {
		return nil, fmt.Errorf("%s: %w", roleVariable, err)
	}
	r.Namespace = 0
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(env))
	for _, variable := range env {
		if !strings.HasPrefix(variable, roleVariable+"=") {
			out = append(out, variable)
		}
	}
	return append(out, roleVariable+"="+string(text)), nil
}
