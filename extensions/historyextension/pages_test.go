package historyextension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"golang.org/x/net/html"

	"github.com/tracecoreai/tracecore/extensions/historyextension/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// visit returns a page that a browser can take: it loads nothing and runs nothing.
func (b *bench) visit(t *testing.T, path string) (text string, links []string) {
	t.Helper()
	response, err := http.Get(b.url + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	require.Equal(t, "text/html; charset=utf-8", response.Header.Get("Content-Type"))
	require.Regexp(t, `^default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`, response.Header.Get("Content-Security-Policy"))
	require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	require.Regexp(t, `^[\P{C}\n\t]*$`, string(body))
	tokens := html.NewTokenizer(strings.NewReader(string(body)))
	for tokens.Next() != html.ErrorToken {
		token := tokens.Token()
		switch token.Data {
		case "script", "img", "iframe", "link", "object", "form", "input":
			require.Contains(t, []html.TokenType{html.TextToken, html.CommentToken}, token.Type, "%s", token)
		}
		for _, a := range token.Attr {
			require.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "style", "%s", token)
			if a.Key == "href" {
				if a.Val == "/" { // back to the list
					continue
				}
				require.True(t, strings.HasPrefix(a.Val, "/incidents/"), a.Val)
				links = append(links, a.Val)
			}
		}
	}
	return string(body), links
}

func TestPagesAreThoseOfTheReport(t *testing.T) {
	b := started(t)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{}))
	text, links := b.visit(t, "/")
	require.Contains(t, text, "No incident is kept here that matches.")
	require.Empty(t, links)
	bad := lost("x/../y?a=<b>", hostile)
	bad.Headline, bad.Pattern, bad.Culprit["job"], bad.Evidence[0].Shows, bad.Remediation = hostile, hostile, hostile, hostile, hostile
	bad.Onset = onset.Add(time.Second)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17"), verdict.Bounded(bad)}))
	text, links = b.visit(t, "/")
	require.Contains(t, text, "GPU lost on node-17")
	require.Contains(t, text, "critical")
	require.Len(t, links, 2)
	for _, link := range links {
		text, further := b.visit(t, link)
		require.Empty(t, further)
		require.Contains(t, text, "tracecore incident")
	}
	_, links = b.visit(t, "/?node=node-17&limit=1")
	require.Equal(t, []string{"/incidents/inc-1"}, links)
	for path, want := range map[string]int{"/incidents/none": 404, "/?limit=0": 400, "/incidents/inc-1?x=1": 400, "/elsewhere": 404} {
		response, err := http.Get(b.url + path)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, path)
	}
	code, _ := b.ask(t, http.MethodGet, "/", "rebind.example")
	require.Equal(t, http.StatusMisdirectedRequest, code)
}

// door lets in who shows the key.
type door struct {
	component.StartFunc
	component.ShutdownFunc
}

func (door) Authenticate(ctx context.Context, sources map[string][]string) (context.Context, error) {
	for name, values := range sources {
		if strings.EqualFold(name, "authorization") && len(values) == 1 && values[0] == "key" {
			return ctx, nil
		}
	}
	return ctx, errors.New("no key")
}

type hostWith map[component.ID]component.Component

func (h hostWith) GetExtensions() map[component.ID]component.Component { return h }

// Pages and answers are behind the authentication that is configured.
func TestPagesAreBehindAuthentication(t *testing.T) {
	id := component.MustNewID("door")
	config := createDefaultConfig().(*Config)
	config.Directory, config.HTTP.NetAddr.Endpoint = shortDir(t), hosttest.FreeAddress(t)
	config.HTTP.Auth = configoptional.Some(confighttp.AuthConfig{Config: configauth.Config{AuthenticatorID: id}})
	k, err := newKeeper(extensiontest.NewNopSettings(metadata.Type), config, time.Now)
	require.NoError(t, err)
	require.NoError(t, k.Start(t.Context(), hostWith{id: door{}}))
	t.Cleanup(func() { require.NoError(t, k.Shutdown(context.Background())) })
	require.NoError(t, k.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
	for _, path := range []string{"/", "/incidents/inc-1", "/v1/incidents", "/v1/incidents/inc-1/report"} {
		for key, want := range map[string]int{"": http.StatusUnauthorized, "other": http.StatusUnauthorized, "key": http.StatusOK} {
			require.Eventually(t, func() bool {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+config.HTTP.NetAddr.Endpoint+path, nil)
				require.NoError(t, err)
				request.Header.Set("Authorization", key)
				response, err := http.DefaultClient.Do(request)
				if err != nil {
					return false // it does not listen yet
				}
				require.NoError(t, response.Body.Close())
				require.Equal(t, want, response.StatusCode, "%s %q", path, key)
				return true
			}, hosttest.Patience, time.Millisecond)
		}
	}
}

