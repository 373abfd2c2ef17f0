package historyextension

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

const mostTextBytes = 1024 // of an error

// works are the receivers that are at work here, by type, and since when: of a fault that
// nobody tells of, they looked.
func (k *keeper) works() map[string]time.Time {
	works := map[string]time.Time{}
	for _, one := range k.Components() {
		if kind, _, _ := strings.Cut(one.Name, "/"); one.Kind == component.KindReceiver && one.State == heartbeat.Works {
			if since, known := works[kind]; !known || one.Since.Before(since) {
				works[kind] = one.Since
			}
		}
	}
	return works
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
	ailing, feeds := []history.Ailing{}, []history.Feed{}
	for _, one := range k.Components() {
		if one.State == heartbeat.Fails {
			ailing = append(ailing, history.Ailing{
				Component: one.Name, Kind: one.Kind.String(), Status: one.Told.String(), Error: safetext.Clip(one.Error, mostTextBytes), Since: one.Since,
			})
		}
	}
	k.mu.Lock()
	sources := maps.Clone(k.feeds)
	k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		feeds = append(feeds, sources[name]()...)
	}
	return ailing, feeds
}

func (k *keeper) status(w http.ResponseWriter, r *http.Request, _ url.Values) {
	told := history.Status{Head: k.head(), Version: k.settings.BuildInfo.Version, Started: k.started, MaxBytes: k.config.MaxBytes}
	told.Ailing, told.Feeds = k.ails()
	told.Works = slices.AppendSeq([]string{}, maps.Keys(k.works()))
	slices.Sort(told.Works)
	told.WorstAgents, told.Agents = k.agents.Agents(k.now())
	told.WorstAgents = told.WorstAgents[:min(len(told.WorstAgents), history.MaxStatusAgents)]
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
