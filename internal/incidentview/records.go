package incidentview

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// NearSpan is how long before the cause a record may be to be near it.
const NearSpan = time.Minute

// Bounds of what is kept of the records of one incident.
const (
	mostRanks  = 1 << 19 // whose state is known
	mostEvents = 32      // kinds of evidence
)

// Records collects what stood beside the verdicts of one incident: what is near its cause,
// how its ranks fared, and its evidence as it came. It takes the records of a recording in
// any order, holds a bounded part of them, and may be given those of other incidents.
type Records struct {
	about incidentKeys
	near  []nearRecord // closest first
	raw   map[string]*rawRecords
	ranks map[int]*rankState
	fed   map[string]map[string]bool // by host: which events and metrics came

	stacks map[int]rankStack
	frames map[StackKey]stackFrames
	count  uint64
}

// incidentKeys is by what a record belongs to an incident.
type incidentKeys struct {
	from, told, to int64             // near records, the first evidence, its end
	job            string            // of its ranks
	hosts          map[string]bool   // that it names
	sources        map[string]bool   // events of its evidence
	root           map[string]string // culprit of the cause
	culprit        int               // rank that others wait for, -1 for none
}

// rankState is since when a rank waits and when it died, 0 for not.
type rankState struct{ waits, dead int64 }

// NewRecords collects for the verdicts of one incident.
func NewRecords(incident []verdict.Verdict) *Records {
	r := &Records{raw: map[string]*rawRecords{}, ranks: map[int]*rankState{}, fed: map[string]map[string]bool{},
		stacks: map[int]rankStack{}, frames: map[StackKey]stackFrames{}}
	r.about = keysOf(verdict.Merge(nil, incident))
	return r
}

func keysOf(incident []verdict.Verdict) incidentKeys {
	k := incidentKeys{hosts: map[string]bool{}, sources: map[string]bool{}, culprit: -1}
	if len(incident) == 0 {
		return k
	}
	k.root, k.job = incident[0].Culprit, job(incident)
	k.from, k.to = incident[0].Onset.Add(-NearSpan).UnixNano(), newest(incident).UnixNano()
	for i, v := range incident {
		for _, name := range []string{v.Culprit["host"], v.Culprit["node"]} {
			if name != "" {
				k.hosts[name] = true
			}
		}
		if rank, err := strconv.Atoi(v.Culprit["rank"]); err == nil && k.culprit < 0 {
			k.culprit = rank
		}
		for _, e := range v.Evidence {
			k.sources[e.Source] = true
			if i == 0 && (k.told == 0 || e.Time.UnixNano() < k.told) {
				k.told = e.Time.UnixNano()
			}
		}
	}
	k.told = max(k.told, incident[0].Onset.UnixNano())
	return k
}

// Logs takes records.
func (r *Records) Logs(ld plog.Logs) {
	for _, resource := range ld.ResourceLogs().All() {
		attributes := resource.Resource().Attributes()
		host := HostOf(attributes)
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				r.count++
				r.feed(host, record.EventName())
				r.take(attributes, host, record)
			}
		}
	}
}

// Near takes records that no rule read. They are no evidence, and may be near the cause.
func (r *Records) Near(ld plog.Logs) {
	for _, resource := range ld.ResourceLogs().All() {
		attributes := resource.Resource().Attributes()
		host := HostOf(attributes)
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				if at := timeOf(record); at >= r.about.from && at <= r.about.told && r.about.hosts[host] {
					r.nearBy(attributes, record, host, at)
				}
			}
		}
	}
}

// timeOf is when a record happened, or else when somebody saw it.
func timeOf(record plog.LogRecord) int64 {
	return int64(cmp.Or(record.Timestamp(), record.ObservedTimestamp())) //nolint:gosec // a time that does not fit is below zero
}

