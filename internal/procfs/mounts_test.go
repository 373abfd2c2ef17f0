package procfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const table = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:52 / /mnt/data rw,nosuid shared:20 - fuse.juicefs JuiceFS:vol rw,user_id=0
41 22 0:52 /set/a /var/lib/kubelet/pods/x/volume-subpaths/a rw shared:20 - fuse.juicefs JuiceFS:vol rw
42 22 0:52 / /a rw - fuse.juicefs JuiceFS:vol rw
43 22 0:53 / /my\040data\012set rw - fuse.s3fs my\040bucket rw
44 22 0:54
45 22 0:54 / /broken\9 rw - fuse x rw
46 22 0:54 / /sound rw - fuse.gcsfuse bucket rw
47 22 10:52 / /other rw - ext4 /dev/sdb rw
`

func TestMountIsFoundByItsDeviceNumber(t *testing.T) {
	r := newTree(t)
	r.write("1/mountinfo", table)
	r.write("42/mountinfo", "70 1 0:52 /set /data ro - fuse.juicefs JuiceFS:vol rw\n")
	for name, tc := range map[string]struct {
		minor     uint32
		processes []string
		want      Mount
	}{
		"the whole before a part, then the shortest path": {52, []string{"1"}, Mount{"/a", "JuiceFS:vol", "fuse.juicefs", 0, 52, "1"}},
		"as the first process sees it":                    {52, []string{"42", "1"}, Mount{"/data", "JuiceFS:vol", "fuse.juicefs", 0, 52, "42"}},
		"past a process that is gone":                     {52, []string{"77", "1"}, Mount{"/a", "JuiceFS:vol", "fuse.juicefs", 0, 52, "1"}},
		"past a process that does not have it":            {53, []string{"42", "1"}, Mount{"/my data\nset", "my bucket", "fuse.s3fs", 0, 53, "1"}},
		"past odd lines":                                  {54, []string{"1"}, Mount{"/sound", "bucket", "fuse.gcsfuse", 0, 54, "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := r.Mount(0, tc.minor, tc.processes...)
			require.NoError(t, err)
			require.Equal(t, tc.want, found)
		})
	}
	_, err := r.Mount(0, 99, "42", "1")
	require.ErrorIs(t, err, ErrNotMounted)
}

func TestMountOfAnOpenFile(t *testing.T) {
	r := newTree(t)
	r.write("42/mountinfo", table)
	r.write("42/fdinfo/3", "pos:\t0\nflags:\t02\nmnt_id:\t41\nino:\t7\n")
	found, err := r.MountOf(42, 3)
	require.NoError(t, err)
	require.Equal(t, Mount{"/var/lib/kubelet/pods/x/volume-subpaths/a", "JuiceFS:vol", "fuse.juicefs", 0, 52, "42"}, found)
	for file, info := range map[string]string{"of no mount of it": "mnt_id:\t4\n", "of no number": "mnt_id:\tx\n", "of a pipe": "pos:\t0\n"} {
		r.write("42/fdinfo/4", info)
		_, err := r.MountOf(42, 4)
		require.Error(t, err, file)
	}
	_, err = r.MountOf(42, 5)
	require.Error(t, err)
	_, err = r.MountOf(43, 3)
	require.ErrorIs(t, err, ErrGone)
}

func TestWhetherAProcessMapsAFileOfAMount(t *testing.T) {
	r := newTree(t)
	r.write("42/mountinfo", "30 1 0:47 / /data rw - fuse.juicefs JuiceFS:x rw\n31 1 0:300 / /b rw - fuse b rw\n32 1 0:48 / /nfs rw - nfs4 server:/x rw\nodd\n")
	devices, err := r.Devices(42, "fuse")
	require.NoError(t, err)
	require.Equal(t, []string{"00:2f", "00:12c"}, devices)
	for maps, want := range map[string]bool{
		python: false, python + "1-2 r--s 00000000 00:2f 7 /data/shard\n": true, "1-2 rw-p 00000000 00:12c 7 /b/x\n" + python: true,
		"1-2 r--s 00000000 00:30 7 /nfs/00:2f 00:2f\n": false, "00:2f\n": false, "": false,
	} {
		r.write("42/maps", maps)
		is, err := r.Maps(42, devices)
		require.NoError(t, err)
		require.Equal(t, want, is, maps)
	}
	r.write("42/mountinfo", "")
	devices, err = r.Devices(42, "fuse")
	require.NoError(t, err)
	require.Empty(t, devices)
	_, err = r.Devices(43, "fuse")
	require.ErrorIs(t, err, ErrGone)
	_, err = r.Maps(43, devices)
	require.ErrorIs(t, err, ErrGone)
}

func TestTableThatCannotBeReadSaysNothing(t *testing.T) {
	r := newTree(t)
	r.write("1/mountinfo", table)
	_, err := r.Mount(0, 99, "42", "1")
	require.ErrorIs(t, err, ErrNotMounted)
	_, err = r.Mount(0, 52, "42")
	require.ErrorIs(t, err, ErrGone)
}

func TestHostileMountTable(t *testing.T) {
	r := newTree(t)
	long := "50 1 0:60 / /" + strings.Repeat("x", 5000) + "\xff rw - fuse \xff\xfe rw\n"
	r.write("1/mountinfo", long)
	found, err := r.Mount(0, 60, "1")
	require.NoError(t, err)
	require.Len(t, found.Point, maxText)
	require.Equal(t, "?", found.Source)
	r.write("2/mountinfo", strings.Repeat("y", maxMountLine+1)+"\n"+table)
	_, err = r.Mount(0, 52, "2")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotMounted, "a table that cannot be read says nothing")
}

func FuzzFindMount(f *testing.F) {
	f.Add(table)
	f.Add("1 2 0:52 / \\ rw - fuse\n\n 0:52")
	f.Fuzz(func(t *testing.T, text string) {
		found, _ := findMount(strings.NewReader(text), onDevice(0, 52))
		if found != nil {
			require.LessOrEqual(t, len(found.Point), 3*maxText)
		}
	})
}
