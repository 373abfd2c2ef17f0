// Package deps keeps requirements of the module that are about to be imported.
package deps

import (
	_ "github.com/google/nftables"
	_ "github.com/hanwen/go-fuse/v2/fs"
	_ "github.com/hanwen/go-fuse/v2/fuse"
	_ "github.com/moby/sys/mountinfo"
	_ "github.com/nlpodyssey/gopickle/pickle"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/tools/pager"
	_ "k8s.io/client-go/tools/watch"
)
