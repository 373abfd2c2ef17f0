package k8seventsreceiver

import (
	"slices"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/internal/fairlru"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

const (
	// mostRemembered caps the pods of which one kind of trouble is remembered. Namespaces share the room:
	// the one that has most forgets its oldest.
	mostRemembered = 1024

	// rememberedFor is how long a pod is remembered: as long as pod_evicted and pod_not_starting stand
	// (their `expires`). What begins later ends nothing.
	rememberedFor = time.Hour
)

// rememberedPod is a pod that was told to be in trouble.
type rememberedPod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"` // absent where it was gone when it was asked for
	Node      string    `json:"node,omitempty"`
	Job       string    `json:"job,omitempty"`
	Index     string    `json:"index,omitempty"`
	Hint      hint.Hint `json:"hint,omitempty"` // absent of an eviction
	Part      string    `json:"part,omitempty"` // the container that fails, where it is one
	Noted     time.Time `json:"noted"`          // by this machine's clock
}

func remember(o *occurrence, at place, now time.Time) rememberedPod {
	return rememberedPod{Namespace: o.namespace, Name: o.name, UID: o.objectUID, Node: o.node, Job: o.job, Index: at.index, Noted: now}
}

// is reports whether both are the same trouble of one pod.
func (p *rememberedPod) is(other *rememberedPod) bool {
	return p.samePod(other) && p.Hint == other.Hint && p.Part == other.Part
}

func (p *rememberedPod) samePod(other *rememberedPod) bool {
	return p.Namespace == other.Namespace && p.Name == other.Name && p.UID == other.UID
}

// end makes of the event that ended its trouble what is told of it.
func (p *rememberedPod) end(by *occurrence, h hint.Hint, message, node string) occurrence {
	return occurrence{
		meaning: hint.Meaning{Hint: h}, time: by.time, reason: by.reason, message: message, uid: by.uid, count: 1,
		kind: by.kind, namespace: p.Namespace, name: p.Name, objectUID: p.UID, node: node, job: p.Job,
	}
}

// remembered keeps pods in trouble until its end is seen, or nobody waits for that any more.
type remembered struct {
	mu    sync.Mutex
	pods  []*fairlru.Element[rememberedPod] // oldest first
	order fairlru.List[rememberedPod]
}

// add takes in pods. What is known already is as old as it was.
func (r *remembered) add(pods ...rememberedPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range pods {
		if !slices.ContainsFunc(r.pods, func(p *fairlru.Element[rememberedPod]) bool { return p.Value.is(&pods[i]) }) {
			r.insert(&pods[i])
		}
	}
}

// renew takes in a pod. What is known already is heard of again.
func (r *remembered) renew(pod rememberedPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := slices.IndexFunc(r.pods, func(p *fairlru.Element[rememberedPod]) bool { return p.Value.is(&pod) }); at >= 0 {
		r.forget(at)
	}
	r.insert(&pod)
}

func (r *remembered) insert(pod *rememberedPod) {
	r.pods = append(r.pods, r.order.Add(*pod, fairlru.Some, pod.Namespace))
	if len(r.pods) > mostRemembered {
		victim, _ := r.order.Victim()
		r.forget(slices.Index(r.pods, victim))
	}
}

func (r *remembered) forget(at int) {
	r.order.Remove(r.pods[at])
	r.pods = slices.Delete(r.pods, at, at+1)
}

// known returns the pods that are remembered, oldest first.
func (r *remembered) known() (all []rememberedPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		all = append(all, p.Value)
	}
	return all
}

// any reports whether a pod of the namespace is in trouble. Of other pods nobody asks.
func (r *remembered) any(namespace string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pods) > 0 && now.Sub(r.pods[0].Value.Noted) > rememberedFor {
		r.forget(0)
	}
	return slices.ContainsFunc(r.pods, func(p *fairlru.Element[rememberedPod]) bool { return p.Value.Namespace == namespace })
}

// has reports whether a pod that fits is remembered.
func (r *remembered) has(fits func(*rememberedPod) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.pods, func(p *fairlru.Element[rememberedPod]) bool { return fits(&p.Value) })
}

// takeOut forgets the first pods that fit, so many at most, and returns them.
func (r *remembered) takeOut(most int, fits func(*rememberedPod) bool) (taken []rememberedPod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := 0; at < len(r.pods) && len(taken) < most; {
		if !fits(&r.pods[at].Value) {
			at++
			continue
		}
		taken = append(taken, r.pods[at].Value)
		r.forget(at)
	}
	return taken
}
