package verdict

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// Attributes of a verdict's log record. AttrJSON holds the whole verdict as
// schema.json describes it; the others repeat what one filters and alerts on.
const (
	AttrID           = "pattern.id" // number of the pattern in the catalogue, as a string
	AttrName         = "pattern.name"
	AttrConfidence   = "pattern.confidence"
	AttrTraceClaimed = "pattern.trace_claimed"
	AttrTrust        = "pattern.trust" // proven, claimed or foreign
	AttrHeadline     = "pattern.headline"
	AttrRemediation  = "pattern.remediation"
	AttrJSON         = "pattern.verdict_json"
	AttrVerdictID    = "pattern.verdict_id"
	AttrIncidentID   = "pattern.incident_id"
	AttrRole         = "pattern.role"
	AttrStatus       = "pattern.status"
	AttrGoesOn       = "pattern.goes_on" // of a resolved one: severity of what it led to that is not over, or absent
	AttrOnset        = "pattern.onset"   // RFC 3339 in UTC with nanoseconds
	AttrSeverity     = "pattern.severity"
	AttrRevision     = "pattern.revision"      // int
	AttrRootCauseID  = "pattern.root_cause_id" // of a symptom
	AttrCulprit      = "pattern.culprit."      // + key: host, gpu, rank, …
	AttrBlastRadius  = "pattern.blast_radius"  // ranks as ranges: "0-516,518-1023"; the first, "and 7,681 more ranks"
	AttrBlastCount   = "pattern.blast_radius_count"
	AttrDrill        = "tracecore.drill" // true, or absent
	AttrLate         = "pattern.late"    // true, or absent
	attributesPerOne = 19
)

// AttrRepeated is true on the record of an open verdict that was told before and says
// nothing new. Who keeps state by verdicts learns from it that one is still open.
const AttrRepeated = "pattern.repeated"

// ErrNotVerdict means that a record is not a verdict at all; every other error
// of FromRecord means that it claims to be one and cannot be used.
var ErrNotVerdict = errors.New("not a " + EventName + " record")

// number is the OTLP severity number, 0 for an unknown severity.
func (s Severity) number() plog.SeverityNumber {
	switch s {
	case Info:
		return plog.SeverityNumberInfo
	case Warning:
		return plog.SeverityNumberWarn
	case Error:
		return plog.SeverityNumberError
	case Critical:
		return plog.SeverityNumberFatal
	}
	return plog.SeverityNumberUnspecified
}

// Compare puts the less severe first, and what is no severity before all.
func (s Severity) Compare(other Severity) int { return cmp.Compare(s.number(), other.number()) }

// ToRecord writes v, clipped to the limits, into lr. The record's time is the
// event time of the newest evidence; the observed time is the caller's to set.
func ToRecord(v Verdict, lr plog.LogRecord) {
	v = Bounded(v)
	lr.SetEventName(EventName)
	lr.SetTimestamp(pcommon.NewTimestampFromTime(v.Updated))
	lr.SetSeverityNumber(v.Severity.number())
	lr.SetSeverityText(string(v.Severity))
	lr.Body().SetStr(v.Spoken())
	v.Span.put(lr)
	putAttributes(v, lr.Attributes())
	if v.Span.Claimed {
		lr.Attributes().PutBool(AttrTraceClaimed, true)
	}
}

// Spoken is the headline as somebody reads it who sees nothing else of the verdict.
func (v *Verdict) Spoken() string {
	if v.Drill {
		return "DRILL: " + v.Headline
	}
	return v.Headline
}

func putAttributes(v Verdict, attrs pcommon.Map) {
	attrs.Clear()
	attrs.EnsureCapacity(attributesPerOne + len(v.Culprit))
	attrs.PutStr(AttrID, strconv.Itoa(v.PatternID))
	attrs.PutStr(AttrName, v.Pattern)
	attrs.PutStr(AttrConfidence, string(v.Confidence))
	attrs.PutStr(AttrTrust, v.Trust.String())
	attrs.PutStr(AttrHeadline, v.Headline)
	attrs.PutStr(AttrRemediation, v.Remediation)
	attrs.PutStr(AttrVerdictID, v.ID)
	attrs.PutStr(AttrIncidentID, v.IncidentID)
	attrs.PutStr(AttrRole, string(v.Role))
	attrs.PutStr(AttrStatus, string(v.Status))
	attrs.PutStr(AttrOnset, v.Onset.Format(time.RFC3339Nano))
	attrs.PutStr(AttrSeverity, string(v.Severity))
	attrs.PutInt(AttrRevision, int64(v.Revision))
	if v.GoesOn != "" {
		attrs.PutStr(AttrGoesOn, string(v.GoesOn))
	}
	if v.RootCause != "" {
		attrs.PutStr(AttrRootCauseID, v.RootCause)
	}
	for _, key := range slices.Sorted(maps.Keys(v.Culprit)) {
		attrs.PutStr(AttrCulprit+key, v.Culprit[key])
	}
	if len(v.BlastRadius) > 0 {
		attrs.PutStr(AttrBlastRadius, v.BlastRadius.Brief())
		attrs.PutInt(AttrBlastCount, int64(len(v.BlastRadius)))
	}
	if v.Drill {
		attrs.PutBool(AttrDrill, true)
	}
	if v.Late {
		attrs.PutBool(AttrLate, true)
	}
	attrs.PutStr(AttrJSON, string(ToJSON(v)))
}

// ToJSON is v, clipped to the limits, in the form of schema.json: one line.
func ToJSON(v Verdict) []byte {
	text, _ := safetext.Marshal(Bounded(v)) // cannot fail: strings, ints, and times from 1970 to 2262
	return text
}

// FromRecord reads the verdict out of a record's pattern.verdict_json, which
// may come from anywhere, and checks it.
func FromRecord(lr plog.LogRecord) (Verdict, error) {
	if lr.EventName() != EventName {
		return Verdict{}, ErrNotVerdict
	}
	value, ok := lr.Attributes().Get(AttrJSON)
	if !ok || value.Type() != pcommon.ValueTypeStr {
		return Verdict{}, fmt.Errorf("verdict record without the string attribute %s", AttrJSON)
	}
	return FromJSON([]byte(value.Str()))
}

// FromJSON reads and checks a verdict in the form of schema.json. Unknown
// members are ignored, so that an older reader takes a newer writer's verdicts.
func FromJSON(data []byte) (Verdict, error) {
	if len(data) > MaxJSONBytes {
		return Verdict{}, fmt.Errorf("verdict has %d bytes of JSON, at most %d are allowed", len(data), MaxJSONBytes)
	}
	var v Verdict
	if err := json.Unmarshal(data, &v); err != nil {
		return Verdict{}, fmt.Errorf("verdict is not the JSON that schema.json describes: %w", err)
	}
	if err := v.Validate(); err != nil {
		return Verdict{}, fmt.Errorf("verdict: %w", err)
	}
	return Bounded(v), nil // any sender may have written it
}
