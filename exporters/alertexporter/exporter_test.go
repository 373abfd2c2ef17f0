package alertexporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/otel/attribute"

	"github.com/tracecoreai/tracecore/exporters/alertexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/alertmanagertest"
	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

func key(name string) attribute.Key { return attribute.Key(name) }

// An Alertmanager is told when a root cause begins and when it is over, by the same labels,
// whatever is learnt meanwhile.
func TestAnAlertmanagerStartsAndResolves(t *testing.T) {
	am := alertmanagertest.Start(t)
	b := begin(t, am.URL, nil, func(c *Config) {
		c.Format, c.Labels, c.Resend = formatAlertmanager, map[string]string{"cluster": "a"}, time.Minute
	})
	*b.clock = time.Now() // the Alertmanager has its own
	v := lost("a")
	b.send(t, v, lost("b"))
	labels := map[string]string{
		"alertname": "TracecoreGpuLost", "pattern": "gpu_lost", "severity": "critical", "verdict_id": "a", "node": "node-17",
		"gpu": "0000:65:00.0", "rank": "3", "job": "llm", "cluster": "a",
	}
	require.Eventually(t, func() bool { return len(am.Told()) == 2 }, patience, time.Millisecond)
	open := am.Alerts(t)
	require.Len(t, open, 2)
	first := open[0]
	if first.Labels["verdict_id"] != "a" {
		first = open[1]
	}
	require.Equal(t, labels, first.Labels)
	require.Equal(t, map[string]string{
		"headline": v.Headline, "remedy": v.Remediation, "incident": "inc-a", "seen": "07:02:29.000  the driver wrote Xid 79",
		"runbook_url": "https://github.com/tracecoreai/tracecore/blob/main/patterns/gpu_lost/README.md",
	}, first.Annotations)
	require.True(t, first.StartsAt.Equal(onset))
	require.WithinDuration(t, b.clock.Add(4*time.Minute), first.EndsAt, time.Second, "it ends where nobody renews it")

	more := but(v, func(v *verdict.Verdict) { v.Run, v.Headline = "r7", v.Headline+"; it was used by rank 3" })
	b.send(t, more)
	require.Len(t, am.Alerts(t), 2, "the same alert")
	b.send(t, over(more))
	require.Eventually(t, func() bool { return len(am.Alerts(t)) == 1 }, patience, time.Millisecond)
	ends := alertmanagertest.Told{Labels: labels, Resolved: true}
	require.Eventually(t, func() bool {
		// Ends are told again: what came a moment before may be taken in after them.
		return b.renew(t.Context()) == nil && slices.ContainsFunc(am.Told(), func(told alertmanagertest.Told) bool { return reflect.DeepEqual(told, ends) })
	}, patience, 10*time.Millisecond, "%v", am)
	require.Len(t, am.Alerts(t), 1)
	*b.clock = b.clock.Add(time.Hour)
	require.Empty(t, b.overLately(), "not for ever")
	require.Equal(t, map[string]int64{"started": 2, "updated": 1, "ended": 1}, b.outcomes(t))
}

// Labels say where: each name of a culprit that is one, and the run, as the verdict or else its
// culprit names it.
func TestLabelsSayWhere(t *testing.T) {
	am := alertmanagertest.Start(t)
	b := begin(t, am.URL, nil, func(c *Config) { c.Format = formatAlertmanager })
	*b.clock = time.Now()
	b.send(t,
		but(lost("a"), func(v *verdict.Verdict) {
			v.Run = "r7"
			v.Culprit = map[string]string{"host": "h17", "job": "llm", "run": "r1", "rank": "3", "gpu": "0000:65:00.0", "namespace": "ml", "pod_name": "llm-3", "mount": "/data", "peer": "10.0.0.7", "pid": "42"}
		}),
		but(lost("b"), func(v *verdict.Verdict) { v.Culprit["run"] = "r1" }),
		but(lost("c"), func(v *verdict.Verdict) { v.Run = "r9" }))
	require.Eventually(t, func() bool { return len(am.Told()) == 3 }, patience, time.Millisecond)
	of := map[string]map[string]string{}
	for _, one := range am.Alerts(t) {
		of[one.Labels["verdict_id"]] = one.Labels
	}
	require.Equal(t, map[string]string{
		"alertname": "TracecoreGpuLost", "pattern": "gpu_lost", "severity": "critical", "verdict_id": "a", "node": "h17", "job": "llm", "run": "r7", "rank": "3",
		"gpu": "0000:65:00.0", "namespace": "ml", "pod": "llm-3", "mount": "/data", "peer": "10.0.0.7",
	}, of["a"])
	require.Equal(t, []string{"r1", "r9"}, []string{of["b"]["run"], of["c"]["run"]})
}

