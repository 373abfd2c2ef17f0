package historyextension

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tracecoreai/tracecore/extensions/historyextension/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/gate"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/incidentview"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

var onset = time.Date(2026, 11, 20, 14, 2, 11, 531_000_000, time.UTC)

// hostile is text that a terminal, a page or a table must not take as it is.
const hostile = "\x1b[2J</script><b>\u202egnp\u2066\ttab\nline\x00"

func lost(incident, host string) verdict.Verdict {
	return verdict.Verdict{
		ID: "gpu_lost-" + incident, IncidentID: incident, PatternID: 18, Pattern: "gpu_lost",
		Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Critical, Revision: 1,
		Onset: onset, Updated: onset, Headline: "GPU lost on " + host, Remediation: "Restart the machine.",
		Culprit:  map[string]string{"host": host, "job": "llm"},
		Evidence: []verdict.Evidence{{Name: "lost", Time: onset, Count: 1, Source: "gpu.lost", Shows: "it fell off the bus"}},
	}
}

// bench is a history that answers.
type bench struct {
	*keeper
	said *observer.ObservedLogs
	url  string
	late atomic.Int64 // by how much its clock is ahead of an hour after onset
}

// shortDir is a folder with a name that a socket's address has room for (108 bytes).
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "h")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return filepath.Join(dir, "history")
}

func newBench(t *testing.T, dir, address string) *bench {
	t.Helper()
	config := createDefaultConfig().(*Config)
	config.Directory, config.HTTP.NetAddr.Endpoint = dir, address
	set := extensiontest.NewNopSettings(metadata.Type)
	core, said := observer.New(zap.InfoLevel)
	set.Logger = zap.New(core)
	b := &bench{said: said, url: "http://" + address}
	k, err := newKeeper(set, config, func() time.Time { return onset.Add(time.Hour + time.Duration(b.late.Load())) })
	require.NoError(t, err)
	b.keeper, k.hostname = k, "node-17"
	require.NoError(t, k.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, k.Shutdown(context.Background())) })
	return b
}

func started(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, shortDir(t), hosttest.FreeAddress(t))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", b.config.HTTP.NetAddr.Endpoint)
		if err != nil {
			return false
		}
		_ = c.Close()
		c, err = net.Dial("unix", filepath.Join(b.config.Directory, SocketName))
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, hosttest.Patience, time.Millisecond)
	return b
}

// ask returns an answer that obeys the published schema.
func (b *bench) ask(t *testing.T, method, path, host string) (int, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, b.url+path, nil)
	require.NoError(t, err)
	request.Host = host
	return answered(t, http.DefaultClient, request)
}

func (b *bench) overSocket(t *testing.T, method, path, body string) (int, []byte) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.config.Directory, SocketName))
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://tracecore"+path, strings.NewReader(body))
	require.NoError(t, err)
	return answered(t, &http.Client{Transport: transport}, request)
}

func answered(t *testing.T, client *http.Client, request *http.Request) (int, []byte) {
	t.Helper()
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "application/json", response.Header.Get("Content-Type"), "%s", body)
	requireObeys(t, body)
	return response.StatusCode, body
}

// published is the schema of the answers with that of a verdict, read once; reported that of
// an incident as it is reported.
var (
	published = sync.OnceValues(func() (*jsonschema.Schema, error) {
		return compiled("https://github.com/tracecoreai/tracecore/internal/history/history.schema.json")
	})
	reported = sync.OnceValues(func() (*jsonschema.Schema, error) {
		return compiled("https://github.com/tracecoreai/tracecore/internal/incidentview/incident.schema.json")
	})
)

func compiled(id string) (*jsonschema.Schema, error) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, path := range []string{"../../patterns/verdict/schema.json", "../../internal/history/history.schema.json", "../../internal/incidentview/incident.schema.json"} {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return nil, err
		}
		if err := compiler.AddResource(value.(map[string]any)["$id"].(string), value); err != nil {
			return nil, err
		}
	}
	return compiler.Compile(id)
}

