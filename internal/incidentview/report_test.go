package incidentview

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "go test ./internal/incidentview -update, and look at what changed")
}

func rendered(t testing.TB, v View) (page, markdown, jsonText []byte) {
	t.Helper()
	var buffers [3]bytes.Buffer
	require.NoError(t, WriteHTML(&buffers[0], v))
	require.NoError(t, WriteMarkdown(&buffers[1], v))
	require.NoError(t, WriteJSON(&buffers[2], v))
	return buffers[0].Bytes(), buffers[1].Bytes(), buffers[2].Bytes()
}

// A job of 64 ranks, as everybody sees it; the page of the largest is too long to read.
func TestReportOfAJobThatStopped(t *testing.T) {
	page, markdown, jsonText := rendered(t, checkpointStops(64).view(t))
	golden(t, "checkpoint.html", page)
	golden(t, "checkpoint.md", markdown)
	golden(t, "checkpoint.json", jsonText)
}

func TestReportOfTheLargestIncidentIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("6,000 records through all patterns")
	}
	v := checkpointStops(1024).view(t)
	page, markdown, jsonText := rendered(t, v)
	valid(t, page)
	const most = 2 << 20
	require.Less(t, len(page), most)
	require.Less(t, len(jsonText), most)
	require.Less(t, len(markdown), most)
	require.Equal(t, Ranks{Count: 1024, Ranges: "0-1023"}, v.Ranks)
	require.Equal(t, Ranks{Count: 1023, Ranges: "0-516,518-1023"}, *v.Dead)
	require.Len(t, v.Stacks, 3)
	require.Equal(t, Ranks{Count: 1, Ranges: "517"}, v.Stacks[0].Ranks)
	require.Equal(t, "save_checkpoint", v.Stacks[0].Frames[v.Stacks[0].Here-1].Function)
	require.Equal(t, Ranks{Count: 1022, Ranges: "0,2-516,518-1023"}, v.Stacks[1].Ranks)
	require.Equal(t, "train_step", v.Stacks[1].Frames[v.Stacks[1].Here-1].Function)
	require.Equal(t, 1, v.Stacks[0].Shared, "<module>")
	require.Contains(t, v.Stacks[2].Unread, "not resident")
	levels := v.Lanes[len(v.Lanes)-1].Levels
	require.LessOrEqual(t, len(levels), mostLevels+1)
	most64 := 0
	for _, l := range levels {
		most64 = max(most64, l.Waiting)
	}
	require.Equal(t, 1023, most64)
	require.Equal(t, 1023, levels[len(levels)-1].Dead)
	require.Zero(t, levels[len(levels)-1].Waiting)
}

// Of scattered ranks a view has the first, and how many there are is exact.
func TestScatteredRanksAreCutWhereTheyAreCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	one, two := poisoned("a"), poisoned("a")
	hit := map[int]bool{}
	for i, v := range []*verdict.Verdict{&one[0], &one[1], &two[1]} {
		v.BlastRadius, v.ID = nil, strconv.Itoa(i)
		for rank := range 16_384 {
			if random.IntN(3) == 0 {
				v.BlastRadius, hit[rank] = append(v.BlastRadius, rank), true
			}
		}
	}
	v := Build([]verdict.Verdict{one[0], one[1], two[1]}, Options{Now: began.Add(time.Hour)})
	require.Equal(t, len(hit), v.Ranks.Count)
	listed, err := verdict.ParseRanks(v.Ranks.Ranges)
	require.NoError(t, err)
	require.NotEmpty(t, listed)
	require.LessOrEqual(t, len(v.Ranks.Ranges), verdict.MaxRangesBytes)
	require.Equal(t, v.Ranks.Count, len(listed)+v.Ranks.More)
	for _, rank := range listed {
		require.True(t, hit[rank])
	}
	require.Equal(t, len(hit), v.Lost.Ranks)
	page, markdown, jsonText := rendered(t, v)
	for _, text := range [][]byte{page, markdown} {
		require.Contains(t, string(text), verdict.Number(len(hit))+" hit")
	}
	require.Len(t, v.Raw, 3, "verdicts as they came")
	require.Less(t, len(jsonText), 64_000)
	again, err := FromJSON(jsonText)
	require.NoError(t, err)
	require.Equal(t, v.Ranks, again.Ranks)

	many := Ranks{Count: 131_072, Ranges: "0-131071"} // more than any blast radius
	many.shorten()
	require.Equal(t, Ranks{Count: 131_072, Ranges: "0-131071"}, many)
	lies := Ranks{Count: 3, Ranges: "</script>"}
	lies.shorten()
	require.Equal(t, Ranks{Count: 3, More: 3}, lies)
}

