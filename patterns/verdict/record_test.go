package verdict

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
)

func TestToRecordSaysThatEvidenceWasReadLate(t *testing.T) {
	v := lostGPU()
	v.Late, v.Evidence[0].Late = true, true
	lr := plog.NewLogRecord()
	ToRecord(v, lr)
	require.Equal(t, true, lr.Attributes().AsRaw()["pattern.late"])
	back, err := FromRecord(lr)
	require.NoError(t, err)
	require.True(t, back.Late)
	require.True(t, back.Evidence[0].Late)
}

func TestToRecordWritesWhatOneAlertsOn(t *testing.T) {
	lr := plog.NewLogRecord()
	lr.Attributes().PutStr("left", "over")
	ToRecord(lostGPU(), lr)

	require.Equal(t, "pattern.verdict", lr.EventName())
	require.Equal(t, at("14:02:11.531"), lr.Timestamp().AsTime())
	require.Equal(t, plog.SeverityNumberFatal, lr.SeverityNumber())
	require.Equal(t, "critical", lr.SeverityText())
	require.Equal(t, lostGPU().Headline, lr.Body().Str())
	attributes := lr.Attributes().AsRaw()
	require.JSONEq(t, string(ToJSON(lostGPU())), attributes[AttrJSON].(string))
	delete(attributes, AttrJSON)
	require.Equal(t, map[string]any{
		"pattern.id": "18", "pattern.name": "gpu_lost", "pattern.confidence": "full",
		"pattern.headline": lostGPU().Headline, "pattern.remediation": lostGPU().Remediation,
		"pattern.verdict_id": "gpu_lost-5b1e6f0c9d2a", "pattern.incident_id": "inc-5b1e6f0c9d2a",
		"pattern.role": "root_cause", "pattern.status": "open",
		"pattern.trust": "claimed", "pattern.onset": "2026-11-20T14:02:11.531Z",
		"pattern.severity": "critical", "pattern.revision": int64(1),
		"pattern.culprit.host": "node-17", "pattern.culprit.gpu": "0000:65:00.0", "pattern.culprit.rank": "3",
		"pattern.culprit.job": "llama-7b", "pattern.culprit.process": "python", "pattern.culprit.pid": "4242",
		"pattern.blast_radius": "3", "pattern.blast_radius_count": int64(1),
	}, attributes)
}

func TestToRecordNamesTheRootCauseOfASymptom(t *testing.T) {
	lr := plog.NewLogRecord()
	ToRecord(abortedRank(), lr)
	value, ok := lr.Attributes().Get(AttrRootCauseID)
	require.True(t, ok)
	require.Equal(t, "gpu_lost-5b1e6f0c9d2a", value.Str())
}

func TestSeverityNumbers(t *testing.T) {
	for severity, number := range map[Severity]int32{Info: 9, Warning: 13, Error: 17, Critical: 21} {
		v := lostGPU()
		v.Severity = severity
		lr := plog.NewLogRecord()
		ToRecord(v, lr)
		require.EqualValues(t, number, lr.SeverityNumber())
	}
}

func TestRecordRoundTrip(t *testing.T) {
	resolved := lostGPU()
	end := at("14:09:30")
	resolved.Status, resolved.Resolved = Resolved, &end
	resolved.Evidence[0].Count, resolved.Evidence[0].Last = 3, end
	goesOn := resolved
	goesOn.GoesOn = Error
	for name, v := range map[string]Verdict{"root cause": lostGPU(), "symptom": abortedRank(), "resolved": resolved, "its effects go on": goesOn} {
		t.Run(name, func(t *testing.T) {
			got, err := FromRecord(overTheWire(t, v))
			require.NoError(t, err)
			require.Equal(t, v, got)
		})
	}
}

