package patterns

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Selection says which patterns run, and how.
type Selection struct {
	Rules    []string          // pattern files and folders of the operator
	RulesAt  string            // where these are named, which begins errors about them: "rules: "
	Patterns map[string]Tuning // by name of a pattern, built-in or the operator's
}

// Tuning is what an operator changed of one pattern.
type Tuning struct {
	Off    bool
	Values map[string]string // of its parameters
}

// moved says where a setting is now that was a parameter of a pattern.
var moved = map[string][]string{
	"nccl_socket_stall::computing": {"receivers", "ncclsock", "patience", "computing"},
}

// Select returns the rules that a selection leaves, ready for an engine: the library and
// the operator's files, without what they replace and what is off, with parameters set.
func Select(s Selection) ([]rule.Rule, error) {
	builtIn, err := Library()
	if err != nil {
		return nil, fmt.Errorf("built-in patterns: %w", err)
	}
	rules := slices.Clone(builtIn)
	var own []rule.Rule
	if len(s.Rules) > 0 {
		if own, err = LoadPaths(s.Rules...); err != nil {
			return nil, about(s.RulesAt, err)
		}
		if rules, err = replace(rules, own); err != nil {
			return nil, about(s.RulesAt, err)
		}
	}
	if err := rule.Check(rules); err != nil {
		return nil, about(s.RulesAt, err)
	}
	if err := rule.CheckOwn(own, builtIn); err != nil {
		return nil, about(s.RulesAt, err)
	}
	return s.tune(rules, names(own))
}

// about puts the place of what is wrong before each error that err is made of.
func about(place string, err error) error {
	var errs []error
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			errs = append(errs, about(place, one))
		}
		return errors.Join(errs...)
	}
	return fmt.Errorf("%s%w", place, err)
}

// replace adds own rules to the library; one that replaces a built-in pattern takes its place.
func replace(library, own []rule.Rule) ([]rule.Rule, error) {
	var errs []error
	for i := range own {
		if name := own[i].Replaces; name != "" {
			before := len(library)
			library = slices.DeleteFunc(library, func(r rule.Rule) bool { return r.Name == name })
			if len(library) == before {
				errs = append(errs, fmt.Errorf("%s replaces the pattern %q, which is not built in: %s", own[i].File, name, rule.Suggest(name, names(library))))
			}
		}
	}
	return append(library, own...), errors.Join(errs...)
}

func names(rules []rule.Rule) []string {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].Name
	}
	return names
}

// tune leaves out what is off and reads again what has other parameters. The rules called
// own are in files of the operator.
func (s Selection) tune(rules []rule.Rule, own []string) ([]rule.Rule, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Patterns)) {
		tuning := s.Patterns[name]
		i := slices.IndexFunc(rules, func(r rule.Rule) bool { return r.Name == name })
		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("patterns::%s: there is no pattern of that name: %s", name, rule.Suggest(name, names(rules))))
		case len(tuning.Values) > 0:
			values, elsewhere := stayed(&rules[i], tuning.Values)
			tuned, err := read(rules[i].File, slices.Contains(own, name), rule.Settings{Source: "patterns::" + name, Values: values})
			if err = errors.Join(elsewhere, err); err != nil {
				errs = append(errs, err)
				continue
			}
			rules[i] = tuned
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	rule.Wire(rules, detectors())
	rules = slices.DeleteFunc(rules, func(r rule.Rule) bool { return s.Patterns[r.Name].Off })
	for i := range rules {
		rules[i].Explains = slices.DeleteFunc(slices.Clone(rules[i].Explains), func(x rule.Explain) bool { return s.Patterns[x.Pattern].Off })
	}
	return rules, rule.Check(rules)
}

// stayed returns the values that are for parameters, and says of each other where its setting
// is now.
func stayed(r *rule.Rule, values map[string]string) (map[string]string, error) {
	var errs []error
	of := maps.Clone(values)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		to := moved[r.Name+"::"+name]
		if to == nil || slices.ContainsFunc(r.Parameters, func(p rule.Parameter) bool { return p.Name == name }) {
			continue
		}
		delete(of, name)
		write := strings.Join(to, ": {") + ": " + values[name] + strings.Repeat("}", len(to)-1)
		errs = append(errs, fmt.Errorf("patterns::%s::%s: the %s %s judges by it: write %s", r.Name, name, strings.TrimSuffix(to[0], "s"), to[1], write))
	}
	return of, errors.Join(errs...)
}

// read reads a rule again, with other parameters.
func read(file string, own bool, set rule.Settings) (rule.Rule, error) {
	open := files.ReadFile
	if own {
		open = os.ReadFile
	}
	content, err := open(file)
	if err != nil {
		return rule.Rule{}, fmt.Errorf("%s: %w", set.Source, err)
	}
	return rule.ParseWith(file, content, set)
}