func requireObeys(t *testing.T, body []byte) {
	t.Helper()
	of := published
	if bytes.HasPrefix(body, []byte(`{"schema":"tracecore.incident/`)) {
		of = reported
	}
	schema, err := of()
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err, "%s", body)
	require.NoError(t, schema.Validate(value), "%s", body)
	for _, r := range string(bytes.TrimSpace(body)) {
		require.True(t, r >= ' ' && r != '\u202e' && r != '<', "%q in %s", r, body)
	}
}

func TestIncidentsAreAnswered(t *testing.T) {
	b := started(t)
	bad := lost("inc-2", hostile)
	bad.Headline, bad.Pattern, bad.Culprit["job"] = hostile, hostile, hostile
	bad.Evidence[0].Shows, bad.Remediation = hostile, hostile
	bad.Onset = onset.Add(time.Second)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17"), verdict.Bounded(bad)}))
	require.NoError(t, b.Ranks(t.Context(), []history.Sighting{
		{Run: hostile, Job: hostile, Domain: hostile, Host: hostile, Rank: 3, World: 8, Began: onset, At: onset, Ended: true, Failed: hostile},
		{Run: "r", Job: "llm", Rank: 5, Began: onset, At: onset}, {Run: "r", Job: "llm", Rank: 6, Began: onset, At: onset}, {Run: "r", Job: "llm", Rank: -1},
	}))

	code, body := b.ask(t, http.MethodGet, "/v1/incidents", "")
	require.Equal(t, http.StatusOK, code)
	var list history.Incidents
	require.NoError(t, json.Unmarshal(body, &list))
	require.Equal(t, history.Head{Schema: history.Schema, Host: "node-17", At: onset.Add(time.Hour)}, list.Head)
	require.Equal(t, []string{"inc-2", "inc-1"}, []string{list.Incidents[0].ID, list.Incidents[1].ID})

	for path, want := range map[string]int{
		"/v1/incidents?job=llm&since=7d&open=true&limit=1": 200,
		"/v1/incidents?node=nobody":                        200,
		"/v1/incidents/inc-2":                              200,
		"/v1/incidents/inc-1?revisions=true":               200,
		"/v1/incidents/inc-3":                              404,
		"/v1/incidents/inc-2/report":                       200,
		"/v1/incidents/inc-3/report":                       404,
		"/v1/incidents/inc-1/report?x=1":                   400,
		"/v1/incidents/%00%1b%3Cscript%3E":                 404,
		"/v1/status":                                       200,
		"/v1/jobs":                                         200,
		"/v1/jobs?job=llm&open=true&since=1h&node=n":       200,
		"/v1/jobs?limit=x":                                 400,
		"/v1/status?open=1":                                400,
		"/v1/incidents?since=yesterday":                    400,
		"/v1/incidents?since=-1h":                          400,
		"/v1/incidents?open=perhaps":                       400,
		"/v1/incidents?limit=0":                            400,
		"/v1/incidents?limit=1001":                         400,
		"/v1/incidents?jobs=llm":                           400,
		"/v1/incidents?job=a&job=b":                        400,
		"/v1/incidents?%zz":                                400,
		"/v1/incidents?job=" + strings.Repeat("x", 2000):   400,
		"/v1/incidents/inc-1?open=1":                       400,
		"/v1/incidents/inc-1/elsewhere":                    404,
		"/v1/":                                             404,
		"/elsewhere":                                       404,
	} {
		code, body := b.ask(t, http.MethodGet, path, "")
		require.Equal(t, want, code, "%s: %s", path, body)
		require.True(t, json.Valid(body), "%s: %s", path, body)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPost} {
		code, body := b.ask(t, method, "/v1/incidents/inc-2", "")
		require.Equal(t, http.StatusMethodNotAllowed, code)
		var failure history.Failure
		require.NoError(t, json.Unmarshal(body, &failure), "%s", body)
		require.Equal(t, history.Failure{Schema: history.Schema, Error: "this path takes GET, HEAD"}, failure)
	}
	var whole history.Whole
	_, body = b.ask(t, http.MethodGet, "/v1/incidents/inc-1?revisions=true", "")
	require.NoError(t, json.Unmarshal(body, &whole))
	require.Equal(t, []verdict.Verdict{verdict.Bounded(lost("inc-1", "node-17"))}, whole.Verdicts)
	require.Len(t, whole.Revisions, 1)
}

