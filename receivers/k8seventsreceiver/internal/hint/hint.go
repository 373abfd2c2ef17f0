// Package hint says what a Kubernetes event or node condition means to people who
// run training jobs: one word of sixteen, or none.
package hint

import "strings"

// Hint is that word, the value of k8s.event.hint.
type Hint string

// The hints.
const (
	None              Hint = ""
	PodEvicted        Hint = "pod_evicted"        // the pod was taken from its node, by the kubelet, for a taint or for a drain
	PodPreempted      Hint = "pod_preempted"      // it had to make room for another
	MountFailure      Hint = "mount_failure"      // a volume was not attached or mounted
	BackOff           Hint = "backoff"            // a container fails again and again
	OOMKilled         Hint = "oom_killed"         // the kernel of the node killed for want of memory
	NodeUnhealthy     Hint = "node_unhealthy"     // the node does not answer, or rebooted
	NodePressure      Hint = "node_pressure"      // it is short of memory, disk or process ids
	ImagePullFailed   Hint = "image_pull_failed"  // an image did not come
	Unschedulable     Hint = "unschedulable"      // no node fits
	ProbeFailed       Hint = "probe_failed"       // a liveness, readiness or startup probe failed
	SandboxFailed     Hint = "sandbox_failed"     // network or runtime could not make the pod's sandbox
	DeviceUnavailable Hint = "device_unavailable" // the node or its runtime cannot give the pod its GPUs
	NodeRecovered     Hint = "node_recovered"     // the node is ready, or short of something no longer
	PodReplaced       Hint = "pod_replaced"       // another pod was scheduled in the place of one that was evicted
	PodScheduled      Hint = "pod_scheduled"      // a pod that no node fitted has a node
	PodStarted        Hint = "pod_started"        // a container of a pod that did not start runs
)

// The kinds of pressure.
const (
	Memory = "memory"
	Disk   = "disk"
	PID    = "pid"
)

// Meaning is a hint and, of NodePressure, its end and PodEvicted, what the node is or was short of.
type Meaning struct {
	Hint     Hint
	Pressure string
}

// OfNode reports whether it is about a node and not about a pod.
func (m Meaning) OfNode() bool {
	return m.Hint == NodeUnhealthy || m.Hint == NodePressure || m.Hint == NodeRecovered
}

// Ends reports whether it is the end of the trouble of a pod.
func (m Meaning) Ends() bool {
	return m.Hint == PodReplaced || m.Hint == PodScheduled || m.Hint == PodStarted
}

// reasons are those that need no look at the message. Sources, in k8s.io/kubernetes
// v1.35: pkg/kubelet/events/event.go, pkg/kubelet/eviction/eviction_manager.go,
// pkg/kubelet/oom/oom_watcher_linux.go, pkg/kubelet/kubelet_node_status.go,
// pkg/scheduler/framework/preemption, pkg/controller/tainteviction; OOMKilling is
// node-problem-detector's.
var reasons = map[string]Meaning{
	"Preempting":                      {Hint: PodPreempted},
	"Preempted":                       {Hint: PodPreempted},
	"FailedMount":                     {Hint: MountFailure},
	"FailedAttachVolume":              {Hint: MountFailure},
	"FailedMapVolume":                 {Hint: MountFailure},
	"FailedMountOnFilesystemMismatch": {Hint: MountFailure},
	"OOMKilling":                      {Hint: OOMKilled},
	"SystemOOM":                       {Hint: OOMKilled},
	"NodeNotReady":                    {Hint: NodeUnhealthy},
	"Rebooted":                        {Hint: NodeUnhealthy},
	"NodeHasInsufficientMemory":       {NodePressure, Memory},
	"NodeHasDiskPressure":             {NodePressure, Disk},
	"NodeHasInsufficientPID":          {NodePressure, PID},
	"NodeReady":                       {Hint: NodeRecovered},
	"NodeHasSufficientMemory":         {NodeRecovered, Memory},
	"NodeHasNoDiskPressure":           {NodeRecovered, Disk},
	"NodeHasSufficientPID":            {NodeRecovered, PID},
	"InspectFailed":                   {Hint: ImagePullFailed},
	"ErrImageNeverPull":               {Hint: ImagePullFailed},
	"Unhealthy":                       {Hint: ProbeFailed},
	"FailedCreatePodSandBox":          {Hint: SandboxFailed},
}

