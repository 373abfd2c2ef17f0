package agentauthextension

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/tracecoreai/tracecore/internal/apiserver"
)

// answer is what the API server says of a token.
type answer struct {
	authenticated bool
	audiences     []string
	user          string
	nodes         []string // of the pod that the token is bound to
	err           string
}

// nodeKey is where a token's node stands (k8s.io/apiserver/pkg/authentication/serviceaccount:
// NodeNameKey, since Kubernetes 1.30).
const nodeKey = "authentication.kubernetes.io/node-name"

// newReview connects to the API server. No request is made.
func newReview(config *TokenReview) (func(ctx context.Context, token string) (answer, error), error) {
	connection, err := config.Config()
	if err != nil {
		return nil, err
	}
	connection.QPS = -1 // the caller limits it
	client, err := apiserver.New(connection, "tracecore/agent_auth", authenticationv1.SchemeGroupVersion, authenticationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, token string) (answer, error) {
		request := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{config.Audience}}}
		into := &authenticationv1.TokenReview{}
		err := client.Post().Resource("tokenreviews").Body(request).Do(ctx).Into(into)
		s := &into.Status
		return answer{s.Authenticated && s.Error == "", s.Audiences, s.User.Username, s.User.Extra[nodeKey], s.Error}, err
	}, nil
}
