package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
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
			writeSchema(t, filepath.Join(dir, file), map[string]any{"$ref": definitionPrefix + name, "definitions": reachable(document.Definitions, name)})
		}
	}
	return dir
}

func writeSchema(t *testing.T, path string, schema any) {
	t.Helper()
	out, err := json.Marshal(schema)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, out, 0o600))
}

// addCustomSchemas does the same for the custom resources defined below a folder.
func addCustomSchemas(t *testing.T, dir, definitions string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(definitions, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "run `make chart`")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var resource map[string]any
		require.NoError(t, yaml.Unmarshal(text, &resource))
		group, _, _ := strings.Cut(at(t, resource, "spec", "group").(string), ".")
		kind := strings.ToLower(at(t, resource, "spec", "names", "kind").(string))
		for _, version := range at(t, resource, "spec", "versions").([]any) {
			schema := at(t, version, "schema", "openAPIV3Schema")
			at(t, schema, "properties").(map[string]any)["metadata"] = map[string]any{"type": "object"}
			closeAll(schema)
			name := fmt.Sprintf("%s-%s-%s.json", kind, group, at(t, version, "name"))
			writeSchema(t, filepath.Join(dir, name), schema)
		}
	}
}

// closeAll forbids keys that no object of the schema has.
func closeAll(value any) {
	switch value := value.(type) {
	case map[string]any:
		_, hasProperties := value["properties"].(map[string]any)
		_, open := value["additionalProperties"]
		if hasProperties && !open && value["x-kubernetes-preserve-unknown-fields"] != true {
			value["additionalProperties"] = false
		}
		for _, inner := range value {
			closeAll(inner)
		}
	case []any:
		for _, inner := range value {
			closeAll(inner)
		}
	}
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
