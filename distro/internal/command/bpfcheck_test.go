package command

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/bpf/check"
	"github.com/tracecoreai/tracecore/bpf/probe"
	"github.com/tracecoreai/tracecore/distro/internal/commandtest"
	"github.com/tracecoreai/tracecore/patterns"
)

// schema is the part of JSON Schema that bpf-check.schema.json uses; the test
// refuses a keyword that it does not check.
type schema struct {
	Dialect     string             `json:"$schema"`
	Title       string             `json:"title"`
	Type        string             `json:"type"`
	Description string             `json:"description"`
	Enum        []string           `json:"enum"`
	Required    []string           `json:"required"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Additional  *bool              `json:"additionalProperties"`
}

func readSchema(t *testing.T) *schema {
	t.Helper()
	file, err := os.Open("bpf-check.schema.json")
	require.NoError(t, err)
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	s := &schema{}
	require.NoError(t, decoder.Decode(s))
	return s
}

// check returns where a decoded value breaks the schema.
func (s *schema) check(path string, value any) error {
	kinds := map[string]reflect.Kind{"object": reflect.Map, "array": reflect.Slice, "string": reflect.String, "boolean": reflect.Bool, "integer": reflect.Float64}
	if got := reflect.ValueOf(value); !got.IsValid() || got.Kind() != kinds[s.Type] {
		return fmt.Errorf("%s: %v is no %s", path, value, s.Type)
	}
	switch v := value.(type) {
	case string:
		if s.Enum != nil && !slices.Contains(s.Enum, v) {
			return fmt.Errorf("%s: %q is none of %q", path, v, s.Enum)
		}
	case []any:
		for i, item := range v {
			if err := s.Items.check(fmt.Sprintf("%s[%d]", path, i), item); err != nil {
				return err
			}
		}
	case map[string]any:
		return s.checkObject(path, v)
	}
	return nil
}

func (s *schema) checkObject(path string, object map[string]any) error {
	for _, name := range s.Required {
		if _, ok := object[name]; !ok {
			return fmt.Errorf("%s: %s is missing", path, name)
		}
	}
	for name, value := range object {
		property := s.Properties[name]
		if property == nil {
			return fmt.Errorf("%s: %s is not in the schema", path, name)
		}
		if err := property.check(path+"."+name, value); err != nil {
			return err
		}
	}
	return nil
}

// requireValid returns the report that a JSON text is, once it obeys the schema.
func requireValid(t *testing.T, text string) bpfCheckReport {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal([]byte(text), &value), text)
	require.NoError(t, readSchema(t).check("report", value))
	var report bpfCheckReport
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	return report
}

func TestSchemaListsTheValuesOfTheCode(t *testing.T) {
	s := readSchema(t).Properties
	require.Equal(t, []string{bpfCheckSchema}, s["schema"].Enum)
	require.Equal(t, []string{string(check.OK), string(check.Degraded), string(check.Unusable)}, s["status"].Enum)
	require.Equal(t, []string{string(check.Fine), string(check.Limits), string(check.Unknown)}, s["environment"].Items.Properties["state"].Enum)
	var features []string
	for _, f := range check.Features() {
		features = append(features, string(f))
	}
	for name, listed := range map[string][]string{
		"offers":   s["probes"].Items.Properties["offers"].Items.Enum,
		"delivers": s["probes"].Items.Properties["delivers"].Items.Enum,
		"id":       s["features"].Items.Properties["id"].Enum,
		"lacks":    s["patterns"].Items.Properties["lacks"].Items.Enum,
	} {
		require.Equal(t, features, listed, name)
	}
	require.Equal(t, []string{string(probe.OK), string(probe.Unsupported), string(probe.Denied), string(probe.Silent), string(probe.Broken)},
		s["probes"].Items.Properties["attempts"].Items.Properties["outcome"].Enum)
}

func TestSchemaRefusesWhatIsNoReport(t *testing.T) {
	s := readSchema(t)
	for name, text := range map[string]string{
		"nothing":           `{}`,
		"null for a list":   `{"schema":"tracecore.bpf-check/1","version":"v","status":"ok","environment":[],"probes":null,"features":[],"patterns":[]}`,
		"an unknown status": `{"schema":"tracecore.bpf-check/1","version":"v","status":"fine","environment":[],"probes":[],"features":[],"patterns":[]}`,
		"a member more":     `{"schema":"tracecore.bpf-check/1","version":"v","status":"ok","environment":[],"probes":[],"features":[],"patterns":[],"more":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			var value any
			require.NoError(t, json.Unmarshal([]byte(text), &value))
			require.Error(t, s.check("report", value))
		})
	}
}

