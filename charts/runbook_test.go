package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// kubectlVariable makes this test binary the kubectl (and ssh) of the runbook:
// it checks that what is asked for is in the chart, and answers from the folder
// that the variable names.
const kubectlVariable = "TRACECORE_RUNBOOK"

func TestMain(m *testing.M) {
	dir := os.Getenv(kubectlVariable)
	switch {
	case dir == "":
		os.Exit(m.Run())
	case filepath.Base(os.Args[0]) == "ssh":
		os.Exit(answer(dir, []string{"kernel-log"}))
	}
	if err := kubectl(dir, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		os.Exit(1)
	}
}

// answer prints a recorded answer.
func answer(dir string, names []string) int {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		os.Stdout.Write(text)
	}
	return 0
}

// kubectl checks labels, namespace, pod, port and container of a command against
// the rendered chart.
func kubectl(dir string, args []string) error {
	known, err := os.ReadFile(filepath.Join(dir, "tiers.yaml"))
	if err != nil {
		return err
	}
	var tiers map[string]tier
	if err := yaml.Unmarshal(known, &tiers); err != nil {
		return err
	}
	if args[0] == "get" && args[1] == "--raw" {
		if !regexp.MustCompile(fmt.Sprintf(`^/api/v1/namespaces/tracecore/pods/tracecore-x7k2p:%d/proxy/metrics$`, tiers["agent"].Metrics)).MatchString(args[2]) {
			return fmt.Errorf("no pod has metrics at %s", args[2])
		}
		return failed(answer(dir, []string{"metrics"}))
	}
	if args[0] == "patch" {
		return patchesOwnCondition(args)
	}
	if args[0] != "-n" || args[1] != "tracecore" {
		return fmt.Errorf("the chart is in namespace tracecore: %v", args)
	}
	return asked(dir, args[2], args[3:], tiers)
}

// patchesOwnCondition checks the one change that the runbook makes to a node;
// charts/cluster gives the same command to an API server.
func patchesOwnCondition(args []string) error {
	if strings.Join(args[:4], " ") != "patch node node-17 --subresource=status" || args[4] != "-p" {
		return fmt.Errorf("the runbook changes conditions of its node alone: %v", args)
	}
	var patch struct{ Status corev1.NodeStatus }
	if err := json.Unmarshal([]byte(args[5]), &patch); err != nil {
		return err
	}
	if len(patch.Status.Conditions) != 1 || !strings.HasPrefix(string(patch.Status.Conditions[0].Type), "Tracecore") {
		return fmt.Errorf("that is not one condition of ours: %s", args[5])
	}
	return nil
}

// tier is what the runbook may rely on.
type tier struct {
	Labels     map[string]string
	Containers []string
	Metrics    int
}

func failed(code int) error {
	if code != 0 {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

func asked(dir, verb string, args []string, tiers map[string]tier) error {
	of, err := selected(args, tiers)
	if err != nil {
		return err
	}
	switch verb {
	case "logs":
		at := slices.Index(args, "-c")
		if at < 0 || !slices.Contains(of.Containers, args[at+1]) {
			return fmt.Errorf("the pod has containers %v, asked was for %v", of.Containers, args)
		}
		return failed(answer(dir, []string{args[at+1] + ".log"}))
	case "get":
		if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "jsonpath=") }) {
			fmt.Println("tracecore-x7k2p")
		}
		return nil
	case "describe", "delete":
		return nil
	}
	return fmt.Errorf("the runbook's test does not know %s", verb)
}

// selected is the tier that a label selector or the agent's pod name means.
func selected(args []string, tiers map[string]tier) (tier, error) {
	at := slices.Index(args, "-l")
	if at < 0 {
		if !slices.Contains(args, "tracecore-x7k2p") {
			return tier{}, fmt.Errorf("no pod is named in %v", args)
		}
		return tiers["agent"], nil
	}
	if args[at+1] == "kubernetes.io/service-name=tracecore-gateway" {
		return tiers["gateway"], nil
	}
	for _, t := range tiers {
		fits := true
		for _, want := range strings.Split(args[at+1], ",") {
			key, value, _ := strings.Cut(want, "=")
			fits = fits && t.Labels[key] == value
		}
		if fits {
			return t, nil
		}
	}
	return tier{}, fmt.Errorf("no pod of the chart has the labels %s", args[at+1])
}

