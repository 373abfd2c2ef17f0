package nodeguard

// MachineFaults are the patterns whose faults are a machine's own, the default of what acts on
// nodes. What is a job's, a storage's or a user's fault is no reason to drain a node: nor are
// gpu_fault and host_lockup, since the program of a tenant can let a ring of an AMD GPU time out,
// and can keep a CPU of the kernel busy.
func MachineFaults() []string {
	return []string{
		"fabric_fault", "gpu_lost", "hbm_ecc", "ib_link_down", "ib_link_flap", "node_memory_error", "nvlink_degradation", "pcie_degradation", "thermal_throttle", "xid_impact",
	}
}

// RebootEnds are those of them that are over when the machine has booted.
func RebootEnds() []string { return []string{"fabric_fault", "gpu_lost", "hbm_ecc", "xid_impact"} }
