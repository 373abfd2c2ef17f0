package k8snodeexporter

import (
	"encoding/json"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// The condition itself holds which verdicts it is about: its message is
//
//	gpu_lost/5b1e6f0c: GPU 0000:65:00.0 has fallen off the bus | hbm_ecc/…
//
// so that an exporter that has just started, or another replica, knows what is
// left when one of them is resolved.
const (
	between     = " | "
	afterID     = ": "
	mostOpen    = 32  // open verdicts that one condition lists
	longestLine = 256 // bytes of a headline
)

// line is one open verdict of a condition.
type line struct{ id, headline string }

func lineOf(v verdict.Verdict) line { return line{idOf(v), clean(v.Headline)} }

// idOf is a verdict's pattern and id.
func idOf(v verdict.Verdict) string {
	name := strings.NewReplacer(":", "_", "/", "_")
	return name.Replace(clean(v.Pattern)) + "/" + name.Replace(clean(v.ID))
}

// clean takes out what would make two lines of one, or control a terminal.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '|':
			return '/'
		case !unicode.IsPrint(r):
			return ' '
		}
		return r
	}, text)
	if len(text) > longestLine {
		text = strings.ToValidUTF8(text[:longestLine-len("…")], "") + "…"
	}
	return strings.TrimSpace(text)
}

func parse(message string) []line {
	var lines []line
	for text := range strings.SplitSeq(message, between) {
		if id, headline, ok := strings.Cut(text, afterID); ok {
			lines = append(lines, line{id, headline})
		}
	}
	return lines
}

func write(lines []line) string {
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = l.id + afterID + l.headline
	}
	return strings.Join(texts, between)
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

// revise returns what the condition is to be once a verdict holds or no longer
// does; false when that is what it is already.
func revise(old *corev1.NodeCondition, kind corev1.NodeConditionType, v verdict.Verdict, holds bool, now metav1.Time) (corev1.NodeCondition, bool) {
	var before []line
	if old != nil && old.Status == corev1.ConditionTrue {
		before = parse(old.Message)
	}
	after := without(before, idOf(v))
	removed := len(after) < len(before)
	switch {
	case holds && len(after) >= mostOpen, !holds && !removed:
		return corev1.NodeCondition{}, false
	case holds:
		after = append(after, lineOf(v))
	}
	next := corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now}
	if len(after) > 0 {
		pattern, _, _ := strings.Cut(after[0].id, "/")
		next.Reason, next.Message = reason(pattern), write(after)
	} else {
		next.Status, next.Reason = corev1.ConditionFalse, "TracecoreNoOpenVerdict"
		next.Message = "no longer holds: " + write([]line{lineOf(v)})
	}
	if old != nil && old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	return next, old == nil || old.Status != next.Status || !same(before, after)
}

func without(lines []line, id string) []line {
	var rest []line
	for _, l := range lines {
		if l.id != id {
			rest = append(rest, l)
		}
	}
	return rest
}

// same reports whether both list the same verdicts in the same words.
func same(a, b []line) bool {
	words := map[line]struct{}{}
	for _, l := range a {
		words[l] = struct{}{}
	}
	for _, l := range b {
		delete(words, l)
	}
	return len(a) == len(b) && len(words) == 0
}

// reason is a pattern's name as Kubernetes writes reasons: TracecoreGpuLost. The
// prefix keeps a rule of a site's own from sounding like a kubelet (Evicted).
func reason(pattern string) string {
	var out strings.Builder
	out.WriteString("Tracecore")
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

// change is the patch that sets one condition and leaves all others alone. The
// version makes it fail when another writer was faster.
func change(version string, c corev1.NodeCondition) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"status":   map[string]any{"conditions": []corev1.NodeCondition{c}},
	})
}
