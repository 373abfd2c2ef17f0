package k8seventsreceiver

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// api is the little of the Kubernetes API that the receiver asks for.
type api interface {
	// events and nodes list and watch; no namespace means all.
	events(namespace string) *cache.ListWatch
	nodes() *cache.ListWatch
	pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// restAPI asks an API server. It knows the core group alone: the clientset of
// client-go registers every group there is, and holds 20 MiB for it.
type restAPI struct {
	client rest.Interface
	params runtime.ParameterCodec
}

func newRESTAPI(config *rest.Config) (*restAPI, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = "tracecore/k8sevents"
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &restAPI{client: client, params: runtime.NewParameterCodec(scheme)}, nil
}

func (a *restAPI) events(namespace string) *cache.ListWatch {
	return a.listWatch("events", namespace, func() runtime.Object { return &corev1.EventList{} })
}

func (a *restAPI) nodes() *cache.ListWatch {
	return a.listWatch("nodes", "", func() runtime.Object { return &corev1.NodeList{} })
}

func (a *restAPI) listWatch(resource, namespace string, list func() runtime.Object) *cache.ListWatch {
	request := func(o metav1.ListOptions) *rest.Request {
		return a.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).VersionedParams(&o, a.params)
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
		VersionedParams(&metav1.GetOptions{ResourceVersion: "0"}, a.params).Do(ctx).Into(pod)
	return pod, err
}
