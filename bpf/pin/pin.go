//go:build linux

// Package pin lets what a probe has in the kernel outlive its process. The ring, its
// counter and the links of the programs are pinned in a file system of BPF objects: while no
// agent runs, the programs go on to fill the ring, and the next agent reads it.
//
// A folder holds one process's objects of one probe:
//
//	ROOT/PROBE/LAYOUT-RANDOM/{ring,dropped,note,link0,…}
//
// LAYOUT is a hash of the record, so that another version's bytes are never decoded. The
// process holds a lock (flock) on its folder: what nobody holds has been left behind. Each
// record begins with its time on the boot clock, 8 bytes.
package pin

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Root is where the kernel's BPF file system is mounted, and tracecore's folder in it.
const Root = "/sys/fs/bpf/tracecore"

// fileSystem is BPF_FS_MAGIC (include/uapi/linux/magic.h).
const fileSystem = 0xcafe4a11

// Names of the pins in a folder. Links are link0, link1, …
const (
	pinRing    = "ring"
	pinDropped = "dropped"
	pinNote    = "note"
	pinMemory  = "memory"
	pinLink    = "link"
)

// Set is what one probe keeps.
type Set struct {
	Ring    *ebpf.Map
	Dropped *ebpf.Map // per CPU: records that found the ring full
	Memory  *ebpf.Map // what the next process must know beside the ring; nil for none
	Links   []link.Link
}

func (s Set) maps() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{pinRing: s.Ring, pinDropped: s.Dropped}
	if s.Memory != nil {
		maps[pinMemory] = s.Memory
	}
	return maps
}

// Kept is a set that outlives this process.
type Kept struct {
	folder string
	lock   *os.File
	note   *ebpf.Map
	began  uint64
}

// note is what a process writes beside its ring for the next one. All are on the boot clock.
type note struct {
	Began   uint64 // since when its programs see everything
	Seen    uint64 // when it last looked
	Dropped uint64 // how much of the counter was known by then
}

// Layout names the records of a ring: a hash of their types as the object declares them, and
// of version, which their author raises where the meaning of a field changes.
func Layout(spec *ebpf.CollectionSpec, version int, records ...string) (string, error) {
	said := fmt.Appendf(nil, "%d\n", version)
	for _, record := range records {
		var declared *btf.Struct
		if err := spec.Types.TypeByName(record, &declared); err != nil {
			return "", fmt.Errorf("read the type of the record %s: %w", record, err)
		}
		said = fmt.Appendf(said, "%d\n%s", declared.Size, members(declared))
	}
	sum := sha256.Sum256(said)
	return hex.EncodeToString(sum[:8]), nil
}

func members(s *btf.Struct) string {
	var text strings.Builder
	for _, m := range s.Members {
		size, _ := btf.Sizeof(m.Type) // 0 for what has none
		fmt.Fprintf(&text, "%s %d %d %s\n", m.Name, m.Offset, size, m.Type.TypeName())
		if inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			text.WriteString(members(inner))
		}
	}
	return text.String()
}

// Heir takes up what an earlier process left.
type Heir struct {
	// Remember is given the memory of a set before its records; nil where there is none.
	Remember func(memory *ebpf.Map)
	// Read is called for each record, of the oldest set first, as its ring was filled: two
	// CPUs may do so in another order than that of their clocks. The bytes are its own only
	// until it returns.
	Read func(raw []byte)
}

// Keep pins set, whose links are all attached, and gives heir what processes that are gone
// have left of the probe. Nothing is read twice: the records of each process end where
// those of the next begin, and those of this one begin at Away.Until. Beside a Kept the
// error says what could not be taken up.
func Keep(root, probe, layout string, set Set, heir Heir) (*Kept, Away, error) {
	in, err := open(root, probe)
	if err != nil {
		return nil, Away{}, fmt.Errorf("pin %s: %w", probe, err)
	}
	defer in.close()
	k, err := in.keep(layout, set)
	if err != nil {
		return nil, Away{}, fmt.Errorf("pin %s: %w", probe, errors.Join(err, k.Remove()))
	}
	away, err := in.inherit(layout, k.began, heir)
	if err != nil {
		err = fmt.Errorf("take up what was left of %s: %w", probe, err)
	}
	return k, away, err
}

