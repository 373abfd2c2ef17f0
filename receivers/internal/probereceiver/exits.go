package probereceiver

import (
	"sync"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// Exits are ends of processes that wait until a receiver has time for them. Domains share the room: a user
// whose processes end without end loses ends of his own.
type Exits struct {
	most    int
	dropped func()
	some    chan struct{}

	mu   sync.Mutex // guards what follows
	list fairlru.List[identity.Exit]
}

// WatchExits collects ends until cancel is called. dropped is told of each that gave way; wanted, of which
// there may be none, says which are collected.
func WatchExits(resolver identity.Resolver, most int, wanted func(*identity.Exit) bool, dropped func()) (x *Exits, cancel func()) {
	x = &Exits{most: most, dropped: dropped, some: make(chan struct{}, 1)}
	return x, resolver.Exits(func(e identity.Exit) {
		if wanted == nil || wanted(&e) {
			x.put(e)
		}
	})
}

func (x *Exits) put(e identity.Exit) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list.Add(e, fairlru.Little, e.Domain)
	if x.list.Len() > x.most {
		victim, _ := x.list.Victim()
		x.list.Remove(victim)
		x.dropped()
	}
	select {
	case x.some <- struct{}{}:
	default:
	}
}

// Some has a value where there are some to take.
func (x *Exits) Some() <-chan struct{} { return x.some }

// Take takes all that wait, in the order in which they came.
func (x *Exits) Take() []identity.Exit {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]identity.Exit, 0, x.list.Len())
	x.list.Each(func(e identity.Exit) { all = append(all, e) })
	x.list = fairlru.List[identity.Exit]{}
	return all
}
