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

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/apiserver"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Config of the exporter.
type Config struct {
	apiserver.Connection `mapstructure:",squash"`

	// Mode is observe, where Events and metrics say what would be done, or act.
	Mode string `mapstructure:"mode"`
	// Node is the one node that this process may speak of. Empty: all nodes.
	Node string `mapstructure:"node"`
	// Conditions is the type of the node condition that a pattern's verdicts set.
	// What is written here is laid over the exporter's own table; an empty type
	// takes a pattern out. Verdicts of a pattern without one lead to Events alone.
	Conditions map[string]string `mapstructure:"conditions"`
	// MinSeverity is the mildest severity that sets a condition: info, warning,
	// error or critical.
	MinSeverity string `mapstructure:"min_severity"`
	// RebootEnds lists the patterns whose remedy is a reboot: their verdicts hold no
	// longer once the node runs another boot.
	RebootEnds []string `mapstructure:"reboot_ends"`
	// Breaker bounds how many nodes get a condition without an operator.
	Breaker Breaker `mapstructure:"breaker"`
	// Refresh is how often the nodes are looked at: for reboots, for what is held
	// back, and for what nobody confirms.
	Refresh time.Duration `mapstructure:"refresh"`
	// Stale is after how long a condition that no verdict confirms becomes Unknown.
	// It takes `repeat` of the patterndetector, and several of its intervals. 0: never.
	Stale time.Duration `mapstructure:"stale"`
	// PodEvents writes an Event about the pod that a verdict names, too.
	PodEvents bool `mapstructure:"pod_events"`
	// RequestsPerSecond is what the API server is asked at most, in the long run.
	RequestsPerSecond float32 `mapstructure:"requests_per_second"`

	exporterhelper.TimeoutConfig `mapstructure:",squash"`
	QueueConfig                  configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	RetryConfig                  configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

// Breaker bounds how many nodes get a condition without an operator.
type Breaker struct {
	nodeguard.Breaker `mapstructure:",squash"`
	// Ledger is the ConfigMap, NAMESPACE/NAME, in which all that write conditions of
	// this cluster enter a node before it gets one. It must exist.
	Ledger string `mapstructure:"ledger"`
}

// Modes of the exporter.
const (
	modeObserve = "observe"
	modeAct     = "act"
)

// Names of conditions are those of node-problem-detector's kind: a noun in
// PascalCase that is True while something is wrong (KernelDeadlock,
// ReadonlyFilesystem). The prefix keeps them apart from what NVSentinel
// (GpuMemWatch, SysLogsXIDError) and others write about the same GPU.
const (
	gpuUnhealthy        = "TracecoreGPUUnhealthy"
	nvlinkDegraded      = "TracecoreNVLinkDegraded"
	pcieDegraded        = "TracecorePCIeDegraded"
	networkLinkDown     = "TracecoreNetworkLinkDown"
	networkLinkUnstable = "TracecoreNetworkLinkUnstable"
	thermalThrottling   = "TracecoreThermalThrottling"
	hostMemoryUnhealthy = "TracecoreHostMemoryUnhealthy"
)

// conditions of the faults that are a machine's own.
func hardwareConditions() map[string]string {
	return map[string]string{
		"gpu_lost":           gpuUnhealthy,
		"hbm_ecc":            gpuUnhealthy,
		"xid_impact":         gpuUnhealthy,
		"fabric_fault":       nvlinkDegraded,
		"nvlink_degradation": nvlinkDegraded,
		"pcie_degradation":   pcieDegraded,
		"ib_link_down":       networkLinkDown,
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
		Mode: modeObserve, Conditions: hardwareConditions(), MinSeverity: string(verdict.Warning), RequestsPerSecond: 10,
		RebootEnds: nodeguard.RebootEnds(),
		Breaker:    Breaker{Breaker: nodeguard.DefaultBreaker()}, Refresh: 2 * time.Minute,
		TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: 30 * time.Second},
		QueueConfig:   configoptional.Some(queue), RetryConfig: retry,
	}
}

// kubelets are the conditions that belong to kubelets and the control plane.
var kubelets = []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.Connection.Validate(), c.validateAction()}
	if !slices.Contains(verdict.Severities(), verdict.Severity(c.MinSeverity)) {
		problems = append(problems, fmt.Errorf("min_severity is %q: set it to one of %q", c.MinSeverity, verdict.Severities()))
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
	problems = append(problems, verdicts.QueueProblems(c.QueueConfig)...)
	return errors.Join(problems...)
}

// validateAction checks what decides over nodes.
func (c *Config) validateAction() error {
	var problems []error
	refuse := func(wrong bool, text string) {
		if wrong {
			problems = append(problems, errors.New(text))
		}
	}
	refuse(c.Mode != modeObserve && c.Mode != modeAct, fmt.Sprintf("mode is %q: set it to %s or %s", c.Mode, modeObserve, modeAct))
	problems = append(problems, c.Breaker.Problems()...)
	refuse(c.Refresh < time.Second, "refresh: must be 1s or more")
	refuse(c.Stale != 0 && c.Stale < c.Refresh, "stale: must be 0 or no less than refresh")
	_, _, named := c.Breaker.ledger()
	refuse(!named && (c.Mode == modeAct || c.Breaker.Ledger != ""),
		"breaker: ledger: with mode act it names a ConfigMap as NAMESPACE/NAME; make it with `kubectl -n NAMESPACE create configmap NAME`")
	refuse(c.Node != "" && len(validation.IsDNS1123Subdomain(c.Node)) > 0, fmt.Sprintf("node: %q is no name of a node", c.Node))
	return errors.Join(problems...)
}

// ledger is the namespace and name of the ConfigMap; false where it names none.
func (b *Breaker) ledger() (namespace, name string, ok bool) {
	namespace, name, _ = strings.Cut(b.Ledger, "/")
	return namespace, name, len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}
