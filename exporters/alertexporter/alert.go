package alertexporter

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// Statuses of an alert.
const (
	firing   = "firing"
	resolved = "resolved"
)

// alert is what is told of one root cause. All texts are safe: a verdict's are.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Starts      time.Time         `json:"startsAt"`
}

// culprits are the keys of a verdict's culprit that become labels; the last is the name of
// the label.
var culprits = [][2]string{
	{"job", "job"}, {"run", "run"}, {"rank", "rank"}, {"gpu", "gpu"}, {"namespace", "namespace"}, {"pod_name", "pod"}, {"mount", "mount"}, {"peer", "peer"},
}

// OwnLabels are the labels that are written from a verdict.
func OwnLabels() []string {
	names := []string{"alertname", "pattern", "severity", "node", "verdict_id"}
	for _, c := range culprits {
		names = append(names, c[1])
	}
	return names
}

const (
	longestLabel = 256
	mostSeen     = 16 // pieces of evidence
)

// alertOf says what a verdict says. Its labels are the alert: with another set an
// Alertmanager has another alert, so what was started keeps those that it began with. On is
// the node that the verdict's resource names, for one that names none itself.
func (c *Config) alertOf(v *verdict.Verdict, on string) alert {
	labels := map[string]string{
		"alertname": verdicts.Name(v.Pattern), "pattern": v.Pattern, "severity": string(v.Severity), "verdict_id": v.ID,
		"node": cmp.Or(v.Culprit["node"], v.Culprit["host"], on),
	}
	for _, key := range culprits {
		labels[key[1]] = v.Culprit[key[0]]
	}
	labels["run"] = cmp.Or(v.Run, labels["run"])
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	for name, value := range labels {
		labels[name] = safetext.Clip(value, longestLabel)
	}
	maps.Copy(labels, c.Labels)
	return alert{Labels: labels, Annotations: c.annotations(v), Starts: v.Onset}
}

func (c *Config) annotations(v *verdict.Verdict) map[string]string {
	annotations := map[string]string{
		"headline": v.Spoken(), "remedy": v.Remediation, "incident": v.IncidentID,
		"seen": seen(v), "not_seen": strings.Join(v.NotObserved[:min(len(v.NotObserved), mostSeen)], "\n"),
		"runbook_url": c.runbook(v.Pattern), "goes_on": whyItStands(v),
	}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return annotations
}

// whyItStands says why an alert goes on whose verdict is resolved, "" for any other.
func whyItStands(v *verdict.Verdict) string {
	if v.GoesOn == "" || v.Resolved == nil {
		return ""
	}
	return "This cleared at " + v.Resolved.UTC().Format("15:04:05.000") + " UTC. What it led to is not over."
}

func (c *Config) runbook(pattern string) string {
	return strings.ReplaceAll(c.Runbook, "{pattern}", url.PathEscape(pattern))
}

// seen is the evidence, a line each.
func seen(v *verdict.Verdict) string {
	var lines []string
	for _, e := range v.Evidence[:min(len(v.Evidence), mostSeen)] {
		lines = append(lines, e.Time.UTC().Format("15:04:05.000")+"  "+e.Shows)
	}
	return strings.Join(lines, "\n")
}

// notice is what a webhook is told: that an alert began or ended. Templates see its fields.
type notice struct {
	Status string     `json:"status"` // firing or resolved
	Drill  bool       `json:"drill,omitempty"`
	Ends   *time.Time `json:"endsAt,omitempty"`
	// Why an alert ends whose verdict goes on: explained by another root cause, no longer
	// certain. Empty where it is over.
	Why string `json:"why,omitempty"`
	alert
	Verdict verdict.Verdict `json:"verdict"`
}

// Where lists the labels that say where, in their order: for people.
func (n *notice) Where() []string {
	var names []string
	for _, name := range slices.Concat([]string{"node"}, labelsOf(culprits)) {
		if n.Labels[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

func labelsOf(pairs [][2]string) (names []string) {
	for _, p := range pairs {
		names = append(names, p[1])
	}
	return names
}
