package record

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// byName finds an attribute that is written by its name.
var byName = regexp.MustCompile(`\b[Pp]ut(Str|Int|Bool|Double|Empty|EmptySlice|EmptyMap|EmptyBytes|Text|Known|Ints)?\(([a-zA-Z.]+, )?"|ttributes(\(\))?\.(Str|Text|Int|Bool|Double|Slice|Map)\("`)

// The compiler knows which attributes an event has only where the code that tools/events
// makes writes them.
func TestOnlyGeneratedCodeWritesAttributesByName(t *testing.T) {
	require.True(t, byName.MatchString(`a.PutStr("gpu.id", id)`))
	require.True(t, byName.MatchString(`putText(a, "gpu.id", id)`))
	require.True(t, byName.MatchString(`a.Attributes().Str("gpu.id", id)`))
	require.False(t, byName.MatchString(`a.GpuID(id)`))
	const root = "../../.."
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "receivers"), func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		base := filepath.Base(path)
		if entry.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "generated_") {
			return nil
		}
		text, err := os.ReadFile(path)
		require.Empty(t, byName.FindString(string(text)), "%s: declare the attribute in metadata.yaml and use the method that tools/events makes", name)
		return err
	}))
}
