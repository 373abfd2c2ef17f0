package record

import (
	"cmp"
	"strings"
	"time"

	"go.opentelemetry.io/collector/filter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
)

// Head is what every record has beside its attributes.
type Head struct {
	Trust    Trust     // how it is known; nothing said means Claimed
	Time     time.Time // when it happened
	Observed time.Time // when we read it
	Severity Severity
	Text     string // the body: one line for a person who reads the log
}

// fill writes the head of an event's record.
func (h *Head) fill(r plog.LogRecord, event string) {
	r.SetEventName(event)
	r.SetTimestamp(pcommon.NewTimestampFromTime(h.Time))
	r.SetObservedTimestamp(pcommon.NewTimestampFromTime(h.Observed))
	r.SetSeverityNumber(h.Severity.Number())
	r.SetSeverityText(string(h.Severity))
	r.Body().SetStr(strings.ToValidUTF8(h.Text, "\uFFFD"))
}

// Event is the attributes of one event; the code that tools/events makes of a
// metadata.yaml has a type for each.
type Event interface {
	EventName() string
	Attributes() *Attributes
}

// ResourceFilter drops all records of a host by one attribute of its resource.
type ResourceFilter struct {
	Attribute        string
	Include, Exclude []filter.Config // nil: nothing is asked
}

func (f *ResourceFilter) drops(resource pcommon.Resource) bool {
	value, found := resource.Attributes().Get(f.Attribute)
	if !found {
		return false
	}
	text := value.AsString()
	return f.Include != nil && !filter.CreateFilter(f.Include).Matches(text) || f.Exclude != nil && filter.CreateFilter(f.Exclude).Matches(text)
}

// Builder begins records and gives out those begun. The LogsBuilder that tools/events
// makes for a component embeds it and adds a method for each event.
type Builder struct {
	scope, version string
	enabled        map[string]bool // by event
	filters        []ResourceFilter

	resource pcommon.Resource
	dropped  bool // by a filter
	records  plog.LogRecordSlice
}

// NewBuilder returns a builder of a component's records.
func NewBuilder(scope, version string, enabled map[string]bool, filters ...ResourceFilter) *Builder {
	return &Builder{
		scope: scope, version: version, enabled: enabled, filters: filters,
		resource: pcommon.NewResource(), records: plog.NewLogRecordSlice(),
	}
}

// SetResource says what the next records are about.
func (b *Builder) SetResource(resource pcommon.Resource) {
	b.resource, b.dropped = resource, false
	for i := range b.filters {
		b.dropped = b.dropped || b.filters[i].drops(resource)
	}
}

// Resource is what the next records are about.
func (b *Builder) Resource() pcommon.Resource { return b.resource }

// Begin begins a record with at most so many attributes and returns them. One that is switched off is
// never given out. Only generated code calls it: it knows the attributes of the event.
func (b *Builder) Begin(event string, attributes int, head Head) *Attributes {
	r := plog.LogRecord{}
	if b.enabled[event] {
		r = b.records.AppendEmpty()
	} else {
		r = plog.NewLogRecord()
	}
	head.fill(r, event)
	r.Attributes().EnsureCapacity(attributes)
	a := On(r.Attributes())
	a.record = r
	TrustAttributesOn(a).TracecoreTrust(string(cmp.Or(head.Trust, Claimed)))
	return a
}

// Add begins a record with attributes that were written before, and returns them to be
// completed. The event stays as it is and can be added again.
func (b *Builder) Add(head Head, event Event) *Attributes {
	const usual = 28
	attributes := b.Begin(event.EventName(), usual, head)
	event.Attributes().CopyTo(attributes.on)
	attributes.setTrace(event.Attributes().trace)
	return attributes
}

// Emit gives out the records begun since the last time, for the resource set.
func (b *Builder) Emit() plog.Logs {
	logs := plog.NewLogs()
	if b.records.Len() == 0 {
		return logs
	}
	if b.dropped {
		b.records = plog.NewLogRecordSlice()
		return logs
	}
	resource := logs.ResourceLogs().AppendEmpty()
	b.resource.CopyTo(resource.Resource())
	scope := resource.ScopeLogs().AppendEmpty()
	scope.Scope().SetName(b.scope)
	scope.Scope().SetVersion(b.version)
	b.records.MoveAndAppendTo(scope.LogRecords())
	return logs
}
