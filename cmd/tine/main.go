// Command tine forks repositories for programs to work in: see README.md, and DESIGN in the help of each command.
// This package turns flags into calls of package sidecar and prints what they return; it decides nothing else.
package main

import (
	"os"
)

func main() {
	os.Exit(execute(os.Args[1:], standardStreams()))
}