// What is open is told again and again: an Alertmanager that lost all has it back, and one
// that hears no more ends it.
func TestOpenAlertsAreRenewed(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, nil, func(c *Config) { c.Format, c.Resend, c.Stale = formatAlertmanager, time.Minute, time.Hour })
	require.NoError(t, b.renew(t.Context()))
	require.Empty(t, r.got(), "nothing is open")
	for i := range 100 {
		b.send(t, but(lost(fmt.Sprintf("v%03d", i)), func(v *verdict.Verdict) { v.Culprit["node"] = fmt.Sprint("node-", i) }))
	}
	am := alertmanagertest.Start(t) // another one, which knows nothing
	b.courier.config.Endpoint = am.URL
	*b.clock = time.Now()
	for _, entry := range b.book.open {
		entry.Seen = *b.clock
	}
	require.NoError(t, b.renew(t.Context()))
	require.Len(t, am.Alerts(t), 100)

	// Nobody confirms them: they are told no longer.
	*b.clock = b.clock.Add(30 * time.Minute)
	b.send(t, but(lost("v000"), func(*verdict.Verdict) {}))
	*b.clock = b.clock.Add(31 * time.Minute)
	b.courier.config.Endpoint = r.URL
	before := len(r.got())
	require.NoError(t, b.renew(t.Context()))
	require.Len(t, r.got(), before+1)
	require.Equal(t, 1, strings.Count(r.got()[before].body, "verdict_id"), "the one that was confirmed")
	require.Equal(t, map[string]int64{"": 99}, b.counts(t, "otelcol_exporter_alert_forgotten", ""))
}

// Nobody is woken for what is not certain, not the cause, not real or not severe.
func TestWhatPages(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*verdict.Verdict)
		outcome string
	}{
		"a root cause":         {func(*verdict.Verdict) {}, "started"},
		"a warning":            {func(v *verdict.Verdict) { v.Severity = verdict.Warning }, "started"},
		"information":          {func(v *verdict.Verdict) { v.Severity = verdict.Info }, "mild"},
		"likely":               {func(v *verdict.Verdict) { v.Confidence = verdict.Partial }, "partial"},
		"explained by another": {func(v *verdict.Verdict) { v.Role, v.RootCause = verdict.Symptom, "z" }, "symptom"},
		"a drill":              {func(v *verdict.Verdict) { v.Drill = true }, "drill"},
		"over before":          {func(v *verdict.Verdict) { *v = over(*v) }, "not_open"},
		"its effects go on":    {func(v *verdict.Verdict) { *v = over(*v); v.GoesOn = verdict.Error }, "started"},
		"mild effects go on":   {func(v *verdict.Verdict) { *v = over(*v); v.GoesOn = verdict.Info }, "mild"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range []string{formatAlertmanager, formatWebhook, formatSlack} {
				r := newReceiver(t)
				b := begin(t, r.URL, nil, func(c *Config) { c.Format = format })
				b.send(t, but(lost("a"), tt.change))
				require.Equal(t, map[string]int64{tt.outcome: 1}, b.outcomes(t), format)
				require.Len(t, r.got(), map[bool]int{true: 1}[tt.outcome == "started"], format)

				// What was told and turns out so ends.
				if tt.outcome != "started" {
					b.send(t, lost("b"), but(lost("b"), tt.change))
					require.Len(t, r.got(), 2, format)
					require.Empty(t, b.book.open)
				}
			}
		})
	}
}

