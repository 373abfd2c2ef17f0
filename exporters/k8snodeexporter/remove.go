package k8snodeexporter

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tracecoreai/tracecore/internal/apiserver"
)

// Remove takes every condition that tracecore wrote off the nodes of a cluster, and
// says which. After an uninstall nobody else would.
func Remove(ctx context.Context, connection apiserver.Connection, out io.Writer) error {
	config := createDefaultConfig().(*Config)
	config.Connection = connection
	client, err := config.client()
	if err != nil {
		return err
	}
	return removeAll(ctx, client, out)
}

func removeAll(ctx context.Context, client api, out io.Writer) error {
	var names []string
	if err := client.nodes(ctx, func(node *corev1.Node) {
		if len(kindsOf(node)) > 0 {
			names = append(names, node.Name)
		}
	}); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	var problems []error
	for _, name := range names {
		switch err := removeFrom(ctx, client, name, out); {
		case apierrors.IsNotFound(err): // it went meanwhile
		case err != nil:
			problems = append(problems, fmt.Errorf("node %s: %w", name, err))
		}
	}
	fmt.Fprintf(out, "%d nodes had conditions of tracecore\n", len(names))
	return errors.Join(problems...)
}

func removeFrom(ctx context.Context, client api, name string, out io.Writer) error {
	for range conflicts {
		node, err := client.node(ctx, name)
		if err != nil {
			return err
		}
		kinds := kindsOf(node)
		text, err := removal(node.ResourceVersion, kinds...)
		if err != nil {
			return err
		}
		if _, err = client.patchStatus(ctx, name, text); err == nil {
			fmt.Fprintf(out, "%s: removed %q\n", name, kinds)
			return nil
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return errors.New("others write to it without a pause: try again")
}

// kindsOf are the conditions of a node that tracecore wrote, of any status.
func kindsOf(node *corev1.Node) (kinds []corev1.NodeConditionType) {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; ours(c) {
			kinds = append(kinds, c.Type)
		}
	}
	return kinds
}
