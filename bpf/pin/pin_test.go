//go:build linux

package pin

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/privtest"
)

// role in the environment makes this binary end at once ("end"), or pin a set in the folder
// named behind the colon and wait to be killed.
const role = "TRACECORE_PIN_TEST_ROLE"

func TestMain(m *testing.M) {
	_ = rlimit.RemoveMemlock() // as probes do; before 5.11 maps count against it
	switch what, root := os.Getenv(role), os.Getenv(role+"_ROOT"); what {
	case "":
		os.Exit(m.Run())
	case "end":
		os.Exit(0)
	case "keep":
		set, err := makeSet(1 << 16)
		if err == nil {
			_, _, err = Keep(root, "ends", "layout", set, Heir{Read: func([]byte) {}})
		}
		fmt.Println(err)
		select {}
	}
}

// makeSet is a probe that tells the ends of threads: a record is the time and who ended.
func makeSet(ringBytes uint32) (s Set, err error) {
	if s.Ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: ringBytes}); err != nil {
		return s, err
	}
	if s.Dropped, err = ebpf.NewMap(&ebpf.MapSpec{Name: "dropped", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return s, err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.FnKtimeGetBootNs.Call(),
		asm.StoreMem(asm.RFP, -16, asm.R0, asm.DWord),
		asm.FnGetCurrentPidTgid.Call(),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, s.Ring.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -16),
		asm.Mov.Imm(asm.R3, 16), asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.StoreImm(asm.RFP, -24, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, s.Dropped.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -24),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	}})
	if err != nil {
		return s, err
	}
	defer program.Close()
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exit", Program: program})
	s.Links = []link.Link{l}
	return s, err
}

func newSet(t *testing.T, ringBytes uint32) Set {
	t.Helper()
	s, err := makeSet(ringBytes)
	require.NoError(t, err)
	t.Cleanup(func() { closeSet(s) })
	return s
}

func closeSet(s Set) {
	for _, l := range s.Links {
		_ = l.Close()
	}
	_, _ = s.Ring.Close(), s.Dropped.Close()
}

// told are the processes that ended, by the moment of the boot clock.
type told map[uint32]uint64

func (o told) heir() Heir {
	return Heir{Read: func(raw []byte) {
		o[uint32(binary.NativeEndian.Uint64(raw[8:])>>32)] = binary.NativeEndian.Uint64(raw)
	}}
}

// end is a process that has ended.
func end(t *testing.T) uint32 {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{role + "=end"}
	require.NoError(t, c.Run())
	return uint32(c.Process.Pid)
}

// killedAgent pins a set in another process and kills that.
func killedAgent(t *testing.T, root string) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{role + "=keep", role + "_ROOT=" + root}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var said string
	_, err = fmt.Fscan(out, &said)
	require.NoError(t, err)
	require.Equal(t, "<nil>", said)
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
}

func rootOf(t *testing.T) string {
	t.Helper()
	privtest.Require(t)
	return filepath.Join(privtest.BPFFS(t), "tracecore")
}

