// Package coverage says which patterns a set of features leaves full,
// degraded or blind. The rules' own needs are the source: the events and metrics
// they read, and what their full and partial verdicts ask for.
package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/distro/internal/attributes"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// State of a pattern on a node.
type State string

// The states of a pattern.
const (
	Full     State = "full"     // everything its full verdict needs can be seen
	Degraded State = "degraded" // only a partial verdict, or nobody is named, or others must say what a probe would
	Blind    State = "blind"    // no verdict can come
)

// Pattern is what one pattern can do with the probes at hand.
type Pattern struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	State State  `json:"state"`
	// Because says what is lost and which feature would give it; empty when Full.
	Because []string `json:"because"`
	// Lacks are the features whose absence that is.
	Lacks []check.Feature `json:"lacks"`
	// Needs are the signals that no probe of tracecore gives: someone has to
	// send them over OTLP.
	Needs []string `json:"needs"`
	// Alone is what it can do until one of Awaits speaks: no probe shows whether it will.
	Alone State `json:"alone"`
	// Awaits are the sources beside the kernel that give it more.
	Awaits []string `json:"awaits"`
	// GPU: it is about GPUs, without one there is nothing to see.
	GPU bool `json:"gpu"`
}

// identityPrefixes begin the attributes that only the identity probe knows.
var identityPrefixes = []string{"gen_ai.training.", "container.id", "k8s.pod."}

// Sources knows where signals come from.
type Sources struct {
	features map[string]check.Feature // of each event that a probe gives
	others   map[string]string        // source of each other event and metric, as an operator calls it
}

// LoadSources reads from the vocabulary which event comes from which feature: its
// receiver says so in its metadata.yaml.
func LoadSources() (Sources, error) {
	known, err := attributes.LoadVocabulary()
	if err != nil {
		return Sources{}, err
	}
	return sourcesOf(known), nil
}

func sourcesOf(known *attributes.Vocabulary) Sources {
	sources := Sources{features: map[string]check.Feature{}, others: map[string]string{}}
	for _, signals := range []map[string]attributes.Signal{known.Events, known.Metrics} {
		for name, signal := range signals {
			for _, at := range columnsOf(signal) {
				if at == 0 {
					sources.features[name] = check.Feature(signal.Feature)
				} else {
					sources.others[name] = columns[at-1].name
				}
			}
		}
	}
	return sources
}

// Of returns what each rule can do with these features alone.
func (s Sources) Of(rules []rule.Rule, there map[check.Feature]bool) []Pattern {
	out := make([]Pattern, len(rules))
	for i := range rules {
		out[i] = s.pattern(&rules[i], there)
	}
	return out
}

func (s Sources) pattern(r *rule.Rule, there map[check.Feature]bool) Pattern {
	p := Pattern{ID: r.ID, Name: r.Name, State: Full, Because: []string{}, Lacks: []check.Feature{}, Needs: s.external(r)}
	unseen, left := s.gaps(r, there)
	see := func(name string) bool { return unseen[name] == nil }
	switch {
	case !r.Full.Eval(see) && !r.Partial.Eval(see):
		p.State = Blind
		p.note(r, unseen, "cannot be seen")
	case !r.Full.Eval(see):
		p.State = Degraded
		p.note(r, unseen, "cannot be seen")
	case worth(r, s.given(r, there)) != worth(r, s.given(r, s.every())):
		p.State = Degraded
		p.note(r, unseen, "cannot be seen")
		p.note(r, left, "is left to what others send")
	}
	if p.State == Full && needsOrigins(r) && !there[check.Origins] {
		s.noteUnproven(&p, r, there)
	}
	if p.State != Blind && !there[check.Identity] && namesProcesses(r) {
		p.State = Degraded
		p.Because = append(p.Because, "ranks, jobs, pods and containers are not named: needs "+string(check.Identity))
		p.Lacks = append(p.Lacks, check.Identity)
	}
	slices.Sort(p.Lacks)
	p.Lacks = slices.Compact(p.Lacks)
	p.Alone, p.Awaits, p.GPU = s.alone(r, there), s.awaits(r), aboutGPUs(r)
	return p
}

// alone is what a rule can do with these features while nobody else speaks.
func (s Sources) alone(r *rule.Rule, there map[check.Feature]bool) State {
	switch State(worth(r, s.given(r, there))) {
	case Full:
		return Full
	case Blind:
		return Blind
	default:
		return Degraded
	}
}