func (r *Records) take(resource pcommon.Map, host string, record plog.LogRecord) {
	at := timeOf(record)
	if at < r.about.from || at > r.about.to+int64(NearSpan) || record.EventName() == verdict.EventName {
		return
	}
	attributes := record.Attributes()
	sameJob := r.about.job != "" && JobOf(attributes) == r.about.job
	if record.EventName() == rule.EventStack {
		if sameJob {
			r.stack(at, attributes)
		}
		return
	}
	if sameJob {
		r.rank(record.EventName(), at, attributes)
	}
	switch {
	case r.about.sources[record.EventName()]:
		if sameJob || r.about.hosts[host] {
			r.evidence(resource, record, at)
		}
	case at <= r.about.told && r.about.hosts[host]:
		r.nearBy(resource, record, host, at)
	}
}

// HostOf is the machine that a resource is, "" where it does not say so.
func HostOf(resource pcommon.Map) string {
	return cmp.Or(word(resource, "host.name"), word(resource, "k8s.node.name"))
}

// JobOf is the job that a record is about, "" for none.
func JobOf(attributes pcommon.Map) string {
	return cmp.Or(word(attributes, "gen_ai.training.job_id"), word(attributes, "gen_ai.training.rendezvous"))
}

// About are the machines and the job whose records may be taken.
func (r *Records) About() (hosts []string, job string) {
	return slices.Sorted(maps.Keys(r.about.hosts)), r.about.job
}

// rank learns what a record says of the state of a rank.
func (r *Records) rank(event string, at int64, attributes pcommon.Map) {
	since := at
	switch event {
	case "nccl.socket.stall":
		if age, ok := attributes.Get("nccl.socket.stall.age_ns"); ok && age.Type() == pcommon.ValueTypeInt {
			since -= max(0, age.Int())
		}
	case rule.EventExit:
	default:
		return
	}
	rank, err := strconv.Atoi(word(attributes, "gen_ai.training.rank"))
	if err != nil || rank < 0 || rank > verdict.MaxRank {
		return
	}
	state := r.ranks[rank]
	if state == nil {
		if len(r.ranks) == mostRanks {
			return
		}
		state = &rankState{}
		r.ranks[rank] = state
	}
	which := &state.waits
	if event == rule.EventExit {
		if inherited, ok := attributes.Get("process.exit.inherited_identity"); ok && inherited.AsString() == "true" {
			return // a child of the rank
		}
		which = &state.dead
	}
	if *which == 0 || since < *which {
		*which = since
	}
}

// nearRecord is a record near the cause. closeness is smaller the closer.
type nearRecord struct {
	Near
	closeness int
	raw       *rawRecord
}

// nearBy keeps a record that shares something with the culprit, the closest first.
func (r *Records) nearBy(resource pcommon.Map, record plog.LogRecord, host string, at int64) {
	why, closeness := r.about.shares(record)
	if why == "" || record.EventName() == "" && record.Body().AsString() == "" {
		return
	}
	one := nearRecord{closeness: closeness, Near: Near{
		At: time.Unix(0, at).UTC(), Event: text(record.EventName(), verdict.MaxNameBytes), Text: says(record), Why: why, Host: text(host, verdict.MaxNameBytes),
		Trust: rule.TrustOf(resource, record.Attributes()),
	}}
	if len(r.near) == mostNear && closer(one, r.near[mostNear-1]) >= 0 {
		return
	}
	one.raw = &rawRecord{resource: resource, record: record, at: at}
	r.addNear(one)
}

// closer compares how near records are: of those that share as much, the later is.
func closer(a, b nearRecord) int {
	return cmp.Or(a.closeness-b.closeness, b.At.Compare(a.At))
}

// addNear puts a record in its place. One that is there already is not added.
func (r *Records) addNear(one nearRecord) {
	if slices.ContainsFunc(r.near, func(n nearRecord) bool { return n.Near == one.Near }) {
		return
	}
	place, _ := slices.BinarySearchFunc(r.near, one, closer)
	r.near = slices.Insert(r.near, place, one)
	r.near = r.near[:min(len(r.near), mostNear)]
}

