// Package apiserver connects components to a Kubernetes API server.
package apiserver

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connection says which API server, and as whom.
type Connection struct {
	// Kubeconfig is the path of a kubeconfig file. Empty: the service account of
	// the pod this process runs in.
	Kubeconfig string `mapstructure:"kubeconfig"`
	// Context of the kubeconfig; its current one when empty.
	Context string `mapstructure:"context"`
}

// Validate reports a setting that cannot work.
func (c *Connection) Validate() error {
	if c.Context != "" && c.Kubeconfig == "" {
		return errors.New("context: needs kubeconfig, the file that defines it")
	}
	return nil
}

// Config reads who to be and where the server is. No request is made.
func (c *Connection) Config() (*rest.Config, error) {
	if c.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server: %w: run in a pod with a service account, or set kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: c.Context},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// Client is a client of one group alone: the clientset of client-go registers every
// group there is, and holds 20 MiB for it.
type Client struct {
	rest.Interface
	Params runtime.ParameterCodec // encodes the options of a request
}

// NewCore makes a client of the core group that names itself as agent. No request is made.
func NewCore(config *rest.Config, agent string) (*Client, error) {
	return New(config, agent, corev1.SchemeGroupVersion, corev1.AddToScheme)
}

// New makes a client of a group that names itself as agent. No request is made.
func New(config *rest.Config, agent string, group schema.GroupVersion, add func(*runtime.Scheme) error) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := add(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &group
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = agent
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &Client{Interface: client, Params: runtime.NewParameterCodec(scheme)}, nil
}
