package journal

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// chunksAtOnce are stored in one batch beside the journal.
const chunksAtOnce = 16

// Save begins to replace the journal by a snapshot of what is so far, in a goroutine: to encode
// and store some MiB takes so long that what is told meanwhile would come late. lock is what
// orders the calls of the journal, and is held; encode is called without it. failed is told with
// it of an error: Snapshot comes next then.
func (j *Journal) Save(ctx context.Context, lock sync.Locker, encode func() ([]byte, error), failed func(error)) {
	ctx = context.WithoutCancel(ctx)
	c := j.begin()
	j.saving = make(chan struct{})
	go func() {
		state, err := encode()
		if err == nil {
			err = c.store(ctx, state)
		}
		lock.Lock()
		err = j.commit(ctx, c, err)
		lock.Unlock()
		if err == nil {
			err = c.clean(ctx)
		}
		lock.Lock()
		defer lock.Unlock()
		close(j.saving)
		if j.saving = nil; err != nil {
			failed(err)
			return
		}
		j.outdated = nil
	}()
}

// Saving says that Save is at it.
func (j *Journal) Saving() bool { return j.saving != nil }

// Saved waits for Save. The caller sees to it that nobody calls Save meanwhile.
func (j *Journal) Saved(lock sync.Locker) {
	lock.Lock()
	saving := j.saving
	lock.Unlock()
	if saving != nil {
		<-saving
	}
}

// checkpoint is a snapshot that is stored while the journal goes on.
type checkpoint struct {
	client storage.Client
	next   generation
	bytes  int
	over   []generation // what it replaces
}

// begin: entries from now on come after the snapshot. Until it is committed, the generations
// before it and its own are replayed.
func (j *Journal) begin() *checkpoint {
	j.before = append(j.before, j.generation)
	j.generation, j.bytes = generation{number: j.number + 1}, 0
	return &checkpoint{client: j.Client, next: j.generation}
}

// store stores the snapshot, in parts: what else is written waits for one part at most.
func (c *checkpoint) store(ctx context.Context, state []byte) error {
	ops := c.next.store(state)
	c.next.chunks, c.bytes = uint64(len(ops)), len(state)
	return c.batches(ctx, ops)
}

func (c *checkpoint) batches(ctx context.Context, ops []*storage.Operation) error {
	for part := range slices.Chunk(ops, chunksAtOnce) {
		if err := c.client.Batch(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the snapshot the one that the storage begins with, if it is stored without error.
func (j *Journal) commit(ctx context.Context, c *checkpoint, stored error) error {
	j.chunks = c.next.chunks // some of them are there if it failed
	if stored != nil {
		return stored
	}
	if err := j.batch(ctx, c.next.head()); err != nil {
		return err
	}
	c.over = slices.Concat(j.outdated, j.before)
	j.outdated, j.before, j.snapshotBytes = c.over, nil, c.bytes
	return nil
}

// clean removes what the snapshot has replaced.
func (c *checkpoint) clean(ctx context.Context) (err error) {
	for _, g := range c.over {
		err = errors.Join(err, c.batches(ctx, g.remove()))
	}
	return err
}
