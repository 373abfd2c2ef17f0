package alertexporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tracecoreai/tracecore/exporters/alertexporter/internal/metadata"
	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

const (
	// mostAnswer is what is read of an answer: it is shown where it is a refusal.
	mostAnswer = 1 << 10
	// mostWait bounds what a receiver may ask to be left alone for.
	mostWait = 5 * time.Minute
)

// errRefused is an answer that no repetition changes.
var errRefused = errors.New("it will never take this")

// errTooLarge is errRefused, of what may pass in parts.
var errTooLarge = fmt.Errorf("%w: it is too large", errRefused)

// courier posts requests to the one address that it has.
type courier struct {
	config    *Config
	client    *http.Client
	host      string // of the address; the rest of it may be a secret
	telemetry *metadata.TelemetryBuilder
}

func newCourier(ctx context.Context, config *Config, host component.Host, set component.TelemetrySettings, telemetry *metadata.TelemetryBuilder) (*courier, error) {
	client, err := config.ToClient(ctx, host.GetExtensions(), set)
	if err != nil {
		return nil, err
	}
	// Nobody sends verdicts and tokens on to another address.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	u, err := url.Parse(config.Endpoint)
	if err != nil {
		return nil, errors.New("endpoint: that is no URL")
	}
	return &courier{config: config, client: client, host: u.Host, telemetry: telemetry}, nil
}

// post sends a request once. An error is errRefused, or worth another attempt.
func (c *courier) post(ctx context.Context, body []byte) error {
	result := "taken"
	err := c.try(ctx, body)
	switch {
	case errors.Is(err, errRefused):
		result = "refused"
	case err != nil:
		result = "failed"
	}
	c.telemetry.ExporterAlertRequests.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
	if err != nil {
		return fmt.Errorf("%s at %s: %w", c.config.Format, c.host, err)
	}
	return nil
}

func (c *courier) try(ctx context.Context, body []byte) error {
	stood := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { stood = true }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.url(), bytes.NewReader(body))
	if err != nil {
		return withoutURL(err)
	}
	request.Header.Set("Content-Type", c.config.contentType())
	request.Header.Set("User-Agent", "tracecore")
	response, err := c.client.Do(request)
	var slow net.Error
	switch {
	case err != nil && stood && ctx.Err() == nil && !(errors.As(err, &slow) && slow.Timeout()):
		// A text that its handler breaks at, or that a firewall cuts off, ends so.
		return verdicts.Alone(fmt.Errorf("it broke the connection: %w", withoutURL(err)))
	case err != nil:
		return withoutURL(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	return judge(response, answer)
}

// judge says what an answer means. A token that is wrong or an address that is not there
// can be mended, so that what they keep back waits. What says that nobody is there waits in
// its order; every other answer may be about this one alone: a template of the receiver that
// breaks, a firewall that dislikes a text.
func judge(response *http.Response, answer []byte) error {
	code := response.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	said := fmt.Errorf("%d %s: %s", code, http.StatusText(code), safetext.Clip(safetext.Line(string(answer)), 200))
	switch {
	case code >= 300 && code < 400:
		return fmt.Errorf("%w: it leads to another address, which is not followed: set endpoint to that", said)
	case code == http.StatusUnauthorized:
		return fmt.Errorf("%w: check its token or password", said)
	case code == http.StatusForbidden:
		return verdicts.Alone(fmt.Errorf("%w: check its token or password", said))
	case code == http.StatusNotFound:
		return fmt.Errorf("%w: check endpoint", said)
	case code == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", said, errTooLarge)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", said, errRefused)
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		return exporterhelper.NewThrottleRetry(said, min(time.Duration(min(seconds, 1<<20))*time.Second, mostWait))
	}
	switch code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return said
	}
	return verdicts.Alone(said)
}

// withoutURL takes the URL out of an error: that of a webhook is a secret.
func withoutURL(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}

func (c *Config) contentType() string {
	if c.Format == formatWebhook && c.Template != "" {
		return c.ContentType
	}
	return jsonType
}
