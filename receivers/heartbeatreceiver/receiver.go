package heartbeatreceiver

import (
	"cmp"
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/receivers/heartbeatreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

const (
	// soon is when the second record follows: at the first, others still start.
	soon = 10 * time.Second
	// patience is how long a consumer that refuses is asked again: the next record says all
	// but what was lost.
	patience = 10 * time.Second
	// parting is that of the last record.
	parting = 2 * time.Second
	// mostJobs are those that a record is made for, of the ranks of a machine. Domains share them,
	// so that nobody hides the job of another behind thousands of his own.
	mostJobs = 32
)

// heart is the receiver.
type heart struct {
	settings  receiver.Settings
	config    *Config
	next      consumer.Logs
	around    surroundings
	telemetry *metadata.TelemetryBuilder

	watcher  heartbeat.Watcher // nil without
	resolver identity.Resolver // nil without
	say      *speaker
	losses   losses
	told     []string // the jobs of the last record

	stop    context.CancelFunc
	beating sync.WaitGroup
	end     sync.Once
}

func newReceiver(settings receiver.Settings, config *Config, next consumer.Logs, around surroundings) (*heart, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	say := &speaker{
		builder: metadata.NewLogsBuilder(config.LogsBuilderConfig, settings), version: settings.BuildInfo.Version,
		instance: rand.Text(), started: around.now(), self: settings.ID.String(),
	}
	return &heart{settings: settings, config: config, next: next, around: around, telemetry: telemetry, say: say}, nil
}

// Start begins to tell.
func (h *heart) Start(_ context.Context, host component.Host) (err error) {
	if h.resolver, err = record.Resolver(host, h.config.Identity); err != nil {
		return err
	}
	h.watcher, _ = h.resolver.(heartbeat.Watcher)
	h.say.builder.SetHost(record.ThisHost())
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.beating.Go(func() {
		for pause := soon; ; pause = heartbeat.Interval {
			h.beat(ctx, false, patience)
			select {
			case <-ctx.Done():
				return
			case <-h.around.wait(pause):
			}
		}
	})
	return nil
}

// Shutdown says that the agent stops by order.
func (h *heart) Shutdown(ctx context.Context) (err error) {
	h.end.Do(func() {
		if h.stop != nil {
			h.stop()
			if err = record.Wait(ctx, "a heartbeat is still being delivered", h.beating.Wait); err == nil {
				h.beat(ctx, true, parting)
			}
		}
		h.telemetry.Shutdown()
	})
	return err
}

// beat makes and delivers one record for each job, and one for none.
func (h *heart) beat(ctx context.Context, ending bool, patience time.Duration) {
	p := picture{at: h.around.now(), ending: ending, jobs: h.jobs()}
	p.over = slices.DeleteFunc(h.told, func(job string) bool { return slices.Contains(p.jobs, job) })
	h.told = slices.Clone(p.jobs)
	if h.watcher != nil {
		p.components = h.watcher.Components()
	}
	if families := h.families(); families != nil {
		p.measured, p.probes = true, heartbeat.Probes(families)
		p.dropped = h.losses.since(heartbeat.Drops(families))
	}
	logs := h.say.record(&p)
	if logs.LogRecordCount() == 0 {
		return
	}
	if err := record.Deliver(ctx, h.next, logs, patience); err != nil {
		h.telemetry.ReceiverHeartbeatRecordsDropped.Add(context.WithoutCancel(ctx), int64(logs.LogRecordCount()))
		h.settings.Logger.Debug("a heartbeat is lost", zap.Error(err))
	}
}

// jobs are those of the ranks that live here.
func (h *heart) jobs() []string {
	if h.resolver == nil {
		return nil
	}
	type job struct{ id, domain string }
	oldest := map[job]time.Time{}
	for _, p := range h.resolver.Ranks() {
		of := job{p.JobID, p.Domain}
		if began, known := oldest[of]; p.JobID != "" && (!known || p.StartTime.Before(began)) {
			oldest[of] = p.StartTime
		}
	}
	all := slices.SortedFunc(maps.Keys(oldest), func(a, b job) int { // Trim keeps the last
		return cmp.Or(oldest[b].Compare(oldest[a]), cmp.Compare(a.id, b.id), cmp.Compare(a.domain, b.domain))
	})
	var jobs []string
	for _, of := range fairlru.Trim(all, mostJobs, func(of job) []string { return []string{of.domain} }) {
		jobs = append(jobs, of.id)
	}
	slices.Sort(jobs)
	return slices.Compact(jobs)
}

// families are the process's own metrics, nil where it has none to read.
func (h *heart) families() map[string]*dto.MetricFamily {
	if h.around.own == nil {
		return nil
	}
	list, err := h.around.own.Gather()
	if err != nil {
		h.settings.Logger.Debug("own metrics are not all known", zap.Error(err))
	}
	if len(list) == 0 {
		return nil
	}
	families := make(map[string]*dto.MetricFamily, len(list))
	for _, f := range list {
		families[f.GetName()] = f
	}
	return families
}

// losses are counters as they were at the last record.
type losses struct{ total float64 }

// since is by how much they grew together.
func (l *losses) since(now []heartbeat.Drop) int64 {
	total := 0.0
	for _, d := range now {
		total += d.Count
	}
	grown := max(0, total-l.total)
	l.total = total
	return int64(grown)
}