func TestAWebhookIsToldOnceOfEach(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, nil, nil)
	v := lost("a")
	b.send(t, v, v, but(v, func(v *verdict.Verdict) { v.Headline += ", three times" }))
	b.send(t, over(v))
	b.send(t, over(v), v) // a queue gives again what a killed process was sending
	require.Len(t, r.got(), 2)
	require.Equal(t, map[string]int64{"started": 1, "unchanged": 2, "ended": 1, "not_open": 1, "outdated": 1}, b.outcomes(t))
	var began, ended struct {
		Status  string
		EndsAt  *time.Time
		Labels  map[string]string
		Verdict verdict.Verdict
	}
	require.NoError(t, json.Unmarshal([]byte(r.got()[0].body), &began))
	require.NoError(t, json.Unmarshal([]byte(r.got()[1].body), &ended))
	require.Equal(t, "firing", began.Status)
	require.Nil(t, began.EndsAt)
	require.Equal(t, v, began.Verdict)
	require.Equal(t, "resolved", ended.Status)
	require.True(t, ended.EndsAt.Equal(onset.Add(time.Minute)))
	require.Equal(t, began.Labels, ended.Labels)
	require.Equal(t, "application/json", r.got()[0].contentType)
}

// A port that is down for a moment and kills its job pages until the job runs again: who waits for half a minute
// before he pages has not heard of it else.
func TestAnAlertStandsAsLongAsWhatItsCauseLedTo(t *testing.T) {
	goesOn := func(v verdict.Verdict) verdict.Verdict {
		return but(over(v), func(v *verdict.Verdict) { v.GoesOn = verdict.Error })
	}
	for _, format := range []string{formatAlertmanager, formatWebhook, formatSlack} {
		r := newReceiver(t)
		b := begin(t, r.URL, nil, func(c *Config) { c.Format = format })
		b.send(t, lost("a"), goesOn(lost("a")))
		require.Len(t, b.book.open, 1, format)
		allOver := time.Date(2026, 11, 20, 7, 5, 0, 0, time.UTC)
		b.send(t, but(later(over(lost("a"))), func(v *verdict.Verdict) { v.Over = &allOver }))
		require.Empty(t, b.book.open, format)
		told := r.got()
		if format != formatSlack {
			require.Contains(t, told[len(told)-1].body, `"endsAt":"2026-11-20T07:05:00Z"`, "when the incident was over")
		}
		if format == formatAlertmanager { // its annotations say what is known now
			require.Len(t, told, 3)
			require.Contains(t, told[1].body, `"goes_on":"This cleared at 07:03:29.000 UTC. What it led to is not over."`)
			require.NotContains(t, told[1].body, "endsAt\":\"2026-11-20T07:03")
		} else {
			require.Len(t, told, 2, format)
		}

		b.send(t, goesOn(lost("b")), later(over(lost("b")))) // of one that nobody heard of while it was open
		require.Equal(t, map[string]int64{"started": 2, "ended": 2}, without(b.outcomes(t), "updated", "unchanged"), format)
		require.Contains(t, r.got()[len(r.got())-2].body, "What it led to is not over.", format)
	}
}

func later(v verdict.Verdict) verdict.Verdict { v.Revision++; return v }

func without(counts map[string]int64, names ...string) map[string]int64 {
	for _, name := range names {
		delete(counts, name)
	}
	return counts
}

// A process that starts again tells nobody twice, and ends what the one before began. What
// it finds damaged is left out.
func TestARestartTellsNobodyTwice(t *testing.T) {
	r, kept := newReceiver(t), &memory{values: map[string][]byte{}}
	begin(t, r.URL, kept, nil).send(t, lost("a"), lost("b"))
	kept.values["damaged"], kept.values["large"] = []byte("{"), []byte(`{"labels":{"a":"`+strings.Repeat("x", mostEntry)+`"}}`)
	after := begin(t, r.URL, kept, nil)
	require.Len(t, after.book.open, 2)
	after.send(t, lost("a"))
	require.Len(t, r.got(), 2)
	after.send(t, over(lost("a")))
	require.Len(t, r.got(), 3)
	require.Contains(t, r.got()[2].body, `"status":"resolved"`)
	require.Len(t, kept.values, 1)

	// A disk that takes nothing costs the memory over a restart, and no alert.
	kept.fails = errors.New("no space left on device")
	after.send(t, lost("c"))
	require.Len(t, r.got(), 4)
}

