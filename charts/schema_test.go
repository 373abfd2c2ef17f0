package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const definitionPrefix = "#/definitions/"

// definition is one type of Kubernetes' OpenAPI document.
type definition = map[string]any

// writeSchemas turns Kubernetes' OpenAPI document into one closed JSON schema
// per kind, named as kubeconform asks for them: daemonset-apps-v1.json.
func writeSchemas(t *testing.T, swagger string) string {
	t.Helper()
	text, err := os.ReadFile(swagger)
	require.NoError(t, err)
	var document struct {
		Definitions map[string]definition `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal(text, &document))
	for name, d := range document.Definitions {
		document.Definitions[name] = closed(name, d)
	}
	dir := t.TempDir()
	for name, d := range document.Definitions {
		for _, file := range fileNames(d) {
			schema := map[string]any{"$ref": definitionPrefix + name, "definitions": reachable(document.Definitions, name)}
			out, err := json.Marshal(schema)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), out, 0o600))
		}
	}
	return dir
}

// closed forbids keys that a type does not have, and widens the two types that
// Kubernetes writes as strings and reads as numbers too.
func closed(name string, d definition) definition {
	if strings.HasSuffix(name, ".util.intstr.IntOrString") || strings.HasSuffix(name, ".api.resource.Quantity") {
		return definition{"type": []string{"string", "number"}}
	}
	if _, ok := d["properties"]; ok {
		d["additionalProperties"] = false
	}
	return d
}

// fileNames returns a name for each group and version that serves the kind.
func fileNames(d definition) []string {
	kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
	if len(kinds) != 1 {
		return nil // DeleteOptions and the like are in every group
	}
	kind, _ := kinds[0].(map[string]any)
	name := strings.ToLower(fmt.Sprint(kind["kind"]))
	if group, _, _ := strings.Cut(fmt.Sprint(kind["group"]), "."); group != "" {
		name += "-" + group
	}
	return []string{name + "-" + fmt.Sprint(kind["version"]) + ".json"}
}

// reachable returns a definition and all it refers to.
func reachable(all map[string]definition, name string) map[string]definition {
	found := map[string]definition{}
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if ref, ok := value["$ref"].(string); ok {
				target := strings.TrimPrefix(ref, definitionPrefix)
				if _, seen := found[target]; !seen {
					found[target] = all[target]
					walk(all[target])
				}
			}
			for _, inner := range value {
				walk(inner)
			}
		case []any:
			for _, inner := range value {
				walk(inner)
			}
		}
	}
	found[name] = all[name]
	walk(all[name])
	return found
}
