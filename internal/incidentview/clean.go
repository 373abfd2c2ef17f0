package incidentview

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Bounds of what is read and shown.
const (
	MaxBytes = 16 << 20 // of a view in JSON

	maxText    = 2048 // bytes of one text: a remedy is as long
	maxList    = 1024 // members of one list
	maxRawJSON = 32 << 10
)

// clean makes all text of a view safe to show and bounds it, whatever field it stands in.
func clean(v View) View {
	v.Do = append([]Step{}, v.Do[:min(len(v.Do), verdict.MaxSteps)]...)
	for i := range v.Do {
		if s := &v.Do[i]; s.Command != text(s.Command, maxText) || s.Effect != verdict.Looks && s.Effect != verdict.Changes {
			s.Command, s.Effect, s.Target = "", "", "" // it is run as it is shown, or not at all
		}
	}
	cleanValue(reflect.ValueOf(&v).Elem())
	v.Made.Verdicts = v.Made.Verdicts[:min(len(v.Made.Verdicts), mostVerdicts)]
	v.LedTo, v.Seen, v.Made.Verdicts = listed(v.LedTo), listed(v.Seen), listed(v.Made.Verdicts)
	v.Raw = slices.DeleteFunc(v.Raw, func(r Raw) bool { return len(r.JSON) > maxRawJSON || !json.Valid(r.JSON) })
	return v
}

// listed makes a list that is there, if empty.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	rankType = reflect.TypeFor[Ranks]()
)

func cleanValue(v reflect.Value) {
	switch {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
		return
	case v.Type() == rawType:
		v.SetBytes(safetext.JSON(v.Bytes()))
		return
	case v.Type() == rankType:
		ranks, _ := v.Interface().(Ranks)
		ranks.shorten()
		v.Set(reflect.ValueOf(ranks))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(v.String(), maxText))
	case reflect.Pointer:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			cleanValue(v.Field(i))
		}
	case reflect.Slice:
		v.Set(v.Slice(0, min(v.Len(), maxList)))
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Map:
		cleanMap(v)
	default:
	}
}

// cleanMap cleans a map of strings, the only kind there is.
func cleanMap(v reflect.Value) {
	texts, ok := v.Interface().(map[string]string)
	if !ok {
		return
	}
	cleaned := make(map[string]string, min(len(texts), verdict.MaxCulprits))
	for key, value := range texts {
		if len(cleaned) < verdict.MaxCulprits {
			cleaned[text(key, verdict.MaxNameBytes)] = text(value, maxText)
		}
	}
	v.Set(reflect.ValueOf(cleaned))
}

// text is s as one line of visible characters of at most most bytes. Four bytes become one
// at least, so what lies beyond four times the limit is not looked at.
func text(s string, most int) string {
	return safetext.Clip(safetext.Line(s[:min(len(s), utf8.UTFMax*(most+1))]), most)
}

// ToJSON is v as JSON, in which nothing is markup.
func ToJSON(v View) ([]byte, error) { return safetext.Marshal(v) }

// ErrNotView means that JSON is something else.
var ErrNotView = errors.New("no incident in the form " + Schema)

// FromJSON reads a view that anyone may have written.
func FromJSON(data []byte) (View, error) {
	if len(data) > MaxBytes {
		return View{}, fmt.Errorf("an incident of %d bytes, at most %d are read", len(data), MaxBytes)
	}
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil || head.Schema != Schema {
		return View{}, ErrNotView
	}
	var v View
	if err := json.Unmarshal(data, &v); err != nil {
		return View{}, fmt.Errorf("%w: %w", ErrNotView, err)
	}
	v = clean(v)
	return v, v.validate()
}

// validate says what no view can be without.
func (v *View) validate() error {
	switch {
	case v.ID == "" || v.Headline == "":
		return errors.New("an incident without incident_id or headline")
	case !slices.Contains([]verdict.Severity{verdict.Info, verdict.Warning, verdict.Error, verdict.Critical}, v.Severity):
		return fmt.Errorf("severity %.40q is none", v.Severity)
	case v.Status != verdict.Open && v.Status != verdict.Resolved:
		return fmt.Errorf("status %.40q is none", v.Status)
	}
	return nil
}
