package k8seventsreceiver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

const (
	// scheduled is the reason of the event that a new pod has a node: the scheduler's, one for
	// each pod (k8s.io/kubernetes v1.35, pkg/scheduler/schedule_one.go).
	scheduled = "Scheduled"

	// mostEvicted caps the pods that are remembered. Namespaces share the room: the one that has
	// most forgets its oldest.
	mostEvicted = 1024
)

// evicted remembers the pods that lost their place, so that it can be said when another one
// has taken it: their remedy is done then.
type evicted struct {
	mu    sync.Mutex
	pods  []*fairlru.Element[occurrence] // oldest first
	order fairlru.List[occurrence]
}

// note takes in an eviction.
func (e *evicted) note(o *occurrence) {
	if o.meaning.Hint != hint.PodEvicted && o.meaning.Hint != hint.PodPreempted {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.ContainsFunc(e.pods, func(p *fairlru.Element[occurrence]) bool { return samePod(&p.Value, o) }) {
		return
	}
	e.pods = append(e.pods, e.order.Add(*o, fairlru.Some, o.namespace))
	if len(e.pods) > mostEvicted {
		victim, _ := e.order.Victim()
		e.forget(slices.Index(e.pods, victim))
	}
}

// samePod reports whether two occurrences are about one pod. A pod that was gone when it was asked for may
// have no uid.
func samePod(a, b *occurrence) bool {
	return a.namespace == b.namespace && a.name == b.name && a.objectUID == b.objectUID
}

func (e *evicted) forget(at int) {
	e.order.Remove(e.pods[at])
	e.pods = slices.Delete(e.pods, at, at+1)
}

// any reports whether a pod of the namespace has lost its place. Of other pods nobody asks.
func (e *evicted) any(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.pods, func(p *fairlru.Element[occurrence]) bool { return p.Value.namespace == namespace })
}

// take returns the pod whose place another has taken: one of its name, as a StatefulSet makes
// it, or else the first of its job.
func (e *evicted) take(namespace, name, job, uid string) (occurrence, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fits := range [...]func(*occurrence) bool{
		func(p *occurrence) bool { return p.name == name },
		func(p *occurrence) bool { return job != "" && p.job == job },
	} {
		at := slices.IndexFunc(e.pods, func(p *fairlru.Element[occurrence]) bool {
			return p.Value.namespace == namespace && p.Value.objectUID != uid && fits(&p.Value)
		})
		if at >= 0 {
			p := e.pods[at].Value
			e.forget(at)
			return p, true
		}
	}
	return occurrence{}, false
}

// replaces reports whether a pod that was scheduled takes the place of one that was evicted, and
// makes of its event the end of that.
func (k *k8sEvents) replaces(ctx context.Context, o *occurrence) bool {
	at := k.pods.where(ctx, o)
	old, is := k.evicted.take(o.namespace, o.name, at.job, o.objectUID)
	if !is {
		return false
	}
	message := fmt.Sprintf("pod %s/%s was scheduled in the place of %s", o.namespace, o.name, old.name)
	if at.node != "" {
		message += ", on " + at.node
	}
	*o = occurrence{
		meaning: hint.Meaning{Hint: hint.PodReplaced}, time: o.time, reason: o.reason, message: message, uid: o.uid, count: 1,
		kind: old.kind, namespace: old.namespace, name: old.name, objectUID: old.objectUID, node: old.node, job: old.job,
	}
	return true
}
