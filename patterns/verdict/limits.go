package verdict

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// Limits of one verdict. ToRecord clips to them and FromRecord refuses what
// exceeds them, so every verdict that leaves one tracecore enters another. The
// headline and the evidence quote text that any process can write to the kernel
// log: without limits one line could grow a record without end.
const (
	MaxNameBytes        = 128       // ids, pattern, evidence and source names, culprit keys
	MaxTextBytes        = 1024      // headline, what evidence shows, culprit values, what was not observed
	MaxRemediationBytes = 2048      // remediation
	MaxCulprits         = 32        // culprit keys
	MaxEvidence         = 64        // pieces of evidence
	MaxNotObserved      = 32        // things not observed
	MaxSteps            = 16        // steps of a remedy
	MaxSources          = 16        // events and metrics of a piece of evidence
	MaxSpans            = 8         // spans of a piece of evidence
	MaxRankSpans        = 32        // spans of other ranks
	MaxRanks            = 32_768    // ranks in the blast radius
	MaxRank             = 1<<31 - 1 // largest rank number
	MaxScattered        = 1 << 17   // largest rank number and one, where ranges exceed MaxRangesBytes
	MaxJSONBytes        = 2 << 20   // verdict_json, which escaping can make six times its text
)

// latest is the last instant an OTLP timestamp and time.UnixNano both hold.
var latest = time.Unix(0, 1<<63-1).UTC()

// Bounded returns a copy of v within the limits, safe to show: texts are lines of
// visible characters clipped at one, lists are clipped at their length.
func Bounded(v Verdict) Verdict {
	for _, name := range []*string{&v.ID, &v.IncidentID, &v.Pattern, &v.RootCause, &v.Boot, &v.Run} {
		*name = clip(*name, MaxNameBytes)
	}
	v.Headline = clip(v.Headline, MaxTextBytes)
	v.Remediation = clip(v.Remediation, MaxRemediationBytes)
	v.Onset, v.Updated = boundTime(v.Onset), boundTime(v.Updated)
	if v.Resolved != nil {
		resolved := boundTime(*v.Resolved)
		v.Resolved = &resolved
	}
	if v.Over != nil {
		over := boundTime(*v.Over)
		v.Over = &over
	}
	v.Culprit = boundCulprit(v.Culprit)
	v.BlastRadius, v.Waits = boundRanks(v.BlastRadius), boundWaits(v.Waits)
	v.Evidence = boundEvidence(v.Evidence)
	if !v.Span.valid() {
		v.Span = Span{}
	}
	v.RankSpans = boundRankSpans(v.RankSpans)
	v.NotObserved = boundTexts(v.NotObserved, MaxNotObserved)
	v.Steps, v.Missing = boundSteps(v.Steps), boundMissing(v.Missing)
	return v
}

// boundSteps leaves out a command that would have to be changed: a command is run as it
// is shown, or not at all.
func boundSteps(steps []Step) []Step {
	var bounded []Step
	for _, s := range steps[:min(len(steps), MaxSteps)] {
		s.Text, s.Target = clip(s.Text, MaxTextBytes), clip(s.Target, MaxTextBytes)
		if clip(s.Command, MaxTextBytes) != s.Command {
			s.Command = ""
		}
		if s.Effect = clip(s.Effect, MaxNameBytes); s.Command == "" {
			s.Effect, s.Target = "", ""
		}
		bounded = append(bounded, s)
	}
	return bounded
}

func boundMissing(missing []Missing) []Missing {
	var bounded []Missing
	for _, m := range missing[:min(len(missing), MaxNotObserved)] {
		m.Name, m.Text = clip(m.Name, MaxNameBytes), clip(m.Text, MaxTextBytes)
		var sources []string
		for _, source := range m.Sources[:min(len(m.Sources), MaxSources)] {
			sources = append(sources, clip(source, MaxNameBytes))
		}
		m.Sources = sources
		bounded = append(bounded, m)
	}
	return bounded
}

func boundCulprit(culprit map[string]string) map[string]string {
	bounded := make(map[string]string, len(culprit))
	for _, key := range slices.Sorted(maps.Keys(culprit)) {
		if len(bounded) == MaxCulprits {
			break
		}
		if name := culpritKey(key); name != "" {
			bounded[name] = clip(culprit[key], MaxTextBytes)
		}
	}
	return bounded
}

