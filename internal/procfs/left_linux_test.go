package procfs

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stuck is a read that does not end while the test runs.
func stuck(t *testing.T) func() (int, error) {
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	return func() (int, error) { <-block; return 0, nil }
}

// A library on a mount that does not answer hides neither the memory of its process nor what it says.
func TestALibraryThatHangsHidesNotItsProcess(t *testing.T) {
	fs, pid := Open("/proc"), uint32(os.Getpid())
	all, err := fs.AllCode(pid)
	require.NoError(t, err)
	fs.WithPatience(time.Millisecond)
	_, err = Patiently(fs, fs.path(pid, "map_files", all[0].Addresses()), stuck(t))
	require.ErrorIs(t, err, ErrHung)
	_, err = Patiently(fs, fs.path(pid, "root"), stuck(t))
	require.ErrorIs(t, err, ErrHung, "one thread for the ways to its files")
	require.Equal(t, 1, fs.Left())
	fs.WithPatience(time.Minute)
	_, err = fs.AllCode(pid)
	require.NoError(t, err)
	_, err = fs.Environ(pid)
	require.NoError(t, err)
}

// What may not be closed now is closed beside: the collector of garbage closes on the one thread
// that it has for that.
func TestWhatMayNotBeClosedIsClosedBeside(t *testing.T) {
	fs, pid := Open("/proc").WithPatience(time.Millisecond), uint32(os.Getpid())
	for n := range leftOfOne {
		_, err := PatientlyOf(fs, pid, fmt.Sprint("lib", n), stuck(t))
		require.ErrorIs(t, err, ErrHung)
	}
	fs.WithPatience(time.Minute)
	for _, one := range fs.left { // a busy host may have said too late whose they are
		one.owner = fs.ownerOf(one.subject)
	}
	file, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	require.NoError(t, err)
	require.ErrorIs(t, fs.Close(file), ErrHung)
	require.Eventually(t, func() bool {
		_, err := file.Stat()
		return errors.Is(err, os.ErrClosed)
	}, time.Minute, time.Millisecond)
}

// The root of the tree may be written with a slash at its end.
func TestARootWithASlash(t *testing.T) {
	t.Setenv("HOST_PROC", "/proc/")
	fs := Open("").WithPatience(time.Millisecond)
	for pid := range uint32(leftOfOne) {
		_, err := Patiently(fs, fs.path(pid+1, "environ"), stuck(t))
		require.ErrorIs(t, err, ErrHung)
	}
	for _, one := range fs.left {
		require.NotZero(t, one.pid)
	}
}
