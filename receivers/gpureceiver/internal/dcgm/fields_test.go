package dcgm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/gpureceiver/gputest"
)

// allFields are the fields of all tables.
func allFields() []field {
	all := append(who(), field{FieldXid, "DCGM_FI_DEV_XID_ERROR"})
	for _, q := range append(quantities(), profiled()...) {
		all = append(all, q.field)
	}
	for _, n := range append(ratios(), throttles()...) {
		all = append(all, n.field)
	}
	for _, e := range ecc() {
		all = append(all, e.field)
	}
	for _, l := range links() {
		all = append(all, l.field)
	}
	return all
}

func TestFieldsAreThoseOfTheHeader(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(gputest.DCGMHeaders(t), "dcgm_fields.h"))
	require.NoError(t, err)
	defined := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^#define (DCGM_FI_\w+)\s+(\d+)`).FindAllStringSubmatch(string(text), -1) {
		defined[line[1]] = line[2]
	}
	seen := map[uint16]string{}
	for _, f := range allFields() {
		require.Equal(t, defined[f.name], strconv.Itoa(int(f.id)), f.name)
		require.Empty(t, seen[f.id], "%s is there twice", f.name)
		seen[f.id] = f.name
	}
	require.Greater(t, len(seen), 100)
}

// A field group takes no more (DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP).
func TestFieldsFitTheirGroups(t *testing.T) {
	require.LessOrEqual(t, len(ids(who(), quantities(), throttles(), ecc())), 128)
	require.LessOrEqual(t, len(idsOf(links())), 128)
}

func TestPCIAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"00000000:1A:00.0": "0000:1a:00.0", "0000:1a:00.1": "0000:1a:00.1", "00000001:2B:00.0": "0001:2b:00.0",
		"00010000:2B:00.0": "", "": "", "1a:00.0": "", "0000:1a:00.0 ": "", "0000:zz:00.0": "", "0000:1a:00.9": "",
	} {
		require.Equal(t, want, pciAddress(text), fmt.Sprintf("%q", text))
	}
}
