package statelog

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// segment is one file of a log.
type segment struct {
	number  uint64
	salt    uint64
	path    string
	file    *os.File
	size    int64
	live    int  // values that the index has in it
	damaged bool // part of it was left out
	torn    bool // its last write was not finished
	unread  int  // how often the device did not give back a value of it
}

// Bounds of a segment. A log has some sixteen: the oldest is emptied when half of
// the log is outdated, so that a change costs a constant.
const (
	leastSegment = 1 << 20
	mostSegment  = 16 << 20
	// mostFile is what a segment can have grown to: its last batch may be the largest.
	mostFile = mostSegment + headerSize + mostPayload
	// mostUnread is how often a value is read in vain, once a second, before it is lost.
	mostUnread = 60
	// atOnce is how much of a segment is written again in one batch.
	atOnce = 1 << 20
)

// nameOf is the name of a segment file: its number, the salt of its sums and the
// version of its format.
func nameOf(number, salt uint64) string { return fmt.Sprintf("%012x-%016x.state1", number, salt) }

func parseName(name string) (number, salt uint64, ok bool) {
	if n, err := fmt.Sscanf(name, "%012x-%016x.state1", &number, &salt); n != 2 || err != nil {
		return 0, 0, false
	}
	return number, salt, nameOf(number, salt) == name
}

