package ncclhang

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/socketstall"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The events that say something of the GPUs of ranks. Only the driver's word counts.
const (
	eventGPU          = "gpu.activity" // what a GPU does while a rank on it stands
	eventXid          = "gpu.xid"
	eventGPULost      = "gpu.lost"
	eventGPURecovered = "gpu.recovered"
)

var gpuEvents = []string{eventGPU, eventXid, eventGPULost, eventGPURecovered}

// gpuAttributes are what is read of them, beside identity.
var gpuAttributes = []string{
	"gpu.activity.clock_percent", "gpu.activity.shared", "gpu.activity.since_unix_nano", "gpu.activity.state", "gpu.activity.throttle_reasons",
	"kernelevents.application_caused", "kernelevents.injected", "kernelevents.severity", "kernelevents.xid", "kernelevents.xid_name", "tracecore.drill",
}

// What a GPU does, as the receiver says it. Busy is one on which a kernel runs nearly all the time,
// as a kernel of NCCL does that waits for its peers: it spins (github.com/NVIDIA/nccl issues 257,
// 689). A kernel that hangs looks the same.
const (
	gpuIdle, gpuBusy, gpuVaries = "idle", "busy", "varies"
)

// Bounds and times of GPUs.
const (
	maxGPUHosts  = 16_384
	maxGPUs      = 64 // of one host
	maxGPURanks  = 16 // processes of one GPU
	maxGPUFaults = 8
	maxGPUNamed  = 4 // in one text, one by one
	// faultBefore is how long before the first rank stood a fault of its GPU may have come: it
	// launches on until its queue is full. One that comes so long after the last rank stood is
	// no cause any more.
	faultBefore, faultAfter = time.Minute, time.Minute
	// lowClock is below which part of its highest clock, in percent, a busy GPU runs slowly.
	lowClock = 50
)

// severalGPUs stands for the address of a GPU where one process calls for more than one.
const severalGPUs = "several"

// gpuBook is what is known of the GPUs of all hosts.
type gpuBook struct {
	hosts map[string]*gpuHost
	order *fairlru.List[*gpuHost]
}

// gpuHost is the GPUs of one host, by their PCI address.
type gpuHost struct {
	name    string
	gpus    map[string]*gpuFacts
	element *fairlru.Element[*gpuHost]
}

// gpuFacts are those of one GPU.
type gpuFacts struct {
	State     string          `json:"s,omitempty"`
	At        int64           `json:"t,omitempty"` // of the last reading that says so
	Since     int64           `json:"b,omitempty"` // when the time began that the first of them is about
	Shared    bool            `json:"m,omitempty"` // by several processes
	Held      string          `json:"h,omitempty"` // what holds its clocks down
	Clock     int64           `json:"c,omitempty"` // in percent of the highest, 0: not known
	Ranks     map[int64]int64 `json:"p,omitempty"` // processes on it, and when that was said last
	Faults    []gpuFault      `json:"f,omitempty"` // in order of time
	Recovered int64           `json:"r,omitempty"` // when it last answered again
}

type gpuFault struct {
	At   int64  `json:"t"`
	Text string `json:"x"`
}

func newGPUBook() *gpuBook {
	return &gpuBook{hosts: map[string]*gpuHost{}, order: &fairlru.List[*gpuHost]{}}
}

