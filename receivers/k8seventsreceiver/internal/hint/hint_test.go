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
		{"Evicted", "The node was low on resource: memory.", Meaning{Hint: PodEvicted}},
		{"TaintManagerEviction", "Marking for deletion Pod ml/train-3", Meaning{Hint: PodEvicted}},
		{"TaintManagerEviction", "Cancelling deletion of Pod ml/train-3", Meaning{}},
		{"Preempted", "Preempted by a pod on node gpu-17", Meaning{Hint: PodPreempted}},
		{"FailedMount", "Unable to attach or mount volumes: timed out", Meaning{Hint: MountFailure}},
		{"BackOff", "Back-off restarting failed container train in pod train-3", Meaning{Hint: BackOff}},
		{"BackOff", `Back-off pulling image "registry/train:1"`, Meaning{Hint: ImagePullFailed}},
		{"Failed", `Failed to pull image "registry/train:1": not found`, Meaning{Hint: ImagePullFailed}},
		{"Failed", "Error: ImagePullBackOff", Meaning{Hint: ImagePullFailed}},
		{"Failed", "Error: context deadline exceeded", Meaning{}},
		{"SystemOOM", "System OOM encountered, victim process: python, pid: 4242", Meaning{Hint: OOMKilled}},
		{"EvictionThresholdMet", "Attempting to reclaim memory", Meaning{NodePressure, Memory}},
		{"EvictionThresholdMet", "Attempting to reclaim ephemeral-storage", Meaning{NodePressure, Disk}},
		{"EvictionThresholdMet", "Attempting to reclaim pids", Meaning{NodePressure, PID}},
		{"EvictionThresholdMet", "", Meaning{Hint: NodePressure}},
		{"NodeHasDiskPressure", "", Meaning{NodePressure, Disk}},
		{"NodeHasNoDiskPressure", "", Meaning{NodeRecovered, Disk}},
		{"NodeReady", "", Meaning{Hint: NodeRecovered}},
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
		{"Ready", "True", Meaning{}},
		{"Ready", "False", Meaning{Hint: NodeUnhealthy}},
		{"Ready", "Unknown", Meaning{Hint: NodeUnhealthy}},
		{"MemoryPressure", "True", Meaning{NodePressure, Memory}},
		{"DiskPressure", "True", Meaning{NodePressure, Disk}},
		{"PIDPressure", "True", Meaning{NodePressure, PID}},
		{"PIDPressure", "False", Meaning{}},
		{"MemoryPressure", "Unknown", Meaning{}},
		{"NetworkUnavailable", "True", Meaning{}},
	} {
		require.Equal(t, tc.want, OfCondition(tc.kind, tc.status), "%s %s", tc.kind, tc.status)
	}
}

func TestWhatIsGoodAgain(t *testing.T) {
	require.Equal(t, Meaning{Hint: NodeRecovered}, Recovered("Ready"))
	require.Equal(t, Meaning{NodeRecovered, PID}, Recovered("PIDPressure"))
}
