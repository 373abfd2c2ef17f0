package historyextension

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

const (
	mostAiling    = 256  // components that are listed
	mostTextBytes = 1024 // of an error
)

var _ componentstatus.Watcher = (*keeper)(nil)

// ComponentStatusChanged notes who does not work. The service tells it of each component.
func (k *keeper) ComponentStatusChanged(source *componentstatus.InstanceID, event *componentstatus.Event) {
	one := history.Ailing{
		Component: source.ComponentID().String(), Kind: source.Kind().String(), Status: event.Status().String(), Since: event.Timestamp().UTC(),
	}
	if err := event.Err(); err != nil {
		one.Error = safetext.Clip(safetext.Line(err.Error()), mostTextBytes)
	}
	name := one.Kind + " " + one.Component
	k.mu.Lock()
	defer k.mu.Unlock()
	if source.Kind() == component.KindReceiver {
		k.noteWorks(source.ComponentID().Type().String(), event)
	}
	switch event.Status() {
	case componentstatus.StatusRecoverableError, componentstatus.StatusPermanentError, componentstatus.StatusFatalError:
		if _, known := k.ailing[name]; known || len(k.ailing) < mostAiling {
			k.ailing[name] = one
		}
	case componentstatus.StatusOK, componentstatus.StatusStopped:
		delete(k.ailing, name)
	default: // it starts or stops
	}
}

// noteWorks notes which receivers are at work: of a fault that nobody tells of, they looked.
// mu is held.
func (k *keeper) noteWorks(receiver string, event *componentstatus.Event) {
	if event.Status() != componentstatus.StatusOK {
		delete(k.works, receiver)
	} else if _, known := k.works[receiver]; !known {
		k.works[receiver] = event.Timestamp().UTC()
	}
}

// Listen implements history.Keeper.
func (k *keeper) Listen(processor string, feeds func() []history.Feed) (cancel func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.feeds[processor] = feeds
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.feeds, processor)
	}
}

// ails lists who does not work, and asks what feeds the patterns.
func (k *keeper) ails() ([]history.Ailing, []history.Feed) {
	k.mu.Lock()
	ailing := slices.AppendSeq([]history.Ailing{}, maps.Values(k.ailing))
	sources := maps.Clone(k.feeds)
	k.mu.Unlock()
	slices.SortFunc(ailing, func(a, b history.Ailing) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Component, b.Component))
	})
	feeds := []history.Feed{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		feeds = append(feeds, sources[name]()...)
	}
	return ailing, feeds
}

func (k *keeper) status(w http.ResponseWriter, r *http.Request, _ url.Values) {
	told := history.Status{Head: k.head(), Version: k.settings.BuildInfo.Version, Started: k.started, MaxBytes: k.config.MaxBytes}
	told.Ailing, told.Feeds = k.ails()
	k.mu.Lock()
	told.Works = slices.AppendSeq([]string{}, maps.Keys(k.works))
	k.mu.Unlock()
	slices.Sort(told.Works)
	sum, err := k.store.Summary(r.Context())
	if err == nil {
		err = k.failing()
	}
	if err != nil {
		told.Problem = safetext.Clip(safetext.Line(err.Error()), mostTextBytes)
	}
	told.Incidents, told.Open, told.RootCauses, told.Bytes = sum.Incidents, sum.Open, sum.RootCauses, sum.Bytes
	answer(w, told)
}

// failing is why the last verdicts were not kept, nil when they were.
func (k *keeper) failing() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refusal
}
