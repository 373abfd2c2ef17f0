// Package story runs patterns on stories: txtar archives whose comment tells
// what happens on a cluster, with its records in relative time and the verdicts
// that must come of them, possibly none. README.md of the folder patterns is
// the reference of the format.
package story

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"golang.org/x/tools/txtar"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/patterns/rule"
)

// Story is one parsed archive.
type Story struct {
	Name    string
	Comment string
	Input   Input
	Want    Want

	// MarkLogs and MarkMetrics change what arrives before the rules see it. Nil leaves it.
	MarkLogs    func(plog.Logs)
	MarkMetrics func(pmetric.Metrics)

	mentions []mention
}

// Input is the file records.yaml.
type Input struct {
	Kind         Kind           `yaml:"kind"`          // what it is told for; "" for a further one
	OrderMatters string         `yaml:"order_matters"` // why a story is told in this order of arrival only; "" for most
	Options      Options        `yaml:"options"`
	Resource     map[string]any `yaml:"resource"` // of each record that has none
	Records      []Record       `yaml:"records"`  // in order of arrival
	Advance      Offset         `yaml:"advance"`  // how far time goes on after the last record
}

// Kind is what a story of a pattern is told for.
type Kind string

// The kinds that every pattern of the library has.
const (
	Fires        Kind = "fires"         // the whole fault: a full verdict
	NearMiss     Kind = "near_miss"     // all but what makes it the fault
	Healthy      Kind = "healthy"       // a look-alike without a fault
	OutOfOrder   Kind = "out_of_order"  // records arrive late
	LayerMissing Kind = "layer_missing" // one of the sources sends nothing
	Flood        Kind = "flood"         // more than the caps allow
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Fires, NearMiss, Healthy, OutOfOrder, LayerMissing, Flood} }

// UnmarshalYAML reads a kind.
func (k *Kind) UnmarshalYAML(n *yaml.Node) error {
	if *k = Kind(n.Value); !slices.Contains(Kinds(), *k) {
		return fmt.Errorf("line %d: kind %q: use one of %v, or leave it out", n.Line, n.Value, Kinds())
	}
	return nil
}

// Options are caps of the engine that a story sets.
type Options struct {
	Lateness     Offset `yaml:"lateness"`
	Waiting      int    `yaml:"waiting"`
	OpenVerdicts int    `yaml:"open_verdicts"`
}

// Record is a log record or a data point.
type Record struct {
	At         Offset         `yaml:"at"`   // when it arrives
	Time       *Offset        `yaml:"time"` // when it happened, if not then
	Log        string         `yaml:"log"`
	Metric     string         `yaml:"metric"`
	Type       string         `yaml:"type"` // counter (default), delta, gauge
	Value      float64        `yaml:"value"`
	Body       string         `yaml:"body"`
	Resource   map[string]any `yaml:"resource"`
	Attributes map[string]any `yaml:"attributes"`
	Repeat     *Repeat        `yaml:"repeat"`

	line int // of the story's file
}

// Repeat makes many records of one: in the string values, {n} is the number of
// the copy from 0, {n:hex} the same as four hexadecimal digits. Each copy of a
// data point is Add greater than the one before: a counter at work.
type Repeat struct {
	Count int     `yaml:"count"`
	Every Offset  `yaml:"every"`
	Add   float64 `yaml:"add"`
}

// Want is the file want.yaml. The number of verdicts and incidents, and the
// roles, must be exact; of the rest only what is written.
type Want struct {
	Verdicts  []Verdict         `yaml:"verdicts"`
	Incidents *int              `yaml:"incidents"` // default: as many as labels or, without labels, not checked
	Total     *int              `yaml:"total"`     // verdicts in all, when they are too many to list
	Stats     map[string]uint64 `yaml:"stats"`     // least values of the engine's counters
}

// Verdict is what is wanted of one verdict.
type Verdict struct {
	Pattern     string            `yaml:"pattern"`
	Role        string            `yaml:"role"`
	Incident    string            `yaml:"incident"` // any label; equal labels mean one incident
	Status      string            `yaml:"status"`
	GoesOn      string            `yaml:"goes_on"` // of one that is resolved; compared where status is, also when it is absent
	Confidence  string            `yaml:"confidence"`
	Trust       string            `yaml:"trust"`
	Severity    string            `yaml:"severity"`
	Headline    string            `yaml:"headline"`
	Remediation string            `yaml:"remediation"`  // a part of it
	Onset       *Offset           `yaml:"onset"`        //
	Culprit     map[string]string `yaml:"culprit"`      // these, others may be there
	Ranks       []int             `yaml:"ranks"`        // all of them
	Evidence    []string          `yaml:"evidence"`     // names, all of them, each once, in order
	Shows       map[string]string `yaml:"shows"`        // what evidence shows, by its name, several lines with ; between; others may be there
	Waits       []string          `yaml:"waits"`        // "ranks 0-2 wait for rank 3: data"
	NotObserved []string          `yaml:"not_observed"` // each a part of one
	Revision    int               `yaml:"revision"`
	Late        *bool             `yaml:"late"` // whether evidence was read late
}

