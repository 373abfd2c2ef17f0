// Package thishost says what this machine is called.
package thishost

import (
	"fmt"
	"os"
)

// nodeVariable is how the chart hands a pod the name of its node (downward API,
// spec.nodeName).
const nodeVariable = "K8S_NODE_NAME"

// Node is the Kubernetes node, "" where nobody says it.
func Node() string { return os.Getenv(nodeVariable) }

// Name is the host.name of this machine's records: the node's name, else the host
// name. In a pod without host networking the latter is the pod's.
func Name() (string, error) {
	if node := Node(); node != "" {
		return node, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w; set %s to it", err, nodeVariable)
	}
	return name, nil
}
