package command

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/tracecoreai/tracecore/distro/internal/attributes"
	"github.com/tracecoreai/tracecore/distro/internal/replay"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/rule"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// reportFlags are the options of report as they are given.
type reportFlags struct {
	replayFlags
	incident, out string
	history       asking
}

// mostKept bounds the verdicts that are kept until one incident is chosen.
const mostKept = 100_000

func newIncidentReport() *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report INCIDENT|JOB|FILE|DIR...",
		Short: "Writes one incident as a page to send, print and keep: HTML, Markdown or JSON",
		Long: "Writes one incident: what broke, what to do, what it led to, a timeline, what was seen and what was not,\n" +
			"what was near, and the evidence as it came. The HTML is one file without scripts that requests nothing.\n\n" +
			"INCIDENT and JOB are asked of the tracecore that runs on this machine, or of the one at --address: `tracecore incidents`\n" +
			"lists both. FILE is what replay reads, or JSON: verdicts as replay -o json and the terminal write them, or an incident as\n" +
			"report writes it. A name that is no file here is asked for. Of several incidents the most severe is taken; --incident\n" +
			"takes another.\n\n" +
			"Exit codes: 0 written, 4 written, but some of the input could not be read, 3 nothing could be read, 2 wrong usage,\n" +
			"1 no such incident, tracecore is not reachable, or internal error.",
		Example: "  tracecore report llm-pretrain -o incident.html\n  tracecore report /var/log/tracecore/recording -o incident.md",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, paths []string) error { return f.run(cmd, paths) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.out, "output", "o", "", "file to write: NAME.html, NAME.md or NAME.json")
	flags.StringVar(&f.incident, "incident", "", "id of the incident, or how it begins")
	f.history.addressFlag(cmd)
	f.recordingFlags(cmd)
	return cmd
}

// writers are the forms of a report, by the end of the file's name.
var writers = map[string]func(io.Writer, incidentview.View) error{
	".html": incidentview.WriteHTML,
	".md":   incidentview.WriteMarkdown,
	".json": incidentview.WriteJSON,
}

