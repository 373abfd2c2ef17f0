package ranks

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/engine/timeline"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// mostHashes bounds the stacks whose frames are held; the domain and job that have most lose
// those that were told longest ago.
const mostHashes = 1024

// frames are those of stacks by their hash: they are told once for each hash of a job.
type frames struct {
	of    map[frameKey]*fairlru.Element[frameKey]
	lists map[frameKey][]history.RankFrame
	order fairlru.List[frameKey]
}

// frameKey has the job: nobody names the frames of another's stack.
type frameKey struct {
	job  jobKey
	hash string
}

func newFrames() frames {
	return frames{of: map[frameKey]*fairlru.Element[frameKey]{}, lists: map[frameKey][]history.RankFrame{}, order: timeline.NewOrder[frameKey]()}
}

// learn takes the frames of a record that has some beside the kernel's function.
func (f *frames) learn(j *job, a pcommon.Map) {
	hash := rule.Text(a, "process.stack.hash")
	told, _ := incidentview.FramesOf(a)
	list := make([]history.RankFrame, 0, min(len(told), history.MaxFrames))
	named := false
	for _, one := range told[:min(len(told), history.MaxFrames)] {
		named = named || one.Kind != "kernel"
		list = append(list, history.RankFrame(one))
	}
	key := frameKey{j.jobKey, hash}
	if hash == "" || !named {
		return
	}
	if known := f.of[key]; known != nil {
		f.order.Touch(known, fairlru.Some)
	} else {
		for f.order.Len() >= mostHashes {
			victim, _ := f.order.Victim()
			f.forget(victim.Value)
		}
		f.of[key] = f.order.Add(key, fairlru.Some, timeline.Path(j.trust, []string{j.domain, j.id})...)
	}
	f.lists[key] = list
}

func (f *frames) forget(key frameKey) {
	f.order.Remove(f.of[key])
	delete(f.of, key)
	delete(f.lists, key)
}