// culpritKey makes a key usable as the end of an attribute name.
func culpritKey(key string) string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && isKeyByte(byte(r)) {
			return r
		}
		return '_'
	}, key)
	return name[:min(len(name), MaxNameBytes)]
}

func isKeyByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '.' || b == '-'
}

func boundRanks(ranks Ranks) Ranks {
	var bounded Ranks
	for _, rank := range ranks {
		if rank >= 0 && rank <= MaxRank {
			bounded = append(bounded, rank)
		}
	}
	if !slices.IsSorted(bounded) {
		slices.Sort(bounded)
	}
	bounded = slices.Compact(bounded)
	bounded = bounded[:min(len(bounded), MaxRanks)]
	if _, more := bounded.First(MaxRangesBytes); more > 0 {
		bounded = slices.DeleteFunc(bounded, func(rank int) bool { return rank >= MaxScattered })
	}
	return bounded
}

func boundEvidence(evidence []Evidence) []Evidence {
	bounded := make([]Evidence, 0, min(len(evidence), MaxEvidence))
	for _, e := range evidence[:min(len(evidence), MaxEvidence)] {
		e.Name, e.Source = clip(e.Name, MaxNameBytes), clip(e.Source, MaxNameBytes)
		e.Shows = clip(e.Shows, MaxTextBytes)
		e.Time = boundTime(e.Time)
		if !e.Last.IsZero() {
			e.Last = boundTime(e.Last)
		}
		if !e.Began.IsZero() {
			e.Began = boundTime(e.Began)
		}
		e.Spans = boundSpans(e.Spans)
		bounded = append(bounded, e)
	}
	return bounded
}

func boundTexts(texts []string, most int) []string {
	var bounded []string
	for _, text := range texts[:min(len(texts), most)] {
		bounded = append(bounded, clip(text, MaxTextBytes))
	}
	return bounded
}

func boundTime(t time.Time) time.Time {
	switch epoch := time.Unix(0, 0).UTC(); {
	case t.Before(epoch):
		return epoch
	case t.After(latest):
		return latest
	}
	return t.UTC()
}

// clip makes s one line of visible characters, of at most limit bytes. Four bytes become
// one at least, so what lies beyond four times the limit is not looked at.
func clip(s string, limit int) string {
	return safetext.Clip(safetext.Line(s[:min(len(s), utf8.UTFMax*(limit+1))]), limit)
}

// Validate says what makes v unusable: a missing or unknown value, or one
// beyond the limits.
func (v *Verdict) Validate() error {
	return errors.Join(v.validateNames(), v.validateEnums(), v.validateTimes(), v.validateTexts(), v.validateSteps(), v.validateLists())
}

func (v *Verdict) validateNames() error {
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"verdict_id", v.ID, true},
		{"incident_id", v.IncidentID, true},
		{"pattern", v.Pattern, true},
		{"root_cause_id", v.RootCause, false},
		{"boot", v.Boot, false},
		{"run_id", v.Run, false},
	} {
		if f.required && f.value == "" {
			return fmt.Errorf("%s is empty", f.name)
		}
		if len(f.value) > MaxNameBytes {
			return fmt.Errorf("%s has %d bytes, at most %d are allowed", f.name, len(f.value), MaxNameBytes)
		}
	}
	if v.Revision < 1 {
		return fmt.Errorf("revision is %d, the first is 1", v.Revision)
	}
	if v.PatternID < 0 {
		return fmt.Errorf("pattern_id is %d, it cannot be negative", v.PatternID)
	}
	return nil
}

func (v *Verdict) validateEnums() error {
	switch {
	case v.Role != RootCause && v.Role != Symptom:
		return fmt.Errorf("role %.40q is neither %q nor %q", v.Role, RootCause, Symptom)
	case v.Status != Open && v.Status != Resolved:
		return fmt.Errorf("status %.40q is neither %q nor %q", v.Status, Open, Resolved)
	case v.Confidence != Full && v.Confidence != Partial:
		return fmt.Errorf("confidence %.40q is neither %q nor %q", v.Confidence, Full, Partial)
	case v.GoesOn != "" && v.GoesOn.number() == 0:
		return fmt.Errorf("goes_on %.40q is none of %q, %q, %q, %q", v.GoesOn, Info, Warning, Error, Critical)
	case v.Severity.number() == 0:
		return fmt.Errorf("severity %.40q is none of %q, %q, %q, %q", v.Severity, Info, Warning, Error, Critical)
	}
	return nil
}

