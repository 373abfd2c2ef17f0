package verdict

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// schema is the part of JSON Schema that schema.json uses.
type schema struct {
	Type                 string             `json:"type"`
	Description          string             `json:"description"`
	Format               string             `json:"format"`
	Enum                 []string           `json:"enum"`
	Required             []string           `json:"required"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	PropertyNames        *schema            `json:"propertyNames"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	Pattern              string             `json:"pattern"`
	MinLength            int                `json:"minLength"`
	MaxLength            *int               `json:"maxLength"`
	MaxItems             *int               `json:"maxItems"`
	MaxProperties        *int               `json:"maxProperties"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`

	Dialect string `json:"$schema"`
	ID      string `json:"$id"`
	Title   string `json:"title"`
}

func publishedSchema(t *testing.T) *schema {
	t.Helper()
	file, err := os.Open("schema.json")
	require.NoError(t, err)
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields() // a keyword that this test does not check would promise nothing
	s := &schema{}
	require.NoError(t, decoder.Decode(s))
	return s
}

func TestSchemaDescribesTheGoType(t *testing.T) {
	requireDescribes(t, "verdict", publishedSchema(t), reflect.TypeFor[Verdict]())
}

// requireDescribes compares a schema with the Go type that encodes to it.
func requireDescribes(t *testing.T, path string, s *schema, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[time.Time]():
		require.Equal(t, "string", s.Type, path)
		require.Equal(t, "date-time", s.Format, path)
	case typ == reflect.TypeFor[Trust]():
		require.Equal(t, "string", s.Type, path)
		require.Equal(t, []string{"proven", "claimed", "foreign"}, s.Enum, path)
	case typ == reflect.TypeFor[Ranks](), typ == reflect.TypeFor[[]byte]():
		require.Equal(t, "string", s.Type, path)
	case typ.Kind() == reflect.Struct:
		requireDescribesStruct(t, path, s, typ)
	case typ.Kind() == reflect.Slice:
		require.Equal(t, "array", s.Type, path)
		require.NotNil(t, s.MaxItems, path)
		requireDescribes(t, path+"[]", s.Items, typ.Elem())
	case typ.Kind() == reflect.Map:
		require.Equal(t, "object", s.Type, path)
		requireDescribes(t, path+"{}", s.AdditionalProperties, typ.Elem())
	case typ.Kind() == reflect.String:
		require.Equal(t, "string", s.Type, path)
	case typ.Kind() == reflect.Bool:
		require.Equal(t, "boolean", s.Type, path)
	case typ.Kind() == reflect.Int || typ.Kind() == reflect.Uint64:
		require.Equal(t, "integer", s.Type, path)
	default:
		t.Fatalf("%s: no rule for Go type %s", path, typ)
	}
}

func requireDescribesStruct(t *testing.T, path string, s *schema, typ reflect.Type) {
	t.Helper()
	require.Equal(t, "object", s.Type, path)
	var names, required []string
	fields := slices.Collect(typ.Fields())
	if typ == reflect.TypeFor[Verdict]() { // these are made of it
		fields = append(fields, slices.Collect(reflect.TypeFor[wire]().Fields())[1:]...)
	}
	for _, field := range fields {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
		if options == "" {
			required = append(required, name)
		}
		property := s.Properties[name]
		require.NotNil(t, property, "%s.%s is not in schema.json", path, name)
		require.NotEmpty(t, property.Description, "%s.%s", path, name)
		requireDescribes(t, path+"."+name, property, field.Type)
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(s.Properties)), path)
	require.ElementsMatch(t, required, s.Required, path)
}

func TestSchemaStatesTheLimitsAndValuesOfTheCode(t *testing.T) {
	s := publishedSchema(t).Properties
	most := func(p *int) int { require.NotNil(t, p); return *p }
	require.Equal(t, MaxNameBytes, most(s["verdict_id"].MaxLength))
	require.Equal(t, MaxTextBytes, most(s["headline"].MaxLength))
	require.Equal(t, MaxRemediationBytes, most(s["remediation"].MaxLength))
	require.Equal(t, MaxCulprits, most(s["culprit"].MaxProperties))
	require.Equal(t, MaxEvidence, most(s["evidence"].MaxItems))
	require.Equal(t, MaxNotObserved, most(s["not_observed"].MaxItems))
	require.Equal(t, MaxRangesBytes, most(s["blast_radius_ranks"].MaxLength))
	require.Equal(t, MaxRankSpans, most(s["rank_spans"].MaxItems))
	require.Equal(t, MaxSpans, most(s["evidence"].Items.Properties["spans"].MaxItems))
	require.Equal(t, []string{string(RootCause), string(Symptom)}, s["role"].Enum)
	require.Equal(t, []string{string(Open), string(Resolved)}, s["status"].Enum)
	require.Equal(t, []string{string(Full), string(Partial)}, s["confidence"].Enum)
	require.Equal(t, []string{string(Info), string(Warning), string(Error), string(Critical)}, s["severity"].Enum)
}

