package historyextension

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Hear implements history.AgentKeeper.
func (k *keeper) Hear(beat heartbeat.Beat) { k.agents.Hear(beat, k.now()) }

// heard answers which agents were heard, or whether one was.
func (k *keeper) heard(w http.ResponseWriter, _ *http.Request, query url.Values) {
	limit := history.MaxLimit
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > heartbeat.MostAgents {
			fail(w, http.StatusBadRequest, fmt.Errorf("limit is %.40q: give a number from 1 to %d", text, heartbeat.MostAgents))
			return
		}
	}
	told := history.Agents{Head: k.head()}
	told.Agents, told.Counts = k.agents.Agents(k.now())
	if node := query.Get("node"); node != "" {
		told.Agents = slices.DeleteFunc(told.Agents, func(a heartbeat.Agent) bool { return a.Host != node && a.Node != node })
	}
	told.Agents, told.More = told.Agents[:min(len(told.Agents), limit)], len(told.Agents) > limit
	answer(w, told)
}

// machines are those that an incident is about: of its culprits, or else of the ranks of its
// runs.
func (k *keeper) machines(ctx context.Context, incident []verdict.Verdict) (hosts []string) {
	for i := range incident {
		if host := cmp.Or(incident[i].Culprit["host"], incident[i].Culprit["node"]); host != "" {
			hosts = append(hosts, host)
		}
	}
	for i := range incident {
		if run := incident[i].Run; len(hosts) == 0 && run != "" {
			if one, err := k.store.Run(ctx, run); err == nil {
				hosts = append(hosts, one.Run.Hosts...)
			}
		}
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	return hosts[:min(len(hosts), history.MaxNames)]
}
