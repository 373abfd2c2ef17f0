package rule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

const tunable = `id: 1001
name: my_fault
summary: something of mine broke
parameters:
  held: {type: duration, default: 10s, range: [1s, 10m], meaning: how long it is held}
  errors: {type: integer, default: 3, range: [1, 100], meaning: how many}
  share: {type: number, default: 0.5, range: [0.1, 0.9], meaning: which part}
key: [host]
within: $held
evidence:
  first:
    logs: my.event
    where: attributes["my.age_ns"] >= $held and attributes["my.share"] < $share and attributes["my.price"] != "5$$"
    occurs: {count: $errors, within: 5m}
    shows: "{host} was held for $held"
full: first
severity: error
headline: "{host} had $errors errors"
remedy: mend it
`

// A parameter of a processor is set there: the rule does not have it.
func TestAParameterOfAProcessorIsSetThere(t *testing.T) {
	file := strings.Replace(tunable, "key: [host]", `  late: {type: duration, default: 5s, range: [0s, 1m], processor: rankjoin, meaning: how late}
key: [host]`, 1)
	r, err := rule.Parse("mine.yaml", []byte(file))
	require.NoError(t, err)
	its, err := r.Parameters.Of("rankjoin", map[string]string{"late": "7s"})
	require.NoError(t, err)
	require.Len(t, its, 1)
	require.Equal(t, int64(7*time.Second), its.Duration("late"))
	require.Equal(t, "rankjoin::late", its[0].Source)
	require.Equal(t, int64(5*time.Second), r.Parameters.Duration("late"), "another's value stays")
	_, err = r.Parameters.Of("rankjoin", map[string]string{"late": "2m"})
	require.ErrorContains(t, err, "late: 2m is out of range: write a value from 0s to 1m (default 5s)")

	_, err = rule.ParseWith("mine.yaml", []byte(file), rule.Settings{Source: "patterns::my_fault", Values: map[string]string{"late": "7s"}})
	require.ErrorContains(t, err, "patterns::my_fault::late: the processor rankjoin judges by it: write processors: {rankjoin: {late: 7s}}")
	_, err = rule.Parse("mine.yaml", []byte(strings.Replace(file, "for $held", "for $late", 1)))
	require.ErrorContains(t, err, "mine.yaml:8:3: parameter late is the processor's")
}

func TestParametersStandWhereTheyDecide(t *testing.T) {
	r, err := rule.Parse("mine.yaml", []byte(tunable))
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, r.Within)
	require.Equal(t, `attributes["my.age_ns"] >= 10000000000 and attributes["my.share"] < 0.5 and attributes["my.price"] != "5$"`, r.Evidence[0].Where)
	require.Equal(t, 3.0, r.Evidence[0].Occurs.Count)
	require.Equal(t, "{host} had 3 errors", r.Headline.Default.Text)

	r, err = rule.ParseWith("mine.yaml", []byte(tunable), rule.Settings{Source: "patterns::my_fault", Values: map[string]string{"held": "2m", "errors": "7"}})
	require.NoError(t, err)
	require.Equal(t, 2*time.Minute, r.Within)
	require.Contains(t, r.Evidence[0].Where, ">= 120000000000 ")
	require.Equal(t, "{host} was held for 2m", r.Evidence[0].Shows.Text)
	require.Equal(t, "patterns::my_fault::held", r.Parameters[0].Source)
	require.Equal(t, int64(2*time.Minute), r.Parameters.Duration("held"))
	require.Equal(t, 7, r.Parameters.Integer("errors"))
}

