package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// helm runs Helm as an administrator.
func (s *server) helm(t *testing.T, args ...string) {
	t.Helper()
	args = append(args, "--kubeconfig", s.kubeconfigOf(t, s.config.BearerToken), "-n", release)
	out, err := exec.Command(need(t, "../../.cache/bin/helm"), args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// runJob stands for the controller of Jobs and a kubelet: it waits for a Job, runs what its
// container runs, with the token of its account, and says that it is done.
func (s *server) runJob(t *testing.T, name string) (said string, err error) {
	jobs := s.BatchV1().Jobs(release)
	var job *batchv1.Job
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if job, err = jobs.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			break
		}
		if time.Now().After(deadline) {
			return "", err
		}
	}
	began := metav1.Now()
	pod := job.Spec.Template.Spec
	out, err := exec.Command(need(t, "../../bin/tracecore"), append(pod.Containers[0].Args, "--kubeconfig", s.kubeconfig(t, pod.ServiceAccountName))...).CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return string(out), retry.RetryOnConflict(retry.DefaultRetry, func() error {
		job, err := jobs.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ended := metav1.Now()
		job.Status = batchv1.JobStatus{StartTime: &began, CompletionTime: &ended, Succeeded: 1}
		for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastProbeTime: ended, LastTransitionTime: ended})
		}
		_, err = jobs.UpdateStatus(t.Context(), job, metav1.UpdateOptions{})
		return err
	})
}

// unversioned is the chart for a server that does not know its version, as that of the test.
func unversioned(t *testing.T) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "tracecore")
	require.NoError(t, os.CopyFS(chart, os.DirFS("../tracecore")))
	text, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	require.NoError(t, err)
	asks := regexp.MustCompile("(?m)^kubeVersion: .*$")
	require.Regexp(t, asks, string(text))
	require.NoError(t, os.WriteFile(filepath.Join(chart, "Chart.yaml"), asks.ReplaceAll(text, nil), 0o600))
	return chart
}

// TestHelmUninstallTakesConditionsOff: Helm itself installs the release and takes it away,
// while conditions stand. No condition is left, and no right.
func TestHelmUninstallTakesConditionsOff(t *testing.T) {
	s := newServer(t)
	s.registered(t, 3)
	s.helm(t, append([]string{"install", "test", unversioned(t), "--create-namespace", "--set", "gateway.enabled=true"}, conditions...)...)
	e := s.drainer(t, map[string]any{"breaker": map[string]any{"percent": 100}})
	require.NoError(t, e.ConsumeLogs(t.Context(), lost("node-0", "a", "open")))
	require.NoError(t, e.ConsumeLogs(t.Context(), lost("node-1", "b", "open")))
	s.counted(t, map[corev1.ConditionStatus]int{corev1.ConditionTrue: 2})

	var said string
	done := make(chan error, 1)
	go func() {
		var err error
		said, err = s.runJob(t, "test-tracecore-uninstall")
		done <- err
	}()
	s.helm(t, "uninstall", "test", "--timeout", patience.String())
	require.NoError(t, <-done, said)
	require.Contains(t, said, "2 nodes had conditions of tracecore")
	s.counted(t, map[corev1.ConditionStatus]int{})
	roles, err := s.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=test"})
	require.NoError(t, err)
	require.Empty(t, roles.Items, "the rights of the job, too, are gone")
	require.Eventually(t, func() bool {
		left, err := s.BatchV1().Jobs(release).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(left.Items) == 0
	}, patience, 50*time.Millisecond)
}
