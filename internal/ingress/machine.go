package ingress

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// machine is a host and its Kubernetes node, "" where it is none.
type machine struct{ host, node string }

// namesMachine reports whether an attribute says which machine a record is about.
func namesMachine(key string) bool {
	switch key {
	case hostNameKey, nodeNameKey, "k8s.node.uid", "host.id", "host.boot.id":
		return true
	}
	return false
}

// put writes the machine on a resource.
func (m machine) put(attributes pcommon.Map) {
	if m.host != "" {
		attributes.PutStr(hostNameKey, m.host)
	}
	if m.node != "" {
		attributes.PutStr(nodeNameKey, m.node)
	}
}

// isAllOf reports whether attributes name this machine or none. An address, which an agent
// gave to a stranger, names none.
func (m machine) isAllOf(attributes pcommon.Map) bool {
	for key, value := range attributes.All() {
		if key == hostNameKey && strings.HasPrefix(value.AsString(), addressPrefix) {
			continue
		}
		if (key == hostNameKey || key == nodeNameKey) && !strings.EqualFold(value.AsString(), m.host) {
			return false
		}
	}
	return true
}