func TestWithoutRoomWhoHasMostGivesWay(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, &memory{values: map[string][]byte{}}, func(c *Config) { c.Format = formatAlertmanager })
	first := but(lost("other"), func(v *verdict.Verdict) { v.Culprit["node"] = "node-1" })
	require.NoError(t, b.consume(t.Context(), records(first)))
	for i := range mostOpen + 9 {
		_, err := b.book.put(t.Context(), fmt.Sprint(i), &open{alert: b.config.alertOf(&[]verdict.Verdict{lost("x")}[0], "")})
		require.NoError(t, err)
	}
	require.Len(t, b.book.open, mostOpen)
	require.NotNil(t, b.book.open["other"])
}

// A user whose jobs fail without end fills no channel, and holds up nobody's alert.
func TestAFloodOfOneUserIsToldByAFew(t *testing.T) {
	for _, format := range []string{formatAlertmanager, formatWebhook, formatSlack} {
		t.Run(format, func(t *testing.T) {
			r := newReceiver(t)
			b := begin(t, r.URL, nil, func(c *Config) { c.Format = format })
			of := func(i int) verdict.Verdict {
				return but(lost(fmt.Sprint("x", i)), func(v *verdict.Verdict) {
					v.Pattern, v.Culprit["job"], v.Culprit["job_domain"], v.Culprit["node"] = "rank_exit", fmt.Sprint(i), "user 1000", "node-18"
				})
			}
			for i := range 1000 {
				b.send(t, of(i))
			}
			b.send(t, lost("a"))
			require.Len(t, r.got(), verdicts.MostTold+1)
			require.Contains(t, r.got()[verdicts.MostTold].body, "fallen off the bus")
			require.Equal(t, map[string]int64{"started": verdicts.MostTold + 1, "crowded": 1000 - verdicts.MostTold}, b.outcomes(t))
			b.send(t, over(of(0)), over(of(999)))
			require.Equal(t, int64(1), b.outcomes(t)["ended"], "who was not told that it began is not told that it ended")
			*b.clock = b.clock.Add(verdicts.ToldWithin)
			b.send(t, but(of(500), func(*verdict.Verdict) {}))
			require.Equal(t, int64(verdicts.MostTold+2), b.outcomes(t)["started"], "what still stands is told when there is room")
		})
	}
}

// A receiver that is away is told later, in order; one that will never take an alert does
// not hold up the others.
func TestAReceiverThatRefuses(t *testing.T) {
	for code, refused := range map[int]bool{400: true, 413: true, 422: true, 401: false, 403: false, 404: false, 429: false, 500: false, 503: false, 302: false} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newReceiver(t)
			r.answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", r.URL+"/elsewhere")
				http.Error(w, "no: "+safetexttest.Hostile+strings.Repeat("x", 1<<20), code)
			})
			b := begin(t, r.URL+"/hunter2", nil, nil)
			err := b.consume(t.Context(), records(lost("a"), lost("b")))
			if refused {
				require.NoError(t, err)
				require.Equal(t, map[string]int64{"refused": 2}, b.outcomes(t))
				require.Empty(t, b.book.open)
				return
			}
			safetexttest.RequireSafe(t, err.Error())
			require.NotContains(t, err.Error(), "hunter2", "the path of a webhook is a secret")
			require.Less(t, len(err.Error()), 600)
			require.Len(t, r.got(), 1, "a redirection is not followed")
			var left consumererror.Logs
			require.ErrorAs(t, err, &left)
			require.Equal(t, 2, left.Data().LogRecordCount())
			r.answers(nil)
			require.NoError(t, b.consume(t.Context(), left.Data()))
			require.Equal(t, map[string]int64{"started": 2}, b.outcomes(t))
		})
	}
}

func TestErrorsKeepTheURLSecret(t *testing.T) {
	r := httptest.NewServer(http.NotFoundHandler())
	r.Close() // nobody listens there any more
	b := begin(t, r.URL+"/hunter2", nil, nil)
	err := b.consume(t.Context(), records(lost("a")))
	require.ErrorContains(t, err, "webhook at 127.0.0.1:")
	require.NotContains(t, err.Error(), "hunter2")
}

