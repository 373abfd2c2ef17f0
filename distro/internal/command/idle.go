package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/processors/patterndetectorprocessor"
)

// idle warns of the parts of a configuration that do nothing, though nothing in them is wrong.
// It is a converter of the collector, so it sees what all files and flags come to.
type idle struct {
	cmd *cobra.Command

	mu   sync.Mutex // guards told
	told []string   // what was said last; a reload says no more than what is new
}

func (i *idle) converter() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return i })
}

// Convert implements confmap.Converter. It changes nothing.
func (i *idle) Convert(ctx context.Context, conf *confmap.Conf) error {
	files, err := readConfigs(configURIs(i.cmd))
	if err != nil {
		return nil //nolint:nilerr // it is said of the configuration as a whole
	}
	byDefault := confmap.New()
	if usesDefault(i.cmd) {
		if byDefault, err = readDefault(ctx); err != nil {
			return err
		}
	}
	warnings := append(unused(conf, byDefault, files), withoutEffect(conf, files)...)
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, text := range warnings {
		if err == nil && !slices.Contains(i.told, text) {
			_, err = fmt.Fprintf(i.cmd.ErrOrStderr(), "tracecore: warning: %s\n", safetext.Line(text))
		}
	}
	i.told = warnings
	return err
}

func readDefault(ctx context.Context) (*confmap.Conf, error) {
	retrieved, err := defaultconfig.NewFactory().Create(confmap.ProviderSettings{}).Retrieve(ctx, defaultconfig.URI, nil)
	if err != nil {
		return nil, err
	}
	return retrieved.AsConf()
}

// unused names the components that are configured and that nothing runs. One of the default that
// the operator's pipelines leave out is left out on purpose, unless a file still speaks of it.
func unused(conf, byDefault *confmap.Conf, files []configFile) (warnings []string) {
	used := runs(conf)
	for _, section := range sections {
		has, _ := conf.Get(section).(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(has)) {
			where := whereIs([]string{section, name}, files)
			if end := missingEnd(section, idOf(name), used); end != "" {
				warnings = append(warnings, fmt.Sprintf("%s%s::%s %s", where, section, name, end))
				continue
			}
			if used[section][idOf(name)] || where == "" && byDefault.IsSet(section+"::"+name) {
				continue
			}
			says := "is in no pipeline, so it does nothing: name it in a pipeline of service::pipelines, or take it out"
			if section == "extensions" {
				says = "is not in service::extensions, so it does not start: name it there, or take it out"
			}
			warnings = append(warnings, fmt.Sprintf("%s%s::%s %s", where, section, name, says))
		}
	}
	return warnings
}

// missingEnd says which end a connector lacks, with which nothing starts: a file that replaces a
// list of exporters takes it out of another file's pipeline.
func missingEnd(section, id string, used map[string]map[string]bool) string {
	if section != "connectors" || used["receivers"][id] == used["exporters"][id] {
		return ""
	}
	if used["receivers"][id] {
		return "is among the receivers of a pipeline, and no pipeline sends to it: add it to the exporters of one, beside what is there, since lists of two files replace each other"
	}
	return "is among the exporters of a pipeline, and no pipeline reads it: name it among the receivers of one"
}

// runs returns the ids that the service names, by section.
func runs(conf *confmap.Conf) map[string]map[string]bool {
	used := map[string]map[string]bool{"connectors": {}}
	add := func(list any, sections ...string) {
		ids, _ := list.([]any)
		for _, section := range sections {
			if used[section] == nil {
				used[section] = map[string]bool{}
			}
			for _, id := range ids {
				used[section][idOf(fmt.Sprint(id))] = true
			}
		}
	}
	add(conf.Get("service::extensions"), "extensions")
	pipelines, _ := conf.Get("service::pipelines").(map[string]any)
	for _, pipeline := range pipelines {
		of, _ := pipeline.(map[string]any)
		add(of["receivers"], "receivers", "connectors")
		add(of["processors"], "processors")
		add(of["exporters"], "exporters", "connectors")
	}
	return used
}

// idOf is the id of a component as the collector reads it: without spaces around its parts.
func idOf(name string) string {
	var id component.ID
	if id.UnmarshalText([]byte(name)) != nil {
		return name
	}
	return id.String()
}

// withoutEffect is what the pattern detectors of a configuration say of it.
func withoutEffect(conf *confmap.Conf, files []configFile) (warnings []string) {
	factories, err := components.Factories()
	processors, _ := conf.Get("processors").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(processors)) {
		var id component.ID
		if err != nil || id.UnmarshalText([]byte(name)) != nil {
			continue
		}
		factory := factoryIn(factories, "processors", id.Type())
		if factory == nil {
			continue
		}
		config, isDetector := factory.CreateDefaultConfig().(*patterndetectorprocessor.Config)
		section, err := conf.Sub("processors::" + name)
		if !isDetector || err != nil || section.Unmarshal(config) != nil {
			continue // a mistake is an error of the configuration
		}
		for _, text := range config.WithoutEffect(time.Now()) {
			warnings = append(warnings, located("processors::"+name+": "+text, files))
		}
	}
	return warnings
}
