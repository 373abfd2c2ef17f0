// Package journal keeps the state of a processor in a storage extension: a
// snapshot, the calls since, and the items that the next consumer has not taken.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
//	j/<generation>/<n>  journal since that snapshot, n from 0 without gaps; while the next
//	                    snapshot is stored, the journal goes on in the next generation
//	o/<n>               items that the next consumer has not taken, without gaps: what
//	                    gave way before its turn leaves an empty one
//	outbox              the first n of o/
//	o/<name>/<n>, outbox/<name>  the same of a second outbox
const (
	keyState  = "state"
	keyOutbox = "outbox"

	itemPrefix = "o/"
	// mostDamage bounds what is said of one gap.
	mostDamage = 1000
)

func entriesOf(generation uint64) string { return fmt.Sprintf("j/%016x/", generation) }

func chunksOf(generation uint64) string { return fmt.Sprintf("s/%016x/", generation) }

func keyEntry(generation, n uint64) string { return fmt.Sprintf("%s%08x", entriesOf(generation), n) }

func keyChunk(generation, n uint64) string { return fmt.Sprintf("%s%08x", chunksOf(generation), n) }

// prefix begins the keys of an outbox's items.
func (o *Outbox) prefix() string {
	if o.Name == "" {
		return itemPrefix
	}
	return itemPrefix + o.Name + "/"
}

func (o *Outbox) keyItem(n uint64) string { return fmt.Sprintf("%s%016x", o.prefix(), n) }

// keyBounds is where the first n of an outbox is.
func (o *Outbox) keyBounds() string {
	if o.Name == "" {
		return keyOutbox
	}
	return keyOutbox + "/" + o.Name
}

// owns reports whether a key is an item of the outbox.
func (o *Outbox) owns(key string) bool {
	rest, ours := strings.CutPrefix(key, o.prefix())
	return ours && !strings.Contains(rest, "/")
}

// A snapshot replaces the journal when it has SnapshotEntries, or bytes
// beyond both this many and twice the last snapshot: so that neither replay nor
// snapshots cost more than a constant per record.
const (
	SnapshotEntries = 4096
	snapshotBytes   = 1 << 20

	// Storages check and copy values one by one, so a snapshot is stored in parts.
	chunkBytes = 16 << 10
)

// Journal keeps state and outbox in a storage client.
type Journal struct {
	Client walkable

	generation                 // of which the next entry is
	bytes         int          // of its entries
	before        []generation // since the stored snapshot, with its own: the storage has them
	outdated      []generation // the storage may have them, and needs them no more
	snapshotBytes int
	saving        chan struct{} // closed when the snapshot is stored that Save takes; nil when it takes none

	// Second is written with each outbox that Write is given, nil for none.
	Second *Outbox
}

// generation is what begins with a snapshot.
type generation struct {
	number  uint64
	chunks  uint64 // of its snapshot
	entries uint64 // after it
}

// walkable is a storage client whose keys can be listed: after damage, keys are
// missing that others stand behind.
type walkable interface {
	storage.Client
	storage.Walker
}

// Open takes the part of a storage that belongs to a processor.
func Open(ctx context.Context, extension storage.Extension, processor component.ID) (*Journal, error) {
	client, err := extension.GetClient(ctx, component.KindProcessor, processor, "")
	if err != nil {
		return nil, err
	}
	listed, ok := client.(walkable)
	if !ok {
		return nil, errors.Join(errors.New("this storage cannot list its keys: use file_storage"), client.Close(ctx))
	}
	return &Journal{Client: listed}, nil
}

// batch applies operations.
func (j *Journal) batch(ctx context.Context, ops ...*storage.Operation) error {
	return j.Client.Batch(context.WithoutCancel(ctx), ops...)
}