// overTheWire is the record of v after a trip through OTLP's bytes.
func overTheWire(t *testing.T, v Verdict) plog.LogRecord {
	t.Helper()
	logs := plog.NewLogs()
	ToRecord(v, logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty())
	data, err := (&plog.ProtoMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	logs, err = (&plog.ProtoUnmarshaler{}).UnmarshalLogs(data)
	require.NoError(t, err)
	return logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
}

func TestWhateverIsWrittenCanBeRead(t *testing.T) {
	worst := lostGPU()
	worst.ID, worst.Headline = strings.Repeat("i", 1000), strings.Repeat("\x01", 1<<20)
	worst.Remediation = strings.Repeat("\x01", 1<<20)
	worst.Onset, worst.Updated = time.Time{}, time.Date(12_000, 1, 1, 0, 0, 0, 0, time.UTC)
	worst.Culprit = map[string]string{"": "dropped"}
	for i := range 50_000 {
		worst.BlastRadius = append(worst.BlastRadius, MaxRank-i)
		worst.Evidence = append(worst.Evidence, Evidence{Name: worst.ID, Shows: worst.Headline, Source: "é\xff" + worst.ID, Last: worst.Updated})
		worst.NotObserved = append(worst.NotObserved, worst.Headline)
	}
	for i := range 100 {
		worst.Culprit[strings.Repeat("k\x00é", i)] = worst.Headline
	}
	for name, v := range map[string]Verdict{"hostile": hostile(), "worst": worst} {
		t.Run(name, func(t *testing.T) {
			got, err := FromRecord(overTheWire(t, v))
			require.NoError(t, err)
			require.Equal(t, got, Bounded(got), "clipping a clipped verdict changes nothing")
		})
	}
}

func TestFromRecordTellsVerdictsFromOtherRecords(t *testing.T) {
	lr := plog.NewLogRecord()
	_, err := FromRecord(lr)
	require.ErrorIs(t, err, ErrNotVerdict)
	lr.SetEventName("gpu.xid")
	lr.Attributes().PutStr(AttrJSON, string(ToJSON(lostGPU())))
	_, err = FromRecord(lr)
	require.ErrorIs(t, err, ErrNotVerdict)

	lr.SetEventName(EventName)
	lr.Attributes().PutInt(AttrJSON, 3)
	_, err = FromRecord(lr)
	require.ErrorContains(t, err, "without the string attribute pattern.verdict_json")
	require.NotErrorIs(t, err, ErrNotVerdict)
}

// refused is what claims to be a verdict and is not, by what is wrong with it.
func refused() map[string]string {
	with := func(change func(*Verdict)) string {
		v := lostGPU()
		change(&v)
		data, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return string(data)
	}
	return map[string]string{
		"empty":             "",
		"null":              "null",
		"array":             "[]",
		"no members":        "{}",
		"cut":               string(ToJSON(lostGPU()))[:200],
		"two":               string(ToJSON(lostGPU())) + "{}",
		"deep":              strings.Repeat(`{"culprit":`, 100_000),
		"number as string":  `{"verdict_id": 3}`,
		"no id":             with(func(v *Verdict) { v.ID = "" }),
		"no incident":       with(func(v *Verdict) { v.IncidentID = "" }),
		"no pattern":        with(func(v *Verdict) { v.Pattern = "" }),
		"long id":           with(func(v *Verdict) { v.ID = strings.Repeat("x", MaxNameBytes+1) }),
		"role":              with(func(v *Verdict) { v.Role = "boss" }),
		"status":            with(func(v *Verdict) { v.Status = "" }),
		"goes on":           with(func(v *Verdict) { v.GoesOn = "bad" }),
		"confidence":        with(func(v *Verdict) { v.Confidence = "sure" }),
		"severity":          with(func(v *Verdict) { v.Severity = "fatal" }),
		"revision 0":        with(func(v *Verdict) { v.Revision = 0 }),
		"negative pattern":  with(func(v *Verdict) { v.PatternID = -1 }),
		"no onset":          with(func(v *Verdict) { v.Onset = time.Time{} }),
		"evidence time":     with(func(v *Verdict) { v.Evidence[0].Time = time.Time{} }),
		"long headline":     with(func(v *Verdict) { v.Headline = strings.Repeat("x", MaxTextBytes+1) }),
		"long remediation":  with(func(v *Verdict) { v.Remediation = strings.Repeat("x", MaxRemediationBytes+1) }),
		"long evidence":     with(func(v *Verdict) { v.Evidence[0].Shows = strings.Repeat("x", MaxTextBytes+1) }),
		"long source":       with(func(v *Verdict) { v.Evidence[0].Source = strings.Repeat("x", MaxNameBytes+1) }),
		"much evidence":     with(func(v *Verdict) { v.Evidence = make([]Evidence, MaxEvidence+1) }),
		"much not observed": with(func(v *Verdict) { v.NotObserved = make([]string, MaxNotObserved+1) }),
		"many ranks":        strings.Replace(string(ToJSON(lostGPU())), `"blast_radius_ranks":"3"`, `"blast_radius_ranks":"`+strings.Repeat("1,", MaxRanks)+`1"`, 1),
		"negative rank":     with(func(v *Verdict) { v.BlastRadius = []int{-1} }),
		"culprit key":       with(func(v *Verdict) { v.Culprit = map[string]string{"a b": "c"} }),
		"long culprit":      with(func(v *Verdict) { v.Culprit = map[string]string{"a": strings.Repeat("x", MaxTextBytes+1)} }),
	}
}

func TestFromRecordRefusesHostileVerdicts(t *testing.T) {
	cases := refused()
	cases["many bits"] = strings.Replace(string(ToJSON(lostGPU())), `"blast_radius_ranks":"3"`, `"blast_radius_bits":"`+strings.Repeat("////", MaxRanks/24+1)+`"`, 1)
	cases["large bits"] = strings.Replace(string(ToJSON(lostGPU())), `"blast_radius_ranks":"3"`, `"blast_radius_bits":"`+strings.Repeat("AAAA", MaxScattered/24)+`AAAB"`, 1)
	cases["too long"] = `{"headline":"` + strings.Repeat("x", MaxJSONBytes) + `"}`
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			lr := plog.NewLogRecord()
			lr.SetEventName(EventName)
			lr.Attributes().PutStr(AttrJSON, data)
			_, err := FromRecord(lr)
			require.Error(t, err)
			require.False(t, errors.Is(err, ErrNotVerdict))
			require.Less(t, len(err.Error()), 400, "the error does not repeat hostile input at length")
		})
	}
}

