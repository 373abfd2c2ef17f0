package k8seventsreceiver

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	// Kubeconfig is the path of a kubeconfig file. Empty: the service account of
	// the pod this process runs in.
	Kubeconfig string `mapstructure:"kubeconfig"`
	// Context of the kubeconfig; its current one when empty.
	Context string `mapstructure:"context"`
	// Namespaces to watch for events; all when empty. Nodes belong to none.
	Namespaces []string `mapstructure:"namespaces"`
	// NodeConditions watches the conditions of the nodes too.
	NodeConditions bool `mapstructure:"node_conditions"`
	// JobLabels are the labels of a pod that name its job, first choice first.
	JobLabels []string `mapstructure:"job_labels"`
	// StartupAge is how old an event may be when the receiver starts without
	// knowing where it stopped.
	StartupAge time.Duration `mapstructure:"startup_age"`
	// Storage is the id of the storage extension that keeps where the watch
	// stands over a restart.
	Storage *component.ID `mapstructure:"storage"`
}

func createDefaultConfig() component.Config {
	return &Config{
		LogsBuilderConfig: metadata.DefaultLogsBuilderConfig(),
		NodeConditions:    true,
		StartupAge:        time.Minute,
		// What names a job in Kubeflow's training operator, Volcano, JobSet, Kueue
		// and plain Jobs, in this order.
		JobLabels: []string{
			"training.kubeflow.org/job-name", "volcano.sh/job-name", "jobset.sigs.k8s.io/jobset-name",
			"kueue.x-k8s.io/workload-name", "batch.kubernetes.io/job-name",
		},
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	var problems []error
	if c.StartupAge < 0 {
		problems = append(problems, errors.New("startup_age: must not be negative"))
	}
	if c.Context != "" && c.Kubeconfig == "" {
		problems = append(problems, errors.New("context: needs kubeconfig, the file that defines it"))
	}
	for _, namespace := range c.Namespaces {
		if namespace == "" {
			problems = append(problems, errors.New("namespaces: a name is empty: leave the list out to watch all"))
		}
	}
	return errors.Join(problems...)
}

// client connects to the API server. No request is made yet.
func (c *Config) client() (api, error) {
	config, err := c.restConfig()
	if err != nil {
		return nil, err
	}
	return newRESTAPI(config)
}

func (c *Config) restConfig() (*rest.Config, error) {
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