func (f *reportFlags) run(cmd *cobra.Command, paths []string) error {
	form, known := writers[strings.ToLower(filepath.Ext(f.out))]
	if f.out == "" {
		return usage(errors.New("report writes a file: name it with -o NAME.html, NAME.md or NAME.json"))
	}
	if !known {
		return usage(fmt.Errorf("-o %q: name the file to write as NAME.html, NAME.md or NAME.json", f.out))
	}
	if slices.Contains(paths, replay.Stdin) {
		return usage(errors.New("report reads its input twice: give a file, not standard input"))
	}
	v, unread, err := f.view(cmd, paths)
	if err != nil {
		return err
	}
	if err := writeFile(f.out, func(w io.Writer) error { return form(w, v) }); err != nil {
		return fmt.Errorf("write %s: %w", f.out, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: incident %s: %s\n", f.out, v.ID, v.Headline)
	if unread {
		return exitError{code: exitDegraded}
	}
	return nil
}

// view makes the view of the incident; unread says that some input was left out.
func (f *reportFlags) view(cmd *cobra.Command, paths []string) (v incidentview.View, unread bool, err error) {
	if len(paths) == 1 && !isPath(paths[0]) {
		v, err := f.kept(cmd, paths[0])
		return v, false, err
	}
	if len(paths) == 1 {
		switch v, verdicts, err := readIncident(paths[0]); {
		case err != nil:
			return v, false, err
		case v.ID != "":
			return v, false, f.matches(v.ID)
		case len(verdicts) > 0:
			incident, _, err := f.choose(cmd.ErrOrStderr(), verdicts)
			if err != nil {
				return v, false, err
			}
			v = incidentview.Build(incident, incidentview.Options{Now: time.Now(), Version: version})
			v.Made.From, v.Made.Hashes = provenance(paths)
			return v, false, nil
		}
	}
	return f.recorded(cmd, paths)
}

func (f *reportFlags) matches(id string) error {
	if !strings.HasPrefix(id, f.incident) {
		return fmt.Errorf("--incident %s: what is given has incident %s", f.incident, id)
	}
	return nil
}

// recorded makes the view of an incident of a recording.
func (f *reportFlags) recorded(cmd *cobra.Command, paths []string) (incidentview.View, bool, error) {
	verdicts, result, err := f.play(cmd, paths)
	if err != nil {
		return incidentview.View{}, false, err
	}
	if result.Unread > 0 && result.Records == 0 {
		return incidentview.View{}, false, exitError{code: exitUnusable}
	}
	quiet, err := f.quietly()
	if err != nil {
		return incidentview.View{}, false, err
	}
	if len(verdicts) == 0 {
		if verdicts, err = recordedVerdicts(cmd.Context(), paths, quiet); err != nil {
			return incidentview.View{}, false, err
		}
	}
	incident, others, err := f.choose(cmd.ErrOrStderr(), verdicts)
	if err != nil {
		return incidentview.View{}, false, err
	}
	v, err := withRecords(cmd.Context(), paths, quiet, incident, &result)
	if err != nil {
		return incidentview.View{}, false, err
	}
	v.Made.Others, v.Made.Again = others, again(paths, v.ID, f.out)
	v.Made.From, v.Made.Hashes = provenance(paths)
	v.Made.Flaws = append(v.Made.Flaws, flaws(&result, f.lateness)...)
	return v, result.Unread > 0, nil
}

// withRecords reads the recording once more, for what stood beside the verdicts.
func withRecords(ctx context.Context, paths []string, o replay.Options, incident []verdict.Verdict, result *replay.Result) (incidentview.View, error) {
	records := incidentview.NewRecords(incident)
	err := replay.Scan(ctx, paths, o, func(logs plog.Logs, metrics pmetric.Metrics) {
		records.Logs(logs)
		records.Metrics(metrics)
	})
	if err != nil {
		return incidentview.View{}, fmt.Errorf("report: %w", err)
	}
	known, err := attributes.LoadVocabulary()
	if err != nil {
		return incidentview.View{}, err
	}
	feeds := records.Feeds(func(source string) []string {
		return append(slices.Clone(known.Events[source].Emitters), known.Metrics[source].Emitters...)
	}, func(pattern, evidence string) time.Time {
		for _, h := range result.Heard {
			if h.Pattern == pattern && h.Evidence == evidence && h.At > 0 {
				return time.Unix(0, h.At)
			}
		}
		return time.Time{}
	}, result.Agents, result.Last)
	return incidentview.Build(incident, incidentview.Options{Now: time.Now(), Version: version, Until: result.Last, Records: records, Feeds: feeds}), nil
}

// recordedVerdicts are those that a running tracecore wrote into the recording.
func recordedVerdicts(ctx context.Context, paths []string, o replay.Options) ([]verdict.Verdict, error) {
	newest := map[string]verdict.Verdict{}
	err := replay.Scan(ctx, paths, o, func(logs plog.Logs, _ pmetric.Metrics) {
		for _, resource := range logs.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, record := range scope.LogRecords().All() {
					v, err := verdict.FromRecord(record)
					known, there := newest[v.ID]
					if err == nil && (there && v.Revision > known.Revision || !there && len(newest) < mostKept) {
						newest[v.ID] = v
					}
				}
			}
		}
	})
	return slices.Collect(maps.Values(newest)), err
}

// choose takes the incident that was asked for, or the most severe.
func (f *reportFlags) choose(w io.Writer, verdicts []verdict.Verdict) (incident []verdict.Verdict, others int, err error) {
	incidents := verdict.Incidents(verdicts)
	if len(incidents) == 0 {
		return nil, 0, errors.New("nothing is wrong that tracecore can see there: no incident, no report")
	}
	slices.SortStableFunc(incidents, func(a, b []verdict.Verdict) int {
		return cmp.Or(b[0].Severity.Compare(a[0].Severity), len(b[0].BlastRadius)-len(a[0].BlastRadius), len(b)-len(a))
	})
	return f.among(w, incidents)
}

// among takes the incident that was asked for, or the first.
func (f *reportFlags) among(w io.Writer, incidents [][]verdict.Verdict) (incident []verdict.Verdict, others int, err error) {
	fit := slices.DeleteFunc(slices.Clone(incidents), func(i []verdict.Verdict) bool { return !strings.HasPrefix(i[0].IncidentID, f.incident) })
	switch {
	case len(fit) == 0:
		list(w, incidents)
		return nil, 0, fmt.Errorf("--incident %s: there is none; see the list above", f.incident)
	case len(fit) > 1 && f.incident != "":
		list(w, fit)
		return nil, 0, fmt.Errorf("--incident %s: %d incidents begin so: write more of the id", f.incident, len(fit))
	case len(incidents) > 1 && f.incident == "":
		fmt.Fprintf(w, "%d incidents; the first is taken, --incident takes another:\n", len(incidents))
		list(w, incidents)
	}
	return fit[0], len(incidents) - 1, nil
}

