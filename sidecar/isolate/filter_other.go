//go:build !amd64 && !arm64

package isolate

var conventions []convention
