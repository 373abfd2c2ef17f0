package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// Types of the collector's exporters.
const (
	overHTTP = "otlp_http"
	overGRPC = "otlp_grpc"
)

// grpcPort is the one that OTLP over gRPC has; a URL of HTTP has its own defaults.
const grpcPort = "4317"

// target is one backend.
type target struct {
	url   *url.URL
	kind  string // type of the exporter
	plain bool   // nothing is encrypted
	all   bool   // records, metrics and spans, too
	name  string // of its exporter: the same in each run, since the queue on disk has it
}

// String is the URL. It has no secrets: parse takes none.
func (t target) String() string { return safetext.Line(t.url.String()) }

const forms = "write https://HOST:PORT (OTLP over HTTP) or grpcs://HOST:PORT (OTLP over gRPC), or http:// or grpc:// for a connection that is not encrypted"

// parse reads a URL. Its errors do not repeat what may be a password.
func parse(text string) (target, error) {
	if !strings.Contains(text, "://") {
		return target{}, fmt.Errorf("%q has no scheme: %s", clipped(text), forms)
	}
	u, err := url.Parse(text)
	if err != nil {
		return target{}, errors.New("that is no URL: " + forms)
	}
	t := target{url: u}
	switch u.Scheme {
	case "https", "http":
		t.kind, t.plain = overHTTP, u.Scheme == "http"
	case "grpcs", "grpc":
		t.kind, t.plain = overGRPC, u.Scheme == "grpc"
	default:
		return target{}, fmt.Errorf("the scheme %q is not known: %s", clipped(u.Scheme), forms)
	}
	if err := t.check(); err != nil {
		return target{}, err
	}
	if t.kind == overGRPC && u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), grpcPort)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	t.name = nameOf(u)
	return t, nil
}

func (t target) check() error {
	u := t.url
	switch {
	case u.User != nil:
		return fmt.Errorf("a URL with a user or a password would show it to every user of this machine: set the environment variable %s=authorization=Basic%%20… instead", headersVariable)
	case u.Hostname() == "":
		return errors.New("the URL names no host: " + forms)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return fmt.Errorf("a backend's URL has no ? and no #: a token goes into the environment variable %s", headersVariable)
	case strings.HasSuffix(u.Path, "/v1/logs") || strings.HasSuffix(u.Path, "/v1/metrics"):
		return errors.New("leave /v1/logs and /v1/metrics off: they are added")
	case t.kind == overGRPC && strings.Trim(u.Path, "/") != "":
		return fmt.Errorf("OTLP over gRPC has no path: leave %q off, or write https:// for OTLP over HTTP", clipped(u.Path))
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%q is no port", clipped(port))
		}
	}
	return nil
}

func clipped(text string) string { return safetext.Clip(safetext.Line(text), 100) }

// endpoint is what the exporter is told.
func (t target) endpoint() string {
	if t.kind == overGRPC {
		return t.url.Host
	}
	return t.url.String()
}

// nameOf makes a name of a component: host, port and path. What such a name cannot have is
// replaced, and told apart by a hash.
func nameOf(u *url.URL) string {
	text := u.Host + u.Path
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(".-_/:", r):
			return r
		}
		return '_'
	}, text)
	name = strings.ReplaceAll(name, "::", "_") // the collector's separator of keys
	if name != text || len(name) > 100 {
		sum := sha256.Sum256([]byte(text))
		name = name[:min(len(name), 100)] + "_" + hex.EncodeToString(sum[:4])
	}
	return name
}

// local reports whether the host is this machine.
func (t target) local() bool {
	host := t.url.Hostname()
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.IsUnspecified()
	}
	own, err := os.Hostname()
	return host == "localhost" || err == nil && strings.EqualFold(host, own)
}

// port is the one that is dialled.
func (t target) port() string {
	switch port := t.url.Port(); {
	case port != "":
		return port
	case t.url.Scheme == "http":
		return "80"
	}
	return "443"
}
