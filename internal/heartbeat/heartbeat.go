// Package heartbeat is the record by which an agent says that it watches
// (tracecore.agent.heartbeat): its words, its parser, what an agent knows of its own
// components, and the bounded book of the agents that were heard. The receiver that writes
// the record uses it, and all that read it.
package heartbeat

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

const (
	// Event is the name of the record. internal/ingress lets none but agents send it, each
	// for its own machine.
	Event = "tracecore.agent.heartbeat"
	// Scope is the instrumentation scope of its receiver.
	Scope = "github.com/tracecoreai/tracecore/receivers/heartbeatreceiver"
	// Interval is how often an agent tells.
	Interval = time.Minute
	// Patience is how long an agent may tell nothing before it is silent: two are late or
	// lost, the third is missed.
	Patience = 3*Interval + 15*time.Second
)

// Bounds of one record, for its writer and its readers.
const (
	MostComponents = 32
	maxName        = 96  // bytes
	MaxError       = 160 // bytes
)

// States of a component.
const (
	Works  = "works"
	Fails  = "fails"
	Starts = "starts"
)

// Component is a receiver of an agent, and how it fares.
type Component struct {
	Name  string    `json:"name"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
}

// Probe is what a component attached to the kernel, as its metric probe_up says.
type Probe struct {
	Component string `json:"component"`
	Hook      string `json:"hook"`
	Up        bool   `json:"up"`
}

// Beat is one record.
type Beat struct {
	Host, Node, Boot, Version string
	Instance                  string    // one start of one agent
	Started                   time.Time // of the instance, by the clock of the agent, as is At
	At                        time.Time
	Number                    int64 // of the instance, from 1
	Ending                    bool  // it stops by order
	// Job is whose ranks are on the machine; "" for the record that is about none. A
	// gateway that is told for a job alone hears no more of the machine once JobOver.
	Job       string
	JobOver   bool
	Receivers []Component
	Probes    []Probe
	Corrected float64 // seconds that were added to its times, as its clock is behind; below zero it is ahead
	Measured  bool    // Probes and Dropped are known
	Dropped   int64
}

// Read returns what a record says. A record that is no heartbeat, or a broken one, is none.
// Its trust is the business of the caller.
func Read(resource pcommon.Map, record plog.LogRecord) (Beat, bool) {
	if record.EventName() != Event {
		return Beat{}, false
	}
	a := record.Attributes()
	b := Beat{
		Host: text(resource, "host.name", maxName), Node: text(resource, "k8s.node.name", maxName), Boot: text(resource, "host.boot.id", maxName),
		Version: text(a, "service.version", maxName), Instance: text(a, "service.instance.id", maxName),
		At: record.Timestamp().AsTime().UTC(), Started: moment(a, "tracecore.agent.start_unix_nano"), Number: number(a, "tracecore.agent.sequence"),
		Ending: truth(a, "tracecore.agent.ending"), Job: text(a, "gen_ai.training.job_id", maxName), JobOver: truth(a, "tracecore.agent.job_over"), Dropped: number(a, "tracecore.agent.dropped"),
	}
	if seconds, found := resource.Get("tracecore.clock.corrected"); found && !math.IsNaN(seconds.Double()) && !math.IsInf(seconds.Double(), 0) {
		b.Corrected = seconds.Double()
	}
	_, b.Measured = a.Get("tracecore.agent.dropped")
	if b.Host == "" || b.Instance == "" || b.Number < 1 || b.Dropped < 0 || record.Timestamp() == 0 || b.Started.Unix() <= 0 || b.Started.After(b.At) {
		return Beat{}, false
	}
	each(a, "tracecore.agent.receivers", func(m pcommon.Map) {
		one := Component{Name: text(m, "name", maxName), State: text(m, "state", maxName), Since: moment(m, "since_unix_nano"), Error: text(m, "error", MaxError)}
		if one.Name != "" && slices.Contains([]string{Works, Fails, Starts}, one.State) {
			b.Receivers = append(b.Receivers, one)
		}
	})
	each(a, "tracecore.agent.probes", func(m pcommon.Map) {
		if name := text(m, "component", maxName); name != "" {
			b.Probes = append(b.Probes, Probe{Component: name, Hook: text(m, "hook", maxName), Up: truth(m, "up")})
		}
	})
	return b, true
}

// Each goes through the heartbeats among records, with the resource of each. Their trust is the
// business of the caller.
func Each(ld plog.Logs, take func(resource pcommon.Map, record plog.LogRecord, b Beat)) {
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			if scope.Scope().Name() != Scope {
				continue
			}
			for _, record := range scope.LogRecords().All() {
				if b, ok := Read(resource.Resource().Attributes(), record); ok {
					take(resource.Resource().Attributes(), record, b)
				}
			}
		}
	}
}

// each goes through a list of maps, within the bound.
func each(a pcommon.Map, name string, take func(pcommon.Map)) {
	list, found := a.Get(name)
	if !found || list.Type() != pcommon.ValueTypeSlice {
		return
	}
	for i, one := range list.Slice().All() {
		if i == MostComponents {
			return
		}
		if one.Type() == pcommon.ValueTypeMap {
			take(one.Map())
		}
	}
}

func text(a pcommon.Map, name string, most int) string {
	if v, found := a.Get(name); found && v.Type() == pcommon.ValueTypeStr {
		return safetext.Clip(safetext.Line(v.Str()), most)
	}
	return ""
}

func number(a pcommon.Map, name string) int64 {
	if v, found := a.Get(name); found && v.Type() == pcommon.ValueTypeInt {
		return v.Int()
	}
	return 0
}

func moment(a pcommon.Map, name string) time.Time { return time.Unix(0, number(a, name)).UTC() }

func truth(a pcommon.Map, name string) bool {
	v, found := a.Get(name)
	return found && v.Type() == pcommon.ValueTypeBool && v.Bool()
}
