package heartbeat

import (
	"cmp"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// mostKept bounds the components of a process that are known.
const mostKept = 256

// Status is a component of this process, and what the service last told of it.
type Status struct {
	Component
	Kind component.Kind
	Told componentstatus.Status
}

// Roll is what the service tells of the components of this process: how each fares. The zero
// value knows none. An extension that embeds it is told.
type Roll struct {
	mu sync.Mutex
	of map[key]Status
}

type key struct {
	kind component.Kind
	id   component.ID
}

// Watcher is an extension that knows how the components of its process fare.
type Watcher interface{ Components() []Status }

var (
	_ componentstatus.Watcher = (*Roll)(nil)
	_ Watcher                 = (*Roll)(nil)
)

// ComponentStatusChanged notes how a component fares. The service tells it of each.
func (r *Roll) ComponentStatusChanged(source *componentstatus.InstanceID, event *componentstatus.Event) {
	k := key{source.Kind(), source.ComponentID()}
	one := Status{Kind: source.Kind(), Told: event.Status(), Component: Component{Name: k.id.String(), Since: event.Timestamp().UTC()}}
	if err := event.Err(); err != nil {
		one.Error = safetext.Line(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.of[k]
	switch event.Status() {
	case componentstatus.StatusStopping, componentstatus.StatusStopped:
		delete(r.of, k)
		return
	case componentstatus.StatusOK:
		one.State = Works
	case componentstatus.StatusRecoverableError, componentstatus.StatusPermanentError, componentstatus.StatusFatalError:
		one.State = Fails
	default:
		one.State = Starts
	}
	if known && before.State == one.State {
		one.Since = before.Since
	}
	if r.of == nil {
		r.of = map[key]Status{}
	}
	if known || len(r.of) < mostKept {
		r.of[k] = one
	}
}

// Components implements Watcher: all that are known, by kind and name.
func (r *Roll) Components() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Status, 0, len(r.of))
	for _, one := range r.of {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Kind.String(), b.Kind.String()), cmp.Compare(a.Name, b.Name))
	})
	return list
}
