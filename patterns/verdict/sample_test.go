package verdict

import "time"

// at is an instant of the story that the samples tell.
func at(clock string) time.Time {
	t, err := time.Parse(time.DateTime, "2026-11-20 "+clock)
	if err != nil {
		panic(err)
	}
	return t.UTC()
}

// lostGPU is the root cause of the sample incident.
func lostGPU() Verdict {
	return Verdict{
		ID: "gpu_lost-5b1e6f0c9d2a", IncidentID: "inc-5b1e6f0c9d2a", PatternID: 18, Pattern: "gpu_lost",
		Role: RootCause, Status: Open, Confidence: Full, Severity: Critical, Revision: 1,
		Onset: at("14:02:11.531"), Updated: at("14:02:11.531"),
		Headline:    "GPU 0000:65:00.0 fell off the bus; rank 3 was using it",
		Remediation: "Drain the node and restart the machine itself, not only its operating system. If the GPU is lost again, reseat or replace it.",
		Culprit: map[string]string{
			"host": "node-17", "gpu": "0000:65:00.0", "rank": "3", "job": "llama-7b", "process": "python", "pid": "4242",
		},
		BlastRadius: []int{3},
		Evidence: []Evidence{{
			Name: "xid_79", Time: at("14:02:11.531"), Count: 1, Source: "gpu.xid",
			Shows: "the kernel wrote Xid 79 for GPU 0000:65:00.0: GPU has fallen off the bus.",
		}},
		NotObserved: []string{"a recovery action (Xid 154) that says what to reset"},
	}
}

// abortedRank is a symptom of lostGPU.
func abortedRank() Verdict {
	return Verdict{
		ID: "rank_exit-77aa00", IncidentID: "inc-5b1e6f0c9d2a", PatternID: 20, Pattern: "rank_exit",
		Role: Symptom, RootCause: "gpu_lost-5b1e6f0c9d2a", Status: Open, Confidence: Full, Severity: Error, Revision: 1,
		Onset: at("14:02:12.004"), Updated: at("14:02:12.004"),
		Headline:    "rank 3 (python, pid 4242) was killed by SIGABRT",
		Remediation: "Look at what this rank did before it died.",
		Culprit:     map[string]string{"host": "node-17", "rank": "3", "pid": "4242"},
		BlastRadius: []int{3},
		Evidence: []Evidence{{
			Name: "exit", Time: at("14:02:12.004"), Count: 1, Source: "process.exit", Shows: "rank 3 ended with signal 6 (SIGABRT)",
		}},
	}
}

// asCause is abortedRank before its cause was known.
func asCause() Verdict {
	v := abortedRank()
	v.Role, v.RootCause = RootCause, ""
	return v
}

// revised is v one revision later.
func revised(v Verdict, change func(*Verdict)) Verdict {
	v.Revision++
	change(&v)
	return v
}

// killedWorker names sizes.
func killedWorker() Verdict {
	v := lostGPU()
	v.ID, v.IncidentID, v.PatternID, v.Pattern = "host_oom_kill-1", "inc-oom", 12, "host_oom_kill"
	v.Headline = "the kernel killed pt_data_worker (pid 77) of rank 5 on node-17: its memory cgroup /kubepods/burstable/podabc reached its limit of 68719476736 bytes"
	v.Remediation = "Raise the memory limit of the container, or lower what the rank holds in host memory."
	v.Culprit = map[string]string{
		"host": "node-17", "rank": "5", "process": "pt_data_worker", "pid": "77", "cgroup": "/kubepods/burstable/podabc/ctr",
		"limit_bytes": "68719476736", "anon_rss_bytes": "60000000000", "constraint": "cgroup", "trigger_pid": "77",
	}
	v.BlastRadius, v.NotObserved = []int{5}, nil
	v.Evidence[0].Source, v.Evidence[0].Shows = "oom.kill", "the victim held 60000000000 bytes, 512 bytes and 99999999999999999999 bytes"
	return v
}

// hostile quotes a kernel line that tries to own the terminal.
func hostile() Verdict {
	v := lostGPU()
	v.Headline = "\x1b[2J\x1b]0;owned\x07GPU gone\r\nCRITICAL  forged line\u202e\u2028 tail"
	v.Culprit = map[string]string{"host": "a\x00b", "mount": "/data\x1b[31m\u009b"}
	v.Evidence[0].Shows = "bad \xff\xfe bytes " + string(make([]byte, 3))
	v.NotObserved = []string{"x\ny"}
	return v
}
