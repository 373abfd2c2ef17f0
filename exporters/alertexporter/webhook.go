package alertexporter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"text/template"
	"time"

	"github.com/tracecoreai/tracecore/internal/safetext"
	"github.com/tracecoreai/tracecore/patterns/verdict"
)

// mostBody bounds a request; no verdict needs more.
const mostBody = 4 << 20

// bodyOf is what a webhook is sent.
func (c *Config) bodyOf(n *notice) ([]byte, error) {
	switch {
	case c.Format == formatSlack:
		return slackBody(n)
	case c.Template == "":
		return safetext.Marshal(n)
	}
	t, err := parse(c.Template)
	if err != nil {
		return nil, err
	}
	return c.execute(t, n)
}

// parse reads a template. `json` is any value as JSON, quotes included.
func parse(text string) (*template.Template, error) {
	return template.New("template").Option("missingkey=zero").Funcs(template.FuncMap{
		"json": func(value any) (string, error) {
			text, err := safetext.Marshal(value)
			return string(text), err
		},
	}).Parse(text)
}

func (c *Config) execute(t *template.Template, n *notice) ([]byte, error) {
	out := bounded{}
	if err := t.Execute(&out, n); err != nil {
		return nil, err
	}
	if c.ContentType == jsonType && !json.Valid(out.Bytes()) {
		return nil, errors.New("what it makes is no JSON: write {{ json .Verdict.Headline }} where a text stands, without quotes of its own")
	}
	return out.Bytes(), nil
}

// bounded is a buffer that refuses to grow without end.
type bounded struct{ bytes.Buffer }

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > mostBody {
		return 0, fmt.Errorf("it makes more than %d MiB", mostBody>>20)
	}
	return b.Buffer.Write(p)
}

// validateTemplate tries the template with a verdict whose texts have all that JSON must
// escape: one that puts them in as they are is refused now, and not when it matters.
func (c *Config) validateTemplate() error {
	if c.Template == "" {
		return nil
	}
	if c.Format != formatWebhook {
		return fmt.Errorf("template: the format %s has a form of its own: write format: webhook", c.Format)
	}
	t, err := parse(c.Template)
	if err != nil {
		return fmt.Errorf("template: %w", err)
	}
	for _, status := range []string{firing, resolved} {
		n := c.sample(status)
		if _, err := c.execute(t, n); err != nil {
			return fmt.Errorf("template: with a verdict whose texts have quotes and line ends: %w", err)
		}
	}
	return nil
}

func (c *Config) sample(status string) *notice {
	const text = "\"a\" \\ 'b'\n<c>"
	at := time.Unix(1_700_000_000, 0).UTC()
	v := verdict.Verdict{
		ID: text, IncidentID: text, Pattern: text, Role: verdict.RootCause, Status: verdict.Open, Confidence: verdict.Full, Severity: verdict.Error, Revision: 1,
		Onset: at, Updated: at, Headline: text, Remediation: text, Culprit: map[string]string{"node": text}, NotObserved: []string{text},
		Evidence: []verdict.Evidence{{Name: text, Time: at, Count: 1, Source: text, Shows: text}}, Steps: []verdict.Step{{Text: text, Command: text}},
	}
	for _, key := range culprits {
		v.Culprit[key[0]] = text
	}
	n := &notice{Status: status, alert: c.alertOf(&v, ""), Verdict: v}
	if status == resolved {
		n.Ends = &at
	}
	return n
}