// take takes a record, and returns the host that it is about, "" where it says nothing.
func (b *gpuBook) take(r *rule.Record) string {
	a, host := r.Attributes, socketstall.IdentityOf(r.Resource, r.Attributes)
	id := str(a, "gpu.id")
	if _, drill := a.Get("tracecore.drill"); drill || host.Host == "" || id == "" || r.Time <= 0 || rule.TrustOf(r.Resource, a) != verdict.Proven {
		return ""
	}
	if r.Name == eventXid && (truth(a, "kernelevents.injected") || truth(a, "kernelevents.application_caused") || str(a, "kernelevents.severity") == "info") {
		return ""
	}
	g := b.gpu(host.Host, id)
	if g == nil {
		return ""
	}
	if host.PID > 0 {
		g.rank(host.PID, r.Time)
	}
	switch r.Name {
	case eventGPU:
		g.activity(r.Time, a)
	case eventGPURecovered:
		g.Recovered = max(g.Recovered, r.Time)
	case eventGPULost:
		g.fault(r.Time, "no longer answers")
	case eventXid:
		xid, _ := whole(a, "kernelevents.xid")
		g.fault(r.Time, strings.TrimSpace(fmt.Sprintf("reported Xid %d %s", xid, str(a, "kernelevents.xid_name"))))
	}
	return host.Host
}

func (b *gpuBook) gpu(host, id string) *gpuFacts {
	h := b.hosts[host]
	if h == nil {
		if len(b.hosts) >= maxGPUHosts {
			delete(b.hosts, b.order.Oldest().name)
			victim, _ := b.order.Victim()
			b.order.Remove(victim)
		}
		h = &gpuHost{name: host, gpus: map[string]*gpuFacts{}}
		b.hosts[host], h.element = h, b.order.Add(h, fairlru.Some)
	}
	b.order.Touch(h.element, fairlru.Some)
	g := h.gpus[id]
	if g == nil && len(h.gpus) < maxGPUs {
		g = &gpuFacts{Ranks: map[int64]int64{}}
		h.gpus[id] = g
	}
	return g
}

// rank takes that a process is on it. Beyond the bound the one that was said longest ago goes.
func (g *gpuFacts) rank(pid, at int64) {
	g.Ranks[pid] = max(g.Ranks[pid], at)
	if len(g.Ranks) > maxGPURanks {
		pids := slices.Sorted(maps.Keys(g.Ranks))
		delete(g.Ranks, slices.MinFunc(pids, func(a, b int64) int { return cmp.Compare(g.Ranks[a], g.Ranks[b]) }))
	}
}

// activity takes what the GPU does, unless something newer is known.
func (g *gpuFacts) activity(at int64, a pcommon.Map) {
	state, since := str(a, "gpu.activity.state"), int64(0)
	since, _ = whole(a, "gpu.activity.since_unix_nano")
	if at < g.At || since <= 0 || since > at || state != gpuIdle && state != gpuBusy && state != gpuVaries {
		return
	}
	g.At, g.State, g.Since, g.Shared, g.Held, g.Clock = at, state, since, truth(a, "gpu.activity.shared"), "", 0
	if percent, _ := whole(a, "gpu.activity.clock_percent"); percent > 0 && percent <= 100 {
		g.Clock = percent
	}
	if reasons, found := a.Get("gpu.activity.throttle_reasons"); found && reasons.Type() == pcommon.ValueTypeSlice && reasons.Slice().Len() > 0 {
		g.Held = socketstall.Clip(reasons.Slice().At(0).AsString())
	}
}

// fault takes what the driver reports of the GPU. Beyond the bound the earliest go.
func (g *gpuFacts) fault(at int64, text string) {
	f := gpuFault{at, text}
	place, known := slices.BinarySearchFunc(g.Faults, f, func(a, b gpuFault) int { return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Text, b.Text)) })
	if known {
		return
	}
	g.Faults = slices.Insert(g.Faults, place, f)
	g.Faults = g.Faults[max(0, len(g.Faults)-maxGPUFaults):]
}

// faultIn is the first fault of that time after which it has not answered again.
func (g *gpuFacts) faultIn(from, to int64) string {
	for _, f := range g.Faults {
		if f.At >= from && f.At <= to && f.At > g.Recovered {
			return f.Text
		}
	}
	return ""
}

