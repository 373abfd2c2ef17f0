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
	node(ctx context.Context, name string) (*corev1.Node, error)
	// nodes shows every node of the cluster.
	nodes(ctx context.Context, see func(*corev1.Node)) error
	// patchStatus changes the status of a node (a strategic merge: conditions are
	// merged by type) and returns the node.
	patchStatus(ctx context.Context, node string, change []byte) (*corev1.Node, error)
	createEvent(ctx context.Context, event *corev1.Event) error
	configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	// updateConfigMap fails with a conflict when another writer was faster.
	updateConfigMap(ctx context.Context, changed *corev1.ConfigMap) error
}

// restAPI asks an API server.
type restAPI struct{ client *apiserver.Client }

// client connects to the API server. No request is made yet.
func (c *Config) client() (api, error) {
	config, err := c.Connection.Config()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = c.RequestsPerSecond, int(2*c.RequestsPerSecond)+1
	// A page of nodes is a third as long as in JSON.
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := apiserver.NewCore(config, "tracecore/k8snode")
	if err != nil {
		return nil, err
	}
	return &restAPI{client}, nil
}

func (a *restAPI) node(ctx context.Context, name string) (*corev1.Node, error) {
	into := &corev1.Node{}
	return into, a.client.Get().Resource("nodes").Name(name).Do(ctx).Into(into)
}

// page is how many nodes are held at a time: some 10 MiB.
const page = 500

func (a *restAPI) nodes(ctx context.Context, see func(*corev1.Node)) error {
	options := metav1.ListOptions{Limit: page}
	for {
		list := &corev1.NodeList{}
		if err := a.client.Get().Resource("nodes").VersionedParams(&options, a.client.Params).Do(ctx).Into(list); err != nil {
			return err
		}
		for i := range list.Items {
			see(&list.Items[i])
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

func (a *restAPI) patchStatus(ctx context.Context, node string, change []byte) (*corev1.Node, error) {
	into := &corev1.Node{}
	return into, a.client.Patch(types.StrategicMergePatchType).Resource("nodes").Name(node).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: manager}, a.client.Params).Body(change).Do(ctx).Into(into)
}

func (a *restAPI) createEvent(ctx context.Context, event *corev1.Event) error {
	return a.client.Post().Namespace(event.Namespace).Resource("events").
		VersionedParams(&metav1.CreateOptions{FieldManager: manager}, a.client.Params).Body(event).Do(ctx).Error()
}

func (a *restAPI) configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	into := &corev1.ConfigMap{}
	return into, a.client.Get().Namespace(namespace).Resource("configmaps").Name(name).Do(ctx).Into(into)
}

func (a *restAPI) updateConfigMap(ctx context.Context, changed *corev1.ConfigMap) error {
	return a.client.Put().Namespace(changed.Namespace).Resource("configmaps").Name(changed.Name).
		VersionedParams(&metav1.UpdateOptions{FieldManager: manager}, a.client.Params).Body(changed).Do(ctx).Error()
}
