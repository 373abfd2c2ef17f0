package pystack

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestObjectsOfTheHostsInterpreter(t *testing.T) {
	file, err := os.Open(hostPython(t).path)
	require.NoError(t, err)
	defer file.Close()
	o, err := ReadObjects(file)
	require.NoError(t, err)
	require.GreaterOrEqual(t, o.Minor, 11) // Debian 12 and newer
	require.Equal(t, versionName(o.Minor), o.Version())
	require.EqualValues(t, 40, o.Traceback)
}

func TestEveryLayoutHasItsObjects(t *testing.T) {
	for minor, l := range layouts {
		o := objectsOf(&l)
		require.Equal(t, minor, o.Minor)
		require.NotZero(t, o.CodeLines, minor)
		require.Equal(t, minor >= 11, o.FrameInner != 0, minor)
		require.Equal(t, minor >= 11, o.Members != 0, minor)
		require.Equal(t, minor >= 12, o.NumberTagged, minor)
	}
	require.EqualValues(t, 32, objectsOf(&layout{minor: 14}).TupleItems)
}

func TestAFileThatIsNoInterpreterHasNoObjects(t *testing.T) {
	self, err := os.Open("/proc/self/exe")
	require.NoError(t, err)
	defer self.Close()
	_, err = ReadObjects(self)
	require.ErrorIs(t, err, ErrNoPython)
	_, err = ReadObjects(bytes.NewReader([]byte("no ELF")))
	require.Error(t, err)
}

// Two instructions of lines 3 and 9, by the kinds kindNoColumns and kindLong.
func TestLineOfATableThatIsCut(t *testing.T) {
	table := []byte{0x80 | kindNoColumns<<3, 2 << 1, 0x80 | kindLong<<3, 6 << 1, 0, 1, 1, 0x80 | kindNone<<3}
	for at, want := range []int{3, 9, 0} {
		require.Equal(t, want, Line(11, 1, table, true, int64(2*at)), at)
	}
	require.Equal(t, 3, Line(11, 1, table[:4], false, 0))
	for cut := 3; cut <= 7; cut++ {
		require.Zero(t, Line(11, 1, table[:cut], false, 2), cut)
	}
	require.Equal(t, 9, Line(11, 1, table, false, 2))
	require.Zero(t, Line(10, 1, table, true, 0))
	require.Zero(t, Line(11, 1, table, true, -2))
}

func TestTextOfEachWidth(t *testing.T) {
	for want, content := range map[string][]byte{"aö": {'a', 0xf6}, "☃": {0x03, 0x26}, "😀": {0x00, 0xf6, 0x01, 0x00}, "�": {0x80, 0xdc}} {
		width := map[string]int{"aö": 1, "☃": 2, "😀": 4, "�": 2}[want]
		got, err := Text(append(content, make([]byte, width-1)...), width)
		require.NoError(t, err)
		require.Equal(t, want, got, "what is no whole character is left out")
	}
	_, err := Text(nil, 3)
	require.Error(t, err)
}
