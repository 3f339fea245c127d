package isolate

// installFilter is replaced below.
func installFilter() error { return nil }
