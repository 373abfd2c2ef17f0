package k8seventsreceiver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/hint"
)

// started is the reason of the event that a container runs: the kubelet's, one for each start, about
// the container ("spec.containers{train}"; k8s.io/kubernetes v1.35, pkg/kubelet/kuberuntime/kuberuntime_container.go).
const started = "Started"

// failures are what keeps a pod from starting.
var failures = []hint.Hint{hint.Unschedulable, hint.ImagePullFailed, hint.SandboxFailed, hint.DeviceUnavailable, hint.BackOff}

// failing remembers the pods of jobs that were told not to start, so that it can be said when they do.
type failing struct{ remembered }

// note takes in a failure of a pod. Pods of no job have no verdict.
func (f *failing) note(o *occurrence, at place, now time.Time) {
	if o.job == "" || !slices.Contains(failures, o.meaning.Hint) {
		return
	}
	pod := remember(o, at, now)
	pod.Hint, pod.Part = o.meaning.Hint, o.part
	f.renew(pod)
}

// endedBy reports whether an event of its pod, or of a pod in its place, ends a failure. A pod that is scheduled
// has a node and no more. A container that starts says nothing of another one.
func (p *rememberedPod) endedBy(o *occurrence) bool {
	if o.reason == scheduled {
		return p.Hint == hint.Unschedulable
	}
	return p.Hint == hint.Unschedulable || p.Part == "" || o.part == "" || p.Part == o.part
}

// take returns of each pod the first failure that the event of a pod ended, where nothing is left that a start would end:
// failures of the pod itself, and of a pod in whose place it is: of its name, or of its index in its job.
func (f *failing) take(o *occurrence, at place) (ended []rememberedPod) {
	taken := f.takeOut(mostRemembered, func(p *rememberedPod) bool {
		inPlace := p.UID == o.objectUID && p.Name == o.name || p.UID != o.objectUID && (p.Name == o.name || at.index != "" && p.Index == at.index && p.Job == at.job)
		return p.Namespace == o.namespace && inPlace && p.endedBy(o)
	})
	for _, one := range taken {
		if !slices.ContainsFunc(ended, func(p rememberedPod) bool { return p.samePod(&one) }) && (o.reason == scheduled || !f.has(one.samePod)) {
			ended = append(ended, one)
		}
	}
	return ended
}

// begins returns the ends of failures of pods, where a pod has got a node, or a container of it has started.
func (k *k8sEvents) begins(ctx context.Context, o *occurrence) (ends []occurrence) {
	if o.reason != scheduled && o.reason != started || !k.failing.any(o.namespace, time.Now()) {
		return nil
	}
	does, h := "was scheduled", hint.PodScheduled
	if o.reason == started {
		does, h = "has started", hint.PodStarted
	}
	at := k.pods.where(ctx, o)
	node := cmp.Or(at.node, o.node)
	for _, old := range k.failing.take(o, at) {
		message := fmt.Sprintf("pod %s/%s %s", o.namespace, o.name, does)
		if old.UID != o.objectUID {
			message += " in the place of " + old.Name
		}
		if node != "" {
			message += ", on " + node
		}
		ends = append(ends, old.end(o, h, message, cmp.Or(old.Node, node)))
	}
	return ends
}
