package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAMistakeInAConfigurationHasItsPlace by file, line and key, with what to write.
func TestAMistakeInAConfigurationHasItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		says   []string
	}{
		"a section":                   {"recievers: {}", []string{`mine.yaml:1: there is no key "recievers": did you mean "receivers"?`}},
		"a section after a component": {"x: {}\nreceivers: {otlp: {a: 1}}", []string{`mine.yaml:1: there is no key "x": use one of receivers`, `mine.yaml:2: receivers::otlp: there is no key "a"`}},
		"of the service":              {"service:\n  pipeline: {}", []string{`mine.yaml:2: service: there is no key "pipeline": did you mean "pipelines"?`}},
		"of a pipeline": {"service:\n  pipelines:\n    logs: {recievers: []}", []string{
			`mine.yaml:3: service::pipelines::logs: there is no key "recievers": did you mean "receivers"?`,
		}},
		"of a component, at two depths": {"processors:\n  patterndetector:\n    limits:\n      serie: 1\n    mute: []", []string{
			`mine.yaml:4: processors::patterndetector::limits: there is no key "serie": did you mean "series"?`,
			`mine.yaml:5: processors::patterndetector: there is no key "mute": did you mean "mutes"?`,
		}},
		"of a named component": {"processors:\n  patterndetector/two:\n    mute: []", []string{
			`mine.yaml:3: processors::patterndetector/two: there is no key "mute": did you mean "mutes"?`,
		}},
		"in a list": {"processors:\n  patterndetector:\n    mutes:\n      - {pattern: gpu_lost}\n      - {reson: x}", []string{
			`mine.yaml:5: processors::patterndetector::mutes::1: there is no key "reson": mend its name, or take it out`,
		}},
		"of one of the collector's components": {"receivers:\n  otlp:\n    protocols:\n      grpc: {endpiont: x}", []string{
			`mine.yaml:4: receivers::otlp::protocols::grpc: there is no key "endpiont": mend its name, or take it out`,
		}},
		"values": {"processors:\n  patterndetector:\n    lateness: soon\n    outbox_size: many", []string{
			`mine.yaml:3: processors::patterndetector::lateness: this is no duration: write 30s, 5m or 2h`,
			`mine.yaml:4: processors::patterndetector::outbox_size: write a whole number here, not a text`,
		}},
		"no component": {"receivers: {oomkill: 3}", []string{`mine.yaml:1: receivers::oomkill: write keys with values here, not a whole number`}},
		"no YAML":      {"receivers: [a", []string{`mine.yaml: line 1: did not find expected ',' or ']': mend the YAML there`}},
		"a key twice":  {"receivers: {}\nreceivers: {}", []string{`mine.yaml: `, `line 2: mapping key "receivers" already defined at line 1`}},
		"patterns": {"processors:\n  patterndetector:\n    patterns:\n      strag: {enabled: false}\n      fuse_stall:\n        enabled: \"no\"\n        silent:\n      hbm_ecc: {window: [1m]}", []string{
			`mine.yaml:6: processors::patterndetector::patterns::fuse_stall::enabled: "no" is neither true nor false`,
			`mine.yaml:7: processors::patterndetector::patterns::fuse_stall::silent: it has no value`,
			`mine.yaml:8: processors::patterndetector::patterns::hbm_ecc::window: write a single value here`,
		}},
		"a pattern, a parameter, a range": {"processors:\n  patterndetector:\n    patterns:\n      strag: {enabled: false}\n      fuse_stall:\n        silnt: 1s\n        silent: 3h", []string{
			`mine.yaml:4: processors::patterndetector::patterns::strag: there is no pattern of that name: did you mean straggler?`,
			`mine.yaml:6: processors::patterndetector::patterns::fuse_stall::silnt: fuse_stall has no parameter "silnt": did you mean "silent"?`,
			`mine.yaml:7: processors::patterndetector::patterns::fuse_stall::silent: 3h is out of range: write a value from 2s to 10m`,
		}},
		"a parameter that has moved": {"processors:\n  patterndetector:\n    patterns: {nccl_socket_stall: {computing: 2m, busy: 1}}", []string{
			`mine.yaml:3: processors::patterndetector::patterns::nccl_socket_stall::computing: the receiver ncclsock judges by it: write receivers: {ncclsock: {patience: {computing: 2m}}}`,
			`mine.yaml:3: processors::patterndetector::patterns::nccl_socket_stall::busy: nccl_socket_stall has no parameter "busy"`,
		}},
		"mutes": {"processors:\n  patterndetector:\n    mutes:\n      - pattern: gpu_lots\n        until: tomorrow\n      - {pattern: gpu_lost, culprit: {hots: a}, reason: x}", []string{
			`mine.yaml:4: processors::patterndetector::mutes::0::pattern: there is no pattern "gpu_lots": did you mean "gpu_lost"?`,
			`mine.yaml:5: processors::patterndetector::mutes::0::until: "tomorrow" is no time`,
			`mine.yaml:4: processors::patterndetector::mutes::0: reason is missing`,
			`mine.yaml:6: processors::patterndetector::mutes::1::culprit::hots: verdicts of gpu_lost name no "hots": did you mean "host"?`,
			`mine.yaml:6: processors::patterndetector::mutes::1: until is missing`,
		}},
		"extensions that there are not": {`receivers:
  oomkill: {identity: identiti}
  otlp:
    protocols:
      http:
        auth: {authenticator: agent_aut}
        middlewares:
          - {id: middl}
processors:
  patterndetector:
    storage: file_storag
    history: histori
exporters:
  otlp_grpc:
    endpoint: backend:4317
    sending_queue: {storage: file_storage/two}
service: {pipelines: {logs/two: {receivers: [otlp], exporters: [otlp_grpc]}}}
`, []string{
			`mine.yaml:2: receivers::oomkill::identity: there is no extension "identiti": did you mean "identity"?`,
			`mine.yaml:6: receivers::otlp::protocols::http::auth::authenticator: there is no extension "agent_aut": use one of file_storage, health_check, history, identity`,
			`mine.yaml:8: receivers::otlp::protocols::http::middlewares::0::id: there is no extension "middl": use one of `,
			`mine.yaml:11: processors::patterndetector::storage: there is no extension "file_storag": did you mean "file_storage"?`,
			`mine.yaml:12: processors::patterndetector::history: there is no extension "histori": did you mean "history"?`,
			`mine.yaml:16: exporters::otlp_grpc::sending_queue::storage: there is no extension "file_storage/two": did you mean "file_storage"?`,
		}},
		"extensions that do something else": {`receivers:
  kernelevents: {storage: history, identity: file_storage}
  otlp: {protocols: {http: {auth: {authenticator: health_check}}}}
processors: {patterndetector: {history: identity}}
`, []string{
			`mine.yaml:2: receivers::kernelevents::identity: the extension "file_storage" does something else: name one of the type identity`,
			`mine.yaml:2: receivers::kernelevents::storage: the extension "history" does something else: name one of the type file_storage`,
			`mine.yaml:3: receivers::otlp::protocols::http::auth::authenticator: the extension "health_check" does something else: name one of the type agent_auth or bearertokenauth or oidc`,
			`mine.yaml:4: processors::patterndetector::history: the extension "identity" does something else: name one of the type history`,
		}},
		"a key of a component that decodes itself": {`receivers:
  hostmetrics:
    scrapers:
      cpu: {metrix: 1}
`, []string{`mine.yaml:4: receivers::hostmetrics::scrapers::cpu: there is no key "metrix": mend its name, or take it out`}},
		"a part of a component that decodes itself": {"receivers:\n  hostmetrics: {scrapers: {nosuch: {}}}\n", []string{`mine.yaml:2: receivers::hostmetrics: invalid scraper key: nosuch`}},
		"a component that reads its part as YAML anew": {`receivers:
  prometheus:
    config:
      scrape_configs: [{job_name: 5, intervall: 3}]
`, []string{`mine.yaml:3: receivers::prometheus::config: prometheus receiver: failed to unmarshal yaml to prometheus config object: yaml: unmarshal errors: there is no key intervall`}},
		"extensions that do not start": {"service:\n  extensions: [health_check, identity]", []string{
			`mine.yaml:2: service::extensions: it leaves out "file_storage": add it, since receivers::kernelevents::storage names it, and so do 6 other settings`,
			`mine.yaml:2: service::extensions: it leaves out "history": add it, since processors::patterndetector::history names it`,
		}},
		"durations without a unit": {`receivers:
  ncclsock: {patience: {computing: 120}}
  otlp: {protocols: {http: {read_timeout: 30}, grpc: {keepalive: {server_parameters: {time: 1.5}}}}}
  hostmetrics:
    initial_delay: 0
    collection_interval: 30
    scrapers: {process: {scrape_process_delay: 10}}
processors:
  rankjoin: {min_wait: 5}
  patterndetector:
    lateness: 15
exporters: {otlp_http: {endpoint: "http://a", sending_queue: {batch: {flush_timeout: 200}}, retry_on_failure: {max_elapsed_time: 0}}}
service: {telemetry: {logs: {sampling: {tick: 10}}}}
`, []string{
			`mine.yaml:2: receivers::ncclsock::patience::computing: 120 has no unit: write 30s, 5m or 2h`,
			`mine.yaml:3: receivers::otlp::protocols::http::read_timeout: 30 has no unit`,
			`mine.yaml:3: receivers::otlp::protocols::grpc::keepalive::server_parameters::time: 1.5 has no unit`,
			`mine.yaml:6: receivers::hostmetrics::collection_interval: 30 has no unit`,
			`mine.yaml:7: receivers::hostmetrics::scrapers::process::scrape_process_delay: 10 has no unit`,
			`mine.yaml:9: processors::rankjoin::min_wait: 5 has no unit`,
			`mine.yaml:11: processors::patterndetector::lateness: 15 has no unit: write 30s, 5m or 2h`,
			`mine.yaml:12: exporters::otlp_http::sending_queue::batch::flush_timeout: 200 has no unit`,
			`mine.yaml:13: service::telemetry::logs::sampling::tick: 10 has no unit`,
		}},
		"names in the service": {`service:
  extensions: [health_check, file_storage, history, identity, agent_auth, histori]
  pipelines:
    logs:
      receivers: [oomkil, k8sevents, nosuch]
      processors: [patterndetecto]
      exporters: [5]
`, []string{
			`mine.yaml:2: service::extensions::4: there is no extension "agent_auth": write it under extensions`,
			`mine.yaml:2: service::extensions::5: there is no extension "histori": did you mean "history"?`,
			`mine.yaml:5: service::pipelines::logs::receivers::0: there is no receiver "oomkil": did you mean "oomkill"?`,
			`mine.yaml:5: service::pipelines::logs::receivers::1: there is no receiver "k8sevents": write it under receivers`,
			`mine.yaml:5: service::pipelines::logs::receivers::2: there is no receiver "nosuch": use one of cudaoom, fusefault, `,
			`mine.yaml:6: service::pipelines::logs::processors::0: there is no processor "patterndetecto": did you mean "patterndetector"?`,
			`mine.yaml:7: service::pipelines::logs::exporters::0: write the name of an exporter here, not a whole number`,
		}},
		"types": {"receivers:\n  oomkil: {}\n  gpuu/two: {}\n  nvml:\nexporters: {logging: }", []string{
			`mine.yaml:2: receivers::oomkil: there is no receiver of the type "oomkil": did you mean "oomkill"?`,
			`mine.yaml:3: receivers::gpuu/two: there is no receiver of the type "gpuu": did you mean "gpu"?`,
			`mine.yaml:4: receivers::nvml: there is no receiver of the type "nvml": it is the receiver gpu now: write gpu: {source: nvml}, here and in the pipelines`,
			`mine.yaml:5: exporters::logging: there is no exporter of the type "logging": it is the exporter debug now`,
		}},
		"a text for a list":                      {"processors:\n  patterndetector:\n    mutes: soon", []string{`mine.yaml:3: processors::patterndetector::mutes: write a list here, not a text`}},
		"keys for a list":                        {"processors:\n  patterndetector:\n    rules: {a: b}", []string{`mine.yaml:3: processors::patterndetector::rules: write a list here, not keys with values`}},
		"a list of names for keys":               {"processors:\n  patterndetector:\n    mutes: [gpu_lost]", []string{`mine.yaml:3: processors::patterndetector::mutes::0: write keys with values here, not a text`}},
		"a number for keys":                      {"processors:\n  patterndetector:\n    limits: 5", []string{`mine.yaml:3: processors::patterndetector::limits: write keys with values here, not a whole number`}},
		"a list for keys":                        {"receivers: [a]", []string{`mine.yaml:1: receivers: write keys with values here, not a list`}},
		"a number for optional keys":             {"receivers: {otlp: {protocols: {http: 5}}}", []string{`mine.yaml:1: receivers::otlp::protocols::http: write keys with values here, not a whole number`}},
		"a number for a name":                    {"processors:\n  patterndetector:\n    storage: 5", []string{`mine.yaml:3: processors::patterndetector::storage: write the name of an extension here, not a whole number`}},
		"a list for a duration":                  {"processors:\n  patterndetector:\n    lateness: [1]", []string{`mine.yaml:3: processors::patterndetector::lateness: write a duration, as 30s, 5m or 2h, here, not a list`}},
		"a number for a word":                    {"receivers: {oomkill: {error_mode: 5}}", []string{`mine.yaml:1: receivers::oomkill::error_mode: write a text here, not a whole number`}},
		"a number for the extensions":            {"service: {extensions: 5}", []string{`mine.yaml:1: service::extensions: write a list here, not a whole number`}},
		"a pipeline of nothing":                  {"service: {pipelines: {logz: {}}}", []string{`mine.yaml:1: service::pipelines: the name of a pipeline begins with what is in it, and "logz" is nothing: did you mean "logs"?`}},
		"durations without a unit, as text":      {"processors:\n  patterndetector:\n    lateness: \"15\"", []string{`mine.yaml:3: processors::patterndetector::lateness: this is no duration: write 30s, 5m or 2h`}},
		"a duration of a pattern without a unit": {"processors:\n  patterndetector:\n    patterns: {fuse_stall: {silent: 30}}", []string{`mine.yaml:3: processors::patterndetector::patterns::fuse_stall::silent: "30" is no duration`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := filepath.Join(t.TempDir(), "mine.yaml")
			require.NoError(t, os.WriteFile(mine, []byte(tc.config), 0o600))
			root := newRoot()
			root.SetArgs([]string{"validate", "--config", "tracecore:default", "--config", mine})
			cmd, err := root.ExecuteContextC(t.Context())
			require.Error(t, err)
			text := explain(err, cmd).Error()
			for _, want := range tc.says {
				require.Contains(t, text, want)
			}
			require.NotRegexp(t, `\w\.[A-Z]\w+`, text, "the name of a Go type")
		})
	}
}
