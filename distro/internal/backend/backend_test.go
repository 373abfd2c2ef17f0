package backend

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
)

// read gives a command line to the flags.
func read(t *testing.T, env map[string]string, args ...string) (*Backends, error) {
	t.Helper()
	b := &Backends{}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	b.Register(flags)
	require.NoError(t, flags.Parse(args))
	return b, b.Read(func(name string) string { return env[name] })
}

func TestURLs(t *testing.T) {
	for given, want := range map[string]struct{ kind, endpoint, name string }{
		"https://backend:4318":          {overHTTP, "https://backend:4318", "backend:4318"},
		"https://otlp.example.com":      {overHTTP, "https://otlp.example.com", "otlp.example.com"},
		"http://loki:3100/otlp/":        {overHTTP, "http://loki:3100/otlp", "loki:3100/otlp"},
		"grpc://backend":                {overGRPC, "backend:4317", "backend:4317"},
		"grpcs://backend:443":           {overGRPC, "backend:443", "backend:443"},
		"grpcs://[2001:db8::1]:4317/":   {overGRPC, "[2001:db8::1]:4317", ""},
		"https://backend:4318/a%20b/ü":  {overHTTP, "https://backend:4318/a%20b/%C3%BC", ""},
		"https://BACKEND.example:65535": {overHTTP, "https://BACKEND.example:65535", "BACKEND.example:65535"},
	} {
		got, err := parse(given)
		require.NoError(t, err, given)
		require.Equal(t, want.kind, got.kind, given)
		require.Equal(t, want.endpoint, got.endpoint(), given)
		if want.name != "" {
			require.Equal(t, want.name, got.name, given)
		}
		var id component.ID
		require.NoError(t, id.UnmarshalText([]byte(got.kind+"/"+got.name)), "a component can be called so")
		require.NotContains(t, got.name, "::")
	}
}

// Two backends never share a queue, whatever their names have to be.
func TestNamesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, given := range []string{"https://a:1/x_y", "https://a:1/x+y", "https://a:1/x=y", "https://[::1]:1", "https://[::1:1]", "https://" + strings.Repeat("a", 120), "https://" + strings.Repeat("a", 121)} {
		got, err := parse(given)
		require.NoError(t, err, given)
		require.Empty(t, seen[got.name], given)
		seen[got.name] = given
	}
}

func TestWrongURLsEndWithWhatToDo(t *testing.T) {
	for given, says := range map[string]string{
		"backend:4318":                      "write https://",
		"localhost":                         "write https://",
		"":                                  "write https://",
		"ftp://backend":                     `"ftp" is not known`,
		"https://":                          "names no host",
		"https://:4318":                     "names no host",
		"https://backend:99999":             "no port",
		"https://backend:port":              "write https://",
		"https://user:hunter2@backend":      headersVariable,
		"https://backend?token=hunter2":     headersVariable,
		"https://backend#hunter2":           headersVariable,
		"https://backend:4318/v1/logs":      "leave /v1/logs",
		"grpc://backend:4317/path":          "has no path",
		"https://user:hunter2@back end:1/%": "write https://",
	} {
		_, err := read(t, nil, "--to="+given)
		require.ErrorContains(t, err, says, given)
		require.ErrorContains(t, err, "--to: ", given)
		require.NotContains(t, err.Error(), "hunter2", given)
	}
	_, err := read(t, nil, "--to=https://a", "--to-all=https://a")
	require.ErrorContains(t, err, "--to-all: https://a is named twice")
	_, err = read(t, nil, "--to=a", "--to-all=b")
	require.ErrorContains(t, err, "--to: ")
	require.ErrorContains(t, err, "--to-all: ", "all mistakes at once")
}

func TestHeaders(t *testing.T) {
	const token = "hunter2"
	b, err := read(t, map[string]string{headersVariable: " Authorization=Bearer%20" + token + " ,x-tenant=a%2Cb=c,"}, "--to=https://backend")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"authorization": "Bearer " + token, "x-tenant": "a,b=c"}, b.headers)

	for name, tt := range map[string]struct {
		headers string
		args    []string
		says    string
	}{
		"no value":             {"authorization", []string{"--to=https://a"}, "header 1 is not of the form"},
		"a bad escape":         {"a=1,b=" + token + "%zz", []string{"--to=https://a"}, "header 2"},
		"no name":              {"=" + token, []string{"--to=https://a"}, "header 1"},
		"a line end":           {"a=" + token + "%0d%0ab:c", []string{"--to=https://a"}, "header 1"},
		"two backends":         {"a=" + token, []string{"--to=https://a", "--to=https://b"}, "to 2 backends"},
		"unencrypted":          {"a=" + token, []string{"--to=http://a"}, "unencrypted"},
		"unencrypted, of gRPC": {"a=" + token, []string{"--to-all=grpc://a"}, "unencrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, map[string]string{headersVariable: tt.headers}, tt.args...)
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), token)
		})
	}
	_, err = read(t, map[string]string{headersVariable: "a=" + token}, "--to=http://127.0.0.1:4318")
	require.NoError(t, err, "nobody listens on loopback")
	_, err = read(t, map[string]string{headersVariable: "nonsense"})
	require.NoError(t, err, "another program's, where nothing is sent")
	_, err = read(t, map[string]string{keyVariable: "/key"}, "--to=https://a")
	require.ErrorContains(t, err, "go together")
}

