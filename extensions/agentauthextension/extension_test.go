package agentauthextension

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tracecoreai/tracecore/internal/hosttest"
	"github.com/tracecoreai/tracecore/internal/ingress"
)

const audience, agentAccount, relayAccount = "tracecore", "gpu/tracecore", "gpu/tracecore-events"

// tokenOf is a token that says this of itself; who is the nonce of its signature.
func tokenOf(t *testing.T, account string, audience any, expires time.Time, who string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"sub": accountPrefix + strings.Replace(account, "/", ":", 1), "aud": audience, "exp": expires.Unix()})
	require.NoError(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(text) + "." + who
}

// gateway is an extension whose API server is a function.
func gateway(t *testing.T, ask func(token string) (answer, error)) (*agentAuth, *atomic.Int32) {
	t.Helper()
	config := &TokenReview{Audience: audience, Agents: []string{agentAccount}, Relays: []string{relayAccount}}
	e, err := newAgentAuth(extensiontest.NewNopSettings(component.MustNewType("agent_auth")), &Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	asked := &atomic.Int32{}
	e.tokens = newTokens(config, func(_ context.Context, token string) (answer, error) {
		asked.Add(1)
		return ask(token)
	})
	return e, asked
}

func user(account string) string {
	return accountPrefix + strings.Replace(account, "/", ":", 1)
}

// good says that a token is the agent's on node-b.
func good(string) (answer, error) {
	return answer{authenticated: true, audiences: []string{audience}, user: user(agentAccount), nodes: []string{"node-b"}}, nil
}

func headers(token string) map[string][]string {
	return map[string][]string{"authorization": {"Bearer " + token}}
}

func (e *agentAuth) who(t *testing.T, headers map[string][]string) (any, codes.Code) {
	t.Helper()
	ctx, err := e.Authenticate(t.Context(), headers)
	return client.FromContext(ctx).Auth, status.Code(err)
}

func TestATokenSaysWhichAgentSends(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	valid := tokenOf(t, agentAccount, []string{"other", audience}, soon, "a")
	nodes := func(nodes ...string) func(string) (answer, error) {
		return func(string) (answer, error) {
			a, _ := good("")
			a.nodes = nodes
			return a, nil
		}
	}
	for name, tt := range map[string]struct {
		headers map[string][]string
		ask     func(string) (answer, error)
		agent   any
		code    codes.Code
		asked   int32
	}{
		"an agent": {headers(valid), good, ingress.Agent{Host: "node-b", Node: true}, codes.OK, 1},
		"a relay": {headers(tokenOf(t, relayAccount, audience, soon, "")), func(string) (answer, error) {
			return answer{authenticated: true, audiences: []string{audience}, user: user(relayAccount), nodes: []string{"node-c"}}, nil
		}, ingress.Agent{Relay: true}, codes.OK, 1},
		"no header":                    {nil, good, nil, codes.Unauthenticated, 0},
		"two headers":                  {map[string][]string{"authorization": {"Bearer " + valid, "Bearer x"}}, good, nil, codes.Unauthenticated, 0},
		"two headers of two spellings": {map[string][]string{"authorization": {"Bearer " + valid}, "Authorization": {"Bearer " + valid}}, good, nil, codes.Unauthenticated, 0},
		"another scheme":               {map[string][]string{"authorization": {"Basic " + valid}}, good, nil, codes.Unauthenticated, 0},
		"no token":                     {headers(""), good, nil, codes.Unauthenticated, 0},
		"no JWT":                       {headers("x"), good, nil, codes.Unauthenticated, 0},
		"a JWT of nonsense":            {headers("e30.!!.x"), good, nil, codes.Unauthenticated, 0},
		"a long token":                 {headers(strings.Repeat("x", longestToken+1)), good, nil, codes.Unauthenticated, 0},
		"for the API server":           {headers(tokenOf(t, agentAccount, "https://kubernetes.default.svc", soon, "")), good, nil, codes.Unauthenticated, 0},
		"for nobody":                   {headers(tokenOf(t, agentAccount, nil, soon, "")), good, nil, codes.Unauthenticated, 0},
		"expired":                      {headers(tokenOf(t, agentAccount, audience, time.Now().Add(-time.Second), "")), good, nil, codes.Unauthenticated, 0},
		"another account":              {headers(tokenOf(t, "ml/default", audience, soon, "")), good, nil, codes.Unauthenticated, 0},
		"the server says no":           {headers(valid), func(string) (answer, error) { return answer{err: "invalid signature"}, nil }, nil, codes.Unauthenticated, 1},
		"the server knows no audiences": {headers(valid), func(string) (answer, error) {
			return answer{authenticated: true, user: user(agentAccount), nodes: []string{"n"}}, nil
		}, nil, codes.Unauthenticated, 1},
		"the server knows it as another": {headers(valid), func(string) (answer, error) {
			return answer{authenticated: true, audiences: []string{audience}, user: user("ml/default"), nodes: []string{"n"}}, nil
		}, nil, codes.Unauthenticated, 1},
		"a person": {headers(valid), func(string) (answer, error) {
			return answer{authenticated: true, audiences: []string{audience}, user: "gpu:tracecore", nodes: []string{"n"}}, nil
		}, nil, codes.Unauthenticated, 1},
		"no node":               {headers(valid), nodes(), nil, codes.Unauthenticated, 1},
		"an empty node":         {headers(valid), nodes(""), nil, codes.Unauthenticated, 1},
		"two nodes":             {headers(valid), nodes("a", "b"), nil, codes.Unauthenticated, 1},
		"the server is away":    {headers(valid), func(string) (answer, error) { return answer{}, errors.New("refused") }, nil, codes.Unavailable, 1},
		"the server is halfway": {headers(valid), func(string) (answer, error) { a, _ := good(""); return a, errors.New("cut") }, nil, codes.Unavailable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			e, asked := gateway(t, tt.ask)
			agent, code := e.who(t, tt.headers)
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.agent, agent)
			require.Equal(t, tt.asked, asked.Load(), "questions to the API server")
		})
	}
}