// of finds the GPU of a process: the one of its communicator, or else the only one that it is known
// to be on.
func (b *gpuBook) of(c *caller, from int64) (id string, found *gpuFacts) {
	h := b.hosts[c.host.Host]
	if h == nil || c.gpu != "" {
		if h != nil {
			found = h.gpus[c.gpu]
		}
		return c.gpu, found
	}
	for one, g := range h.gpus {
		if g.Ranks[c.host.PID] < from || g.Ranks[c.host.PID] == 0 {
			continue
		}
		if found != nil {
			return "", nil
		}
		id, found = one, g
	}
	return id, found
}

// standsSince is since when a process does what its GPU is asked about.
func (who *caller) standsSince() int64 {
	last := int64(0)
	for _, at := range who.places {
		last = max(last, at.comm.places[at.rank].last)
	}
	return cmp.Or(last, who.stack.came())
}

// rankGPU is what the GPU of one rank says.
type rankGPU struct {
	who   *caller
	since int64 // when it came to stand
	id    string
	facts *gpuFacts
	fault string
	state string // "" where it is not known
}

func (g *rankGPU) named() string {
	return fmt.Sprintf("GPU %s of rank %d on %s", g.id, g.who.rank, g.who.host.Host)
}

// gpus asks the GPUs of the ranks that stand where they should.
func (b *gpuBook) gpus(f *Finding) (all []rankGPU) {
	from, to := f.Since.UnixNano()-int64(faultBefore), int64(0)
	all = make([]rankGPU, 0, len(f.stands))
	for _, who := range f.stands {
		one := rankGPU{who: who, since: who.standsSince()}
		to = max(to, one.since+int64(faultAfter))
		all = append(all, one)
	}
	for i := range all {
		one := &all[i]
		if one.id, one.facts = b.of(one.who, from); one.facts != nil {
			one.fault = one.facts.faultIn(from, to)
			// Of one that others use, too, nobody knows whose kernel runs.
			if one.facts.At > 0 && one.facts.Since >= one.since && !(one.facts.Shared && one.facts.State != gpuIdle) {
				one.state = one.facts.State
			}
		}
	}
	slices.SortFunc(all, func(a, b rankGPU) int {
		return cmp.Or(cmp.Compare(a.who.rank, b.who.rank), cmp.Compare(a.who.host.Host, b.who.host.Host), cmp.Compare(a.who.host.PID, b.who.host.PID))
	})
	return all
}

// ask holds a finding that is below the program against what the GPUs of its ranks say. A rank is
// named only where one fact, or one GPU that differs from all others, says so.
func (b *gpuBook) ask(f *Finding) {
	all := b.gpus(f)
	states, faults := map[string][]*rankGPU{}, []*rankGPU{}
	for i := range all {
		one := &all[i]
		states[one.state] = append(states[one.state], one)
		if one.fault != "" {
			faults = append(faults, one)
		}
	}
	idle, busy := states[gpuIdle], states[gpuBusy]
	var suspects []*rankGPU
	switch {
	case len(faults) > 0:
		suspects = faults
	case len(idle) == 1 && len(all) > 1 && len(busy) == len(all)-1:
		suspects = idle
	case len(busy) == len(all):
		f.GPU = "a kernel runs on all GPUs: look at the links between them"
	}
	if len(suspects) == 1 && (len(idle) != 1 || idle[0] == suspects[0]) {
		one := suspects[0]
		f.rank, f.Host, f.Device = one.who.rank, one.who.host, one.id
		f.GPU = fmt.Sprintf("the kernel of rank %d does not run on GPU %s of %s", f.rank, one.id, one.who.host.Host)
		if one.fault != "" {
			f.GPU = one.named() + " " + one.fault
		}
	}
	f.GPUs = socketstall.Clip(gpusInWords(faults, states, len(all)))
}

func ranksOf(all []*rankGPU) []int {
	ranks := make([]int, len(all))
	for i, one := range all {
		ranks[i] = one.who.rank
	}
	return ranks
}

