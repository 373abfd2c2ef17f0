package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/service"

	"github.com/tracecoreai/tracecore/distro/internal/components"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// refusals is a converter of the collector that refuses mistakes which the collector accepts, and
// then ends by or misreads. A start, validate and a reload all pass it, and it sees what all
// files and flags come to. The function returns the values of --config.
type refusals func() []string

func (r refusals) converter() confmap.ConverterFactory {
	return confmap.NewConverterFactory(func(confmap.ConverterSettings) confmap.Converter { return r })
}

// mistaken says what is wrong in a configuration: a line for each mistake, with its place.
type mistaken string

func (m mistaken) Error() string { return string(m) }

// Convert implements confmap.Converter. It changes nothing.
func (r refusals) Convert(_ context.Context, conf *confmap.Conf) error {
	files, err := readConfigs(r())
	if err != nil {
		return nil //nolint:nilerr // it is said of the configuration as a whole
	}
	factories, err := components.Factories()
	if err != nil {
		return err
	}
	all := settingsOf(conf, factories)
	if wrong := append(dangling(conf, all, files), unitless(all, files)...); len(wrong) > 0 {
		return mistaken(strings.Join(wrong, "\n"))
	}
	return nil
}

// sections are the kinds of components, as a configuration names them.
var sections = []string{"receivers", "processors", "exporters", "connectors", "extensions"}

// settingsOf returns what is written for the settings of all components and of the service.
// Where a section does not decode, what did decode is looked at, and the collector says the rest.
func settingsOf(conf *confmap.Conf, factories otelcol.Factories) (all []setting) {
	for _, section := range sections {
		written, _ := conf.Get(section).(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(written)) {
			var id component.ID
			if id.UnmarshalText([]byte(name)) != nil {
				continue
			}
			factory := factoryIn(factories, section, id.Type())
			part, err := conf.Sub(section + "::" + name)
			if factory == nil || err != nil {
				continue
			}
			config := factory.CreateDefaultConfig()
			_ = part.Unmarshal(&config)
			all = append(all, writtenFor([]string{section, name}, config, written[name])...)
		}
	}
	own := service.Config{Telemetry: factories.Telemetry.CreateDefaultConfig()}
	if part, err := conf.Sub("service"); err == nil {
		_ = part.Unmarshal(&own)
	}
	return append(all, writtenFor([]string{"service"}, own, conf.Get("service"))...)
}

// dangling names the settings of what runs that name an extension which does not start: there is none of
// that name, or service::extensions leaves it out.
func dangling(conf *confmap.Conf, all []setting, files []configFile) (wrong []string) {
	used, has := runs(conf), map[string]bool{}
	defined, _ := conf.Get("extensions").(map[string]any)
	for name := range defined {
		has[idOf(name)] = true
	}
	left := map[string][]setting{}
	for _, one := range all {
		id, isText := one.written.(string)
		if id = idOf(id); one.is != extensionID || !isText || used["extensions"][id] || !used[one.path[0]][idOf(one.path[1])] {
			continue
		}
		if has[id] {
			left[id] = append(left[id], one)
			continue
		}
		help := "define it under extensions, and name it in service::extensions"
		if len(has) > 0 {
			help = rule.Suggest(id, slices.Sorted(maps.Keys(has)))
		}
		wrong = append(wrong, one.says(files, fmt.Sprintf("there is no extension %q: %s", id, help)))
	}
	list := setting{path: []string{"service", "extensions"}}
	for _, id := range slices.Sorted(maps.Keys(left)) {
		by := strings.Join(left[id][0].path, "::") + " names it"
		if more := len(left[id]) - 1; more > 0 {
			by = fmt.Sprintf("%s, and so do %d other settings", by, more)
		}
		wrong = append(wrong, list.says(files, fmt.Sprintf("it leaves out %q: add it, since %s", id, by)))
	}
	return wrong
}

// unitless names the durations that are written as a number: the collector takes them as
// nanoseconds.
func unitless(all []setting, files []configFile) (wrong []string) {
	for _, one := range all {
		if one.is != duration {
			continue
		}
		switch one.written {
		case 0, int64(0), uint64(0), 0.0:
			continue
		}
		switch one.written.(type) {
		case int, int64, uint64, float64:
			wrong = append(wrong, one.says(files, fmt.Sprintf("%v has no unit: write 30s, 5m or 2h", one.written)))
		}
	}
	return wrong
}