// shares says what a record of the culprit's machine has in common with it: the process,
// the device, the mount, the cgroup, or the machine alone. Of a machine alone only what is
// a warning at least is near, or what has no severity.
func (k *incidentKeys) shares(record plog.LogRecord) (why string, closeness int) {
	const process, thing, machine = 0, 1, 2
	attributes := record.Attributes()
	for _, name := range []string{"daemon_pid", "pid"} {
		pid := k.root[name]
		for key, value := range attributes.All() {
			if pid != "" && strings.HasSuffix(key, "pid") && value.AsString() == pid {
				return "same process (pid " + text(pid, 32) + ")", process
			}
		}
	}
	for _, name := range []string{"gpu", "mount", "device", "cgroup", "container", "pod"} {
		wanted := k.root[name]
		for _, value := range attributes.All() {
			if wanted != "" && value.Type() == pcommon.ValueTypeStr && value.Str() == wanted {
				return "same " + name + " (" + text(wanted, verdict.MaxNameBytes) + ")", thing
			}
		}
	}
	if severity := record.SeverityNumber(); severity == plog.SeverityNumberUnspecified || severity >= plog.SeverityNumberWarn {
		return "same node", machine
	}
	return "", 0
}

// says is a record in words: its text, or its event and what is its own.
func says(record plog.LogRecord) string {
	if body := record.Body().AsString(); body != "" {
		return verdict.Sized(text(body, verdict.MaxTextBytes))
	}
	const most = 6
	parts := []string{}
	attributes := record.Attributes()
	for _, key := range slices.Sorted(maps.Keys(attributes.AsRaw())) {
		own := !slices.ContainsFunc([]string{"gen_ai.", "tracecore.", "k8s.", "container.", "process."}, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if value, _ := attributes.Get(key); own && len(parts) < most && value.AsString() != "" {
			parts = append(parts, key+" "+text(value.AsString(), verdict.MaxNameBytes))
		}
	}
	if process := word(attributes, "process.executable.name"); process != "" {
		parts = append([]string{process + " (pid " + word(attributes, "process.pid") + ")"}, parts...)
	}
	return text(record.EventName()+": "+strings.Join(parts, ", "), verdict.MaxTextBytes)
}

// rawRecords are the first and the last record of one event.
type rawRecords struct {
	count       uint64
	first, last *rawRecord
	from, until int64
	// counted: up to then, what comes was counted before (Restore).
	counted int64
}

func (r *Records) evidence(resource pcommon.Map, record plog.LogRecord, at int64) {
	e := r.raw[record.EventName()]
	if e == nil {
		if len(r.raw) == mostEvents {
			return
		}
		e = &rawRecords{}
		r.raw[record.EventName()] = e
	}
	if at > e.counted {
		e.count++
	}
	if e.first == nil || at < e.from {
		e.first, e.from = &rawRecord{resource: resource, record: record, at: at}, at
	}
	if e.last == nil || at >= e.until {
		e.last, e.until = &rawRecord{resource: resource, record: record, at: at}, at
	}
}

// rawRecord is a record in JSON, its attributes bounded. It is made when it is asked for: most
// records soon give way to a later one. Until then it holds the batch that the record is part of.
type rawRecord struct {
	made     json.RawMessage
	resource pcommon.Map
	record   plog.LogRecord
	at       int64
}

// madeRecord is one in JSON already, nil for none.
func madeRecord(made json.RawMessage) *rawRecord {
	if made == nil {
		return nil
	}
	return &rawRecord{made: made}
}

func (r *rawRecord) json() json.RawMessage {
	if r == nil {
		return nil
	}
	if r.made != nil {
		return r.made
	}
	one := struct {
		Event      string            `json:"event"`
		Time       time.Time         `json:"time"`
		Severity   string            `json:"severity,omitempty"`
		Body       string            `json:"body,omitempty"`
		Resource   map[string]string `json:"resource"`
		Attributes map[string]string `json:"attributes"`
	}{
		text(r.record.EventName(), verdict.MaxNameBytes), time.Unix(0, r.at).UTC(), text(r.record.SeverityText(), verdict.MaxNameBytes),
		text(r.record.Body().AsString(), verdict.MaxTextBytes), words(r.resource), words(r.record.Attributes()),
	}
	r.made, _ = safetext.Marshal(one) // cannot fail: strings, and a time from 1970 to 2262
	r.resource, r.record = pcommon.Map{}, plog.LogRecord{}
	return r.made
}

// words are attributes as text: at most 64, each bounded, so that a record is below the
// bound of a raw one.
func words(attributes pcommon.Map) map[string]string {
	const most, longest = 64, 256
	all := map[string]string{}
	for key, value := range attributes.All() {
		if len(all) == most {
			break
		}
		all[text(key, verdict.MaxNameBytes)] = text(value.AsString(), longest)
	}
	return all
}

// word is an attribute as bounded text, "" for none.
func word(attributes pcommon.Map, key string) string {
	value, ok := attributes.Get(key)
	if !ok {
		return ""
	}
	return text(value.AsString(), verdict.MaxTextBytes)
}

// nearest are the near records that the chain shows: those of the same process or thing.
func (r *Records) nearest() []Near {
	if r == nil {
		return nil
	}
	const most, machine = 4, 2
	var list []Near
	for _, n := range r.near {
		if n.closeness < machine && len(list) < most {
			list = append(list, n.Near)
		}
	}
	return list
}

// addTo writes what the records say into v.
func (r *Records) addTo(v *View, _ []verdict.Verdict) {
	if r == nil {
		return
	}
	v.Made.Records = r.count
	for _, n := range r.near {
		v.Near = append(v.Near, n.Near)
		v.Raw = append(v.Raw, Raw{Title: "record " + n.Event, Note: "near, " + n.Why, JSON: n.raw.json()})
	}
	slices.SortStableFunc(v.Near, func(a, b Near) int { return a.At.Compare(b.At) })
	for _, event := range slices.Sorted(maps.Keys(r.raw)) {
		e := r.raw[event]
		title := "record " + event
		switch e.count {
		case 1:
			v.Raw = append(v.Raw, Raw{Title: title, Note: "1 record", JSON: e.first.json()})
		case 2:
			v.Raw = append(v.Raw, Raw{Title: title, Note: "first of 2", JSON: e.first.json()}, Raw{Title: title, Note: "second of 2", JSON: e.last.json()})
		default:
			note := fmt.Sprintf("of %s records", verdict.Number(e.count))
			v.Raw = append(v.Raw, Raw{Title: title, Note: "first " + note, JSON: e.first.json()}, Raw{Title: title, Note: "last " + note, JSON: e.last.json()})
		}
	}
	v.Raw = v.Raw[:min(len(v.Raw), mostVerdicts+mostRaw)]
	stacks, left := r.groups()
	if v.Stacks = stacks; left > 0 {
		v.Made.Flaws = append(v.Made.Flaws, verdict.Number(left)+" more groups of equal stacks are left out")
	}
	var dead []int
	for rank, state := range r.ranks {
		if state.dead != 0 {
			dead = append(dead, rank)
		}
	}
	if len(dead) > 0 {
		ranks := RanksOf(dead)
		v.Dead = &ranks
	}
}

// levels are how many ranks wait and how many have died over time, but for the one that
// others wait for: at most mostLevels moments of change.
func (r *Records) levels() (levels []Level, ranks int) {
	type change struct {
		at            int64
		waiting, dead int
	}
	var changes []change
	for rank, state := range r.ranks {
		if rank == r.about.culprit {
			continue
		}
		ranks++
		if state.waits != 0 {
			changes = append(changes, change{state.waits, 1, 0})
		}
		if state.dead != 0 {
			c := change{at: state.dead, dead: 1}
			if state.waits != 0 && state.waits <= state.dead {
				c.waiting = -1
			}
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.waiting, b.waiting), cmp.Compare(a.dead, b.dead))
	})
	now, most, at := Level{}, Level{}, 0
	each := max(1, (len(changes)+mostLevels-1)/mostLevels)
	for i, c := range changes {
		now.At, now.Waiting, now.Dead = time.Unix(0, c.at).UTC(), now.Waiting+c.waiting, now.Dead+c.dead
		if now.Waiting > most.Waiting {
			most, at = now, len(levels)
		}
		if i == 0 || i == len(changes)-1 || (i+1)%each == 0 {
			levels = append(levels, now)
		}
	}
	if most.Waiting > 0 && !slices.Contains(levels, most) {
		levels = slices.Insert(levels, at, most)
	}
	return levels, ranks
}
