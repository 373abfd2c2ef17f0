package command

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestWhatTheProgramsFileCanFillAgainIsGivenBack(t *testing.T) {
	const smaps = `00400000-02c0a000 r-xp 00000000 fe:00 17 /usr/bin/tracecore
Size:              41000 kB
Rss:               34216 kB
Anonymous:             0 kB
02c0a000-05aeb000 r--p 0280a000 fe:00 17 /usr/bin/tracecore
Anonymous:             0 kB
05aeb000-05b00000 r--p 056eb000 fe:00 17 /usr/bin/tracecore
Anonymous:            84 kB
05b00000-05cc2000 rw-p 05700000 fe:00 17 /usr/bin/tracecore
Anonymous:             0 kB
c000000000-c004000000 rw-p 00000000 00:00 0
Anonymous:         20480 kB
7f0000000000-7f0000200000 r-xp 00000000 fe:00 99 /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000300000-7f0000400000 r--s 00000000 fe:00 17 /usr/bin/tracecore
Anonymous:             0 kB
`
	got, err := cleanPages(strings.NewReader(smaps), "/usr/bin/tracecore")
	require.NoError(t, err)
	require.Equal(t, []pages{{0x400000, 0x2c0a000}, {0x2c0a000, 0x5aeb000}}, got,
		"neither relocations nor data, nor what is another's or shared")
}

func TestPagesOfTheProgramLeaveAndComeBack(t *testing.T) {
	all, err := programPages()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	before := make([]byte, 4096)
	touch(t, all)
	full := resident(t, all)
	peek(t, all[0].start, before)

	require.NoError(t, shed())

	require.Less(t, resident(t, all), full/2)
	after := make([]byte, len(before))
	peek(t, all[0].start, after)
	require.Equal(t, before, after)
}

func touch(t *testing.T, all []pages) {
	t.Helper()
	for _, p := range all {
		memory, err := os.Open("/proc/self/mem")
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, io.NewSectionReader(memory, int64(p.start), int64(p.end-p.start)))
		require.NoError(t, err)
		require.NoError(t, memory.Close())
	}
}

func peek(t *testing.T, at uintptr, into []byte) {
	t.Helper()
	memory, err := os.Open("/proc/self/mem")
	require.NoError(t, err)
	defer memory.Close()
	_, err = memory.ReadAt(into, int64(at))
	require.NoError(t, err)
}

// resident is how many pages of these are mapped: the bit 63 of each entry of
// /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst).
func resident(t *testing.T, all []pages) (count int) {
	t.Helper()
	table, err := os.Open("/proc/self/pagemap")
	require.NoError(t, err)
	defer table.Close()
	size := uintptr(unix.Getpagesize())
	for _, p := range all {
		entries := make([]byte, (p.end-p.start)/size*8)
		_, err := table.ReadAt(entries, int64(p.start/size*8))
		require.NoError(t, err)
		for i := 7; i < len(entries); i += 8 {
			count += int(entries[i] >> 7)
		}
	}
	return count
}
