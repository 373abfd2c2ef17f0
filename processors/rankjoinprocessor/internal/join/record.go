package join

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Host is where a rank runs, as far as its records say.
type Host struct {
	Name, Node, Pod, Container, Process string
	Namespace, PodName, Workload        string // of the pod
	PID                                 int64
}

func rankIn(a pcommon.Map, name string) (int, bool) {
	rank, found := whole(a, name)
	if !found || rank < 0 || rank > maxRank {
		return 0, false
	}
	return int(rank), true
}

// worldOf is the number of ranks of the job, 0 where it is not known.
func worldOf(a pcommon.Map) int {
	if world, _ := whole(a, "gen_ai.training.world_size"); world > 0 && world <= maxRank+1 {
		return int(world)
	}
	return 0
}

func hostOf(resource, a pcommon.Map) Host {
	h := Host{
		Name: str(resource, "host.name"), Node: str(resource, "k8s.node.name"), Pod: str(a, "k8s.pod.uid"),
		Container: str(a, "container.id"), Process: str(a, "process.executable.name"),
		Namespace: str(a, "k8s.namespace.name"), PodName: str(a, "k8s.pod.name"), Workload: str(a, "k8s.workload"),
	}
	h.PID, _ = whole(a, "process.pid")
	return h
}

// fill takes from o, the same rank by another record, what h lacks.
func (h *Host) fill(o Host) {
	if h.Name != "" && h.Name != o.Name || h.PID > 0 && h.PID != o.PID {
		return
	}
	for _, field := range []struct{ mine, theirs *string }{
		{&h.Name, &o.Name}, {&h.Node, &o.Node}, {&h.Pod, &o.Pod}, {&h.Container, &o.Container}, {&h.Process, &o.Process},
		{&h.Namespace, &o.Namespace}, {&h.PodName, &o.PodName}, {&h.Workload, &o.Workload},
	} {
		if *field.mine == "" {
			*field.mine = *field.theirs
		}
	}
	h.PID = o.PID
}

// str is a text of bounded length, "" where there is none.
func str(m pcommon.Map, name string) string { return clip(longStr(m, name)) }

func longStr(m pcommon.Map, name string) string {
	if v, found := m.Get(name); found && v.Type() == pcommon.ValueTypeStr {
		return v.Str()
	}
	return ""
}

func clip(s string) string {
	if len(s) > maxWords {
		return strings.ToValidUTF8(s[:maxWords], "")
	}
	return s
}

func whole(m pcommon.Map, name string) (int64, bool) {
	if v, found := m.Get(name); found && v.Type() == pcommon.ValueTypeInt {
		return v.Int(), true
	}
	return 0, false
}

func truth(m pcommon.Map, name string) bool {
	v, found := m.Get(name)
	return found && v.Type() == pcommon.ValueTypeBool && v.Bool()
}