// machineWith is a machine on which the probes ended like this.
func machineWith(t *testing.T, probes ...check.Probe) bpfCheckReport {
	t.Helper()
	rules, err := patterns.Library()
	require.NoError(t, err)
	report, err := newReport(rules, probes)
	require.NoError(t, err)
	return report
}

var (
	works  = check.Probe{Report: probe.Report{Probe: "kmsg", Rung: "tp_btf/console", Attempts: []probe.Attempt{{Rung: "tp_btf/console", Outcome: probe.OK, Fired: true}}}, Sees: "faults", Offers: []check.Feature{check.KernelLog, check.Origins}, Delivers: []check.Feature{check.KernelLog, check.Origins}, Fired: true}
	rest   = check.Probe{Report: probe.Report{Probe: "rest", Rung: "a", Attempts: []probe.Attempt{}}, Offers: check.Features()[2:], Delivers: check.Features()[2:]}
	denied = check.Probe{Report: probe.Report{Probe: "oomkill", Attempts: []probe.Attempt{{Rung: "fentry/x", Outcome: probe.Denied, Reason: "operation not permitted", Hint: "give it CAP_BPF"}}}, Sees: "kills", Offers: []check.Feature{check.OOMKills}, Delivers: []check.Feature{}, Error: "open oomkill: no hook works"}
)

func TestStatusAndExitCodeFollowTheProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		probes []check.Probe
		status check.Status
		code   int
	}{
		"all":  {[]check.Probe{works, rest}, check.OK, exitOK},
		"some": {[]check.Probe{works, denied}, check.Degraded, exitDegraded},
		"none": {[]check.Probe{denied}, check.Unusable, exitUnusable},
	} {
		t.Run(name, func(t *testing.T) {
			report := machineWith(t, tt.probes...)
			require.Equal(t, tt.status, report.Status)
			if err := statusError(report.Status); tt.code != exitOK {
				require.Equal(t, tt.code, exitCode(err))
			} else {
				require.NoError(t, err)
			}
			var text strings.Builder
			require.NoError(t, printJSON(&text, report))
			requireValid(t, text.String())
		})
	}
}

func TestTableSaysWhyAndWhatToDo(t *testing.T) {
	var text strings.Builder
	hostile := denied
	hostile.Attempts = []probe.Attempt{{Rung: "fentry/x", Outcome: probe.Denied, Reason: "operation\x1b[2J not permitted", Hint: "give it CAP_BPF"}}
	require.NoError(t, printTable(&text, machineWith(t, works, hostile)))
	for _, want := range []string{"degraded", "tp_btf/console", "oomkill fentry/x: denied: operation", "give it CAP_BPF", "gpu_lost", "kernel.btf"} {
		require.Contains(t, text.String(), want)
	}
	require.NotContains(t, text.String(), "\x1b")
}

// TestLinesThatProveNothingSayWhy: a machine that sees every fault and cannot show who
// wrote the lines of the kernel log is degraded, for the patterns that take proof.
func TestLinesThatProveNothingSayWhy(t *testing.T) {
	claims := works
	claims.Delivers, claims.Unproven = []check.Feature{check.KernelLog}, "nothing shows who wrote a line: give the process CAP_SYSLOG"
	report := machineWith(t, claims, rest)
	require.Equal(t, check.Degraded, report.Status)
	var table, text, greeting strings.Builder
	require.NoError(t, printTable(&table, report))
	require.Contains(t, table.String(), "  kmsg: "+claims.Unproven)
	require.NoError(t, printJSON(&text, report))
	require.Equal(t, claims.Unproven, requireValid(t, text.String()).Probes[0].Unproven)
	err := requirement(report, []string{"gpu_lost"})
	require.Equal(t, exitDegraded, exitCode(err))
	require.ErrorContains(t, err, "is a claim: needs kernel_origins")
	require.ErrorContains(t, err, "kernel_origins comes from the probe kmsg: "+claims.Unproven)
	require.NoError(t, requirement(report, []string{"host_oom_kill"}), "the kernel tells of kills itself")
	root := newRoot()
	root.SetErr(&greeting)
	require.NoError(t, writeGreeting(root, report, "/some/where", nil))
	require.Contains(t, greeting.String(), "limited   faults: "+claims.Unproven)
}

