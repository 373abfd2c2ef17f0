package alertexporter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

const (
	// mostOpen bounds the alerts that are open: 4 KiB each, all of it some 16 MiB.
	mostOpen = 4096
	// mostEntry bounds what is read back of one. An alert is 16 pieces of evidence and 16 of
	// what was not seen of 1 KiB each (mostSeen), a headline of 1 KiB, a remedy of 2 KiB and
	// labels of 4 KiB: 42 KiB, which the quotes of JSON can double.
	mostEntry = 128 << 10
	// mostRevisions bounds the memory of revisions, twice.
	mostRevisions = 8192
)

// open is an alert that was started and has not ended.
type open struct {
	alert
	Seen   time.Time `json:"seen"`             // when a verdict last said so
	Domain string    `json:"domain,omitempty"` // of its job

	place *fairlru.Element[string] // in the order of who gives way
}

// book holds what is open, by the id of its verdict, in memory and in the storage. It
// outlives a restart, so that nobody is told twice, and that what ends is what began.
type book struct {
	client storage.Client // nil without storage
	open   map[string]*open
	order  fairlru.List[string]

	// The newest revision of each verdict that came: a queue may give an older one after
	// it, when a process was killed while it sent that.
	young, old map[string]int
}

func newBook() *book {
	return &book{open: map[string]*open{}, young: map[string]int{}, old: map[string]int{}}
}

// load reads what was open.
func (b *book) load(ctx context.Context, client storage.Client) error {
	b.client = client
	if client == nil {
		return nil
	}
	walker, ok := client.(storage.Walker)
	if !ok {
		return fmt.Errorf("the storage cannot list what it holds: name a file_storage")
	}
	return walker.Walk(ctx, func(id string, text []byte) ([]*storage.Operation, error) {
		entry := &open{}
		if len(text) > mostEntry || json.Unmarshal(text, entry) != nil || len(entry.Labels) == 0 || len(b.open) >= mostOpen {
			return []*storage.Operation{storage.DeleteOperation(id)}, nil
		}
		b.hold(id, entry)
		return nil, nil
	})
}

// put enters an alert, or what it says now. Where there is no room, an alert of the node,
// pattern, domain and job that have most gives way; it is returned by its id.
func (b *book) put(ctx context.Context, id string, entry *open) (gone string, err error) {
	b.hold(id, entry)
	if len(b.open) > mostOpen {
		victim, _ := b.order.Victim()
		gone = victim.Value
		err = b.remove(ctx, gone)
	}
	if b.client == nil || err != nil {
		return gone, err
	}
	text, err := entry.text()
	if err != nil {
		return gone, err
	}
	return gone, b.client.Set(ctx, id, text)
}

// text is what is stored. Nobody shows it, so that no sign is escaped for the sake of HTML:
// that would make six bytes of one.
func (o *open) text() ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(o)
	return out.Bytes(), err
}

func (b *book) hold(id string, entry *open) {
	if before := b.open[id]; before != nil {
		b.order.Remove(before.place)
	}
	entry.place = b.order.Add(id, 0, entry.Labels["node"], entry.Labels["pattern"], entry.Domain, entry.Labels["job"])
	b.open[id] = entry
}

func (b *book) remove(ctx context.Context, id string) error {
	entry := b.open[id]
	if entry == nil {
		return nil
	}
	b.order.Remove(entry.place)
	delete(b.open, id)
	if b.client == nil {
		return nil
	}
	return b.client.Delete(ctx, id)
}

// outdated reports whether a newer revision of a verdict came before.
func (b *book) outdated(id string, revision int) bool {
	return revision < max(b.young[id], b.old[id])
}

func (b *book) note(id string, revision int) {
	if len(b.young) >= mostRevisions {
		b.young, b.old = map[string]int{}, b.young
	}
	b.young[id] = max(revision, b.young[id], b.old[id])
}
