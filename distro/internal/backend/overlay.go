package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	// verdictRoom and recordRoom bound the queues of a backend on the disk, in bytes.
	// What finds no room is lost to this backend, and counted.
	verdictRoom = 64 << 20
	recordRoom  = 256 << 20
	// mostRequest is below the 4 MiB that a server of gRPC takes, and above the largest
	// verdict.
	mostRequest = 3 << 20
)

// Names of what is added to a configuration.
const (
	verdictsOnly = "to"     // forward connector, filter processor and pipeline of verdicts
	recordsOnly  = "to_all" // and of all other records
	records      = "records"
)

// Converter returns what adds the backends to a configuration, once it is read.
func (b *Backends) Converter() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return converter{b} })
}

type converter struct{ *Backends }

// Convert implements confmap.Converter.
func (c converter) Convert(_ context.Context, conf *confmap.Conf) error {
	if len(c.targets) == 0 {
		return nil
	}
	o := overlay{conf: conf, added: map[string]any{}}
	if err := o.add(c.Backends); err != nil {
		return fmt.Errorf("%s: %w", c.flagged(), err)
	}
	return conf.Merge(confmap.NewFromStringMap(o.added))
}

// overlay is what is laid over a configuration.
type overlay struct {
	conf  *confmap.Conf
	added map[string]any
}

func (o *overlay) set(key string, value any) { o.added[key] = value }

func (o *overlay) add(b *Backends) error {
	judged := o.judged()
	logs := judged["logs"]
	if len(logs) == 0 {
		return errors.New("no pipeline of logs has the processor patterndetector, so there are no verdicts to send: add it, or leave the flag out")
	}
	storage, err := o.storage()
	if err != nil {
		return err
	}
	var verdicts, others []any
	for _, t := range b.targets {
		if own := o.ownReceiver(t); own != "" {
			return fmt.Errorf("%s is where this tracecore itself listens (receiver %s): name another backend, or move the receiver to another port", t, own)
		}
		id := t.kind + "/" + t.name
		o.set("exporters::"+id, b.exporter(t, verdictQueue(storage)))
		verdicts = append(verdicts, id)
		if t.all {
			id += "/" + records
			o.set("exporters::"+id, b.exporter(t, recordQueue(storage)))
			others = append(others, id)
		}
	}
	if len(others) > 0 && len(o.with("receivers", "incidenttraces")) == 0 {
		traces, err := o.traces(others)
		if err != nil {
			return err
		}
		for _, one := range logs { // here, since a trace stays while its verdicts are told again
			o.extend(one, traces)
		}
	}
	// Verdicts and summaries of runs have a queue of their own: no flood of records holds
	// them up. What is told again is for exporters that keep state by it.
	told := []any{`event_name != "pattern.verdict" and event_name != "job.summary"`, `attributes["` + verdict.AttrRepeated + `"] == true`}
	if err := o.branch(logs, verdictsOnly, told, verdicts); err != nil {
		return err
	}
	if len(others) == 0 {
		return nil
	}
	for _, pipeline := range slices.Concat(judged["metrics"], judged["traces"], o.incidents()) {
		o.extend(pipeline, others...)
	}
	return o.branch(logs, recordsOnly, []any{`event_name == "pattern.verdict" or event_name == "job.summary"`}, others)
}

// traces makes traces of incidents and runs, which no pipeline of the configuration makes, sends
// them to exporters, and returns what makes them.
func (o *overlay) traces(exporters []any) (connector string, err error) {
	connector = "incidenttraces/" + recordsOnly
	pipeline := "service::pipelines::traces/" + recordsOnly
	if err := o.free("connectors::"+connector, pipeline); err != nil {
		return "", err
	}
	o.set("connectors::"+connector, map[string]any{})
	o.set(pipeline, map[string]any{"receivers": []any{connector}, "exporters": exporters})
	return connector, nil
}

// judged are the pipelines with a pattern detector, by signal.
func (o *overlay) judged() map[string][]string {
	found := map[string][]string{}
	for _, name := range o.with("processors", "patterndetector") {
		found[typeOf(name)] = append(found[typeOf(name)], name)
	}
	return found
}

// incidents are the pipelines with the traces of incidents.
func (o *overlay) incidents() []string {
	return slices.DeleteFunc(o.with("receivers", "incidenttraces"), func(name string) bool {
		return slices.Contains(o.judged()["traces"], name)
	})
}

