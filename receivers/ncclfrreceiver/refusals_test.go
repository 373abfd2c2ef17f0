package ncclfrreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/tracecoreai/tracecore/receivers/ncclfrreceiver/internal/process"
)

// toldOf is the record of a file that was refused.
func (r *rig) toldOf(name string) map[string]any {
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	for _, told := range r.sink.files {
		if told["nccl.fr.file"] == filepath.Join(r.dir, name) {
			return told
		}
	}
	return nil
}

// TestARefusedFileIsToldInARecord: the operator reads which file was refused, and why.
func TestARefusedFileIsToldInARecord(t *testing.T) {
	r := newRig(t)
	r.config.MaxFileSize = 4096
	r.write("rank_1", []byte("\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R."))
	r.write("rank_2", []byte("# a script\n"))
	r.write("rank_3", make([]byte, 4097))
	r.put("trace", "missing/rank_0.pickle")
	r.put("rank_5", "missing/rank_0.pickle")
	require.NoError(t, os.Chtimes(filepath.Join(r.dir, "rank_5"), began.Add(-2*time.Hour), began.Add(-2*time.Hour)))
	r.start()
	r.look(time.Second)
	for name, reason := range map[string]string{"rank_1": "hostile", "rank_2": "not_a_dump", "rank_3": "too_large", "trace": "no_rank"} {
		told := r.toldOf(name)
		require.Equal(t, reason, told["nccl.fr.refused.reason"], name)
		require.Equal(t, "claimed", told["tracecore.trust"])
		require.NotEmpty(t, told["nccl.fr.refused.detail"])
	}
	require.Len(t, r.sink.files, 4, "an old file is as usual, and none is told twice")
}

// TestHostileNamesAndContentsOfRefusedFilesAreBounded in what is told of them.
func TestHostileNamesAndContentsOfRefusedFilesAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		file    string
		content []byte
	}{
		"a global of a megabyte":   {"rank_1", []byte("\x80\x02c" + strings.Repeat("x", 1<<20) + "\nsystem\n.")},
		"control characters in it": {"rank_1", []byte("\x80\x02c\x1b]0;owned\x07\nsystem\n.")},
		"bytes that are no text":   {"rank_1", []byte("\x80\x02c\xff\xfe\n\xc3(\n.")},
		"a name of 255 bytes":      {"rank_1" + strings.Repeat("x", 249), []byte("no dump")},
		"a name with an escape":    {"rank_1\x1b[2J\n<b>", []byte("no dump")},
		"a name that is no text":   {"rank_1\xff", []byte("no dump")},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write(tc.file, tc.content)
			r.start()
			r.look(time.Second)
			require.Len(t, r.sink.files, 1)
			for key, value := range r.sink.files[0] {
				if text, ok := value.(string); ok {
					require.True(t, utf8.ValidString(text), key)
					require.LessOrEqual(t, len(text), 4096, key)
				}
			}
			require.LessOrEqual(t, len(r.sink.files[0]["nccl.fr.refused.detail"].(string)), mostDetail)
		})
	}
}

// TestAFloodOfRefusedFilesIsToldByAFew: all are counted; what is told grows with time and
// with users, and says how much it leaves out.
func TestAFloodOfRefusedFilesIsToldByAFew(t *testing.T) {
	const files = 100
	r := newRig(t)
	for i := range files {
		r.write(fmt.Sprint("rank_", i), []byte(fmt.Sprint("no dump ", i)))
	}
	r.start()
	r.look(time.Second)
	require.Len(t, r.sink.files, mostRefusals)
	require.Equal(t, map[string]int64{"not_a_dump": files}, r.refusals())
	r.pass(refusalWindow)
	r.write("rank_3", []byte("no dump either"))
	r.look(time.Second)
	require.Len(t, r.sink.files, mostRefusals+1)
	require.EqualValues(t, files-mostRefusals, r.sink.files[mostRefusals]["nccl.fr.refused.untold"])
	r.write("rank_3", []byte("nor this"))
	r.look(time.Second)
	require.NotContains(t, r.sink.files[mostRefusals+1], "nccl.fr.refused.untold")
}

// TestWhoIsRefusedTakesNobodysTurn in the records, under as many users as he likes.
func TestWhoIsRefusedTakesNobodysTurn(t *testing.T) {
	r, now := newRefusals(), began
	for range 10 * mostRefusals {
		r.may(1, now)
	}
	_, ok := r.may(2, now)
	require.True(t, ok)
	told := 0
	for uid := range uint32(100 * mostRefusers) {
		if _, ok := r.may(1000+uid, now); ok {
			told++
		}
	}
	require.Equal(t, mostRefusers-2, told)
	require.Len(t, r.users, mostRefusers)
	untold, ok := r.may(1, now.Add(refusalWindow))
	require.True(t, ok)
	require.Equal(t, 9*mostRefusals, untold)
	require.Len(t, r.users, 1)
	_, ok = r.may(1, now)
	require.True(t, ok, "a clock that is set back")
}

// TestARefusalNeverHoldsUpADump: a consumer that takes none costs the record alone.
func TestARefusalNeverHoldsUpADump(t *testing.T) {
	r := newRig(t).start()
	r.sink.refuse(process.ErrKilled)
	r.write("rank_1", []byte("no dump"))
	r.look(time.Second)
	require.Equal(t, 1, r.sink.refused)
	r.sink.refuse(nil)
	r.put("rank_2", "missing/rank_2.pickle")
	r.look(time.Second)
	require.Equal(t, []string{finished}, r.sink.said())
}
