package catalogue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The codes of NVIDIA's catalogue by recovery class.
func TestCatalogueCoversEveryClassifiedCode(t *testing.T) {
	c, err := Load()
	require.NoError(t, err)
	listed := 0
	for class, codes := range map[Class]string{
		ClassRestartApplication: "8 11 13 25 31 32 39-41 60 68-72 75-77 80 82-89 94 96-105 126-135 139",
		ClassResetGPU:           "46 62 64 95 109 110 119 120 136 140 143 155 156 158",
		ClassRestartNode:        "79",
		ClassRestartVM:          "151",
		ClassCheckHardware:      "54 165",
		ClassUpdateSoftware:     "78",
		ClassWorkflow:           "45 48 74 144-150 154 159 163 164 166-172",
		ClassInformational:      "37 38 43 44 63 66 67 92 93 106 107 121 137 141 152 153 157 160-162",
	} {
		for word := range strings.FieldsSeq(codes) {
			var first, last uint32
			if n, _ := fmt.Sscanf(word, "%d-%d", &first, &last); n == 1 {
				last = first
			}
			for code := first; code <= last; code++ {
				xid := c.Xid(code)
				require.Equal(t, class, xid.Class, code)
				require.NotEmpty(t, xid.Name, code)
				listed++
			}
		}
	}
	require.Len(t, c.xids, listed)
}

func TestApplicationCausedXids(t *testing.T) {
	c, err := Load()
	require.NoError(t, err)
	var codes []uint32
	for code := uint32(0); code < 200; code++ {
		if c.Xid(code).Application {
			codes = append(codes, code)
		}
	}
	require.Equal(t, []uint32{13, 31, 43, 45}, codes)
}

func TestCatalogueRefusesWhatItCannotUse(t *testing.T) {
	const classes = "classes: {workflow: {severity: error}}\n"
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":      {classes + "xids: [{code: 1, name: A, clas: workflow}]", "clas"},
		"unknown class":    {classes + "xids: [{code: 1, name: A, class: pray}]", `class "pray"`},
		"unknown severity": {classes + "xids: [{code: 1, name: A, class: workflow, severity: bad}]", `severity "bad"`},
		"code twice":       {classes + "xids: [{code: 1, name: A, class: workflow}, {code: 1, name: B, class: workflow}]", "xid 1: listed twice"},
		"no name":          {classes + "xids: [{code: 1, class: workflow}]", "without a name"},
		"bad fault":        {classes + "faults: {x: {class: y}}", "fault x"},
		"bad action":       {classes + "actions: [{name: x, class: y}]", "action x"},
		"nothing":          {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(strings.NewReader(tc.text))
			require.ErrorContains(t, err, tc.want)
		})
	}
}
