package command

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
)

// setting is a value that a configuration writes for a setting of a component.
type setting struct {
	path    []string
	is      reflect.Type // what the component takes
	written any
}

// The types of settings that are looked at: names of components, and durations.
var (
	componentID = reflect.TypeFor[component.ID]()
	duration    = reflect.TypeFor[time.Duration]()
)

// says is a line about the setting, with its place in the files.
func (s setting) says(files []configFile, text string) string {
	return fmt.Sprintf("%s%s: %s", whereIs(s.path, files), strings.Join(s.path, "::"), text)
}

// writtenFor finds what is written for the settings of a component, beside the configuration
// that it was decoded into, which knows the types. A component that decodes a block in a way
// of its own may keep it in another form: there nothing is found.
func writtenFor(path []string, config, written any) []setting {
	var w writing
	w.value(path, reflect.ValueOf(config), written)
	return w.found
}

type writing struct{ found []setting }

func (w *writing) value(path []string, config reflect.Value, written any) {
	if !config.IsValid() || written == nil {
		return
	}
	if is := config.Type(); is == componentID || is == duration {
		w.found = append(w.found, setting{path, is, written})
		return
	}
	switch config.Kind() {
	case reflect.Interface:
		w.value(path, config.Elem(), written)
	case reflect.Pointer:
		if config.IsNil() {
			config = reflect.New(config.Type().Elem())
		}
		w.value(path, config.Elem(), written)
	case reflect.Struct:
		w.block(path, config, written)
	case reflect.Map:
		w.named(path, config, written)
	case reflect.Slice, reflect.Array:
		w.list(path, config, written)
	}
}

// block is a struct: its fields say which keys they are of.
func (w *writing) block(path []string, config reflect.Value, written any) {
	if config.Type().PkgPath() == "go.opentelemetry.io/collector/config/configoptional" {
		w.value(path, config.Field(0), written) // Optional[T], which is a T or nothing
		return
	}
	keys, _ := written.(map[string]any)
	for i := range config.NumField() {
		field := config.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		switch {
		case strings.Contains(options, "squash"), !field.IsExported() && field.Type == reflect.TypeFor[component.Config](): // a wrapped one
			w.value(path, config.Field(i), written)
			continue
		case !field.IsExported():
			continue
		case name == "-": // decoded by the component, from the key of its name
			name = strings.ToLower(field.Name)
		case name == "":
			name = field.Name
		}
		w.value(below(path, name), config.Field(i), keys[name])
	}
}

// named is a map.
func (w *writing) named(path []string, config reflect.Value, written any) {
	keys, _ := written.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		entry := reflect.Zero(config.Type().Elem())
		for _, key := range config.MapKeys() {
			if fmt.Sprint(key) == name {
				entry = config.MapIndex(key)
			}
		}
		w.value(below(path, name), entry, keys[name])
	}
}

func (w *writing) list(path []string, config reflect.Value, written any) {
	items, _ := written.([]any)
	for i, item := range items {
		entry := reflect.Zero(config.Type().Elem())
		if i < config.Len() {
			entry = config.Index(i)
		}
		w.value(below(path, fmt.Sprint(i)), entry, item)
	}
}

func below(path []string, key string) []string { return append(slices.Clone(path), key) }