// open makes the folder usable and hands what is in it to take.
func (l *Log) open(take func(names []string) error) error {
	if err := l.options.Ready(); err != nil {
		return err
	}
	if l.opened {
		return nil
	}
	if info, err := os.Lstat(l.dir); err == nil && !info.IsDir() {
		if err := l.options.SetAside(l.dir, "this is not a folder of state"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if err := take(names); err != nil {
		return err
	}
	l.opened = true
	return nil
}

// errKept is why a folder whose state nobody has read is not written to: a component that
// went on without it cannot take it up, and what it writes would not fit it.
var errKept = errors.New("the state that is there could not be read at the start: it is kept as it is, and read at the next start; until then newer state is in memory alone")

// begin takes a folder that could not be read when the component asked for its state. If
// there is none in it, it is used from now on.
func (l *Log) begin(names []string) error {
	if len(names) > 0 {
		return errKept
	}
	return nil
}

// noState says why a file is none of a log. Only what was read can be that: a file that
// cannot be read now, for want of files, memory or rights or because the device fails,
// may be whole.
type noState string

func (n noState) Error() string { return string(n) }

// load reads the segments of a folder. If one cannot be read, nothing of them is used: a
// log of which a part is missing has values that are over.
func (l *Log) load(names []string) error {
	var unread error
	for _, name := range names {
		err := l.loadOne(name)
		if why := noState(""); errors.As(err, &why) {
			if aside := l.options.SetAside(filepath.Join(l.dir, name), err.Error()); aside != nil {
				l.options.Refused(aside)
			}
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody has removed it
			unread = err
			break
		}
	}
	if unread != nil {
		l.unload()
		return fmt.Errorf("%w: %w", errKept, unread)
	}
	slices.SortFunc(l.segments, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	for key, e := range l.index {
		if e.deleted {
			delete(l.index, key)
		}
	}
	return nil
}

// unload forgets what load has read.
func (l *Log) unload() {
	for _, s := range l.segments {
		_ = s.file.Close() // it was only read
	}
	l.segments, l.live, l.sequence = nil, 0, 0
	clear(l.index)
}

// loadOne reads a segment. It returns noState where a file is none.
func (l *Log) loadOne(name string) error {
	number, salt, ok := parseName(name)
	if !ok {
		return noState("this is no state, or of another version of tracecore")
	}
	path := filepath.Join(l.dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return noState("this is no regular file")
	}
	file, data, err := l.read(path)
	if err != nil {
		return err
	}
	s := &segment{number: number, salt: salt, path: path, file: file, size: int64(len(data))}
	found := scan(data, salt, func(sequence uint64, ops []stored) { l.recover(s, sequence, ops) })
	if found.leftOut > 0 {
		s.damaged, s.torn = !found.torn, found.torn
		l.options.Damaged(path, int64(found.leftOut))
	}
	l.segments = append(l.segments, s)
	return nil
}

// readFile opens a segment and reads all of it.
func readFile(path string) (*os.File, []byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|plainly, 0)
	if err != nil {
		return nil, nil, err
	}
	data, err := readAll(file)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, data, nil
}

func readAll(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > mostFile {
		return nil, noState(fmt.Sprintf("%d bytes are more than a file of state has", info.Size()))
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(file, data)
	return data, err
}

// recover takes up a batch. A later batch wins whatever place it has in the files.
func (l *Log) recover(in *segment, sequence uint64, ops []stored) {
	l.sequence = max(l.sequence, sequence)
	for _, op := range ops {
		if e := l.index[op.Key]; e != nil && e.sequence > sequence {
			continue
		}
		l.settle(op, in, sequence)
		if op.Delete {
			l.index[op.Key] = &entry{deleted: true, sequence: sequence}
		}
	}
}

// write appends a batch to the disk.
func (l *Log) write(ops []Op) error {
	if l.active == nil || l.active.size >= min(max(leastSegment, l.total()/16), mostSegment) {
		if err := l.extend(); err != nil {
			return err
		}
	}
	s := l.active
	l.sequence++
	frame := encodeFrame(s.salt, l.sequence, ops)
	if _, err := s.file.WriteAt(frame, s.size); err != nil {
		if s.file.Truncate(s.size) != nil {
			l.active = nil // what is left of the frame ends this file
		}
		return err
	}
	if l.options.Sync {
		l.unsynced = true
		if err := l.sync(); err != nil {
			l.active = nil // the frame may be there or not; it is written again elsewhere
			return err
		}
	}
	l.wrote(s, frame)
	return nil
}

// wrote notes a frame that the disk took.
func (l *Log) wrote(s *segment, frame []byte) {
	l.unsynced = !l.options.Sync
	ops, _ := decodePayload(frame[headerSize:], int(s.size)) // we made it
	s.size += int64(len(frame))
	for _, op := range ops {
		if l.unsaved[op.Key] {
			delete(l.unsaved, op.Key)
			was := weight(op.Key, nil)
			if e := l.index[op.Key]; e != nil {
				was = weight(op.Key, e.memory)
			}
			l.release(was)
		}
		l.settle(op, s, l.sequence)
	}
}

// extend begins a segment.
func (l *Log) extend() error {
	if err := l.sync(); err != nil {
		return err
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	s := &segment{number: 1, salt: binary.LittleEndian.Uint64(random[:])}
	if n := len(l.segments); n > 0 {
		s.number = l.segments[n-1].number + 1
	}
	s.path = filepath.Join(l.dir, nameOf(s.number, s.salt))
	var err error
	if s.file, err = os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL|plainly, 0o600); err != nil {
		return err
	}
	l.segments = append(l.segments, s)
	l.active, l.named = s, false
	return nil
}

// sync has the device take what was written.
func (l *Log) sync() error {
	if !l.unsynced || l.active == nil {
		return nil
	}
	if err := l.active.file.Sync(); err != nil {
		return err
	}
	if !l.named {
		if err := syncDir(l.dir); err != nil {
			return err
		}
	}
	l.named, l.unsynced = true, false
	return nil
}

func (l *Log) total() (bytes int64) {
	for _, s := range l.segments {
		bytes += s.size
	}
	return bytes
}

// tidy removes the oldest segments while they hold nothing, while the log is
// mostly outdated, and up to the last that is damaged. Only the oldest may go: a
// deletion in a later one is about what it holds.
func (l *Log) tidy() {
	for len(l.segments) > 0 && !l.unsynced {
		s := l.segments[0]
		empty := s.live == 0 && s != l.active
		if !empty && (l.refused || !l.overgrown() || l.rewrite(s) != nil) {
			return
		}
		if !l.drop(s) {
			return
		}
	}
}

func (l *Log) overgrown() bool {
	spoiled := slices.ContainsFunc(l.segments, func(s *segment) bool { return s.damaged || s.torn })
	total := l.total()
	return spoiled || total > 2*l.live+2*leastSegment || len(l.segments) > 32+int(total/mostSegment)
}

// rewrite writes what lives in a segment again, at the end of the log.
func (l *Log) rewrite(s *segment) error {
	if s == l.active {
		l.active = nil
	}
	var ops []Op
	flush := func() error {
		if len(ops) == 0 {
			return nil
		}
		defer func() { ops = nil }()
		return l.write(ops)
	}
	size := 0
	for key, e := range l.index {
		if e.segment != s {
			continue
		}
		value, err := l.value(key)
		if err != nil && !errors.Is(err, io.EOF) && s.unread < mostUnread {
			s.unread++
			return err
		}
		if err != nil { // the device does not give it back
			s.damaged = true
			l.options.Damaged(s.path, int64(e.size))
			l.forget(key)
			continue
		}
		if value == nil {
			continue // found damaged
		}
		ops = append(ops, Op{Key: key, Value: value})
		if size += len(value); size >= atOnce {
			if err := flush(); err != nil {
				return err
			}
			size = 0
		}
	}
	return errors.Join(flush(), l.sync())
}

// drop removes the oldest segment, and keeps a damaged one for a person
// to look at.
func (l *Log) drop(s *segment) bool {
	err := fs.ErrInvalid
	if s.damaged {
		err = l.options.SetAside(s.path, "part of this was damaged and left out")
	}
	if err != nil {
		err = os.Remove(s.path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	s.file.Close()
	l.segments = l.segments[1:]
	return true
}
