// Package journal keeps the state of a processor in a storage extension: a
// snapshot, the calls since, and the items that the next consumer has not taken.
package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// Layout of the storage. Every change is one Batch; where a storage does not
// apply a Batch as one, the order of the operations makes what is left after a
// crash safe: items before the entry that made them, a snapshot before the
// journal it replaces goes.
//
//	state               generation, number of chunks
//	s/<generation>/<n>  the snapshot in chunks
//	j/<generation>/<n>  journal since that snapshot, n from 0 without gaps
//	o/<n>               items that the next consumer has not taken, without gaps
//	outbox              the first n of o/
const (
	keyState  = "state"
	keyOutbox = "outbox"
)

func keyEntry(generation, n uint64) string { return fmt.Sprintf("j/%016x/%08x", generation, n) }

func keyChunk(generation, n uint64) string { return fmt.Sprintf("s/%016x/%08x", generation, n) }

func keyItem(n uint64) string { return fmt.Sprintf("o/%016x", n) }

// A snapshot replaces the journal when it has SnapshotEntries, or bytes
// beyond both this many and twice the last snapshot: so that neither replay nor
// snapshots cost more than a constant per record.
const (
	SnapshotEntries = 4096
	snapshotBytes   = 1 << 20
	readAtOnce      = 256 // keys in one Batch when reading: each is a transaction

	// bbolt copies a leaf with all its values to change one: a snapshot under one
	// key would be copied with each write of a neighbour.
	chunkBytes = 16 << 10
)

// Journal keeps state and outbox in a storage client.
type Journal struct {
	Client storage.Client

	generation    uint64
	entries       uint64 // in this generation
	bytes         int    // of those entries
	chunks        uint64 // of the snapshot of this generation
	snapshotBytes int

	outboxHead, outboxTail uint64 // the items that are stored
}

// Extension finds a storage extension by its id; nil for no id.
func Extension(host component.Host, id *component.ID) (storage.Extension, error) {
	if id == nil {
		return nil, nil
	}
	found, ok := host.GetExtensions()[*id]
	if !ok {
		return nil, fmt.Errorf("storage %q is not there: define it under extensions and name it in service::extensions", *id)
	}
	extension, ok := found.(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("storage %q is not a storage extension: name one, such as file_storage", *id)
	}
	return extension, nil
}

// Open takes the part of a storage that belongs to a processor.
func Open(ctx context.Context, extension storage.Extension, processor component.ID) (j *Journal, err error) {
	defer func() {
		if r := recover(); r != nil { // bbolt on a damaged file
			j, err = nil, fmt.Errorf("storage panicked: %v", r)
		}
	}()
	client, err := extension.GetClient(ctx, component.KindProcessor, processor, "")
	if err != nil {
		return nil, err
	}
	return &Journal{Client: client}, nil
}

// batch applies operations. A storage that panics on damaged pages (bbolt does)
// is an error like another.
func (j *Journal) batch(ctx context.Context, ops ...*storage.Operation) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("storage panicked: %v", r)
		}
	}()
	return j.Client.Batch(context.WithoutCancel(ctx), ops...)
}

// Write applies operations together with what is needed to make the stored
// outbox equal to o, whatever failed to be written before.
func (j *Journal) Write(ctx context.Context, o *Outbox, ops ...*storage.Operation) error {
	if err := j.batch(ctx, append(j.outboxOps(o), ops...)...); err != nil {
		return err
	}
	j.outboxHead, j.outboxTail = o.head, o.tail()
	return nil
}

func (j *Journal) outboxOps(o *Outbox) []*storage.Operation {
	if j.outboxHead == o.head && j.outboxTail == o.tail() {
		return nil
	}
	var ops []*storage.Operation
	for n := max(j.outboxTail, o.head); n < o.tail(); n++ {
		ops = append(ops, storage.SetOperation(keyItem(n), seal(verdictMagic, o.items[n-o.head])))
	}
	head := seal(boundsMagic, binary.BigEndian.AppendUint64(nil, o.head))
	ops = append(ops, storage.SetOperation(keyOutbox, head))
	for n := j.outboxHead; n < min(j.outboxTail, o.head); n++ {
		ops = append(ops, storage.DeleteOperation(keyItem(n)))
	}
	return ops
}

// Append writes one entry.
func (j *Journal) Append(ctx context.Context, e *Entry, o *Outbox) error {
	value := e.Encode()
	if err := j.Write(ctx, o, storage.SetOperation(keyEntry(j.generation, j.entries), value)); err != nil {
		return err
	}
	j.entries++
	j.bytes += len(value)
	return nil
}

// Full says that a snapshot should replace the journal.
func (j *Journal) Full() bool {
	return j.entries >= SnapshotEntries || j.bytes >= max(snapshotBytes, 2*j.snapshotBytes)
}

