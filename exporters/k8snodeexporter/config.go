package k8snodeexporter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tracecoreai/tracecore/internal/apiserver"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Config of the exporter.
type Config struct {
	apiserver.Connection `mapstructure:",squash"`

	// Conditions is the type of the node condition that a pattern's verdicts set.
	// What is written here is laid over the exporter's own table; an empty type
	// takes a pattern out. Verdicts of a pattern without one lead to Events alone.
	Conditions map[string]string `mapstructure:"conditions"`
	// MinSeverity is the mildest severity that sets a condition: info, warning,
	// error or critical.
	MinSeverity string `mapstructure:"min_severity"`
	// PodEvents writes an Event about the pod that a verdict names, too.
	PodEvents bool `mapstructure:"pod_events"`
	// RequestsPerSecond is what the API server is asked at most, in the long run.
	RequestsPerSecond float32 `mapstructure:"requests_per_second"`

	exporterhelper.TimeoutConfig `mapstructure:",squash"`
	QueueConfig                  configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	RetryConfig                  configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

// Names of conditions are those of node-problem-detector's kind: a noun in
// PascalCase that is True while something is wrong (KernelDeadlock,
// ReadonlyFilesystem). The prefix keeps them apart from what NVSentinel
// (GpuMemWatch, SysLogsXIDError) and others write about the same GPU.
const (
	gpuUnhealthy        = "TracecoreGPUUnhealthy"
	nvlinkDegraded      = "TracecoreNVLinkDegraded"
	pcieDegraded        = "TracecorePCIeDegraded"
	networkLinkUnstable = "TracecoreNetworkLinkUnstable"
	thermalThrottling   = "TracecoreThermalThrottling"
	hostMemoryUnhealthy = "TracecoreHostMemoryUnhealthy"
)

// conditions of the faults that are a machine's own. What is a job's, a
// storage's or a pod's fault is no reason to drain a node.
func hardwareConditions() map[string]string {
	return map[string]string{
		"gpu_lost":           gpuUnhealthy,
		"hbm_ecc":            gpuUnhealthy,
		"xid_impact":         gpuUnhealthy,
		"nvlink_degradation": nvlinkDegraded,
		"pcie_degradation":   pcieDegraded,
		"ib_link_flap":       networkLinkUnstable,
		"thermal_throttle":   thermalThrottling,
		"node_memory_error":  hostMemoryUnhealthy,
	}
}

func createDefaultConfig() component.Config {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.NumConsumers = 1 // revisions of a verdict stay in their order
	retry := configretry.NewDefaultBackOffConfig()
	retry.MaxElapsedTime = 0 // an API server that is away comes back
	return &Config{
		Conditions: hardwareConditions(), MinSeverity: string(verdict.Warning), RequestsPerSecond: 10,
		TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: 30 * time.Second},
		QueueConfig:   configoptional.Some(queue), RetryConfig: retry,
	}
}

// severities, mildest first.
var severities = []verdict.Severity{verdict.Info, verdict.Warning, verdict.Error, verdict.Critical}

// kubelets are the conditions that belong to kubelets and the control plane.
var kubelets = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.Connection.Validate()}
	if !slices.Contains(severities, verdict.Severity(c.MinSeverity)) {
		problems = append(problems, fmt.Errorf("min_severity is %q: set it to one of %q", c.MinSeverity, severities))
	}
	if c.RequestsPerSecond <= 0 {
		problems = append(problems, errors.New("requests_per_second: must be above 0"))
	}
	for pattern, kind := range c.Conditions {
		if faults := validation.IsQualifiedName(kind); kind != "" && len(faults) > 0 {
			problems = append(problems, fmt.Errorf("conditions: %s: %q is no type of a condition: %s", pattern, kind, strings.Join(faults, "; ")))
		}
		if slices.Contains(kubelets, corev1.NodeConditionType(kind)) {
			problems = append(problems, fmt.Errorf("conditions: %s: %s is written by kubelets: choose a name of your own", pattern, kind))
		}
	}
	if queue := c.QueueConfig.Get(); queue != nil && queue.NumConsumers != 1 {
		problems = append(problems, errors.New("sending_queue: num_consumers: must be 1, or an old revision of a verdict could come after a new one"))
	}
	return errors.Join(problems...)
}
