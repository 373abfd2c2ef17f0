package story

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// diff compares what came with what was wanted.
func (s *Story) diff(r *Result) string {
	var text strings.Builder
	if s.Want.Total != nil {
		if *s.Want.Total != len(r.Verdicts) {
			fmt.Fprintf(&text, "- %d verdicts\n+ %d verdicts\n", *s.Want.Total, len(r.Verdicts))
		}
	} else {
		text.WriteString(s.diffVerdicts(order(r.Verdicts)))
	}
	if n := incidents(r.Verdicts); s.Want.Incidents != nil && *s.Want.Incidents != n {
		fmt.Fprintf(&text, "- %d incidents\n+ %d incidents\n", *s.Want.Incidents, n)
	}
	text.WriteString(s.diffRoots(r.Verdicts))
	text.WriteString(s.diffStats(r.Stats))
	return text.String()
}

// diffVerdicts matches each wanted verdict with the first unmatched one of its
// pattern that fits, else with the first of its pattern.
func (s *Story) diffVerdicts(came []verdict.Verdict) string {
	left := slices.Clone(came)
	labels := map[string]string{}
	var text strings.Builder
	take := func(want *Verdict, fits func(verdict.Verdict) bool) bool {
		at := slices.IndexFunc(left, func(v verdict.Verdict) bool { return v.Pattern == want.Pattern && fits(v) })
		if at < 0 {
			return false
		}
		v := left[at]
		left = slices.Delete(left, at, at+1)
		text.WriteString(diffOne(want, v))
		text.WriteString(diffLabel(labels, want, v))
		return true
	}
	for i := range s.Want.Verdicts {
		want := &s.Want.Verdicts[i]
		if take(want, func(v verdict.Verdict) bool { return diffOne(want, v) == "" }) {
			continue
		}
		if !take(want, func(verdict.Verdict) bool { return true }) {
			fmt.Fprintf(&text, "- %s: %s\n", want.Pattern, headline(want))
		}
	}
	for _, v := range left {
		fmt.Fprintf(&text, "+ %s (%s, %s, %s): %s\n", v.Pattern, v.Role, v.Confidence, v.Status, v.Headline)
	}
	return text.String()
}

// shape is what is compared of a verdict, each field only where it is wanted.
type shape struct {
	Pattern, Role, Status, GoesOn, Confidence, Trust, Severity string
	Headline, Remediation                                      string
	Onset                                                      string
	Culprit, Shows                                             map[string]string
	Ranks                                                      []int
	Evidence, NotObserved, Waits                               []string
	Revision                                                   int
	Late                                                       bool
}

func diffOne(want *Verdict, v verdict.Verdict) string {
	is, should := shapeOf(v, want), want.shape()
	if reflect.DeepEqual(is, should) {
		return ""
	}
	wanted, came := should.keys(), is.keys()
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(merged(wanted, came))) {
		if wanted[key] != came[key] {
			fmt.Fprintf(&text, "- %s: %s\n+ %s: %s\n", key, wanted[key], key, came[key])
		}
	}
	if text.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s\n%s", v.Pattern, v.Headline, &text)
}

func merged(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}

// keys are the keys of want.yaml that are compared, with what stands there.
func (s shape) keys() map[string]string {
	all := map[string]string{
		"pattern": s.Pattern, "role": s.Role, "status": s.Status, "goes_on": s.GoesOn, "confidence": s.Confidence, "trust": s.Trust, "severity": s.Severity,
		"headline": s.Headline, "remediation": s.Remediation, "onset": s.Onset, "ranks": fmt.Sprint(s.Ranks),
		"evidence": strings.Join(s.Evidence, ", "), "not_observed": strings.Join(s.NotObserved, "; "),
		"revision": strconv.Itoa(s.Revision), "late": strconv.FormatBool(s.Late),
	}
	for of, values := range map[string]map[string]string{"culprit": s.Culprit, "shows": s.Shows} {
		for key, value := range values {
			all[of+" "+key] = value
		}
	}
	return all
}

func (w *Verdict) shape() shape {
	s := shape{
		Pattern: w.Pattern, Role: w.Role, Status: w.Status, GoesOn: w.GoesOn, Confidence: w.Confidence, Trust: w.Trust, Severity: w.Severity,
		Headline: w.Headline, Remediation: w.Remediation, Culprit: w.Culprit, Shows: w.Shows, Ranks: w.Ranks,
		Evidence: w.Evidence, NotObserved: w.NotObserved, Waits: w.Waits, Revision: w.Revision,
	}
	s.Late = w.Late != nil && *w.Late
	if w.Onset != nil {
		s.Onset = time.Duration(*w.Onset).String()
	}
	return s
}

