// Package guest is what the harness and the init process of its machines say
// to each other: a manifest inward, a stream of JSON lines outward.
package guest

import "time"

// Manifest is what init shall run; it lies at ManifestPath in the initramfs.
type Manifest struct {
	Port  string   `json:"port"` // the serial line that the report leaves by
	Tests []Test   `json:"tests"`
	Env   []string `json:"env"`
}

// ManifestPath is where init finds its Manifest.
const ManifestPath = "/manifest.json"

// ModulesDir holds the kernel modules that init loads, in the order of their names.
const ModulesDir = "/lib/modules"

// Test is one test binary.
type Test struct {
	Package string        `json:"package"` // folder in the module: bpf/kmsg
	Path    string        `json:"path"`
	Dir     string        `json:"dir"` // working directory; holds testdata
	Args    []string      `json:"args"`
	Limit   time.Duration `json:"limit"` // it is killed after this
}

// ResultsVariable names, in the environment of a test, a file to which it may
// append what it measured: one JSON object a line.
const ResultsVariable = "TRACECORE_RESULTS"

// Kind names what a Line reports.
type Kind string

// The lines of one run, in this order: one Boot; for each test one Begin, any
// number of Output and then of Measured, one End; one Done. Anything missing is a
// failure. Alive comes between all of these, each AliveInterval.
const (
	Boot   Kind = "boot"
	Alive  Kind = "alive"
	Begin  Kind = "begin"
	Output Kind = "output"
	// Measured is a line that a test appended to the file named by ResultsVariable.
	Measured Kind = "measured"
	End      Kind = "end"
	Done     Kind = "done"
	// Kept comes instead of Begin before what a binary said on an earlier machine; its text
	// is the release of that kernel.
	Kept Kind = "kept"
)

// AliveInterval is how often a machine says that it still runs, in a test that
// prints nothing too.
const AliveInterval = 10 * time.Second

// Line is one line of the outward stream.
type Line struct {
	Kind    Kind   `json:"kind"`
	Package string `json:"package,omitempty"`
	Text    string `json:"text,omitempty"` // output; kernel release at boot
	Code    int    `json:"code,omitempty"` // exit status; 128+signal when killed
	Error   string `json:"error,omitempty"`
}
