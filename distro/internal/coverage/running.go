package coverage

import (
	"maps"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/internal/heartbeat"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Silent is a pattern of which no verdict can come until a source beside the probes speaks.
const Silent State = "silent"

// probeOf is the feature of each component that has a probe. That of kernelevents has one more
// where it can show who writes, that of identity where its hook sees ends.
var probeOf = map[string]check.Feature{
	"receiver kernelevents": check.KernelLog, "receiver oomkill": check.OOMKills, "extension identity": check.Identity, "receiver fusefault": check.FUSEStalls,
	"receiver ncclsock": check.SocketStalls, "receiver cudaoom": check.GPUMemory, "receiver ncclcall": check.CollectiveCalls, "receiver pyexception": check.Exceptions,
	"receiver stacks": check.RankStacks,
}

// Delivered are the features that a running agent delivers, by its own metrics. proven: its
// kernelevents can show who wrote a line.
func Delivered(probes []heartbeat.Probe, proven bool) map[check.Feature]bool {
	there := map[check.Feature]bool{}
	for _, p := range probes {
		if feature, known := probeOf[p.Component]; known && p.Up {
			there[feature] = true
			there[check.Exits] = there[check.Exits] || feature == check.Identity && identity.SeesEnds(p.Hook)
			there[check.Origins] = there[check.Origins] || feature == check.KernelLog && proven
		}
	}
	maps.DeleteFunc(there, func(_ check.Feature, is bool) bool { return !is })
	return there
}

// Running says what a rule can do in an agent with these features; heard says whether a piece of
// evidence came from elsewhere, or who tells of it is at work.
func (s Sources) Running(r *rule.Rule, there map[check.Feature]bool, heard func(e *rule.Evidence) bool) State {
	p := s.pattern(r, there)
	if p.State == Blind {
		return Blind
	}
	seen := s.given(r, there)
	for i := range r.Evidence {
		if heard(&r.Evidence[i]) {
			seen[r.Evidence[i].Name] = true
		}
	}
	switch State(worth(r, seen)) {
	case Full:
		return p.State
	case Blind:
		return Silent
	}
	return Degraded
}
