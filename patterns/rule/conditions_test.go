package rule_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const withConditions = `id: 1001
name: my_fault
summary: something of mine broke
conditions:
  mine: attributes["my.name"] == "a" or attributes["my.name"] == "b"
  old: $mine and attributes["my.age_ns"] >= $held
parameters:
  held: {type: duration, default: 10s, range: [1s, 10m], meaning: how long it is held}
key: [host]
evidence:
  first:
    logs: my.event
    where: not $old
    fields:
      kind: attributes["my.kind"]
  second:
    metrics: my.metric
    stays: {while: $mine, for: 10s}
    match: [host]
full: first and second
severity: error
headline: "{host} broke"
remedy: mend it
`

func TestANamedConditionStandsForItsText(t *testing.T) {
	r, err := rule.Parse("mine.yaml", []byte(withConditions))
	require.NoError(t, err)
	require.Equal(t, `not ((attributes["my.name"] == "a" or attributes["my.name"] == "b") and attributes["my.age_ns"] >= 10000000000)`, r.Evidence[0].Where)
	require.Equal(t, `(attributes["my.name"] == "a" or attributes["my.name"] == "b")`, r.Evidence[1].Stays.While)

	r, err = rule.ParseWith("mine.yaml", []byte(withConditions), rule.Settings{Source: "patterns::my_fault", Values: map[string]string{"held": "1m"}})
	require.NoError(t, err)
	require.Contains(t, r.Evidence[0].Where, ">= 60000000000")
}

// A mistake in a condition is told once, where it stands: where it is used nothing is wrong.
func TestAConditionThatDoesNotFitIsOneError(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"unknown":           {"not $old", "not $mien", `mine.yaml:13:12: there is no parameter or condition "mien": did you mean "mine"?`},
		"one below":         {"  mine: attr", "  mine: $old and attr", `mine.yaml:5:9: there is no parameter or condition "old"`},
		"itself":            {"  mine: attr", "  mine: $mine and attr", `mine.yaml:5:9: there is no parameter or condition "mine"`},
		"no OTTL":           {`== "b"`, `= "b"`, "mine.yaml:5:9: condition mine is not valid OTTL"},
		"a value":           {`attributes["my.name"] == "a" or attributes["my.name"] == "b"`, `attributes["my.name"]`, "mine.yaml:5:9: condition mine is not valid OTTL"},
		"in a value":        {`kind: attributes["my.kind"]`, `kind: $mine`, "mine.yaml:15:13: $mine is a condition: it can stand in where, in while and in other conditions"},
		"in a headline":     {"{host} broke", "$mine broke", "$mine is a condition"},
		"a parameter's":     {"  mine:", "  held:", `mine.yaml:5:3: "held" is a parameter: give the condition another name`},
		"predefined":        {"  mine:", "  of_rank:", `mine.yaml:5:3: condition of_rank is predefined as attributes["gen_ai.training.rank"] != nil and `},
		"twice":             {"  old:", "  mine:", `mine.yaml:6:3: "mine" in conditions is already set in line 5`},
		"a list":            {`  mine: attributes["my.name"] == "a" or attributes["my.name"] == "b"`, "  mine: [a]", "mine.yaml:5:9: a single value is needed here"},
		"a broken duration": {"default: 10s", "default: 10", `parameter held: "10" is no duration`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, withConditions, tc.old)
			_, err := rule.Parse("mine.yaml", []byte(strings.Replace(withConditions, tc.old, tc.new, 1)))
			require.ErrorContains(t, err, tc.want)
			if name != "twice" && name != "predefined" && name != "a parameter's" { // another name makes another of its uses unknown
				require.Len(t, strings.Split(err.Error(), "\n"), 1, "%v", err)
			}
		})
	}
	_, err := rule.Parse("mine.yaml", []byte(strings.Replace(withConditions, "where: not $old", `where: attributes["my.name"] == "c"`, 1)))
	require.ErrorContains(t, err, "mine.yaml:6:3: condition old is used nowhere: write $old where it decides, or leave it out")
}

// Short names can stand for long texts, and those for longer ones.
func TestConditionsAreBounded(t *testing.T) {
	_, err := rule.Parse("mine.yaml", []byte(strings.Replace(withConditions, "  old: $mine", "  old: $mine"+strings.Repeat(" and $mine", 200), 1)))
	require.ErrorContains(t, err, "mine.yaml:6:8: condition old is not valid OTTL: ")
	require.ErrorContains(t, err, "bytes, at most 4096 are read")
	_, err = rule.Parse("mine.yaml", []byte(strings.Replace(withConditions, "not $old", "$old"+strings.Repeat(" and $old", 100_000), 1)))
	require.ErrorContains(t, err, "bytes, at most 4096 are read")
	require.Less(t, len(err.Error()), 1000)
}

// A name that nobody knows is told where it stands, not where its condition is used.
func TestAnUnknownNameInAConditionIsToldThere(t *testing.T) {
	r, err := rule.Parse("mine.yaml", []byte(withConditions))
	require.NoError(t, err)
	known := rule.Vocabulary{Events: []string{"my.event"}, Metrics: []string{"my.metric"}, Attributes: []string{"my.name", "my.kind"}}
	err = known.Check([]rule.Rule{r})
	require.EqualError(t, err, `mine.yaml:6:30: no attribute "my.age_ns" is known: declare it if others send it, declares: {attributes: {my.age_ns: what it is}}`)
}
