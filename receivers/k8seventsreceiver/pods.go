package k8seventsreceiver

import (
	"context"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// mostPods caps the memory of pods; it starts anew when it is full.
const mostPods = 8192

// podTimeout bounds one question to the API server: an event is not held up for
// the sake of a label.
const podTimeout = 2 * time.Second

// pods knows where a pod runs and for which job. It asks once for each pod that
// an event worth reporting is about, and only then.
type pods struct {
	client api
	labels []string

	mu    sync.Mutex
	known map[string]place // by uid
}

func newPods(client api, labels []string) *pods {
	return &pods{client: client, labels: labels, known: map[string]place{}}
}

// where returns what is known of the pod of an event; nothing when it is gone, or when another
// has its name. The taint manager names a pod without its uid (k8s.io/kubernetes v1.35,
// pkg/controller/tainteviction): it is the pod of that name, if that was made before the event.
func (p *pods) where(ctx context.Context, o *occurrence) place {
	p.mu.Lock()
	at, known := p.known[o.objectUID]
	p.mu.Unlock()
	if known {
		return at
	}
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pod, err := p.client.pod(ctx, o.namespace, o.name)
	if err != nil || o.objectUID != "" && string(pod.UID) != o.objectUID || o.objectUID == "" && pod.CreationTimestamp.After(o.time) {
		return place{}
	}
	at = place{uid: string(pod.UID), node: pod.Spec.NodeName, job: p.jobOf(pod), index: indexOf(pod)}
	if at.node == "" {
		return at // not scheduled yet: ask again next time
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= mostPods {
		clear(p.known)
	}
	p.known[at.uid] = at
	return at
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
