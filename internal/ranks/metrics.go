package ranks

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Metrics of the receivers ncclsock and gpu that say how fast a job goes: what its ranks
// sent, what CPU they used, over which interface they move data, whose a GPU is, and how busy
// it is.
const (
	metricTraffic = "nccl.socket.io"
	metricCPU     = "process.cpu.time"
	metricLine    = "process.network.io"
	metricOwner   = "hw.gpu.process.memory.usage"
	metricBusy    = "hw.gpu.utilization"
)

const (
	mostGPUs      = 4096
	mostProcesses = 8 // of one rank that are kept: an agent that lies can have a hundred thousand ranks
	mostCores     = 1 << 16
	longestRail   = 64
	mostLines     = 16 // addresses and directions of one rank that are kept
	// lasts is how long a sample counts: receivers tell theirs each 10 s.
	lasts = int64(time.Minute)
)

// gpuKey names a GPU of a machine.
type gpuKey struct{ host, id string }

type gpu struct {
	times times
	busy  float64
}

// cpu is what a process has used.
type cpu struct {
	used  float64 // seconds
	at    int64
	cores float64 // used since the sample before, below 0 where there is none
}

// traffic is what the ranks of a job on one machine have sent.
type traffic struct {
	times times
	sent  int64
	rate  float64 // bytes a second since the sample before, below 0 where there is none
}

// times tell a sample that comes late from a clock that was set back.
type times struct{ newest, late int64 }

// admit reports whether a sample counts. One that is a minute older than the newest comes late,
// and does not. A second one that follows it says that the clock was set, or that the newest was
// told by a process that lies about the time.
func (t *times) admit(at int64) bool {
	switch {
	case t.newest-at < lasts:
		t.newest, t.late = max(t.newest, at), 0
		return true
	case t.late == 0 || at <= t.late || apart(at, t.late):
		t.late = at
		return false
	}
	t.newest, t.late = at, 0
	return true
}

// Metrics takes metrics.
func (b *Book) Metrics(md pmetric.Metrics) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, resource := range md.ResourceMetrics().All() {
		attributes := resource.Resource().Attributes()
		host := rule.Text(attributes, "host.name")
		if host == "" || rule.TrustOf(attributes, pcommon.NewMap()) < verdict.Claimed {
			continue
		}
		for _, scope := range resource.ScopeMetrics().All() {
			for _, metric := range scope.Metrics().All() {
				b.metric(host, metric)
			}
		}
	}
}

func (b *Book) metric(host string, metric pmetric.Metric) {
	switch name := metric.Name(); {
	case name == metricTraffic && metric.Type() == pmetric.MetricTypeSum:
		b.traffic(host, metric.Sum().DataPoints())
	case name == metricCPU && metric.Type() == pmetric.MetricTypeSum:
		for _, point := range metric.Sum().DataPoints().All() {
			b.cpu(host, point)
		}
	case name == metricLine && metric.Type() == pmetric.MetricTypeSum:
		changed := map[*rank]*job{}
		for _, point := range metric.Sum().DataPoints().All() {
			if j, r := b.line(host, point); r != nil {
				changed[r] = j
			}
		}
		for r, j := range changed { // once it has the samples of all its lines
			if rail := r.busiest(); rail != "" && rail != r.rail {
				r.rail, j.told.stale = rail, true
			}
		}
	case name == metricOwner && metric.Type() == pmetric.MetricTypeSum:
		for _, point := range metric.Sum().DataPoints().All() {
			a := point.Attributes()
			number, ok := socketstall.Rank(a, "gen_ai.training.rank")
			if j := b.only(host, jobOf(a), number); ok && j != nil {
				j.ranks[number].gpu = strings.Clone(rule.Text(a, "gpu.id"))
			}
		}
	case name == metricBusy && metric.Type() == pmetric.MetricTypeGauge:
		for _, point := range metric.Gauge().DataPoints().All() {
			b.busy(host, point)
		}
	}
}