// Offset is a time relative to the start of a story: +1.5s, -2s, +3m.
type Offset time.Duration

// UnmarshalYAML reads an offset.
func (o *Offset) UnmarshalYAML(n *yaml.Node) error {
	d, err := time.ParseDuration(strings.TrimPrefix(n.Value, "+"))
	if err != nil || d > maxOffset || d < -maxOffset {
		return fmt.Errorf("line %d: %q is not an offset: write +0s, +1.5s, -2s, at most %v", n.Line, n.Value, maxOffset)
	}
	*o = Offset(d)
	return nil
}

// Bounds of one story.
const (
	maxOffset  = 30 * 24 * time.Hour
	maxRecords = 2_000_000
	maxBytes   = 4 << 20
)

// Parse reads one archive; name is for messages.
func Parse(name string, archive []byte) (Story, error) {
	if len(archive) > maxBytes {
		return Story{}, fmt.Errorf("%s: %d bytes, a story has at most %d", name, len(archive), maxBytes)
	}
	s := Story{Name: name}
	parsed := txtar.Parse(archive)
	s.Comment = strings.TrimSpace(string(parsed.Comment))
	if s.Comment == "" {
		return Story{}, fmt.Errorf("%s: no comment: tell the story before the first file", name)
	}
	sections := map[string]*yaml.Node{}
	line := 1 + bytes.Count(parsed.Comment, []byte("\n")) // of the file's first
	for _, f := range parsed.Files {
		var to any
		switch f.Name {
		case "records.yaml":
			to = &s.Input
		case "want.yaml":
			to = &s.Want
		default:
			return Story{}, fmt.Errorf("%s:%d: unknown file %q: a story has records.yaml and want.yaml", name, line, f.Name)
		}
		if sections[f.Name] != nil {
			return Story{}, fmt.Errorf("%s:%d: %s is there twice", name, line, f.Name)
		}
		section, err := decode(f.Data, line, to)
		if err != nil {
			return Story{}, placed(name, err)
		}
		sections[f.Name] = section
		line += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	if sections["records.yaml"] == nil || sections["want.yaml"] == nil {
		return Story{}, fmt.Errorf("%s: a story needs both records.yaml and want.yaml (verdicts: [] for none)", name)
	}
	s.mentions = mentionsIn(sections["records.yaml"])
	s.note(sections["records.yaml"])
	return s, placed(name, s.check())
}

// decode reads a section whose name stands in a line of the archive, and returns its YAML,
// in which lines are those of the archive, too.
func decode(data []byte, line int, to any) (*yaml.Node, error) {
	data = slices.Concat(bytes.Repeat([]byte("\n"), line), data)
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(to); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := rule.Last(d); err != nil {
		return nil, err
	}
	var section yaml.Node
	return &section, yaml.Unmarshal(data, &section)
}

// note notes in which lines the records stand.
func (s *Story) note(section *yaml.Node) {
	for key, value := range pairs(section) {
		if key.Value != "records" {
			continue
		}
		for i, record := range items(value) {
			s.Input.Records[i].line = record.Line
		}
	}
}

// check fails for what each value alone does not show. Its errors begin with a line.
func (s *Story) check() error {
	var errs []error
	total := 0
	for i := range s.Input.Records {
		r := &s.Input.Records[i]
		switch {
		case (r.Log == "") == (r.Metric == ""):
			errs = append(errs, fmt.Errorf("line %d: a record needs log (an event name) or metric (a metric name), one of them", r.line))
		case r.Type != "" && r.Type != "counter" && r.Type != "delta" && r.Type != "gauge":
			errs = append(errs, fmt.Errorf("line %d: type %q: use counter, delta or gauge", r.line, r.Type))
		case r.Repeat != nil && (r.Repeat.Count < 1 || r.Repeat.Count > maxRecords || r.Repeat.Every < 0 || int64(r.Repeat.Every) > math.MaxInt64/maxRecords/2):
			errs = append(errs, fmt.Errorf("line %d: repeat needs a count from 1 to %d", r.line, maxRecords))
		default:
			total += r.copies()
		}
		if total > maxRecords {
			errs = append(errs, fmt.Errorf("line %d: more than %d records", r.line, maxRecords))
			break
		}
	}
	if s.Want.Total != nil && len(s.Want.Verdicts) > 0 {
		errs = append(errs, errors.New("want.yaml: total and verdicts exclude each other"))
	}
	return errors.Join(errs...)
}

func (r *Record) copies() int {
	if r.Repeat == nil {
		return 1
	}
	return r.Repeat.Count
}