func sets(t *testing.T, root string) []string {
	t.Helper()
	all, err := names(filepath.Join(root, "ends"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	return all
}

func TestWhatAKilledProcessLeftIsReadOnce(t *testing.T) {
	root := rootOf(t)
	killedAgent(t, root)
	before := now()
	ended := end(t)
	after := now()

	heard := told{}
	k, away, err := Keep(root, "ends", "layout", newSet(t, 1<<20), heard.heir())
	require.NoError(t, err)
	require.Contains(t, heard, ended)
	require.GreaterOrEqual(t, heard[ended], before)
	require.LessOrEqual(t, heard[ended], after)
	require.Less(t, away.Since, before)
	require.Greater(t, away.Until, after)
	require.False(t, away.Gap())
	require.Len(t, sets(t, root), 1, "its own")

	later := end(t) // its own ring has it
	require.NoError(t, k.Close())
	second := told{}
	_, _, err = Keep(root, "ends", "layout", newSet(t, 1<<20), second.heir())
	require.NoError(t, err)
	require.Contains(t, second, later)
	require.NotContains(t, second, ended)
}

// Several were killed before one could read: each record is read once, in order.
func TestSeveralThatWereKilledAreReadInOrder(t *testing.T) {
	root := rootOf(t)
	var ends []uint32
	for range 3 {
		killedAgent(t, root)
		ends = append(ends, end(t))
	}
	// Each start removes what it took up; give three sets to one.
	for range 2 {
		set := newSet(t, 1<<20)
		in, err := open(root, "ends")
		require.NoError(t, err)
		k, err := in.keep("layout", set)
		require.NoError(t, err)
		in.close()
		ends = append(ends, end(t))
		require.NoError(t, k.Close())
	}
	require.Len(t, sets(t, root), 3)
	var order []uint32
	var times uint64
	_, away, err := Keep(root, "ends", "layout", newSet(t, 1<<20), Heir{Read: func(raw []byte) {
		pid := uint32(binary.NativeEndian.Uint64(raw[8:]) >> 32)
		times++
		if slices.Contains(ends, pid) && !slices.Contains(order, pid) {
			order = append(order, pid)
		}
	}})
	require.NoError(t, err)
	require.Equal(t, ends[2:], order)
	require.Equal(t, times, away.Records)
	require.Len(t, sets(t, root), 1)
}

func TestWhatAnotherVersionLeftIsCountedAndNotRead(t *testing.T) {
	root := rootOf(t)
	killedAgent(t, root)
	end(t)
	_, away, err := Keep(root, "ends", "another", newSet(t, 1<<20), Heir{
		Read:     func([]byte) { t.Error("a record of another layout was read") },
		Remember: func(*ebpf.Map) { t.Error("memory of another layout was read") },
	})
	require.NoError(t, err)
	require.Positive(t, away.Foreign)
	require.Zero(t, away.Records)
	require.True(t, away.Gap())
	require.Len(t, sets(t, root), 1)
}

func TestAFullRingSaysSinceWhenAndHowMuch(t *testing.T) {
	root := rootOf(t)
	page := uint32(os.Getpagesize())
	set := newSet(t, page)
	k, _, err := Keep(root, "ends", "layout", set, Heir{})
	require.NoError(t, err)
	lost := func() (n uint64) {
		var each []uint64
		require.NoError(t, set.Dropped.Lookup(uint32(0), &each))
		for _, c := range each {
			n += c
		}
		return n
	}
	for lost() == 0 {
		end(t)
	}
	known := lost()
	require.NoError(t, k.Seen(known), "these were told")
	require.NoError(t, k.Close())
	for lost() < known+2 {
		end(t)
	}
	least := lost() - known
	heard := told{}
	_, away, err := Keep(root, "ends", "layout", newSet(t, page), heard.heir())
	require.NoError(t, err)
	require.GreaterOrEqual(t, away.Dropped, uint64(2))
	require.GreaterOrEqual(t, away.Dropped, least)
	require.LessOrEqual(t, away.Dropped, lost()-known, "others end meanwhile")
	require.Positive(t, away.Full)
	require.Less(t, away.Full, away.Until)
	require.NotEmpty(t, heard)
}

// A process that was killed between two pins: what is whole is read, the rest is removed.
func TestHalfASetIsRemoved(t *testing.T) {
	for _, missing := range []string{pinNote, pinRing, pinDropped} {
		t.Run(missing, func(t *testing.T) {
			root := rootOf(t)
			killedAgent(t, root)
			require.NoError(t, os.Remove(filepath.Join(root, "ends", sets(t, root)[0], missing)))
			_, away, err := Keep(root, "ends", "layout", newSet(t, 1<<20), Heir{Read: func([]byte) {}})
			require.NoError(t, err)
			require.Zero(t, away.Records)
			require.Len(t, sets(t, root), 1)
		})
	}
}

func TestForgetTakesAllButWhatLives(t *testing.T) {
	root := rootOf(t)
	n, err := Forget(root, "")
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoDirExists(t, root, "it makes nothing")

	killedAgent(t, root)
	set := newSet(t, 1<<20)
	k, _, err := Keep(root, "others", "layout", set, Heir{})
	require.NoError(t, err)
	n, err = Forget(root, "")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoDirExists(t, filepath.Join(root, "ends"))
	require.DirExists(t, filepath.Join(root, "others"))

	require.NoError(t, k.Close())
	info, err := set.Links[0].Info()
	require.NoError(t, err)
	closeSet(set)
	held, err := link.NewFromID(info.ID)
	require.NoError(t, err, "pinned")
	require.NoError(t, held.Close())
	n, err = Forget(root, "others")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoDirExists(t, root)
	require.Eventually(t, func() bool { // the kernel frees it behind a grace period
		l, err := link.NewFromID(info.ID)
		if err == nil {
			_ = l.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	}, hosttest.Patience, 10*time.Millisecond)
}

// Whatever a folder is called, what is in it is taken up and removed.
func TestAFolderWithAHostileNameIsTakenUp(t *testing.T) {
	for _, name := range []string{"[", "*", "layout-[", "layout-*", "layout-\n\x1b[2J", "layout-%s\\", "layout-" + strings.Repeat("x", 240)} {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			root := rootOf(t)
			killedAgent(t, root)
			old := filepath.Join(root, "ends", sets(t, root)[0])
			require.NoError(t, os.Rename(old, filepath.Join(root, "ends", name)))
			ended := end(t)
			heard := told{}
			_, away, err := Keep(root, "ends", "layout", newSet(t, 1<<20), heard.heir())
			require.NoError(t, err)
			require.Len(t, sets(t, root), 1)
			if strings.HasPrefix(name, "layout-") {
				require.Contains(t, heard, ended)
			} else {
				require.Positive(t, away.Foreign)
			}
		})
	}
}

// What is no set of a probe keeps no set from being taken up, and no probe from being pinned.
func TestWhatIsNoSetHindersNobody(t *testing.T) {
	pinned := func(t *testing.T, spec ebpf.MapSpec, path ...string) {
		m, err := ebpf.NewMap(&spec)
		require.NoError(t, err)
		require.NoError(t, m.Pin(filepath.Join(path...)))
		require.NoError(t, m.Close())
	}
	hash := ebpf.MapSpec{Name: "hostile", Type: ebpf.Hash, KeySize: 64, ValueSize: 4096, MaxEntries: 4}
	for name, spoil := range map[string]func(t *testing.T, ends, set string){
		"a map instead of a folder": func(t *testing.T, ends, _ string) { pinned(t, hash, ends, "layout-map") },
		"a symbolic link": func(t *testing.T, ends, _ string) {
			require.NoError(t, os.Symlink("/", filepath.Join(ends, "layout-link")))
		},
		"folders in a folder": func(t *testing.T, ends, _ string) {
			require.NoError(t, os.MkdirAll(filepath.Join(ends, "layout-deep", "ring", "ring"), 0o700))
		},
		"a note of another kind": func(t *testing.T, ends, _ string) {
			require.NoError(t, os.Mkdir(filepath.Join(ends, "layout-note"), 0o700))
			pinned(t, hash, ends, "layout-note", pinNote)
		},
		"a ring that is none": func(t *testing.T, ends, set string) {
			require.NoError(t, os.Rename(filepath.Join(ends, set), filepath.Join(ends, "layout-ring")))
			require.NoError(t, os.Remove(filepath.Join(ends, "layout-ring", pinRing)))
			pinned(t, hash, ends, "layout-ring", pinRing)
		},
		"a counter of another kind": func(t *testing.T, ends, set string) {
			require.NoError(t, os.Rename(filepath.Join(ends, set), filepath.Join(ends, "layout-counter")))
			require.NoError(t, os.Remove(filepath.Join(ends, "layout-counter", pinDropped)))
			pinned(t, hash, ends, "layout-counter", pinDropped)
		},
		"thousands of empty folders": func(t *testing.T, ends, _ string) {
			for i := range 5000 {
				require.NoError(t, os.Mkdir(filepath.Join(ends, fmt.Sprint("layout-", i)), 0o700))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := rootOf(t)
			killedAgent(t, root)
			spoil(t, filepath.Join(root, "ends"), sets(t, root)[0])
			in, err := open(root, "ends")
			require.NoError(t, err)
			left, err := in.keep("layout", newSet(t, 1<<20))
			require.NoError(t, err)
			in.close()
			ended := end(t)
			require.NoError(t, left.Close())
			heard := told{}
			k, _, err := Keep(root, "ends", "layout", newSet(t, 1<<20), heard.heir())
			require.NotNil(t, k, "%v", err)
			if err != nil {
				require.Contains(t, err.Error(), "take up what was left of ends")
			}
			require.Contains(t, heard, ended)
			require.LessOrEqual(t, len(sets(t, root)), 2, "its own, and what is no folder")
		})
	}
}

// The root of a BPF file system is open to all by default: somebody else may have been first.
func TestAFolderOfSomebodyElseIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(root string) error{
		"open to others":  func(root string) error { return errors.Join(os.Mkdir(root, 0o700), os.Chmod(root, 0o755)) },
		"another's":       func(root string) error { return errors.Join(os.Mkdir(root, 0o700), os.Chown(root, 65534, 65534)) },
		"a symbolic link": func(root string) error { return os.Symlink(t.TempDir(), root) },
	} {
		t.Run(name, func(t *testing.T) {
			root := rootOf(t)
			require.NoError(t, spoil(root))
			k, _, err := Keep(root, "ends", "layout", newSet(t, 1<<20), Heir{})
			require.ErrorContains(t, err, "is not a folder of this user alone (mode 0700): remove it")
			require.Nil(t, k)
			require.NoError(t, k.Seen(1), "nothing is kept, and nobody has to ask")
			require.NoError(t, k.Close())
		})
	}
}