// Who may write to the folder may mute, and nobody over TCP. A mute has an end and a reason.
func TestMutesComeOverTheSocketAlone(t *testing.T) {
	b := started(t)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
	const path = "/v1/incidents/inc-1/mute"
	now := onset.Add(time.Hour)
	body := func(until time.Time, reason string) string {
		return fmt.Sprintf(`{"until":%q,"reason":%q}`, until.Format(time.RFC3339), reason)
	}
	good := body(now.Add(2*time.Hour), "OPS-1")
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		request, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(good))
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusNotFound, response.StatusCode)
	}
	for text, want := range map[string]int{
		`{`: 400, `{"reason":"x"}`: 400, body(now.Add(time.Hour), "  "): 400, body(now, "x"): 400, body(now.Add(history.MaxMute+time.Hour), "x"): 400,
		body(now.Add(time.Hour), strings.Repeat("x", 9000)): 400,
	} {
		code, answer := b.overSocket(t, http.MethodPost, path, text)
		require.Equal(t, want, code, "%s", answer)
	}
	mutes, err := b.Mutes(t.Context())
	require.NoError(t, err)
	require.Empty(t, mutes)
	code, answer := b.overSocket(t, http.MethodPost, path, good)
	require.Equal(t, http.StatusOK, code, "%s", answer)
	var whole history.Whole
	require.NoError(t, json.Unmarshal(answer, &whole))
	want := history.Mute{At: now, Until: now.Add(2 * time.Hour).Truncate(time.Second), UID: uint32(os.Getuid()), Reason: "OPS-1"}
	require.Equal(t, &want, whole.Incident.Muted)
	mutes, err = b.Mutes(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]history.Mute{"inc-1": want}, mutes)
	code, _ = b.overSocket(t, http.MethodDelete, path, "")
	require.Equal(t, http.StatusOK, code)
	mutes, err = b.Mutes(t.Context())
	require.NoError(t, err)
	require.Empty(t, mutes)
	code, _ = b.overSocket(t, http.MethodPost, "/v1/incidents/inc-9/mute", good)
	require.Equal(t, http.StatusNotFound, code)
}

func TestARunIsAnsweredWithItsIncidents(t *testing.T) {
	b := started(t)
	require.NoError(t, b.Keep(t.Context(), []verdict.Verdict{lost("inc-1", "node-17")}))
	seen := history.Sighting{Run: "r1", Job: "llm", Trust: verdict.Proven, Host: "node-17", Rank: 3, World: 8, Began: onset.Add(-time.Hour), At: onset.Add(-time.Hour)}
	require.NoError(t, b.Ranks(t.Context(), []history.Sighting{seen}))
	steps := seen
	steps.Steps = &history.Steps{Count: 40, First: onset.Add(-30 * time.Minute), Last: onset.Add(-time.Minute), Each: 1.21, Ranks: 1}
	require.NoError(t, b.Ranks(t.Context(), []history.Sighting{steps}))
	page, _ := b.visit(t, "/")
	for _, want := range []string{"jobs <small>", "1 of 8", "a step in 1.21 s", "goes on"} {
		require.Contains(t, page, want)
	}
	code, body := b.ask(t, http.MethodGet, "/v1/runs/r1", "")
	require.Equal(t, http.StatusOK, code)
	var one history.OneRun
	require.NoError(t, json.Unmarshal(body, &one))
	require.Equal(t, "llm", one.Run.Job)
	require.EqualValues(t, 40, one.Run.Steps.Count)
	require.Len(t, one.Incidents, 1)
	require.Equal(t, "inc-1", one.Incidents[0].ID)
	for path, want := range map[string]int{"/v1/runs/r2": 404, "/v1/runs/r1?x=1": 400} {
		code, _ := b.ask(t, http.MethodGet, path, "")
		require.Equal(t, want, code)
	}
}