// aboutGPUs reports whether all that can begin a fault of a rule is told by a driver of
// GPUs, or by what reads one.
func aboutGPUs(r *rule.Rule) bool {
	for i := range r.Evidence {
		e := &r.Evidence[i]
		if !e.CanStart() {
			continue
		}
		for _, name := range slices.Concat(r.Events(e), e.Metrics) {
			ofGPU := slices.ContainsFunc([]string{"gpu.", "nvswitch.", "hw.gpu.", "cuda."}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
			if !ofGPU && !slices.Contains(r.Key, "gpu") {
				return false
			}
		}
	}
	return true
}

// awaits are the sources beside the kernel that a rule reads.
func (s Sources) awaits(r *rule.Rule) []string {
	sources := []string{}
	for i := range r.Evidence {
		for _, name := range slices.Concat(r.Events(&r.Evidence[i]), r.Evidence[i].Metrics) {
			if source := s.others[name]; source != "" {
				sources = append(sources, source)
			}
		}
	}
	slices.Sort(sources)
	return slices.Compact(sources)
}

// note writes down the evidence that lacks features.
func (p *Pattern) note(r *rule.Rule, gaps map[string][]check.Feature, how string) {
	for i := range r.Evidence {
		name := r.Evidence[i].Name
		if lost := gaps[name]; lost != nil {
			p.Because = append(p.Because, fmt.Sprintf("%s %s: needs %s", name, how, either(lost)))
			p.Lacks = append(p.Lacks, lost...)
		}
	}
}

// needsOrigins reports whether a full verdict of a rule takes proof.
func needsOrigins(r *rule.Rule) bool { return r.Trust.Full == verdict.Proven }

// noteUnproven degrades a pattern that is full by lines of the kernel log alone: where
// nothing shows who wrote them, they prove nothing.
func (s Sources) noteUnproven(p *Pattern, r *rule.Rule, there map[check.Feature]bool) {
	proven := maps.Clone(there)
	proven[check.Origins] = true // or this would not end
	delete(proven, check.KernelLog)
	if s.pattern(r, proven).State == Full {
		return
	}
	p.State = Degraded
	unseen, left := s.gaps(r, proven)
	maps.Copy(unseen, left)
	for i := range r.Evidence {
		if name := r.Evidence[i].Name; slices.Contains(unseen[name], check.KernelLog) {
			p.Because = append(p.Because, fmt.Sprintf("%s is a claim: needs %s", name, check.Origins))
		}
	}
	p.Lacks = append(p.Lacks, check.Origins)
}

func either(features []check.Feature) string {
	names := make([]string, len(features))
	for i, f := range features {
		names[i] = string(f)
	}
	return strings.Join(names, " or ")
}

// gaps returns the features that evidence waits for in vain, by its name: of which
// no record can come, and which only others than the probes can send.
func (s Sources) gaps(r *rule.Rule, there map[check.Feature]bool) (unseen, left map[string][]check.Feature) {
	unseen, left = map[string][]check.Feature{}, map[string][]check.Feature{}
	given := s.given(r, there)
	for i := range r.Evidence {
		e := &r.Evidence[i]
		features := map[check.Feature]bool{}
		others := len(e.Metrics) > 0
		for _, event := range r.Events(e) {
			feature, ours := s.features[event]
			if ours {
				features[feature] = true
			}
			others = others || !ours || s.others[event] != ""
		}
		switch {
		case given[e.Name] || len(features) == 0:
		case others:
			left[e.Name] = slices.Sorted(maps.Keys(features))
		default:
			unseen[e.Name] = slices.Sorted(maps.Keys(features))
		}
	}
	return unseen, left
}

// given is the evidence that these features give, whatever others send.
func (s Sources) given(r *rule.Rule, there map[check.Feature]bool) map[string]bool {
	given := map[string]bool{}
	for i := range r.Evidence {
		for _, event := range r.Events(&r.Evidence[i]) {
			if feature, ours := s.features[event]; ours && there[feature] {
				given[r.Evidence[i].Name] = true
			}
		}
	}
	return given
}

// every feature that gives something, and proof of it.
func (s Sources) every() map[check.Feature]bool {
	all := map[check.Feature]bool{check.Origins: true}
	for _, feature := range s.features {
		all[feature] = true
	}
	return all
}

// Feature is what one feature of the probes is good for.
type Feature struct {
	ID check.Feature `json:"id"`
	// Here: it is delivered.
	Here bool `json:"here"`
	// Probe is the one that offers it.
	Probe    string   `json:"probe"`
	Events   []string `json:"events"`   // that come with it
	Patterns []string `json:"patterns"` // that read them, by name
}

// Features returns what each feature of these probes is good for.
func (s Sources) Features(rules []rule.Rule, probes []check.Probe) []Feature {
	there := check.Delivered(probes)
	out := []Feature{}
	for _, p := range probes {
		for _, id := range p.Offers {
			f := Feature{ID: id, Here: there[id], Probe: p.Probe, Events: []string{}, Patterns: []string{}}
			for _, event := range slices.Sorted(maps.Keys(s.features)) {
				if s.features[event] == id {
					f.Events = append(f.Events, event)
				}
			}
			for i := range rules {
				if s.reads(&rules[i], id) {
					f.Patterns = append(f.Patterns, rules[i].Name)
				}
			}
			out = append(out, f)
		}
	}
	return out
}

// reads reports whether a rule makes use of a feature.
func (s Sources) reads(r *rule.Rule, id check.Feature) bool {
	switch id {
	case check.Identity:
		return namesProcesses(r)
	case check.Origins:
		return needsOrigins(r) && s.reads(r, check.KernelLog)
	}
	return slices.ContainsFunc(r.All(), func(e *rule.Evidence) bool {
		return slices.ContainsFunc(r.Events(e), func(event string) bool { return s.features[event] == id })
	})
}

// external returns the metrics and events of a rule that no probe gives.
func (s Sources) external(r *rule.Rule) []string {
	needs := []string{}
	for i := range r.Evidence {
		for _, metric := range r.Evidence[i].Metrics {
			needs = append(needs, "metric "+metric)
		}
		for _, event := range r.Events(&r.Evidence[i]) {
			if _, ours := s.features[event]; !ours {
				needs = append(needs, "event "+event)
			}
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}

// namesProcesses reports whether a rule says who was hit from the attributes
// that only identity gives.
func namesProcesses(r *rule.Rule) bool {
	return slices.ContainsFunc(r.AllFields(), func(f rule.Field) bool {
		return slices.Contains(r.Culprit, f.Name) && slices.ContainsFunc(identityPrefixes, func(prefix string) bool { return strings.Contains(f.Expr, prefix) })
	})
}