func TestOutsideABPFFileSystemItSaysWhatToDo(t *testing.T) {
	privtest.Require(t)
	for _, root := range []string{filepath.Join(t.TempDir(), "tracecore"), "/nowhere/tracecore"} {
		_, _, err := Keep(root, "ends", "layout", newSet(t, 1<<20), Heir{})
		require.ErrorContains(t, err, "mount -t bpf bpf "+filepath.Dir(root))
	}
}

func TestLayoutsDifferInWhatMoves(t *testing.T) {
	number := &btf.Int{Name: "unsigned int", Size: 4}
	long := &btf.Int{Name: "unsigned long long", Size: 8}
	base := &btf.Struct{Name: "event", Size: 16, Members: []btf.Member{{Name: "time_ns", Type: long}, {Name: "pid", Type: number, Offset: 64}}}
	changed := map[string]func(s *btf.Struct){
		"another name":  func(s *btf.Struct) { s.Members[1].Name = "tid" },
		"another place": func(s *btf.Struct) { s.Members[1].Offset = 96 },
		"another type":  func(s *btf.Struct) { s.Members[1].Type = long },
		"one more":      func(s *btf.Struct) { s.Members = append(s.Members, btf.Member{Name: "pad", Type: number, Offset: 96}) },
		"one less":      func(s *btf.Struct) { s.Members = s.Members[:1] },
		"inside another": func(s *btf.Struct) {
			s.Members[1].Type = &btf.Struct{Name: "unsigned int", Size: 4, Members: base.Members}
		},
	}
	seen := map[string]string{members(base): "the first"}
	for name, change := range changed {
		s := *base
		s.Members = slices.Clone(base.Members)
		change(&s)
		require.NotContains(t, seen, members(&s), name)
		seen[members(&s)] = name
	}
}