func (v *Verdict) validateTimes() error {
	times := []time.Time{v.Onset, v.Updated}
	if v.Resolved != nil {
		times = append(times, *v.Resolved)
	}
	if v.Over != nil {
		times = append(times, *v.Over)
	}
	for i := range v.Waits {
		if !v.Waits[i].Since.IsZero() {
			times = append(times, v.Waits[i].Since)
		}
	}
	for i := range v.Evidence {
		times = append(times, v.Evidence[i].Time)
		for _, other := range []time.Time{v.Evidence[i].Last, v.Evidence[i].Began} {
			if !other.IsZero() {
				times = append(times, other)
			}
		}
	}
	for _, t := range times {
		if !boundTime(t).Equal(t) {
			return fmt.Errorf("time %s is outside 1970 to 2262", t.Format(time.RFC3339))
		}
	}
	return nil
}

func (v *Verdict) validateTexts() error {
	texts := append([]string{v.Headline}, v.NotObserved...)
	for i := range v.Waits {
		texts = append(texts, v.Waits[i].Ranks, v.Waits[i].Direct, v.Waits[i].For, v.Waits[i].What)
	}
	for i := range v.Evidence {
		if len(v.Evidence[i].Name) > MaxNameBytes || len(v.Evidence[i].Source) > MaxNameBytes {
			return fmt.Errorf("evidence %d: name or source has more than %d bytes", i, MaxNameBytes)
		}
		texts = append(texts, v.Evidence[i].Shows)
	}
	for key, value := range v.Culprit {
		if key == "" || key != culpritKey(key) {
			return fmt.Errorf("culprit key %.40q is not made of letters, digits, '_', '.' and '-'", key)
		}
		texts = append(texts, value)
	}
	for _, text := range texts {
		if len(text) > MaxTextBytes {
			return fmt.Errorf("text %.40q… has %d bytes, at most %d are allowed", text, len(text), MaxTextBytes)
		}
	}
	if len(v.Remediation) > MaxRemediationBytes {
		return fmt.Errorf("remediation has %d bytes, at most %d are allowed", len(v.Remediation), MaxRemediationBytes)
	}
	return nil
}

func (v *Verdict) validateSteps() error {
	for i, s := range v.Steps {
		switch {
		case len(s.Text) > MaxTextBytes || len(s.Command) > MaxTextBytes || len(s.Target) > MaxTextBytes:
			return fmt.Errorf("step %d: a text has more than %d bytes", i, MaxTextBytes)
		case (s.Command != "" || s.Effect != "") && s.Effect != Looks && s.Effect != Changes:
			return fmt.Errorf("step %d: effect %.40q is neither %q nor %q", i, s.Effect, Looks, Changes)
		}
	}
	for i, m := range v.Missing {
		if len(m.Name) > MaxNameBytes || len(m.Text) > MaxTextBytes || len(m.Sources) > MaxSources {
			return fmt.Errorf("missing %d: more than %d bytes of name, %d of text or %d sources", i, MaxNameBytes, MaxTextBytes, MaxSources)
		}
		for _, source := range m.Sources {
			if len(source) > MaxNameBytes {
				return fmt.Errorf("missing %d: a source has more than %d bytes", i, MaxNameBytes)
			}
		}
	}
	return nil
}

func (v *Verdict) validateLists() error {
	for _, list := range []struct {
		name      string
		has, most int
	}{
		{"culprit", len(v.Culprit), MaxCulprits},
		{"evidence", len(v.Evidence), MaxEvidence},
		{"not_observed", len(v.NotObserved), MaxNotObserved},
		{"missing", len(v.Missing), MaxNotObserved},
		{"steps", len(v.Steps), MaxSteps},
		{"blast_radius_ranks", len(v.BlastRadius), MaxRanks},
		{"waits", len(v.Waits), MaxWaits},
		{"rank_spans", len(v.RankSpans), MaxRankSpans},
	} {
		if list.has > list.most {
			return fmt.Errorf("%s has %d entries, at most %d are allowed", list.name, list.has, list.most)
		}
	}
	for i := range v.Evidence {
		if has := len(v.Evidence[i].Spans); has > MaxSpans {
			return fmt.Errorf("evidence %d has %d spans, at most %d are allowed", i, has, MaxSpans)
		}
	}
	for _, rank := range v.BlastRadius {
		if rank < 0 || rank > MaxRank {
			return fmt.Errorf("blast_radius_ranks has %d, ranks are 0 to %d", rank, MaxRank)
		}
	}
	return nil
}
