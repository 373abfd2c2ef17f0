package agentauthextension

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/extensionauth"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tracecoreai/tracecore/extensions/agentauthextension/internal/metadata"
	"github.com/tracecoreai/tracecore/internal/ingress"
)

// agentAuth is both ends: it shows a token, or checks what others show.
type agentAuth struct {
	config    *Config
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder
	tokens    *tokens // nil: none are taken
	told      sync.Map
}

var (
	_ extensionauth.Server     = (*agentAuth)(nil)
	_ extensionauth.GRPCClient = (*agentAuth)(nil)
)

func newAgentAuth(settings extension.Settings, config *Config) (*agentAuth, error) {
	telemetry, err := metadata.NewTelemetryBuilder(settings.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	return &agentAuth{config: config, logger: settings.Logger, telemetry: telemetry}, nil
}

// Start connects to the API server; no request is made.
func (e *agentAuth) Start(context.Context, component.Host) error {
	if e.config.TokenReview == nil {
		return nil
	}
	review, err := newReview(e.config.TokenReview)
	if err != nil {
		return err
	}
	e.tokens = newTokens(e.config.TokenReview, func(ctx context.Context, token string) (answer, error) {
		e.telemetry.ExtensionAgentAuthReviews.Add(ctx, 1)
		return review(ctx, token)
	})
	return nil
}

// Shutdown ends the metrics.
func (e *agentAuth) Shutdown(context.Context) error {
	e.telemetry.Shutdown()
	return nil
}

const bearer = "Bearer "

// Reasons of a refusal, as the metric has them.
const (
	forAccount     = "account"     // of others than the agents
	forBusy        = "busy"        // too many new tokens
	forInvalid     = "invalid"     // the token does not hold
	forMissing     = "missing"     // no credential
	forNode        = "node"        // no node in it
	forUnavailable = "unavailable" // the API server did not answer
)

// refusal says why a sender is no agent.
type refusal struct {
	reason string
	says   string
	again  bool // the same request may be taken later
}

func (r *refusal) Error() string { return r.says }

// Authenticate implements extensionauth.Server. A request without a credential is refused:
// what strangers send has a receiver of its own.
func (e *agentAuth) Authenticate(ctx context.Context, headers map[string][]string) (context.Context, error) {
	agent, err := e.identify(ctx, headers)
	if err != nil {
		return ctx, e.refuse(ctx, err)
	}
	e.telemetry.ExtensionAgentAuthAccepted.Add(ctx, 1)
	e.tell(ctx, &agent, headers)
	info := client.FromContext(ctx)
	info.Auth = agent
	return client.NewContext(ctx, info), nil
}

// identify finds out who sends. A token goes first: all agents may share a certificate.
func (e *agentAuth) identify(ctx context.Context, headers map[string][]string) (ingress.Agent, error) {
	if token, ok := tokenIn(headers); ok && e.tokens != nil {
		return e.tokens.agent(ctx, token)
	}
	if e.config.ClientCertificate != nil {
		if name := certified(ctx); name != "" {
			return e.config.ClientCertificate.agent(name), nil
		}
	}
	return ingress.Agent{}, &refusal{forMissing, "no credential: an agent sets `auth: {authenticator: agent_auth}` on its exporter", false}
}

// tokenIn is the one token of a request. More than one are none.
func tokenIn(headers map[string][]string) (string, bool) {
	var all []string
	for key, values := range headers {
		if strings.EqualFold(key, "authorization") {
			all = append(all, values...)
		}
	}
	if len(all) != 1 || len(all[0]) <= len(bearer) || !strings.EqualFold(all[0][:len(bearer)], bearer) {
		return "", false
	}
	return all[0][len(bearer):], true
}

// certified is the common name of the certificate that the sender has shown and whose
// chain was checked, "" for none.
func certified(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	return info.State.VerifiedChains[0][0].Subject.CommonName
}

func (c *ClientCertificate) agent(name string) ingress.Agent {
	if slices.Contains(c.Relays, name) {
		return ingress.Agent{Relay: true}
	}
	return ingress.Agent{Host: name}
}

// refuse counts a refusal, says the first of each kind, and makes the answer to the
// sender. What may be taken later is tried again by an agent's exporter.
func (e *agentAuth) refuse(ctx context.Context, err error) error {
	r := &refusal{forUnavailable, "the API server does not answer: " + err.Error(), true}
	if own := (*refusal)(nil); errors.As(err, &own) {
		r = own
	}
	e.telemetry.ExtensionAgentAuthRefused.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", r.reason)))
	if _, known := e.told.LoadOrStore(r.reason, true); !known {
		from := ""
		if address := client.FromContext(ctx).Addr; address != nil {
			from = address.String()
		}
		e.logger.Warn("a sender was refused; more for this reason are only counted", zap.String("reason", r.reason), zap.String("sender", from), zap.String("error", r.says))
	}
	if r.again {
		return status.Error(codes.Unavailable, "agent_auth: "+r.says)
	}
	return status.Error(codes.Unauthenticated, "agent_auth: "+r.says)
}