func TestAReceiverMayAskForTime(t *testing.T) {
	for asked, want := range map[string]time.Duration{"7": 7 * time.Second, "999999999": mostWait, "soon": 0} {
		response := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {asked}}}
		err := judge(response, nil)
		if want == 0 {
			require.NotContains(t, err.Error(), "Throttle")
			continue
		}
		require.Equal(t, exporterhelper.NewThrottleRetry(errors.New(err.Error()), want).Error()[:8], err.Error()[:8])
		require.Contains(t, err.Error(), want.String())
	}
}

// The whole exporter, with its queue: what a receiver did not take comes when it does.
func TestAQueueHoldsWhatWasNotTaken(t *testing.T) {
	r := newReceiver(t)
	r.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	config := createDefaultConfig().(*Config)
	config.Format, config.Endpoint, config.RetryConfig.InitialInterval = formatSlack, r.URL, time.Millisecond
	e, err := NewFactory().CreateLogs(t.Context(), exportertest.NewNopSettings(metadata.Type), config)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, e.ConsumeLogs(t.Context(), records(lost("a"))))
	require.NoError(t, e.ConsumeLogs(t.Context(), records(over(lost("a")))))
	require.Eventually(t, func() bool { return len(r.got()) > 1 }, patience, time.Millisecond)
	r.answers(nil)
	require.Eventually(t, func() bool {
		all := r.got()
		return strings.Contains(all[len(all)-1].body, "RESOLVED")
	}, patience, time.Millisecond)
	require.NoError(t, e.Shutdown(t.Context()))
}

// Slack shows what strangers wrote, and does nothing that it says.
func TestSlackTakesNoOrdersFromStrangers(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, nil, func(c *Config) { c.Format, c.Drills = formatSlack, true })
	b.send(t, but(lost("a"), func(v *verdict.Verdict) {
		v.Drill = true
		v.Headline = `<!channel> @channel <http://evil|click> "quoted" ![seen](https://evil/pixel)` + safetexttest.Hostile
		v.Culprit["job"] = "<@U123>"
	}))
	require.Len(t, r.got(), 1)
	safetexttest.RequireSafe(t, r.got()[0].body)
	var m slackMessage
	require.NoError(t, json.Unmarshal([]byte(r.got()[0].body), &m))
	require.Equal(t, "DRILL CRITICAL", m.Text)
	a := m.Attachments[0]
	require.Contains(t, a.Title, `&lt;!channel&gt; ＠channel &lt;http：//evil|click&gt; "quoted" !［seen］(https：//evil/pixel)`)
	require.Contains(t, a.Fallback, "DRILL CRITICAL: &lt;!channel&gt;")
	for _, text := range []string{m.Text, a.Title, a.Text, a.Fallback, a.Footer, fmt.Sprint(a.Fields)} {
		require.NotContains(t, text, "<")
		require.NotContains(t, text, "@")
		require.NotContains(t, text, "](")
		require.NotContains(t, text, "://")
	}
	require.Equal(t, []slackField{{"node", "node-17", true}, {"job", "&lt;＠U123&gt;", true}, {"rank", "3", true}, {"gpu", "0000:65:00.0", true}}, a.Fields)
	require.Empty(t, a.MarkdownIn)
}

func TestATemplateMakesTheBody(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, nil, func(c *Config) {
		c.Template = `{"s": {{ json .Status }}, "h": {{ json .Verdict.Headline }}, "w": [{{ range $i, $l := .Where }}{{ if $i }}, {{ end }}{{ json $l }}{{ end }}], "r": {{ json .Annotations.runbook_url }}}`
	})
	b.send(t, but(lost("a"), func(v *verdict.Verdict) { v.Headline = `"} ` + safetexttest.Hostile }))
	safetexttest.RequireSafe(t, r.got()[0].body)
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.got()[0].body), &m))
	require.Equal(t, "firing", m["s"])
	require.Equal(t, []any{"node", "job", "rank", "gpu"}, m["w"])
	require.Contains(t, m["h"], `"} x`)
}