// A report says what is known of evidence that was not seen, and of the time alone in which
// this tracecore ran.
func TestAReportSaysWhatCouldBeSeen(t *testing.T) {
	b := started(t)
	last := onset.Add(time.Minute)
	cancel := b.Listen("patterndetector", func() []history.Feed {
		return []history.Feed{{Pattern: "gpu_lost", Evidence: "heard", Reads: []string{"a"}, Last: &last}, {Pattern: "gpu_lost", Evidence: "unheard", Reads: []string{"b"}}}
	})
	defer cancel()
	old, fresh := lost("inc-1", "node-17"), lost("inc-2", "node-18")
	for _, v := range []*verdict.Verdict{&old, &fresh} {
		v.Missing = []verdict.Missing{{Name: "heard", Text: "heard", Sources: []string{"a"}}, {Name: "unheard", Text: "unheard", Sources: []string{"b"}}}
	}
	fresh.Updated = onset.Add(2 * time.Hour)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{old, fresh}))
	kinds := map[string][]string{}
	for _, id := range []string{"inc-1", "inc-2"} {
		code, body := b.ask(t, http.MethodGet, "/v1/incidents/"+id+"/report", "")
		require.Equal(t, http.StatusOK, code)
		v, err := incidentview.FromJSON(body)
		require.NoError(t, err)
		require.Equal(t, []string{"history of node-17"}, v.Made.From)
		for _, n := range v.NotSeen {
			kinds[id] = append(kinds[id], n.Text+" "+n.Kind)
		}
	}
	require.Equal(t, []string{"heard not_known", "unheard not_known"}, kinds["inc-1"], "it was over before this start")
	require.Equal(t, []string{"heard not_there", "unheard not_known"}, kinds["inc-2"])
}

// What is wrong with components and what feeds the patterns is asked for when it is wanted.
func TestStatusSaysWhoAilsAndWhatIsFed(t *testing.T) {
	b := started(t)
	last := onset
	cancel := b.Listen("patterndetector", func() []history.Feed {
		return []history.Feed{{Processor: "patterndetector", Pattern: "gpu_lost", Evidence: "xid", Reads: []string{"gpu.xid"}, Last: &last}, {Processor: "patterndetector", Pattern: hostile, Evidence: "e", Reads: []string{}}}
	})
	gpu := componentstatus.NewInstanceID(component.MustNewID("gpu"), component.KindReceiver)
	b.ComponentStatusChanged(gpu, componentstatus.NewRecoverableErrorEvent(errors.New(hostile)))
	b.ComponentStatusChanged(componentstatus.NewInstanceID(component.MustNewID("otlp"), component.KindReceiver), componentstatus.NewEvent(componentstatus.StatusOK))
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
	ask := func() (status history.Status) {
		code, body := b.ask(t, http.MethodGet, "/v1/status", "")
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal(body, &status))
		return status
	}
	status := ask()
	require.Equal(t, [3]int{1, 1, 1}, [3]int{status.Incidents, status.Open, status.RootCauses})
	require.Len(t, status.Ailing, 1)
	require.Equal(t, "gpu", status.Ailing[0].Component)
	require.Len(t, status.Feeds, 2)
	require.Equal(t, onset, *status.Feeds[0].Last)
	require.Positive(t, status.Bytes)
	require.Equal(t, []string{"otlp"}, status.Works)
	b.ComponentStatusChanged(gpu, componentstatus.NewEvent(componentstatus.StatusOK))
	cancel()
	status = ask()
	require.Empty(t, status.Ailing)
	require.Empty(t, status.Feeds)
}

