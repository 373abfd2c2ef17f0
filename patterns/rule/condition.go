package rule

import (
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottldatapoint"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/ottllog"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/ottlfuncs"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
)

// The OTTL types of conditions and values, on log records and on data points.
type (
	LogCondition   = ottl.Condition[*ottllog.TransformContext]
	LogValue       = ottl.ValueExpression[*ottllog.TransformContext]
	PointCondition = ottl.Condition[*ottldatapoint.TransformContext]
	PointValue     = ottl.ValueExpression[*ottldatapoint.TransformContext]
)

// Compilers of OTTL with its standard converters, on log records and on data
// points; editors, which change records, are left out.
var (
	Logs   = Compiler[*ottllog.TransformContext]{newParser: ottllog.NewParser}
	Points = Compiler[*ottldatapoint.TransformContext]{newParser: ottldatapoint.NewParser}
)

// maxKept bounds what a compiler keeps; the library has some 250 different texts.
const maxKept = 4096

// Compiler compiles each text once in the life of the process: a check of a file, its
// engine and the next engine ask for the same ones, and parsing is slow (some 0.1 ms). What
// is compiled does not change when it is evaluated, so that engines can share it. It
// can be used by several goroutines.
type Compiler[K any] struct {
	newParser func(map[string]ottl.Factory[K], component.TelemetrySettings, ...ottl.Option[K]) (ottl.Parser[K], error)

	mu         sync.Mutex // guards what follows
	parser     *ottl.Parser[K]
	conditions map[string]*ottl.Condition[K]
	values     map[string]*ottl.ValueExpression[K]
}

// Condition compiles text, which tells whether a record holds.
func (c *Compiler[K]) Condition(text string) (*ottl.Condition[K], error) {
	return compileOnce(c, &c.conditions, text, (*ottl.Parser[K]).ParseCondition)
}

// Value compiles text, which tells a value of a record.
func (c *Compiler[K]) Value(text string) (*ottl.ValueExpression[K], error) {
	return compileOnce(c, &c.values, text, (*ottl.Parser[K]).ParseValueExpression)
}

func compileOnce[K, C any](c *Compiler[K], kept *map[string]*C, text string, parse func(*ottl.Parser[K], string) (*C, error)) (*C, error) {
	if err := bounded(text); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if compiled, ok := (*kept)[text]; ok {
		return compiled, nil
	}
	if c.parser == nil {
		parser, err := c.newParser(pure[K](), component.TelemetrySettings{Logger: zap.NewNop()})
		if err != nil {
			return nil, fmt.Errorf("make the OTTL parser: %w", err)
		}
		c.parser = &parser
	}
	compiled, err := parse(c.parser, text)
	if err != nil {
		return nil, err
	}
	if *kept == nil || len(*kept) == maxKept {
		*kept = map[string]*C{}
	}
	(*kept)[text] = compiled
	return compiled, nil
}

// notPure are the converters whose result is not the record's.
var notPure = []string{"Now", "UUID", "UUIDv7"}

// pure returns the converters whose result depends on the record alone.
func pure[K any]() map[string]ottl.Factory[K] {
	functions := ottlfuncs.StandardConverters[K]()
	for _, name := range notPure {
		delete(functions, name)
	}
	return functions
}

// Bounds of OTTL text. Its parser tries alternatives for each nested call: the
// time of a text that does not parse doubles with each level (180 ms at 12).
const (
	maxOTTLBytes = 4096
	maxOTTLDepth = 8
)

// bounded returns why text is too long or too deep to be parsed.
func bounded(text string) error {
	if len(text) > maxOTTLBytes {
		return fmt.Errorf("%d bytes, at most %d are read: use several pieces of evidence", len(text), maxOTTLBytes)
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		}
		if depth > maxOTTLDepth {
			return fmt.Errorf("more than %d nested brackets: use several pieces of evidence", maxOTTLDepth)
		}
	}
	return nil
}

// checkCondition returns why text is not a condition on log records or data points.
func checkCondition(onMetrics bool, text string) (err error) {
	if onMetrics {
		_, err = Points.Condition(text)
	} else {
		_, err = Logs.Condition(text)
	}
	return err
}

// checkValue returns why text is not a value of log records or data points.
func checkValue(onMetrics bool, text string) (err error) {
	if onMetrics {
		_, err = Points.Value(text)
	} else {
		_, err = Logs.Value(text)
	}
	return err
}

// attributePath finds attribute names in OTTL text.
var attributePath = regexp.MustCompile(`attributes\["((?:[^"\\]|\\.)*)"\]`)

// The attributes the engine itself reads on each record that a rule wants.
const (
	AttributeCount      = "kernelevents.count"
	AttributeLastTime   = "kernelevents.last_time_unix_nano"
	AttributeFaultID    = "kernelevents.fault_id"
	AttributeJob        = "gen_ai.training.job_id"
	AttributeRun        = "gen_ai.training.run_id"      // one start of a job: the engine knows it, a detector passes it on
	AttributeRankRun    = "gen_ai.training.rank_run_id" // of a finding: that of the process it names, which may have begun again alone
	AttributeRendezvous = "gen_ai.training.rendezvous"
	AttributeJobDomain  = "gen_ai.training.job_domain"
	AttributeRank       = "gen_ai.training.rank"
	AttributeBoot       = "host.boot.id"              // of the resource
	AttributeCorrected  = "tracecore.clock.corrected" // of the resource: seconds that were added to the times of its machine
	AttributePID        = "process.pid"
	AttributeStarted    = "process.start_ns" // of that process, on the boot clock
	AttributeRankPID    = "gen_ai.training.rank_pid"
	AttributeRankStart  = "gen_ai.training.rank_start_unix_nano"
	AttributeRestarts   = "gen_ai.training.restart_count"
	AttributeDrill      = "tracecore.drill"   // a drill made it, as its process has proven
	AttributeLate       = "tracecore.late"    // it happened while no agent ran, and was read at the next start
	AttributeLineLate   = "kernelevents.late" // the same of a line of the kernel log
	AttributeFirstTime  = "kernelevents.first_time_unix_nano"
	AttributeTrust      = "tracecore.trust"
)

// Attributes returns the names of all record, data-point and resource
// attributes that the rule reads, sorted.
func (r *Rule) Attributes() []string {
	var names []string
	read := func(text string) {
		for _, match := range attributePath.FindAllStringSubmatch(text, -1) {
			names = append(names, match[1])
		}
	}
	inUse := r.FieldsInUse(nil)
	for _, e := range r.All() {
		for _, f := range r.FieldsOf(e) {
			if slices.Contains(inUse, f.Name) {
				read(f.Expr)
			}
		}
		read(e.Where)
		read(e.Value)
		read(e.Stays.While)
		names = append(append(names, AttributeTrust), e.beganAttributes()...)
		if !e.OnMetrics() {
			names = append(names, AttributeLate, AttributeLineLate, AttributeCount, AttributeFirstTime, AttributeLastTime, AttributeFaultID)
		}
	}
	if r.Detect != nil {
		names = append(names, r.Detect.Attributes...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
