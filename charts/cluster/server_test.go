// Package cluster_test runs a real API server, gives it the chart and connects
// tracecore to it. `make cluster` builds the server.
package cluster_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// patience bounds every wait; only a test that fails comes to its end.
const patience = hosttest.Patience

// need returns the path of a program that `make cluster` provides.
func need(t *testing.T, path string) string {
	t.Helper()
	hosttest.NotShort(t, "it starts an API server")
	if absolute, err := filepath.Abs(path); err == nil && filepath.Base(path) != path {
		path = absolute
	}
	found, err := exec.LookPath(path)
	if err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "CI must run a cluster: %s is missing, run `make cluster`", path)
		t.Skipf("%s is missing, run `make cluster`", path)
	}
	return found
}

// process is a program that the test started and ends.
type process struct {
	command *exec.Cmd
	log     string
	ended   chan struct{}
}

func start(t *testing.T, log string, environment []string, name string, args ...string) *process {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer out.Close()
	p := &process{command: exec.Command(name, args...), log: log, ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = out, out
	p.command.Env = append(os.Environ(), environment...)
	// What this test leaves behind when it is killed ends with it.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.command.Start())
	go func() {
		_ = p.command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.stop(t)
		if t.Failed() {
			t.Logf("%s:\n%s", name, tail(log))
		}
	})
	return p
}

// stop ends the process as a supervisor does: asks, then insists.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.command.Process.Kill()
		<-p.ended
		t.Errorf("%s did not end", p.command.Path)
	}
}

// kill ends the process as a power failure does.
func (p *process) kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

func tail(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[max(0, len(text)-6000):])
}

// server is an API server with its etcd.
type server struct {
	*kubernetes.Clientset
	dynamic dynamic.Interface
	config  *rest.Config
	dir     string
	port    int
	etcd    int
	api     *process
	kwok    *process
	kubelet string // the token of kwok
}

// newServer starts a cluster without nodes and without controllers.
func newServer(t *testing.T) *server {
	t.Helper()
	need(t, "../../.cache/bin/kube-apiserver")
	s := &server{dir: t.TempDir()}
	s.startEtcd(t)
	s.credentials(t)
	s.startAPI(t)
	return s
}

// attempts are for a port that somebody took between its test and its use.
const attempts = 5

func (s *server) startEtcd(t *testing.T) {
	t.Helper()
	for attempt := range attempts {
		s.etcd = hosttest.FreePort(t)
		client, peer := fmt.Sprintf("http://127.0.0.1:%d", s.etcd), fmt.Sprintf("http://127.0.0.1:%d", hosttest.FreePort(t))
		p := start(t, filepath.Join(s.dir, "etcd.log"), nil, need(t, "etcd"), "--data-dir", filepath.Join(s.dir, fmt.Sprint("etcd", attempt)),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
		if p.comes(t, func() bool { return answers(client + "/health") }) {
			return
		}
	}
	require.FailNow(t, "etcd does not start")
}

func answers(url string) bool {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// comes waits until a process is ready; false when it ended instead.
func (p *process) comes(t *testing.T, ready func() bool) bool {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ready() {
		select {
		case <-p.ended:
			return false
		case <-deadline:
			require.FailNow(t, "not ready", "%s", p.command.Path)
		case <-tick.C:
		}
	}
	return true
}

// credentials are an administrator and the key of the service accounts' tokens.
func (s *server) credentials(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "accounts.key"), text, 0o600))
	admin, kubelet := rand.Text(), rand.Text()
	tokens := fmt.Sprintf("%s,admin,1,system:masters\n%s,kwok,2,system:masters\n", admin, kubelet)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "tokens"), []byte(tokens), 0o600))
	s.kubelet = kubelet
	s.config = &rest.Config{
		BearerToken: admin, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(s.dir, "certificates", "apiserver.crt")},
	}
}

// startAPI starts the API server, at the port it had before if any, and waits
// until it is ready.
func (s *server) startAPI(t *testing.T) {
	t.Helper()
	key := filepath.Join(s.dir, "accounts.key")
	for range attempts {
		if s.Clientset == nil {
			s.port = hosttest.FreePort(t)
			s.config.Host = fmt.Sprintf("https://127.0.0.1:%d", s.port)
		}
		s.api = start(t, filepath.Join(s.dir, "apiserver.log"), nil, need(t, "../../.cache/bin/kube-apiserver"),
			fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", s.etcd), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port),
			"--cert-dir="+filepath.Join(s.dir, "certificates"), "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
			"--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(s.dir, "tokens"),
			"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", "--advertise-address=127.0.0.1",
			"--disable-admission-plugins=ServiceAccount", // no controller makes the default account
			// kwok watches from version 0, which needs etcd 3.4.31 where this is on; Debian 12 has 3.4.23.
			"--feature-gates=WatchList=false",
			"--allow-privileged=true")
		t.Cleanup(s.api.kill) // a watcher that is left would hold its end up for a minute
		if s.api.comes(t, func() bool { return s.isReady(t) }) {
			return
		}
	}
	require.FailNow(t, "the API server does not start")
}

func (s *server) isReady(t *testing.T) bool {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return false // it writes its certificate at its first start
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return false
	}
	s.Clientset = client
	s.dynamic, err = dynamic.NewForConfig(s.config)
	return err == nil
}
