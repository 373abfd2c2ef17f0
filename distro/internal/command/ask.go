package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/distro/internal/backend"
	"github.com/tracecoreai/tracecore/internal/history"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

const (
	historyAddress = "127.0.0.1:13134"
	mostAnswer     = 64 << 20 // bytes
	answerPatience = 30 * time.Second
)

// asking is how a command asks a running tracecore.
type asking struct {
	address, socket, format string
}

func (a *asking) flags(cmd *cobra.Command) {
	a.formatFlag(cmd)
	a.addressFlag(cmd)
}

func (a *asking) addressFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.address, "address", historyAddress, "where a tracecore answers: host:port, or a URL")
}

func (a *asking) formatFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.format, "output", "o", "table", "table, json or yaml")
}

func (a *asking) socketFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", "", "Unix socket of the history (default: history/history.sock in the state folder)")
}

// formats are those of an answer.
var formats = []string{"table", "json", "yaml"}

// print asks, and prints the answer in the form that is wanted. Any server may answer: what is
// printed is safe for a terminal.
func (a *asking) print(cmd *cobra.Command, get func(context.Context) ([]byte, error), table func(io.Writer, []byte) error) error {
	if !slices.Contains(formats, a.format) {
		return usage(fmt.Errorf("-o %s: no such format: use %s", a.format, strings.Join(formats, ", ")))
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), answerPatience)
	defer cancel()
	text, err := get(ctx)
	if err != nil {
		return err
	}
	switch a.format {
	case "table":
		err = table(cmd.OutOrStdout(), text)
	case "json":
		var b bytes.Buffer
		_ = json.Indent(&b, bytes.TrimSpace(text), "", "  ") // it was read before
		_, err = cmd.OutOrStdout().Write(append(safetext.JSON(b.Bytes()), '\n'))
	default:
		err = writeYAML(cmd.OutOrStdout(), text)
	}
	if err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return nil
}

// tableOf decodes an answer for its table.
func tableOf[T any](write func(io.Writer, *T) error) func(io.Writer, []byte) error {
	return func(w io.Writer, text []byte) error {
		var value T
		if err := decode(text, &value); err != nil {
			return err
		}
		return write(w, &value)
	}
}

// writeYAML writes JSON as YAML, in the same order. JSON is YAML.
func writeYAML(w io.Writer, text []byte) error {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	plainStyle(&document)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(&document), encoder.Close())
}

func plainStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.Value = safetext.Line(n.Value)
	}
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// get asks over HTTP.
func (a *asking) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return a.getAs(ctx, history.Schema, path, query)
}

// getAs asks for what has another schema.
func (a *asking) getAs(ctx context.Context, schema, path string, query url.Values) ([]byte, error) {
	at, err := siteOf(a.address)
	if err != nil {
		return nil, err
	}
	request, err := at.request(ctx, path+"?"+query.Encode())
	if err != nil {
		return nil, usage(err)
	}
	client := a.client()
	defer client.CloseIdleConnections()
	text, err := exchange(client, request, schema)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", at.Host, hintOf(err, notHere))
	}
	return text, nil
}

const notHere = "does tracecore run here, with the extension history? give --address for another place"

// headersVariable has what a tracecore at --address is shown, as OTEL_EXPORTER_OTLP_HEADERS has
// what a backend is shown. It stands in no argument, which every user of the machine can read.
const headersVariable = "TRACECORE_HEADERS"

// site is where a tracecore answers, and what it is shown.
type site struct {
	*url.URL
	headers map[string]string
}

// siteOf reads an address, and the headers for it: none for that of this machine, where any user
// can listen in its place.
func siteOf(address string) (*site, error) {
	base, err := addressOf(address)
	if err != nil || address == historyAddress {
		return &site{URL: base}, err
	}
	headers, err := backend.ReadHeaders(headersVariable, os.Getenv(headersVariable))
	if err == nil && len(headers) > 0 && base.Scheme != "https" && !loopback(address) {
		err = fmt.Errorf("%s would go to %s unencrypted: use https://", headersVariable, base.Host)
	}
	if err != nil {
		return nil, usage(err)
	}
	return &site{base, headers}, nil
}

