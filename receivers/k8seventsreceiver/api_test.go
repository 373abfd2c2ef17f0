package k8seventsreceiver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestRequestsAreThoseOfTheAPI asks a server that answers as an API server does.
func TestRequestsAreThoseOfTheAPI(t *testing.T) {
	asked := make(chan string, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch {
		case r.URL.Query().Get("watch") == "true":
			event := podEvent("Evicted", "seen by a watch", time.Now())
			event.TypeMeta = metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}
			raw, _ := json.Marshal(event)
			answer = map[string]any{"type": "ADDED", "object": json.RawMessage(raw)}
		case r.URL.Path == "/api/v1/nodes":
			answer = corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Node{*node("gpu-17")}}
		case r.URL.Path == "/api/v1/namespaces/ml/pods/train-3":
			pod := trainingPod()
			pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			answer = pod
		default:
			w.WriteHeader(http.StatusForbidden)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "no"}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	a, err := newRESTAPI(&rest.Config{Host: server.URL})
	require.NoError(t, err)

	list, err := a.nodes().ListWithContext(t.Context(), metav1.ListOptions{Limit: 500})
	require.NoError(t, err)
	require.Equal(t, "/api/v1/nodes?limit=500", <-asked)
	require.Equal(t, "7", list.(*corev1.NodeList).ResourceVersion)
	require.Equal(t, "gpu-17", list.(*corev1.NodeList).Items[0].Name)

	pod, err := a.pod(t.Context(), "ml", "train-3")
	require.NoError(t, err)
	require.Equal(t, "/api/v1/namespaces/ml/pods/train-3?resourceVersion=0", <-asked)
	require.Equal(t, "gpu-17", pod.Spec.NodeName)

	w, err := a.events("ml").WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "9"})
	require.NoError(t, err)
	require.Equal(t, "/api/v1/namespaces/ml/events?resourceVersion=9&watch=true", <-asked)
	require.Equal(t, "seen by a watch", (<-w.ResultChan()).Object.(*corev1.Event).Message)
	w.Stop()

	_, err = a.events("").ListWithContext(t.Context(), metav1.ListOptions{})
	require.ErrorContains(t, err, "no")
	require.Equal(t, "/api/v1/events", <-asked)
}
