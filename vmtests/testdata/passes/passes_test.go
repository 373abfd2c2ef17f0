// Package passes is a test binary that checks the machine it runs in: see
// TestMachinesReportWhatHappens.
package passes

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestMachineLooksLikeAHost(t *testing.T) {
	for _, path := range []string{
		"/proc/self/status", "/sys/kernel/btf/vmlinux", "/dev/kmsg", "/sys/fs/cgroup/cgroup.controllers",
		"/sys/kernel/tracing/events", "/sys/kernel/debug", "/sys/fs/bpf",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestCgroupHasMemoryLimit(t *testing.T) {
	dir := filepath.Join("/sys/fs/cgroup", t.Name())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	if err := os.WriteFile(filepath.Join(dir, "memory.max"), []byte("1048576"), 0); err != nil {
		t.Fatal(err)
	}
}

func TestLoopbackAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	connection.Close()
}

func TestTestdataLiesBesideTheBinary(t *testing.T) {
	text, err := os.ReadFile("testdata/word")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != "found\n" {
		t.Fatalf("testdata/word says %q", text)
	}
}

func TestShellRuns(t *testing.T) {
	out, err := exec.Command("sh", "-c", "uname -r | cat").Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		t.Fatalf("%q %v", out, err)
	}
}

func TestSkipsWithoutDeclaration(t *testing.T) {
	if os.Getenv("CI") != "true" {
		t.Fatal("CI is not set")
	}
	t.Skip("to see that a declared skip passes and any other fails")
}

func TestMeasurementsAreCollected(t *testing.T) {
	lines := `{"probe":"fixture","rung":"first"}` + "\n" + `{"probe":"fixture","fault":"none","result":"named","delay_ms":1.5}`
	if err := os.WriteFile(os.Getenv("TRACECORE_RESULTS"), []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
}
