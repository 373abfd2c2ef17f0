// Package cudaoom joins GPU memory that was refused to a process with what was
// free on its GPU then, and with who held the rest.
package cudaoom

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// eventRefused is a refusal of the driver, as the cudaoom receiver tells it, and
// eventFigures the same with the figures of its GPU.
const (
	eventRefused = "cuda.refusal"
	eventFigures = rule.FindingPrefix + "cuda_oom"
)

// What the gpu receiver reads of a GPU through NVML; the names are its own.
const (
	metricFree    = "hw.gpu.memory.free"
	metricProcess = "hw.gpu.process.memory.usage"
	metricMIG     = "hw.gpu.mig.memory.usage"
)

const (
	millisecond = int64(1e6)
	second      = int64(1e9)
)

const (
	// together is how far apart the points of one reading may be.
	together = 2 * second
	// soon is how long after a refusal a reading may be. Later, a process that goes on
	// without that memory has changed what it holds. The gpu receiver reads the GPUs 50 ms
	// after a refusal that it hears of.
	soon = second
)

// Caps: readings of all hosts, and refusals that may still change.
const (
	maxReadings = 1 << 20
	maxHosts    = 1 << 15
	maxRefusals = 1 << 13
)

// Detector describes the detector for the library.
func Detector() rule.Detector {
	return rule.Detector{
		Name: "cuda_oom", Logs: []string{eventRefused}, Metrics: []string{metricFree, metricMIG, metricProcess},
		// That it was refused is the word of the process; what the GPU held is not.
		Trust: verdict.Claimed, Facts: []string{metricFree, metricMIG, metricProcess},
		Findings: map[string][]string{eventFigures: {metricFree}},
		Attributes: []string{
			"cuda_oom.gpu_index", "cuda_oom.retried", "cuda_oom.tried_alloc_bytes", "gen_ai.training.job_domain", "gen_ai.training.job_id",
			"gen_ai.training.rank", "gpu.id", "host.name", "k8s.namespace.name", "k8s.node.name", "k8s.pod.name", "k8s.pod.uid", "k8s.workload",
			"process.executable.name", "process.pid",
		},
		Parameters: map[string]rule.ParameterType{"reading_age": rule.DurationParameter, "one_gpu": rule.IntegerParameter},
		New: func(l rule.Limits) rule.Algorithm {
			return &detector{
				lateness: l.Lateness, most: maxReadings, hosts: map[string]*host{},
				limits: limits{oldest: l.Values.Duration("reading_age"), mostly: int64(l.Values.Integer("one_gpu"))},
			}
		},
	}
}

// limits are the parameters of pattern.yaml.
type limits struct {
	// oldest is how long before a refusal a reading may be.
	oldest int64
	// A process has a context of some 500 MiB on each GPU that it ever touched (CUDA
	// C++ Programming Guide, lazy loading); where it computes it holds mostly times as much.
	mostly int64
}

// detector is the state: what was read of the GPUs lately, and the refusals that a
// late reading could still change.
type detector struct {
	limits
	lateness int64
	hosts    map[string]*host
	refusals []*refusal // in order of time
	readings int
	most     int // readings
	evicted  uint64
}

// refusal is one record, as far as the rule reads it.
type refusal struct {
	Time       int64          `json:"time"`
	Host       string         `json:"host"`
	PID        int64          `json:"pid"`
	Tried      int64          `json:"tried"`
	Resource   map[string]any `json:"resource"`
	Attributes map[string]any `json:"attributes"`
	Told       string         `json:"told,omitempty"` // the figures that were told
	Look       bool           `json:"look"`           // was not looked at yet
}

// Observe takes in a refusal or a reading.
func (d *detector) Observe(r *rule.Record) bool {
	name := rule.Text(r.Resource, "host.name")
	if name == "" {
		return false
	}
	if r.Name == eventRefused {
		return d.refused(name, r)
	}
	gpu := rule.Text(r.Attributes, "gpu.id")
	if gpu == "" || math.IsNaN(r.Number) || r.Number < 0 || r.Number > math.MaxInt64/2 {
		return false
	}
	h := d.hosts[name]
	if h == nil {
		h = &host{GPUs: map[string]*gpuMemory{}}
		d.hosts[name] = h
	}
	more, matters := h.read(gpu, r, d.oldest+2*d.lateness)
	h.held += more
	d.readings += more
	for d.readings > d.most || len(d.hosts) > maxHosts {
		d.evict()
	}
	return matters
}

