package backend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tracecoreai/tracecore/internal/safetext"
)

// answerWithin bounds the one look at a backend.
const answerWithin = 5 * time.Second

// Look tries each backend once and says which does not answer, and why: a wrong address or
// a certificate that nobody trusts would else show in a queue that grows. It changes
// nothing: what is sent waits on disk. It returns when all were tried or ctx ends.
func (b *Backends) Look(ctx context.Context, out io.Writer) {
	var mu sync.Mutex
	var looks sync.WaitGroup
	for _, t := range b.targets {
		looks.Go(func() {
			err := b.reach(ctx, t)
			if err == nil || ctx.Err() != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(out, "tracecore: %s does not answer yet: %s; what is sent waits on disk, and is tried again without end\n", t, safetext.Line(err.Error()))
		})
	}
	looks.Wait()
}

// reach connects, and has the certificate verified as the exporter will.
func (b *Backends) reach(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	address := net.JoinHostPort(t.url.Hostname(), t.port())
	if t.plain {
		return closed((&net.Dialer{}).DialContext(ctx, "tcp", address))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if b.authority != "" {
		text, err := os.ReadFile(b.authority)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s has no certificate of an authority", b.authority)
		}
	}
	err := closed((&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address))
	switch unknown := (x509.UnknownAuthorityError{}); {
	case !errors.As(err, &unknown):
		return err
	case b.authority != "":
		return fmt.Errorf("%w: the authority in %s (%s) has not signed it", err, b.authority, authorityVariable)
	}
	return fmt.Errorf("%w: name its authority by %s", err, authorityVariable)
}

func closed(c net.Conn, err error) error {
	if err != nil {
		return err
	}
	return c.Close()
}
