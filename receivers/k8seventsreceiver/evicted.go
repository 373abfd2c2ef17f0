package k8seventsreceiver

import (
	"context"
	"fmt"
	"time"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// scheduled is the reason of the event that a new pod has a node: the scheduler's, one for
// each pod (k8s.io/kubernetes v1.35, pkg/scheduler/schedule_one.go).
const scheduled = "Scheduled"

// evicted remembers the pods that lost their place, so that it can be said when another one
// has taken it: their remedy is done then. Events come in the order in which they happened.
type evicted struct{ remembered }

// note takes in an eviction of a pod that is or was there.
func (e *evicted) note(o *occurrence, at place, now time.Time) {
	if o.meaning.Hint == hint.PodEvicted || o.meaning.Hint == hint.PodPreempted {
		e.add(remember(o, at, now))
	}
}

// take returns the pod whose place another has taken: one of its name, as a StatefulSet makes
// it, or else the first of its job, and of its index where both have one.
func (e *evicted) take(o *occurrence, at place) (rememberedPod, bool) {
	for _, fits := range [...]func(*rememberedPod) bool{
		func(p *rememberedPod) bool { return p.Name == o.name },
		func(p *rememberedPod) bool {
			return at.job != "" && p.Job == at.job && (p.Index == at.index || p.Index == "" || at.index == "")
		},
	} {
		old := e.takeOut(1, func(p *rememberedPod) bool {
			return p.Namespace == o.namespace && p.UID != o.objectUID && fits(p)
		})
		if len(old) > 0 {
			return old[0], true
		}
	}
	return rememberedPod{}, false
}

// replaces returns the end of an eviction where a pod that was scheduled takes the place of the pod that
// was evicted.
func (k *k8sEvents) replaces(ctx context.Context, o *occurrence) (ends []occurrence) {
	if o.reason != scheduled || !k.evicted.any(o.namespace, time.Now()) {
		return nil
	}
	at := k.pods.where(ctx, o)
	old, is := k.evicted.take(o, at)
	if !is {
		return nil
	}
	message := fmt.Sprintf("pod %s/%s was scheduled in the place of %s", o.namespace, o.name, old.Name)
	if at.node != "" {
		message += ", on " + at.node
	}
	return append(ends, old.end(o, hint.PodReplaced, message, old.Node))
}
