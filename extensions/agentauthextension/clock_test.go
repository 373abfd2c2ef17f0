package agentauthextension

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tracecoreai/tracecore/internal/ingress"
)

// way is a gateway whose clock is right, seen from a machine whose clock is not.
type way struct {
	steady, wrong time.Duration // time, and by how much the wall clock is ahead of it
	there, back   time.Duration // how long a request and its answer take
	down          bool
	asked         int
}

func (w *way) clocks() clocks { return clocks{wall: epoch + w.steady + w.wrong, steady: w.steady} }

const epoch = 1_700_000_000 * time.Second

func (w *way) ask() (time.Duration, bool) {
	w.asked++
	w.steady += w.there
	theirs := epoch + w.steady
	w.steady += w.back
	return theirs, !w.down
}

func TestARoundTripTellsAWrongClockFromASlowWay(t *testing.T) {
	for name, tt := range map[string]struct {
		way  way
		want time.Duration
	}{
		"right":                            {way{}, 0},
		"right, and the way takes a while": {way{there: 300 * time.Millisecond, back: 10 * time.Millisecond}, 0},
		"right, and the way there is slow": {way{there: 15 * time.Second, back: time.Millisecond}, 0},
		"right, and the way back is slow":  {way{there: time.Millisecond, back: 15 * time.Second}, 0},
		"behind":                           {way{wrong: -30 * time.Second}, 30 * time.Second},
		"ahead":                            {way{wrong: 30 * time.Second}, -30 * time.Second},
		"behind by a little":               {way{wrong: -1900 * time.Millisecond}, 0},
		"behind, not by a whole second":    {way{wrong: -30_100 * time.Millisecond}, 30 * time.Second},
		"behind, and the way is uneven":    {way{wrong: -30 * time.Second, there: 900 * time.Millisecond}, 30 * time.Second},
		"behind, and the way is too slow":  {way{wrong: -30 * time.Second, there: 15 * time.Second}, 0},
		"the gateway says no time":         {way{wrong: -30 * time.Second, down: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := tt.way
			w.steady = time.Hour
			o := &offset{now: w.clocks}
			for range 3 {
				sent, behind := o.say(w.ask)
				require.Equal(t, w.clocks().wall, sent)
				require.Equal(t, tt.want, behind)
				w.steady += time.Second
			}
		})
	}
}

func TestAClockThatIsSetIsMeasuredAgain(t *testing.T) {
	w := &way{steady: time.Hour, wrong: -30 * time.Second}
	o := &offset{now: w.clocks}
	said := func() time.Duration { _, behind := o.say(w.ask); return behind }
	require.Equal(t, 30*time.Second, said())
	w.wrong = 0
	require.Zero(t, said(), "it was set right")
	w.wrong = 40 * time.Second
	require.Equal(t, -40*time.Second, said())
	w.wrong, w.down = 0, true
	require.Zero(t, said(), "what was known is of the clock before it was set")
	asked := w.asked
	require.Zero(t, said())
	require.Equal(t, asked, w.asked, "a gateway that says no time is not asked with each request")
	w.down, w.steady = false, w.steady+retryEvery
	require.Zero(t, said())
}

// The start of a process moves with what is said, so that it stays while a clock wanders.
func TestWhatIsSaidStaysWhileTheClockWanders(t *testing.T) {
	w := &way{steady: time.Hour, wrong: -30_490 * time.Millisecond}
	o := &offset{now: w.clocks}
	_, behind := o.say(w.ask)
	require.Equal(t, 30*time.Second, behind)
	for _, wrong := range []time.Duration{30_520, 30_480, 30_700, 30_300, 29_900, 29_400} {
		w.wrong, w.steady = -wrong*time.Millisecond, w.steady+probeEvery
		_, behind = o.say(w.ask)
		require.Equal(t, 30*time.Second, behind)
	}
	w.wrong, w.steady = -29_200*time.Millisecond, w.steady+probeEvery
	_, behind = o.say(w.ask)
	require.Equal(t, 29*time.Second, behind)
}

func TestWhatAnAgentSaysOfItsClockMustFitItsRequest(t *testing.T) {
	now := epoch
	for name, tt := range map[string]struct {
		headers  map[string]time.Duration
		behind   time.Duration
		believed bool
	}{
		"says nothing":              {nil, 0, true},
		"says when it sent":         {map[string]time.Duration{sentKey: now - 30*time.Second}, 0, true},
		"behind":                    {map[string]time.Duration{sentKey: now - 30*time.Second, behindKey: 30 * time.Second}, 30 * time.Second, true},
		"ahead":                     {map[string]time.Duration{sentKey: now + 30*time.Second, behindKey: -30 * time.Second}, -30 * time.Second, true},
		"behind on a slow way":      {map[string]time.Duration{sentKey: now - 45*time.Second, behindKey: 30 * time.Second}, 30 * time.Second, true},
		"behind, but is right":      {map[string]time.Duration{sentKey: now, behindKey: 30 * time.Second}, 0, false},
		"ahead by a day, but right": {map[string]time.Duration{sentKey: now, behindKey: -24 * time.Hour}, 0, false},
		"says no time":              {map[string]time.Duration{behindKey: 30 * time.Second}, 0, false},
		"was sent before 1970":      {map[string]time.Duration{sentKey: now - (1<<63 - 1), behindKey: 1<<63 - 1}, 0, false},
		"overflows":                 {map[string]time.Duration{sentKey: -1 << 63, behindKey: 1<<63 - 1}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			headers := map[string][]string{}
			for key, value := range tt.headers {
				headers[strings.ToUpper(key)] = []string{number(value)}
			}
			behind, ok := believed(now, headers)
			require.Equal(t, tt.believed, ok)
			require.Equal(t, tt.behind, behind)
		})
	}
	_, ok := believed(now, map[string][]string{sentKey: {number(now)}, behindKey: {"0", "1"}})
	require.True(t, ok, "two numbers are none")
}

// TestAGatewayKnowsTheClockOfAnAgent sends requests over gRPC from a machine whose clock is behind.
func TestAGatewayKnowsTheClockOfAnAgent(t *testing.T) {
	e, _ := gateway(t, good)
	said := &atomic.Pointer[ingress.Agent]{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var requests atomic.Int32
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		requests.Add(1)
		ctx := stream.Context()
		headers, _ := metadata.FromIncomingContext(ctx)
		if ctx, err = e.Authenticate(ctx, headers); err != nil {
			return err
		}
		agent := client.FromContext(ctx).Auth.(ingress.Agent)
		said.Store(&agent)
		if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return stream.SendMsg(&emptypb.Empty{})
	}))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	o := &offset{now: func() clocks { c := readClocks(); c.wall -= 30 * time.Second; return c }}
	token := tokenOf(t, agentAccount, audience, time.Now().Add(time.Hour), "a")
	connection, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(o.intercept))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", bearer+token)
	require.NoError(t, connection.Invoke(ctx, probe, &emptypb.Empty{}, &emptypb.Empty{}))
	require.Equal(t, ingress.Agent{Host: "node-b", Node: true, Behind: 30 * time.Second}, *said.Load())
	require.NoError(t, connection.Invoke(ctx, probe, &emptypb.Empty{}, &emptypb.Empty{}))
	require.Equal(t, int32(3), requests.Load(), "one measurement does for a minute")
}