// TestAnAnswerCountsForAMinute: then the pod may have gone, and its token with it.
func TestAnAnswerCountsForAMinute(t *testing.T) {
	now := time.Now()
	answers := good
	e, asked := gateway(t, func(token string) (answer, error) { return answers(token) })
	e.tokens.now = func() time.Time { return now }
	token := headers(tokenOf(t, agentAccount, audience, now.Add(90*time.Second), "a"))
	for _, step := range []struct {
		after time.Duration
		says  func(string) (answer, error)
		code  codes.Code
		asked int32
	}{
		{0, good, codes.OK, 1},
		{fresh - time.Second, good, codes.OK, 1},
		{time.Second, func(string) (answer, error) { return answer{}, errors.New("away") }, codes.Unavailable, 2},
		{0, good, codes.OK, 3},
		{29 * time.Second, good, codes.OK, 3},
		{time.Second, good, codes.Unauthenticated, 3}, // it has expired
	} {
		now, answers = now.Add(step.after), step.says
		_, code := e.who(t, token)
		require.Equal(t, step.code, code)
		require.Equal(t, step.asked, asked.Load())
	}
	other := headers(tokenOf(t, agentAccount, audience, now.Add(time.Hour), "b"))
	_, code := e.who(t, other)
	require.Equal(t, codes.OK, code)
	now, answers = now.Add(fresh), func(string) (answer, error) { return answer{err: "the pod has gone"}, nil }
	_, code = e.who(t, other)
	require.Equal(t, codes.Unauthenticated, code)
	require.Empty(t, e.tokens.known[[32]byte{}].agent)
	require.Len(t, e.tokens.known, 1, "the one that expired; what is refused is not kept")
}

// TestAFloodOfTokensLeavesAgentsIn: invented tokens reach a limit; agents that are known
// are asked about beyond it.
func TestAFloodOfTokensLeavesAgentsIn(t *testing.T) {
	now := time.Now()
	genuine := tokenOf(t, agentAccount, audience, now.Add(time.Hour), "genuine")
	e, asked := gateway(t, func(token string) (answer, error) {
		if token != genuine {
			return answer{err: "invalid signature"}, nil
		}
		return good(token)
	})
	e.tokens.now = func() time.Time { return now }
	_, code := e.who(t, headers(genuine))
	require.Equal(t, codes.OK, code)
	busy := 0
	for i := range 10 * newBurst {
		if _, code := e.who(t, headers(tokenOf(t, agentAccount, audience, now.Add(time.Hour), fmt.Sprint(i)))); code == codes.Unavailable {
			busy++
		}
	}
	require.EqualValues(t, newBurst, asked.Load())
	require.Equal(t, 10*newBurst-newBurst+1, busy)
	require.Len(t, e.tokens.known, 1)
	now = now.Add(fresh)
	e.tokens.unseen.SetBurst(0)
	_, code = e.who(t, headers(genuine))
	require.Equal(t, codes.OK, code, "an agent that is known")
}

