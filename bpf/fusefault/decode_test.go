//go:build linux && (amd64 || arm64)

package fusefault

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
)

func rawOf(t testing.TB, v any) []byte {
	t.Helper()
	raw, err := binary.Append(nil, binary.NativeEndian, v)
	require.NoError(t, err)
	return raw
}

func comm(name string) (c [16]int8) {
	for i := range min(len(name), len(c)) {
		c[i] = int8(name[i])
	}
	return c
}

func TestThreadsAreDecoded(t *testing.T) {
	one := bpfThread{StartNs: 1, Completed: 2, Switches: 3, Tid: 4, Pid: 5, State: 0x102, Asked: 1, Comm: comm("sixteen-letters!")}
	one.Stack[0], one.Stack[1], one.Stack[3] = 10, 11, 12
	two := bpfThread{Tid: 6, Comm: comm("\xff\xfe")}
	raw := append(rawOf(t, one), rawOf(t, two)...)
	threads, err := decodeThreads(raw)
	require.NoError(t, err)
	require.Equal(t, map[uint32]thread{
		4: {tid: 4, pid: 5, start: 1, completed: 2, switches: 3, state: 0x102, asked: true, comm: "sixteen-letters!", stack: []uint64{10, 11}},
		6: {tid: 6, comm: "�"},
	}, threads)
	_, err = decodeThreads(raw[:len(raw)-1])
	require.ErrorContains(t, err, "no multiple")
}

func TestHoldersAreDecoded(t *testing.T) {
	raw := rawOf(t, bpfHolder{Connection: 1, StartNs: 2, Pid: 3, Comm: comm("juicefs")})
	holders, err := decodeHolders(raw)
	require.NoError(t, err)
	require.Equal(t, []holder{{1, 2, 3, "juicefs"}}, holders)
	_, err = decodeHolders(raw[1:])
	require.ErrorContains(t, err, "no multiple")
}

func FuzzDecode(f *testing.F) {
	f.Add(rawOf(f, bpfThread{Tid: 1}), uint64(1))
	f.Add(rawOf(f, bpfHolder{Pid: 1}), uint64(1))
	f.Add([]byte("0 0x3 0x7f"), uint64(7))
	f.Add([]byte("25 1 0:42 / /mnt rw - fuse.x y rw\n"), uint64(25))
	f.Fuzz(func(t *testing.T, raw []byte, now uint64) {
		threads, err := decodeThreads(raw)
		require.Equal(t, len(raw)%threadBytes == 0, err == nil)
		for _, one := range threads {
			require.LessOrEqual(t, len(one.stack), 32)
			require.True(t, strings.ToValidUTF8(one.comm, "") == one.comm)
		}
		p := picture{now: now, minAge: 1, code: testCode, threads: threads}
		for _, one := range threads {
			p.faults = append(p.faults, fault{one.tid, bpfFault{StartNs: one.switches, Completed: one.completed}})
			p.requests = append(p.requests, request{one.start, bpfRequest{StartNs: one.completed, Tid: one.pid}})
		}
		v := p.judge()
		sightings{}.follow(&p, &v, map[Device]bool{}, func(thread) (Device, bool) { return Device{}, true })
		for _, w := range v.waits {
			require.LessOrEqual(t, w.start, now)
		}
		_, err = decodeHolders(raw)
		require.Equal(t, len(raw)%holderBytes == 0, err == nil)
		parseSyscall(string(raw))
		parseFdinfo(string(raw))
		parseMountinfo(raw, "25")
		var code kernelCode
		if symbols, err := kerninfo.ReadTable(strings.NewReader(string(raw)), strings.NewReader("")); err == nil {
			kerninfo.FindCode(symbols, code.find)
		}
	})
}

func TestFileOfASystemCall(t *testing.T) {
	for line, want := range map[string]int{
		"running":       -1,
		"-1 0x0 0x7ffd": -1,
		"":              -1,
		"x 0x3 0x7":     -1,
		"0 0x3 0x7f 0x1000 0x0 0x0 0x0 0x7ffd 0x7f": map[bool]int{true: 3, false: -1}[unix.SYS_READ == 0],
		"202 0x3 0x7f": -1,
	} {
		fd, ok := parseSyscall(line)
		require.Equal(t, want >= 0, ok, line)
		if ok {
			require.EqualValues(t, want, fd, line)
		}
	}
	id, ok := parseFdinfo("pos:\t0\nflags:\t0100000\nmnt_id:\t25\nino:\t7\n")
	require.True(t, ok)
	require.Equal(t, "25", id)
	_, ok = parseFdinfo("pos:\t0\n")
	require.False(t, ok)

	text := []byte("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 24 0:52 / /mnt/a\\040b rw - fuse.juicefs j rw\n26 24 x:y / /z rw\n")
	d, ok := parseMountinfo(text, "25")
	require.True(t, ok)
	require.Equal(t, Device{0, 52}, d)
	for _, id := range []string{"2", "26", "27"} {
		_, ok = parseMountinfo(text, id)
		require.False(t, ok, id)
	}
}

func TestDeviceNumbers(t *testing.T) {
	for _, d := range []Device{{0, 52}, {8, 1}, {259, 1<<20 - 1}} {
		require.Equal(t, d, device(d.number()))
	}
}

func TestKernelCodeIsToldByName(t *testing.T) {
	symbols, err := kerninfo.ReadTable(strings.NewReader(`ffffffff81000100 T handle_mm_fault
ffffffff81000200 T filemap_read
ffffffff81000300 T vfs_read
ffffffffc0001000 t fuse_file_write_iter	[fuse]
ffffffffc0001800 t fuse_other.isra.0	[fuse]
`), strings.NewReader(""))
	require.NoError(t, err)
	var code kernelCode
	kerninfo.FindCode(symbols, code.find)
	require.Equal(t, kernelCode{
		fault: kerninfo.Code{{Start: 0xffffffff81000100, End: 0xffffffff81000200}},
		read:  kerninfo.Code{{Start: 0xffffffff81000200, End: 0xffffffff81000300}},
		write: kerninfo.Code{{Start: 0xffffffffc0001000, End: 0xffffffffc0001800}},
	}, code)
}

func TestLayoutFollowsNestedMembers(t *testing.T) {
	u32 := &btf.Int{Name: "unsigned int", Size: 4}
	header := &btf.Struct{Name: "fuse_out_header", Size: 16, Members: []btf.Member{{Name: "len", Type: u32}, {Name: "error", Type: u32, Offset: 32}}}
	out := &btf.Struct{Size: 16, Members: []btf.Member{{Name: "h", Type: &btf.Const{Type: header}, Offset: 64}}}
	req := &btf.Struct{Name: "fuse_req", Members: []btf.Member{{Name: "flags", Type: u32}, {Name: "out", Type: out, Offset: 768}}}
	offset, err := offsetOf(req, []string{"out", "h", "error"})
	require.NoError(t, err)
	require.EqualValues(t, 96+8+4, offset)
	_, err = offsetOf(req, []string{"in", "h"})
	require.ErrorContains(t, err, "no member in")
	_, err = offsetOf(req, []string{"flags", "x"})
	require.ErrorContains(t, err, "no structure")
}
