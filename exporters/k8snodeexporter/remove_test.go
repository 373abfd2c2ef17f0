package k8snodeexporter

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestRemoveLeavesNoConditionOfOurs(t *testing.T) {
	c := newCluster()
	b := start(t, c, limit(1, 100))
	b.send(t, lost("gpu-17", "a"), lost("gpu-18", "held back"), resolved(lost("gpu-17", "a")))
	conflict := 2
	c.before = func(change string) error {
		if conflict--; change != "" && conflict >= 0 {
			return apierrors.NewConflict(nodesResource, "gpu-17", errors.New("somebody was faster"))
		}
		return nil
	}
	var out strings.Builder
	require.NoError(t, removeAll(t.Context(), c, &out))
	require.Zero(t, c.condition(t, "gpu-17", gpuUnhealthy), "kubelets' are left, as condition checks")
	require.Zero(t, c.condition(t, "gpu-18", gpuUnhealthy))
	require.Contains(t, out.String(), "gpu-17: removed [\"TracecoreGPUUnhealthy\"]\n")
	require.Contains(t, out.String(), "2 nodes had conditions of tracecore\n")

	c.before = func(string) error { return errors.New("refused") }
	require.NoError(t, removeAll(t.Context(), c, &out), "nothing is left to do")
}
