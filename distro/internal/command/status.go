package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/tracecoreai/tracecore/distro/internal/backend"
	"github.com/tracecoreai/tracecore/distro/internal/coverage"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Exit codes of status, for scripts.
const (
	statusWell  = 0
	statusCause = 1 // a root cause is open, for certain
	statusBlind = 2 // nothing can be told: not reachable, or nothing is seen
)

// statusReport is what status says.
type statusReport struct {
	history.Status
	Probes []heartbeat.Probe `json:"probes"`
	Drops  []heartbeat.Drop  `json:"drops"`
	Queues []queueStatus     `json:"queues"`
	// Patterns are the built-in ones that run here, by name. They are not known of a gateway:
	// its agents have the probes.
	Patterns []patternStatus `json:"patterns"`
	// Unranked are the processes that move data as ranks do, while nothing says which they are.
	Unranked int `json:"processes_without_rank,omitempty"`
	// Unseen are the processes of ranks of which not all calls of NCCL are seen.
	Unseen int `json:"processes_with_unseen_calls,omitempty"`
	// Worst are the open incidents that have to be looked at first, at most mostWorst.
	Worst []history.Incident `json:"worst"`
	// MetricsError is why there are no probes and drops: the metrics cannot be read.
	MetricsError string `json:"metrics_error,omitempty"`
	Exit         int    `json:"exit"`
}

// queueStatus is what waits for one backend, of one signal.
type queueStatus struct {
	Exporter string  `json:"exporter"`
	Signal   string  `json:"signal"`
	Waiting  float64 `json:"waiting"` // in Unit
	Room     float64 `json:"room"`
	Unit     string  `json:"unit,omitempty"` // bytes for --to and --to-all, absent where it is what the configuration says
	GivenUp  float64 `json:"given_up"`       // records, points or spans that the backend refused for good, since the start
}

// patternStatus is what a pattern can do with what works here and what came.
type patternStatus struct {
	Name  string         `json:"name"`
	State coverage.State `json:"state"`
}

func newStatus() *cobra.Command {
	var a asking
	var metrics string
	var agents bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Says whether anything is broken, and what tracecore can and cannot see",
		Long: "Asks the tracecore that runs on this machine, or the one at --address: open incidents, probes and their hooks,\n" +
			"at a gateway which agents watch, are silent, or stopped by order,\n" +
			"what feeds each piece of evidence and when it last came, components that report an error, what was dropped\n" +
			"since the start, and what waits for backends (from its metrics, at --metrics). `tracecore bpf-check` says whether\n" +
			"a hook could be better.\n\n" +
			"Exit codes: 0 well; 1 an incident is open whose root cause is known for certain (drills do not count);\n" +
			"2 nothing can be told: it is not reachable, its history cannot be read, or no probe works and nobody sends\n" +
			"anything that a pattern reads; also wrong usage.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var report statusReport
			err := a.print(cmd, func(ctx context.Context) (text []byte, err error) {
				if report, err = a.status(ctx, metrics, agents); err != nil {
					return nil, err
				}
				return safetext.Marshal(report)
			}, func(w io.Writer, _ []byte) error { return writeStatus(w, &report) })
			switch {
			case err != nil:
				return exitError{code: statusBlind, err: err}
			case report.Exit != statusWell:
				return exitError{code: report.Exit}
			}
			return nil
		},
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&agents, "agents", false, "list all agents that were heard, not only those that need a look")
	cmd.Flags().StringVar(&metrics, "metrics", "127.0.0.1:8888", "where its own metrics are: host:port, or a URL with a path")
	return cmd
}

// status asks the history, then the metrics, which may be elsewhere or off.
func (a *asking) status(ctx context.Context, metrics string, agents bool) (statusReport, error) {
	report := statusReport{Probes: []heartbeat.Probe{}, Drops: []heartbeat.Drop{}, Queues: []queueStatus{}, Patterns: []patternStatus{}, Worst: []history.Incident{}}
	text, err := a.get(ctx, "/v1/status", url.Values{})
	if err != nil {
		return report, err
	}
	if err := decode(text, &report.Status); err != nil {
		return report, err
	}
	if agents {
		if report.WorstAgents, err = a.agents(ctx); err != nil {
			return report, err
		}
	}
	if report.Open > 0 {
		if report.Worst, err = a.worst(ctx); err != nil {
			return report, err
		}
	}
	families, err := scrape(ctx, metrics)
	if err != nil {
		report.MetricsError = safetext.Line(err.Error())
	}
	for _, m := range families[heartbeat.OwnMetrics+"receiver_ncclsock_unranked"].GetMetric() {
		report.Unranked += int(heartbeat.Value(m))
	}
	for _, m := range families[heartbeat.OwnMetrics+"receiver_ncclcall_processes_unseen"].GetMetric() {
		report.Unseen += int(heartbeat.Value(m))
	}
	report.Probes, report.Drops, report.Queues = heartbeat.Probes(families), heartbeat.Drops(families), queuesOf(families)
	if report.Patterns, err = report.patterns(heartbeat.Proven(families)); err != nil {
		return report, err
	}
	report.Exit = report.exit()
	return report, nil
}