// resolve makes the configuration that runs.
func resolve(t *testing.T, b *Backends, config string) (*confmap.Conf, error) {
	t.Helper()
	resolver, err := confmap.NewResolver(confmap.ResolverSettings{
		URIs:               []string{"yaml:" + config},
		ProviderFactories:  []confmap.ProviderFactory{yamlprovider.NewFactory()},
		ConverterFactories: []confmap.ConverterFactory{b.Converter()},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, resolver.Shutdown(context.Background())) })
	return resolver.Resolve(t.Context())
}

const custom = `
extensions: {file_storage/mine: {directory: /x}}
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:4318"}}}}
processors: {patterndetector/mine: , batch: }
exporters: {terminal: , file: {path: /y}}
service:
  extensions: [file_storage/mine]
  pipelines:
    logs/judged: {receivers: [otlp], processors: [patterndetector/mine], exporters: [terminal, file]}
    logs/others: {receivers: [otlp], processors: [batch], exporters: [file]}
    metrics: {receivers: [otlp], processors: [patterndetector/mine], exporters: [file]}
    metrics/others: {receivers: [otlp], exporters: [file]}
    traces: {receivers: [otlp], processors: [patterndetector/mine], exporters: [file]}
    traces/incidents: {receivers: [incidenttraces], exporters: [file]}
    traces/others: {receivers: [otlp], exporters: [file]}
`

func TestAConfigurationIsLeftAloneWithoutFlags(t *testing.T) {
	b, err := read(t, nil)
	require.NoError(t, err)
	got, err := resolve(t, b, custom)
	require.NoError(t, err)
	require.Nil(t, got.Get("connectors"))
	require.Empty(t, b.Lines())
}

// Whatever configuration runs: verdicts leave where the pattern detector is, beside what
// was there.
func TestVerdictsAreAddedToAnyConfiguration(t *testing.T) {
	b, err := read(t, map[string]string{headersVariable: "authorization=x$${y}", authorityVariable: "/ca.pem"}, "--to=grpcs://backend")
	require.NoError(t, err)
	got, err := resolve(t, b, custom)
	require.NoError(t, err)
	require.Equal(t, []any{"terminal", "file", "forward/to"}, got.Get("service::pipelines::logs/judged::exporters"))
	require.Equal(t, []any{"file"}, got.Get("service::pipelines::logs/others::exporters"))
	require.Equal(t, []any{"file"}, got.Get("service::pipelines::metrics::exporters"))
	require.Equal(t, map[string]any{
		"receivers": []any{"forward/to"}, "processors": []any{"filter/to"}, "exporters": []any{"otlp_grpc/backend:4317"},
	}, got.Get("service::pipelines::logs/to"))
	require.True(t, got.IsSet("connectors::forward/to"))
	exporter, ok := got.Get("exporters::otlp_grpc/backend:4317").(map[string]any)
	require.True(t, ok)
	require.Equal(t, "backend:4317", exporter["endpoint"])
	require.Equal(t, map[string]any{"ca_file": "/ca.pem"}, exporter["tls"], "verified, by the authority given")
	require.Equal(t, map[string]any{"authorization": "x$${y}"}, exporter["headers"], "as it came")
	require.Equal(t, "file_storage/mine", exporter["sending_queue"].(map[string]any)["storage"])
	require.Equal(t, "0s", exporter["retry_on_failure"].(map[string]any)["max_elapsed_time"], "without end")
	require.Equal(t, []string{"verdicts to grpcs://backend:4317"}, b.Lines())
}

