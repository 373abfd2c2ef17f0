package alertexporter

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/tracecoreai/tracecore/exporters/alertexporter/internal/metadata"
)

func TestConfig(t *testing.T) {
	file, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	am := createDefaultConfig().(*Config)
	am.Format, am.Endpoint = formatAlertmanager, "http://alertmanager:9093/"
	all := createDefaultConfig().(*Config)
	all.Format, all.Endpoint = formatWebhook, "https://hooks.example.com/x?key=1"
	all.Template = `{"text": {{ json .Verdict.Headline }}, "where": {{ json .Labels }}}`
	all.ClientConfig.Timeout, all.ClientConfig.Headers = 5*time.Second, configopaque.MapList{{Name: "authorization", Value: "x"}}
	all.Labels, all.Runbook, all.MinSeverity, all.Drills = map[string]string{"cluster": "a"}, "https://wiki/{pattern}", "critical", true
	all.Resend, all.Stale = 30*time.Second, time.Hour
	all.QueueConfig.Get().QueueSize, all.RetryConfig.MaxElapsedTime = 10, time.Hour
	for name, tt := range map[string]struct {
		want    *Config
		problem string
	}{
		"am":                {want: am},
		"all":               {want: all},
		"no_endpoint":       {problem: "endpoint is not set"},
		"bad_endpoint":      {problem: "endpoint: that is no URL"},
		"user":              {problem: "end up in logs"},
		"whole_path":        {problem: "/api/v2/alerts is added"},
		"bad_format":        {problem: `format is "pager": set it to one of`},
		"bad_severity":      {problem: `min_severity is "fatal": set it to one of`},
		"paged_drills":      {problem: "drills: an Alertmanager pages"},
		"bad_label":         {problem: `"0a" is no name of a label`},
		"own_label":         {problem: "node is written from the verdict"},
		"many_consumers":    {problem: "num_consumers: must be 1"},
		"bad_times":         {problem: "resend: must be 1s or more"},
		"template_of_slack": {problem: "write format: webhook"},
		"template_unread":   {problem: "template: template: template:1"},
		"template_unknown":  {problem: "can't evaluate field Headlin"},
		"template_injects":  {problem: "write {{ json .Verdict.Headline }}"},
	} {
		t.Run(name, func(t *testing.T) {
			config := load(t, file, name)
			if tt.problem != "" {
				err := confmap.Validate(config)
				require.ErrorContains(t, err, tt.problem)
				require.NotContains(t, err.Error(), "hunter2")
				return
			}
			require.NoError(t, confmap.Validate(config))
			require.Equal(t, tt.want, config)
		})
	}
	require.NoError(t, confmap.Validate(load(t, file, "template_of_text")))
	require.Equal(t, "http://alertmanager:9093/api/v2/alerts", am.url())
	require.Equal(t, "https://hooks.example.com/x?key=1", all.url())
}

func load(t *testing.T, file *confmap.Conf, name string) *Config {
	t.Helper()
	sub, err := file.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	config := createDefaultConfig().(*Config)
	require.NoError(t, sub.Unmarshal(config))
	return config
}
