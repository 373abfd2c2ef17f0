package k8snodeexporter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tracecoreai/tracecore/exporters/internal/nodeguard"
)

// AnnotationAgree of a node lets its conditions through the breaker: it names the
// verdict, as the Event of what is held back does (gpu_lost/5b1e6f0c). tracecore
// never writes it. The API server's audit log has who did.
const AnnotationAgree = "tracecore.ai/agree"

// breaker decides which node may get its first condition. All that it goes by is in
// the API server: the ledger, in which every writer enters a node before it writes
// the condition, and the conditions that stand. So several writers and restarts share
// one count, and a writer that ends between the two steps costs one place.
type breaker struct {
	Breaker
	client api
	now    func() time.Time

	entered string // the node that was just entered, and has no condition yet
}

// agreed is the verdict about which an operator said so, "" for none.
func agreed(node *corev1.Node, said *nodeguard.Said) string {
	for id := range strings.FieldsFuncSeq(node.Annotations[AnnotationAgree], func(r rune) bool { return r == ',' || r == ' ' }) {
		if said.At(id) >= 0 {
			return id
		}
	}
	return ""
}

// leave takes a node out of the ledger that was just entered and got no condition: what an API
// server refuses alone takes no place. Where that fails, it costs one.
func (b *breaker) leave(ctx context.Context, node string) error {
	if b.entered != node {
		return nil
	}
	b.entered = ""
	namespace, name, _ := b.ledger()
	ledger, err := b.client.configMap(ctx, namespace, name)
	if err != nil {
		return err
	}
	changed := ledger.DeepCopy()
	delete(changed.Data, node)
	return b.client.updateConfigMap(ctx, changed)
}

// admit enters a node into the ledger. Where it may not, it says why.
func (b *breaker) admit(ctx context.Context, node string) (why string, err error) {
	for range conflicts {
		if why, err = b.try(ctx, node); !apierrors.IsConflict(err) {
			return why, err
		}
	}
	return "", err
}

func (b *breaker) try(ctx context.Context, node string) (why string, err error) {
	namespace, name, _ := b.ledger()
	ledger, err := b.client.configMap(ctx, namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("its ledger, the ConfigMap %s, does not exist: make it, kubectl -n %s create configmap %s", b.Ledger, namespace, name), nil
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("its ledger, the ConfigMap %s, may not be read: give the service account the right to get and update it", b.Ledger), nil
	case err != nil:
		return "", err
	}
	recent := b.Recent(ledger.Data, b.now())
	if slices.Contains(recent, node) {
		return "", nil
	}
	if why := b.Spent(len(recent), gotOne); why != "" {
		return why, nil
	}
	if why, err = b.crowded(ctx, recent, node); why != "" || err != nil {
		return why, err
	}
	return b.enter(ctx, ledger, recent, node)
}

// gotOne is what happened to the nodes that the breaker counts.
const gotOne = "got a condition"

// crowded counts the cluster: its nodes, and those that have a condition or are about to.
func (b *breaker) crowded(ctx context.Context, recent []string, node string) (why string, err error) {
	counted := nodeguard.NewCluster(recent)
	err = b.client.nodes(ctx, func(n *corev1.Node) {
		counted.All++
		for i := range n.Status.Conditions {
			c := &n.Status.Conditions[i]
			switch {
			case n.Name == node || !stands(c):
			case c.Status == corev1.ConditionTrue:
				b.Out(counted, n.Name, c.LastTransitionTime.Time, b.now())
			default:
				counted.Have[n.Name] = true
			}
		}
	})
	if err != nil {
		return "", err
	}
	return b.Crowded(counted, gotOne, "have a condition"), nil
}

func (b *breaker) enter(ctx context.Context, ledger *corev1.ConfigMap, recent []string, node string) (why string, err error) {
	changed := ledger.DeepCopy()
	changed.Data = map[string]string{node: b.now().UTC().Format(time.RFC3339)}
	for _, one := range recent {
		changed.Data[one] = ledger.Data[one]
	}
	if err = b.client.updateConfigMap(ctx, changed); err == nil {
		b.entered = node
	}
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("its ledger, the ConfigMap %s, may not be written: give the service account the right to update it", b.Ledger), nil
	}
	return "", err
}