func (b *Book) cpu(host string, point pmetric.NumberDataPoint) {
	a, at := point.Attributes(), int64(point.Timestamp()) //nolint:gosec // a time that does not fit is below zero
	number, ok := socketstall.Rank(a, "gen_ai.training.rank")
	pid, told := a.Get("process.pid")
	_, parted := a.Get("cpu.mode") // of somebody else, who tells user and system apart
	j, used := b.only(host, jobOf(a), number), point.DoubleValue()
	if !ok || !told || parted || j == nil || at <= 0 || at > timeline.MaxTime || !(used >= 0 && used <= math.MaxFloat64) {
		return
	}
	r := j.ranks[number]
	if !r.cpuTimes.admit(at) {
		return
	}
	maps.DeleteFunc(r.cpu, func(_ int64, one cpu) bool { return apart(at, one.at) })
	before, known := r.cpu[pid.Int()]
	if known && at <= before.at || !known && len(r.cpu) >= mostProcesses {
		return
	}
	now := cpu{used: used, at: at, cores: -1}
	if known && used >= before.used {
		now.cores = min((used-before.used)/time.Duration(at-before.at).Seconds(), mostCores)
	}
	if r.cpu == nil {
		r.cpu = map[int64]cpu{}
	}
	r.cpu[pid.Int()] = now
}

// apart reports whether two samples are not of one time. One of the future is of a clock that was
// set, or somebody's who says so.
func apart(a, b int64) bool { return max(a-b, b-a) >= lasts }

// lineKey is a way over which a process of a rank moves data.
type lineKey struct {
	pid     int64
	address string
	sends   bool
}

// line is what went over it.
type line struct {
	name  string // its interface, or its address where that is not known
	moved int64
	at    int64
	rate  float64 // bytes a second since the sample before, below 0 where there is none
}

// line takes a sample, and returns whose it is.
func (b *Book) line(host string, point pmetric.NumberDataPoint) (*job, *rank) {
	a, at := point.Attributes(), int64(point.Timestamp()) //nolint:gosec // a time that does not fit is below zero
	number, ok := socketstall.Rank(a, "gen_ai.training.rank")
	pid, told := rule.Integer(a, "process.pid")
	address, direction := rule.Text(a, "network.local.address"), rule.Text(a, "network.io.direction")
	j := b.only(host, jobOf(a), number)
	if !ok || !told || j == nil || address == "" || at <= 0 || at > timeline.MaxTime || point.ValueType() != pmetric.NumberDataPointValueTypeInt || point.IntValue() < 0 {
		return nil, nil
	}
	r, key := j.ranks[number], lineKey{pid, address, direction == "transmit"}
	if !r.lineTimes.admit(at) {
		return nil, nil
	}
	maps.DeleteFunc(r.lines, func(_ lineKey, one line) bool { return apart(at, one.at) })
	before, known := r.lines[key]
	if known && at <= before.at || !known && len(r.lines) >= mostLines {
		return nil, nil
	}
	now := line{name: strings.Clone(safetext.Clip(cmp.Or(rule.Text(a, "network.interface.name"), address), longestRail)), moved: point.IntValue(), at: at, rate: -1}
	if known && now.moved >= before.moved {
		now.rate = float64(now.moved-before.moved) / time.Duration(at-before.at).Seconds()
	}
	if r.lines == nil {
		r.lines = map[lineKey]line{}
	}
	key.address = strings.Clone(key.address)
	r.lines[key] = now
	return j, r
}

// steady is how many times as much as the interface that was told another has to carry: a job
// that uses several evenly keeps the first.
const steady = 1.25

// busiest is the interface over which most of a rank's data goes, "" where none does now. Of
// two that carry as much it is the one that was told, or the first by name.
func (r *rank) busiest() (name string) {
	rates := map[string]float64{}
	for _, one := range r.lines {
		rates[one.name] += max(one.rate, 0)
	}
	most := rates[r.rail] * steady
	if most > 0 {
		name = r.rail
	}
	for _, one := range slices.Sorted(maps.Keys(rates)) {
		if rates[one] > most {
			name, most = one, rates[one]
		}
	}
	return name
}

// sends is how much a rank sends over all of its lines, nil where nothing tells of now.
func (r *rank) sends(now int64) *float64 {
	all, told := 0.0, false
	for key, one := range r.lines {
		if key.sends && now-one.at < lasts && one.rate >= 0 {
			all, told = all+one.rate, true
		}
	}
	if !told {
		return nil
	}
	return &all
}

