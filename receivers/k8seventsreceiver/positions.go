package k8seventsreceiver

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

const positionsKey = "positions"

// saveEvery bounds how often positions are written: after a crash the events of
// that time are seen again, with the same uid and count.
const saveEvery = time.Second

// positions keeps where each stream stands, in the storage extension if there is one.
type positions struct {
	client storage.Client
	bad    func() map[string][]string // what is bad of nodes now; may be nil
	// evicted are the pods that lost their place, failing those that do not start; nil before the receiver
	// has started.
	evicted, failing func() []rememberedPod

	mu    sync.Mutex
	saved time.Time
	state positionsState
}

type positionsState struct {
	Streams map[string]string `json:"streams"` // stream → resource version
	Time    time.Time         `json:"time"`
	// Bad are the conditions of nodes that were told to be bad, by node.
	Bad map[string][]string `json:"bad,omitempty"`
	// Evicted are the pods in whose place another may come.
	Evicted []rememberedPod `json:"evicted,omitempty"`
	// Failing are the pods that were told not to start.
	Failing []rememberedPod `json:"failing,omitempty"`
}

func openPositions(ctx context.Context, host component.Host, id *component.ID, owner component.ID) (*positions, error) {
	p := &positions{client: storage.NewNopClient(), state: positionsState{Streams: map[string]string{}}}
	if id == nil {
		return p, nil
	}
	extension, found := host.GetExtensions()[*id].(storage.Extension)
	if !found {
		return nil, fmt.Errorf("storage %s: no storage extension of that name: name it under service::extensions", id)
	}
	var err error
	if p.client, err = extension.GetClient(ctx, component.KindReceiver, owner, ""); err != nil {
		return nil, fmt.Errorf("storage %s: %w", id, err)
	}
	text, err := p.client.Get(ctx, positionsKey)
	if err != nil {
		return nil, fmt.Errorf("storage %s: %w", id, err)
	}
	var state positionsState
	if json.Unmarshal(text, &state) == nil && state.Streams != nil {
		p.state = state // anything else is as good as nothing: the watch begins with a list
	}
	return p, nil
}

func (p *positions) get(stream string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Streams[stream]
}

func (p *positions) lastTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Time
}

func (p *positions) set(stream, position string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Streams[stream], p.state.Time = position, time.Now()
	if time.Since(p.saved) >= saveEvery {
		_ = p.save(context.Background()) // the next try is near; close reports the last one
	}
}

func (p *positions) save(ctx context.Context) error {
	if p.bad != nil {
		p.state.Bad = p.bad()
	}
	if p.evicted != nil {
		p.state.Evicted, p.state.Failing = p.evicted(), p.failing()
	}
	text, err := json.Marshal(p.state)
	if err != nil {
		return err
	}
	p.saved = time.Now()
	return p.client.Set(ctx, positionsKey, text)
}

func (p *positions) close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.save(ctx)
	if closed := p.client.Close(ctx); err == nil {
		err = closed
	}
	return err
}
