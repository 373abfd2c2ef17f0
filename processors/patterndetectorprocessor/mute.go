package patterndetectorprocessor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Mute keeps the verdicts of a pattern back until a time. They are counted, and those that
// are still open then are told.
type Mute struct {
	Pattern string `mapstructure:"pattern"`
	// Culprit names fields that must have these values; none: all verdicts. YAML reads
	// a value without quotes as a number or a time where it looks like one.
	Culprit map[string]any `mapstructure:"culprit"`
	Until   any            `mapstructure:"until"` // RFC 3339, or YAML's own time
	Reason  string         `mapstructure:"reason"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// validate says what is wrong with a mute. One that has ended is no error: it stands in a
// configuration that was right yesterday.
func (m *Mute) validate(rules []rule.Rule) (errs []error) {
	at := slices.IndexFunc(rules, func(r rule.Rule) bool { return r.Name == m.Pattern })
	switch {
	case m.Pattern == "":
		errs = append(errs, errors.New("pattern is missing: name the pattern whose verdicts are kept back"))
	case at < 0 && rules != nil:
		var names []string
		for i := range rules {
			names = append(names, rules[i].Name)
		}
		errs = append(errs, fmt.Errorf("pattern: there is no pattern %q: %s", m.Pattern, rule.Suggest(m.Pattern, names)))
	case at >= 0:
		for _, field := range slices.Sorted(maps.Keys(m.Culprit)) {
			if !slices.Contains(rules[at].Culprit, field) {
				errs = append(errs, fmt.Errorf("culprit::%s: verdicts of %s name no %q: %s", field, m.Pattern, field, rule.Suggest(field, rules[at].Culprit)))
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(m.Culprit)) {
		switch m.Culprit[field].(type) {
		case string, bool, int, int64, uint64, float64:
		default:
			errs = append(errs, fmt.Errorf("culprit::%s: this is no single value: write one mute for each, as culprit: {%s: …}", field, field))
		}
	}
	if m.Until == nil || m.Until == "" {
		errs = append(errs, errors.New("until is missing: a mute has an end, write until: 2026-12-01T08:00:00Z"))
	} else if m.end().IsZero() {
		errs = append(errs, fmt.Errorf("until: %q is no time: write it as 2026-12-01T08:00:00Z", fmt.Sprint(m.Until)))
	}
	if strings.TrimSpace(m.Reason) == "" {
		errs = append(errs, errors.New("reason is missing: say why, others will ask"))
	}
	return errs
}

// end returns when m ends, zero where until is no time.
func (m *Mute) end() time.Time {
	if end, isTime := m.Until.(time.Time); isTime {
		return end
	}
	end, _ := time.Parse(time.RFC3339, fmt.Sprint(m.Until))
	return end
}

// includes reports whether m keeps back whatever the other does, and as long.
func (m *Mute) includes(other *Mute) bool {
	if m.Pattern != other.Pattern || m.end().Before(other.end()) {
		return false
	}
	for field, value := range m.Culprit {
		if theirs, named := other.Culprit[field]; !named || fmt.Sprint(theirs) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

func (m *Mute) covers(v *verdict.Verdict, now time.Time) bool {
	if m.Pattern != v.Pattern || !now.Before(m.end()) {
		return false
	}
	for field, value := range m.Culprit {
		if v.Culprit[field] != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// mostMuted bounds the verdicts that mutes keep back; one more is told.
const mostMuted = 512

// keyMuted is where the storage has them.
const keyMuted = "muted"

// muted are the verdicts that mutes keep back, by id.
type muted struct {
	items   map[string]keptBack
	changed bool // since they were last stored
	// incidents are those that somebody has muted in the history.
	incidents map[string]history.Mute
}

// keptBack is the newest revision of a verdict.
type keptBack struct {
	Verdict verdict.Verdict `json:"verdict"`
	// Told: a revision left before the mute began, so that its end must leave too.
	Told bool `json:"told,omitempty"`
}

// muteOf returns the mute that keeps v back now, nil for none.
func (d *detector) muteOf(v *verdict.Verdict, now time.Time) *Mute {
	for i := range d.config.Mutes {
		if d.config.Mutes[i].covers(v, now) {
			return &d.config.Mutes[i]
		}
	}
	return nil
}

// mutedNow reports whether a mute of the configuration, or one of its incident, keeps v back.
// mu is held.
func (d *detector) mutedNow(v *verdict.Verdict, now time.Time) bool {
	return d.muteOf(v, now) != nil || d.muted.incident(v, now)
}

// incident reports whether somebody has muted the incident of v in the history.
func (m *muted) incident(v *verdict.Verdict, now time.Time) bool {
	mute, muted := m.incidents[v.IncidentID]
	return muted && now.Before(mute.Until)
}

// hold keeps v back when a mute covers it, and reports whether it did. mu is held.
func (d *detector) hold(ctx context.Context, v verdict.Verdict) bool {
	kept, before := d.muted.items[v.ID]
	if !d.mutedNow(&v, d.clock.now()) && !(before && d.unasked()) || !before && len(d.muted.items) >= mostMuted {
		d.release(v.ID)
		return false
	}
	if !before {
		kept.Told = v.Revision > 1
	}
	status, _ := v.Incident()
	if status == verdict.Resolved && kept.Told {
		d.release(v.ID)
		return false // who was told that it is open has to hear that it is over
	}
	d.telemetry.ProcessorPatterndetectorVerdictsMuted.Add(ctx, 1, metric.WithAttributes(attribute.String("pattern", v.Pattern)))
	if status == verdict.Resolved {
		d.release(v.ID)
		return true
	}
	kept.Verdict = v
	d.muted.items[v.ID], d.muted.changed = kept, true
	return true
}

func (d *detector) release(id string) {
	if _, kept := d.muted.items[id]; kept {
		delete(d.muted.items, id)
		d.muted.changed = true
	}
}

// unmute returns the verdicts that no mute keeps back any more, by id. mu is held.
func (d *detector) unmute(now time.Time) []verdict.Verdict {
	var free []verdict.Verdict
	for _, id := range slices.Sorted(maps.Keys(d.muted.items)) {
		if v := d.muted.items[id].Verdict; !d.mutedNow(&v, now) && !d.unasked() {
			free = append(free, v)
		}
	}
	for i := range free {
		d.release(free[i].ID)
	}
	return free
}

// askMutes learns which incidents somebody has muted in the history. What ails the history
// shows where verdicts are kept: what was known before stands, or nothing.
func (d *detector) askMutes(ctx context.Context) (again bool) {
	mutes, err := d.keeping.keeper.Mutes(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil || d.muted.incidents == nil {
		d.muted.incidents = map[string]history.Mute{}
		maps.Copy(d.muted.incidents, mutes)
	}
	return false
}

// unasked: the history was not asked yet what is muted, so what was kept back stays so.
func (d *detector) unasked() bool { return d.keeping.keeper != nil && d.muted.incidents == nil }

// storeMuted writes what mutes keep back, if that changed. mu is held.
func (d *detector) storeMuted(ctx context.Context) {
	if !d.muted.changed || d.journal == nil || d.stale {
		return
	}
	data, err := json.Marshal(d.muted.items)
	if err == nil {
		err = d.journal.Write(ctx, &d.outbox, storage.SetOperation(keyMuted, data))
	}
	if err != nil {
		d.storageFailed(ctx, fmt.Errorf("store muted verdicts: %w", err))
		return
	}
	d.muted.changed = false
}

// loadMuted takes up what mutes kept back before the restart. mu is held.
func (d *detector) loadMuted(ctx context.Context) {
	get := storage.GetOperation(keyMuted)
	err := d.journal.Write(ctx, &d.outbox, get)
	if err == nil && get.Value != nil {
		err = json.Unmarshal(get.Value, &d.muted.items)
	}
	if err != nil || d.muted.items == nil {
		d.muted.items = map[string]keptBack{}
	}
	if err != nil {
		d.reset(ctx, resetCorrupt, "stored verdicts that mutes kept back cannot be used, they will not be told when the mutes end", err)
	}
}

// sayMutes tells the operator at start which mutes are in force, and which have ended.
func (d *detector) sayMutes(now time.Time) {
	for i := range d.config.Mutes {
		m := &d.config.Mutes[i]
		about := []zap.Field{zap.String("pattern", m.Pattern), zap.Any("culprit", m.Culprit), zap.Time("until", m.end()), zap.String("reason", m.Reason)}
		if now.Before(m.end()) {
			d.logger.Info("verdicts are muted", about...)
		} else {
			d.logger.Warn("a mute has ended and mutes nothing: remove it from the configuration", about...)
		}
	}
}
