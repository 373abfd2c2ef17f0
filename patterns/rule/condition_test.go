package rule

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachTextIsCompiledOnce(t *testing.T) {
	const text = `attributes["kernelevents.xid"] == 79`
	first, err := Logs.Condition(text)
	require.NoError(t, err)
	again, err := Logs.Condition(text)
	require.NoError(t, err)
	require.Same(t, first, again)
	_, err = Logs.Value(text)
	require.Error(t, err, "a condition is no value, though it was compiled")
	for range 2 {
		_, err = Logs.Condition("attributes[")
		require.Error(t, err)
	}
}

// Files of many users, or one hostile file after the other, do not fill the memory.
func TestCompilersKeepABoundedNumberOfTexts(t *testing.T) {
	var group sync.WaitGroup
	for part := range 2 {
		group.Go(func() {
			for i := range maxKept {
				_, err := Points.Value(fmt.Sprintf(`attributes["%d"]`, part*maxKept+i))
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, len(Points.values), maxKept)
	_, err := Points.Value(`attributes["0"]`)
	require.NoError(t, err)
}