// Write applies operations together with what is needed to make the stored
// outbox equal to o, and the second to what it is, whatever failed to be written before.
func (j *Journal) Write(ctx context.Context, o *Outbox, ops ...*storage.Operation) error {
	outboxes := []*Outbox{o}
	if j.Second != nil {
		outboxes = append(outboxes, j.Second)
	}
	var all []*storage.Operation
	items := make([][]uint64, len(outboxes))
	for i, o := range outboxes {
		var changes []*storage.Operation
		changes, items[i] = o.changes()
		all = append(all, changes...)
	}
	err := j.batch(ctx, append(all, ops...)...)
	for i, o := range outboxes {
		if o.unsure = err != nil; err == nil {
			o.stored = items[i]
		}
	}
	return err
}

// changes returns what makes the stored outbox equal to o, and the items it then has.
func (o *Outbox) changes() (ops []*storage.Operation, items []uint64) {
	var gone []*storage.Operation
	stored := o.stored
	for i := range o.slots {
		w := &o.slots[i]
		for len(stored) > 0 && stored[0] < w.number {
			gone, stored = append(gone, storage.DeleteOperation(o.keyItem(stored[0]))), stored[1:]
		}
		known := len(stored) > 0 && stored[0] == w.number
		switch {
		case w.place == nil:
			continue
		case known:
			stored = stored[1:]
		default:
			ops = append(ops, storage.SetOperation(o.keyItem(w.number), seal(verdictMagic, w.item)))
		}
		items = append(items, w.number)
	}
	for _, n := range stored {
		gone = append(gone, storage.DeleteOperation(o.keyItem(n)))
	}
	if len(ops)+len(gone) == 0 && !o.unsure {
		return nil, items
	}
	bounds := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, o.head()), uint64(len(items)))
	return append(append(ops, storage.SetOperation(o.keyBounds(), seal(boundsMagic, bounds))), gone...), items
}

// Append writes one entry.
func (j *Journal) Append(ctx context.Context, e *Entry, o *Outbox) error {
	value := e.Encode()
	if err := j.Write(ctx, o, storage.SetOperation(keyEntry(j.number, j.entries), value)); err != nil {
		return err
	}
	j.entries++
	j.bytes += len(value)
	return nil
}

// Full says that a snapshot should replace the journal, and none is being taken.
func (j *Journal) Full() bool {
	return j.saving == nil && (j.entries >= SnapshotEntries || j.bytes >= max(snapshotBytes, 2*j.snapshotBytes))
}

// Snapshot replaces the journal in one batch. Save must not be at it. The generation that the
// snapshot begins in is written after its chunks, so an old entry is never replayed on it.
func (j *Journal) Snapshot(ctx context.Context, state []byte, o *Outbox) error {
	next := generation{number: j.number + 1}
	ops := next.store(state)
	next.chunks = uint64(len(ops))
	ops = append(ops, next.head())
	over := slices.Concat(j.outdated, j.before, []generation{j.generation})
	for _, g := range over {
		ops = append(ops, g.remove()...)
	}
	if err := j.Write(ctx, o, ops...); err != nil {
		return err
	}
	*j = Journal{Client: j.Client, generation: next, snapshotBytes: len(state), Second: j.Second}
	return nil
}

// store is what stores a snapshot.
func (g generation) store(state []byte) (ops []*storage.Operation) {
	for chunk := range slices.Chunk(seal(stateMagic, state), chunkBytes) {
		ops = append(ops, storage.SetOperation(keyChunk(g.number, uint64(len(ops))), chunk))
	}
	return ops
}

// head makes it the generation that the storage begins with.
func (g generation) head() *storage.Operation {
	return storage.SetOperation(keyState, seal(headMagic, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, g.number), g.chunks)))
}

// remove is what removes it.
func (g generation) remove() (ops []*storage.Operation) {
	for n := range g.chunks {
		ops = append(ops, storage.DeleteOperation(keyChunk(g.number, n)))
	}
	for n := range g.entries {
		ops = append(ops, storage.DeleteOperation(keyEntry(g.number, n)))
	}
	return ops
}

