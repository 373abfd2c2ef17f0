package backend

import (
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Environment variables of OpenTelemetry's exporters (Specification, "OpenTelemetry
// Protocol Exporter"). A token stands in none of tracecore's own arguments, which every
// user of the machine can read.
const (
	headersVariable     = "OTEL_EXPORTER_OTLP_HEADERS"
	authorityVariable   = "OTEL_EXPORTER_OTLP_CERTIFICATE"
	certificateVariable = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
	keyVariable         = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
)

// security is what all backends are shown and asked for.
type security struct {
	headers                     map[string]string
	authority, certificate, key string // files
}

func (b *Backends) readSecurity(env func(string) string) (err error) {
	b.security = security{authority: env(authorityVariable), certificate: env(certificateVariable), key: env(keyVariable)}
	if (b.certificate == "") != (b.key == "") {
		return fmt.Errorf("%s and %s go together: set both or none", certificateVariable, keyVariable)
	}
	if b.headers, err = ReadHeaders(headersVariable, env(headersVariable)); err != nil || len(b.headers) == 0 {
		return err
	}
	if len(b.targets) > 1 {
		return fmt.Errorf("%s would show one backend's token to %d backends: name one backend, or write their exporters in a configuration file", headersVariable, len(b.targets))
	}
	if t := b.targets[0]; t.plain && !t.local() {
		return fmt.Errorf("%s would go to %s unencrypted: use https:// or grpcs://, or write the exporter in a configuration file", headersVariable, t)
	}
	return nil
}

// ReadHeaders reads "key=value,key=value" with values as in a URL, out of an environment
// variable. Its errors name no value.
func ReadHeaders(variable, text string) (map[string]string, error) {
	headers := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		key = strings.ToLower(strings.TrimSpace(key))
		if !ok || err != nil || !httpguts.ValidHeaderFieldName(key) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s: header %d is not of the form name=value, with spaces as %%20 and commas as %%2C", variable, i+1)
		}
		headers[key] = value
	}
	return headers, nil
}
