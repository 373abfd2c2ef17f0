package cluster_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// rights are what the token of an account allows in a namespace, beyond what
// every account may ("list events"), sorted.
func (s *server) rights(t *testing.T, kubeconfig, namespace string) []string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.False(t, review.Status.Incomplete, review.Status.EvaluationError)
	var all []string
	for _, rule := range review.Status.ResourceRules {
		if len(rule.Resources) > 0 && strings.HasPrefix(rule.Resources[0], "selfsubject") {
			continue // system:basic-user: ask what one may
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, strings.Join(append([]string{verb, resource}, rule.ResourceNames...), " "))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestTokensAllowNothingElse asks the server what the tokens of the tiers allow.
func TestTokensAllowNothingElse(t *testing.T) {
	s := serverWithRights(t)
	find := []string{"list endpointslices", "watch endpointslices"}
	watch := []string{"get pods", "list events", "list nodes", "watch events", "watch nodes"}
	for _, tc := range []struct {
		account, namespace string
		want               []string
	}{
		{"test-tracecore", release, find},
		{"test-tracecore", "ml", nil},
		{"test-tracecore-gateway", release, []string{"create tokenreviews"}},
		{"test-tracecore-events", release, slices.Sorted(slices.Values(append(slices.Clone(find), watch...)))},
		{"test-tracecore-events", "ml", watch},
	} {
		require.Equal(t, tc.want, s.rights(t, s.kubeconfig(t, tc.account), tc.namespace), "%s in %s", tc.account, tc.namespace)
	}
}
