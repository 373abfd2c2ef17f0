//go:build linux && (amd64 || arm64)

package fusefault

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tracecoreai/tracecore/bpf/internal/kerninfo"
	"github.com/tracecoreai/tracecore/internal/procfs"
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
		var code kernelCode
		if symbols, err := kerninfo.ReadTable(strings.NewReader(string(raw)), strings.NewReader("")); err == nil {
			kerninfo.FindCode(symbols, code.find)
		}
	})
}

func TestFileOfASystemCall(t *testing.T) {
	root := t.TempDir()
	put := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	put("42/fdinfo/3", "pos:\t0\nflags:\t0100000\nmnt_id:\t25\nino:\t7\n")
	put("42/fdinfo/4", "pos:\t0\n")
	put("42/mountinfo", "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 24 0:52 / /mnt/a\\040b rw - fuse.juicefs j rw\n26 24 x:y / /z rw - ext4 z rw\n")
	p := &Probe{proc: procfs.Open(root)}
	for line, known := range map[string]bool{
		"running":                              false,
		"-1 0x0 0x7ffd":                        false,
		"":                                     false,
		"x 0x3 0x7":                            false,
		fmt.Sprint(unix.SYS_READ, " 0x3 0x7f"): true,
		fmt.Sprint(unix.SYS_READ, " 0x4 0x7f"): false,
		fmt.Sprint(unix.SYS_READ, " 0x5 0x7f"): false,
		fmt.Sprint(unix.SYS_PREADV2, " 0x3 0x7f"): true,
		fmt.Sprint(unix.SYS_SPLICE, " 0x3 0x0"):   true,
		fmt.Sprint(unix.SYS_SENDFILE, " 0x4 0x3"): true,
		fmt.Sprint(unix.SYS_SENDFILE, " 0x3 0x4"): false,
		fmt.Sprint(unix.SYS_FUTEX, " 0x3 0x7f"):   false,
	} {
		put("42/task/43/syscall", line+" 0x0\n")
		d, ok := p.fileDevice(thread{pid: 42, tid: 43})
		require.Equal(t, known, ok, line)
		if ok {
			require.Equal(t, Device{0, 52}, d, line)
		}
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
