// Package statelog keeps keys and values in a folder of append-only files. Each
// batch is written as one frame with a checksum, and read back only if that fits.
// Nothing is mapped into memory: a device that fails is an error, never a signal.
//
// What the disk does not take stays in memory, within a budget, and is written once
// the disk takes it.
package statelog

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
)

// Op sets or deletes one key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
}

// Options of a log.
type Options struct {
	// Sync waits with each write for the device.
	Sync bool
	// Ready says whether the folder above may be used.
	Ready func() error
	// SetAside moves a file out of the way.
	SetAside func(path, why string) error
	// Damaged is told of bytes that were left out.
	Damaged func(path string, bytes int64)
	// Refused is told of each failure of the disk, Taken that it works again.
	Refused func(err error)
	Taken   func()
	// Memory is what may wait in memory for the disk.
	Memory *Budget
}

// Errors of a log.
var (
	ErrLost   = errors.New("values that the disk did not take are lost")
	ErrFull   = errors.New("the disk takes no state, and no more may wait in memory")
	errClosed = errors.New("the storage is closed")
	errLarge  = fmt.Errorf("a batch of more than %d MiB is not stored", mostPayload>>20)
)

// Log is the state of one component.
type Log struct {
	dir     string
	options Options
	read    func(path string) (*os.File, []byte, error) // readFile, or a test's

	mu       sync.Mutex
	index    map[string]*entry
	segments []*segment // oldest first
	active   *segment   // the last of them, or nil: the next write begins one
	opened   bool       // the folder was read, or found not to have been there
	closed   bool
	sequence uint64
	live     int64 // bytes of what index leads to
	// unsaved are the keys whose last change is in memory alone.
	unsaved  map[string]bool
	held     int64 // bytes of the budget that they take
	unsynced bool
	named    bool // the device has the name of the active segment
	refused  bool // the last attempt to write failed
}

// entry is where the value of a key is.
type entry struct {
	segment  *segment // nil: not on disk
	at       int64
	size     int
	sum      uint32
	sequence uint64
	memory   []byte // what the disk has not taken yet
	held     bool   // memory is the value
	deleted  bool   // only while segments are read
}

// Open opens the log in a folder. It always succeeds: what is damaged is left out, what
// cannot be read is kept for the next start, and what cannot be written waits.
func Open(dir string, options Options) *Log {
	return openWith(dir, options, readFile)
}

func openWith(dir string, options Options, read func(string) (*os.File, []byte, error)) *Log {
	l := &Log{dir: dir, options: options, read: read, index: map[string]*entry{}, unsaved: map[string]bool{}}
	if err := l.open(l.load); err != nil {
		l.refuse(err)
	}
	return l
}

// Get returns a copy of a value, nil where there is none. A value that is not what
// was written is none.
func (l *Log) Get(key string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	return l.value(key)
}

// Keys returns the keys in order.
func (l *Log) Keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.index))
}

// Apply makes the changes of one batch, all or none.
func (l *Log) Apply(ops ...Op) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errClosed
	case len(ops) == 0:
		return nil
	case sizeOf(ops) > mostPayload:
		return errLarge
	}
	if l.opened && !l.refused {
		err := l.write(ops)
		if err == nil {
			return nil
		}
		l.refuse(err)
	}
	return l.hold(ops)
}

// Tend does what is due about once a second: it tries a disk that refused again,
// syncs, and removes what is outdated.
func (l *Log) Tend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.save()
	if err := l.sync(); err != nil {
		l.refuse(err)
	}
	l.tidy()
}

// Close writes what waits and closes the files.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.save()
	err := l.sync()
	if len(l.unsaved) > 0 {
		err = fmt.Errorf("%w: %d", ErrLost, len(l.unsaved))
	}
	l.release(l.held)
	for _, s := range l.segments {
		_ = s.file.Close() // all of it was written and synced
	}
	l.closed = true
	return err
}