// shapeOf takes from v what want names; a part that is contained is taken over
// as it was wanted.
func shapeOf(v verdict.Verdict, want *Verdict) shape {
	s := shape{Pattern: v.Pattern}
	set := func(wanted bool, to *string, value string) {
		if wanted {
			*to = value
		}
	}
	set(want.Role != "", &s.Role, string(v.Role))
	set(want.Status != "", &s.Status, string(v.Status))
	set(want.Status != "" || want.GoesOn != "", &s.GoesOn, string(v.GoesOn))
	set(want.Confidence != "", &s.Confidence, string(v.Confidence))
	set(want.Trust != "", &s.Trust, v.Trust.String())
	set(want.Severity != "", &s.Severity, string(v.Severity))
	set(want.Headline != "", &s.Headline, v.Headline)
	set(want.Onset != nil, &s.Onset, v.Onset.Sub(start).String())
	set(want.Remediation != "", &s.Remediation, containing(v.Remediation, want.Remediation))
	if want.Culprit != nil {
		s.Culprit = map[string]string{}
		for key := range want.Culprit {
			if value, ok := v.Culprit[key]; ok {
				s.Culprit[key] = value
			}
		}
	}
	for _, e := range v.Evidence {
		if _, wanted := want.Shows[e.Name]; wanted {
			if s.Shows == nil {
				s.Shows = map[string]string{}
			}
			if before := s.Shows[e.Name]; before != "" { // one line for each thing
				e.Shows = before + "; " + e.Shows
			}
			s.Shows[e.Name] = e.Shows
		}
	}
	if want.Ranks != nil {
		s.Ranks = v.BlastRadius
	}
	if want.Waits != nil {
		for _, w := range v.Waits {
			s.Waits = append(s.Waits, w.String())
		}
	}
	if want.Evidence != nil {
		for _, e := range v.Evidence {
			if !slices.Contains(s.Evidence, e.Name) {
				s.Evidence = append(s.Evidence, e.Name)
			}
		}
	}
	if want.NotObserved != nil {
		s.NotObserved = observed(v.NotObserved, want.NotObserved)
	}
	if want.Late != nil {
		s.Late = v.Late
	}
	if want.Revision != 0 {
		s.Revision = v.Revision
	}
	return s
}

func containing(text, part string) string {
	if strings.Contains(text, part) {
		return part
	}
	return text
}

func observed(came, want []string) []string {
	if len(came) != len(want) {
		return came
	}
	list := make([]string, len(came))
	for i := range came {
		list[i] = containing(came[i], want[i])
	}
	return list
}

// diffLabel checks that equal labels mean one incident and others another.
func diffLabel(labels map[string]string, want *Verdict, v verdict.Verdict) string {
	if want.Incident == "" {
		return ""
	}
	for label, incident := range labels {
		if (label == want.Incident) != (incident == v.IncidentID) {
			return fmt.Sprintf("- %s is in incident %s\n+ it is not: %s\n", v.Pattern, want.Incident, v.Headline)
		}
	}
	labels[want.Incident] = v.IncidentID
	return ""
}

func incidents(verdicts []verdict.Verdict) int {
	seen := map[string]bool{}
	for _, v := range verdicts {
		seen[v.IncidentID] = true
	}
	return len(seen)
}

// diffRoots checks what holds in every story: one root cause in each incident,
// and symptoms that point to it.
func (s *Story) diffRoots(verdicts []verdict.Verdict) string {
	roots := map[string][]string{}
	for _, v := range verdicts {
		if v.Role == verdict.RootCause {
			roots[v.IncidentID] = append(roots[v.IncidentID], v.ID)
		}
	}
	for _, v := range verdicts {
		ids := roots[v.IncidentID]
		if len(ids) != 1 || v.Role == verdict.Symptom && v.RootCause != ids[0] {
			return fmt.Sprintf("- each incident has one root cause\n+ incident of %s has %d, it points to %q\n", v.Pattern, len(ids), v.RootCause)
		}
	}
	return ""
}

// diffStats checks counters of the engine, by their names in engine.Stats.
func (s *Story) diffStats(stats engine.Stats) string {
	var text strings.Builder
	names := make([]string, 0, len(s.Want.Stats))
	for name := range s.Want.Stats {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		field := reflect.ValueOf(stats).FieldByName(name)
		switch {
		case !field.IsValid():
			fmt.Fprintf(&text, "- %s\n+ the engine has no counter of that name\n", name)
		case field.CanInt() && uint64(field.Int()) < s.Want.Stats[name], field.CanUint() && field.Uint() < s.Want.Stats[name]:
			fmt.Fprintf(&text, "- %s: at least %d\n+ %s: %v\n", name, s.Want.Stats[name], name, field.Interface())
		}
	}
	return text.String()
}

func headline(want *Verdict) string {
	if want.Headline == "" {
		return "no such verdict came"
	}
	return want.Headline
}