func TestAParameterThatDoesNotFitIsAnError(t *testing.T) {
	for name, tc := range map[string]struct{ old, new, want string }{
		"unknown":              {"within: $held", "within: $helt", `mine.yaml:9:9: there is no parameter "helt": did you mean "held"?`},
		"unknown in OTTL":      {"< $share", "< $shore", `mine.yaml:13:12: there is no parameter or condition "shore": did you mean "share"?`},
		"of another type":      {"within: $held", "within: $errors", `mine.yaml:9:9: "3" must be a duration`},
		"default out of range": {"default: 3,", "default: 300,", "mine.yaml:6:11: parameter errors: 300 is out of range: write a value from 1 to 100"},
		"range of one":         {"range: [1, 100]", "range: [1]", "mine.yaml:6:11: parameter errors: write range: [least, most]"},
		"range of words":       {"range: [1, 100]", "range: [one, 100]", `range: "one" is no whole number`},
		"no such type":         {"type: integer", "type: int", "use one of [duration integer number]"},
		"without meaning":      {", meaning: how many", "", "mine.yaml:6:11: meaning is missing in parameter errors"},
		"enabled":              {"  errors:", "  enabled:", `"enabled" is no name of a parameter`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, tunable, tc.old)
			_, err := rule.Parse("mine.yaml", []byte(strings.Replace(tunable, tc.old, tc.new, 1)))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := rule.Parse("mine.yaml", []byte(strings.ReplaceAll(tunable, "$errors", "3")))
	require.ErrorContains(t, err, "mine.yaml:6:3: parameter errors is used nowhere: write $errors")
}

// A mistake in a parameter is told once: where it is used nothing is wrong.
func TestOneMistakeInAParameterIsOneError(t *testing.T) {
	const held = "held: {type: duration, default: 10s, range: [1s, 10m], meaning: how long it is held}"
	for name, tc := range map[string]struct{ old, new, want string }{
		"no meaning":           {held, "held: {type: duration, default: 10s, range: [1s, 10m]}", "mine.yaml:5:9: meaning is missing in parameter held"},
		"no default":           {held, "held: {type: duration, range: [1s, 10m], meaning: x}", "mine.yaml:5:9: default is missing in parameter held"},
		"no range":             {held, "held: {type: duration, default: 10s, meaning: x}", "mine.yaml:5:9: range is missing in parameter held"},
		"range of one":         {"range: [1s, 10m]", "range: 10m", "mine.yaml:5:9: parameter held: write range: [least, most]"},
		"reversed range":       {"range: [1s, 10m]", "range: [10m, 1s]", "mine.yaml:5:9: parameter held: range: least, 10m, is above most, 1s: turn them round"},
		"no duration":          {"default: 10s", "default: 10", `mine.yaml:5:9: parameter held: "10" is no duration`},
		"default out of range": {"default: 10s", "default: 1h", "mine.yaml:5:9: parameter held: 1h is out of range: write a value from 1s to 10m"},
		"another type":         {"type: duration", "type: time", `"time" is not allowed here: use one of [duration integer number]`},
		"no whole number":      {"default: 3", "default: 3.5", `parameter errors: "3.5" is no whole number`},
		"unknown where used":   {"within: $held", "within: $helt", `mine.yaml:9:9: there is no parameter "helt": did you mean "held"?`},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, tunable, tc.old)
			file := []byte(strings.Replace(tunable, tc.old, tc.new, 1))
			for _, set := range []rule.Settings{{}, {Source: "patterns::my_fault", Values: map[string]string{"held": "2s", "errors": "4"}}} {
				_, err := rule.ParseWith("mine.yaml", file, set)
				require.ErrorContains(t, err, tc.want)
				require.Len(t, strings.Split(err.Error(), "\n"), 1, "%v", err)
			}
		})
	}
}

// More mistakes than are told do no harm.
func TestManyMistakesInParametersAreErrors(t *testing.T) {
	var many strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, "  p%d: {type: integer, default: 1, meaning: x}\n", i)
	}
	_, err := rule.Parse("mine.yaml", []byte(strings.Replace(tunable, "key: [host]", many.String()+"key: [host]", 1)))
	require.ErrorContains(t, err, "range is missing in parameter p0")
	require.Len(t, strings.Split(err.Error(), "\n"), 20)
}

func TestASettingThatDoesNotFitIsAnError(t *testing.T) {
	for name, tc := range map[string]struct{ parameter, value, want string }{
		"out of range":  {"held", "1h", "patterns::my_fault::held: 1h is out of range: write a value from 1s to 10m (default 10s, mine.yaml:5:3)"},
		"another type":  {"held", "120", `patterns::my_fault::held: "120" is no duration`},
		"no number":     {"share", "NaN", `"NaN" is no number`},
		"no whole one":  {"errors", "2.5", `"2.5" is no whole number`},
		"not there":     {"hell", "1s", `patterns::my_fault::hell: my_fault has no parameter "hell": did you mean "held"?`},
		"nothing alike": {"zzzzzzzzz", "1s", "use one of enabled, held, errors, share"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rule.ParseWith("mine.yaml", []byte(tunable), rule.Settings{Source: "patterns::my_fault", Values: map[string]string{tc.parameter: tc.value}})
			require.ErrorContains(t, err, tc.want)
		})
	}
}
