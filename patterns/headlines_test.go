package patterns_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// holes are what a template leaves where a field is missing, or counts wrongly.
var holes = regexp.MustCompile(`  |\b(of|on|by|for|from|at|to|in|with|and) (of|on|by|for|from|at|to|is|are|was|were|wait|waits)\b|\bunknown\b` +
	`|\(\)|\(,|, \)|\( | \)|\[|\]|^ | $| ,|,,|: ?$|[;,] ?$|: ;|[{}|]|\b(of|on|by|for|from|at|to|in|with)$|^[;,:]` +
	`|\branks \d+( on \S+)?( of \S+ \S+)?(;|:|,| (wait|have|are|were|stand)\b|$)|\brank \d+-\d+|\brank \d+, \d+`)

// breaks are what breaks a sentence. What is not known may be called so in a remedy and in
// evidence: a headline leaves it out.
var breaks = regexp.MustCompile(`  |\b(of|by|for|from|at|to|in|with) (of|on|by|for|from|at|to|in|with|is|are|was|were|wait|waits)\b` +
	`|\(\)|\(,|, \)|\( | \)|\[|\]|^ | $| ,|,,| [.;:]( |$)|[;,:] ?$|: ;|[{}|]|\b(of|on|by|from|at|to|in|with)\.?$|^[;,:]`)

func requireNoHoles(t *testing.T, text string) {
	t.Helper()
	require.NotRegexp(t, holes, text)
	require.NotEmpty(t, text)
}

// lists are fields that can name one rank or several.
var lists = []string{"ranks", "waiting", "culprits", "silent", "singled", "here"}

// counted is a word for several behind one, or for one behind several. "1 times as long" is none. Of two, all are both.
var counted = regexp.MustCompile(`\b[Aa]ll [12]\b|\b1 (collectives|errors|others|peers|ranks|starts)\b|\b1 times($|[^ ]| [^a])` +
	`|\b2 (collective|error|other|peer|rank|start|time)\b`)

// consequences are words that a headline may use only where one piece of their evidence was seen.
var consequences = []struct {
	words, pattern string
	evidence       []string
}{
	{"took down", "xid_impact", []string{"owner_death"}},
	{"was the first of its job to die", "rank_exit", []string{rule.Full}},
	{"stands still", "dataloader_hang", []string{"standstill", "stands", "standstill_of_pod"}},
}

// TestHeadlines renders every headline with each confidence and each of the sets of
// evidence that lead to it, with every subset of the fields that need not be known, and
// with one rank and several.
func TestHeadlines(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	for i := range rules {
		r := &rules[i]
		t.Run(r.Name, func(t *testing.T) {
			for value, template := range choices(&r.Headline) {
				render(t, r, template, holes, func(name string) bool { return name == r.Headline.By && value != "" }, func(text string, evidence []string) {
					for _, c := range consequences {
						if c.pattern == r.Name && strings.Contains(text, c.words) && !slices.ContainsFunc(evidence, func(seen string) bool { return slices.Contains(c.evidence, seen) }) {
							t.Errorf("%q without any of %s", text, c.evidence)
						}
					}
				})
			}
		})
	}
}

// TestRemedies renders every remedy in the same way: an operator types what he reads there.
func TestRemedies(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	for i := range rules {
		r := &rules[i]
		t.Run(r.Name, func(t *testing.T) {
			for value, template := range choices(&r.Remedy) {
				render(t, r, template, breaks, func(name string) bool { return name == r.Remedy.By && value != "" }, func(string, []string) {})
			}
		})
	}
}

// TestShows renders in the same way what each piece of evidence shows.
func TestShows(t *testing.T) {
	rules, err := patterns.Library()
	require.NoError(t, err)
	for i := range rules {
		r := &rules[i]
		t.Run(r.Name, func(t *testing.T) {
			for _, e := range r.Evidence {
				render(t, r, e.Shows, breaks, func(string) bool { return false }, func(string, []string) {})
			}
		})
	}
}

// render expands a template with each set of evidence and each subset of the fields that
// need not be known, and tells of each text once. Nothing of it has a hole.
func render(t *testing.T, r *rule.Rule, template rule.Template, wrong *regexp.Regexp, known func(field string) bool, each func(text string, evidence []string)) {
	seen := map[string]bool{}
	for _, evidence := range evidenceOf(r, template) {
		for _, fields := range subsets(r, template, known) {
			text := template.Expand(rule.Known{
				Field: func(name string) (string, bool) { v, ok := fields[name]; return v, ok },
				Holds: func(name string) bool { return slices.Contains(evidence, name) },
			})
			if seen[text] {
				continue
			}
			seen[text] = true
			for _, wrong := range []*regexp.Regexp{wrong, counted} {
				if wrong.MatchString(text) {
					t.Errorf("%q: %q is a hole (evidence %v, fields %v)", text, wrong.FindString(text), evidence, fields)
					return
				}
			}
			each(text, evidence)
		}
	}
}

// choices are the templates of a headline or a remedy by the value that picks them.
func choices(c *rule.Choice) map[string]rule.Template {
	return maps.Collect(c.All)
}

// evidenceOf are the sets of what a template asks for, with and without a full verdict.
// Without a full verdict not all of it can have been seen.
func evidenceOf(r *rule.Rule, t rule.Template) (sets [][]string) {
	conditions := slices.Compact(slices.Sorted(slices.Values(t.Conditions())))
	for bits := range 1 << len(conditions) {
		var set []string
		for i, name := range conditions {
			if bits&(1<<i) != 0 {
				set = append(set, name)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// mostSubsets bounds the fields of which every subset is tried.
const mostSubsets = 14

// subsets are values of the fields of a template: those of the key, and those that are known
// where it is used, such as the field that picked it; of the others every subset is.
func subsets(r *rule.Rule, t rule.Template, known func(field string) bool) (all []map[string]string) {
	fields := slices.Compact(slices.Sorted(slices.Values(t.Fields())))
	optional := slices.DeleteFunc(slices.Clone(fields), func(name string) bool {
		return slices.Contains(r.Key, name) || known(name)
	})
	if len(optional) > mostSubsets {
		panic(fmt.Sprintf("%s: %d fields", r.Name, len(optional)))
	}
	for _, number := range []string{"1", "2"} { // of whatever is counted
		values := map[string]string{}
		for _, name := range fields {
			values[name] = number
		}
		all = append(all, values)
	}
	for _, several := range []string{"3", "0-3, 8"} {
		for bits := range 1 << len(optional) {
			values := map[string]string{}
			for _, name := range fields {
				i := slices.Index(optional, name)
				if i >= 0 && bits&(1<<i) == 0 {
					continue
				}
				values[name] = name + "-7"
				if slices.Contains(lists, name) {
					values[name] = several
				}
			}
			all = append(all, values)
		}
	}
	return all
}
