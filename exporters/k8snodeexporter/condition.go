package k8snodeexporter

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The condition itself holds which verdicts it is about: its message is
//
//	gpu_lost/5b1e6f0c: GPU 0000:65:00.0 has fallen off the bus | hbm_ecc/… | (and 2 more: r08f1… -77c0…) | (boot 0f3c9a1e)
//
// so that an exporter that has just started, or another replica, knows what is left
// when one of them is resolved, and after which boot of the node it was said. What
// stands in brackets is never a verdict: the ids of verdicts have none.
const (
	between     = " | "
	afterID     = ": "
	mostListed  = 32   // verdicts with their headlines
	mostTracked = 1024 // verdicts beside them, by 17 bytes each
	longestLine = 256  // bytes of a headline
)

// Reasons of conditions. All of ours begin with own.
const (
	own               = "Tracecore"
	reasonNone        = own + "NoOpenVerdict"
	reasonMany        = own + "OpenVerdicts"
	reasonHeldBack    = own + "HeldBack"     // Unknown: the breaker waits for an operator
	reasonUnconfirmed = own + "NotConfirmed" // Unknown: it was True, nobody says so any more
)

// ours reports whether tracecore wrote a condition.
func ours(c *corev1.NodeCondition) bool { return strings.HasPrefix(c.Reason, own) }

// stands reports whether a condition of ours counts for the breaker: it is True, or
// was and may be again.
func stands(c *corev1.NodeCondition) bool {
	return ours(c) && (c.Status == corev1.ConditionTrue || c.Reason == reasonUnconfirmed)
}

// line is one open verdict of a condition.
type line struct{ id, headline string }

func lineOf(v verdict.Verdict) line {
	return line{idOf(v), safetext.Clip(strings.ReplaceAll(safetext.Object(v.Headline), "|", "/"), longestLine)}
}

// verdict is as much of a verdict as an Event needs.
func (l line) verdict(now time.Time) verdict.Verdict {
	pattern, id, _ := strings.Cut(l.id, "/")
	return verdict.Verdict{
		ID: id, Pattern: pattern, Status: verdict.Open, Confidence: verdict.Full, Headline: l.headline, Onset: now, Updated: now,
	}
}

// idOf is a verdict's pattern and id.
func idOf(v verdict.Verdict) string { return name(v.Pattern) + "/" + name(v.ID) }

func name(text string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._-", r)) {
			return r
		}
		return '_'
	}, text[:min(len(text), verdict.MaxNameBytes)])
}

// about is what a condition says.
type about struct {
	lines   []line
	tracked []string // of verdicts that are not listed, see track
	lost    int      // verdicts beyond these: they hold until a reboot, or until somebody takes the condition back
	boot    string   // boot of the node that it was said of
}

// track is a verdict in 17 characters: r for one that a reboot ends, else -, and
// half of a hash of its id.
func track(id string, rebootEnds bool) string {
	sum := sha256.Sum256([]byte(id))
	if rebootEnds {
		return "r" + hex.EncodeToString(sum[:8])
	}
	return "-" + hex.EncodeToString(sum[:8])
}

// read is what a condition of ours says; nothing where it holds no verdict.
func read(c *corev1.NodeCondition) (a about) {
	if c == nil || !ours(c) || c.Status == corev1.ConditionFalse {
		return about{}
	}
	for text := range strings.SplitSeq(c.Message, between) {
		note, isNote := strings.CutPrefix(strings.TrimSuffix(text, ")"), "(")
		if !isNote {
			if id, headline, ok := strings.Cut(text, afterID); ok {
				a.lines = append(a.lines, line{id, headline})
			}
			continue
		}
		if boot, ok := strings.CutPrefix(note, "boot "); ok {
			a.boot = boot
		}
		if more, ok := strings.CutPrefix(note, "and "); ok {
			count, list, _ := strings.Cut(more, " more")
			if tracked, ok := strings.CutPrefix(list, afterID); ok {
				a.tracked = strings.Fields(tracked)
			} else {
				a.lost, _ = strconv.Atoi(count)
			}
		}
	}
	return a
}

