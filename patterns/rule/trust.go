package rule

import (
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// TrustOf reads the trust of a record from its own attributes, else from its resource,
// where metrics have it. Without one it is claimed; a value that is no trust is worth nothing.
func TrustOf(resource, attributes pcommon.Map) verdict.Trust {
	v, ok := attributes.Get(AttributeTrust)
	if !ok {
		v, ok = resource.Get(AttributeTrust)
	}
	if !ok {
		return verdict.Claimed
	}
	if trust, ok := verdict.ParseTrust(v.AsString()); ok {
		return trust
	}
	return verdict.Foreign
}
