package shared

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
)

func TestOneThingFromTheFirstJoinToTheLastLeave(t *testing.T) {
	var b ByID[*int]
	made, ended := 0, 0
	create := func() (*int, error) { made++; n := made; return &n, nil }
	last := func() error { ended++; return nil }
	id, other := component.MustNewID("a"), component.MustNewIDWithName("a", "2")

	first, err := b.Join(id, create)
	require.NoError(t, err)
	second, err := b.Join(id, create)
	require.NoError(t, err)
	require.Same(t, first.Value, second.Value)
	third, err := b.Join(other, create)
	require.NoError(t, err)
	require.NotSame(t, first.Value, third.Value)

	require.NoError(t, first.Leave(last))
	require.NoError(t, first.Leave(last), "a second call does nothing")
	require.Zero(t, ended)
	require.NoError(t, second.Leave(last))
	require.Equal(t, 1, ended)

	anew, err := b.Join(id, create)
	require.NoError(t, err)
	require.NotSame(t, first.Value, anew.Value)
	require.Equal(t, 3, made)
}

func TestErrorsAreReturnedAndNothingIsKept(t *testing.T) {
	var b ByID[int]
	broken := errors.New("broken")
	id := component.MustNewID("a")
	_, err := b.Join(id, func() (int, error) { return 0, broken })
	require.Equal(t, broken, err)
	share, err := b.Join(id, func() (int, error) { return 7, nil })
	require.NoError(t, err)
	require.Equal(t, 7, share.Value)
	require.Equal(t, broken, share.Leave(func() error { return broken }))
	share, err = b.Join(id, func() (int, error) { return 8, nil })
	require.NoError(t, err)
	require.Equal(t, 8, share.Value)
	require.NoError(t, share.Leave(nil))
}