func TestAViewInJSONIsTheSameView(t *testing.T) {
	v := checkpointStops(16).view(t)
	_, _, jsonText := rendered(t, v)
	again, err := FromJSON(jsonText)
	require.NoError(t, err)
	for i := range v.Raw { // their white space differs
		require.JSONEq(t, string(v.Raw[i].JSON), string(again.Raw[i].JSON))
		again.Raw[i].JSON = v.Raw[i].JSON
	}
	require.Equal(t, v, again)
}

func TestAReportNamesTheTrace(t *testing.T) {
	r := checkpointStops(16)
	incident := r.verdicts(t)
	for i := range incident {
		incident[i].Span = verdict.Span{TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7"}
	}
	page, markdown, jsonText := rendered(t, r.build(incident))
	require.Contains(t, string(page), "<dt>trace</dt><dd><code>4bf92f3577b34da6a3ce929d0e0e4736</code></dd>")
	require.Contains(t, string(markdown), "- trace `4bf92f3577b34da6a3ce929d0e0e4736`, span `00f067aa0ba902b7`")
	again, err := FromJSON(jsonText)
	require.NoError(t, err)
	require.Equal(t, incident[0].Span, again.Span)
}

func TestWhatIsNoIncidentIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no object": "[]", "another schema": `{"schema":"x"}`, "empty": `{"schema":"` + Schema + `"}`,
		"a wrong type": `{"schema":"` + Schema + `","headline":{}}`,
		"no severity":  `{"schema":"` + Schema + `","incident_id":"a","headline":"b","severity":"loud","status":"open"}`,
	} {
		_, err := FromJSON([]byte(text))
		require.Error(t, err, name)
	}
	_, err := FromJSON(make([]byte, MaxBytes+1))
	require.ErrorContains(t, err, "at most")
}

// poison is what a job can call itself, its mounts and its programs.
var poison = []string{
	"</script><script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</style><style>body{display:none}</style>", "javascript:alert(1)",
	"\x1b[31mred\x1b[0m\x07", "gnp.\u202eexe", "\u2066a\u2069\u200b\u00ad", "a\r\n\r\n# forged heading\n- item", "| cell | `code` ``` fence",
	"[link](http://evil.example) <http://evil.example> https://evil.example", "\xff\xfe\x00", "{{.}} {{template \"x\"}}", "<!-- -->", "]]>", "&lt;b&gt;",
	strings.Repeat("A", 1<<20), strings.Repeat("é<", 1<<18),
}

// poisoned is a verdict in which every text is one of these.
func poisoned(text string) []verdict.Verdict {
	v := verdict.Verdict{
		ID: text, IncidentID: text, Pattern: "fuse_stall", Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Error,
		Revision: 1, Onset: began, Updated: began.Add(time.Minute), Headline: text, Remediation: text, Boot: text,
		Culprit:     map[string]string{"host": text, "mount": text, "daemon": text, "daemon_pid": text, "daemon_state": text, "rank": text, "job": text, text: text, "opcode": text},
		BlastRadius: []int{1, 2, 5},
		Evidence:    []verdict.Evidence{{Name: text, Time: began, Last: began.Add(time.Second), Count: 3, Source: text, Shows: text}},
		NotObserved: []string{text}, Missing: []verdict.Missing{{Name: text, Text: text + "!", Sources: []string{text}}},
		Steps: []verdict.Step{{Text: text, Command: text, Effect: text, Target: text}, {Text: text, Command: "ls '" + text + "'", Effect: verdict.Changes, Target: text}},
	}
	symptom := v
	symptom.ID, symptom.Role, symptom.Pattern = "b", verdict.Symptom, text
	return []verdict.Verdict{v, symptom}
}