func TestAllAddsRecordsMetricsAndSpans(t *testing.T) {
	b, err := read(t, nil, "--to=https://a", "--to-all=http://b")
	require.NoError(t, err)
	got, err := resolve(t, b, custom)
	require.NoError(t, err)
	require.Equal(t, []any{"terminal", "file", "forward/to", "forward/to_all"}, got.Get("service::pipelines::logs/judged::exporters"))
	require.Equal(t, []any{"otlp_http/a", "otlp_http/b"}, got.Get("service::pipelines::logs/to::exporters"))
	require.Equal(t, []any{"otlp_http/b/records"}, got.Get("service::pipelines::logs/to_all::exporters"))
	require.Equal(t, []any{"file", "otlp_http/b/records"}, got.Get("service::pipelines::metrics::exporters"))
	require.Equal(t, []any{"file"}, got.Get("service::pipelines::metrics/others::exporters"))
	require.Equal(t, []any{"file", "otlp_http/b/records"}, got.Get("service::pipelines::traces::exporters"))
	require.Equal(t, []any{"file", "otlp_http/b/records"}, got.Get("service::pipelines::traces/incidents::exporters"))
	require.Equal(t, []any{"file"}, got.Get("service::pipelines::traces/others::exporters"))
	require.Equal(t, []any{`event_name != "pattern.verdict" and event_name != "job.summary"`, `attributes["pattern.repeated"] == true`}, got.Get("processors::filter/to::logs::log_record"), "what is told again would fill the queue of a backend that is away")
	require.Equal(t, []any{`event_name == "pattern.verdict" or event_name == "job.summary"`}, got.Get("processors::filter/to_all::logs::log_record"), "each record leaves once")
	require.Equal(t, []string{"verdicts to https://a", "verdicts, records, metrics and spans to http://b"}, b.Lines())
}

// Incidents and runs are traces, too, where all is sent and the configuration makes none of them.
func TestAllAddsTracesOfIncidents(t *testing.T) {
	without := strings.ReplaceAll(custom, "    traces/incidents: {receivers: [incidenttraces], exporters: [file]}\n", "")
	b, err := read(t, nil, "--to=https://a", "--to-all=http://b")
	require.NoError(t, err)
	got, err := resolve(t, b, without)
	require.NoError(t, err)
	require.Equal(t, []any{"terminal", "file", "incidenttraces/to_all", "forward/to", "forward/to_all"}, got.Get("service::pipelines::logs/judged::exporters"), "by what is told again it knows what goes on")
	require.Equal(t, []any{"otlp_http/a", "otlp_http/b"}, got.Get("service::pipelines::logs/to::exporters"))
	require.Equal(t, map[string]any{"receivers": []any{"incidenttraces/to_all"}, "exporters": []any{"otlp_http/b/records"}}, got.Get("service::pipelines::traces/to_all"))
	require.True(t, got.IsSet("connectors::incidenttraces/to_all"))
	_, err = resolve(t, b, strings.Replace(without, "receivers: {", "connectors: {incidenttraces/to_all: }\nreceivers: {", 1))
	require.ErrorContains(t, err, "connectors: incidenttraces/to_all already")

	b, err = read(t, nil, "--to=https://a")
	require.NoError(t, err)
	got, err = resolve(t, b, without)
	require.NoError(t, err)
	require.Equal(t, []any{"otlp_http/a"}, got.Get("service::pipelines::logs/to::exporters"), "verdicts alone")
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	name, err := os.Hostname()
	require.NoError(t, err)
	for title, tt := range map[string]struct {
		url, from, to, says string
	}{
		"no detector":        {"https://a", "patterndetector/mine]", "batch]", "add it, or leave the flag out"},
		"no storage":         {"https://a", "extensions: [file_storage/mine]", "extensions: []", "add file_storage"},
		"a name is taken":    {"https://a", "receivers: {", "connectors: {forward/to: }\nreceivers: {", "connectors: forward/to already"},
		"its own receiver":   {"http://localhost:4318", "", "", "(receiver otlp)"},
		"by its name":        {"http://" + name + ":4318", "", "", "(receiver otlp)"},
		"by another address": {"http://127.0.0.9:4318", "", "", "(receiver otlp)"},
		"on the usual port":  {"grpc://[::1]", `{http: {endpoint: "127.0.0.1:4318"}}`, "{grpc: }", "(receiver otlp)"},
	} {
		t.Run(title, func(t *testing.T) {
			b, err := read(t, nil, "--to="+tt.url)
			require.NoError(t, err)
			_, err = resolve(t, b, strings.ReplaceAll(custom, tt.from, tt.to))
			require.ErrorContains(t, err, "--to: ")
			require.ErrorContains(t, err, tt.says)
		})
	}
	b, err := read(t, nil, "--to=http://localhost:5318")
	require.NoError(t, err)
	_, err = resolve(t, b, custom)
	require.NoError(t, err, "another collector of this machine")
}
