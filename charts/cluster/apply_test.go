package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/restmapper"
)

const release = "gpu" // the namespace that the chart is installed into

// render returns the objects of the chart with a scenario or settings.
func render(t *testing.T, args ...string) []*unstructured.Unstructured {
	t.Helper()
	command := exec.Command(need(t, "../../.cache/bin/helm"), append([]string{"template", "test", "../tracecore", "-n", release, "--kube-version", "1.35.4"}, args...)...)
	out, err := command.Output()
	require.NoError(t, err, args)
	return decode(t, out)
}

func decode(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// apply gives objects to the server as `kubectl apply --server-side` does, an
// unknown or doubled key being an error.
func (s *server) apply(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured, dryRun ...string) {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(s.Discovery())
	require.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(t, err, kind)
		text, err := object.MarshalJSON()
		require.NoError(t, err)
		resource := s.dynamic.Resource(mapping.Resource)
		options := metav1.PatchOptions{FieldManager: "test", FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			_, err = resource.Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, text, options)
		} else {
			_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, text, options)
		}
		require.NoError(t, err, "%s %s", kind.Kind, object.GetName())
	}
}

func (s *server) namespace(t *testing.T, name, standard string) {
	t.Helper()
	_, err := s.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": standard},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// addCustomResources makes the kinds of the Prometheus operator known.
func (s *server) addCustomResources(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("../../.cache/crds-*/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files, "run `make cluster`")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		s.apply(t.Context(), t, decode(t, text))
	}
	require.Eventually(t, func() bool {
		served, err := s.Discovery().ServerResourcesForGroupVersion("monitoring.coreos.com/v1")
		return err == nil && len(served.APIResources) >= len(files)
	}, patience, 50*time.Millisecond)
}

// TestServerTakesTheChart asks one server about all that the chart can be.
func TestServerTakesTheChart(t *testing.T) {
	s := newServer(t)
	t.Run("every scenario", s.takesEveryScenario)
	t.Run("pod security", s.saysWhichStandardIsMet)
}

func (s *server) takesEveryScenario(t *testing.T) {
	for _, name := range []string{release, "ml", "research"} {
		s.namespace(t, name, "privileged")
	}
	s.addCustomResources(t)
	scenarios, err := filepath.Glob("../tracecore/ci/*-values.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(scenarios), 7)
	for _, scenario := range scenarios {
		t.Run(strings.TrimSuffix(filepath.Base(scenario), "-values.yaml"), func(t *testing.T) {
			objects := render(t, "--values", scenario)
			s.apply(t.Context(), t, objects, metav1.DryRunAll)
			s.apply(t.Context(), t, objects)
			// Applied again, nothing changes hands and nothing immutable is touched.
			s.apply(t.Context(), t, objects)
			for _, object := range objects {
				s.remove(t, object)
			}
		})
	}
}

// remove deletes what the next scenario makes with other immutable fields.
func (s *server) remove(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	var err error
	switch object.GetKind() {
	case "StatefulSet":
		err = s.AppsV1().StatefulSets(release).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	case "Job":
		err = s.BatchV1().Jobs(release).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	case "Pod":
		err = s.CoreV1().Pods(release).Delete(t.Context(), object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	require.NoError(t, err)
}

// saysWhichStandardIsMet asks Pod Security admission which standard the pods of
// each tier meet, and what stands against the agent.
func (s *server) saysWhichStandardIsMet(t *testing.T) {
	for _, standard := range []string{"restricted", "baseline", "privileged"} {
		s.namespace(t, standard, standard)
	}
	for _, object := range render(t, "--set", "gateway.enabled=true") {
		if object.GetKind() != "StatefulSet" {
			continue
		}
		var set appsv1.StatefulSet
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &set))
		require.NoError(t, s.admit(t, "restricted", set.Spec.Template), set.Name)
	}
	for setting, against := range map[string][]string{
		"security.privileged=true":  {"host namespaces (hostPID=true)", "hostPath volumes", "privileged"},
		"security.privileged=false": {"host namespaces (hostPID=true)", "hostPath volumes", "non-default capabilities", "SYS_PTRACE", "seccompProfile", "AppArmor profile"},
	} {
		for _, object := range render(t, "--set", setting) {
			if object.GetKind() != "DaemonSet" {
				continue
			}
			var set appsv1.DaemonSet
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &set))
			require.NoError(t, s.admit(t, "privileged", set.Spec.Template))
			refusal := s.admit(t, "baseline", set.Spec.Template)
			require.Error(t, refusal)
			for _, reason := range against {
				require.ErrorContains(t, refusal, reason, setting)
			}
		}
	}
}

// admit asks for a pod of a template without making it.
func (s *server) admit(t *testing.T, namespace string, template corev1.PodTemplateSpec) error {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asked", Labels: template.Labels}, Spec: template.Spec}
	for i := range pod.Spec.Containers[0].VolumeMounts { // what the StatefulSet controller adds
		if name := pod.Spec.Containers[0].VolumeMounts[i].Name; name == "state" && !hasVolume(pod, name) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "state-0"},
			}})
		}
	}
	_, err := s.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func hasVolume(pod *corev1.Pod, name string) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.Name == name {
			return true
		}
	}
	return false
}
