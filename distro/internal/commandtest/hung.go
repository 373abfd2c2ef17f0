package commandtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// hung says what a process that does not come up is doing: where the kernel has
// each of its threads, and the stacks of its goroutines, which SIGQUIT makes Go
// print as it ends.
func (r *Running) hung() string {
	var b strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", r.Cmd.Process.Pid))
	for _, task := range tasks {
		fmt.Fprintf(&b, "thread %s:", filepath.Base(task))
		for _, file := range []string{"stat", "syscall", "wchan", "stack"} {
			text, _ := os.ReadFile(filepath.Join(task, file))
			fmt.Fprintf(&b, " %s: %s", file, strings.TrimSpace(string(text)))
		}
		b.WriteByte('\n')
	}
	_ = r.Cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-r.exited:
	case <-time.After(hosttest.Patience):
		b.WriteString("it does not end after SIGQUIT either\n")
	}
	return b.String() + r.Stderr.String()
}