func TestThePublishedSchemaIsTheOneThatIsAnswered(t *testing.T) {
	b := started(t)
	response, err := http.Get(b.url + "/v1/schema")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	text, err := os.ReadFile("../../internal/history/history.schema.json")
	require.NoError(t, err)
	require.Equal(t, string(text), string(body))
	response, err = http.Get(b.url + "/v1/schema/incident")
	require.NoError(t, err)
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, string(incidentview.SchemaJSON), string(body))
	schema, err := published()
	require.NoError(t, err)
	for name, text := range map[string]string{
		"nothing":         `{}`,
		"another version": `{"schema":"tracecore.history/2","error":"x"}`,
		"no list":         `{"schema":"tracecore.history/1","host":"h","at":"2026-11-20T14:02:11Z","incidents":null,"more":false}`,
		"a bad time":      `{"schema":"tracecore.history/1","host":"h","at":"noon","incidents":[],"more":false}`,
	} {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		require.NoError(t, err)
		require.Error(t, schema.Validate(value), name)
	}
}

// A page in a browser reaches loopback under a name of its own.
func TestOnlyWhoNamesThisServerIsAnswered(t *testing.T) {
	b := started(t)
	for host, want := range map[string]int{
		"localhost:13134": 200, "127.0.0.1": 200, "[::1]:80": 200, "10.0.0.1:13134": 200,
		"rebind.example": 421, "rebind.example:13134": 421, "localhost.example": 421,
	} {
		code, _ := b.ask(t, http.MethodGet, "/v1/incidents", host)
		require.Equal(t, want, code, host)
	}
}

// Who may write to the folder may acknowledge, and nobody over TCP.
func TestAcknowledgementComesOverTheSocketAlone(t *testing.T) {
	b := started(t)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
	const path = "/v1/incidents/inc-1/acknowledgement"
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		request, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(`{"note":"x"}`))
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusNotFound, response.StatusCode)
	}
	info, err := os.Stat(filepath.Join(b.config.Directory, SocketName))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	folder, err := os.Stat(b.config.Directory)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), folder.Mode().Perm())

	code, body := b.overSocket(t, http.MethodPost, path, `{"note":"OPS-1 `+"\\u001b[2J"+`"}`)
	require.Equal(t, http.StatusOK, code, "%s", body)
	var whole history.Whole
	require.NoError(t, json.Unmarshal(body, &whole))
	require.Equal(t, &history.Acknowledgement{At: onset.Add(time.Hour), UID: uint32(os.Getuid()), Note: `OPS-1 \x1b[2J`}, whole.Incident.Acknowledged)
	for body, want := range map[string]int{`{`: 400, `{"note": 1}`: 400, `{"note":"` + strings.Repeat("x", 9000) + `"}`: 400} {
		code, _ := b.overSocket(t, http.MethodPost, path, body)
		require.Equal(t, want, code)
	}
	code, _ = b.overSocket(t, http.MethodPost, "/v1/incidents/inc-9/acknowledgement", `{}`)
	require.Equal(t, http.StatusNotFound, code)
}

// A port that is taken costs the answers; what is told is kept.
func TestAnAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	b := newBench(t, shortDir(t), taken.Addr().String())
	require.Eventually(t, func() bool {
		return b.said.FilterMessageSnippet("questions about incidents are not answered there; set http::endpoint").Len() == 1
	}, hosttest.Patience, time.Millisecond)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
}