// write is the message of a condition.
func (a *about) write(note string) string {
	texts := make([]string, 0, len(a.lines)+4)
	for _, l := range a.lines {
		texts = append(texts, l.id+afterID+l.headline)
	}
	if len(a.tracked) > 0 {
		texts = append(texts, fmt.Sprintf("(and %d more%s%s)", len(a.tracked), afterID, strings.Join(a.tracked, " ")))
	}
	if a.lost > 0 {
		texts = append(texts, fmt.Sprintf("(and %d more that are not listed: a reboot ends them, or a person who takes this back)", a.lost))
	}
	for _, one := range []string{note, a.bootNote()} {
		if one != "" {
			texts = append(texts, "("+one+")")
		}
	}
	return strings.Join(texts, between)
}

func (a *about) bootNote() string {
	if a.boot == "" {
		return ""
	}
	return "boot " + a.boot
}

func (a *about) empty() bool { return len(a.lines) == 0 && len(a.tracked) == 0 && a.lost == 0 }

func (a *about) at(id string) int {
	return slices.IndexFunc(a.lines, func(l line) bool { return l.id == id })
}

func (a *about) has(id string, rebootEnds bool) bool {
	return a.at(id) >= 0 || slices.Contains(a.tracked, track(id, rebootEnds))
}

// add enters an open verdict. What finds no room is counted: the condition then
// outlives all that it can name.
func (a *about) add(l line, rebootEnds bool) {
	at := a.at(l.id)
	switch {
	case at >= 0:
		a.lines[at] = l
	case a.has(l.id, rebootEnds):
	case len(a.lines) < mostListed:
		a.lines = append(a.lines, l)
	case len(a.tracked) < mostTracked:
		a.tracked = append(a.tracked, track(l.id, rebootEnds))
	default:
		a.lost++
	}
}

func (a *about) remove(id string, rebootEnds bool) {
	a.lines = slices.DeleteFunc(a.lines, func(l line) bool { return l.id == id })
	a.tracked = slices.DeleteFunc(a.tracked, func(t string) bool { return t == track(id, rebootEnds) })
}

// booted takes out what ends with the boot that it was said of, and remembers the
// boot that runs now.
func (a *about) booted(boot string, rebootEnds func(id string) bool) {
	if boot = name(boot[:min(len(boot), 8)]); boot == "" {
		return
	}
	if a.boot != "" && a.boot != boot {
		a.lines = slices.DeleteFunc(a.lines, func(l line) bool { return rebootEnds(l.id) })
		a.tracked = slices.DeleteFunc(a.tracked, func(t string) bool { return strings.HasPrefix(t, "r") })
		a.lost = 0
	}
	a.boot = boot
}

// reason of a condition that is True.
func (a *about) reason() string {
	if len(a.lines) == 0 {
		return reasonMany
	}
	pattern, _, _ := strings.Cut(a.lines[0].id, "/")
	return reason(pattern)
}

// find returns a condition of a node; nil when it was never set.
func find(n *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// reason is a pattern's name as Kubernetes writes reasons: TracecoreGpuLost. The
// prefix keeps a rule of a site's own from sounding like a kubelet (Evicted).
func reason(pattern string) string {
	var out strings.Builder
	out.WriteString(own)
	up := true
	for _, r := range pattern {
		switch {
		case r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r):
			up = true
			continue
		case up:
			r = unicode.ToUpper(r)
		}
		out.WriteRune(r)
		up = false
	}
	return out.String()[:min(out.Len(), 128)] // of an Event, at most 128 characters
}

// removal is the patch that takes conditions off a node.
func removal(version string, kinds ...corev1.NodeConditionType) ([]byte, error) {
	gone := make([]any, len(kinds))
	for i, kind := range kinds {
		gone[i] = map[string]any{"type": kind, "$patch": "delete"}
	}
	return patch(version, gone...)
}

// patch sets conditions and leaves all others alone. The version makes it fail when
// another writer was faster.
func patch(version string, conditions ...any) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"status":   map[string]any{"conditions": conditions},
	})
}

// next is a condition as it is to be written. Its transition is now, unless its
// status stays.
func next(old *corev1.NodeCondition, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string, now metav1.Time) corev1.NodeCondition {
	c := corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if old != nil && old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}