// cores is how many of them the processes of a rank use, nil where nothing tells of now.
func (r *rank) cores(now int64) *float64 {
	all, told := 0.0, false
	for _, one := range r.cpu {
		if now-one.at < lasts && one.cores >= 0 {
			all, told = all+one.cores, true
		}
	}
	if !told {
		return nil
	}
	return &all
}

func (b *Book) busy(host string, point pmetric.NumberDataPoint) {
	a, at := point.Attributes(), int64(point.Timestamp()) //nolint:gosec // a time that does not fit is below zero
	if task := rule.Text(a, "hw.gpu.task"); task != "" && task != "general" || at <= 0 || at > timeline.MaxTime || point.ValueType() != pmetric.NumberDataPointValueTypeDouble {
		return
	}
	key := gpuKey{host, rule.Text(a, "gpu.id")}
	one, known := b.gpus[key]
	busy := point.DoubleValue()
	if !known && len(b.gpus) >= mostGPUs || math.IsNaN(busy) {
		return
	}
	before := one.times.newest
	if one.times.admit(at); one.times.newest != before {
		one.busy = min(max(busy, 0), 1)
	}
	key.host, key.id = strings.Clone(key.host), strings.Clone(key.id)
	b.gpus[key] = one
}

// traffic sums what the ranks of each job sent to all their peers.
func (b *Book) traffic(host string, points pmetric.NumberDataPointSlice) {
	sums, times := map[jobKey]int64{}, map[jobKey]int64{}
	for _, point := range points.All() {
		a := point.Attributes()
		if rule.Text(a, "network.io.direction") == "transmit" && point.ValueType() == pmetric.NumberDataPointValueTypeInt {
			id := jobOf(a)
			sums[id] += max(point.IntValue(), 0)
			times[id] = max(times[id], int64(point.Timestamp())) //nolint:gosec // a time that does not fit is below zero
		}
	}
	for id, sent := range sums {
		j, at := b.only(host, id, -1), times[id]
		if j == nil || at <= 0 || at > timeline.MaxTime {
			continue
		}
		if j.traffic == nil {
			j.traffic = map[string]traffic{}
		}
		now := j.traffic[host]
		before := now.times.newest
		if now.times.admit(at); now.times.newest != before {
			rate := -1.0
			if before > 0 && at > before && sent >= now.sent {
				rate = float64(sent-now.sent) / time.Duration(at-before).Seconds()
			}
			now.sent, now.rate = sent, rate
		}
		j.traffic[strings.Clone(host)] = now
	}
}

// jobOf is the job that a point names, as far as it does.
func jobOf(a pcommon.Map) jobKey {
	return jobKey{rule.Text(a, "gen_ai.training.job_id"), rule.Text(a, "gen_ai.training.job_domain")}
}

// only is the one job of a machine that a point names, by id and domain as far as it says them,
// and that has that rank, unless it is below 0; nil where none has, or several.
func (b *Book) only(host string, of jobKey, number int) (found *job) {
	for j := range b.on[host] {
		if of.id != "" && j.id != of.id || of.domain != "" && j.domain != of.domain {
			continue
		}
		if r := j.ranks[number]; number >= 0 && (r == nil || r.host != host || r.ended > 0) {
			continue
		}
		if found != nil {
			return nil
		}
		found = j
	}
	return found
}

// sends is how much the ranks of a job send, nil where nothing tells of now.
func (j *job) sends(now int64) *float64 {
	var all float64
	told := false
	for _, t := range j.traffic {
		if now-t.times.newest < lasts && t.rate >= 0 && t.times.newest > 0 {
			all, told = all+t.rate, true
		}
	}
	if !told {
		return nil
	}
	return &all
}

// busyOf is how busy the GPU of a rank is, nil where nothing tells of now.
func (b *Book) busyOf(r *rank, now int64) *float64 {
	one, known := b.gpus[gpuKey{r.host, r.gpu}]
	if !known || r.gpu == "" || now-one.times.newest >= lasts {
		return nil
	}
	return &one.busy
}
