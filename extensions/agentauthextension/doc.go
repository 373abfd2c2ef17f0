// Package agentauthextension lets an agent prove to a gateway which node it runs on. The
// agent shows the token of its pod, or a client certificate; the gateway asks the API
// server about the token, or takes the name in the certificate.
package agentauthextension

//go:generate go tool -modfile=../../tools/go.mod mdatagen metadata.yaml