// A folder that cannot be made costs the history, said once, until it can.
func TestAFolderThatCannotBeMade(t *testing.T) {
	dir := shortDir(t)
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	b := newBench(t, dir, hosttest.FreeAddress(t))
	for range 3 {
		require.ErrorContains(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}), "history: folder of the history")
	}
	require.Equal(t, 1, b.said.FilterMessageSnippet("incidents are not kept").Len())
	require.Eventually(t, func() bool {
		return b.said.FilterMessageSnippet("not answered there; this user must be able to make and write that folder").Len() == 1
	}, hosttest.Patience, time.Millisecond)
	code, _ := b.ask2(t)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.NoError(t, os.Remove(dir))
	b.late.Store(int64(time.Minute))
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
	require.Equal(t, 1, b.said.FilterMessageSnippet("incidents are kept again").Len())
}

func (b *bench) ask2(t *testing.T) (int, []byte) {
	t.Helper()
	var code int
	var body []byte
	require.Eventually(t, func() bool {
		response, err := http.Get(b.url + "/v1/incidents")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		code = response.StatusCode
		body, err = io.ReadAll(response.Body)
		return err == nil
	}, hosttest.Patience, time.Millisecond)
	requireObeys(t, body)
	return code, body
}

// Who asks and does not read holds up nobody: an answer that has been sent for longest is
// ended, through all that the collector lays around a handler.
func TestWhoReadsSlowlyHoldsUpNobody(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 12<<20) // more than any socket holds
	answers := gate.Answers(mostAnswers, 32, patience, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(large) }, http.NotFound)
	config := createDefaultConfig().(*Config)
	server, err := config.HTTP.ToServer(t.Context(), nil, componenttest.NewNopTelemetrySettings(), answers)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	var slow []net.Conn
	for range 4 * mostAnswers {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 1)) // it is being sent
		require.NoError(t, err)
		slow = append(slow, c)
	}
	require.NoError(t, slow[0].SetReadDeadline(time.Now().Add(hosttest.Patience)))
	n, err := io.Copy(io.Discard, slow[0])
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, n, int64(len(large)))
}

// A crowd of slow and of quick callers neither stops the answers nor what is kept.
func TestACrowdOfCallers(t *testing.T) {
	b := started(t)
	var idle []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", b.config.HTTP.NetAddr.Endpoint)
		require.NoError(t, err)
		idle = append(idle, c)
	}
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			for j := range 10 {
				_ = b.Keep(context.Background(), []verdict.Verdict{lost(fmt.Sprint("inc-", i, "-", j), "node-17")})
				response, err := http.Get(b.url + "/v1/incidents")
				if err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					_ = response.Body.Close()
				}
			}
		})
	}
	callers.Wait()
	for _, c := range idle {
		_ = c.Close()
	}
	code, body := b.ask(t, http.MethodGet, "/v1/incidents?limit=1000", "")
	require.Equal(t, http.StatusOK, code)
	var list history.Incidents
	require.NoError(t, json.Unmarshal(body, &list))
	require.Len(t, list.Incidents, 200)
}

func TestConfig(t *testing.T) {
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	for name, problem := range map[string]string{
		"history":                "directory is not set: name the folder",
		"history/all":            "",
		"history/relative":       "give the whole path",
		"history/small":          "max_bytes is 1000: give 1048576 or more",
		"history/young":          "max_age is 1s: give 1m0s or more",
		"history/nowhere":        "endpoint is empty",
		"history/no_connections": "max_connections must be 1 or more",
		"history/no_limit":       "must be more than 0",
		"history/unknown":        "dir",
	} {
		t.Run(name, func(t *testing.T) {
			sub, err := all.Sub(name)
			require.NoError(t, err)
			config := createDefaultConfig()
			err = sub.Unmarshal(config)
			if err == nil {
				err = confmap.Validate(config)
			}
			if problem == "" {
				require.NoError(t, err)
				require.Equal(t, "/var/lib/x", config.(*Config).Directory)
			} else {
				require.ErrorContains(t, err, problem)
			}
		})
	}
}
