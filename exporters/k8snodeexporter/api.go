package k8snodeexporter

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tracecoreai/tracecore/internal/apiserver"
)

// manager is who changed a condition, in the node's managedFields.
const manager = "tracecore"

// api is the little of the Kubernetes API that the exporter asks for.
type api interface {
	// patchStatus changes the status of a node (a strategic merge: conditions are
	// merged by type) and returns the node. A change of nothing reads it, with no
	// right to read nodes.
	patchStatus(ctx context.Context, node string, change []byte) (*corev1.Node, error)
	createEvent(ctx context.Context, event *corev1.Event) error
}

// restAPI asks an API server.
type restAPI struct{ client *apiserver.Core }

// client connects to the API server. No request is made yet.
func (c *Config) client() (api, error) {
	config, err := c.Connection.Config()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = c.RequestsPerSecond, int(2*c.RequestsPerSecond)+1
	client, err := apiserver.NewCore(config, "tracecore/k8snode")
	if err != nil {
		return nil, err
	}
	return &restAPI{client}, nil
}

func (a *restAPI) patchStatus(ctx context.Context, node string, change []byte) (*corev1.Node, error) {
	into := &corev1.Node{}
	err := a.client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(node).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: manager}, a.client.Params).Body(change).Do(ctx).Into(into)
	return into, err
}

func (a *restAPI) createEvent(ctx context.Context, event *corev1.Event) error {
	return a.client.Post().Namespace(event.Namespace).Resource("events").
		VersionedParams(&metav1.CreateOptions{FieldManager: manager}, a.client.Params).Body(event).Do(ctx).Error()
}
