package pystack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLibrary(t *testing.T) {
	for file, library := range map[string]bool{
		"/srv/train/train.py":               false,
		"train.py":                          false,
		"<string>":                          false,
		"<stdin>":                           false,
		"/home/u/lib/python_tools/train.py": false,
		"":                                  false,
		"<frozen importlib._bootstrap>":     true,
		"<frozen runpy>":                    true,
		"<__array_function__ internals>":    true,
		"__init__":                          true,
		"/usr/lib/python3/dist-packages/torch/serialization.py":             true,
		"/usr/local/lib/python3.12/dist-packages/torch/autograd.py":         true,
		"/opt/conda/lib/python3.11/threading.py":                            true,
		"/opt/conda/lib/python3.11/site-packages/torch/storage.py":          true,
		"/usr/lib64/python3.9/multiprocessing/connection.py":                true,
		"/opt/python/lib/python313.zip/threading.py":                        true,
		"/usr/lib/python3.13t/threading.py":                                 true,
		"/app/train.runfiles/pip_torch/site-packages/torch/_C.py":           true,
		"/root/.venv/lib64/python3.12/site-packages/numpy/linalg.py":        true,
		"/tmp/torchinductor_root/7k/c7kq2xw5n3.py":                          true,
		"/cache/7k/c7ka2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2b.py": true,
		"/cache/7j/c7ka2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2b.py": false,
		"/cache/7k/c7kq2xw5n3.py":                                           false,
		"/root/.triton/cache/ABCD/launch.py":                                true,
		"/home/u/torchinductor/train.py":                                    false,
	} {
		require.Equal(t, library, Library(file), file)
	}
}