// combined stands before the text of an event that takes the place of ten similar ones
// (client-go v0.35, tools/record/events_cache.go).
const combined = "(combined from similar events): "

// OfEvent returns what an event means, by its reason and, where one reason
// stands for several things, its message.
func OfEvent(reason, message string) Meaning {
	message = strings.TrimPrefix(message, combined)
	switch reason {
	case "FailedScheduling":
		if strings.HasPrefix(message, "skip schedule deleting pod") { // pkg/scheduler/schedule_one.go: it is deleted
			return Meaning{}
		}
		return Meaning{Hint: Unschedulable}
	case "BackOff":
		if strings.HasPrefix(message, "Back-off pulling image") {
			return Meaning{Hint: ImagePullFailed}
		}
		return Meaning{Hint: BackOff}
	case "Failed":
		if strings.HasPrefix(message, "Failed to pull image") || strings.Contains(message, "ImagePull") {
			return Meaning{Hint: ImagePullFailed}
		}
		// The hook of NVIDIA's container toolkit (its driver, or no such GPU), or its CDI mode.
		if strings.Contains(message, "nvidia-container-") || strings.Contains(message, "unresolvable CDI devices") {
			return Meaning{Hint: DeviceUnavailable}
		}
		return Meaning{}
	case "UnexpectedAdmissionError": // pkg/kubelet/cm/devicemanager, and other things that admit pods
		if strings.HasPrefix(message, "Allocate failed") {
			return Meaning{Hint: DeviceUnavailable}
		}
		return Meaning{}
	case "FailedPrepareDynamicResources": // pkg/kubelet/cm/dra
		return Meaning{Hint: DeviceUnavailable}
	case "TaintManagerEviction", "DeviceTaintManagerEviction":
		if strings.HasPrefix(message, "Cancelling") {
			return Meaning{}
		}
		return Meaning{Hint: PodEvicted}
	case "Disrupted": // Karpenter's, of a pod that its node does not wait for, and of nodes
		if strings.HasPrefix(message, "Deleting the pod to accommodate") {
			return Meaning{Hint: PodEvicted}
		}
		return Meaning{}
	case "ScaleDown": // the cluster-autoscaler's, of nodes, too
		if message == "deleting pod for node scale down" {
			return Meaning{Hint: PodEvicted}
		}
		return Meaning{}
	case "EvictionThresholdMet":
		return Meaning{NodePressure, shortOf(message, "reclaim ")}
	case "Evicted":
		return Meaning{PodEvicted, shortOf(message, "The node was low on resource: ", "The node had condition: [")}
	}
	return reasons[reason]
}

// shortOf reads "Attempting to reclaim memory" and why the kubelet evicts: "The node was low on
// resource: memory. …", or "The node had condition: [MemoryPressure]. " where it does not admit a
// pod (eviction_manager.go, helpers.go). A pod that uses more than its own limit allows is
// evicted, too, and its node is short of nothing.
func shortOf(message string, after ...string) string {
	for _, words := range after {
		_, resource, _ := strings.Cut(message, words)
		switch {
		case strings.HasPrefix(resource, "memory"), strings.HasPrefix(resource, "MemoryPressure"):
			return Memory
		case strings.HasPrefix(resource, "pids"), strings.HasPrefix(resource, "PIDPressure"):
			return PID
		case resource != "":
			return Disk // ephemeral-storage, inodes, imagefs, containerfs, DiskPressure
		}
	}
	return ""
}

// OfCondition returns what a node condition means that has this status
// ("True", "False", "Unknown"): bad, good, or nothing. A node that is silent has conditions of
// status Unknown (k8s.io/kubernetes v1.35, pkg/controller/nodelifecycle): whether it is short of
// something still, nobody knows.
func OfCondition(kind, status string) Meaning {
	switch kind {
	case "Ready":
		if status == Good(kind) {
			return Meaning{Hint: NodeRecovered}
		}
		return Meaning{Hint: NodeUnhealthy}
	case "MemoryPressure", "DiskPressure", "PIDPressure":
		short := strings.ToLower(strings.TrimSuffix(kind, "Pressure"))
		switch status {
		case "True":
			return Meaning{NodePressure, short}
		case Good(kind):
			return Meaning{NodeRecovered, short}
		}
	}
	return Meaning{}
}

// Good is the status of a node condition that is good.
func Good(kind string) string {
	if kind == "Ready" {
		return "True"
	}
	return "False"
}
