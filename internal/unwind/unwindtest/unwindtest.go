// Package unwindtest is a program without a library that knows its own frames: for tests that
// run where no compiler is, and for the files of machines that this one is not.
package unwindtest

import (
	_ "embed"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program, made of frames.c (it says how), and what readelf -wF of binutils says of its
// unwind table.
var (
	//go:embed frames.amd64
	amd64 []byte
	//go:embed frames.arm64
	arm64 []byte
	//go:embed frames.amd64.rows
	amd64Rows []byte
	//go:embed frames.arm64.rows
	arm64Rows []byte
)

// Program is the ELF file of a machine, by Go's name of it.
func Program(goarch string) []byte { return map[string][]byte{"amd64": amd64, "arm64": arm64}[goarch] }

// Rows is what readelf says of it.
func Rows(goarch string) []byte {
	return map[string][]byte{"amd64": amd64Rows, "arm64": arm64Rows}[goarch]
}

// Functions are on its stack when it waits, innermost first.
func Functions() []string {
	return []string{"wait_here", "with_room", "with_registers", "deep", "deep", "deep", "deep", "deep", "deep", "begin", "_start"}
}

// Start runs the program until it is about to wait in a read, and returns its process, of one
// thread, and the addresses that its functions return to, as it says itself. It ends with the
// test.
func Start(tb testing.TB) (pid uint32, returns []uint64) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "frames")
	require.NoError(tb, os.WriteFile(file, Program(runtime.GOARCH), 0o700))
	cmd := exec.Command(file)
	stdin, err := cmd.StdinPipe()
	require.NoError(tb, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		stdin.Close() // it ends
		_ = cmd.Wait()
	})
	raw := make([]byte, 8*(len(Functions())-1))
	_, err = io.ReadFull(stdout, raw)
	require.NoError(tb, err)
	for ; len(raw) > 0; raw = raw[8:] {
		returns = append(returns, binary.LittleEndian.Uint64(raw))
	}
	return uint32(cmd.Process.Pid), returns
}
