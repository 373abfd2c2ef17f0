package machine

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/vmtests/guest"
)

// entry is what a reader of the archive sees.
type entry struct {
	name, content string
}

// readCPIO reads newc as the kernel does.
func readCPIO(t *testing.T, archive []byte) []entry {
	t.Helper()
	field := func(header []byte, n int) int {
		value, err := strconv.ParseInt(string(header[6+8*n:14+8*n]), 16, 64)
		require.NoError(t, err)
		return int(value)
	}
	align := func(n int) int { return (n + 3) &^ 3 }
	var all []entry
	for {
		require.GreaterOrEqual(t, len(archive), 110)
		require.Equal(t, "070701", string(archive[:6]), hex.Dump(archive[:16]))
		size, nameSize := field(archive, 6), field(archive, 11)
		name := string(archive[110 : 110+nameSize-1])
		archive = archiveFrom(t, archive, 110+nameSize-1, align(110+nameSize))
		if name == "TRAILER!!!" {
			return all
		}
		all = append(all, entry{name: name, content: string(archive[:size])})
		archive = archive[align(size):]
	}
}

// archiveFrom checks that only zeros lie between the name's end and the next part.
func archiveFrom(t *testing.T, archive []byte, end, next int) []byte {
	t.Helper()
	require.Empty(t, bytes.Trim(archive[end:next], "\x00"))
	return archive[next:]
}

func TestArchiveReadsBack(t *testing.T) {
	tree := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "sub", "five"), []byte("12345"), 0o755))
	require.NoError(t, os.Symlink("sub/five", filepath.Join(tree, "link")))

	var out bytes.Buffer
	archive := newCPIO(&out)
	archive.characterDevice("/dev/console", 0o600, 5, 1)
	archive.file("/a/b/one", 0o644, []byte("1"))
	archive.file("/a/b/none", 0o644, nil)
	require.NoError(t, addTree(archive, "/data", tree))
	require.NoError(t, archive.close())

	require.Equal(t, []entry{
		{name: "dev"}, {name: "dev/console"},
		{name: "a"}, {name: "a/b"}, {name: "a/b/one", content: "1"}, {name: "a/b/none"},
		{name: "data"}, {name: "data/link", content: "sub/five"},
		{name: "data/sub"}, {name: "data/sub/five", content: "12345"},
	}, readCPIO(t, out.Bytes()))
}

func TestArchiveKeepsItsFirstError(t *testing.T) {
	archive := newCPIO(&bytes.Buffer{})
	archive.copy("/init", filepath.Join(t.TempDir(), "absent"))
	archive.file("/after", 0o644, []byte("x"))
	require.ErrorIs(t, archive.close(), os.ErrNotExist)
}

func TestReportMustComeToItsEnd(t *testing.T) {
	const begin = `{"kind":"boot","text":"6.1"}` + "\n" + `{"kind":"begin","package":"bpf/kmsg"}` + "\n"
	for name, tc := range map[string]struct{ stream, problem string }{
		"complete":         {begin + `{"kind":"end","package":"bpf/kmsg"}` + "\n" + `{"kind":"done"}` + "\n", ""},
		"alive to the end": {begin + `{"kind":"end","package":"bpf/kmsg"}` + "\n" + `{"kind":"done"}` + "\n" + `{"kind":"alive"}` + "\n", ""},
		"cut behind done":  {begin + `{"kind":"done"}` + "\n" + `{"ki`, ""},
		"only alive":       {begin + `{"kind":"alive"}` + "\n", "machine died before its report was complete"},
		"died":             {begin, "machine died before its report was complete"},
		"nothing at all":   {"", "machine died before its report was complete"},
		"died in a line":   {begin + `{"kind":"end","pack`, "report line"},
		"not a report":     {"Kernel panic - not syncing\n", "report line"},
		"line without end": {strings.Repeat("x", 2<<20), "read report"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := 0
			err := readReport(strings.NewReader(tc.stream), func(guest.Line) { seen++ })
			if tc.problem == "" {
				require.NoError(t, err)
				told, _, _ := strings.Cut(tc.stream, `"done"`)
				require.Equal(t, strings.Count(told, "\n")+1, seen)
				return
			}
			require.ErrorContains(t, err, tc.problem)
		})
	}
}

func TestMachinesAreEmulatedWhereTheProcessorCannotRunThem(t *testing.T) {
	const plain, intel = "flags\t\t: fpu vme\n", "flags\t\t: fpu vmx smx\nflags\t\t: fpu\n"
	tcg, both := []string{"-accel", "tcg"}, []string{"-accel", "kvm", "-accel", "tcg"}
	require.Equal(t, tcg, Machine{Arch: "arm64"}.accelerators(intel))
	require.Equal(t, tcg, Machine{Arch: "amd64", Emulate: true}.accelerators(intel))
	require.Equal(t, tcg, Machine{Arch: "amd64"}.accelerators(plain))
	require.Equal(t, tcg, Machine{Arch: "amd64"}.accelerators("bugs : vmx"))
	if runtime.GOARCH == "amd64" {
		require.Equal(t, both, Machine{Arch: "amd64"}.accelerators(intel))
	}
}

func TestReportReaderPassesErrorsOn(t *testing.T) {
	err := readReport(brokenReader{}, func(guest.Line) {})
	require.ErrorIs(t, err, errBroken)
}

var errBroken = errors.New("pipe broke")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }
