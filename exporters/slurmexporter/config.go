package slurmexporter

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Config of the exporter.
type Config struct {
	// Mode is observe or act.
	Mode string `mapstructure:"mode"`
	// Scontrol is the program that speaks to Slurm.
	Scontrol string `mapstructure:"scontrol"`
	// Patterns are those whose verdicts are a reason to drain.
	Patterns []string `mapstructure:"patterns"`
	// MinSeverity is the mildest severity that drains: info, warning, error or critical.
	MinSeverity string `mapstructure:"min_severity"`
	// RebootEnds lists the patterns whose remedy is a reboot: their verdicts hold no
	// longer once the node has booted.
	RebootEnds []string `mapstructure:"reboot_ends"`
	// Breaker bounds how many nodes are drained without an operator.
	Breaker nodeguard.Breaker `mapstructure:"breaker"`
	// Refresh is how often the nodes are looked at: for reboots, for what is held back,
	// and for what nobody confirms.
	Refresh time.Duration `mapstructure:"refresh"`
	// Stale is after how long the reason says that no verdict confirms it. It takes `repeat`
	// of the patterndetector, and several of its intervals. 0: never.
	Stale time.Duration `mapstructure:"stale"`

	exporterhelper.TimeoutConfig `mapstructure:",squash"`
	QueueConfig                  configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	RetryConfig                  configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

// Modes of the exporter.
const (
	modeObserve = "observe"
	modeAct     = "act"
)

func createDefaultConfig() component.Config {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.NumConsumers = 1 // revisions of a verdict stay in their order
	retry := configretry.NewDefaultBackOffConfig()
	retry.MaxElapsedTime = 0 // a controller that is away comes back
	return &Config{
		Mode: modeObserve, Scontrol: "/usr/bin/scontrol", Patterns: nodeguard.MachineFaults(), MinSeverity: string(verdict.Warning),
		RebootEnds: nodeguard.RebootEnds(), Breaker: nodeguard.DefaultBreaker(), Refresh: 2 * time.Minute,
		TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: 30 * time.Second},
		QueueConfig:   configoptional.Some(queue), RetryConfig: retry,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := c.Breaker.Problems()
	refuse := func(wrong bool, text string) {
		if wrong {
			problems = append(problems, errors.New(text))
		}
	}
	refuse(c.Mode != modeObserve && c.Mode != modeAct, fmt.Sprintf("mode is %q: set it to %s or %s", c.Mode, modeObserve, modeAct))
	refuse(!filepath.IsAbs(c.Scontrol), fmt.Sprintf("scontrol is %q: give the whole path, such as /usr/bin/scontrol", c.Scontrol))
	refuse(len(c.Patterns) == 0, "patterns: name one at least")
	refuse(!slices.Contains(verdict.Severities(), verdict.Severity(c.MinSeverity)), fmt.Sprintf("min_severity is %q: set it to one of %q", c.MinSeverity, verdict.Severities()))
	refuse(c.Timeout <= 0, "timeout: must be above 0, or scontrol could hang for ever")
	refuse(c.Refresh < time.Second, "refresh: must be 1s or more")
	refuse(c.Stale != 0 && c.Stale < c.Refresh, "stale: must be 0 or no less than refresh")
	queue := c.QueueConfig.Get()
	problems = append(problems, verdicts.QueueProblems(c.QueueConfig)...)
	refuse(c.Mode == modeAct && (queue == nil || queue.StorageID == nil), "sending_queue: storage: mode act needs it, such as file_storage: the breaker counts there, through restarts")
	return errors.Join(problems...)
}
