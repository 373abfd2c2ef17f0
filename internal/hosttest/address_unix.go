//go:build unix

package hosttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// FreeAddress is a loopback address nobody listens on, and that no other test is given until
// this one ends, in whatever process: between the choice and the listener there are seconds. Its
// port lies below those that the kernel gives out by itself (net.ipv4.ip_local_port_range begins
// at 32768), so that no connection of another program takes it meanwhile.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(tb))
}

// FreePort is the port of such an address.
func FreePort(tb testing.TB) int {
	tb.Helper()
	taken := filepath.Join(os.TempDir(), "tracecore-test-ports")
	if err := os.MkdirAll(taken, 0o777); err != nil {
		tb.Fatal(err)
	}
	for range 100 {
		port := 15_000 + rand.IntN(17_000)
		lock, err := os.OpenFile(filepath.Join(taken, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			tb.Fatal(err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !free(port) {
			_ = lock.Close()
			continue
		}
		tb.Cleanup(func() { _ = lock.Close() }) // gives the lock back
		return port
	}
	tb.Fatal("no port between 15000 and 32000 is free")
	return 0
}

// free reports whether nobody listens on a port, on whatever address.
func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
