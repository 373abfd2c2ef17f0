package k8seventsreceiver

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tracecoreai/tracecore/internal/fairlru"
)

// mostPods caps the memory of pods. Namespaces share the room: the one that has most forgets its oldest.
const mostPods = 8192

// podTimeout bounds one question to the API server: an event is not held up for
// the sake of a label.
const podTimeout = 2 * time.Second

// podKey is a pod as an event names it. Who writes events in his namespace can name any uid, but no other
// namespace: such an event is ignored.
type podKey struct{ namespace, name, uid string }

// knownPod is what the API server has answered about a pod, or before that, on which node its scheduler
// put it.
type knownPod struct {
	key      podKey
	at       place
	answered bool
}

// pods knows where a pod runs and for which job. It asks once for each pod that
// an event worth reporting is about, and only then. Where a pod runs it knows also of
// those that are gone by then.
type pods struct {
	client api
	labels []string

	mu     sync.Mutex
	known  map[podKey]*fairlru.Element[knownPod]
	newest map[podKey]*fairlru.Element[knownPod] // without a uid: the pod of that name that was scheduled last
	order  fairlru.List[knownPod]
}

func newPods(client api, labels []string) *pods {
	return &pods{client: client, labels: labels, known: map[podKey]*fairlru.Element[knownPod]{}, newest: map[podKey]*fairlru.Element[knownPod]{}}
}

// where returns what is known of the pod of an event. The taint manager names a pod without its uid
// (k8s.io/kubernetes v1.35, pkg/controller/tainteviction): it is the pod of that name, if that was made
// before the event. Of a pod that is gone, or whose name another has, counts what was known before.
func (p *pods) where(ctx context.Context, o *occurrence) place {
	known := p.remembered(o)
	if known.answered {
		return known.at
	}
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pod, err := p.client.pod(ctx, o.namespace, o.name)
	if err != nil || o.objectUID != "" && string(pod.UID) != o.objectUID || o.objectUID == "" && pod.CreationTimestamp.After(o.time) {
		return known.at
	}
	at := place{uid: string(pod.UID), node: pod.Spec.NodeName, job: p.jobOf(pod), index: indexOf(pod)}
	if at.node != "" { // else not scheduled yet: ask again next time
		p.remember(knownPod{podKey{o.namespace, o.name, at.uid}, at, true})
	}
	return at
}

// remembered is what is known of the pod of an event without asking.
func (p *pods) remembered(o *occurrence) knownPod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.known[podKey{o.namespace, o.name, o.objectUID}]; at != nil {
		return at.Value
	}
	if at := p.newest[podKey{o.namespace, o.name, ""}]; at != nil && o.objectUID == "" {
		return knownPod{at: at.Value.at} // no answer: another may have its name by now
	}
	return knownPod{}
}

// scheduled takes in the event that a pod has a node ("Successfully assigned ml/train-3 to gpu-17").
func (p *pods) scheduled(o *occurrence) {
	_, node, is := strings.Cut(o.message, " to ")
	if o.reason != scheduled || o.kind != "Pod" || o.objectUID == "" || !is {
		return
	}
	p.remember(knownPod{key: podKey{o.namespace, o.name, o.objectUID}, at: place{uid: o.objectUID, node: short(node, longestName)}})
}

func (p *pods) remember(pod knownPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.known[pod.key]; before != nil {
		if pod.answered || !before.Value.answered {
			before.Value = pod
		}
		return
	}
	at := p.order.Add(pod, fairlru.Some, pod.key.namespace)
	p.known[pod.key], p.newest[podKey{pod.key.namespace, pod.key.name, ""}] = at, at
	if len(p.known) > mostPods {
		victim, _ := p.order.Victim()
		p.order.Remove(victim)
		delete(p.known, victim.Value.key)
		if name := (podKey{victim.Value.key.namespace, victim.Value.key.name, ""}); p.newest[name] == victim {
			delete(p.newest, name)
		}
	}
}

func (p *pods) jobOf(pod *corev1.Pod) string {
	for _, label := range p.labels {
		if job := pod.Labels[label]; job != "" {
			return job
		}
	}
	return ""
}

// indexLabels say which pod of its job one is: those of Jobs, JobSet, Kubeflow's training operator and Volcano.
var indexLabels = []string{
	"batch.kubernetes.io/job-completion-index",
	"jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index",
	"training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index",
	"volcano.sh/task-spec", "volcano.sh/task-index",
}

// indexOf returns which pod of its job one is: one that takes its place has the same labels.
func indexOf(pod *corev1.Pod) string {
	var all []string
	for _, label := range indexLabels {
		if value := pod.Labels[label]; value != "" {
			all = append(all, value)
		}
	}
	return strings.Join(all, "/")
}
