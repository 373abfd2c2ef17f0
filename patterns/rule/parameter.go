package rule

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"
)

// Parameter is a threshold of a pattern that operators can set.
type Parameter struct {
	Name    string
	Type    ParameterType
	Default string
	Range   []string // least and most
	Meaning string
	// Processor is the type of the component that judges by it before the rule does, and
	// where it is set. "": the pattern detector.
	Processor string

	Value string // in force, as it is written
	// Source is who set the value: a path of the configuration, "" for the default.
	Source string
	number float64 // the value; of a duration, nanoseconds
	broken bool    // the file says it wrongly: its uses are not looked at
	at     position
}

// ParameterType says how a parameter is written.
type ParameterType string

// The types of parameters.
const (
	DurationParameter ParameterType = "duration"
	IntegerParameter  ParameterType = "integer"
	NumberParameter   ParameterType = "number"
)

// Settings are values for the parameters of one pattern, as the operator wrote them.
type Settings struct {
	Source string // where they stand: patterns::straggler
	Values map[string]string
}

// Values are the parameters of a rule in force, for its detector. Check has seen to it that
// each parameter that a detector names is there.
type Values []Parameter

// Duration returns a parameter in nanoseconds.
func (v Values) Duration(name string) int64 { return int64(v.Number(name)) }

// Integer returns a parameter that is a whole number.
func (v Values) Integer(name string) int { return int(v.Number(name)) }

// Number returns a parameter; 0 for one that is not there.
func (v Values) Number(name string) float64 {
	if p := v.called(name); p != nil {
		return p.number
	}
	return 0
}

// called finds a parameter by name, nil for none.
func (v Values) called(name string) *Parameter {
	if i := slices.IndexFunc(v, func(p Parameter) bool { return p.Name == name }); i >= 0 {
		return &v[i]
	}
	return nil
}

func (v Values) names() []string {
	return namesOf(v, func(p Parameter) string { return p.Name })
}

// Of returns the parameters that a processor judges by, with the values of its
// configuration by name.
func (v Values) Of(processor string, set map[string]string) (Values, error) {
	var of Values
	var errs []error
	for _, p := range v {
		if p.Processor != processor {
			continue
		}
		if text, ok := set[p.Name]; ok {
			if err := p.set(text); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w (default %s)", p.Name, err, p.Default))
			}
			if number, err := p.Type.parse(p.Default); err == nil && number == p.number {
				p.Value = p.Default
			} else {
				p.Source = processor + "::" + p.Name
			}
		}
		of = append(of, p)
	}
	return of, errors.Join(errs...)
}

// parse returns the number that text is, for this type.
func (t ParameterType) parse(text string) (float64, error) {
	switch t {
	case DurationParameter:
		v, err := time.ParseDuration(text)
		if err != nil || v < 0 || v > maxDuration {
			return 0, fmt.Errorf("%q is no duration of at most %v: write 30s, 5m, 2h", text, maxDuration)
		}
		return float64(v), nil
	case IntegerParameter:
		v, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("%q is no whole number: write 3", text)
		}
		return float64(v), nil
	default:
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%q is no number: write 1.5", text)
		}
		return v, nil
	}
}

// set gives p a value within its range.
func (p *Parameter) set(text string) error {
	number, err := p.Type.parse(text)
	if err != nil {
		return err
	}
	least, most, err := p.bounds()
	switch {
	case err != nil:
		return err
	case number < least || number > most:
		return fmt.Errorf("%s is out of range: write a value from %s to %s", text, p.Range[0], p.Range[1])
	}
	p.Value, p.number = text, number
	return nil
}

// bounds reads the range.
func (p *Parameter) bounds() (least, most float64, err error) {
	if len(p.Range) != 2 {
		return 0, 0, errors.New("write range: [least, most]")
	}
	if least, err = p.Type.parse(p.Range[0]); err != nil {
		return 0, 0, fmt.Errorf("range: %w", err)
	}
	if most, err = p.Type.parse(p.Range[1]); err != nil {
		return 0, 0, fmt.Errorf("range: %w", err)
	}
	if least > most {
		return 0, 0, fmt.Errorf("range: least, %s, is above most, %s: turn them round", p.Range[0], p.Range[1])
	}
	return least, most, nil
}

// parameters describes the parameters of a pattern. They are read before all other keys,
// which use them.
func (d *decoder) parameters(r *Rule) value {
	describe := d.parameter(&Parameter{})
	return value{kind: "names, each with a parameter", section: describe.section, keys: describe.keys, read: func(n *yaml.Node) {
		d.each(n, "parameters", func(key, value *yaml.Node) {
			p := Parameter{Name: key.Value, at: at(key)}
			if !isName(key.Value) || key.Value == "enabled" {
				d.fail(key, "%q is no name of a parameter: use lower-case letters, digits and _; enabled is taken", key.Value)
			}
			before := d.failures
			d.parameter(&p).read(value)
			if d.failures == before {
				if err := p.set(p.Default); err != nil {
					d.fail(value, "parameter %s: %v", p.Name, err)
				}
			}
			p.broken = d.failures > before
			r.Parameters = append(r.Parameters, p)
		})
	}}
}

