package command

import (
	"cmp"
	"context"
	"fmt"
	"iter"
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

// refusals is a converter of the collector. It refuses mistakes that the collector accepts, and
// then ends by or misreads, or that it names without what to write. A start, validate and a
// reload all pass it, and it sees what all files and flags come to. The function returns the
// values of --config.
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
	if err != nil || !shaped(conf) {
		return nil //nolint:nilerr // the collector and place say it
	}
	factories, err := components.Factories()
	if err != nil {
		return err
	}
	all := settingsOf(conf, factories)
	if wrong := slices.Concat(unknown(conf, factories, files), dangling(conf, factories, all, files), unitless(all, files)); len(wrong) > 0 {
		return mistaken(strings.Join(wrong, "\n"))
	}
	return nil
}

// sections are the kinds of components, as a configuration names them.
var sections = []string{"receivers", "processors", "exporters", "connectors", "extensions"}

// shaped reports whether all sections are what they have to be.
func shaped(conf *confmap.Conf) bool {
	for _, section := range slices.Concat(sections, []string{"service"}) {
		if written := conf.Get(section); written != nil {
			if _, ok := written.(map[string]any); !ok {
				return false
			}
		}
	}
	_, isList := conf.Get("service::extensions").([]any)
	return isList || conf.Get("service::extensions") == nil
}

// settingsOf returns what is written for the settings of all components and of the service.
// Where a section does not decode, what did decode is looked at, and the collector says the rest.
func settingsOf(conf *confmap.Conf, factories otelcol.Factories) (all []setting) {
	for _, section := range sections {
		written, _ := conf.Get(section).(map[string]any)
		for name, id := range idsIn(conf, section) {
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

// idsIn are the components that a section defines, by name in its order.
func idsIn(conf *confmap.Conf, section string) iter.Seq2[string, component.ID] {
	written, _ := conf.Get(section).(map[string]any)
	return func(yield func(string, component.ID) bool) {
		for _, name := range slices.Sorted(maps.Keys(written)) {
			var id component.ID
			if id.UnmarshalText([]byte(name)) == nil && !yield(name, id) {
				return
			}
		}
	}
}

// unknown names the components of which there is no type.
func unknown(conf *confmap.Conf, factories otelcol.Factories, files []configFile) (wrong []string) {
	for _, section := range sections {
		for name, id := range idsIn(conf, section) {
			if factoryIn(factories, section, id.Type()) == nil {
				at := setting{path: []string{section, name}}
				var types []string
				for of := range factoriesOf(factories, section) {
					types = append(types, of.String())
				}
				slices.Sort(types)
				help := cmp.Or(renamed[section+"::"+id.Type().String()], rule.Suggest(id.Type().String(), types))
				wrong = append(wrong, at.says(files, fmt.Sprintf("there is no %s of the type %q: %s", one(section), id.Type(), help)))
			}
		}
	}
	return wrong
}

// renamed says what to write in place of a component that is no more.
var renamed = map[string]string{
	"receivers::nvml":    "it is the receiver gpu now: write gpu: {source: nvml}, here and in the pipelines",
	"receivers::dcgm":    "it is the receiver gpu now: write gpu: {source: dcgm}, here and in the pipelines",
	"exporters::logging": "it is the exporter debug now: write debug, here and in the pipelines",
}

// dangling names what refers to a component that is not there: pipelines, service::extensions,
// and settings of what runs that name an extension. An extension also has to start.
func dangling(conf *confmap.Conf, factories otelcol.Factories, all []setting, files []configFile) (wrong []string) {
	used := runs(conf)
	left := map[string][]setting{}
	for _, by := range all {
		if by.is != componentID || by.path[0] != "service" && !used[by.path[0]][idOf(by.path[1])] {
			continue
		}
		text, isText := by.written.(string)
		section, id := by.names(), idOf(text)
		has := defined(conf, section)
		switch {
		case !isText:
			wrong = append(wrong, by.says(files, fmt.Sprintf("write the name of %s here, not %s", anyOf(section), inYAML(fmt.Sprintf("%T", by.written)))))
		case !slices.Contains(has, id):
			wrong = append(wrong, by.says(files, fmt.Sprintf("there is no %s %q: %s", one(section), id, meant(id, section, has, factories))))
		case by.wantsAnother(id):
			wrong = append(wrong, by.says(files, fmt.Sprintf("the extension %q does something else: name one of the type %s", id, strings.Join(serves[by.key()], " or "))))
		case section == "extensions" && by.path[0] != "service" && !used["extensions"][id]:
			left[id] = append(left[id], by)
		}
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

// serves has the types of the extensions that do what a setting of that name wants. A test holds
// it to what they are.
var serves = map[string][]string{
	"authenticator": {"agent_auth", "bearertokenauth", "oidc"},
	"history":       {"history"},
	"identity":      {"identity"},
	"storage":       {"file_storage"},
}

// key is the last part of a setting's path.
func (s setting) key() string { return s.path[len(s.path)-1] }

// wantsAnother reports whether the extension of that id is none that the setting can use.
func (s setting) wantsAnother(id string) bool {
	var of component.ID
	return s.path[0] != "service" && serves[s.key()] != nil && of.UnmarshalText([]byte(id)) == nil && !slices.Contains(serves[s.key()], of.Type().String())
}

// names is the section of what a setting names.
func (s setting) names() string {
	if s.path[0] == "service" && s.path[1] == "pipelines" {
		return s.path[3]
	}
	return "extensions"
}

// defined are the ids that a section has, for pipelines with the connectors.
func defined(conf *confmap.Conf, section string) (ids []string) {
	from := []string{section}
	if section == "receivers" || section == "exporters" {
		from = append(from, "connectors")
	}
	for _, section := range from {
		for _, id := range idsIn(conf, section) {
			ids = append(ids, id.String())
		}
	}
	return ids
}

// meant says what to write in place of an id that is not defined.
func meant(id, section string, defined []string, factories otelcol.Factories) string {
	var of component.ID
	if len(defined) == 0 || of.UnmarshalText([]byte(id)) == nil && factoryIn(factories, section, of.Type()) != nil && of.Name() == "" {
		return fmt.Sprintf("write it under %s", section)
	}
	return rule.Suggest(id, defined)
}

// one is a component of a section, in words.
func one(section string) string { return strings.TrimSuffix(section, "s") }

func anyOf(section string) string {
	if section == "extensions" || section == "exporters" {
		return "an " + one(section)
	}
	return "a " + one(section)
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
