package cluster_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
		all = append(all, inWords(rule.Verbs, rule.Resources, rule.ResourceNames)...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func inWords(verbs, resources, names []string) (all []string) {
	for _, resource := range resources {
		for _, verb := range verbs {
			all = append(all, strings.Join(append([]string{verb, resource}, names...), " "))
		}
	}
	return all
}

// grant makes accounts and gives them their roles. It returns once the server goes by these:
// it reads them by watches of its own.
func (s *server) grant(t *testing.T, accounts, roles []*unstructured.Unstructured) {
	t.Helper()
	s.apply(t.Context(), t, append(accounts, roles...))
	rules, bindings := map[string][]string{}, []rbacv1.RoleBinding{}
	for _, object := range roles {
		switch kind := object.GetKind(); kind {
		case "Role", "ClusterRole":
			var role rbacv1.Role
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role))
			for _, rule := range role.Rules {
				of := kind + "/" + role.Namespace + "/" + role.Name
				rules[of] = append(rules[of], inWords(rule.Verbs, rule.Resources, rule.ResourceNames)...)
			}
		case "RoleBinding", "ClusterRoleBinding":
			var binding rbacv1.RoleBinding
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding))
			bindings = append(bindings, binding)
		}
	}
	for _, binding := range bindings {
		want := rules[binding.RoleRef.Kind+"/"+binding.Namespace+"/"+binding.RoleRef.Name]
		require.NotEmpty(t, want, binding.Name)
		for _, subject := range binding.Subjects {
			token := s.kubeconfig(t, subject.Name)
			require.True(t, s.api.comes(t, func() bool {
				has := s.rights(t, token, cmp.Or(binding.Namespace, release))
				return !slices.ContainsFunc(want, func(right string) bool { return !slices.Contains(has, right) })
			}))
		}
	}
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
