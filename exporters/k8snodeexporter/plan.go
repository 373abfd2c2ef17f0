package k8snodeexporter

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// plan is what a verdict asks for.
type plan struct {
	nodeguard.Plan
	condition corev1.NodeConditionType // "" for none
	tell      bool                     // Events
}

// plan says what to do about a verdict. One that sets no condition leads to an Event.
func (c *Config) plan(f verdicts.Found) plan {
	condition := c.Conditions[f.Pattern]
	return plan{nodeguard.Judge(f, nodeOf(f), condition != "", verdict.Severity(c.MinSeverity)), corev1.NodeConditionType(condition), f.Role == verdict.RootCause}
}

// nodeOf is the name of the node that the evidence came from. The verdict names it,
// or its resource does; where both do and differ there is none.
func nodeOf(f verdicts.Found) string {
	named := strings.ToLower(f.Culprit["node"])
	if named != "" && f.On != "" && named != strings.ToLower(f.On) {
		return ""
	}
	return cmp.Or(named, strings.ToLower(f.On))
}

// mine reports whether this process may speak of a node.
func (c *Config) mine(node string) bool {
	return len(validation.IsDNS1123Subdomain(node)) == 0 && (c.Node == "" || c.Node == node)
}