// patterns says of each built-in pattern that runs here whether it is full.
func (r *statusReport) patterns(proven bool) ([]patternStatus, error) {
	list := []patternStatus{}
	if len(r.Probes) == 0 || r.Others() {
		return list, nil
	}
	rules, err := patterns.Library()
	if err != nil {
		return nil, err
	}
	sources, err := coverage.LoadSources()
	if err != nil {
		return nil, err
	}
	fed, err := newFeeding(r.Feeds)
	if err != nil {
		return nil, err
	}
	there := coverage.Delivered(r.Probes, proven)
	for i := range rules {
		if one := &rules[i]; r.runs(one) {
			comes := func(e *rule.Evidence) bool { return fed.comes(one, e, r.Works) }
			list = append(list, patternStatus{one.Name, sources.Running(one, there, comes)})
		}
	}
	slices.SortFunc(list, func(a, b patternStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// runs reports whether a built-in pattern runs here. A pattern of the site that has its name reads
// something else.
func (r *statusReport) runs(one *rule.Rule) bool {
	own, fed := map[string]bool{}, map[string]bool{}
	for _, e := range one.All() {
		own[readsOf(e.Name, slices.Concat(one.Events(e), e.Metrics))] = true
	}
	for _, f := range r.Feeds {
		if f.Pattern == one.Name {
			fed[readsOf(f.Evidence, f.Reads)] = true
		}
	}
	return maps.Equal(own, fed)
}

// readsOf is a piece of evidence with what it reads.
func readsOf(evidence string, reads []string) string {
	return evidence + " " + strings.Join(slices.Sorted(slices.Values(reads)), " ")
}

// agents are all that were heard.
func (a *asking) agents(ctx context.Context) ([]heartbeat.Agent, error) {
	text, err := a.get(ctx, "/v1/agents", url.Values{"limit": {strconv.Itoa(heartbeat.MostAgents)}})
	if err != nil {
		return nil, err
	}
	var told history.Agents
	if err := decode(text, &told); err != nil {
		return nil, err
	}
	return told.Agents, nil
}

// mostWorst is how many open incidents are shown.
const mostWorst = 5

// worst are the open incidents to look at first.
func (a *asking) worst(ctx context.Context) ([]history.Incident, error) {
	list, err := a.list(ctx, "open", "true")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Incidents, func(a, b history.Incident) int { return history.WorstFirst(&a, &b) })
	return list.Incidents[:min(len(list.Incidents), mostWorst)], nil
}

func (r *statusReport) exit() int {
	seen := slices.ContainsFunc(r.Feeds, func(f history.Feed) bool { return f.Last != nil })
	works := r.Others() && r.Agents.Watching > 0 || slices.ContainsFunc(r.Probes, func(p heartbeat.Probe) bool { return p.Up })
	switch {
	case r.RootCauses > 0:
		return statusCause
	case r.Problem != "", !seen && !works && r.MetricsError == "", len(r.Feeds) == 0, r.Others() && r.Agents.Watching == 0:
		return statusBlind
	}
	return statusWell
}

const mostMetrics = 32 << 20 // bytes of one answer

// scrape reads the metrics of a tracecore.
func scrape(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	base, err := addressOf(address)
	if err != nil {
		return nil, err
	}
	base.Path = cmp.Or(base.Path, "/metrics")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers HTTP %d", base, response.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, mostMetrics))
	if err == nil && !slices.ContainsFunc(slices.Collect(maps.Keys(families)), func(name string) bool { return strings.HasPrefix(name, heartbeat.OwnMetrics) }) {
		err = errors.New("no metrics of a collector")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", base, err)
	}
	return families, nil
}

// queuesOf reads what waits for each backend (exporterhelper's own metrics).
func queuesOf(families map[string]*dto.MetricFamily) []queueStatus {
	queues := []queueStatus{}
	for _, m := range families[heartbeat.OwnMetrics+"exporter_queue_size"].GetMetric() {
		one := queueStatus{Exporter: heartbeat.Label(m, "exporter"), Signal: heartbeat.Label(m, "data_type"), Waiting: heartbeat.Value(m)}
		for _, room := range families[heartbeat.OwnMetrics+"exporter_queue_capacity"].GetMetric() {
			if heartbeat.Label(room, "exporter") == one.Exporter && heartbeat.Label(room, "data_type") == one.Signal {
				one.Room = heartbeat.Value(room)
				if backend.HoldsBytes(one.Room) {
					one.Unit = "bytes"
				}
			}
		}
		of := map[string]string{"logs": "log_records", "metrics": "metric_points", "traces": "spans"}[one.Signal]
		for _, name := range []string{"exporter_send_failed_" + of, "exporter_send_failed_" + of + "_total"} {
			for _, failed := range families[heartbeat.OwnMetrics+name].GetMetric() {
				if heartbeat.Label(failed, "exporter") == one.Exporter {
					one.GivenUp += heartbeat.Value(failed)
				}
			}
		}
		queues = append(queues, one)
	}
	slices.SortFunc(queues, func(a, b queueStatus) int {
		return cmp.Or(cmp.Compare(a.Exporter, b.Exporter), cmp.Compare(a.Signal, b.Signal))
	})
	return queues
}
