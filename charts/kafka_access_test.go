package charts_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestBehindKafkaTheGatewayAlonePicksReplicas: agents need neither a token nor the
// gateway's certificates, and nobody's configuration has the password.
func TestBehindKafkaTheGatewayAlonePicksReplicas(t *testing.T) {
	for resolver, asks := range map[string]bool{"k8s": true, "dns": false} {
		rendered := render(t, "--values", "tracecore/ci/kafka-values.yaml", "--set", "gateway.resolver="+resolver)
		all := objects(t, rendered)
		for tier, token := range map[string]bool{"DaemonSet/agent": false, "StatefulSet/gateway": true, "StatefulSet/events": true} {
			require.Equal(t, token, at(t, all[tier], "spec", "template", "spec", "automountServiceAccountToken"), tier)
		}
		if asks {
			require.Equal(t, []any{rule("discovery.k8s.io", "endpointslices", "list", "watch")}, at(t, all["Role/gateway"], "rules"))
			require.Len(t, at(t, all["RoleBinding/gateway"], "subjects"), 2)
			require.Equal(t, "test-tracecore-gateway", at(t, all["RoleBinding/gateway"], "subjects", 0, "name"))
			require.Equal(t, at(t, all["ServiceAccount/gateway"], "metadata", "name"), at(t, all["StatefulSet/gateway"], "spec", "template", "spec", "serviceAccountName"))
		}
		for tier, paths := range map[string][]string{"DaemonSet/agent": {"/etc/tracecore-kafka"}, "StatefulSet/gateway": {"/etc/tracecore-kafka", "/etc/tracecore-tls"}} {
			spec := at(t, all[tier], "spec", "template", "spec")
			var secrets []string
			for _, path := range mounts(t, spec) {
				if strings.HasPrefix(path, "/etc/tracecore-") {
					secrets = append(secrets, path)
				}
			}
			require.ElementsMatch(t, paths, secrets, tier)
			require.Contains(t, at(t, spec, "containers", 0, "env"), map[string]any{"name": "TRACECORE_KAFKA_PASSWORD", "valueFrom": map[string]any{
				"secretKeyRef": map[string]any{"name": "tracecore-kafka", "key": "password"},
			}}, tier)
		}
	}
}

// TestBothEndsMeanTheSameTopics keeps exporter and receiver as one.
func TestBothEndsMeanTheSameTopics(t *testing.T) {
	args := []string{"--values", "tracecore/ci/kafka-values.yaml"}
	write, read := at(t, config(t, "agent", args...), "exporters", "kafka"), at(t, config(t, "gateway", args...), "receivers", "kafka")
	for _, signal := range []string{"logs", "metrics"} {
		require.Equal(t, "gpu.tracecore."+signal, at(t, write, signal, "topic"))
		require.Equal(t, []any{at(t, write, signal, "topic")}, at(t, read, signal, "topics"))
	}
	for _, key := range []string{"brokers", "tls", "auth"} {
		require.NotEmpty(t, at(t, write, key))
		require.Equal(t, at(t, write, key), at(t, read, key))
	}
	events := at(t, config(t, "events", args...), "service", "pipelines", "logs", "exporters")
	require.Equal(t, []any{"load_balancing"}, events)
}

// rights are what the chart's README says that a Kafka with ACLs must allow.
var rights = []kfake.ACL{
	{Resource: kmsg.ACLResourceTypeTopic, Name: "tracecore.", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: kmsg.ACLOperationWrite, Allow: true},
	{Resource: kmsg.ACLResourceTypeTopic, Name: "tracecore.", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: kmsg.ACLOperationRead, Allow: true},
	{Resource: kmsg.ACLResourceTypeGroup, Name: "tracecore", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationRead, Allow: true},
}

// TestKafkaThatAsksForCertificateAndPassword: both tiers show what the secrets have,
// and need no more rights than the README names. Who has a wrong password keeps its
// records; who has no right loses them, counted.
func TestKafkaThatAsksForCertificateAndPassword(t *testing.T) {
	t.Parallel()
	const password = `007: "#7' $x`
	folder, server := certificates(t)
	k := startBroker(t, kfake.TLS(server), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("SCRAM-SHA-512", "tracecore", password, rights...), kfake.User("SCRAM-SHA-512", "stranger", password))
	c := newKafkaCluster(t, k, "--set", "kafka.tls.enabled=true,kafka.tls.secretName=kafka,kafka.tls.clientCertificate=true,kafka.sasl.mechanism=SCRAM-SHA-512,kafka.sasl.secretName=kafka")
	agent, stranger, gateway := c.agents[0], c.agents[1], c.replicas[0]
	c.resolve(t, gateway)
	introduce(t, agent, "exporters", folder, "tracecore", password)
	introduce(t, gateway, "receivers", folder, "tracecore", password)
	agent.start(t)
	gateway.start(t)
	agent.die(t, 0, all...)
	c.await(t, "every job", func() bool { return len(c.judged(t)) == len(all) })

	introduce(t, stranger, "exporters", folder, "stranger", "guessed")
	stranger.set(t, "500ms", "exporters", "kafka", "timeout")
	stranger.start(t)
	stranger.die(t, 1, all...)
	c.await(t, "an attempt with a wrong password", func() bool { return stranger.metric(t, "otelcol_kafka_exporter_records") >= 1 })
	require.Zero(t, stranger.metric(t, "otelcol_exporter_send_failed_log_records"))
	stranger.kill()
	stranger.env = []string{"TRACECORE_KAFKA_USERNAME=stranger", "TRACECORE_KAFKA_PASSWORD=" + password}
	stranger.start(t)
	c.await(t, "what may not be written is counted", func() bool {
		return stranger.metric(t, "otelcol_exporter_send_failed_log_records") == float64(len(all))
	})
}

// introduce gives a collector what the chart takes from the secrets.
func introduce(t *testing.T, c *collector, part, folder, user, password string) {
	t.Helper()
	for key, file := range map[string]string{"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"} {
		require.Equal(t, "/etc/tracecore-kafka/"+file, at(t, c.config, part, "kafka", "tls", key))
		c.set(t, filepath.Join(folder, file), part, "kafka", "tls", key)
	}
	c.env = []string{"TRACECORE_KAFKA_USERNAME=" + user, "TRACECORE_KAFKA_PASSWORD=" + password}
}

// certificates writes what the secret has, one certificate for both ends, and
// returns what a broker shows and asks for.
func certificates(t *testing.T) (folder string, server *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafka"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	folder = t.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, text := range map[string][]byte{"ca.crt": certificate, "tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(certificate))
	return folder, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
}