// tiersOf reads the pods of the chart as the runbook installs it.
func tiersOf(t *testing.T) map[string]tier {
	t.Helper()
	rendered, err := run(t, tool(t, ".cache/bin/helm"), "template", "tracecore", "tracecore", "-n", "tracecore", "--kube-version", kubeVersion, "--set", "gateway.enabled=true")
	require.NoError(t, err, rendered)
	require.Contains(t, rendered, "name: tracecore-gateway\n")
	tiers := map[string]tier{}
	for _, part := range strings.Split(rendered, "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				Template struct {
					Metadata struct{ Labels map[string]string }
					Spec     struct {
						Containers []container
						Before     []container `yaml:"initContainers"`
					}
				}
			}
		}
		require.NoError(t, yaml.Unmarshal([]byte(part), &object))
		if object.Kind != "DaemonSet" && object.Kind != "StatefulSet" {
			continue
		}
		one := tier{Labels: object.Spec.Template.Metadata.Labels}
		for _, c := range slices.Concat(object.Spec.Template.Spec.Before, object.Spec.Template.Spec.Containers) {
			one.Containers = append(one.Containers, c.Name)
			for _, port := range c.Ports {
				if port.Name == "metrics" {
					one.Metrics = port.Number
				}
			}
		}
		tiers[one.Labels["app.kubernetes.io/component"]] = one
	}
	require.Len(t, tiers, 3)
	return tiers
}

type container struct {
	Name  string
	Ports []struct {
		Name   string
		Number int `yaml:"containerPort"`
	}
}

// record writes what the cluster of the runbook answers.
func record(t *testing.T, binary string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	tiers, err := yaml.Marshal(tiersOf(t))
	require.NoError(t, err)
	write("tiers.yaml", string(tiers))
	kernel, err := os.ReadFile("testdata/node-17.json")
	require.NoError(t, err)
	write("kernel-log", string(kernel))
	// What the agent saw as the driver wrote it; a saved kernel log shows no writer.
	verdicts, err := run(t, binary, "replay", "testdata/agent-node-17.json")
	require.NoError(t, err, verdicts)
	write("tracecore.log", verdicts)
	check, err := run(t, binary, "bpf-check", "--report-only")
	require.NoError(t, err, check)
	write("bpf-check.log", check)
	write("metrics", metricsOfACollector(t))
	return dir
}

// block is a command of the runbook and lines that its output must have.
type block struct {
	commands string
	expected []string
}

func blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile("../RUNBOOK.md")
	require.NoError(t, err)
	var all []block
	for _, found := range regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if found[1] == "sh" {
			all = append(all, block{commands: found[2]})
			continue
		}
		last := &all[len(all)-1]
		require.Empty(t, last.expected)
		last.expected = strings.Split(strings.TrimSuffix(found[2], "\n"), "\n")
	}
	require.GreaterOrEqual(t, len(all), 12)
	require.Equal(t, strings.Count(string(text), "```"), 2*(len(all)+countExpected(all)), "a block is neither sh nor text")
	return all
}

func countExpected(all []block) (n int) {
	for _, one := range all {
		if len(one.expected) > 0 {
			n++
		}
	}
	return n
}

func TestRunbooksCommandsRun(t *testing.T) {
	binary := tool(t, "bin/tracecore")
	hosttest.Require(t, "a drill writes to the kernel log")
	work, path := t.TempDir(), t.TempDir()
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	charts, err := filepath.Abs(".")
	require.NoError(t, err)
	for name, target := range map[string]string{"kubectl": self, "ssh": self, "tracecore": binary, "helm": tool(t, ".cache/bin/helm")} {
		require.NoError(t, os.Symlink(target, filepath.Join(path, name)))
	}
	require.NoError(t, os.Symlink(charts, filepath.Join(work, "charts")))
	environment := append(os.Environ(), "PATH="+path+":"+os.Getenv("PATH"), kubectlVariable+"="+record(t, binary))
	session := ""
	for _, one := range blocks(t) {
		// Variables of earlier blocks hold in later ones.
		command := exec.Command("bash", "-euo", "pipefail", "-c", session+one.commands)
		command.Dir, command.Env = work, environment
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s\n%s", one.commands, out)
		for _, line := range one.expected {
			require.Contains(t, string(out), line, one.commands)
		}
		for _, line := range strings.Split(one.commands, "\n") {
			if regexp.MustCompile(`^[A-Z]+=`).MatchString(line) {
				session += line + "\n"
			}
		}
	}
	require.FileExists(t, filepath.Join(work, "verdicts.json"))
}
