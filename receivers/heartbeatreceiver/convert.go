package heartbeatreceiver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/receivers/heartbeatreceiver/internal/metadata"
	"github.com/tracecoreai/tracecore/receivers/internal/record"
)

// speaker makes the records of one start of an agent.
type speaker struct {
	builder           *metadata.LogsBuilder
	version, instance string
	self              string // the id of this receiver, which is not told
	started           time.Time
	sequence          int64
}

// picture is how an agent fares at a time.
type picture struct {
	at         time.Time
	ending     bool
	jobs       []string // of which ranks are here
	over       []string // of which they were at the last record
	components []heartbeat.Status
	measured   bool
	probes     []heartbeat.Probe
	dropped    int64
}

// record returns one record for each job, then one for none.
func (s *speaker) record(p *picture) plog.Logs {
	s.sequence++
	for i, job := range slices.Concat(p.over, p.jobs, []string{""}) {
		r := s.builder.TracecoreAgentHeartbeat(record.Head{Trust: record.Proven, Time: p.at, Observed: p.at, Severity: record.Info, Text: s.text(p)})
		r.GenAiTrainingJobID(job)
		r.ServiceInstanceID(s.instance)
		r.ServiceVersion(s.version)
		r.TracecoreAgentSequence(s.sequence)
		r.TracecoreAgentStartUnixNano(s.started.UnixNano())
		if i < len(p.over) {
			r.TracecoreAgentJobOver(true)
		}
		if p.ending {
			r.TracecoreAgentEnding(true)
		}
		s.receivers(r, p.components)
		if p.measured {
			r.TracecoreAgentDropped(p.dropped)
			probes(r, p.probes)
		}
	}
	return s.builder.Emit()
}

// text is for a person who reads the log.
func (s *speaker) text(p *picture) string {
	if p.ending {
		return "the agent stops"
	}
	var failing []string
	for i := range p.components {
		if c := &p.components[i]; c.Kind == component.KindReceiver && c.State == heartbeat.Fails {
			failing = append(failing, c.Name)
		}
	}
	if len(failing) > 0 {
		return fmt.Sprintf("the agent watches, without %s", strings.Join(failing, ", "))
	}
	return "the agent watches"
}

// receivers lists those of the process, but for this one.
func (s *speaker) receivers(r metadata.TracecoreAgentHeartbeat, all []heartbeat.Status) {
	if all == nil {
		return
	}
	list := r.TracecoreAgentReceivers()
	for i := range all {
		c := &all[i]
		if c.Kind != component.KindReceiver || c.Name == s.self || list.Len() == heartbeat.MostComponents {
			continue
		}
		one := metadata.ComponentMapOn(record.On(list.AppendEmpty().SetEmptyMap()))
		one.Name(c.Name)
		one.State(c.State)
		one.SinceUnixNano(c.Since.UnixNano())
		one.Error(safetext.Clip(c.Error, heartbeat.MaxError))
	}
}

func probes(r metadata.TracecoreAgentHeartbeat, all []heartbeat.Probe) {
	list := r.TracecoreAgentProbes()
	for _, p := range all[:min(len(all), heartbeat.MostComponents)] {
		one := metadata.ProbeMapOn(record.On(list.AppendEmpty().SetEmptyMap()))
		one.Component(p.Component)
		one.Hook(p.Hook)
		one.Up(p.Up)
	}
}