// Sizes returns the bytes on disk and those that wait in memory.
func (l *Log) Sizes() (disk, memory int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total(), l.held
}

func (l *Log) refuse(err error) {
	l.refused = true
	l.options.Refused(err)
}

// save tries a disk that refused again.
func (l *Log) save() {
	if !l.refused {
		return
	}
	err := l.open(l.begin)
	switch {
	case err != nil:
	case len(l.unsaved) > 0:
		err = l.write(l.waiting())
	case l.active == nil:
		err = l.extend() // nothing waits: whether there is room shows in a new file
	}
	if err = errors.Join(err, l.sync()); err != nil {
		l.refuse(err)
		return
	}
	l.refused = false
	l.options.Taken()
}

// waiting is the batch that brings the disk up to date.
func (l *Log) waiting() []Op {
	ops := make([]Op, 0, len(l.unsaved))
	for _, key := range slices.Sorted(maps.Keys(l.unsaved)) {
		op := Op{Key: key, Delete: true}
		if e := l.index[key]; e != nil {
			op.Value, op.Delete = e.memory, false
		}
		ops = append(ops, op)
	}
	return ops
}

// hold keeps changes in memory.
func (l *Log) hold(ops []Op) error {
	var need int64
	for _, op := range ops {
		need += weight(op.Key, op.Value)
	}
	if !l.options.Memory.take(need) {
		return ErrFull
	}
	for _, op := range ops {
		l.holdOne(op)
	}
	l.held += need
	return nil
}

func (l *Log) holdOne(op Op) {
	if l.unsaved[op.Key] { // the one before is over
		was := weight(op.Key, nil)
		if e := l.index[op.Key]; e != nil {
			was = weight(op.Key, e.memory)
		}
		l.release(was)
	}
	l.unsaved[op.Key] = true
	if op.Delete {
		l.forget(op.Key)
		return
	}
	e := l.index[op.Key]
	if e == nil {
		e = &entry{}
		l.index[op.Key] = e
	}
	e.memory, e.held = slices.Clone(op.Value), true
}

func (l *Log) release(n int64) {
	l.held -= n
	l.options.Memory.give(n)
}

// weight is what a key takes in memory, about, and on disk at most.
func weight(key string, value []byte) int64 { return int64(len(key) + len(value) + 64) }

// forget drops a key from the index.
func (l *Log) forget(key string) {
	if e := l.index[key]; e != nil {
		l.leave(key, e)
		delete(l.index, key)
	}
}

// leave takes the value of an entry from its segment.
func (l *Log) leave(key string, e *entry) {
	if e.segment != nil {
		e.segment.live--
		l.live -= int64(len(key) + e.size + headerSize)
		e.segment = nil
	}
}

// settle notes that the disk has the value of a key, or that it has none.
func (l *Log) settle(op stored, in *segment, sequence uint64) {
	if op.Delete {
		l.forget(op.Key)
		return
	}
	e := l.index[op.Key]
	if e == nil {
		e = &entry{}
		l.index[op.Key] = e
	}
	l.leave(op.Key, e)
	*e = entry{segment: in, at: int64(op.at), size: len(op.Value), sum: checksum(op.Value), sequence: sequence}
	in.live++
	l.live += int64(len(op.Key) + e.size + headerSize)
}

// value reads the value of a key.
func (l *Log) value(key string) ([]byte, error) {
	e := l.index[key]
	if e == nil {
		return nil, nil
	}
	if e.held {
		return append(make([]byte, 0, len(e.memory)), e.memory...), nil
	}
	value := make([]byte, e.size)
	if _, err := e.segment.file.ReadAt(value, e.at); err != nil {
		return nil, fmt.Errorf("read %s: %w", e.segment.path, err)
	}
	if checksum(value) != e.sum { // damaged since it was read at the start
		l.options.Damaged(e.segment.path, int64(e.size))
		e.segment.damaged = true
		l.forget(key)
		return nil, nil
	}
	return value, nil
}