// list names incidents, as many as a screen has room for.
func list(w io.Writer, incidents [][]verdict.Verdict) {
	const most = 20
	for _, incident := range incidents[:min(len(incidents), most)] {
		head := incident[0]
		fmt.Fprintf(w, "  %s  %-8s  %s\n", head.IncidentID, head.Severity, safetext.Clip(head.Headline, 120))
	}
	if over := len(incidents) - most; over > 0 {
		fmt.Fprintf(w, "  and %d more\n", over)
	}
}

// mostFirst bounds the first JSON value of a file that is looked at: an incident, or a
// verdict.
const mostFirst = incidentview.MaxBytes

// readIncident reads JSON: an incident, or verdicts one after the other. Neither is given
// where the file is something else.
func readIncident(path string) (v incidentview.View, verdicts []verdict.Verdict, err error) {
	file, err := os.Open(path)
	if err != nil {
		return v, nil, nil //nolint:nilerr // the replay says what is wrong with it
	}
	defer file.Close()
	in := bufio.NewReader(file)
	if head, err := in.Peek(1); err != nil || head[0] != '{' {
		return v, nil, nil
	}
	limited := &io.LimitedReader{R: in, N: mostFirst}
	decoder := json.NewDecoder(limited)
	for {
		var one json.RawMessage
		err := decoder.Decode(&one)
		switch {
		case errors.Is(err, io.EOF):
			return v, verdicts, nil
		case err != nil && len(verdicts) == 0:
			return v, nil, nil
		case err != nil:
			return v, nil, fmt.Errorf("%s: byte %d: %w", path, decoder.InputOffset(), err)
		case len(verdicts) == 0 && !isVerdict(one):
			v, err := incidentview.FromJSON(one)
			if err != nil && !errors.Is(err, incidentview.ErrNotView) {
				return v, nil, fmt.Errorf("%s: %w", path, err)
			}
			return v, nil, nil
		}
		next, err := verdict.FromJSON(one)
		if err != nil {
			return v, nil, fmt.Errorf("%s: byte %d: %w", path, decoder.InputOffset(), err)
		}
		if len(verdicts) == mostKept {
			return v, nil, fmt.Errorf("%s: more than %d verdicts: give those of one incident", path, mostKept)
		}
		verdicts, limited.N = append(verdicts, next), mostFirst
	}
}

// isVerdict reports whether a JSON text says that it is a verdict.
func isVerdict(text json.RawMessage) bool {
	var head struct {
		ID *json.RawMessage `json:"verdict_id"`
	}
	return json.Unmarshal(text, &head) == nil && head.ID != nil
}

// provenance names the files and what they held.
func provenance(paths []string) (names, hashes []string) {
	const most, largest = 8, 1 << 30
	for _, path := range paths[:min(len(paths), most)] {
		names = append(names, filepath.Base(path))
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() > largest {
			continue
		}
		if file, err := os.Open(path); err == nil {
			hash := sha256.New()
			if _, err := io.Copy(hash, file); err == nil {
				hashes = append(hashes, hex.EncodeToString(hash.Sum(nil))+"  "+filepath.Base(path))
			}
			_ = file.Close()
		}
	}
	return names, hashes
}

// again is the command that makes the report again.
func again(paths []string, id, out string) string {
	words := []string{"tracecore", "report", "--incident", id, "-o", rule.ShellWord(filepath.Base(out))}
	for _, path := range paths {
		words = append(words, rule.ShellWord(filepath.Base(path)))
	}
	return strings.Join(words, " ")
}

// flaws say what did not count.
func flaws(r *replay.Result, lateness time.Duration) []string {
	var b bytes.Buffer
	summarize(&b, r, lateness)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return append(lines[1:], r.Notes...) // the first says what was read
}

// writeFile writes a whole file or none.
func writeFile(path string, write func(io.Writer) error) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temporary.Name())
		}
	}()
	w := bufio.NewWriter(temporary)
	if err := errors.Join(write(w), w.Flush(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}
