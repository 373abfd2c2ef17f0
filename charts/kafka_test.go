package charts_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/tracecoreai/tracecore/internal/hosttest"
)

// TestThroughKafkaAJobIsJudgedInOnePlaceAndOutlivesACrash is the test of the same
// name with a broker in between: both replicas read, whichever partitions they got,
// and one of them judges.
func TestThroughKafkaAJobIsJudgedInOnePlaceAndOutlivesACrash(t *testing.T) {
	t.Parallel()
	k := startBroker(t)
	c := newKafkaCluster(t, k)
	k.produce(t, &kgo.Record{Topic: "tracecore.logs", Partition: 0, Value: []byte("no OTLP")}, &kgo.Record{Topic: "tracecore.metrics", Partition: 0, Value: []byte{0xff}})
	for _, one := range append(c.replicas, c.agents...) {
		one.start(t)
	}
	first, later := all[:16], all[16:]
	c.agents[0].died = time.Now().Add(-time.Hour) // Kafka has kept it for too long
	c.agents[0].die(t, 0, len(all))
	c.await(t, "a record that confirms nothing any more", func() bool { return c.sum(t, "otelcol_processor_patterndetector_records_irregular") > 0 })
	c.agents[0].died = time.Now()
	c.agents[0].die(t, 0, first...)
	c.agents[1].die(t, 1, first...)
	c.await(t, "every job judged by the deaths of both nodes", func() bool { return c.complete(t) == len(first) })
	c.await(t, "what is no OTLP", func() bool { // other partitions and topics may be read first
		return c.sum(t, "otelcol_kafka_receiver_unmarshal_failed_log_records") > 0 && c.sum(t, "otelcol_kafka_receiver_unmarshal_failed_metric_points") > 0
	})
	hit, spared := c.replicas[0], c.replicas[1]
	before := []map[string]string{idsOf(hit.latest(t)), idsOf(spared.latest(t))}
	require.NotEmpty(t, before[0])
	require.NotEmpty(t, before[1])
	require.Len(t, c.judged(t), len(before[0])+len(before[1]), "a job is judged by both replicas")

	c.agents[0].measure(t)
	c.await(t, "a metric", func() bool { return c.sum(t, "otelcol_receiver_accepted_metric_points") >= 2 }) // from Kafka and by OTLP
	// At least once: all of it again.
	k.produce(t, k.consume(t, "tracecore.logs", 4)...)
	records := float64(1 + 2*len(first))
	c.await(t, "all records twice", func() bool { return c.sum(t, "otelcol_receiver_accepted_log_records") >= 2*2*records })
	require.Equal(t, before, []map[string]string{idsOf(hit.latest(t)), idsOf(spared.latest(t))})

	c.agents[0].die(t, 0, later...)
	c.await(t, "every job judged by its first death", func() bool { return len(c.judged(t)) == len(all) })
	mine, others := hit.latest(t), spared.latest(t)
	hit.kill()
	told := len(hit.verdicts(t))
	c.agents[1].die(t, 1, later...) // a part of it is for the dead, who perhaps has the partition
	c.await(t, "the jobs of the other replica, while one is dead", func() bool { return complete(spared.latest(t)) == len(others) })
	hit.start(t)
	c.await(t, "the jobs of the killed replica", func() bool { return complete(hit.latest(t)) == len(mine) })
	require.Equal(t, idsOf(mine), idsOf(hit.latest(t)), "another verdict on a fault that was known before the crash")
	require.Equal(t, idsOf(others), idsOf(spared.latest(t)))
	hit.saidOnce(t, told)
	spared.saidOnce(t, 0)
}

// TestKafkaThatIsAwayCostsNothing: agents hold what they have, also over a crash,
// and what is larger than Kafka takes comes in pieces.
func TestKafkaThatIsAwayCostsNothing(t *testing.T) {
	t.Parallel()
	k := startBroker(t)
	c := newKafkaCluster(t, k)
	agent, gateway := c.agents[0], c.replicas[0]
	c.resolve(t, gateway)
	gateway.start(t)
	agent.start(t)
	agent.die(t, 0, 0)
	c.await(t, "a job before", func() bool { return len(c.judged(t)) == 1 })
	k.Close()
	agent.padding = string(bytes.Repeat([]byte("x"), 100_000))
	agent.die(t, 0, all...)
	agent.kill()
	agent.start(t)
	k.start(t)
	c.await(t, "every job", func() bool { return len(c.judged(t)) == len(all) })
	require.Zero(t, agent.metric(t, "otelcol_exporter_send_failed_log_records"))
	gateway.saidOnce(t, 0)
}

// newKafkaCluster is a cluster whose agents write to a broker. A consumer that is
// killed is missed sooner than the 10 s of the chart.
func newKafkaCluster(t *testing.T, k *broker, settings ...string) *cluster {
	t.Helper()
	c := newCluster(t, append([]string{"--set", fmt.Sprintf("kafka.enabled=true,kafka.onlyAgentsWrite=true,kafka.brokers={127.0.0.1:%d}", k.port)}, settings...)...)
	for _, r := range c.replicas {
		r.set(t, "2s", "receivers", "kafka", "session_timeout")
		r.set(t, "500ms", "receivers", "kafka", "heartbeat_interval")
	}
	return c
}

// complete counts the jobs that replicas judged by the deaths of both ranks.
func (c *cluster) complete(t *testing.T) int {
	t.Helper()
	n := 0
	for _, r := range c.replicas {
		n += complete(r.latest(t))
	}
	return n
}

// sum is a metric of all replicas.
func (c *cluster) sum(t *testing.T, name string) float64 {
	t.Helper()
	n := 0.0
	for _, r := range c.replicas {
		n += r.metric(t, name)
	}
	return n
}

// measure gives an agent one data point.
func (c *collector) measure(t *testing.T) {
	t.Helper()
	metrics := pmetric.NewMetrics()
	metric := metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName("hw.errors")
	metric.SetEmptySum().DataPoints().AppendEmpty().SetIntValue(1)
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	require.NoError(t, err)
	response, err := http.Post("http://"+c.address+"/v1/metrics", "application/x-protobuf", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// broker is a Kafka of one broker inside the test, which keeps what it has over a
// start of its own.
type broker struct {
	*kfake.Cluster
	port    int
	options []kfake.Opt
}

func startBroker(t *testing.T, options ...kfake.Opt) *broker {
	t.Helper()
	k := &broker{port: hosttest.FreePort(t)}
	k.options = append([]kfake.Opt{
		kfake.Ports(k.port), kfake.DataDir(t.TempDir()), kfake.GroupMinSessionTimeout(time.Second),
		kfake.SeedTopics(4, "tracecore.logs", "tracecore.metrics"),
	}, options...)
	k.start(t)
	return k
}

func (k *broker) start(t *testing.T) {
	t.Helper()
	cluster, err := kfake.NewCluster(k.options...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	k.Cluster = cluster
}

func (k *broker) client(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(k.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (k *broker) produce(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	require.NoError(t, k.client(t).ProduceSync(t.Context(), records...).FirstErr())
}

// consume returns the first messages of a topic.
func (k *broker) consume(t *testing.T, topic string, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := k.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		for _, record := range fetches.Records() {
			records = append(records, &kgo.Record{Topic: record.Topic, Partition: record.Partition, Value: record.Value})
		}
	}
	return records
}
