package agentauthextension

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/extension/extensionmiddleware"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// Metadata of requests and answers. Times are in unix nanoseconds, by the clock of the one that writes them.
const (
	sentKey   = "tracecore-sent"         // of a request: when it was sent
	behindKey = "tracecore-clock-behind" // of a request: by how much the clock of the agent is behind, nanoseconds
	timeKey   = "tracecore-time"         // of an answer: when the gateway had the request
)

const (
	// probe is an export without records: no consumer sees it, and its round trip is short.
	probe        = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
	probeTimeout = 2 * time.Second
	// probeEvery is how old a measurement may be. Quartz drifts by less than 100 ppm: 6 ms in that time.
	probeEvery = time.Minute
	// retryEvery is how long the clock is taken as right after a gateway gave no time.
	retryEvery = 5 * time.Second

	// leastBehind is from when on a clock is told to be wrong. NTP keeps clocks within
	// milliseconds, and all rules bear a second.
	leastBehind = 2 * time.Second
	// mostError is how wide a measurement may be: half of its round trip. Wider, it says too little.
	mostError = time.Second
	// grain is what the offset is rounded to. The start of a process, which tells processes apart, moves with
	// it, so that it must not change with each measurement.
	grain = time.Second
	// mostDelay is how long a request may have been under way, as the gateway finds by what the agent says.
	mostDelay = time.Minute
)

var _ extensionmiddleware.GRPCClient = (*agentAuth)(nil)

// GetGRPCClientOptions implements extensionmiddleware.GRPCClient: each connection measures
// the clock of this machine against that of its gateway, and says so with each request.
func (e *agentAuth) GetGRPCClientOptions(context.Context) ([]grpc.DialOption, error) {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor((&offset{now: readClocks}).intercept)}, nil
}

// clocks are two clocks of this machine at one moment: the wall clock, which may be wrong and may be set,
// and one that only runs.
type clocks struct{ wall, steady time.Duration }

func (c clocks) apart() time.Duration { return c.wall - c.steady }

var begin = time.Now()

func readClocks() clocks {
	now := time.Now()
	return clocks{wall: time.Duration(now.UnixNano()), steady: now.Sub(begin)}
}

// offset is by how much the clock of this machine is behind that of one gateway. The gateway's
// answer to a request has its time, so it lies between the request and the answer: the error is
// half of the round trip, however slow the way is in either direction.
type offset struct {
	now func() clocks

	mu     sync.Mutex
	next   time.Duration // when the next measurement is due, by the steady clock
	apart  time.Duration // how far the clocks were apart at the last measurement
	behind time.Duration // 0: not known to be wrong
}

func (o *offset) intercept(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	sent, behind := o.say(func() (time.Duration, bool) { return ask(ctx, c, invoke) })
	ctx = metadata.AppendToOutgoingContext(ctx, sentKey, number(sent))
	if behind != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, behindKey, number(behind))
	}
	return invoke(ctx, method, request, reply, c, options...)
}

// ask returns the time of the gateway, false where it does not say it.
func ask(ctx context.Context, c *grpc.ClientConn, invoke grpc.UnaryInvoker) (time.Duration, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var answer metadata.MD
	if err := invoke(ctx, probe, &emptypb.Empty{}, &emptypb.Empty{}, c, grpc.Header(&answer)); err != nil {
		return 0, false
	}
	return one(answer.Get(timeKey))
}

// say returns what goes with a request: the wall clock, and by how much it is behind, 0 for a clock that
// is not known to be wrong. Requests wait for a measurement that is due, so that none goes without it.
func (o *offset) say(ask func() (time.Duration, bool)) (sent, behind time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	set := (now.apart() - o.apart).Abs() > grain/2 // the wall clock was set, or the machine slept
	if set || now.steady >= o.next {
		theirs, ok := ask()
		then := o.now()
		o.measure(now, then, theirs, ok, set)
		now = then
	}
	return now.wall, o.behind
}

// measure takes what a gateway said its time is between two readings of the clocks. What is known
// stays where the answer says less, if it is of the clock as it is now.
func (o *offset) measure(from, to clocks, theirs time.Duration, ok, set bool) {
	o.apart, o.next = to.apart(), to.steady+retryEvery
	if set {
		o.behind = 0
	}
	trip := to.steady - from.steady
	if !ok || trip/2 > mostError || (to.apart()-from.apart()).Abs() > grain/2 {
		return
	}
	o.next = to.steady + probeEvery
	behind := theirs - (to.wall - trip/2)
	switch {
	case behind.Abs() < leastBehind:
		o.behind = 0
	case (behind - o.behind).Abs() > grain*3/4:
		o.behind = behind.Round(grain)
	}
}

// tell answers an agent with the time, and takes what it says of its own clock.
func (e *agentAuth) tell(ctx context.Context, agent *ingress.Agent, headers map[string][]string) {
	now := time.Duration(time.Now().UnixNano())
	_ = grpc.SetHeader(ctx, metadata.Pairs(timeKey, number(now))) // over HTTP there is no such answer
	if agent.Host == "" {
		return // a relay speaks of many machines
	}
	behind, ok := believed(now, headers)
	agent.Behind = behind
	if !ok {
		e.telemetry.ExtensionAgentAuthClocksRefused.Add(ctx, 1)
		if _, known := e.told.LoadOrStore("clock of "+agent.Host, true); !known {
			e.logger.Warn("what an agent says of its clock cannot be: its times are taken as they are", zap.String("agent", agent.Host))
		}
	}
}

// believed is by how much the clock of a sender is behind. What it says must fit the time at which its
// request came: no request comes before it was sent, nor long after.
func believed(now time.Duration, headers map[string][]string) (behind time.Duration, ok bool) {
	behind, says := one(headerOf(headers, behindKey))
	if !says {
		return 0, true
	}
	sent, says := one(headerOf(headers, sentKey))
	if delay := now - behind - sent; !says || sent <= 0 || delay < -mostError-grain || delay > mostDelay {
		return 0, false
	}
	return behind, true
}

func headerOf(headers map[string][]string, name string) []string {
	for key, values := range headers {
		if strings.EqualFold(key, name) {
			return values
		}
	}
	return nil
}

// one is the one number of a header. More than one are none.
func one(values []string) (time.Duration, bool) {
	if len(values) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(values[0], 10, 64)
	return time.Duration(n), err == nil
}

func number(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }
