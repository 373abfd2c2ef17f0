package historyextension

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/tracecoreai/tracecore/extensions/historyextension/internal/store"
	"github.com/tracecoreai/tracecore/internal/gate"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

const (
	maxHeader   = 16 << 10
	maxNote     = 1024    // bytes of a note
	maxBody     = 8 << 10 // of a question that changes something
	mostAnswers = 4       // made at once: each waits for the file
	patience    = 5 * time.Second
)

// handler answers questions. Only one that may write takes acknowledgements: its
// connections are of the Unix socket, which shows who calls.
func (k *keeper) handler(mayWrite bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", k.filtered(k.listed))
	mux.Handle("GET /incidents/{id}", question(k.shown))
	mux.Handle("GET /v1/agents", question(k.heard, "node", "limit"))
	mux.Handle("GET /v1/incidents", k.filtered(k.incidents))
	mux.Handle("GET /v1/incidents/{id}", question(k.incident, "revisions"))
	mux.Handle("GET /v1/incidents/{id}/report", question(k.report))
	mux.Handle("GET /v1/jobs", k.filtered(k.jobs))
	mux.Handle("GET /v1/ranks", question(k.ranks, "job", "domain", "rank"))
	mux.Handle("GET /v1/runs/{id}", question(k.run))
	mux.Handle("GET /v1/schema", question(schema))
	mux.Handle("GET /v1/schema/incident", question(incidentSchema))
	mux.Handle("GET /v1/status", question(k.status))
	if mayWrite {
		mux.Handle("POST /v1/incidents/{id}/acknowledgement", question(k.acknowledge))
		mux.Handle("POST /v1/incidents/{id}/mute", question(k.mute))
		mux.Handle("DELETE /v1/incidents/{id}/mute", question(k.unmute))
	}
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, errors.New("too many questions at once: ask again"))
	}
	answers := gate.Answers(mostAnswers, k.config.HTTP.MaxConnections, patience, func(w http.ResponseWriter, r *http.Request) {
		if none, pattern := mux.Handler(r); pattern == "" {
			unanswered(w, r, none)
			return
		}
		mux.ServeHTTP(w, r)
	}, busy)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		if !mayWrite && !k.meant(r.Host) {
			fail(w, http.StatusMisdirectedRequest, errors.New("this is not the host that was asked for: call it by its address"))
			return
		}
		answers.ServeHTTP(w, r)
	})
}

// meant reports whether a request names this server. A page in a browser that has its own
// name resolved to this address names itself (DNS rebinding).
func (k *keeper) meant(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil || k.config.HTTP.Auth.HasValue() {
		return true
	}
	own, _, _ := net.SplitHostPort(k.config.HTTP.NetAddr.Endpoint)
	return own != "" && host == own
}

func (k *keeper) head() history.Head {
	return history.Head{Schema: history.Schema, Host: safetext.Line(k.hostname), At: k.now().UTC()}
}

func (k *keeper) incidents(w http.ResponseWriter, r *http.Request, filter history.Filter) {
	if k.known(w, r, "kept", k.revision.Load()) {
		return
	}
	found, more, err := k.store.Incidents(r.Context(), filter)
	if err != nil {
		k.trouble(w, err)
		return
	}
	answer(w, history.Incidents{Head: k.head(), Incidents: found, More: more})
}

func (k *keeper) jobs(w http.ResponseWriter, r *http.Request, filter history.Filter) {
	if k.known(w, r, "kept", k.revision.Load()) {
		return
	}
	found, more, err := k.store.Runs(r.Context(), filter)
	if err != nil {
		k.trouble(w, err)
		return
	}
	answer(w, history.Jobs{Head: k.head(), Runs: found, More: more})
}

func (k *keeper) incident(w http.ResponseWriter, r *http.Request, query url.Values) {
	revisions, err := parseBool(query, "revisions")
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if r.Method == http.MethodGet && k.known(w, r, "kept", k.revision.Load()) {
		return
	}
	whole, err := k.store.Incident(r.Context(), r.PathValue("id"), revisions)
	if err != nil {
		k.trouble(w, err)
		return
	}
	whole.Head = k.head()
	answer(w, whole)
}

// acknowledge takes the word of a person who has seen an incident. Who that is, the
// kernel says.
func (k *keeper) acknowledge(w http.ResponseWriter, r *http.Request, query url.Values) {
	var given struct {
		Note string `json:"note"`
	}
	caller, ok := told(w, r, &given, `{"note": "…"}`)
	if !ok {
		return
	}
	note := safetext.Clip(safetext.Line(given.Note), maxNote)
	if err := k.store.Acknowledge(r.Context(), r.PathValue("id"), history.Acknowledgement{At: k.now().UTC(), UID: caller, Note: note}); err != nil {
		k.trouble(w, err)
		return
	}
	k.changed()
	k.incident(w, r, query)
}

// mute keeps an incident from being told for a time. It has an end and a reason.
func (k *keeper) mute(w http.ResponseWriter, r *http.Request, query url.Values) {
	var given struct {
		Until  time.Time `json:"until"`
		Reason string    `json:"reason"`
	}
	caller, ok := told(w, r, &given, `{"until": "2026-12-01T08:00:00Z", "reason": "…"}`)
	if !ok {
		return
	}
	now := k.now().UTC()
	reason := strings.TrimSpace(safetext.Clip(safetext.Line(given.Reason), maxNote))
	switch {
	case reason == "":
		fail(w, http.StatusBadRequest, errors.New("reason is missing: say why, others will ask"))
	case !given.Until.After(now):
		fail(w, http.StatusBadRequest, errors.New("until is not in the future: a mute has an end that is yet to come"))
	case given.Until.After(now.Add(history.MaxMute)):
		fail(w, http.StatusBadRequest, fmt.Errorf("until is more than %d days ahead: mute the pattern in the configuration instead", history.MaxMute/24/time.Hour))
	default:
		k.muted(w, r, query, history.Mute{At: now, Until: given.Until.UTC(), UID: caller, Reason: reason})
	}
}

// unmute ends a mute.
func (k *keeper) unmute(w http.ResponseWriter, r *http.Request, query url.Values) {
	k.muted(w, r, query, history.Mute{})
}

func (k *keeper) muted(w http.ResponseWriter, r *http.Request, query url.Values, m history.Mute) {
	if err := k.store.Mute(r.Context(), r.PathValue("id"), m); err != nil {
		k.trouble(w, err)
		return
	}
	k.changed()
	k.incident(w, r, query)
}

// told reads what a person tells and who that is. It answers itself where it cannot.
func told(w http.ResponseWriter, r *http.Request, given any, form string) (uid uint32, ok bool) {
	name, known := strings.CutPrefix(r.RemoteAddr, uidPrefix)
	caller, err := strconv.ParseUint(name, 10, 32)
	if !known || err != nil {
		fail(w, http.StatusForbidden, errors.New("this system does not show who calls"))
		return 0, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, given)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, fmt.Errorf("the body is no %s: %w", form, err))
		return 0, false
	}
	return uint32(caller), true
}

// run answers with one start of a job and its incidents.
func (k *keeper) run(w http.ResponseWriter, r *http.Request, _ url.Values) {
	one, err := k.store.Run(r.Context(), r.PathValue("id"))
	if errors.Is(err, store.ErrNotFound) {
		fail(w, http.StatusNotFound, errors.New("there is no such run: tracecore jobs lists them, in its column RUN"))
		return
	}
	if err != nil {
		k.trouble(w, err)
		return
	}
	one.Head = k.head()
	answer(w, one)
}

func schema(w http.ResponseWriter, _ *http.Request, _ url.Values) { _, _ = w.Write(history.SchemaJSON) }

// question answers what asks by nothing but the names that are known.
func question(answer func(http.ResponseWriter, *http.Request, url.Values), known ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := parseQuery(r.URL.RawQuery, known...)
		if err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		answer(w, r, query)
	})
}

// filtered is a question for a list.
func (k *keeper) filtered(answer func(http.ResponseWriter, *http.Request, history.Filter)) http.Handler {
	return question(func(w http.ResponseWriter, r *http.Request, query url.Values) {
		filter, err := filterOf(query, k.now())
		if err != nil {
			fail(w, http.StatusBadRequest, err)
			return
		}
		answer(w, r, filter)
	}, "since", "job", "node", "open", "limit")
}

// filterOf reads which incidents or runs are asked for.
func filterOf(query url.Values, now time.Time) (f history.Filter, err error) {
	f = history.Filter{Job: query.Get("job"), Node: query.Get("node")}
	if f.Open, err = parseBool(query, "open"); err != nil {
		return f, err
	}
	if text := query.Get("since"); text != "" {
		if f.Since, err = history.ParseSince(text, now); err != nil {
			return f, err
		}
	}
	if text := query.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 1 || f.Limit > history.MaxLimit {
			return f, fmt.Errorf("limit is %.40q: give a number from 1 to %d", text, history.MaxLimit)
		}
	}
	return f, nil
}

// parseQuery refuses what nobody would heed.
func parseQuery(raw string, known ...string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	for name, values := range query {
		switch {
		case len(known) == 0:
			return nil, fmt.Errorf("there is no %.40q to ask by: this is asked by nothing more", name)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("there is no %.40q to ask by; there is: %s", name, strings.Join(known, ", "))
		case len(values) > 1:
			return nil, fmt.Errorf("%s is given %d times", name, len(values))
		case len(values[0]) > verdict.MaxTextBytes:
			return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", name, len(values[0]), verdict.MaxTextBytes)
		}
	}
	return query, nil
}

func parseBool(query url.Values, name string) (bool, error) {
	text := query.Get(name)
	if text == "" {
		return false, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s is %.40q: give true or false", name, text)
	}
	return value, nil
}

// trouble says why there is no answer.
func (k *keeper) trouble(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, store.ErrTooMany), errors.Is(err, store.ErrSeveral):
		fail(w, http.StatusConflict, err)
	case errors.Is(err, store.ErrNotFound):
		fail(w, http.StatusNotFound, fmt.Errorf("%w: it may have been too old, or have given way to others", err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		fail(w, http.StatusServiceUnavailable, errors.New("the file of the history is busy: ask again"))
	default:
		k.settings.Logger.Debug("a question is not answered", zap.Error(err))
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("the history cannot be read: %w", err))
	}
}

func fail(w http.ResponseWriter, code int, err error) {
	w.Header().Del("ETag")
	text, _ := safetext.Marshal(history.Failure{Schema: history.Schema, Error: safetext.Line(err.Error())})
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}

// unanswered says in the words of this API what net/http says in plain text: that there is no
// such path, or that it does not take this method.
func unanswered(w http.ResponseWriter, r *http.Request, none http.Handler) {
	said := codeOnly{ResponseWriter: w}
	none.ServeHTTP(&said, r)
	w.Header().Set("Content-Type", "application/json")
	err := errors.New("there is no such path here: GET /v1/schema describes the answers, and the page of the extension history lists the paths")
	if said.code == http.StatusMethodNotAllowed {
		err = errors.New("this path takes " + w.Header().Get("Allow"))
	}
	fail(w, said.code, err)
}

// codeOnly keeps the status of an answer, and drops its text.
type codeOnly struct {
	http.ResponseWriter
	code int
}

// WriteHeader notes the status.
func (c *codeOnly) WriteHeader(code int) { c.code = code }

// Write drops the text.
func (*codeOnly) Write(text []byte) (int, error) { return len(text), nil }

func answer(w http.ResponseWriter, value any) {
	text, err := safetext.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	_, _ = w.Write(append(text, '\n'))
}
