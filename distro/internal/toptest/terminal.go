package toptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// Terminal is one of tmux, in which a command runs.
type Terminal struct {
	tb     testing.TB
	socket string
	env    []string
}

// Show runs a prepared command in a terminal of so many columns and rows, until the test ends.
func Show(tb testing.TB, cmd *exec.Cmd, columns, rows int) *Terminal {
	tb.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatal("CI must run this in tmux: tools/deps.sh installs it")
		}
		tb.Skip("needs tmux")
	}
	dir, err := os.MkdirTemp("", "t") // the path of a socket has at most 107 bytes
	require.NoError(tb, err)
	t := &Terminal{tb, filepath.Join(dir, "s"), append(cmd.Env, "TERM=xterm", "LC_ALL=C.UTF-8", "TMUX=", "NO_COLOR=")}
	tb.Cleanup(func() {
		_ = t.tmux("kill-server").Run() // it ends with the command
		require.NoError(tb, os.RemoveAll(dir))
	})
	// Two or more words are run as they are; of one, a shell would be the terminal's process.
	require.Greater(tb, len(cmd.Args), 1)
	begin := append([]string{"new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows), "--", cmd.Path}, cmd.Args[1:]...)
	t.run(append([]string{"start-server", ";", "set-option", "-g", "status", "off", ";", "set-option", "-g", "remain-on-exit", "on", ";"}, begin...)...)
	return t
}

func (t *Terminal) tmux(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", t.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env = t.env
	return cmd
}

func (t *Terminal) run(args ...string) string {
	t.tb.Helper()
	text, err := t.tmux(args...).CombinedOutput()
	require.NoError(t.tb, err, "%s", text)
	return string(text)
}

// PID is the process of the command.
func (t *Terminal) PID() int {
	t.tb.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(t.run("display-message", "-p", "#{pane_pid}")))
	require.NoError(t.tb, err)
	return pid
}

// Press presses keys, as tmux names them.
func (t *Terminal) Press(keys ...string) {
	t.tb.Helper()
	t.run(append([]string{"send-keys"}, keys...)...)
}

// Resize gives the terminal another size.
func (t *Terminal) Resize(columns, rows int) {
	t.tb.Helper()
	t.run("resize-window", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows))
}

// Screen is what stands there.
func (t *Terminal) Screen() string {
	t.tb.Helper()
	return t.run("capture-pane", "-p")
}

// Await waits for a text on the screen.
func (t *Terminal) Await(text string) {
	t.tb.Helper()
	deadline := time.Now().Add(hosttest.Patience)
	for !strings.Contains(t.Screen(), text) {
		if time.Now().After(deadline) {
			require.FailNow(t.tb, "it does not come on the screen", "%q in:\n%s", text, t.Screen())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
