package hint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEvents(t *testing.T) {
	for _, tc := range []struct {
		reason, message string
		want            Meaning
	}{
		{"Evicted", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. ", Meaning{PodEvicted, Memory}},
		{"Evicted", "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. ", Meaning{PodEvicted, Disk}},
		{"Evicted", "The node was low on resource: inodes. ", Meaning{PodEvicted, Disk}},
		{"Evicted", "The node was low on resource: pids. ", Meaning{PodEvicted, PID}},
		{"Evicted", "The node had condition: [DiskPressure]. ", Meaning{PodEvicted, Disk}},
		{"Evicted", "The node had condition: [MemoryPressure PIDPressure]. ", Meaning{PodEvicted, Memory}},
		{"Evicted", `Usage of EmptyDir volume "cache" exceeds the limit "1Gi". `, Meaning{Hint: PodEvicted}},
		{"Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", Meaning{Hint: PodEvicted}},
		{"Evicted", "", Meaning{Hint: PodEvicted}},
		{"Evicted", "Evicted pod: Spot Interruption", Meaning{Hint: PodEvicted}}, // of Karpenter
		{"Disrupted", "Deleting the pod to accommodate the terminationTime 2026-11-27 of the node. The pod was granted 300 seconds of grace-period", Meaning{Hint: PodEvicted}},
		{"Disrupted", "Disrupting Node: Empty", Meaning{}},
		{"DeviceTaintManagerEviction", "Marking for deletion", Meaning{Hint: PodEvicted}},
		{"DeviceTaintManagerEviction", "Cancelling deletion of Pod ml/train-3", Meaning{}},
		{"Failed", "Error: failed to create containerd task: CDI device injection failed: unresolvable CDI devices runtime.nvidia.com/gpu=0", Meaning{Hint: DeviceUnavailable}},
		{"FailedPrepareDynamicResources", "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed", Meaning{Hint: DeviceUnavailable}},
		{"ScaleDown", "deleting pod for node scale down", Meaning{Hint: PodEvicted}},
		{"ScaleDown", "marked the node as toBeDeleted/unschedulable", Meaning{}},
		{"TaintManagerEviction", "Marking for deletion Pod ml/train-3", Meaning{Hint: PodEvicted}},
		{"TaintManagerEviction", "Cancelling deletion of Pod ml/train-3", Meaning{}},
		{"TaintManagerEviction", "(combined from similar events): Cancelling deletion of Pod ml/train-3", Meaning{}},
		{"BackOff", `(combined from similar events): Back-off pulling image "registry/train:1"`, Meaning{Hint: ImagePullFailed}},
		{"Failed", `(combined from similar events): Failed to pull image "registry/train:1": not found`, Meaning{Hint: ImagePullFailed}},
		{"ScaleDown", "(combined from similar events): deleting pod for node scale down", Meaning{Hint: PodEvicted}},
		{"Preempted", "Preempted by a pod on node gpu-17", Meaning{Hint: PodPreempted}},
		{"FailedMount", "Unable to attach or mount volumes: timed out", Meaning{Hint: MountFailure}},
		{"BackOff", "Back-off restarting failed container train in pod train-3", Meaning{Hint: BackOff}},
		{"BackOff", `Back-off pulling image "registry/train:1"`, Meaning{Hint: ImagePullFailed}},
		{"Failed", `Failed to pull image "registry/train:1": not found`, Meaning{Hint: ImagePullFailed}},
		{"Failed", "Error: ImagePullBackOff", Meaning{Hint: ImagePullFailed}},
		{"Failed", "Error: context deadline exceeded", Meaning{}},
		{"Failed", "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown", Meaning{Hint: DeviceUnavailable}},
		{"UnexpectedAdmissionError", "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, which is unexpected", Meaning{Hint: DeviceUnavailable}},
		{"UnexpectedAdmissionError", "Unexpected error while attempting to recover from admission failure", Meaning{}},
		{"SystemOOM", "System OOM encountered, victim process: python, pid: 4242", Meaning{Hint: OOMKilled}},
		{"EvictionThresholdMet", "Attempting to reclaim memory", Meaning{NodePressure, Memory}},
		{"EvictionThresholdMet", "Attempting to reclaim ephemeral-storage", Meaning{NodePressure, Disk}},
		{"EvictionThresholdMet", "Attempting to reclaim pids", Meaning{NodePressure, PID}},
		{"EvictionThresholdMet", "", Meaning{Hint: NodePressure}},
		{"NodeHasDiskPressure", "", Meaning{NodePressure, Disk}},
		{"NodeHasNoDiskPressure", "", Meaning{NodeRecovered, Disk}},
		{"NodeReady", "", Meaning{Hint: NodeRecovered}},
		{"FailedScheduling", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", Meaning{Hint: Unschedulable}},
		{"FailedScheduling", "skip schedule deleting pod: ml/train-3", Meaning{}},
		{"Scheduled", "Successfully assigned ml/train-3 to gpu-17", Meaning{}},
		{"Pulled", "", Meaning{}},
		{"", "", Meaning{}},
	} {
		require.Equal(t, tc.want, OfEvent(tc.reason, tc.message), "%s: %s", tc.reason, tc.message)
	}
}

func TestConditions(t *testing.T) {
	for _, tc := range []struct {
		kind, status string
		want         Meaning
	}{
		{"Ready", "True", Meaning{Hint: NodeRecovered}},
		{"Ready", "False", Meaning{Hint: NodeUnhealthy}},
		{"Ready", "Unknown", Meaning{Hint: NodeUnhealthy}},
		{"MemoryPressure", "True", Meaning{NodePressure, Memory}},
		{"DiskPressure", "True", Meaning{NodePressure, Disk}},
		{"PIDPressure", "True", Meaning{NodePressure, PID}},
		{"PIDPressure", "False", Meaning{NodeRecovered, PID}},
		{"MemoryPressure", "Unknown", Meaning{}},
		{"DiskPressure", "Unknown", Meaning{}},
		{"PIDPressure", "Unknown", Meaning{}},
		{"NetworkUnavailable", "True", Meaning{}},
		{"NetworkUnavailable", "False", Meaning{}},
	} {
		require.Equal(t, tc.want, OfCondition(tc.kind, tc.status), "%s %s", tc.kind, tc.status)
	}
}
