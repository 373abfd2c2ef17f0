package k8seventsreceiver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

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

	// evictedFor is how long a pod is remembered: as long as pod_evicted stands (its `expires`). What
	// begins later ends nothing.
	evictedFor = time.Hour
)

// evictedPod is a pod that lost its place.
type evictedPod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"` // absent where it was gone when it was asked for
	Node      string    `json:"node,omitempty"`
	Job       string    `json:"job,omitempty"`
	Index     string    `json:"index,omitempty"`
	Noted     time.Time `json:"noted"` // by this machine's clock
}

// evicted remembers the pods that lost their place, so that it can be said when another one
// has taken it: their remedy is done then. Events come in the order in which they happened.
type evicted struct {
	mu    sync.Mutex
	pods  []*fairlru.Element[evictedPod] // oldest first
	order fairlru.List[evictedPod]
}

// note takes in an eviction of a pod that is or was there.
func (e *evicted) note(o *occurrence, at place, now time.Time) {
	if o.meaning.Hint != hint.PodEvicted && o.meaning.Hint != hint.PodPreempted {
		return
	}
	e.add(evictedPod{Namespace: o.namespace, Name: o.name, UID: o.objectUID, Node: o.node, Job: o.job, Index: at.index, Noted: now})
}

// add takes in such pods, unless they are known.
func (e *evicted) add(pods ...evictedPod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, pod := range pods {
		if slices.ContainsFunc(e.pods, func(p *fairlru.Element[evictedPod]) bool {
			return p.Value.Namespace == pod.Namespace && p.Value.Name == pod.Name && p.Value.UID == pod.UID
		}) {
			continue
		}
		e.pods = append(e.pods, e.order.Add(pod, fairlru.Some, pod.Namespace))
		if len(e.pods) > mostEvicted {
			victim, _ := e.order.Victim()
			e.forget(slices.Index(e.pods, victim))
		}
	}
}

func (e *evicted) forget(at int) {
	e.order.Remove(e.pods[at])
	e.pods = slices.Delete(e.pods, at, at+1)
}

// known returns the pods that are remembered, oldest first.
func (e *evicted) known() (all []evictedPod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.pods {
		all = append(all, p.Value)
	}
	return all
}

// any reports whether a pod of the namespace has lost its place. Of other pods nobody asks.
func (e *evicted) any(namespace string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.pods) > 0 && now.Sub(e.pods[0].Value.Noted) > evictedFor {
		e.forget(0)
	}
	return slices.ContainsFunc(e.pods, func(p *fairlru.Element[evictedPod]) bool { return p.Value.Namespace == namespace })
}

// take returns the pod whose place another has taken: one of its name, as a StatefulSet makes
// it, or else the first of its job, and of its index where both have one.
func (e *evicted) take(o *occurrence, at place) (evictedPod, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, fits := range [...]func(*evictedPod) bool{
		func(p *evictedPod) bool { return p.Name == o.name },
		func(p *evictedPod) bool {
			return at.job != "" && p.Job == at.job && (p.Index == at.index || p.Index == "" || at.index == "")
		},
	} {
		i := slices.IndexFunc(e.pods, func(p *fairlru.Element[evictedPod]) bool {
			return p.Value.Namespace == o.namespace && p.Value.UID != o.objectUID && fits(&p.Value)
		})
		if i >= 0 {
			p := e.pods[i].Value
			e.forget(i)
			return p, true
		}
	}
	return evictedPod{}, false
}

// replaces reports whether a pod that was scheduled takes the place of one that was evicted, and
// makes of its event the end of that.
func (k *k8sEvents) replaces(ctx context.Context, o *occurrence) bool {
	at := k.pods.where(ctx, o)
	old, is := k.evicted.take(o, at)
	if !is {
		return false
	}
	message := fmt.Sprintf("pod %s/%s was scheduled in the place of %s", o.namespace, o.name, old.Name)
	if at.node != "" {
		message += ", on " + at.node
	}
	*o = occurrence{
		meaning: hint.Meaning{Hint: hint.PodReplaced}, time: o.time, reason: o.reason, message: message, uid: o.uid, count: 1,
		kind: o.kind, namespace: old.Namespace, name: old.Name, objectUID: old.UID, node: old.Node, job: old.Job,
	}
	return true
}