// Load reads the snapshot. A nil state is a storage without one.
func (j *Journal) Load(ctx context.Context) (state []byte, err error) {
	get := storage.GetOperation(keyState)
	if err := j.batch(ctx, get); err != nil {
		return nil, err
	}
	if get.Value != nil {
		if state, err = j.loadSnapshot(ctx, get.Value); err != nil {
			return nil, err
		}
	}
	return state, j.removeOthers(ctx)
}

func (j *Journal) loadSnapshot(ctx context.Context, sealed []byte) ([]byte, error) {
	head, err := unseal(headMagic, sealed)
	if err != nil || len(head) != 16 {
		return nil, fmt.Errorf("stored state: %w", ErrForeign)
	}
	j.generation = generation{number: binary.BigEndian.Uint64(head), chunks: binary.BigEndian.Uint64(head[8:])}
	chunks, err := j.read(ctx, chunksOf(j.number))
	if err != nil {
		return nil, err
	}
	var whole []byte
	for _, chunk := range chunks {
		whole = append(whole, chunk.value...)
	}
	state, err := unseal(stateMagic, whole)
	if err != nil || uint64(len(chunks)) != j.chunks {
		return nil, fmt.Errorf("stored snapshot: %w", ErrForeign)
	}
	j.snapshotBytes = len(state)
	return state, nil
}

// removeOthers removes what belongs to other generations than those that Replay reads. Damage
// can take the batch that removed it, and a later generation could have its number.
func (j *Journal) removeOthers(ctx context.Context) error {
	last, err := j.last(ctx)
	if err != nil {
		return err
	}
	return j.remove(ctx, func(key string) bool {
		n, ours := entryOf(key)
		return strings.HasPrefix(key, "s/") && !strings.HasPrefix(key, chunksOf(j.number)) ||
			strings.HasPrefix(key, "j/") && (!ours || n < j.number || n > last)
	})
}

// last is the number of the last generation that goes on with what the snapshot begins: each
// before it has entries, for Save is called when there are, unless damage took those of the first.
func (j *Journal) last(ctx context.Context) (uint64, error) {
	has := map[uint64]bool{}
	err := j.Client.Walk(context.WithoutCancel(ctx), func(key string, _ []byte) ([]*storage.Operation, error) {
		if n, ours := entryOf(key); ours {
			has[n] = true
		}
		return nil, nil
	})
	last := j.number
	for has[last+1] && (has[last] || last == j.number && j.chunks > 0) {
		last++
	}
	return last, err
}

// entryOf is the generation of a key of an entry.
func entryOf(key string) (generation uint64, ours bool) {
	digits, _, _ := strings.Cut(strings.TrimPrefix(key, "j/"), "/")
	generation, err := strconv.ParseUint(digits, 16, 64)
	return generation, err == nil && strings.HasPrefix(key, entriesOf(generation))
}

// Replay gives the entries since the snapshot in order. An entry that is damaged or
// missing comes as an error and does not hide those behind it.
func (j *Journal) Replay(ctx context.Context, give func(Entry, error)) error {
	last, err := j.last(ctx)
	if err != nil {
		return err
	}
	for {
		entries, err := j.read(ctx, entriesOf(j.number))
		for _, e := range entries {
			if e.n != j.entries {
				give(Entry{}, fmt.Errorf("journal entries %d to %d are missing", j.entries, e.n-1))
			}
			j.entries = e.n + 1
			j.bytes += len(e.value)
			give(DecodeEntry(e.value))
		}
		if err != nil || j.number == last {
			return err
		}
		if len(entries) == 0 {
			give(Entry{}, errors.New("all journal entries of a generation are missing"))
		}
		j.before = append(j.before, j.generation)
		j.generation = generation{number: j.number + 1}
	}
}

// numbered is a value whose key ends in a number.
type numbered struct {
	n     uint64
	value []byte
}

