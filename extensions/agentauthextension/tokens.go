package agentauthextension

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// Limits. A token is 1 to 2 KB; an agent has one at a time, and a new one each hour.
const (
	longestToken = 16 << 10
	fresh        = time.Minute // so long a review counts: then a deleted pod's token ends
	mostKnown    = 1 << 15     // tokens; 3 MB
	// Tokens that nobody has seen before: a start of a gateway of thousands of nodes.
	newPerSecond, newBurst = 100, 500
)

// tokens remembers what the API server said of tokens. Of those that were an agent's
// there is room for the largest cluster; refused ones are not kept.
type tokens struct {
	config *TokenReview
	review func(ctx context.Context, token string) (answer, error)
	unseen *rate.Limiter
	flight singleflight.Group
	now    func() time.Time

	mu    sync.Mutex
	known map[[sha256.Size]byte]known
}

// known is a token that was an agent's.
type known struct {
	agent   ingress.Agent
	checked time.Time
	expires time.Time
}

func newTokens(config *TokenReview, review func(context.Context, string) (answer, error)) *tokens {
	return &tokens{
		config: config, review: review, now: time.Now, known: map[[sha256.Size]byte]known{},
		unseen: rate.NewLimiter(newPerSecond, newBurst),
	}
}

// agent says whose a token is. One that cannot be an agent's costs no request.
func (t *tokens) agent(ctx context.Context, token string) (ingress.Agent, error) {
	if len(token) > longestToken {
		return ingress.Agent{}, &refusal{forInvalid, "the token is too long for a service account's", false}
	}
	key := sha256.Sum256([]byte(token))
	k, seen := t.get(key)
	now := t.now()
	if seen && now.Sub(k.checked) < fresh && now.Before(k.expires) {
		return k.agent, nil
	}
	expires, err := t.plausible(token, now)
	if err != nil {
		return ingress.Agent{}, err
	}
	if !seen && !t.unseen.AllowN(now, 1) {
		return ingress.Agent{}, &refusal{forBusy, "too many new tokens at once", true}
	}
	// The review outlives the request that began it: others wait for the same.
	found := t.flight.DoChan(string(key[:]), func() (any, error) {
		return t.ask(context.WithoutCancel(ctx), key, token, expires)
	})
	select {
	case r := <-found:
		if r.Err != nil {
			return ingress.Agent{}, r.Err
		}
		return r.Val.(ingress.Agent), nil
	case <-ctx.Done():
		return ingress.Agent{}, ctx.Err()
	}
}

// ask asks the API server. What was known of the token does not count any more.
func (t *tokens) ask(ctx context.Context, key [sha256.Size]byte, token string, expires time.Time) (ingress.Agent, error) {
	const patience = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := t.now()
	a, err := t.review(ctx, token)
	if err != nil {
		return ingress.Agent{}, err
	}
	agent, err := t.judge(a)
	if err != nil {
		t.forget(key)
		return ingress.Agent{}, err
	}
	t.put(key, known{agent, began, expires})
	return agent, nil
}

const accountPrefix = "system:serviceaccount:"

// judge says whether the token of an answer is an agent's.
func (t *tokens) judge(a answer) (ingress.Agent, error) {
	if !a.authenticated || !slices.Contains(a.audiences, t.config.Audience) {
		return ingress.Agent{}, &refusal{forInvalid, "the API server does not take the token for the audience " + t.config.Audience + ": " + a.err, false}
	}
	account := strings.Replace(strings.TrimPrefix(a.user, accountPrefix), ":", "/", 1)
	switch {
	case !strings.HasPrefix(a.user, accountPrefix):
	case slices.Contains(t.config.Relays, account):
		return ingress.Agent{Relay: true}, nil
	case slices.Contains(t.config.Agents, account):
		if len(a.nodes) != 1 || a.nodes[0] == "" {
			return ingress.Agent{}, &refusal{forNode, "the token names no node: it must be the projected token of a pod, and the API server 1.30 or newer", false}
		}
		return ingress.Agent{Host: a.nodes[0], Node: true}, nil
	}
	return ingress.Agent{}, &refusal{forAccount, "the token is of " + a.user + ", which is no agent's", false}
}

// claims are what a token says of itself.
type claims struct {
	Audience any    `json:"aud"`
	Subject  string `json:"sub"`
	Expires  int64  `json:"exp"`
}

// plausible reads what a token says of itself, which proves nothing, and returns when it
// ends. It keeps tokens for others away from the API server.
func (t *tokens) plausible(token string, now time.Time) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, &refusal{forInvalid, "the token is no service account's", false}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var c claims
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	expires := time.Unix(c.Expires, 0)
	switch {
	case err != nil:
		return expires, &refusal{forInvalid, "the token is no service account's", false}
	case !c.isFor(t.config.Audience):
		return expires, &refusal{forInvalid, "the token is for another audience than " + t.config.Audience, false}
	case !now.Before(expires):
		return expires, &refusal{forInvalid, "the token has expired", false}
	}
	account := strings.Replace(strings.TrimPrefix(c.Subject, accountPrefix), ":", "/", 1)
	if !slices.Contains(t.config.Agents, account) && !slices.Contains(t.config.Relays, account) {
		return expires, &refusal{forAccount, "the token is of another account than the agents'", false}
	}
	return expires, nil
}

// isFor reports whether a token names an audience: RFC 7519 allows one and many.
func (c *claims) isFor(audience string) bool {
	switch all := c.Audience.(type) {
	case string:
		return all == audience
	case []any:
		return slices.Contains(all, any(audience))
	}
	return false
}

func (t *tokens) get(key [sha256.Size]byte) (known, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k, ok := t.known[key]
	return k, ok
}

func (t *tokens) forget(key [sha256.Size]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, key)
}

// put remembers a token. Where there is no room, those that have expired make it; else
// it is asked about again.
func (t *tokens) put(key [sha256.Size]byte, k known) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= mostKnown {
		for old, one := range t.known {
			if !t.now().Before(one.expires) {
				delete(t.known, old)
			}
		}
	}
	if len(t.known) < mostKnown {
		t.known[key] = k
	}
}
