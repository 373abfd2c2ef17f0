package slurmexporter

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// mostBook bounds what is read back.
const mostBook = 16 << 20

const keyBook = "book"

// book is what Slurm does not keep for us, in memory and in the storage: when nodes were
// drained, which are held back and for what, and when verdicts last confirmed a drain. What
// a node is drained for stands in its reason.
type book struct {
	client storage.Client // nil without storage

	Ledger    map[string]string    `json:"ledger"` // node → when
	Held      map[string]string    `json:"held"`   // node → for what
	Confirmed map[string]time.Time `json:"confirmed"`

	drained map[string]string // verdict → node, of the last look
	written string
}

func newBook() *book {
	return &book{Ledger: map[string]string{}, Held: map[string]string{}, Confirmed: map[string]time.Time{}, drained: map[string]string{}}
}

// load reads what an earlier process wrote. What cannot be read is as if it were not there:
// the breaker then counts by the reasons in Slurm alone.
func (b *book) load(ctx context.Context, client storage.Client) error {
	b.client = client
	if client == nil {
		return nil
	}
	text, err := client.Get(ctx, keyBook)
	if err != nil || len(text) == 0 || len(text) > mostBook {
		return err
	}
	read := newBook()
	if json.Unmarshal(text, read) == nil && read.Ledger != nil && read.Held != nil && read.Confirmed != nil {
		b.Ledger, b.Held, b.Confirmed = read.Ledger, read.Held, read.Confirmed
	}
	return nil
}

// save writes the book, unless it stands there.
func (b *book) save(ctx context.Context) error {
	if b.client == nil {
		return nil
	}
	text, err := json.Marshal(b)
	if err != nil || string(text) == b.written {
		return err
	}
	if err = b.client.Set(ctx, keyBook, text); err == nil {
		b.written = string(text)
	}
	return err
}

func (b *book) close(ctx context.Context) error {
	if b.client == nil {
		return nil
	}
	return b.client.Close(ctx)
}

// note remembers which verdicts a node is drained for.
func (b *book) note(n *node) {
	for id, name := range b.drained {
		if name == n.name {
			delete(b.drained, id)
		}
	}
	for _, line := range n.said().Lines {
		b.drained[line.ID] = n.name
	}
}

// forget takes out nodes that are gone, and what is over.
func (b *book) forget(nodes []node, recent []string) {
	there, ours := map[string]bool{}, map[string]bool{}
	for i := range nodes {
		there[nodes[i].name] = true
		ours[nodes[i].name] = nodes[i].ours()
	}
	for name := range b.Ledger {
		if !slices.Contains(recent, name) {
			delete(b.Ledger, name)
		}
	}
	for name := range b.Held {
		if !there[name] {
			delete(b.Held, name)
		}
	}
	for name := range b.Confirmed {
		if _, held := b.Held[name]; !held && !ours[name] {
			delete(b.Confirmed, name)
		}
	}
}
