package rule

import (
	"fmt"
	"regexp"
	"slices"

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

// Parsers compile OTTL with its standard converters; editors, which change
// records, are left out.
type Parsers struct {
	Log   ottl.Parser[*ottllog.TransformContext]
	Point ottl.Parser[*ottldatapoint.TransformContext]
}

// NewParsers returns parsers for both contexts.
func NewParsers() (Parsers, error) {
	settings := component.TelemetrySettings{Logger: zap.NewNop()}
	log, err := ottllog.NewParser(pure[*ottllog.TransformContext](), settings)
	if err != nil {
		return Parsers{}, fmt.Errorf("make the OTTL parser for logs: %w", err)
	}
	point, err := ottldatapoint.NewParser(pure[*ottldatapoint.TransformContext](), settings)
	if err != nil {
		return Parsers{}, fmt.Errorf("make the OTTL parser for data points: %w", err)
	}
	return Parsers{Log: log, Point: point}, nil
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

// condition returns why text is not a condition in the context of e.
func (p *Parsers) condition(onMetrics bool, text string) error {
	err := bounded(text)
	if err != nil {
		return err
	}
	if onMetrics {
		_, err = p.Point.ParseCondition(text)
	} else {
		_, err = p.Log.ParseCondition(text)
	}
	return err
}

func (p *Parsers) value(onMetrics bool, text string) error {
	err := bounded(text)
	if err != nil {
		return err
	}
	if onMetrics {
		_, err = p.Point.ParseValueExpression(text)
	} else {
		_, err = p.Log.ParseValueExpression(text)
	}
	return err
}

// attributePath finds attribute names in OTTL text.
var attributePath = regexp.MustCompile(`attributes\["((?:[^"\\]|\\.)*)"\]`)

// The attributes the engine itself reads on each record that a rule wants.
const (
	AttributeCount     = "kernelevents.count"
	AttributeLastTime  = "kernelevents.last_time_unix_nano"
	AttributeFaultID   = "kernelevents.fault_id"
	AttributeFirstTime = "kernelevents.first_time_unix_nano"
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
	for _, f := range r.Fields {
		read(f.Expr)
	}
	for _, e := range r.All() {
		for _, f := range e.Fields {
			read(f.Expr)
		}
		read(e.Where)
		read(e.Value)
		read(e.Stays.While)
		if !e.OnMetrics() {
			names = append(names, AttributeCount, AttributeFirstTime, AttributeLastTime, AttributeFaultID)
		}
	}
	if r.Detect != nil {
		names = append(names, r.Detect.Attributes...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
