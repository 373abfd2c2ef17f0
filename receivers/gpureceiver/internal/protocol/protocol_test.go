package protocol

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

func TestMessagesComeAsTheyWent(t *testing.T) {
	messages := []Message{
		{State: &State{Name: Ready, Driver: "580", GPUs: 2, Events: true}},
		{Snapshot: &Snapshot{GPUs: []GPU{{
			Identity: device.Identity{PCI: "0000:1a:00.0"}, Values: map[device.Quantity]uint64{device.Energy: 1<<64 - 1},
			ECC:       []ECC{{ECCCounter: device.ECCCounter{Type: "corrected", Lifetime: "volatile", Location: "all"}, Count: 3}},
			Links:     []Link{{Number: 3, Values: map[device.LinkQuantity]uint64{device.LinkState: 1}}},
			Processes: []device.Process{{PID: 7, GPUInstance: -1, ComputeInstance: -1}},
		}}}},
		{Event: &Event{Event: device.Event{PCI: "0000:1a:00.0", Type: 8, Data: 79, GPUInstance: -1, ComputeInstance: -1}}},
		{Hung: &Hung{Call: "power_usage", GPU: "0000:1a:00.0", Seconds: 10.5}},
	}
	var pipe bytes.Buffer
	w := NewWriter(&pipe)
	for _, m := range messages {
		require.NoError(t, w.Write(m))
	}
	r := NewReader(&pipe)
	for _, want := range messages {
		got, err := r.Read()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := r.Read()
	require.ErrorIs(t, err, io.EOF)
}

func TestWhatIsNoMessageIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"nothing in it": "{}\n", "two parts": `{"state":{},"hung":{}}` + "\n", "no JSON": "Segmentation fault\n",
		"too long": strings.Repeat("x", maxMessage+1), "a negative count": `{"snapshot":{"gpus":[{"values":{"energy":-1}}]}}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewReader(strings.NewReader(text)).Read()
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF)
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"state":{"name":"ready"}}` + "\n"))
	f.Add([]byte(`{"snapshot":{"gpus":[{"pci":"p","values":{"energy":5}}]}}` + "\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewReader(bytes.NewReader(text))
		for {
			m, err := r.Read()
			if err != nil {
				return
			}
			require.NoError(t, NewWriter(io.Discard).Write(m))
		}
	})
}
