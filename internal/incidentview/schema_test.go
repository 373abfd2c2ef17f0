package incidentview

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// schemaNode is the part of JSON Schema that says which members there are.
type schemaNode struct {
	Type        string                 `json:"type"`
	Format      string                 `json:"format"`
	Description string                 `json:"description"`
	Required    []string               `json:"required"`
	Properties  map[string]*schemaNode `json:"properties"`
	Items       *schemaNode            `json:"items"`
}

func TestSchemaDescribesTheGoType(t *testing.T) {
	var s schemaNode
	require.NoError(t, json.Unmarshal(SchemaJSON, &s))
	requireDescribes(t, "incident", &s, reflect.TypeFor[View]())
}

func requireDescribes(t *testing.T, path string, s *schemaNode, typ reflect.Type) {
	t.Helper()
	require.NotNil(t, s, path)
	require.NotEmpty(t, s.Description, path)
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == timeType:
		require.Equal(t, "date-time", s.Format, path)
	case typ == rawType || typ.Kind() == reflect.Map:
		require.Equal(t, "object", s.Type, path)
	case typ == reflect.TypeFor[verdict.Trust]() || typ.Kind() == reflect.String:
		require.Equal(t, "string", s.Type, path)
	case typ.Kind() == reflect.Slice:
		require.Equal(t, "array", s.Type, path)
		requireDescribes(t, path+"[]", s.Items, typ.Elem())
	case typ.Kind() == reflect.Struct:
		require.Equal(t, "object", s.Type, path)
		var names, required []string
		for field := range typ.Fields() {
			name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
			if options == "" {
				required = append(required, name)
			}
			requireDescribes(t, path+"."+name, s.Properties[name], field.Type)
		}
		require.ElementsMatch(t, names, slices.Collect(maps.Keys(s.Properties)), path)
		require.ElementsMatch(t, required, s.Required, path)
	default:
		kinds := map[reflect.Kind]string{reflect.Bool: "boolean", reflect.Int: "integer", reflect.Uint64: "integer", reflect.Float64: "number"}
		require.Equal(t, kinds[typ.Kind()], s.Type, path)
	}
}

// What is written obeys the published schema, whatever it was made of.
func TestReportsObeyTheSchema(t *testing.T) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(SchemaJSON))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	id := value.(map[string]any)["$id"].(string)
	require.NoError(t, compiler.AddResource(id, value))
	schema, err := compiler.Compile(id)
	require.NoError(t, err)
	obeys := func(text []byte) error {
		t.Helper()
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		return schema.Validate(value)
	}
	views := map[string]View{"a recording": checkpointStops(16).view(t), "the least": Build([]verdict.Verdict{least()}, Options{Now: began})}
	for _, text := range poison {
		views[text[:min(len(text), 20)]] = Build(poisoned(text), Options{Now: began, Version: text})
	}
	for name, v := range views {
		text, err := ToJSON(v)
		require.NoError(t, err)
		require.NoError(t, obeys(text), name)
	}
	good, err := ToJSON(views["a recording"])
	require.NoError(t, err)
	for old, other := range map[string]string{Schema: "tracecore.incident/2", `"severity":"error"`: `"severity":"loud"`, `"since":"2026`: `"since":"x2026`, `"kind":"cause"`: `"kind":"guess"`} {
		require.Contains(t, string(good), old)
		require.Error(t, obeys(bytes.Replace(good, []byte(old), []byte(other), 1)), other)
	}
}

// least is a verdict with nothing that it can be without.
func least() verdict.Verdict {
	return verdict.Verdict{
		ID: "v", IncidentID: "i", Pattern: "p", Role: verdict.Symptom, Status: verdict.Open, Confidence: verdict.Partial, Severity: verdict.Info,
		Revision: 1, Onset: began, Updated: began.Add(time.Second), Headline: "x", Culprit: map[string]string{},
	}
}
