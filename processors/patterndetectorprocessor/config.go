package patterndetectorprocessor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/patterns"
	"github.com/tracecoreai/tracecore/patterns/engine"
	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Config of the pattern detector.
type Config struct {
	// Rules names files and folders of your own pattern files; they join the
	// built-in ones. One that says replaces takes the place of a built-in one.
	Rules []string `mapstructure:"rules"`

	// Patterns tunes patterns by name: enabled: false switches one off, all other
	// keys are parameters of its file. `tracecore patterns show NAME` lists them.
	Patterns map[string]map[string]any `mapstructure:"patterns"`

	// Mutes keep verdicts back for a time.
	Mutes []Mute `mapstructure:"mutes"`

	// Storage is the id of the storage extension that keeps the state over
	// restarts. Without it a restart forgets faults in the making and verdicts
	// not yet delivered.
	Storage *component.ID `mapstructure:"storage"`

	// History is the id of the history extension that keeps verdicts to be looked at.
	History *component.ID `mapstructure:"history"`

	// Lateness is how much older than the newest event time a record may be and
	// still count wherever it belongs.
	Lateness time.Duration `mapstructure:"lateness"`

	// MaxDelay is how much older a log record may be that a sender held while
	// this process was away: it still confirms a fault, where order does not
	// matter.
	MaxDelay time.Duration `mapstructure:"max_delay"`

	// MaxAhead is how far ahead of this machine's clock a record may say it is;
	// further ahead, it is taken as of now.
	MaxAhead time.Duration `mapstructure:"max_ahead"`

	// Limits bound what the engine holds. Reaching one evicts the oldest.
	Limits Limits `mapstructure:"limits"`

	// Steps says what training code calls its steps, where the component is in a traces
	// pipeline.
	Steps Steps `mapstructure:"steps"`

	// OutboxSize is how many verdicts wait for a next consumer that refuses
	// them. Beyond it the oldest is dropped.
	OutboxSize int `mapstructure:"outbox_size"`

	// Repeat is how often open verdicts are told again, marked pattern.repeated, for
	// those who keep state by them. 0: never.
	Repeat time.Duration `mapstructure:"repeat"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Limits bound what the engine holds.
type Limits struct {
	Waiting  int `mapstructure:"waiting"`  // faults without a verdict yet
	Verdicts int `mapstructure:"verdicts"` // faults with a verdict
	Recent   int `mapstructure:"recent"`   // records kept because their fault may come after them
	Series   int `mapstructure:"series"`   // time series under watch
	Steps    int `mapstructure:"steps"`    // ranks whose steps are followed

	// prevent unkeyed literal initialization
	_ struct{}
}

// Steps says how the steps of ranks are recognised. Attributes are tried in their order, on
// the span or record first, then on its resource.
type Steps struct {
	Spans []string `mapstructure:"spans"` // names of spans that are steps
	Begin string   `mapstructure:"begin"` // event name of the log record with which a step begins
	Rank  []string `mapstructure:"rank"`  // attributes that say the rank
	Job   []string `mapstructure:"job"`   // attributes that say the job, as the environment of the rank does

	// prevent unkeyed literal initialization
	_ struct{}
}

func createDefaultConfig() component.Config {
	return &Config{
		// A kernel-log storm of an application's fault leaves the kernelevents
		// receiver up to 11 s after its first line (fold.longest and fold.quiet).
		Lateness:   15 * time.Second,
		MaxDelay:   15 * time.Minute,
		MaxAhead:   10 * time.Second,
		Limits:     Limits{Waiting: 10_000, Verdicts: 5_000, Recent: 10_000, Series: 20_000, Steps: 32_768},
		OutboxSize: 10_000,
		// megatron.train_step with dl.rank or nv.dl.rank, and slurm.job.id: Megatron-LM with
		// NeMo Lens. training_single_iteration: NVIDIA's One Logger.
		Steps: Steps{
			Spans: []string{"training.step", "megatron.train_step", "training_single_iteration"},
			Begin: "training.step.begin",
			Rank:  []string{"gen_ai.training.rank", "nv.dl.rank", "dl.rank"},
			Job:   []string{"gen_ai.training.job_id", "gen_ai.training.rendezvous", "slurm.job.id"},
		},
	}
}

// Validate checks the options and reads the pattern files, so that a mistake in
// one is reported with its file and line before anything starts.
func (c *Config) Validate() error {
	var errs []error
	for _, option := range []struct {
		name  string
		value int64
	}{
		{"lateness", int64(c.Lateness)},
		{"max_delay", int64(c.MaxDelay)},
		{"max_ahead", int64(c.MaxAhead)},
		{"limits::waiting", int64(c.Limits.Waiting)},
		{"limits::verdicts", int64(c.Limits.Verdicts)},
		{"limits::recent", int64(c.Limits.Recent)},
		{"limits::series", int64(c.Limits.Series)},
		{"limits::steps", int64(c.Limits.Steps)},
		{"outbox_size", int64(c.OutboxSize)},
	} {
		if option.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than zero: leave it out for the default", option.name))
		}
	}
	if c.Repeat != 0 && c.Repeat < time.Second {
		errs = append(errs, errors.New("repeat must be 1s or more, or 0 for never"))
	}
	rules, err := c.LoadRules()
	if err != nil {
		errs = append(errs, err)
	}
	for i := range c.Mutes {
		for _, err := range c.Mutes[i].validate(rules) {
			errs = append(errs, fmt.Errorf("mutes::%d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// WithoutEffect says which parts of a configuration without a mistake do nothing. Each begins
// with the key that it is about.
func (c *Config) WithoutEffect(now time.Time) (texts []string) {
	for i, path := range c.Rules {
		if rules, err := patterns.LoadPaths(path); err == nil && len(rules) == 0 {
			texts = append(texts, fmt.Sprintf("rules::%d: no file *.yaml is in %s, so no pattern of your own runs: put pattern files there, or take the folder out", i, path))
		}
	}
	rules, _ := c.LoadRules() // a mistake in them is an error of Validate
	works := make([]bool, len(c.Mutes))
	for i := range c.Mutes {
		works[i] = len(c.Mutes[i].validate(rules)) == 0
	}
	for i := range c.Mutes {
		end := c.Mutes[i].end()
		if !works[i] {
			continue
		}
		if by := c.mutedAnyway(i, works); !now.Before(end) {
			texts = append(texts, fmt.Sprintf("mutes::%d: it ended at %s and mutes nothing: take it out", i, end.Format(time.RFC3339)))
		} else if by >= 0 {
			texts = append(texts, fmt.Sprintf("mutes::%d: mutes::%d keeps the same back, until %s: take this one out", i, by, c.Mutes[by].end().Format(time.RFC3339)))
		}
	}
	return texts
}

// mutedAnyway is a mute that works and keeps back all that mute i does, as long; -1 for none. Of
// two that are the same, the first stands.
func (c *Config) mutedAnyway(i int, works []bool) int {
	one := &c.Mutes[i]
	for by := range c.Mutes {
		other := &c.Mutes[by]
		if by != i && works[by] && other.includes(one) && (by < i || !one.includes(other)) {
			return by
		}
	}
	return -1
}

// LoadRules returns the patterns that run under this configuration.
func (c *Config) LoadRules() ([]rule.Rule, error) {
	selection, err := c.selection()
	if err != nil {
		return nil, err
	}
	return patterns.Select(selection)
}

// switchedOff returns the names of the patterns that are off, and the rules as they would be
// if all were on.
func (c *Config) switchedOff() (names []string, rules []rule.Rule, err error) {
	selection, err := c.selection()
	for _, name := range slices.Sorted(maps.Keys(selection.Patterns)) {
		if one := selection.Patterns[name]; one.Off {
			names = append(names, name)
			one.Off = false
			selection.Patterns[name] = one
		}
	}
	if err != nil || len(names) == 0 {
		return nil, nil, err
	}
	rules, err = patterns.Select(selection)
	return names, rules, err
}

func (c *Config) selection() (patterns.Selection, error) {
	selection := patterns.Selection{Rules: c.Rules, RulesAt: "rules: ", Patterns: map[string]patterns.Tuning{}}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Patterns)) {
		tuning, err := tuningOf(name, c.Patterns[name])
		selection.Patterns[name], errs = tuning, append(errs, err)
	}
	return selection, errors.Join(errs...)
}

// tuningOf reads what the operator wrote of one pattern.
func tuningOf(name string, keys map[string]any) (patterns.Tuning, error) {
	tuning := patterns.Tuning{Values: map[string]string{}}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		switch value := keys[key].(type) {
		case nil:
			errs = append(errs, fmt.Errorf("patterns::%s::%s: it has no value: write one, or leave the key out", name, key))
		case []any, map[string]any:
			errs = append(errs, fmt.Errorf("patterns::%s::%s: write a single value here", name, key))
		case bool:
			if key == "enabled" {
				tuning.Off = !value
			} else {
				tuning.Values[key] = fmt.Sprint(value)
			}
		default:
			if key == "enabled" {
				errs = append(errs, fmt.Errorf("patterns::%s::enabled: %q is neither true nor false: write one of them, without quotes", name, fmt.Sprint(value)))
			}
			tuning.Values[key] = fmt.Sprint(value)
		}
	}
	return tuning, errors.Join(errs...)
}

func (c *Config) engineOptions() engine.Options {
	return engine.Options{
		Lateness: c.Lateness, MaxDelay: c.MaxDelay, MaxAhead: c.MaxAhead,
		Waiting: c.Limits.Waiting, OpenVerdicts: c.Limits.Verdicts, Recent: c.Limits.Recent, Series: c.Limits.Series,
	}
}