func (d *decoder) parameter(p *Parameter) value {
	return d.object("", "A parameter", "parameter "+p.Name, []key{
		{"type", d.word((*string)(&p.Type), string(DurationParameter), string(IntegerParameter), string(NumberParameter)), needed, "how it is written"},
		{"default", d.text("value", &p.Default), needed, "what holds unless the operator sets it"},
		{"range", d.strings("value", &p.Range), needed, "`[least, most]`: a value outside is refused"},
		{"meaning", d.text("text", &p.Meaning), needed, "what it decides, and where the default comes from"},
		{"processor", d.word(&p.Processor, "rankjoin"), "", "the component that judges by it and has it in its own configuration; without it the rule or its detector does"},
	})
}

// apply gives parameters the values that the operator set.
func (r *Rule) apply(s Settings) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(s.Values)) {
		text := s.Values[name]
		p := r.Parameters.called(name)
		if p == nil {
			names := append([]string{"enabled"}, r.Parameters.names()...)
			errs = append(errs, fmt.Errorf("%s::%s: %s has no parameter %q: %s", s.Source, name, r.Name, name, suggest(name, names)))
			continue
		}
		if p.broken {
			continue
		}
		if p.Processor != "" {
			errs = append(errs, fmt.Errorf("%s::%s: the processor %s judges by it: write processors: {%s: {%s: %s}}", s.Source, name, p.Processor, p.Processor, name, text))
			continue
		}
		if err := p.set(text); err != nil {
			errs = append(errs, fmt.Errorf("%s::%s: %w (default %s, %s)", s.Source, name, err, p.Default, p.at.in(r.File)))
			continue
		}
		p.Source = s.Source + "::" + name
	}
	return errs
}

// use finds $name in a value; $$ is a dollar sign.
var use = regexp.MustCompile(`\$\$|\$[a-z][a-z0-9_]*`)

// place is what text is in which $name stands.
type place int

const (
	inText      place = iota
	inValue           // OTTL, where a duration is its number of nanoseconds
	inCondition       // the same, and $name may be a condition, too
)

// fill puts the values of parameters, and named conditions, into text at n. It is not whole where
// a name is unknown or stands for nothing: what is wrong was told.
func (d *decoder) fill(n *yaml.Node, text string, in place) (filled string, whole bool) {
	if in != inText && len(text) > maxOTTLBytes { // a short name may stand for a long text
		d.fail(n, "%v", bounded(text))
		return text, false
	}
	whole = true
	filled = use.ReplaceAllStringFunc(text, func(use string) string {
		if use == "$$" {
			return "$"
		}
		as, ok := d.standsFor(n, use[1:], in)
		whole = whole && ok
		return as
	})
	return filled, whole
}

// standsFor returns what a name stands for in text at n.
func (d *decoder) standsFor(n *yaml.Node, name string, in place) (text string, ok bool) {
	d.used[name] = true
	if p := d.values.called(name); p != nil {
		if in != inText && p.Type == DurationParameter {
			return strconv.FormatInt(int64(p.number), 10), !p.broken
		}
		return p.Value, !p.broken
	}
	if c := d.conditionCalled(name); c != nil {
		if in != inCondition {
			d.fail(n, "$%s is a condition: it can stand in where, in while and in other conditions", name)
		}
		return "(" + c.text + ")", !c.broken && in == inCondition
	}
	what, names := "parameter", d.values.names()
	if in == inCondition {
		what, names = "parameter or condition", append(names, namesOf(d.named, func(c named) string { return c.name })...)
	}
	d.fail(n, "there is no %s %q: %s (a dollar sign is $$)", what, name, suggest(name, names))
	return "", false
}

// checkParameters fails for parameters that decide nothing.
func (d *decoder) checkParameters(r *Rule) {
	for _, p := range r.Parameters {
		if p.Processor != "" && d.used[p.Name] {
			d.failAt(p.at, "parameter %s is the processor's: the rule does not know its value, so leave $%s out", p.Name, p.Name)
		}
		if !d.used[p.Name] && r.Detector == "" && p.Processor == "" {
			d.failAt(p.at, "parameter %s is used nowhere: write $%s where it decides, or leave it out", p.Name, p.Name)
		}
	}
}

// checkDetectorParameters fails when the detector of r takes a parameter that the file does not define.
func checkDetectorParameters(r *Rule) error {
	if r.Detect == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.Detect.Parameters)) {
		kind := r.Detect.Parameters[name]
		if !slices.ContainsFunc(r.Parameters, func(p Parameter) bool { return p.Name == name && p.Type == kind }) {
			return fmt.Errorf("%s: the detector %s needs the parameter %s (%s): define it as the pattern of tracecore with that detector does",
				r.detectorAt.in(r.File), r.Detector, name, kind)
		}
	}
	return nil
}

// checkSharedDetector fails when two rules name one detector, which runs once, and give it
// different parameters.
func checkSharedDetector(r, other *Rule) error {
	for name := range r.Detect.Parameters {
		if mine, its := r.Parameters.Number(name), other.Parameters.Number(name); mine != its {
			return fmt.Errorf("%s: the detector %s runs once, and %s gives it another %s: set the same in both", r.detectorAt.in(r.File), r.Detector, other.File, name)
		}
	}
	return nil
}
