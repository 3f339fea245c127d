// Command tine forks repositories for programs to work in; README.md tells what for. This package turns flags into calls
// of package sidecar and prints what they return; it decides nothing else.
package main

import (
	"os"

	"tine/sidecar/isolate"
)

func main() {
	isolate.MaybeInit() // this binary is also the first process in a run's namespaces
	os.Exit(execute(os.Args[1:], standardStreams()))
}