// poisonedRecords surround it.
func poisonedRecords(text string) *recording {
	r := &recording{}
	r.add(-time.Second, text, text, text, map[string]any{text: text, "process.pid": text, "gen_ai.training.job_id": text})
	r.add(-time.Second, "x", strings.ToValidUTF8(text, "\uFFFD"), text, map[string]any{"a": text, "b": []any{text}, "c": map[string]any{text: text}})
	r.add(time.Second, text, text, text, map[string]any{text: text})
	r.add(time.Second, "nccl.socket.stall", text, text, map[string]any{"gen_ai.training.job_id": text, "gen_ai.training.rank": text, "nccl.socket.stall.age_ns": text})
	r.add(time.Second, "process.stack", text, text, map[string]any{
		"gen_ai.training.job_id": text, "gen_ai.training.rank": 2, "process.stack.hash": text, "process.stack.wait_class": text, "process.stack.state": text,
		"process.stack.native": []any{text, 1}, "process.stack.frames": []any{map[string]any{"code.function.name": text, "code.file.path": text, "code.line.number": text}, text, 1},
		"process.stack.kernel_function": text, "process.stack.unread": []any{text}, "code.function.name": text, "code.line.number": text,
	})
	r.add(time.Second, "process.exit", text, text, map[string]any{"gen_ai.training.job_id": text, "gen_ai.training.rank": 3})
	return r
}

func TestHostileTextIsShownForWhatItIs(t *testing.T) {
	for i, text := range poison {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			v := poisonedRecords(text).build(verdict.Merge(nil, poisoned(text)))
			// It also comes through a file.
			data, err := json.Marshal(v)
			require.NoError(t, err)
			again, err := FromJSON(data)
			require.NoError(t, err)
			for _, v := range []View{v, again, raw(text)} {
				page, markdown, jsonText := rendered(t, v)
				valid(t, page)
				safeMarkdown(t, markdown)
				for _, out := range [][]byte{page, markdown, jsonText} {
					require.Less(t, len(out), 2<<20)
					require.Regexp(t, `^[\P{C}\n\t]*$`, string(out), "control and format characters")
				}
				require.NotContains(t, string(jsonText), "<")
				require.True(t, json.Valid(jsonText))
			}
		})
	}
}

// raw is a view of which each text is poisoned after it was built, then read from JSON.
func raw(text string) View {
	v := checkpointView()
	fill(reflect.ValueOf(&v).Elem(), text)
	v.Schema, v.Severity, v.Status, v.ID, v.Headline = Schema, verdict.Error, verdict.Open, "x"+text, "x"+text
	data, err := json.Marshal(v)
	if err != nil {
		return View{}
	}
	v, _ = FromJSON(data)
	return v
}

// checkpointView has one of everything.
func checkpointView() View {
	at := began
	return View{
		Culprit: map[string]string{"a": "b"}, Dead: &Ranks{Count: 1}, Lost: &Lost{Ranks: 1, Seconds: 2, RankHours: 3}, Since: at, Updated: at, Resolved: &at,
		Do: []Step{{}, {}}, LedTo: []Link{{At: at}}, Lanes: []Lane{{Bars: []Bar{{From: at, To: at}}, Points: []Point{{At: at}}, Levels: []Level{{At: at, Waiting: 1}}}},
		Waits: []Wait{{}}, Stacks: []Stack{{Frames: []Frame{{}}}, {}}, Seen: []Seen{{At: at}}, NotSeen: []NotSeen{{Sources: []string{""}}}, Near: []Near{{At: at}}, Before: &Before{Kept: 2, Others: 1, Alike: []Earlier{{Since: at, Seconds: 2}}, More: 1},
		Raw: []Raw{{JSON: json.RawMessage(`{"a":"<b>\u202e"}`)}}, Made: Made{From: []string{""}, Hashes: []string{""}, Verdicts: []string{""}, Flaws: []string{""}},
	}
}

// fill writes text into every string of v.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		fill(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type() != timeType && v.Field(i).CanSet() {
				fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if v.Type() != rawType {
				fill(v.Index(i), text)
			}
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{text: text}))
	default:
	}
}

var elements = strings.Fields("html head meta title style body main header div span code p h1 h2 h3 dl dt dd small time section ol li pre i b table thead tbody tr th td details summary footer figure figcaption svg defs pattern line rect path text")

