package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

const component = "testdata/boxreceiver/metadata.yaml"

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs: go test ./events -update, and read the difference. Now:\n%s", file, got)
	}
}

func declare(t *testing.T, file string) *declaration {
	t.Helper()
	d, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCodeOfAComponent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "generated_events.go")
	if err := write(file, declare(t, component), componentTemplate); err != nil {
		t.Fatal(err)
	}
	code, _ := os.ReadFile(file)
	golden(t, "testdata/events.golden", string(code))
}

func TestCodeOfSharedGroups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "generated_groups.go")
	if err := write(file, declare(t, "testdata/groups.yaml"), sharedTemplate); err != nil {
		t.Fatal(err)
	}
	code, _ := os.ReadFile(file)
	golden(t, "testdata/groups.golden", string(code))
}

func TestWhatMdatagenReads(t *testing.T) {
	text, err := declare(t, component).forMdatagen()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/mdatagen.golden", string(text))
}

// TestIdentifiersAreThoseOfMdatagen compares with names that its code of this
// repository has.
func TestIdentifiersAreThoseOfMdatagen(t *testing.T) {
	for name, want := range map[string]string{
		"k8s.pod.uid": "K8sPodUID", "gen_ai.training.job_id": "GenAiTrainingJobID", "oomkill.total_vm_bytes": "OomkillTotalVMBytes",
		"gpu.xid": "GpuXid", "kernelevents.cpu": "KerneleventsCPU", "max.ip6.idle": "MaxIP6Idle",
	} {
		if got := identifier(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestAMistakeNamesFileAndPlace(t *testing.T) {
	text, err := os.ReadFile(component)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.ReadFile("testdata/groups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ from, to, says string }{
		"an attribute nobody declared": {"[box.label]", "[box.lable]", "event box.lost: no attribute box.lable"},
		"a group nobody declared":      {"groups: [owner]", "groups: [owners]", "event box.lost: no group owners"},
		"an attribute twice":           {"[box.content, box.open", "[box.width, box.open", "event box.moved has the attribute box.width twice"},
		"a type that there is not":     {"type: double", "type: float", `attribute box.weight: type "float": use one of [bool double int map slice string]`},
		"a type of a key":              {"How many., type: int", "How many., type: long", `map item: key pieces: type "long"`},
		"an attribute declared again":  {"  box.open:", "  box.owner: {description: Again., type: int}\n  box.open:", "attribute box.owner is declared in"},
		"a group declared again":       {"  size:\n", "  owner: {description: again., attributes: [box.width]}\n  size:\n", "group owner is declared in"},
		"no description":               {"description: A box is lost.", "description: ''", "event box.lost: say in its description what happened"},
		"a file that is not there":     {"[../groups.yaml]", "[../group.yaml]", "group.yaml"},
		"a list for a mapping":         {"events:\n  box.lost:", "events:\n  - box.lost:", "metadata.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(text), tt.from) {
				t.Fatalf("%q is not in %s", tt.from, component)
			}
			dir := t.TempDir()
			folder := filepath.Join(dir, "boxreceiver")
			for file, content := range map[string]string{
				filepath.Join(dir, "groups.yaml"):      string(groups),
				filepath.Join(folder, "metadata.yaml"): strings.Replace(string(text), tt.from, tt.to, 1),
			} {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := read(filepath.Join(folder, "metadata.yaml"))
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), dir) {
				t.Fatalf("error %v, want the file and %q", err, tt.says)
			}
		})
	}
}
