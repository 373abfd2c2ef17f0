package incidentview

import (
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
)

// Bounds of what is remembered of who spoke.
const (
	mostHosts = 1 << 15
	mostNames = 256 // of one host
)

// feed notes that a host told of an event or a metric.
func (r *Records) feed(host, name string) {
	names := r.fed[host]
	if names == nil {
		if len(r.fed) == mostHosts {
			return
		}
		names = map[string]bool{}
		r.fed[host] = names
	}
	if name != "" && len(names) < mostNames {
		names[name] = true
	}
}

// Metrics takes metrics: only that they came is kept.
func (r *Records) Metrics(md pmetric.Metrics) {
	for _, resource := range md.ResourceMetrics().All() {
		host := word(resource.Resource().Attributes(), "host.name")
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				r.feed(host, metric.Name())
			}
		}
	}
}

// Feeds returns what Build asks: whether a piece of evidence could be seen. emitters says
// who emits an event or a metric; heard is when a record last came that the evidence reads;
// agents are those that the records tell of, up to their end.
//
// Faults are rare, so that none came does not say that nobody looked. The agents of the machines
// that are named say who did. Where none tells, who tells of a fault was at work when anything
// that it emits came from such a machine.
func (r *Records) Feeds(emitters func(source string) []string, heard func(pattern, evidence string) time.Time, agents *heartbeat.Book, end time.Time) func(pattern, evidence string, sources []string) Feed {
	return func(pattern, evidence string, sources []string) Feed {
		if at := heard(pattern, evidence); !at.IsZero() {
			return Feed{Kind: NotThere, Why: "such records came, the last at " + clock(at), Heard: at}
		}
		var who []string
		for _, source := range sources {
			who = append(who, emitters(source)...)
		}
		slices.Sort(who)
		who = slices.Compact(who)
		if len(who) == 0 {
			return Feed{Kind: NotKnown}
		}
		hosts, _ := r.About()
		if feed, told := LookedAt(agents, hosts, who, time.Unix(0, r.about.from).Add(NearSpan), time.Unix(0, r.about.to), end); told {
			return feed
		}
		names := strings.Join(who[:min(len(who), mostTellers)], " or ")
		for host, came := range r.fed {
			if len(r.about.hosts) > 0 && !r.about.hosts[host] {
				continue
			}
			for name := range came {
				if slices.ContainsFunc(emitters(name), func(e string) bool { return slices.Contains(who, e) }) {
					return Feed{Kind: NotThere, Why: names + " was at work and told nothing of it"}
				}
			}
		}
		return Feed{Kind: CannotSee, Why: "no record here comes from " + names}
	}
}
