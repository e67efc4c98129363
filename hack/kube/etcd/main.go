// Command etcd is the etcd server, in a module of its own because its dependencies differ from
// those of Kubernetes.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
