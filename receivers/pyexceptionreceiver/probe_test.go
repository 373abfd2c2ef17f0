//go:build linux && (amd64 || arm64)

package pyexceptionreceiver

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// A rank of the host's Python fails, and the record says of what.
func TestExceptionOnThisKernelBecomesARecord(t *testing.T) {
	privtest.Require(t)
	const python = "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		t.Skip("needs ", python)
	}
	script := filepath.Join(t.TempDir(), "train.py")
	require.NoError(t, os.WriteFile(script, []byte("import sys\nprint('ready', flush=True)\nsys.stdin.readline()\ndef step(n):\n  raise ValueError(f'bad batch {n}')\nstep(3)\n"), 0o644))
	rank := exec.Command(python, "-S", script)
	out, err := rank.StdoutPipe()
	require.NoError(t, err)
	in, err := rank.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, rank.Start())
	t.Cleanup(func() { _ = rank.Process.Kill(); _ = rank.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	b := newBench(t)
	pid := uint32(rank.Process.Pid)
	b.Resolver.Know(identity.Process{PID: pid, Comm: "python3", Rank: 3, LocalRank: 3, WorldSize: 8, StartTime: time.Now()})
	logs, err := NewFactory().CreateLogs(t.Context(), b.Settings, b.config, b.Sink)
	require.NoError(t, err)
	b.StartAll(t, logs)
	b.Eventually(t, "interpreters", 1)
	_, err = io.WriteString(in, "\n")
	require.NoError(t, err)
	a := b.Next(t).Attributes().AsRaw()
	require.EqualValues(t, pid, a["process.pid"])
	require.EqualValues(t, 3, a["gen_ai.training.rank"])
	require.Equal(t, "ValueError: bad batch 3 at train.py:5 in step", a["tracecore.exception.summary"])
	require.Equal(t, script, a["code.file.path"])
	require.EqualValues(t, 5, a["code.line.number"])
}
