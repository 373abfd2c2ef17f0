package agentauthextension

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tracecoreai/tracecore/internal/apiserver"
)

// Config of the extension: what an agent shows, or what a gateway checks.
type Config struct {
	// TokenFile is the token that is shown, on an agent. It is read at each request:
	// the kubelet replaces it.
	TokenFile string `mapstructure:"token_file"`

	// TokenReview asks the API server about tokens, on a gateway.
	TokenReview *TokenReview `mapstructure:"token_review"`
	// ClientCertificate takes the name in the certificate, on a gateway whose receiver
	// has tls with client_ca_file. On an agent that shows one it says so.
	ClientCertificate *ClientCertificate `mapstructure:"client_certificate"`
}

// TokenReview says which tokens are an agent's.
type TokenReview struct {
	apiserver.Connection `mapstructure:",squash"`

	// Audience that a token must be made for.
	Audience string `mapstructure:"audience"`
	// Agents are service accounts, NAMESPACE/NAME: each of their pods speaks of its node.
	Agents []string `mapstructure:"agents"`
	// Relays are service accounts whose pods hand on the records of all nodes.
	Relays []string `mapstructure:"relays"`
}

// ClientCertificate says whose certificate is an agent's: the common name is its host.
type ClientCertificate struct {
	// Relays are common names whose holders hand on the records of all hosts.
	Relays []string `mapstructure:"relays"`
}

// Validate implements confmap.Validator.
func (c *Config) Validate() error {
	if c.TokenFile == "" && c.TokenReview == nil && c.ClientCertificate == nil {
		return errors.New("set token_file on an agent, token_review or client_certificate on a gateway")
	}
	return nil
}

// Validate implements confmap.Validator.
func (c *TokenReview) Validate() error {
	if c.Audience == "" {
		return errors.New("audience: without one a token that was made for the API server would do; name the one of the agents' tokens")
	}
	if len(c.Agents)+len(c.Relays) == 0 {
		return errors.New("agents: name the service accounts, NAMESPACE/NAME")
	}
	for _, account := range slices.Concat(c.Agents, c.Relays) {
		if namespace, name, ok := strings.Cut(account, "/"); !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/:") {
			return fmt.Errorf("%q is no service account: write NAMESPACE/NAME", account)
		}
	}
	for _, account := range c.Agents {
		if slices.Contains(c.Relays, account) {
			return fmt.Errorf("%s stands under agents and under relays: an agent speaks of its own node alone", account)
		}
	}
	return c.Connection.Validate()
}