// Alerts of jobs with ever new names, of one domain, take no room from those of another on the node.
func TestAlertsOfOneDomainTakeNoRoomFromAnother(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, &memory{values: map[string][]byte{}}, func(c *Config) { c.Format = formatAlertmanager })
	of := func(id, domain, job string) verdict.Verdict {
		return but(lost(id), func(v *verdict.Verdict) { v.Culprit["job_domain"], v.Culprit["job"] = domain, job })
	}
	for rank := range 8 {
		require.NoError(t, b.consume(t.Context(), records(of(fmt.Sprint("mine-", rank), "user 1000", "llm"))))
	}
	for i := range mostOpen + 9 {
		v := of("x", "user 1001", fmt.Sprint("job-", i))
		_, err := b.book.put(t.Context(), fmt.Sprint(i), &open{alert: b.config.alertOf(&v, ""), Domain: v.Culprit["job_domain"]})
		require.NoError(t, err)
	}
	require.Len(t, b.book.open, mostOpen)
	for rank := range 8 {
		require.NotNil(t, b.book.open[fmt.Sprint("mine-", rank)], rank)
	}
}

// An onset of a clock that was ahead: an Alertmanager refuses an alert that begins after it
// ends.
func TestAClockThatWasAheadSilencesNothing(t *testing.T) {
	am := alertmanagertest.Start(t)
	b := begin(t, am.URL, nil, func(c *Config) { c.Format, c.Resend = formatAlertmanager, time.Minute })
	*b.clock = time.Now()
	ahead := but(lost("a"), func(v *verdict.Verdict) {
		v.Onset, v.Updated = b.clock.Add(10*time.Minute), b.clock.Add(10*time.Minute)
	})
	b.send(t, ahead)
	require.Len(t, am.Alerts(t), 1, "%v", b.outcomes(t))
	require.NoError(t, b.renew(t.Context()))
	b.send(t, but(ahead, func(v *verdict.Verdict) { v.Status, v.Resolved = verdict.Resolved, &ahead.Updated }))
	require.Eventually(t, func() bool { return b.renew(t.Context()) == nil && len(am.Alerts(t)) == 0 }, patience, 10*time.Millisecond)
	require.Equal(t, map[string]int64{"started": 1, "ended": 1}, b.outcomes(t))
}

// What a receiver does not take of one request keeps the alerts of the others from no
// renewal: an Alertmanager would end them while they last.
func TestOneRefusedRequestIsNotTheEndOfTheOthers(t *testing.T) {
	for name, most := range map[string]int{"too large together": 1 << 14, "of which it takes none": 0} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t)
			b := begin(t, r.URL, nil, func(c *Config) { c.Format = formatAlertmanager })
			for i := range 2*mostAtOnce + 1 {
				b.send(t, but(lost(fmt.Sprintf("v%03d", i)), func(v *verdict.Verdict) { v.Culprit["node"] = fmt.Sprint("node-", i) }))
			}
			renewed, posts := 0, 0
			b.courier.client.Transport = answers(func(body string) int {
				posts++
				if most == 0 && posts == 1 {
					return http.StatusBadRequest
				}
				if most > 0 && len(body) > most {
					return http.StatusRequestEntityTooLarge
				}
				renewed += strings.Count(body, `"verdict_id"`)
				return http.StatusOK
			})
			err := b.renew(t.Context())
			if most == 0 {
				require.ErrorIs(t, err, errRefused)
				require.Equal(t, mostAtOnce+1, renewed)
				return
			}
			require.Equal(t, 2*mostAtOnce+1, renewed)
			require.NoError(t, err)
		})
	}
}

// answers is a receiver that answers as a test says.
type answers func(body string) int

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: a(string(body)), Header: http.Header{}, Body: io.NopCloser(strings.NewReader("internal error")), Request: r}, nil
}

// A channel that is away for longer than stale: what ended meanwhile is told, and what stands
// is not told twice.
func TestAnOutageLongerThanStale(t *testing.T) {
	r := newReceiver(t)
	b := begin(t, r.URL, nil, func(c *Config) { c.Format, c.Stale, c.Resend = formatSlack, 35*time.Minute, time.Minute })
	on := func(node string) func(*verdict.Verdict) {
		return func(v *verdict.Verdict) { v.Culprit["node"] = node }
	}
	second, third := but(lost("b"), on("node-18")), but(lost("c"), on("node-19"))
	b.send(t, lost("a"), second)
	require.Len(t, r.got(), 2)
	// The third waits at the head of the queue, the end of the first and the second again behind it.
	r.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	for range 60 {
		*b.clock = b.clock.Add(time.Minute)
		require.Error(t, b.consume(t.Context(), records(third)))
		require.NoError(t, b.renew(t.Context()))
	}
	r.answers(nil)
	before := len(r.got())
	require.NoError(t, b.renew(t.Context()))
	b.send(t, third, over(lost("a")), second)
	after := r.got()[before:]
	require.Len(t, after, 2)
	require.Contains(t, after[0].body, `"text":"CRITICAL"`)
	require.Contains(t, after[1].body, `"text":"RESOLVED"`)

	*b.clock = b.clock.Add(36 * time.Minute)
	require.NoError(t, b.renew(t.Context()))
	require.Empty(t, b.book.open, "now nobody confirms them")
}

