// Package keeper finds the storage extension that a component is configured with.
package keeper

import (
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension/xextension/storage"
)

// Find returns the storage extension of that id; nil for no id.
func Find(host component.Host, id *component.ID) (storage.Extension, error) {
	if id == nil {
		return nil, nil
	}
	found, ok := host.GetExtensions()[*id]
	if !ok {
		return nil, fmt.Errorf("storage %q is not there: define it under extensions and name it in service::extensions", *id)
	}
	extension, ok := found.(storage.Extension)
	if !ok {
		return nil, fmt.Errorf("storage %q is not a storage extension: name one, such as file_storage", *id)
	}
	return extension, nil
}
