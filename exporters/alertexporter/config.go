package alertexporter

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Config of the exporter.
type Config struct {
	// Format is alertmanager, webhook or slack.
	Format string `mapstructure:"format"`
	// ClientConfig has the endpoint: the address of an Alertmanager, or the whole URL of
	// a webhook.
	confighttp.ClientConfig `mapstructure:",squash"`

	// Template makes the body that a webhook gets (text/template). Empty: JSON with all
	// there is.
	Template string `mapstructure:"template"`
	// ContentType of what the template makes.
	ContentType string `mapstructure:"content_type"`

	// Labels are added to every alert, such as the name of the cluster.
	Labels map[string]string `mapstructure:"labels"`
	// Runbook is the link that alerts carry; {pattern} is the name of the pattern.
	Runbook string `mapstructure:"runbook"`

	// MinSeverity is the mildest severity that is told: info, warning, error or critical.
	MinSeverity string `mapstructure:"min_severity"`
	// Drills tells drills, too, each marked DRILL. Never to an Alertmanager.
	Drills bool `mapstructure:"drills"`

	// Resend is how often an Alertmanager is told what is open. It ends what it does not
	// hear of for four times as long.
	Resend time.Duration `mapstructure:"resend"`
	// Stale is after how long an alert that no verdict confirms is renewed no longer. It
	// takes `repeat` of the patterndetector, and several of its intervals. 0: never.
	Stale time.Duration `mapstructure:"stale"`

	QueueConfig configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	RetryConfig configretry.BackOffConfig                                `mapstructure:"retry_on_failure"`
}

// Formats of the exporter.
const (
	formatAlertmanager = "alertmanager"
	formatWebhook      = "webhook"
	formatSlack        = "slack"
)

const jsonType = "application/json"

func createDefaultConfig() component.Config {
	client := confighttp.NewDefaultClientConfig()
	client.Timeout = 10 * time.Second
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.NumConsumers = 1 // revisions of a verdict stay in their order
	retry := configretry.NewDefaultBackOffConfig()
	retry.InitialInterval, retry.MaxInterval = time.Second, 30*time.Second
	retry.MaxElapsedTime = 0 // who is to be told comes back
	return &Config{
		ClientConfig: client, ContentType: jsonType, MinSeverity: string(verdict.Warning), Resend: time.Minute,
		Runbook:     "https://github.com/tracecoreai/tracecore/blob/main/patterns/{pattern}/README.md",
		QueueConfig: configoptional.Some(queue), RetryConfig: retry,
	}
}

// Validate reports every setting that cannot work.
func (c *Config) Validate() error {
	problems := []error{c.validateEndpoint(), c.validateTemplate()}
	refuse := func(wrong bool, text string) {
		if wrong {
			problems = append(problems, errors.New(text))
		}
	}
	formats := []string{formatAlertmanager, formatWebhook, formatSlack}
	refuse(!slices.Contains(formats, c.Format), fmt.Sprintf("format is %q: set it to one of %q", c.Format, formats))
	refuse(!slices.Contains(verdict.Severities(), verdict.Severity(c.MinSeverity)), fmt.Sprintf("min_severity is %q: set it to one of %q", c.MinSeverity, verdict.Severities()))
	refuse(c.Drills && c.Format == formatAlertmanager, "drills: an Alertmanager pages, and drills never do: leave it out")
	refuse(c.Resend < time.Second, "resend: must be 1s or more")
	refuse(c.Stale != 0 && c.Stale < c.Resend, "stale: must be 0 or no less than resend")
	for name := range c.Labels {
		refuse(!isLabelName(name), fmt.Sprintf("labels: %q is no name of a label: write letters, digits and _, a letter first", name))
		refuse(slices.Contains(OwnLabels(), name), fmt.Sprintf("labels: %s is written from the verdict: choose another name", name))
	}
	problems = append(problems, verdicts.QueueProblems(c.QueueConfig)...)
	return errors.Join(problems...)
}

// validateEndpoint does not repeat the URL: that of a webhook is a secret.
func (c *Config) validateEndpoint() error {
	u, err := url.Parse(c.Endpoint)
	switch {
	case c.Endpoint == "":
		return errors.New("endpoint is not set: give the URL, such as http://alertmanager:9093")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("endpoint: that is no URL of http or https: write http://HOST:PORT or https://HOST/PATH")
	case u.User != nil:
		return errors.New("endpoint: a user and a password in a URL end up in logs: use headers or auth")
	case c.Format == formatAlertmanager && (u.RawQuery != "" || u.Fragment != "" || strings.HasSuffix(strings.TrimRight(u.Path, "/"), alertsPath)):
		return fmt.Errorf("endpoint: give the address of the Alertmanager alone, such as http://alertmanager:9093: %s is added", alertsPath)
	}
	return nil
}

// url is where requests go.
func (c *Config) url() string {
	if c.Format == formatAlertmanager {
		return strings.TrimRight(c.Endpoint, "/") + alertsPath
	}
	return c.Endpoint
}

// isLabelName says what Alertmanager and Prometheus have always taken.
func isLabelName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
