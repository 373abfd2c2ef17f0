//go:build linux && amd64 && truelibraries

package ncclcall

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/internal/uprobe"
)

// These tests fetch 300 MB from Debian's archive and need a C compiler, so that a build
// tag asks for them: go test -tags truelibraries -run True ./bpf/ncclcall

// fetch takes a file out of a package of Debian and returns where it lies.
func fetch(t *testing.T, suites, arch, name, glob string) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOMOD").Output()
	require.NoError(t, err)
	command := exec.Command("go", "run", "./vmtests/debfiles", "-suites", suites, "-arch", arch, name, glob)
	command.Dir = filepath.Dir(strings.TrimSpace(string(root)))
	command.Stderr = os.Stderr
	output, err := command.Output()
	require.NoError(t, err)
	var taken struct{ Folder string }
	require.NoError(t, json.Unmarshal(output, &taken))
	found, err := filepath.Glob(filepath.Join(taken.Folder, glob))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, file := range found { // links lead to files that may be absent
		if info, err := os.Lstat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	require.FailNow(t, "no file", "%v", found)
	return ""
}

func read(t *testing.T, file string) *uprobe.Image {
	t.Helper()
	opened, err := os.Open(file)
	require.NoError(t, err)
	t.Cleanup(func() { opened.Close() })
	image, err := uprobe.Read(opened, names())
	require.NoError(t, err)
	return image
}

// The figures are of the versions that the suites had on 2026-11-23.
func TestTrueLibrariesShowTheirLayout(t *testing.T) {
	for _, tc := range []struct {
		suites, arch, name, glob string
		offset                   uint64
		functions, stepped       int
	}{
		{"sid/contrib", "amd64", "libnccl2", "usr/lib/*/libnccl.so.2.*", offset2297, 23, 0},
		{"sid/contrib", "arm64", "libnccl2", "usr/lib/*/libnccl.so.2.*", offset2297, 23, 23},
		{"sid", "amd64", "librccl1", "usr/lib/*/librccl.so.1.*", 0x17b0, 13, 6},
	} {
		image := read(t, fetch(t, tc.suites, tc.arch, tc.name, tc.glob))
		at, err := rankOffset(image)
		require.NoError(t, err, tc.name)
		require.Equal(t, tc.offset, at, "%s %s: %#x", tc.name, tc.arch, at)
		stepped := 0
		for _, f := range traced(image) {
			if place, _ := image.Function(f.name); place.Stepped {
				stepped++
			}
		}
		t.Logf("%s %s: rank at %#x, %d functions, %d stepped", tc.name, tc.arch, at, len(traced(image)), stepped)
		require.Equal(t, []int{tc.functions, tc.stepped}, []int{len(traced(image)), stepped}, "%s %s", tc.name, tc.arch)
	}
	image := read(t, fetch(t, "trixie/non-free", "amd64", "libcuda1", "usr/lib/*/nvidia/*/libcuda.so.*"))
	require.Len(t, traced(image), 2)
	for _, f := range traced(image) {
		place, _ := image.Function(f.name)
		require.False(t, place.Stepped, f.name)
		require.NotEqual(t, place.Entry, place.Offset, f.name)
	}
}

// The library's own functions say rank, size and device of a communicator of the test's
// making; the probe reads the same, and the arguments of each call.
func TestTrueNCCLIsReadAsItReadsItself(t *testing.T) {
	library := fetch(t, "sid/contrib", "amd64", "libnccl2", "usr/lib/*/libnccl.so.2.*")
	folders := filepath.Dir(fetch(t, "sid", "amd64", "libc6", "usr/lib/*/l*.so*"))
	loader := filepath.Join(folders, "ld-linux-x86-64.so.2")
	for name, glob := range map[string]string{"libstdc++6": "usr/lib/*/libstdc++.so.6*", "libgcc-s1": "usr/lib/*/libgcc_s.so.1"} {
		file := fetch(t, "sid", "amd64", name, glob)
		if strings.HasPrefix(filepath.Base(file), "libstdc++") {
			folder := t.TempDir()
			require.NoError(t, os.Symlink(file, filepath.Join(folder, "libstdc++.so.6")))
			file = filepath.Join(folder, "libstdc++.so.6")
		}
		folders += ":" + filepath.Dir(file)
	}
	program := filepath.Join(t.TempDir(), "job")
	compiled, err := exec.Command("cc", "-o", program, "testdata/truenccl.c", "-ldl").CombinedOutput()
	require.NoError(t, err, string(compiled))

	const endMagic = 0x124de0 // of 2.29.7
	job := exec.Command(loader, "--library-path", folders, program, library, fmt.Sprint(offset2297), fmt.Sprint(endMagic))
	job.Stderr = os.Stderr
	stdin, err := job.StdinPipe()
	require.NoError(t, err)
	stdout, err := job.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, job.Start())
	t.Cleanup(func() { _, _ = stdin.Close(), job.Wait() })
	lines := bufio.NewScanner(stdout)
	require.True(t, lines.Scan())
	require.Equal(t, "5 8 3", lines.Text(), "what the library says itself")

	p := open(t, Options{})
	w, err := p.Watch([]Process{{PID: uint32(job.Process.Pid)}})
	require.NoError(t, err)
	require.NoError(t, w.Err)
	require.Equal(t, []int{1, 0}, []int{w.NCCL, w.Unknown})
	_, err = io.WriteString(stdin, "go\n")
	require.NoError(t, err)
	require.True(t, lines.Scan())
	require.Equal(t, "done", lines.Text())

	c := only(t, p)
	require.Equal(t, Known, c.Identity)
	require.Equal(t, []int32{5, 8, 3}, []int32{c.Rank, c.Size, c.Device})
	require.Equal(t, uint64(0x1122334455667788), c.Hash)
	var said []string
	for _, r := range c.Recent {
		said = append(said, fmt.Sprintf("%s %d %s %d", r.Operation, r.Count, r.Type, r.Root))
	}
	require.Equal(t, []string{"AllReduce 4096 bf16 -1", "Reduce 11 fp32 3", "AllGather 12 fp32 -1", "Broadcast 13 fp32 2", "Broadcast 14 fp32 2"}, said)
	require.Equal(t, Call{Time: c.Last.Time, Operation: Send, Type: 7, Count: 15, Root: 4}, c.Last)
	for _, want := range [][]int32{{5, 8}, {7, 16}} {
		e := next(t, p)
		require.Equal(t, want, []int32{e.Rank, e.Size})
		require.NotEqual(t, netip.AddrPort{}, e.Root)
		t.Logf("%s as rank %d of %d, hash %#x, root %s", e.Kind, e.Rank, e.Size, e.Hash, e.Root)
	}
}
