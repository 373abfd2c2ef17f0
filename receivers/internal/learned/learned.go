// Package learned keeps what a receiver has learned of the processes of ranks. A job goes on
// while its agent is upgraded or killed; the next process goes on with what the last one knew.
package learned

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/receivers/internal/probereceiver"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// Bounds of what is kept.
const (
	mostProcesses = 1024    // shared between domains, pods and jobs
	mostBytes     = 4 << 10 // of one: all pauses that a receiver remembers of it, and its names
	mostText      = mostProcesses * (mostBytes + 100)
)

// every is how often it is looked whether something has changed. What was learned since is lost with a
// process that is killed.
const every = 5 * time.Second

// Keys under which it is kept.
const (
	key       = "learned"
	lookedKey = "looked" // when it was last looked, in milliseconds
)

// Resumable is what can be learned. After is it after an absence: time in which nobody looked does not
// count, whatever the clock did in it.
type Resumable[T any] interface {
	After(absence time.Duration) T
}

// Memory keeps a T, as JSON, for each process. Without a storage it keeps nothing.
type Memory[T Resumable[T]] struct {
	settings receiver.Settings
	id       *component.ID
	boot     string
	clock    func() time.Time
	noted    time.Time // when it was last looked; of the goroutine that learns

	mu      sync.Mutex // guards what follows
	client  storage.Client
	before  map[identity.Born]T // by the process before this, until it is known again
	written []byte
}

// note is what is kept.
type note struct {
	Boot      string    `json:"boot"`
	Processes []process `json:"processes"`
}

type process struct {
	PID     uint32          `json:"pid"`
	StartNS uint64          `json:"start_ns"`
	Learned json.RawMessage `json:"learned"`
}

// New makes a memory in the storage of that id; nil for none.
func New[T Resumable[T]](settings receiver.Settings, id *component.ID) *Memory[T] {
	return &Memory[T]{settings: settings, id: id, boot: record.ThisHost().Boot, clock: time.Now}
}

// Open takes up what was kept. What is damaged is as good as none; so is a note of another boot, all of
// whose processes have ended.
func (m *Memory[T]) Open(ctx context.Context, host component.Host) error {
	client, err := record.Storage(ctx, host, m.id, m.settings.ID)
	if err != nil || client == nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.client = client
	text, err := client.Get(ctx, key)
	if err == nil && text != nil {
		var looked []byte
		if looked, err = client.Get(ctx, lookedKey); err == nil {
			m.before, err = m.read(text, looked)
		}
	}
	if err != nil {
		m.settings.Logger.Warn("what was learned of jobs before this start cannot be read: it is learned again", zap.Error(err))
	}
	return nil
}

func (m *Memory[T]) read(text, looked []byte) (map[identity.Born]T, error) {
	var last note
	if len(text) > mostText {
		return nil, fmt.Errorf("%d bytes, of %d at most", len(text), mostText)
	}
	if err := json.Unmarshal(text, &last); err != nil {
		return nil, err
	}
	if last.Boot != m.boot {
		return nil, nil
	}
	at, err := strconv.ParseInt(string(looked), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("when it was last looked: %w", err)
	}
	absence := m.clock().Sub(time.UnixMilli(at))
	known := make(map[identity.Born]T, len(last.Processes))
	for _, p := range last.Processes {
		var one T
		if err := json.Unmarshal(p.Learned, &one); err != nil {
			return nil, err
		}
		known[identity.Born{PID: p.PID, StartNS: p.StartNS}] = one.After(absence)
	}
	return known, nil
}

// Of is what was kept of a process before this start. Once it is known again that is over: who begins anew
// begins as ever.
func (m *Memory[T]) Of(p *identity.Process) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one, is := m.before[p.Born()]
	return one, is
}

// All is Of of all processes.
func (m *Memory[T]) All() map[identity.Born]T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.before)
}

// Note is Save, every few seconds.
func (m *Memory[T]) Note(now time.Time, ranks identity.Resolver, of func(*identity.Process) (T, bool)) {
	if now.Sub(m.noted) >= every || now.Before(m.noted) {
		m.noted = now
		m.Save(ranks, of)
	}
}

// Save keeps what the function of knows about each living process. Where it knows nothing yet, what was
// kept before stays.
func (m *Memory[T]) Save(ranks identity.Resolver, of func(*identity.Process) (T, bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client == nil {
		return
	}
	living, _ := probereceiver.Oldest(ranks, mostProcesses)
	next := note{Boot: m.boot}
	for i := range living {
		born := living[i].Born()
		one, is := of(&living[i])
		if is {
			delete(m.before, born)
		} else {
			one, is = m.before[born]
		}
		text, err := json.Marshal(one)
		if !is || born.StartNS == 0 || err != nil || len(text) > mostBytes {
			continue
		}
		next.Processes = append(next.Processes, process{born.PID, born.StartNS, text})
	}
	slices.SortFunc(next.Processes, func(a, b process) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartNS, b.StartNS)) })
	m.write(&next)
}

// write writes when it was last looked, and the note if it is another. Both come together: nothing in the
// note is later. It is called with the lock.
func (m *Memory[T]) write(next *note) {
	looked := strconv.FormatInt(m.clock().UnixMilli(), 10)
	all := []*storage.Operation{storage.SetOperation(lookedKey, []byte(looked))}
	text, err := json.Marshal(next)
	if err == nil {
		if !bytes.Equal(text, m.written) {
			all = append(all, storage.SetOperation(key, text))
		}
		err = m.client.Batch(context.Background(), all...)
	}
	if err != nil {
		m.settings.Logger.Debug("keep what was learned of jobs", zap.Error(err)) // the storage itself says what is wrong
		return
	}
	m.written = text
}

// Close lets go of the storage.
func (m *Memory[T]) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		_ = m.client.Close(context.Background()) // its owner says what is wrong with it
		m.client = nil
	}
}