// TestRequestsOfOneTokenAskOnce: an agent begins with many requests at once.
func TestRequestsOfOneTokenAskOnce(t *testing.T) {
	release := make(chan struct{})
	e, asked := gateway(t, func(token string) (answer, error) {
		<-release
		return good(token)
	})
	token := headers(tokenOf(t, agentAccount, audience, time.Now().Add(time.Hour), ""))
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { _, _ = e.Authenticate(context.Background(), token) })
	}
	require.Eventually(t, func() bool { return asked.Load() == 1 }, hosttest.Patience, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.Authenticate(ctx, token)
	require.Error(t, err, "a sender that goes away is not waited for")
	close(release)
	all.Wait()
	require.LessOrEqual(t, asked.Load(), int32(2))
}

func TestTheMemoryOfTokensIsBounded(t *testing.T) {
	now := time.Now()
	tokens := newTokens(&TokenReview{}, nil)
	for i := range mostKnown + 10 {
		key := [32]byte{byte(i), byte(i >> 8), byte(i >> 16)}
		tokens.put(key, known{expires: now.Add(time.Hour)})
	}
	require.Len(t, tokens.known, mostKnown)
	tokens.now = func() time.Time { return now.Add(2 * time.Hour) }
	tokens.put([32]byte{1, 2, 3, 4}, known{expires: now.Add(3 * time.Hour)})
	require.Len(t, tokens.known, 1)
}

// TestACertificateNamesItsHost: only a chain that TLS has verified counts.
func TestACertificateNamesItsHost(t *testing.T) {
	e, err := newAgentAuth(extensiontest.NewNopSettings(component.MustNewType("agent_auth")), &Config{ClientCertificate: &ClientCertificate{Relays: []string{"events"}}})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), nil))
	shown := func(state tls.ConnectionState) context.Context {
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
	}
	certificate := func(name string) []*x509.Certificate {
		return []*x509.Certificate{{Subject: pkix.Name{CommonName: name}}}
	}
	verified := func(name string) context.Context {
		return shown(tls.ConnectionState{PeerCertificates: certificate(name), VerifiedChains: [][]*x509.Certificate{certificate(name)}})
	}
	for name, tt := range map[string]struct {
		ctx  context.Context
		want any
	}{
		"a host":       {verified("node-b"), ingress.Agent{Host: "node-b"}},
		"a relay":      {verified("events"), ingress.Agent{Relay: true}},
		"no name":      {verified(""), nil},
		"not verified": {shown(tls.ConnectionState{PeerCertificates: certificate("node-b")}), nil},
		"no TLS":       {t.Context(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, err := e.Authenticate(tt.ctx, headers("a token that nobody checks"))
			require.Equal(t, tt.want, client.FromContext(ctx).Auth)
			require.Equal(t, tt.want == nil, err != nil)
		})
	}
	require.NoError(t, e.Shutdown(t.Context()))
}

func TestTheTokenIsReadAtEachRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	e, err := newAgentAuth(extensiontest.NewNopSettings(component.MustNewType("agent_auth")), &Config{TokenFile: file})
	require.NoError(t, err)
	c, err := e.PerRPCCredentials()
	require.NoError(t, err)
	require.False(t, c.RequireTransportSecurity())
	_, err = c.GetRequestMetadata(t.Context())
	require.Equal(t, codes.Unavailable, status.Code(err), "the exporter tries again")
	for _, token := range []string{"one", "two"} {
		require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		got, err := c.GetRequestMetadata(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]string{"authorization": "Bearer " + token}, got)
	}
}

func TestConfig(t *testing.T) {
	all, err := confmaptest.LoadConf("testdata/config.yaml")
	require.NoError(t, err)
	for id, says := range map[string]string{
		"agent_auth": "set token_file on an agent", "agent_auth/agent": "", "agent_auth/gateway": "", "agent_auth/no_audience": "audience: without one",
		"agent_auth/nobody": "name the service accounts", "agent_auth/no_account": "write NAMESPACE/NAME", "agent_auth/both": "speaks of its own node alone",
	} {
		t.Run(id, func(t *testing.T) {
			sub, err := all.Sub(id)
			require.NoError(t, err)
			config := NewFactory().CreateDefaultConfig()
			require.NoError(t, sub.Unmarshal(config))
			if err := confmap.Validate(config); says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, says)
			}
		})
	}
}
