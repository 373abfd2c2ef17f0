package k8seventsreceiver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tracecoreai/tracecore/internal/apiserver"
)

// api is the little of the Kubernetes API that the receiver asks for.
type api interface {
	// events and nodes list and watch; no namespace means all.
	events(namespace string) *cache.ListWatch
	nodes() *cache.ListWatch
	pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// restAPI asks an API server.
type restAPI struct{ client *apiserver.Client }

func newRESTAPI(config *rest.Config) (*restAPI, error) {
	client, err := apiserver.NewCore(config, "tracecore/k8sevents")
	if err != nil {
		return nil, err
	}
	return &restAPI{client}, nil
}

func (a *restAPI) events(namespace string) *cache.ListWatch {
	return a.listWatch("events", namespace, func() runtime.Object { return &corev1.EventList{} })
}

func (a *restAPI) nodes() *cache.ListWatch {
	return a.listWatch("nodes", "", func() runtime.Object { return &corev1.NodeList{} })
}

func (a *restAPI) listWatch(resource, namespace string, list func() runtime.Object) *cache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		return a.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&o, a.client.Params)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list()
			return into, request(o).Do(ctx).Into(into)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return request(o).Watch(ctx)
		},
	}
}

func (a *restAPI) pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := a.client.Get().Namespace(namespace).Resource("pods").Name(name).
		VersionedParams(&metav1.GetOptions{ResourceVersion: "0"}, a.client.Params).Do(ctx).Into(pod)
	return pod, err
}