// read returns the values under a prefix in the order of their numbers.
func (j *Journal) read(ctx context.Context, prefix string) ([]numbered, error) {
	var found []numbered
	err := j.Client.Walk(context.WithoutCancel(ctx), func(key string, value []byte) ([]*storage.Operation, error) {
		digits, ok := strings.CutPrefix(key, prefix)
		if n, err := strconv.ParseUint(digits, 16, 64); ok && err == nil {
			found = append(found, numbered{n: n, value: bytes.Clone(value)})
		}
		return nil, nil
	})
	slices.SortFunc(found, func(a, b numbered) int { return cmp.Compare(a.n, b.n) })
	return found, err
}

// LoadOutbox fills o with the items that were not taken, as far as check
// accepts them, and returns what was wrong with the others.
func (j *Journal) LoadOutbox(ctx context.Context, o *Outbox, check func(item []byte) error) (damage []error) {
	get := storage.GetOperation(o.keyBounds())
	if err := j.batch(ctx, get); err != nil {
		return []error{err}
	}
	items, err := j.read(ctx, o.prefix())
	if err != nil {
		return []error{err}
	}
	head, count, err := readBounds(get.Value)
	switch {
	case err == nil:
	case get.Value != nil || len(items) > 0: // an item too many is better than one lost
		damage = append(damage, fmt.Errorf("stored outbox: %w", ErrForeign))
	}
	o.next, o.stored = head, nil
	for _, item := range items {
		o.stored = append(o.stored, item.n) // the next write removes what is no item of o
		if item.n < head {
			count++
			continue
		}
		if err := j.loadItem(o, item, check); err != nil {
			damage = append(damage, err)
		}
	}
	for n := len(items); n < count && len(damage) < mostDamage; n++ {
		damage = append(damage, errors.New("a stored item is missing"))
	}
	return damage
}

// readBounds reads the number of the first item and how many there are. A version before
// this one stored the first alone.
func readBounds(sealed []byte) (head uint64, count int, err error) {
	bounds, err := unseal(boundsMagic, sealed)
	switch {
	case err != nil:
		return 0, 0, err
	case len(bounds) == 8:
		return binary.BigEndian.Uint64(bounds), 0, nil
	case len(bounds) == 16:
		return binary.BigEndian.Uint64(bounds), int(min(binary.BigEndian.Uint64(bounds[8:]), 1<<31)), nil
	}
	return 0, 0, ErrForeign
}

func (j *Journal) loadItem(o *Outbox, item numbered, check func(item []byte) error) error {
	plain, err := unseal(verdictMagic, item.value)
	if err == nil {
		err = check(plain)
	}
	if err == nil {
		o.put(item.n, o.ownerOf(plain), plain)
	}
	return err
}

// ResetState forgets snapshot and journal and continues in a generation that no
// entry left behind can belong to.
func (j *Journal) ResetState(ctx context.Context, now time.Time) error {
	*j = Journal{
		Client: j.Client, generation: generation{number: max(j.number+1, uint64(now.UnixNano()))},
		Second: j.Second,
	}
	return j.remove(ctx, func(key string) bool {
		return key == keyState || strings.HasPrefix(key, "s/") || strings.HasPrefix(key, "j/")
	})
}

// ResetOutbox forgets the stored items; the next write stores what o holds,
// under numbers that no item left behind has.
func (j *Journal) ResetOutbox(ctx context.Context, o *Outbox) error {
	last := o.next
	if len(o.stored) > 0 {
		last = max(last, o.stored[len(o.stored)-1]+1)
	}
	o.renumber(last + 1)
	o.stored = nil
	return j.remove(ctx, func(key string) bool { return key == o.keyBounds() || o.owns(key) })
}

// remove deletes keys.
func (j *Journal) remove(ctx context.Context, which func(key string) bool) error {
	return j.Client.Walk(context.WithoutCancel(ctx), func(key string, _ []byte) ([]*storage.Operation, error) {
		if which(key) {
			return []*storage.Operation{storage.DeleteOperation(key)}, nil
		}
		return nil, nil
	})
}