func TestFromJSONIgnoresMembersOfANewerWriter(t *testing.T) {
	data := strings.Replace(string(ToJSON(lostGPU())), "{", `{"novelty":{"a":[1]},`, 1)
	v, err := FromJSON([]byte(data))
	require.NoError(t, err)
	require.Equal(t, lostGPU(), v)
}

// FuzzFromJSON: what is accepted can be rendered, written and read again.
func FuzzFromJSON(f *testing.F) {
	for _, v := range []Verdict{lostGPU(), abortedRank(), hostile()} {
		f.Add(ToJSON(v))
	}
	for _, data := range refused() {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := FromJSON(data)
		if err != nil {
			return
		}
		var out strings.Builder
		require.NoError(t, Render(&out, []Verdict{v}, Options{}))
		for _, r := range out.String() {
			require.True(t, r == '\n' || r >= ' ' && r != 0x7f, "%q reached the terminal", r)
		}
		lr := plog.NewLogRecord()
		ToRecord(v, lr)
		again, err := FromRecord(lr)
		require.NoError(t, err)
		require.Equal(t, v.ID, again.ID)
	})
}

func BenchmarkToRecord(b *testing.B) {
	v := lostGPU()
	lr := plog.NewLogRecord()
	for b.Loop() {
		ToRecord(v, lr)
	}
}

func BenchmarkFromRecord(b *testing.B) {
	lr := plog.NewLogRecord()
	ToRecord(lostGPU(), lr)
	for b.Loop() {
		if _, err := FromRecord(lr); err != nil {
			b.Fatal(err)
		}
	}
}

func TestToRecordPutsTheVerdictInItsTrace(t *testing.T) {
	v := lostGPU()
	v.Span = Span{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7"}
	v.RankSpans = []RankSpan{{Rank: 5, TraceID: v.Span.TraceID, SpanID: "00f067aa0ba902b8"}, {Rank: 6, TraceID: "no id"}, {Rank: -1, TraceID: v.Span.TraceID}}
	v.Evidence[0].Spans = []Span{v.Span, {TraceID: strings.Repeat("0", 32)}, {TraceID: v.Span.TraceID, SpanID: "XYZ"}}
	lr := overTheWire(t, v)
	require.Equal(t, v.Span.TraceID, lr.TraceID().String())
	require.Equal(t, v.Span.SpanID, lr.SpanID().String())
	got, err := FromRecord(lr)
	require.NoError(t, err)
	require.Equal(t, v.Span, got.Span)
	require.Equal(t, v.RankSpans[:1], got.RankSpans, "what is no id is left out")
	require.Equal(t, v.Evidence[0].Spans[:1], got.Evidence[0].Spans)

	v.Span = Span{}
	ToRecord(v, lr)
	require.True(t, lr.TraceID().IsEmpty())
	require.True(t, lr.SpanID().IsEmpty())
}

func TestFromJSONLeavesOutIdsThatNoTraceHas(t *testing.T) {
	trace := strings.Repeat("a", 32)
	for name, s := range map[string]Span{
		"short trace":          {TraceID: trace[1:]},
		"capitals":             {TraceID: strings.ToUpper(trace)},
		"zero":                 {TraceID: strings.Repeat("0", 32)},
		"a span without trace": {SpanID: strings.Repeat("a", 16)},
		"long span":            {TraceID: trace, SpanID: strings.Repeat("a", 17)},
		"hostile":              {TraceID: "\x1b[2J"},
	} {
		t.Run(name, func(t *testing.T) {
			v := lostGPU()
			v.Span, v.Evidence[0].Spans = s, []Span{s}
			v.RankSpans = []RankSpan{{Rank: 1, TraceID: s.TraceID, SpanID: s.SpanID}}
			data, err := json.Marshal(v)
			require.NoError(t, err)
			got, err := FromJSON(data)
			require.NoError(t, err)
			require.Equal(t, lostGPU(), got)
		})
	}
	for name, change := range map[string]func(*Verdict){
		"ranks":    func(v *Verdict) { v.RankSpans = make([]RankSpan, MaxRankSpans+1) },
		"evidence": func(v *Verdict) { v.Evidence[0].Spans = make([]Span, MaxSpans+1) },
	} {
		v := lostGPU()
		change(&v)
		data, err := json.Marshal(v)
		require.NoError(t, err)
		_, err = FromJSON(data)
		require.Error(t, err, name)
	}
}
