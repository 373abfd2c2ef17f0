package filestorageextension

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/extensions/filestorageextension/internal/statelog"
)

// client is the state of one component.
type client struct {
	name    string
	release func(name string)
	lost    func(error)
	log     *statelog.Log
}

var _ storage.Walker = (*client)(nil)

// Get returns the value of a key, nil where there is none.
func (c *client) Get(_ context.Context, key string) ([]byte, error) { return c.log.Get(key) }

// Set stores a value.
func (c *client) Set(ctx context.Context, key string, value []byte) error {
	return c.Batch(ctx, storage.SetOperation(key, value))
}

// Delete forgets a key.
func (c *client) Delete(ctx context.Context, key string) error {
	return c.Batch(ctx, storage.DeleteOperation(key))
}

// Batch makes the changes as one, in order. A Get sees what the operations before
// it changed.
func (c *client) Batch(_ context.Context, ops ...*storage.Operation) error {
	var changes []statelog.Op
	changed := map[string][]byte{}
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			value, found := changed[op.Key]
			if !found {
				var err error
				if value, err = c.log.Get(op.Key); err != nil {
					return err
				}
			}
			op.Value = value
		case storage.Set:
			changed[op.Key] = op.Value
			changes = append(changes, statelog.Op{Key: op.Key, Value: op.Value})
		case storage.Delete:
			changed[op.Key] = nil
			changes = append(changes, statelog.Op{Key: op.Key, Delete: true})
		default:
			return fmt.Errorf("operation %d on key %q is not known", op.Type, op.Key)
		}
	}
	err := c.log.Apply(changes...)
	if errors.Is(err, statelog.ErrFull) {
		return fmt.Errorf("%w: %w", storage.ErrStorageFull, err)
	}
	return err
}

// Walk gives each key and value and makes the changes that fn asks for.
func (c *client) Walk(ctx context.Context, fn storage.WalkFunc) error {
	var changes []*storage.Operation
	for _, key := range c.log.Keys() {
		if err := ctx.Err(); err != nil {
			return err
		}
		value, err := c.log.Get(key)
		if err != nil {
			return err
		}
		if value == nil {
			continue // damaged, or gone
		}
		ops, err := fn(key, value)
		if err != nil && !errors.Is(err, storage.SkipAll) {
			return err
		}
		changes = append(changes, ops...)
		if err != nil {
			break
		}
	}
	return c.Batch(ctx, changes...)
}

// Close writes what waits. What the disk does not take even now is lost, and said: it
// is no reason for the process to end with an error.
func (c *client) Close(context.Context) error {
	c.release(c.name)
	err := c.log.Close()
	if errors.Is(err, statelog.ErrLost) {
		c.lost(err)
		return nil
	}
	return err
}