// A verdict that a receiver cannot digest keeps no other from it, and is told when it can.
func TestWhatIsRefusedAloneHoldsNobodyUp(t *testing.T) {
	for _, code := range []int{403, 405, 409, 411, 415, 500, 501} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			r := newReceiver(t)
			b := begin(t, r.URL, nil, func(c *Config) { c.Stale = time.Hour })
			b.send(t, lost("a poison")) // which ends, and that it refuses
			good := b.courier.client.Transport
			b.courier.client.Transport = answers(func(body string) int {
				if strings.Contains(body, "poison") {
					return code
				}
				return http.StatusOK
			})
			ld := records(over(lost("a poison")), lost("more poison"), lost("b"))
			var err error
			for range 3 {
				var rest consumererror.Logs
				if err = b.consume(t.Context(), ld); errors.As(err, &rest) {
					ld = rest.Data()
				}
			}
			require.NoError(t, err)
			require.NotNil(t, b.book.open["b"])
			*b.clock = b.clock.Add(2 * time.Hour)
			b.send(t, lost("b"))
			require.NoError(t, b.renew(t.Context()))
			require.NotNil(t, b.book.open["a poison"], "its end is to be told")

			b.courier.client.Transport = good
			require.NoError(t, b.renew(t.Context()))
			require.Len(t, r.got(), 3)
			require.Nil(t, b.book.open["a poison"])
			require.Equal(t, map[string]int64{"started": 3, "aside": 2, "ended": 1, "unchanged": 1}, b.outcomes(t))
		})
	}
}

// A webhook whose handler breaks at one text: a server of Go's closes the connection without an
// answer, and a firewall resets it. Who hangs, is not there or has another certificate is away.
func TestATextThatBreaksItsReceiverHoldsNobodyUp(t *testing.T) {
	for name, how := range map[string]func(*http.Request, *net.TCPConn){
		"closes": func(*http.Request, *net.TCPConn) {},
		"resets": func(_ *http.Request, conn *net.TCPConn) { _ = conn.SetLinger(0) },
		"hangs":  func(r *http.Request, _ *net.TCPConn) { <-r.Context().Done() },
	} {
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " kept connection ", kept), func(t *testing.T) {
				s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if !strings.Contains(string(body), "poison") {
						return
					}
					if name == "hangs" {
						how(r, nil)
						return
					}
					conn, _, err := w.(http.Hijacker).Hijack()
					if err != nil {
						panic(err)
					}
					how(r, conn.(*net.TCPConn))
					_ = conn.Close()
				}))
				s.Start()
				defer s.Close()
				b := begin(t, s.URL, nil, func(c *Config) {
					if name == "hangs" {
						c.Timeout = 50 * time.Millisecond
					}
				})
				if kept && name != "hangs" {
					b.send(t, lost("before"))
				}
				ld := records(lost("poison"), lost("b"))
				for range 3 {
					var rest consumererror.Logs
					if errors.As(b.consume(t.Context(), ld), &rest) {
						ld = rest.Data()
					}
				}
				require.Equal(t, name != "hangs", b.book.open["b"] != nil)
			})
		}
	}
	for name, s := range map[string]*httptest.Server{"another certificate": httptest.NewTLSServer(nil), "gone": httptest.NewServer(nil)} {
		t.Run(name, func(t *testing.T) {
			if s.Config.ErrorLog = log.New(io.Discard, "", 0); name == "gone" {
				s.Close()
			}
			defer s.Close()
			b := begin(t, s.URL, nil, nil)
			for range 4 {
				require.Error(t, b.consume(t.Context(), records(lost("a"))))
			}
			require.False(t, b.turns.Aside("a"))
		})
	}
}

