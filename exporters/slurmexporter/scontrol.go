package slurmexporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/tracecoreai/tracecore/exporters/internal/verdicts"
	"github.com/tracecoreai/tracecore/internal/safetext"
)

const (
	// mostOutput is what scontrol may say: 4 KiB for each of 16,384 nodes.
	mostOutput = 64 << 20
	mostError  = 512
	// grace is how long a scontrol that was ended may keep its output open.
	grace = time.Second
)

// scontrol runs Slurm's program of that name, without a shell and for a time that ends.
// Slurm's REST API would do, but that of 22.05, which Debian has, changes no node.
type scontrol struct {
	path    string
	timeout time.Duration
}

// nodes are all nodes of the cluster.
func (s *scontrol) nodes(ctx context.Context) ([]node, error) {
	text, err := s.run(ctx, "show", "node")
	if err != nil {
		return nil, err
	}
	return parse(text), nil
}

// drain lets no more jobs onto a node.
func (s *scontrol) drain(ctx context.Context, node, reason string) error {
	return s.update(ctx, "nodename="+node, "state=drain", "reason="+reason)
}

// reword changes the reason of a node that is drained.
func (s *scontrol) reword(ctx context.Context, node, reason string) error {
	return s.update(ctx, "nodename="+node, "reason="+reason)
}

// undrain ends a drain and nothing else: `resume` would bring back a node that is down.
func (s *scontrol) undrain(ctx context.Context, node string) error {
	return s.update(ctx, "nodename="+node, "state=undrain")
}

// update changes a node. Slurm has just told of its nodes, so that what it refuses is about
// this one alone: the cloud has it powered down, a right is missing for its partition.
func (s *scontrol) update(ctx context.Context, arguments ...string) error {
	_, err := s.run(ctx, append([]string{"update"}, arguments...)...)
	var refused *exec.ExitError
	if errors.As(err, &refused) {
		return verdicts.Alone(err)
	}
	return err
}

func (s *scontrol) run(ctx context.Context, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	out, problem := bounded{most: mostOutput}, bounded{most: mostError}
	cmd := exec.CommandContext(ctx, s.path, arguments...)
	// Times come as parse reads them.
	cmd.Env = append(os.Environ(), "TZ=UTC", "SLURM_TIME_FORMAT=standard", "LC_ALL=C")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &problem, grace
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s %s: no answer within %s", s.path, arguments[0], s.timeout)
	case err != nil:
		// scontrol says some of its errors on standard output.
		said := append(problem.Bytes(), out.Bytes()[:min(out.Len(), mostError)]...)
		return "", fmt.Errorf("%s %s: %w: %s", s.path, arguments[0], err, safetext.Clip(safetext.Line(string(bytes.TrimSpace(said))), mostError))
	case out.cut:
		return "", errors.New("scontrol says more than 64 MiB: give tracecore a cluster of its own")
	}
	return out.String(), nil
}

// bounded keeps the first bytes of what is written.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if left := b.most - b.Len(); len(p) > left {
		b.cut = true
		b.Buffer.Write(p[:left])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}
