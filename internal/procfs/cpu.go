package procfs

import (
	"errors"
	"path"
	"strconv"
	"strings"
)

// CPUGroup is a cgroup that limits the CPU time of a process, its own or one above it.
type CPUGroup struct {
	Path      string
	Cores     float64 // the limit
	Periods   uint64  // in which its processes ran, since it was made
	Throttled uint64  // of these, the ones in which the limit held them back
}

// maxCgroupDepth bounds the walk to the root. Kubernetes needs 5.
const maxCgroupDepth = 24

// CPUGroups reads the cgroups of a process that have a limit, from its own upwards: none
// where there is no limit. cgroup v1 has it in cpu.cfs_quota_us and cpu.cfs_period_us, v2 in
// cpu.max; both count periods in cpu.stat (Documentation/scheduler/sched-bwc.rst).
func (f *FS) CPUGroups(pid uint32) ([]CPUGroup, error) {
	content, err := f.Cgroup(pid)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || parts[2] == "/" {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			if controller == "cpu" {
				return f.limitsAbove(parts[2], func(dir string) (CPUGroup, bool) { return f.limitV1(parts[1], dir) }), nil
			}
		}
		if parts[0] == "0" {
			if groups := f.limitsAbove(parts[2], f.limitV2); len(groups) > 0 {
				return groups, nil
			}
		}
	}
	return nil, nil
}

func (f *FS) limitsAbove(dir string, read func(string) (CPUGroup, bool)) (groups []CPUGroup) {
	for range maxCgroupDepth {
		if dir = path.Join("/", dir); dir == "/" {
			break
		}
		if g, limited := read(dir); limited {
			groups = append(groups, g)
		}
		dir = path.Dir(dir)
	}
	return groups
}

// limitV1 reads a cgroup of v1. Its hierarchy is mounted under the names of its controllers,
// and distributions add a link for each.
func (f *FS) limitV1(controllers, dir string) (g CPUGroup, limited bool) {
	for _, hierarchy := range []string{controllers, "cpu"} {
		quota, err := f.cgroupFile(hierarchy, dir, "cpu.cfs_quota_us")
		if err != nil {
			continue
		}
		period, _ := f.cgroupFile(hierarchy, dir, "cpu.cfs_period_us")
		stat, _ := f.cgroupFile(hierarchy, dir, "cpu.stat")
		return cpuGroup(dir, quota, period, stat)
	}
	return CPUGroup{}, false
}

func (f *FS) limitV2(dir string) (g CPUGroup, limited bool) {
	limit, _ := f.cgroupFile("", dir, "cpu.max")
	quota, period, _ := strings.Cut(limit, " ")
	stat, _ := f.cgroupFile("", dir, "cpu.stat")
	return cpuGroup(dir, quota, period, stat)
}

// cpuGroup is a limit of so many microseconds in each period. "max" and -1 are none.
func cpuGroup(dir, quota, period, stat string) (g CPUGroup, limited bool) {
	us, errQuota := strconv.ParseInt(strings.TrimSpace(quota), 10, 64)
	each, errPeriod := strconv.ParseInt(strings.TrimSpace(period), 10, 64)
	if errQuota != nil || errPeriod != nil || us <= 0 || each <= 0 {
		return CPUGroup{}, false
	}
	g = CPUGroup{Path: strings.ToValidUTF8(dir[:min(len(dir), maxName)], "?"), Cores: float64(us) / float64(each)}
	for line := range strings.Lines(stat) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseUint(value, 10, 64)
		switch name {
		case "nr_periods":
			g.Periods = n
		case "nr_throttled":
			g.Throttled = n
		}
	}
	return g, true
}

var errPressure = errors.New("no share of ten seconds in it")

// CPUPressure is the share of the last ten seconds, in percent, in which a task of this host
// could run and had no CPU (Documentation/accounting/psi.rst). Since Linux 4.20, where
// pressure is not switched off.
func (f *FS) CPUPressure() (percent float64, err error) {
	file, err := f.ReadFile(path.Join(f.root, "pressure/cpu"), maxStat)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(file.Content)) {
		if rest, some := strings.CutPrefix(line, "some avg10="); some {
			number, _, _ := strings.Cut(rest, " ")
			percent, err = strconv.ParseFloat(number, 64)
			if err != nil || percent != percent || percent < 0 {
				return 0, errPressure
			}
			return min(percent, 100), nil
		}
	}
	return 0, errPressure
}