// keep returns what it has begun also with an error.
func (f *folder) keep(layout string, set Set) (k *Kept, err error) {
	k = &Kept{folder: filepath.Join(f.path, layout+"-"+strings.ToLower(rand.Text()[:10])), began: now()}
	if err := os.Mkdir(k.folder, 0o700); err != nil {
		return k, err
	}
	if k.lock, err = lock(k.folder); err != nil {
		return k, err
	}
	// The note comes first: what has none is not whole.
	if k.note, err = ebpf.NewMap(&ebpf.MapSpec{Name: "note", Type: ebpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 1}); err != nil {
		return k, err
	}
	if err := k.Seen(0); err != nil {
		return k, err
	}
	if err := k.note.Pin(filepath.Join(k.folder, pinNote)); err != nil {
		return k, err
	}
	for name, m := range set.maps() {
		if err := m.Pin(filepath.Join(k.folder, name)); err != nil {
			return k, err
		}
	}
	for i, l := range set.Links {
		if err := l.Pin(filepath.Join(k.folder, fmt.Sprint(pinLink, i))); err != nil {
			return k, fmt.Errorf("a link: %w", err)
		}
	}
	return k, nil
}

// now is the boot clock, by which the kernel stamps records.
func now() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // since 2.6.39
	return uint64(t.Nano())
}

// Seen notes that somebody looks, and how much of the counter is known: what comes on top
// later was lost while nobody did.
func (k *Kept) Seen(dropped uint64) error {
	if k == nil {
		return nil
	}
	return k.note.Put(uint32(0), note{Began: k.began, Seen: now(), Dropped: dropped})
}

// Close leaves everything to the next process. Closing nothing is fine.
func (k *Kept) Close() error {
	if k == nil {
		return nil
	}
	var errs []error
	if k.note != nil {
		errs = append(errs, k.note.Close())
	}
	if k.lock != nil {
		errs = append(errs, k.lock.Close())
	}
	return errors.Join(errs...)
}

// Remove takes the pins away. What this process holds open goes on to work.
func (k *Kept) Remove() error { return errors.Join(k.Close(), remove(k.folder)) }

// remove deletes a folder of pins, which has no folders in it.
func remove(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the pins in %s: %w", folder, err)
	}
	return nil
}

// folder is the place of one probe, locked against other processes that look into it.
type folder struct {
	path string
	lock *os.File
}

func (f *folder) close() { _ = f.lock.Close() }

// open makes the folder of a probe where there is none, and locks it.
func open(root, probe string) (*folder, error) {
	if err := mounted(filepath.Dir(root)); err != nil {
		return nil, err
	}
	path := filepath.Join(root, probe)
	for _, dir := range []string{root, path} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
		if err := ours(dir); err != nil {
			return nil, err
		}
	}
	// Others hold it for some milliseconds.
	for end := time.Now().Add(longestHold); ; time.Sleep(longestHold / 100) {
		l, err := lock(path)
		if err == nil {
			return &folder{path: path, lock: l}, nil
		}
		if !errors.Is(err, errHeld) || time.Now().After(end) {
			return nil, err
		}
	}
}

// longestHold is how long one waits for a process that looks into the folder of a probe.
const longestHold = 2 * time.Second

// mounted reports what to do where nothing can be pinned.
func mounted(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return fmt.Errorf("%s: %w: mount a BPF file system there (mount -t bpf bpf %s)", dir, err, dir)
	}
	if uint32(s.Type) != fileSystem {
		return fmt.Errorf("%s is no BPF file system: mount one there (mount -t bpf bpf %s)", dir, dir)
	}
	return nil
}

// ours reports whether a folder is this user's alone. The root of a BPF file system may be
// open to all, so somebody else can have made the folder.
func ours(dir string) error {
	var s unix.Stat_t
	if err := unix.Lstat(dir, &s); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFDIR || s.Uid != uint32(os.Geteuid()) || s.Mode&0o077 != 0 {
		return fmt.Errorf("%s is not a folder of this user alone (mode 0700): remove it", dir)
	}
	return nil
}

// errHeld is returned for a folder that a living process holds.
var errHeld = errors.New("another process holds it")

// lock holds a folder until the file is closed, also by the end of this process.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errHeld
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), f.Close())
	}
	return f, nil
}
