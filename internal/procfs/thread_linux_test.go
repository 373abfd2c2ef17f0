package procfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A thread that was told to end takes the signal from its mask, and ends, while it is looked at.
func TestAThreadThatEndsWhileItIsLookedAtEnds(t *testing.T) {
	const flags, exiting = 0x404000, 0x404004
	root := t.TempDir()
	stat := func(flags int) {
		put(t, root, "42/task/43/stat", fmt.Sprintf("43 (x) S 1 42 42 0 -1 %d 0 0 0 0 0 0 0 0 20 0 3 0 7 0 0", flags))
	}
	stat(flags)
	status := filepath.Join(root, "42/task/43/status")
	require.NoError(t, syscall.Mkfifo(status, 0o600))
	ended := make(chan error, 1)
	go func() {
		pipe, err := os.OpenFile(status, os.O_WRONLY, 0) // until it is read
		if err == nil {
			stat(exiting)
			_, err = pipe.WriteString("State:\tS\nSigPnd:\t0000000000000000\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t2\n")
			err = errors.Join(err, pipe.Close())
		}
		ended <- err
	}()
	ending, err := Open(root).Ending(42)
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.True(t, ending)
}
