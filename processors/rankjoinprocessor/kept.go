package rankjoinprocessor

import (
	"context"
	"encoding/binary"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/plog"
)

// kept holds in the storage what is not joined yet, so that a crash within the
// window loses no dump: their receiver does not read a file twice. Once all is
// joined and delivered it is empty.
//
// Layout: "range" has the first and the next number (8 bytes each, big-endian),
// "batch/<n>" the Flight Recorder records of one batch in OTLP.
type kept struct {
	client      storage.Client // nil: nothing is kept
	first, next uint64
}

// mostKept bounds the batches in the storage; what comes beyond is joined all
// the same.
const mostKept = 65_536

// openKept opens the storage; without an id there is none.
func openKept(ctx context.Context, host component.Host, id *component.ID, self component.ID) (*kept, error) {
	if id == nil {
		return &kept{}, nil
	}
	extension, found := host.GetExtensions()[*id]
	if !found {
		return nil, fmt.Errorf("storage %q is not there: define it under extensions and name it in service::extensions", id)
	}
	keeper, ok := extension.(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("storage %q is not a storage extension: name one, such as file_storage", id)
	}
	client, err := keeper.GetClient(ctx, component.KindProcessor, self, "")
	if err != nil {
		return nil, fmt.Errorf("storage %q: %w", id, err)
	}
	return &kept{client: client}, nil
}

func batchKey(n uint64) string { return fmt.Sprintf("batch/%d", n) }

func (k *kept) span() *storage.Operation {
	value := binary.BigEndian.AppendUint64(nil, k.first)
	return storage.SetOperation("range", binary.BigEndian.AppendUint64(value, k.next))
}

// load gives each batch that an earlier process left. A damaged one is skipped.
func (k *kept) load(ctx context.Context, each func(plog.Logs)) error {
	if k.client == nil {
		return nil
	}
	value, err := k.client.Get(ctx, "range")
	if err != nil || len(value) != 16 {
		return err
	}
	k.first, k.next = binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:])
	if k.next < k.first || k.next-k.first > mostKept {
		k.first = k.next
	}
	for n := k.first; n < k.next; n++ {
		data, err := k.client.Get(ctx, batchKey(n))
		if err != nil {
			return err
		}
		if logs, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(data); err == nil {
			each(logs)
		}
	}
	return nil
}

// keep writes a batch.
func (k *kept) keep(ctx context.Context, logs plog.Logs) error {
	if k.client == nil || k.next-k.first >= mostKept {
		return nil
	}
	data, err := (&plog.ProtoMarshaler{}).MarshalLogs(logs)
	if err != nil {
		return err
	}
	set := storage.SetOperation(batchKey(k.next), data)
	k.next++
	return k.client.Batch(ctx, set, k.span())
}

// clear removes all batches: they are joined.
func (k *kept) clear(ctx context.Context) error {
	if k.client == nil || k.first == k.next {
		return nil
	}
	operations := []*storage.Operation{}
	for n := k.first; n < k.next; n++ {
		operations = append(operations, storage.DeleteOperation(batchKey(n)))
	}
	k.first = k.next
	return k.client.Batch(ctx, append(operations, k.span())...)
}

func (k *kept) close(ctx context.Context) error {
	if k.client == nil {
		return nil
	}
	return k.client.Close(ctx)
}