// A receiver that answers 500 to everything for a night is away: no end of an alert is lost.
func TestAReceiverThatAnswers500ToAllLosesNoEnd(t *testing.T) {
	const all = 300
	down := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	b := begin(t, s.URL, nil, nil)
	var queue []verdict.Verdict
	for i := range all {
		v := but(lost(fmt.Sprint("v", i)), func(v *verdict.Verdict) { v.Culprit["node"] = fmt.Sprint("node-", i) })
		b.send(t, v)
		queue = append(queue, over(v))
	}
	down = true
	try := func() {
		for range 2 * all {
			if len(queue) > 0 && b.consume(t.Context(), records(queue[0])) == nil {
				queue = queue[1:]
			}
		}
	}
	try()
	require.NotEmpty(t, queue)
	require.NoError(t, b.renew(t.Context()))
	down = false
	require.NoError(t, b.renew(t.Context()))
	try()
	require.Empty(t, queue)
	require.Empty(t, b.book.open)
}

// An alert that ends while its verdict goes on says so.
func TestWhatGoesOnIsNotResolved(t *testing.T) {
	for want, change := range map[string]func(*verdict.Verdict){
		"":                                func(v *verdict.Verdict) { v.Status, v.Resolved = verdict.Resolved, &v.Updated },
		"explained by another root cause": func(v *verdict.Verdict) { v.Role, v.RootCause = verdict.Symptom, "other" },
		"no longer certain":               func(v *verdict.Verdict) { v.Confidence = verdict.Partial },
		"no longer severe":                func(v *verdict.Verdict) { v.Severity = verdict.Info },
	} {
		t.Run(want, func(t *testing.T) {
			bodies := map[string]string{}
			for _, format := range []string{formatSlack, formatWebhook, formatAlertmanager} {
				r := newReceiver(t)
				b := begin(t, r.URL, nil, func(c *Config) { c.Format = format })
				b.send(t, lost("a"), but(lost("a"), change))
				require.Len(t, r.got(), 2)
				bodies[format] = r.got()[1].body
			}
			if want == "" {
				require.Contains(t, bodies[formatSlack], `"text":"RESOLVED"`)
				require.NotContains(t, bodies[formatWebhook]+bodies[formatAlertmanager], `"why"`)
				return
			}
			require.NotContains(t, bodies[formatSlack], "RESOLVED")
			require.NotContains(t, bodies[formatSlack], "#2eb886", "green")
			require.Contains(t, bodies[formatSlack], `"text":"ALERT ENDS, `+strings.ToUpper(want)+`"`)
			require.Contains(t, bodies[formatWebhook], `"why":"`+want+`"`)
			require.Contains(t, bodies[formatAlertmanager], `"why":"`+want+`"`)
		})
	}
}

// An alert with all the text that it may have is read back after a restart, whatever strangers
// wrote into it.
func TestALargeAlertOutlivesARestart(t *testing.T) {
	for _, sign := range []string{"<", `"`, "\u2028", "é"} {
		t.Run(sign, func(t *testing.T) {
			r, kept := newReceiver(t), &memory{values: map[string][]byte{}}
			long := strings.Repeat(sign, verdict.MaxRemediationBytes)
			large := verdict.Bounded(but(lost("a"), func(v *verdict.Verdict) {
				v.Headline, v.Remediation, v.Evidence = long, long, nil
				for _, key := range culprits {
					v.Culprit[key[0]] = long
				}
				v.Culprit["node"], v.Culprit["job_domain"] = long, long
				for i := range verdict.MaxEvidence {
					v.Evidence = append(v.Evidence, verdict.Evidence{Name: fmt.Sprint("e", i), Time: onset, Count: 1, Source: "gpu.xid", Shows: long, Trust: verdict.Proven})
				}
				for range verdict.MaxNotObserved {
					v.NotObserved = append(v.NotObserved, long)
				}
			}))
			begin(t, r.URL, kept, nil).send(t, large)
			require.Less(t, len(kept.values["a"]), mostEntry)
			after := begin(t, r.URL, kept, nil)
			after.send(t, large)
			require.Len(t, r.got(), 1, "told once")
			after.send(t, over(large))
			require.Len(t, r.got(), 2, "and its end")
		})
	}
}