// request asks for a path there, which may have a query.
func (s *site) request(ctx context.Context, path string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.String()+path, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range s.headers {
		request.Header.Set(name, value)
	}
	return request, nil
}

// client reaches a tracecore. That of this machine is asked over its Unix socket, where this
// user may use it: any user can listen on the port before tracecore does, and answer for it.
func (a *asking) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == historyAddress {
			if path, err := a.socketPath(); err == nil {
				if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
					return c, nil
				}
			}
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	// No redirect: who answers is who was asked.
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// socketPath is the Unix socket of the history.
func (a *asking) socketPath() (string, error) {
	if a.socket != "" {
		return a.socket, nil
	}
	state, err := defaultconfig.StateDir()
	return filepath.Join(state, "history", "history.sock"), err
}

// post tells over the Unix socket.
func (a *asking) post(ctx context.Context, path string, body any) ([]byte, error) {
	return a.send(ctx, http.MethodPost, path, body)
}

func (a *asking) send(ctx context.Context, method, path string, body any) ([]byte, error) {
	socket, err := a.socketPath()
	if err != nil {
		return nil, err
	}
	given, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://tracecore"+path, bytes.NewReader(given))
	if err != nil {
		return nil, usage(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	text, err := exchange(client, request, history.Schema)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", socket, hintOf(err, "run it as root or as the user of tracecore, beside it; --socket names another"))
	}
	return text, nil
}

// exchange returns what was answered, if it is one of ours and of that schema.
func exchange(client *http.Client, request *http.Request, schema string) ([]byte, error) {
	// No redirect: who answers is who was asked.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := do(client, request)
	if err != nil {
		return nil, err
	}
	return answerIn(response, schema)
}

// do sends a request. Which address was asked, the caller says.
func do(client *http.Client, request *http.Request) (*http.Response, error) {
	response, err := client.Do(request)
	var of *url.Error
	if errors.As(err, &of) {
		return nil, of.Err
	}
	return response, err
}

// addressOf makes a URL of what was given.
func addressOf(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage(fmt.Errorf("--address %.100q: give host:port, or a URL of http or https", text))
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// answerIn reads an answer, if it is one of ours and of that schema, or says why there is none.
func answerIn(response *http.Response, schema string) ([]byte, error) {
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusUnauthorized {
		return nil, fmt.Errorf("it does not know who asks (HTTP 401): set %s='authorization=Bearer%%20…'", headersVariable)
	}
	var answer history.Failure
	switch err := json.Unmarshal(text, &answer); {
	case len(text) > mostAnswer:
		return nil, fmt.Errorf("the answer is larger than %d bytes", mostAnswer)
	case err != nil || !sameForm(answer.Schema, history.Schema) && !sameForm(answer.Schema, schema):
		return nil, fmt.Errorf("HTTP %d: %w", response.StatusCode, errNotOurs)
	case answer.Schema != schema && (answer.Schema != history.Schema || response.StatusCode == http.StatusOK):
		return nil, fmt.Errorf("it speaks %s, this tracecore %s: use the same version", answer.Schema, schema)
	case response.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %s", errNotThere, answer.Error)
	case response.StatusCode != http.StatusOK:
		return nil, errors.New(answer.Error)
	}
	return text, nil
}

// errNotOurs is the answer of another program.
var errNotOurs = errors.New("the answer is not one of tracecore")

// decode reads an answer that answerIn has taken.
func decode(text []byte, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", errNotOurs, err)
	}
	return nil
}

// sameForm reports whether two schemas differ in their version at most.
func sameForm(a, b string) bool {
	a, _, versioned := strings.Cut(a, "/")
	b, _, _ = strings.Cut(b, "/")
	return versioned && a == b
}

// errNotThere is an answer about something that is not kept.
var errNotThere = errors.New("not found")

// hintOf ends an error of the connection with what to do.
func hintOf(err error, hint string) error {
	for _, known := range []error{syscall.ECONNREFUSED, syscall.ENOENT, syscall.EACCES, errNotOurs} {
		if errors.Is(err, known) {
			return fmt.Errorf("%w; %s", err, hint)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("%w; too many ask there at once, or it has just ended: ask again", err)
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Errorf("no host %q (%s); %s", dns.Name, dns.Err, hint)
	}
	return err
}