func TestBPFCheckRefusesAFormat(t *testing.T) {
	got := commandtest.Finish(t, commandtest.New(t, "bpf-check", "-o", "xml"))
	require.Equal(t, exitUsage, got.Code)
	require.Contains(t, got.Stderr, "use table or json")
}

// TestBPFCheckWithoutPrivileges says for every rung that it is denied or why it
// cannot be, and never that something works.
func TestBPFCheckWithoutPrivileges(t *testing.T) {
	cmd := commandtest.New(t, "bpf-check", "-o", "json")
	dropPrivileges(t, cmd)
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitUnusable, got.Code, got.Stderr)
	report := requireValid(t, got.Stdout)
	require.Equal(t, check.Unusable, report.Status)
	for _, p := range report.Probes {
		require.NotContains(t, p.Rung, "tp", "no hook of the kernel's")
		for _, a := range p.Attempts {
			require.NotEqual(t, a.Outcome == probe.OK, a.Reason != "", "%+v", a)
			require.NotEqual(t, probe.Silent, a.Outcome, "what cannot work is not waited for: %+v", a)
		}
	}
	for _, f := range report.Environment {
		if f.ID == "process.uid" {
			require.Equal(t, check.Limits, f.State)
		}
	}
}

func TestBPFCheckReportsOnlyWhenToldTo(t *testing.T) {
	cmd := commandtest.New(t, "bpf-check", "-o", "json", "--report-only")
	dropPrivileges(t, cmd)
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitOK, got.Code, got.Stderr)
	require.Equal(t, check.Unusable, requireValid(t, got.Stdout).Status)
}

func TestRequiredPatternsDecideTheExitCode(t *testing.T) {
	logAlone := machineWith(t, works, denied)
	unnamed := works // everything but identity
	unnamed.Offers, unnamed.Delivers = check.Features(), slices.DeleteFunc(check.Features(), func(f check.Feature) bool { return f == check.Identity })
	for name, tt := range map[string]struct {
		report bpfCheckReport
		wanted []string
		code   int
		says   []string
	}{
		"full":          {machineWith(t, works, rest), []string{"gpu_lost", "host_oom_kill"}, exitOK, nil},
		"others' blind": {machineWith(t, works, rest, denied), []string{"gpu_lost"}, exitOK, nil},
		"blind": {logAlone, []string{"host_oom_kill"}, exitUnusable, []string{
			"required pattern host_oom_kill is blind here", "needs oom_kills", "oom_kills comes from the probe oomkill: give it CAP_BPF",
		}},
		"degraded":     {machineWith(t, unnamed), []string{"gpu_lost"}, exitDegraded, []string{"gpu_lost is degraded here", "needs process_identity"}},
		"the worst of": {logAlone, []string{"gpu_lost", "host_oom_kill"}, exitUnusable, []string{"gpu_lost is degraded", "host_oom_kill is blind"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := requirement(tt.report, tt.wanted)
			if tt.code == exitOK {
				require.NoError(t, err)
				return
			}
			require.Equal(t, tt.code, exitCode(err))
			for _, want := range tt.says {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestRequireUsage(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"a slip":             {[]string{"--require", "gpu_lots"}, `did you mean "gpu_lost"?`},
		"several":            {[]string{"--require", "gpu_lost,nonsense_at_all", "--require", "99"}, `no pattern "99"`},
		"with --report-only": {[]string{"--require", "gpu_lost", "--report-only"}, "contradict each other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := commandtest.Finish(t, commandtest.New(t, append([]string{"bpf-check"}, tt.args...)...))
			require.Equal(t, exitUsage, got.Code, got.Stderr)
			require.Contains(t, got.Stderr, tt.says)
			require.Empty(t, got.Stdout, "nothing was checked")
		})
	}
}

func TestRequireWithoutPrivilegesSaysWhatToDo(t *testing.T) {
	cmd := commandtest.New(t, "bpf-check", "--require", "18,host_oom_kill")
	dropPrivileges(t, cmd)
	got := commandtest.Finish(t, cmd)
	require.Equal(t, exitUnusable, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "required pattern gpu_lost is blind here")
	require.Contains(t, got.Stderr, "oom_kills comes from the probe oomkill: ")
	require.Contains(t, got.Stderr, "CAP_BPF")
}

func TestSchemaIsPrintedForUsers(t *testing.T) {
	got := commandtest.Finish(t, commandtest.New(t, "bpf-check", "--schema"))
	require.Equal(t, exitOK, got.Code, got.Stderr)
	var printed schema
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &printed))
	require.Equal(t, readSchema(t), &printed)
}