// valid reports whatever a page must not have: elements that are not closed in order, that
// load or run anything, or that the page has no use for; attributes that are code or
// addresses; more than one style.
func valid(t *testing.T, page []byte) {
	t.Helper()
	require.True(t, bytes.HasPrefix(page, []byte("<!doctype html>")))
	z := html.NewTokenizer(bytes.NewReader(page))
	var open []string
	styles, ids := 0, map[string]bool{}
	for {
		kind := z.Next()
		token := z.Token()
		switch kind {
		case html.ErrorToken:
			require.ErrorContains(t, z.Err(), "EOF")
			require.Empty(t, open, "not closed")
			require.Equal(t, 1, styles)
			reparsed(t, page)
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			require.Contains(t, elements, token.Data)
			attributes(t, token, ids)
			if token.Data == "style" {
				styles++
			}
			if kind == html.StartTagToken && token.DataAtom != atom.Meta {
				open = append(open, token.Data)
			}
		case html.EndTagToken:
			require.NotEmpty(t, open)
			require.Equal(t, open[len(open)-1], token.Data, "closed out of order")
			open = open[:len(open)-1]
		case html.CommentToken:
			require.Fail(t, "a comment", token.Data)
		default:
		}
	}
}

func attributes(t *testing.T, token html.Token, ids map[string]bool) {
	t.Helper()
	known := strings.Fields("lang charset name content http-equiv class id datetime tabindex aria-labelledby aria-label role scope viewbox width height patternunits patterntransform x x1 x2 y y1 y2 d fill stroke-width stroke-dasharray text-anchor")
	for _, a := range token.Attr {
		require.Contains(t, known, strings.ToLower(a.Key), "<%s %s>", token.Data, a.Key)
		if a.Key == "id" {
			require.False(t, ids[a.Val], "id %s twice", a.Val)
			ids[a.Val] = true
		}
		if a.Key == "fill" {
			require.Regexp(t, `^url\(#hatch-(wide|narrow)\)$`, a.Val)
		}
	}
}

// reparsed reports a page that a browser would read as another tree.
func reparsed(t *testing.T, page []byte) {
	t.Helper()
	tree, err := html.Parse(bytes.NewReader(page))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, html.Render(&b, tree))
	again, err := html.Parse(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	require.Equal(t, outline(tree), outline(again))
	require.Equal(t, bytes.Count(page, []byte("<section")), strings.Count(outline(tree), "section "))
}

func outline(n *html.Node) string {
	var b strings.Builder
	for node := range n.Descendants() {
		if node.Type == html.ElementNode {
			b.WriteString(node.Data + " ")
		}
	}
	return b.String()
}

var (
	codeBlock   = regexp.MustCompile("(?ms)^   (`{3,})sh\n.*?\n   `{3,}$")
	escapedMark = regexp.MustCompile(`\\[^\n]`)
	codeSpan    = regexp.MustCompile("`+[^`\n]*`+")
)

// safeMarkdown reports what a stranger's text became: markup, a link, a line of its own.
func safeMarkdown(t *testing.T, text []byte) {
	t.Helper()
	prose := escapedMark.ReplaceAllString(codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(string(text), ""), ""), "")
	require.NotContains(t, prose, "<")
	require.NotContains(t, prose, "](")
	require.NotContains(t, prose, "://")
	headings := regexp.MustCompile(`(?m)^#+ .*$`).FindAllString(prose, -1)
	require.NotEmpty(t, headings)
	for _, h := range headings[1:] {
		require.Contains(t, []string{"## Do", "## Led to", "## Who waits", "## Stacks", "## Seen", "## Not seen", "## Near", "## Before", "## Made of"}, h)
	}
	for _, r := range string(text) {
		require.True(t, unicode.IsPrint(r) || r == '\n', "%q", r)
	}
}

func BenchmarkReportOf1024Ranks(b *testing.B) {
	r := checkpointStops(1024)
	incidents := verdict.Incidents(r.verdicts(b))
	b.Run("records", func(b *testing.B) {
		for b.Loop() {
			r.build(incidents[0])
		}
	})
	v := r.build(incidents[0])
	b.Run("html", func(b *testing.B) {
		for b.Loop() {
			page, _, _ := rendered(b, v)
			b.ReportMetric(float64(len(page)), "bytes")
		}
	})
}

func TestSinceWhen(t *testing.T) {
	since := time.Date(2026, 11, 22, 3, 12, 4, 0, time.UTC)
	for age, want := range map[time.Duration]string{
		0: "at the time of this report", time.Millisecond: "1 ms before this report", 90 * time.Second: "1 min 30 s before this report", -time.Second: "",
	} {
		v := View{}
		v.Since, v.Made.At = since, since.Add(age)
		require.Equal(t, want, sinceWords(v))
	}
}