// Snapshot replaces the journal. The generation that the snapshot begins in is
// written after its chunks, so an old entry is never replayed on it.
func (j *Journal) Snapshot(ctx context.Context, state []byte, o *Outbox) error {
	var ops []*storage.Operation
	generation, chunks := j.generation+1, uint64(0)
	for chunk := range slices.Chunk(seal(stateMagic, state), chunkBytes) {
		ops = append(ops, storage.SetOperation(keyChunk(generation, chunks), chunk))
		chunks++
	}
	head := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, generation), chunks)
	ops = append(ops, storage.SetOperation(keyState, seal(headMagic, head)))
	for n := range j.chunks {
		ops = append(ops, storage.DeleteOperation(keyChunk(j.generation, n)))
	}
	for n := range j.entries {
		ops = append(ops, storage.DeleteOperation(keyEntry(j.generation, n)))
	}
	if err := j.Write(ctx, o, ops...); err != nil {
		return err
	}
	*j = Journal{
		Client: j.Client, generation: generation, chunks: chunks, snapshotBytes: len(state),
		outboxHead: j.outboxHead, outboxTail: j.outboxTail,
	}
	return nil
}

// Load reads the snapshot. A nil state is a storage without one.
func (j *Journal) Load(ctx context.Context) (state []byte, err error) {
	get := storage.GetOperation(keyState)
	if err := j.batch(ctx, get); err != nil || get.Value == nil {
		return nil, err
	}
	head, err := unseal(headMagic, get.Value)
	if err != nil || len(head) != 16 {
		return nil, fmt.Errorf("stored state: %w", ErrForeign)
	}
	j.generation, j.chunks = binary.BigEndian.Uint64(head), binary.BigEndian.Uint64(head[8:])
	var sealed []byte
	found := uint64(0)
	err = j.read(ctx, 0, func(n uint64) string { return keyChunk(j.generation, n) }, func(chunk []byte) {
		sealed = append(sealed, chunk...)
		found++
	})
	if err != nil {
		return nil, err
	}
	state, err = unseal(stateMagic, sealed)
	if err != nil || found != j.chunks {
		return nil, fmt.Errorf("stored snapshot: %w", ErrForeign)
	}
	j.snapshotBytes = len(state)
	return state, nil
}

// Replay gives the entries of this generation in order. A damaged entry comes
// as an error and does not hide those behind it.
func (j *Journal) Replay(ctx context.Context, give func(Entry, error)) error {
	key := func(n uint64) string { return keyEntry(j.generation, n) }
	return j.read(ctx, 0, key, func(value []byte) {
		j.entries++
		j.bytes += len(value)
		give(DecodeEntry(value))
	})
}

// read gives the values of consecutive keys up to the first that is missing.
func (j *Journal) read(ctx context.Context, from uint64, key func(uint64) string, give func([]byte)) error {
	for ; ; from += readAtOnce {
		ops := make([]*storage.Operation, readAtOnce)
		for i := range ops {
			ops[i] = storage.GetOperation(key(from + uint64(i)))
		}
		if err := j.batch(ctx, ops...); err != nil {
			return err
		}
		for _, op := range ops {
			if op.Value == nil {
				return nil
			}
			give(op.Value)
		}
	}
}

// LoadOutbox fills o with the items that were not taken, as far as check
// accepts them, and returns what was wrong with the others.
func (j *Journal) LoadOutbox(ctx context.Context, o *Outbox, check func(item []byte) error) (damage []error) {
	get := storage.GetOperation(keyOutbox)
	if err := j.batch(ctx, get); err != nil {
		return []error{err}
	}
	if get.Value == nil {
		return nil
	}
	bounds, err := unseal(boundsMagic, get.Value)
	if err != nil || len(bounds) != 8 {
		return []error{fmt.Errorf("stored outbox: %w", ErrForeign)}
	}
	o.head = binary.BigEndian.Uint64(bounds)
	j.outboxHead, j.outboxTail = o.head, o.head
	err = j.read(ctx, o.head, keyItem, func(value []byte) {
		j.outboxTail++
		item, err := unseal(verdictMagic, value)
		if err == nil {
			err = check(item)
		}
		if err != nil {
			damage = append(damage, err)
			return
		}
		o.items, o.bytes = append(o.items, item), o.bytes+len(item)
	})
	if err != nil {
		damage = append(damage, err)
	}
	return damage
}

// ResetState forgets snapshot and journal and continues in a generation that no
// entry left behind can belong to.
func (j *Journal) ResetState(ctx context.Context, now time.Time) error {
	*j = Journal{
		Client: j.Client, generation: max(j.generation+1, uint64(now.UnixNano())),
		outboxHead: j.outboxHead, outboxTail: j.outboxTail,
	}
	return j.remove(ctx, func(key string) bool {
		return key == keyState || strings.HasPrefix(key, "s/") || strings.HasPrefix(key, "j/")
	})
}

// ResetOutbox forgets the stored items; the next write stores what o holds,
// under numbers that no item left behind has.
func (j *Journal) ResetOutbox(ctx context.Context, o *Outbox) error {
	o.head = max(o.head, j.outboxTail) + 1
	j.outboxHead, j.outboxTail = o.head, o.head
	return j.remove(ctx, func(key string) bool { return key == keyOutbox || strings.HasPrefix(key, "o/") })
}

// remove deletes keys. A storage that cannot be walked keeps them; nothing reads
// them again.
func (j *Journal) remove(ctx context.Context, which func(key string) bool) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("storage panicked: %v", r)
		}
	}()
	walker, ok := j.Client.(storage.Walker)
	if !ok {
		return nil
	}
	return walker.Walk(context.WithoutCancel(ctx), func(key string, _ []byte) ([]*storage.Operation, error) {
		if which(key) {
			return []*storage.Operation{storage.DeleteOperation(key)}, nil
		}
		return nil, nil
	})
}
