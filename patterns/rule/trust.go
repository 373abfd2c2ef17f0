package rule

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// TrustOf reads the trust of a record: its own, or that of its resource, the weaker where
// there are both. Without one it is claimed; a value that is no trust is worth nothing.
func TrustOf(resource, attributes pcommon.Map) verdict.Trust {
	trust, known := verdict.Proven, false
	for _, from := range [...]pcommon.Map{attributes, resource} {
		v, ok := from.Get(AttributeTrust)
		if !ok {
			continue
		}
		known = true
		if one, ok := verdict.ParseTrust(v.AsString()); ok {
			trust = min(trust, one)
		} else {
			trust = verdict.Foreign
		}
	}
	if !known {
		return verdict.Claimed
	}
	return trust
}