// with are the pipelines that have a component of a type, in order.
func (o *overlay) with(kind, wanted string) []string {
	var found []string
	for name, list := range o.pipelines(kind) {
		if slices.ContainsFunc(list, func(id string) bool { return typeOf(id) == wanted }) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// pipelines are the lists of each pipeline: its receivers, processors or exporters.
func (o *overlay) pipelines(kind string) map[string][]string {
	all := map[string][]string{}
	pipelines, _ := o.conf.Get("service::pipelines").(map[string]any)
	for name := range pipelines {
		all[name] = texts(o.conf.Get("service::pipelines::" + name + "::" + kind))
	}
	return all
}

// storage is the storage extension that the service starts.
func (o *overlay) storage() (string, error) {
	for _, id := range texts(o.conf.Get("service::extensions")) {
		if typeOf(id) == "file_storage" {
			return id, nil
		}
	}
	return "", errors.New("what waits for a backend is kept on disk, and the configuration has no storage: add file_storage: {directory: /var/lib/tracecore} to extensions and to service: extensions")
}

// branch sends some of the records of pipelines to exporters.
func (o *overlay) branch(from []string, name string, drop, exporters []any) error {
	connector, filter, pipeline := "forward/"+name, "filter/"+name, "logs/"+name
	if err := o.free("connectors::"+connector, "processors::"+filter, "service::pipelines::"+pipeline); err != nil {
		return err
	}
	o.set("connectors::"+connector, map[string]any{})
	o.set("processors::"+filter, map[string]any{"error_mode": "propagate", "logs": map[string]any{"log_record": drop}})
	o.set("service::pipelines::"+pipeline, map[string]any{"receivers": []any{connector}, "processors": []any{filter}, "exporters": exporters})
	for _, one := range from {
		o.extend(one, connector)
	}
	return nil
}

// free reports the first of some keys that the configuration has.
func (o *overlay) free(keys ...string) error {
	for _, key := range keys {
		if o.conf.IsSet(key) {
			return fmt.Errorf("the configuration has %s already: give it another name", strings.ReplaceAll(key, "::", ": "))
		}
	}
	return nil
}

// extend adds exporters to a pipeline. Lists of a configuration replace each other.
func (o *overlay) extend(pipeline string, exporters ...any) {
	key := "service::pipelines::" + pipeline + "::exporters"
	list, ok := o.added[key].([]any)
	if !ok {
		for _, id := range texts(o.conf.Get(key)) {
			list = append(list, id)
		}
	}
	o.set(key, append(list, exporters...))
}

// ownReceiver is the receiver of this configuration that a backend's URL leads back to.
func (o *overlay) ownReceiver(t target) string {
	if !t.local() {
		return ""
	}
	for _, list := range o.pipelines("receivers") {
		for _, id := range list {
			if typeOf(id) != "otlp" {
				continue
			}
			for protocol, port := range map[string]string{"grpc": "4317", "http": "4318"} {
				key := "receivers::" + id + "::protocols::" + protocol
				if !o.conf.IsSet(key) {
					continue
				}
				if endpoint, ok := o.conf.Get(key + "::endpoint").(string); ok {
					_, port, _ = net.SplitHostPort(endpoint)
				}
				if port == t.port() {
					return id
				}
			}
		}
	}
	return ""
}

// exporter is the configuration of the collector's own exporter of OTLP. Nothing in its queue
// is given up while a backend is away.
func (b *Backends) exporter(t target, queue map[string]any) map[string]any {
	config := map[string]any{
		"endpoint": t.endpoint(), "timeout": "10s", "sending_queue": queue,
		"retry_on_failure": map[string]any{"enabled": true, "initial_interval": "1s", "max_interval": "5s", "max_elapsed_time": "0s"},
	}
	if len(b.headers) > 0 {
		headers := map[string]any{}
		for key, value := range b.headers {
			headers[key] = value
		}
		config["headers"] = headers
	}
	if t.plain {
		config["tls"] = map[string]any{"insecure": true}
		return config
	}
	tls := map[string]any{}
	for key, file := range map[string]string{"ca_file": b.authority, "cert_file": b.certificate, "key_file": b.key} {
		if file != "" {
			tls[key] = file
		}
	}
	config["tls"] = tls
	return config
}

// HoldsBytes reports whether a queue with so much room is one of --to or --to-all, or of verdicts
// in the chart and in loki.yaml, which count bytes. The collector's own metrics do not say what a queue counts.
func HoldsBytes(room float64) bool { return room == verdictRoom || room == recordRoom }

// verdictQueue has one consumer: a revision does not come before the one that it revises.
// Nothing waits for company; what is larger than a server takes is cut between records.
func verdictQueue(storage string) map[string]any {
	return map[string]any{
		"storage": storage, "sizer": "bytes", "queue_size": verdictRoom, "num_consumers": 1,
		"batch": map[string]any{"sizer": "bytes", "min_size": 0, "max_size": mostRequest, "flush_timeout": "1s"},
	}
}

func recordQueue(storage string) map[string]any {
	return map[string]any{
		"storage": storage, "sizer": "bytes", "queue_size": recordRoom, "num_consumers": 4,
		"batch": map[string]any{"sizer": "bytes", "min_size": 128 << 10, "max_size": mostRequest, "flush_timeout": "1s"},
	}
}

// typeOf is the type in the id of a component.
func typeOf(id string) string {
	var parsed component.ID
	if err := parsed.UnmarshalText([]byte(id)); err != nil {
		return ""
	}
	return parsed.Type().String()
}

// texts are the texts of a list of a configuration.
func texts(value any) []string {
	list, _ := value.([]any)
	all := make([]string, 0, len(list))
	for _, one := range list {
		if text, ok := one.(string); ok {
			all = append(all, text)
		}
	}
	return all
}