// refused takes in a refusal.
func (d *detector) refused(name string, r *rule.Record) bool {
	pid, known := rule.Integer(r.Attributes, "process.pid")
	tried, sized := rule.Integer(r.Attributes, "cuda_oom.tried_alloc_bytes")
	if !known || !sized || rule.Text(r.Attributes, "cuda_oom.retried") == "true" {
		return false
	}
	one := &refusal{
		Time: r.Time, Host: name, PID: pid, Tried: tried, Look: true,
		Resource: map[string]any{"host.name": name}, Attributes: map[string]any{"process.pid": pid, "cuda_oom.tried_alloc_bytes": tried},
	}
	one.copy(r)
	at, there := slices.BinarySearchFunc(d.refusals, one, (*refusal).compare)
	if there {
		return false // told twice
	}
	d.refusals = slices.Insert(d.refusals, at, one)
	if before := len(d.refusals); before > maxRefusals {
		d.refusals = fairlru.Trim(d.refusals, maxRefusals-maxRefusals/8, (*refusal).owner)
		d.evicted += uint64(before - len(d.refusals)) //nolint:gosec // never below zero
	}
	return true
}

// owner is whose room a refusal takes.
func (f *refusal) owner() []string {
	path := []string{f.Host, "", ""}
	for i, key := range []string{"gen_ai.training.job_domain", "gen_ai.training.job_id"} {
		path[1+i], _ = f.Attributes[key].(string)
	}
	return path
}

// copy keeps what the rule reads.
func (f *refusal) copy(r *rule.Record) {
	for _, key := range []string{"k8s.namespace.name", "k8s.node.name", "k8s.pod.name", "k8s.pod.uid"} {
		if text := rule.Text(r.Resource, key); text != "" {
			f.Resource[key] = text
		}
	}
	for _, key := range []string{
		"gen_ai.training.job_domain", "gen_ai.training.job_id", "k8s.namespace.name", "k8s.pod.name", "k8s.pod.uid", "k8s.workload",
		"process.executable.name",
	} {
		if text := rule.Text(r.Attributes, key); text != "" {
			f.Attributes[key] = text
		}
	}
	for _, key := range []string{"cuda_oom.gpu_index", "gen_ai.training.rank"} {
		if number, ok := rule.Integer(r.Attributes, key); ok {
			f.Attributes[key] = number
		}
	}
}

func (f *refusal) compare(other *refusal) int {
	return cmp.Or(cmp.Compare(f.Time, other.Time), cmp.Compare(f.Host, other.Host), cmp.Compare(f.PID, other.PID), cmp.Compare(f.Tried, other.Tried))
}

// evict forgets the host that has most readings; where there are too many hosts, the one
// quiet for longest.
func (d *detector) evict() {
	first := ""
	for name, h := range d.hosts {
		if first == "" || d.before(h, d.hosts[first], cmp.Compare(name, first)) {
			first = name
		}
	}
	d.readings -= d.hosts[first].held
	delete(d.hosts, first)
	d.evicted++
}

// before reports whether a leaves before b.
func (d *detector) before(a, b *host, names int) bool {
	most := 0
	if d.readings > d.most {
		most = cmp.Compare(b.held, a.held)
	}
	return cmp.Or(most, cmp.Compare(a.Last, b.Last), names) < 0
}

// look reports whether something came that can change what is told of a refusal.
func (d *detector) look(f *refusal) bool {
	h := d.hosts[f.Host]
	return f.Look || h != nil && h.Since != 0 && h.Since <= f.Time+soon
}

// Due is when a refusal can be told, or when no reading beside one can come any more.
func (d *detector) Due() int64 {
	due := int64(0)
	for _, f := range d.refusals {
		at := f.last(d.lateness) + 1
		if d.look(f) {
			at = f.Time
		}
		if at = max(at, 1); due == 0 || at < due {
			due = at
		}
	}
	return due
}

// Decide joins refusals with what was read beside them, and forgets those that nothing
// can be added to any more.
func (d *detector) Decide(now int64) []rule.Finding {
	var findings []rule.Finding
	for _, f := range d.refusals {
		if f.Look = d.look(f); !f.Look || f.Time > now {
			continue
		}
		f.Look = false
		figures, told := d.hosts[f.Host].figures(f, d.limits), ""
		if figures != nil {
			told = fmt.Sprint(figures)
		}
		if told != f.Told {
			f.Told = told
			findings = append(findings, f.finding(figures))
		}
	}
	for _, h := range d.hosts {
		h.Since = 0
	}
	d.refusals = slices.DeleteFunc(d.refusals, func(f *refusal) bool { return f.last(d.lateness) < now })
	return findings
}

// last is until when a reading may come that says something of it.
func (f *refusal) last(lateness int64) int64 { return f.Time + soon + lateness }

// finding has no figures where those that were told are taken back.
func (f *refusal) finding(figures map[string]any) rule.Finding {
	attributes := maps.Clone(f.Attributes)
	maps.Copy(attributes, figures)
	return rule.Finding{
		Event: eventFigures, ID: fmt.Sprintf("refusal %s %d %d %d", f.Host, f.PID, f.Time, f.Tried), Time: f.Time, Last: f.Time,
		Resource: maps.Clone(f.Resource), Attributes: attributes,
	}
}

// Evicted counts hosts and refusals that were forgotten because of the caps.
func (d *detector) Evicted() uint64 { return d.evicted }
