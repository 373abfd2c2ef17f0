//go:build linux

package pin

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/tracecoreai/tracecore/bpf/internal/counter"
)

// left is what a process that is gone has left of a probe.
type left struct {
	folder string
	lock   *os.File
	note   note

	layout                bool // its records are those of this version
	ring, dropped, memory *ebpf.Map
	until                 uint64 // boot clock: from then on a later set saw everything
}

// inherit gives heir what was left, oldest first.
func (f *folder) inherit(layout string, until uint64, heir Heir) (Away, error) {
	away := Away{Until: until}
	all, err := f.left(layout)
	for i, l := range all {
		l.until = until
		if next := slices.IndexFunc(all[i+1:], func(o *left) bool { return o.layout }); next >= 0 {
			l.until = all[i+1+next].note.Began
		}
		err = errors.Join(err, l.detach(), l.drain(&away, heir), l.remove())
	}
	return away, err
}

// left opens what nobody holds. The error says what could not be opened.
func (f *folder) left(layout string) (all []*left, problems error) {
	entries, err := names(f.path)
	if err != nil {
		return nil, err
	}
	for _, name := range entries {
		l, err := take(filepath.Join(f.path, name), layout)
		switch {
		case errors.Is(err, errHeld):
		case errors.Is(err, os.ErrNotExist): // killed while it was being made: nothing was in it
		case err != nil:
			problems = errors.Join(problems, err)
		default:
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *left) int { return cmp.Compare(a.note.Began, b.note.Began) })
	return all, problems
}

// take opens one folder. One that is not whole was being made when its process was killed:
// it is removed.
func take(folder, layout string) (_ *left, err error) {
	l := &left{folder: folder, layout: strings.HasPrefix(filepath.Base(folder), layout+"-")}
	if l.lock, err = lock(folder); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", folder, err), l.remove())
		}
	}()
	noted, err := ebpf.LoadPinnedMap(filepath.Join(folder, pinNote), nil)
	if err != nil {
		return nil, err
	}
	defer noted.Close()
	if err := noted.Lookup(uint32(0), &l.note); err != nil {
		return nil, err
	}
	if l.ring, err = ebpf.LoadPinnedMap(filepath.Join(folder, pinRing), nil); err != nil {
		return nil, err
	}
	if l.dropped, err = ebpf.LoadPinnedMap(filepath.Join(folder, pinDropped), nil); err != nil {
		return nil, err
	}
	l.memory, err = ebpf.LoadPinnedMap(filepath.Join(folder, pinMemory), nil)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return l, err
}

// detach ends the programs: nothing new comes into the ring.
func (l *left) detach() error {
	pins, err := names(l.folder)
	for _, name := range pins {
		if strings.HasPrefix(name, pinLink) {
			err = errors.Join(err, os.Remove(filepath.Join(l.folder, name)))
		}
	}
	return err
}

// drain reads all records that wait, and adds up what there is to say.
func (l *left) drain(away *Away, heir Heir) error {
	if away.Since == 0 || l.note.Seen < away.Since {
		away.Since = l.note.Seen
	}
	if l.layout && l.memory != nil && heir.Remember != nil {
		heir.Remember(l.memory)
	}
	records, last, err := l.read(heir)
	if err != nil {
		return fmt.Errorf("%s: %w", l.folder, err)
	}
	if l.layout {
		away.Records += records
	} else {
		away.Foreign += records
	}
	total, err := counter.Sum(l.dropped, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", l.folder, err)
	}
	if total > l.note.Dropped {
		away.Dropped += total - l.note.Dropped
		away.Full = max(away.Full, last)
	}
	return nil
}

// read returns how many records were left and the time of the last.
func (l *left) read(heir Heir) (records, last uint64, err error) {
	reader, err := ringbuf.NewReader(l.ring)
	if err != nil {
		return 0, 0, err
	}
	defer reader.Close()
	reader.SetDeadline(time.Now()) // what is there comes first
	var record ringbuf.Record
	for {
		err := reader.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return records, last, nil
		}
		if err != nil {
			return records, last, err
		}
		at, whole := began(record.RawSample)
		switch {
		case !l.layout || !whole:
			records++
		case at < l.until: // else a later process has it, too
			records++
			last = at
			heir.Read(record.RawSample)
		}
	}
}

// began reads the time at the head of a record.
func began(raw []byte) (ns uint64, whole bool) {
	if len(raw) < 8 {
		return 0, false
	}
	return binary.NativeEndian.Uint64(raw), true
}

// remove forgets it.
func (l *left) remove() error {
	for _, m := range []*ebpf.Map{l.ring, l.dropped, l.memory} {
		if m != nil {
			_ = m.Close() // nothing was written through it
		}
	}
	return errors.Join(remove(l.folder), l.lock.Close())
}

// Forget removes what nobody holds of a probe, or of all probes where probe is empty, and
// returns how many sets there were. Where there is nothing, it makes nothing.
func Forget(root, probe string) (n int, err error) {
	if _, err := os.Lstat(filepath.Join(root, probe)); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	probes := []string{probe}
	if probe == "" {
		if probes, err = names(root); err != nil {
			return 0, fmt.Errorf("forget what is pinned: %w", err)
		}
	}
	for _, name := range probes {
		removed, problem := forget(root, name)
		n += removed
		if problem != nil {
			err = errors.Join(err, fmt.Errorf("forget what is pinned of %s: %w", name, problem))
		}
	}
	_ = os.Remove(root) // not while anything is in it
	return n, err
}

func forget(root, probe string) (n int, err error) {
	in, err := open(root, probe)
	if err != nil {
		return 0, err
	}
	defer in.close()
	all, err := in.left("")
	for _, l := range all {
		err = errors.Join(err, l.remove())
	}
	_ = os.Remove(in.path) // not while anything is in it
	return len(all), err
}

func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}
