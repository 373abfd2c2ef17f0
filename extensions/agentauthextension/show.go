package agentauthextension

import (
	"context"
	"os"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// shown is the token as credentials of each request.
type shown struct{ file string }

// PerRPCCredentials implements extensionauth.GRPCClient.
func (e *agentAuth) PerRPCCredentials() (credentials.PerRPCCredentials, error) {
	return shown{e.config.TokenFile}, nil
}

// GetRequestMetadata implements credentials.PerRPCCredentials. A token that is not there
// yet may come: the request is tried again.
func (s shown) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "agent_auth: token_file: %v", err)
	}
	return map[string]string{"authorization": bearer + strings.TrimSpace(string(text))}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Whether the way to
// the gateway is encrypted is for the exporter's tls to say.
func (shown) RequireTransportSecurity() bool { return false }