// gpusInWords says all that GPUs say, the gravest first; "" where they say nothing.
func gpusInWords(faults []*rankGPU, states map[string][]*rankGPU, all int) string {
	var parts []string
	for _, one := range faults[:min(len(faults), maxGPUNamed)] {
		parts = append(parts, one.named()+" "+one.fault)
	}
	if more := len(faults) - maxGPUNamed; more > 0 {
		parts = append(parts, count(more, "other GPU has a fault", "other GPUs have faults"))
	}
	idle, busy, varies := states[gpuIdle], states[gpuBusy], states[gpuVaries]
	switch {
	case len(idle) == all:
		parts = append(parts, "no kernel runs on any of their GPUs")
	case len(busy) == all:
		parts = append(parts, "a kernel runs on each of their GPUs, as one of NCCL does while it waits")
	default:
		if len(idle) == 1 {
			parts = append(parts, "no kernel runs on "+idle[0].named())
		} else if len(idle) > 1 {
			parts = append(parts, "no kernel runs on the GPUs of "+subject(ranksOf(idle)))
		}
		if len(busy) > 0 {
			parts = append(parts, "a kernel runs on the "+plural(ranksOf(busy), "GPU of 1 rank", "GPUs of "+verdict.Number(len(busy))+" ranks")+", as one of NCCL does while it waits")
		}
		if len(varies) > 0 {
			parts = append(parts, "kernels run for a part of the time on the "+plural(ranksOf(varies), "GPU", "GPUs")+" of "+subject(ranksOf(varies)))
		}
	}
	parts = append(parts, slowInWords(busy)...)
	if silent := states[""]; len(parts) > 0 && len(silent) > 0 {
		parts = append(parts, "of the "+plural(ranksOf(silent), "GPU", "GPUs")+" of "+subject(ranksOf(silent))+" no reading came")
	}
	return strings.Join(parts, "; ")
}

// slowInWords says which busy GPUs are slow.
func slowInWords(busy []*rankGPU) (parts []string) {
	for _, one := range busy {
		switch g := one.facts; {
		case len(parts) == maxGPUNamed:
			return parts
		case g.Held != "":
			parts = append(parts, one.named()+" is held down ("+g.Held+")")
		case g.Clock > 0 && g.Clock < lowClock:
			parts = append(parts, fmt.Sprintf("%s runs at %d %% of its highest clock", one.named(), g.Clock))
		}
	}
	return parts
}

// learnGPU takes a record of a GPU, and has the runs judged again that it may say more of.
func (b *callBook) learnGPU(r *rule.Record) bool {
	host := b.gpus.take(r)
	if host == "" {
		return false
	}
	for _, run := range b.runs {
		if run.told != nil && run.told.Below && run.shares[host] != nil {
			run.changed(r.Now)
		}
	}
	return true
}

// savedGPUs are those of one host.
type savedGPUs struct {
	Host string               `json:"h"`
	GPUs map[string]*gpuFacts `json:"g"`
}

// save copies all that changes.
func (b *gpuBook) save() (all []savedGPUs) {
	b.order.Each(func(h *gpuHost) {
		saved := savedGPUs{h.name, make(map[string]*gpuFacts, len(h.gpus))}
		for id, g := range h.gpus {
			one := *g
			one.Ranks, one.Faults = maps.Clone(g.Ranks), slices.Clone(g.Faults)
			saved.GPUs[id] = &one
		}
		all = append(all, saved)
	})
	return all
}

// restore adds what was saved to an empty book; the one heard longest ago comes first.
func (b *gpuBook) restore(all []savedGPUs) error {
	if len(all) > maxGPUHosts {
		return errState
	}
	for _, saved := range all {
		if len(saved.GPUs) > maxGPUs || b.hosts[saved.Host] != nil {
			return errState
		}
		for _, id := range slices.Sorted(maps.Keys(saved.GPUs)) {
			g := saved.GPUs[id]
			if g == nil || len(g.Ranks) > maxGPURanks || len(g.Faults) > maxGPUFaults {
				return errState
			}
			into := b.gpu(saved.Host, id)
			*into = *g
			if into.Ranks == nil {
				into.Ranks = map[int64]int64{}
			}
		}
	}
	return nil
}
