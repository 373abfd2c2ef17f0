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
	mathrand "math/rand/v2"
	"net"
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
)

// patience bounds every wait; only a test that fails comes to its end.
const patience = 2 * time.Minute

// need returns the path of a program that `make cluster` provides.
func need(t *testing.T, path string) string {
	t.Helper()
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

// freePort is below those that the kernel gives to clients (ip_local_port_range).
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + mathrand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	require.FailNow(t, "no free port")
	return 0
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
}

// newServer starts a cluster without nodes and without controllers.
func newServer(t *testing.T) *server {
	t.Helper()
	need(t, "../../.cache/bin/kube-apiserver")
	etcd := need(t, "etcd")
	s := &server{dir: t.TempDir(), port: freePort(t), etcd: freePort(t)}
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	client := fmt.Sprintf("http://127.0.0.1:%d", s.etcd)
	start(t, filepath.Join(s.dir, "etcd.log"), nil, etcd, "--data-dir", filepath.Join(s.dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	s.credentials(t)
	s.startAPI(t)
	return s
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
	token := rand.Text()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "tokens"), []byte(token+`,admin,1,"system:masters"`+"\n"), 0o600))
	s.config = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", s.port), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(s.dir, "certificates", "apiserver.crt")},
	}
}

// startAPI starts the API server and waits until it is ready.
func (s *server) startAPI(t *testing.T) {
	t.Helper()
	key := filepath.Join(s.dir, "accounts.key")
	s.api = start(t, filepath.Join(s.dir, "apiserver.log"), nil, need(t, "../../.cache/bin/kube-apiserver"),
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", s.etcd), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", s.port),
		"--cert-dir="+filepath.Join(s.dir, "certificates"), "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-account-issuer=https://kubernetes.default.svc", "--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(s.dir, "tokens"),
		"--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24", "--advertise-address=127.0.0.1",
		"--disable-admission-plugins=ServiceAccount", // no controller makes the default account
		"--allow-privileged=true")
	require.Eventually(t, func() bool {
		if s.Clientset == nil && !s.connect() {
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := s.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil
	}, patience, 50*time.Millisecond, "the API server is not ready")
}

// connect waits for the certificate that the server writes at its first start.
func (s *server) connect() bool {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return false
	}
	if s.dynamic, err = dynamic.NewForConfig(s.config); err != nil {
		return false
	}
	s.Clientset = client
	return true
}
