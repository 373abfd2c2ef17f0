package record

import (
	"fmt"

	"go.opentelemetry.io/collector/component"

	"github.com/tracecoreai/tracecore/bpf/identity"
)

// Resolver returns the identity extension with that id among the extensions of
// host. A nil id is no error: the receiver then runs without identity.
func Resolver(host component.Host, id *component.ID) (identity.Resolver, error) {
	if id == nil {
		return nil, nil
	}
	extension, found := host.GetExtensions()[*id]
	if !found {
		return nil, fmt.Errorf("identity %q: no such extension: add it to extensions and service::extensions, or remove the setting", id)
	}
	resolver, ok := extension.(identity.Resolver)
	if !ok {
		return nil, fmt.Errorf("identity %q: this extension knows no processes: name an identity extension", id)
	}
	return resolver, nil
}
