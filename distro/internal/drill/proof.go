package drill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tracecoreai/tracecore/bpf/identity"
	"github.com/tracecoreai/tracecore/distro/defaultconfig"
	"github.com/tracecoreai/tracecore/internal/drillsecret"
)

// jobID is what the job of every drill is called. It proves nothing.
const jobID = "tracecore-drill"

// proof is how the processes of a drill show an agent what they are.
type proof struct {
	path   string
	secret *drillsecret.Secret
	made   bool
}

// openProof reads the secret that the agent of this node shares. Where there is none it
// makes one for this drill, and says what that means for an agent beside it.
func openProof(w io.Writer) (*proof, error) {
	dir, err := defaultconfig.StateDir()
	if err != nil {
		return nil, err
	}
	p := &proof{path: filepath.Join(dir, drillsecret.Name)}
	p.secret, p.made, err = drillsecret.Open(p.path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: run the drill as the agent's user, with its rights (root, or CAP_BPF and CAP_PERFMON); `tracecore bpf-check` says which are missing", err)
	}
	if err != nil {
		return nil, err
	}
	if p.made {
		fmt.Fprintf(w, "No agent shares its drill secret in %s. An agent that runs here now takes this fault for a real one:\n"+
			"start it with `extensions: {identity: {drill_secret: %s}}`, or set %s to its state folder.\n\n", dir, p.path, defaultconfig.StateDirVariable)
	}
	return p, nil
}

// close takes away a secret that nobody else knows.
func (p *proof) close() {
	if p.made {
		_ = os.Remove(p.path)
	}
}

// variable is the environment of a process that the drill is about to start.
func (p *proof) variable() string {
	return identity.DrillVariable + "=" + p.secret.Token(time.Now())
}

// rank is the environment of a drill's child: a rank that no real job has, of a
// job whose name says what it is.
func (p *proof) rank() []string {
	return []string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=3", "JOB_ID=" + jobID, p.variable()}
}
