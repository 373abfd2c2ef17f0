package k8seventsreceiver

import (
	"errors"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/internal/apiserver"
	"github.com/tracecoreai/tracecore/receivers/k8seventsreceiver/internal/metadata"
)

// Config of the receiver.
type Config struct {
	metadata.LogsBuilderConfig `mapstructure:",squash"`

	apiserver.Connection `mapstructure:",squash"`

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
	problems = append(problems, c.Connection.Validate())
	for _, namespace := range c.Namespaces {
		if namespace == "" {
			problems = append(problems, errors.New("namespaces: a name is empty: leave the list out to watch all"))
		}
	}
	return errors.Join(problems...)
}

// client connects to the API server. No request is made yet.
func (c *Config) client() (api, error) {
	config, err := c.Connection.Config()
	if err != nil {
		return nil, err
	}
	return newRESTAPI(config)
}
