package protocol

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/internal/safetext/safetexttest"
	"github.com/tracecoreai/tracecore/receivers/gpureceiver/internal/device"
)

// texts visits each text of a message, in lists and behind pointers too. The keys of maps
// are the helper's own words.
func texts(v reflect.Value, visit func(reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			texts(v.Field(i), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), visit)
		}
	case reflect.String:
		visit(v)
	}
}

// full are messages with one of everything that holds a text.
func full() []Message {
	gpu := GPU{
		Identity: device.Identity{PCI: "0000:65:00.0"}, ECC: make([]ECC, 1), MIG: make([]device.MIG, 1),
		Health: make([]Incident, 1), Failures: make([]Failure, 1),
	}
	return []Message{{State: &State{}}, {Snapshot: &Snapshot{GPUs: []GPU{gpu, gpu}}}, {Event: &Event{}}, {Hung: &Hung{}}}
}

// TestEveryTextOfALibraryIsBounded: names, serials and messages come from a driver, a host
// engine and the firmware of a card.
func TestEveryTextOfALibraryIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"a megabyte": strings.Repeat("x", 1<<20), "runes": strings.Repeat("\u20ac", 1<<18), "everything": safetexttest.Hostile, "no text": "\xff\xfe\xc3",
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range full() {
				poisoned := 0
				texts(reflect.ValueOf(&m), func(v reflect.Value) { v.SetString(text); poisoned++ })
				require.Positive(t, poisoned)
				line, err := json.Marshal(m)
				require.NoError(t, err)
				got, err := decode(line)
				require.NoError(t, err)
				read := 0
				texts(reflect.ValueOf(&got), func(v reflect.Value) {
					if read++; v.Len() > mostText {
						require.Failf(t, "too long", "%d bytes", v.Len())
					}
					require.True(t, utf8.ValidString(v.String()))
				})
				require.Equal(t, poisoned, read)
			}
		})
	}
}

// TestLongNamesStayApart: two GPUs whose addresses begin alike are two.
func TestLongNamesStayApart(t *testing.T) {
	address := func(end string) string {
		line, err := json.Marshal(Message{Event: &Event{Event: device.Event{PCI: strings.Repeat("0", 2*mostText) + end}}})
		require.NoError(t, err)
		m, err := decode(line)
		require.NoError(t, err)
		return m.Event.PCI
	}
	require.NotEqual(t, address("1"), address("2"))
	require.Equal(t, address("1"), address("1"))
}