func TestVerdictsObeyTheSchema(t *testing.T) {
	s := publishedSchema(t)
	resolved := lostGPU()
	resolved.Status, resolved.Resolved = Resolved, &resolved.Updated
	resolved.Evidence[0].Last = resolved.Updated
	inTrace := lostGPU()
	inTrace.Span = Span{TraceID: strings.Repeat("a", 32), SpanID: strings.Repeat("b", 16)}
	inTrace.RankSpans = []RankSpan{{Rank: 5, TraceID: inTrace.Span.TraceID}}
	inTrace.Evidence[0].Spans = []Span{inTrace.Span}
	huge := lostGPU()
	huge.Headline, huge.Remediation = strings.Repeat("é", 5000), strings.Repeat("x", 5000)
	huge.Culprit = map[string]string{"bad key\x00": "v", strings.Repeat("k", 500): "v"}
	for i := range 40_000 {
		huge.BlastRadius = append(huge.BlastRadius, i-10)
		huge.Evidence = append(huge.Evidence, Evidence{Shows: strings.Repeat("\x01", 4000)})
		huge.NotObserved = append(huge.NotObserved, strings.Repeat("n", 2000))
	}
	for name, v := range map[string]Verdict{
		"root cause": lostGPU(), "symptom": abortedRank(), "resolved": resolved, "hostile": hostile(), "huge": huge, "in a trace": inTrace,
		"empty lists": {ID: "a", IncidentID: "b", Pattern: "c", Role: RootCause, Status: Open, Confidence: Full, Severity: Info, Revision: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var value any
			require.NoError(t, json.Unmarshal(ToJSON(v), &value))
			require.NoError(t, s.check("verdict", value))
		})
	}
}

func TestSchemaRefusesWhatTheReaderRefuses(t *testing.T) {
	s := publishedSchema(t)
	for name, data := range refused() {
		var value any
		if json.Unmarshal([]byte(data), &value) != nil {
			continue // not JSON at all
		}
		t.Run(name, func(t *testing.T) { require.Error(t, s.check("verdict", value)) })
	}
}

// check validates a decoded JSON value.
func (s *schema) check(path string, value any) error {
	switch value := value.(type) {
	case string:
		return s.checkString(path, value)
	case float64:
		if s.Type != "integer" || value != float64(int64(value)) || s.Minimum != nil && value < *s.Minimum || s.Maximum != nil && value > *s.Maximum {
			return fmt.Errorf("%s: %v is no such integer", path, value)
		}
	case []any:
		if s.Type != "array" || s.MaxItems != nil && len(value) > *s.MaxItems {
			return fmt.Errorf("%s: not such an array", path)
		}
		for i, item := range value {
			if err := s.Items.check(fmt.Sprintf("%s[%d]", path, i), item); err != nil {
				return err
			}
		}
	case map[string]any:
		return s.checkObject(path, value)
	default:
		return fmt.Errorf("%s: %T", path, value)
	}
	return nil
}

func (s *schema) checkString(path, value string) error {
	length := len([]rune(value))
	switch {
	case s.Type != "string" && s.Pattern == "":
		return fmt.Errorf("%s: a string", path)
	case s.Enum != nil && !slices.Contains(s.Enum, value):
		return fmt.Errorf("%s: %q is none of %v", path, value, s.Enum)
	case length < s.MinLength || s.MaxLength != nil && length > *s.MaxLength:
		return fmt.Errorf("%s: %d characters", path, length)
	case s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(value):
		return fmt.Errorf("%s: %q does not match", path, value)
	case s.Format == "date-time":
		t, err := time.Parse(time.RFC3339Nano, value)
		if err == nil && t.Year() < 1970 {
			err = fmt.Errorf("%s: before 1970", path) // stricter in the reader than JSON Schema can say
		}
		return err
	}
	return nil
}

func (s *schema) checkObject(path string, value map[string]any) error {
	if s.Type != "object" || s.MaxProperties != nil && len(value) > *s.MaxProperties {
		return fmt.Errorf("%s: not such an object", path)
	}
	for _, name := range s.Required {
		if _, ok := value[name]; !ok {
			return fmt.Errorf("%s: %s is missing", path, name)
		}
	}
	for name, member := range value {
		if s.PropertyNames != nil {
			if err := s.PropertyNames.checkString(path+" key", name); err != nil {
				return err
			}
		}
		property := s.Properties[name]
		if property == nil {
			property = s.AdditionalProperties
		}
		if property == nil {
			continue // a member of a newer writer
		}
		if err := property.check(path+"."+name, member); err != nil {
			return err
		}
	}
	return nil
}
