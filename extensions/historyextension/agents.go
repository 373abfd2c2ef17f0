package historyextension

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/safetext"
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

// mostTold bounds the machines that are named of those on which somebody looked, or nobody.
const mostTold = 3

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

// lookedAt says, by what the agents of machines told, whether one of these receivers looked on
// them from one moment to another; false where no agent told of any.
func (k *keeper) lookedAt(hosts, who []string, from, to time.Time) (incidentview.Feed, bool) {
	var looked, lacking, unknown []string
	for _, host := range hosts {
		name := safetext.Line(host)
		switch watch, why := k.agents.Looked(host, who, from, to, k.now()); watch {
		case heartbeat.Looked:
			looked = append(looked, name)
		case heartbeat.LookedNot:
			lacking = append(lacking, name+": "+why)
		default:
			unknown = append(unknown, name+": "+why)
		}
	}
	names := strings.Join(who[:min(len(who), mostTellers)], " or ")
	saw := names + " looked on " + few(looked) + " all the time, and told nothing of it"
	switch {
	case len(looked)+len(lacking) == 0:
		return incidentview.Feed{}, false
	case len(lacking) > 0 && len(looked) > 0:
		return incidentview.Feed{Kind: incidentview.CannotSee, Why: few(lacking) + "; " + saw}, true
	case len(lacking) > 0:
		return incidentview.Feed{Kind: incidentview.CannotSee, Why: few(lacking)}, true
	case len(unknown) > 0:
		return incidentview.Feed{Kind: incidentview.NotKnown, Why: few(unknown) + "; " + saw}, true
	}
	return incidentview.Feed{Kind: incidentview.NotThere, Why: saw}, true
}

// few are the first of a list, and how many more there are.
func few(list []string) string {
	text := strings.Join(list[:min(len(list), mostTold)], ", ")
	if more := len(list) - mostTold; more > 0 {
		text += fmt.Sprintf(" and %s more", verdict.Number(more))
	}
	return text
}
